"""Packed objects that are read often: the same answers, within a bound."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any
from weakref import WeakSet

import pytest

from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.packing import Packing, Tally
from kopf_selectcache.core.store.record import OFTEN_READ_ENTRY_BYTES, READ_ONCE_OBJECTS, OftenRead, Record
from kopf_selectcache.core.store.store import Store, UnionView

PACKING = Packing(always=True)
SIZE = 300
EIGHT = 8 * (SIZE + OFTEN_READ_ENTRY_BYTES)
"""Room for eight objects. A larger one than these is not kept."""


def packed(name: str, *, size: int = SIZE, version: str = "1", value: str = "1") -> Record:
    data = f'{{"name":"{name}","value":{value}}}'.encode().ljust(size)
    stored = PACKING.pack(data)
    assert len(stored) < len(data)
    return Record("shop", name, "u1", version, {}, (), stored, packing=PACKING)


def kept(often: OftenRead, *records: Record) -> str:
    return " ".join(each.name for each in records if id(each) in often._entries)


def read(often: OftenRead, *records: Record, times: int = 2) -> None:
    for each in records:
        for _ in range(times):
            often.decode(each)


@pytest.mark.parametrize(
    "value", ["1", "1e999", str(2**64), "[" * 600 + "]" * 600, '{"b":"\\u00e9","a":0.1}']
)
def test_an_object_is_the_same_however_often_it_is_read(value: str) -> None:
    often, record = OftenRead(), packed("a", size=2000, value=value)
    assert {repr(often.decode(record)) for _ in range(5)} == {repr(record.decode())}


def test_readers_may_change_the_objects_they_read() -> None:
    often, record = OftenRead(), packed("a", value='{"replicas":1}')
    for _ in range(5):
        obj = often.decode(record)
        assert obj["value"] == {"replicas": 1}
        obj["value"]["replicas"] = 2


def test_objects_that_were_not_read_lately_make_room() -> None:
    often, records = OftenRead(EIGHT), [packed(name) for name in "abcdefghij"]
    read(often, *records[:8])
    assert kept(often, *records) == "a b c d e f g h"
    read(often, records[0], records[2], times=1)
    read(often, *records[8:])
    assert kept(often, *records) == "a c e f g h i j", "b and d were the oldest that nobody had read since"
    assert often.bytes == EIGHT


def test_objects_that_are_all_read_often_make_room_in_turn() -> None:
    often, records = OftenRead(EIGHT), [packed(name) for name in "abcdefghijklmnop"]
    for _ in range(5):
        read(often, *records, times=3)
    assert len(kept(often, *records).split()) == 8
    assert often.bytes == EIGHT


def test_a_large_object_displaces_no_others() -> None:
    often, small, large = OftenRead(EIGHT), packed("small"), packed("large", size=SIZE + 1)
    read(often, small, large, times=5)
    assert kept(often, small, large) == "small"


def test_an_object_is_unpacked_once_for_each_read_also_if_it_is_not_retained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    often, large, unpacked = OftenRead(EIGHT), packed("large", size=SIZE + 1), list[bytes]()
    unpack = PACKING.unpack

    def noted(stored: bytes) -> bytes:
        unpacked.append(stored)
        return unpack(stored)

    monkeypatch.setattr(PACKING, "unpack", noted)
    read(often, large, times=4)
    assert len(unpacked) == 4


def test_objects_that_are_read_once_are_not_retained_and_hardly_remembered() -> None:
    often, records = OftenRead(), [packed(str(number)) for number in range(READ_ONCE_OBJECTS + 100)]
    read(often, *records, times=1)
    assert len(often._read_once) == READ_ONCE_OBJECTS
    assert not often._entries


def relist(store: Store, *records: Record) -> None:
    store.begin()
    for each in records:
        store.put(each)
    store.commit("3")


@pytest.mark.parametrize(
    "change",
    [
        lambda store, _: store.put(packed("a", version="2")),
        Store.leave,
        lambda store, _: relist(store),
        lambda store, _: relist(store, packed("a", version="2")),
    ],
)
def test_an_object_that_is_not_stored_any_more_is_dropped(change: Callable[[Store, Record], Any]) -> None:
    store, record = Store(), packed("a")
    store.put(record)
    often = store.often_read
    assert often is not None
    read(often, record)
    assert kept(often, record) == "a"
    change(store, record)
    assert (kept(often, record), often.bytes) == ("", 0)


@pytest.mark.parametrize("after", [None, packed("a", version="2")])
def test_an_object_that_a_union_shows_no_more_is_dropped(after: Record | None) -> None:
    view, record = UnionView(1), packed("a")
    view.show([Change(None, record, ChangeCause.ENTERED)], {0: "1"})
    often = view.often_read
    assert often is not None
    read(often, record)
    assert kept(often, record) == "a"
    view.show([Change(record, after, ChangeCause.UPDATED if after else ChangeCause.LEFT)], {0: "2"})
    assert (kept(often, record), often.bytes) == ("", 0)


def test_an_object_that_a_relist_leaves_as_it_is_stays() -> None:
    store, record = Store(), packed("a")
    store.put(record)
    often = store.often_read
    assert often is not None
    read(often, record)
    relist(store, packed("a"))
    assert kept(often, record) == "a"


def test_nothing_is_retained_where_bytes_are_limited() -> None:
    """The limit is compared with the stored bytes."""
    assert Store(tally=Tally()).often_read is None


def test_7_the_object_of_one_record_is_never_that_of_another() -> None:
    """CPython gives a new record the memory, and the `id`, of one that was freed."""
    often = OftenRead()
    for number in range(50):
        record = packed(str(number), value=str(number))
        for _ in range(3):
            assert often.decode(record) == {"name": str(number), "value": number}
        del record


def test_threads_read_the_same() -> None:
    often, records = OftenRead(EIGHT), [packed(str(number), value=str(number)) for number in range(30)]
    wrong: list[object] = []

    def work(start: int) -> None:
        for step in range(2000):
            number = (start + step * step) % 30
            if often.decode(records[number]) != {"name": str(number), "value": number}:
                wrong.append(number)
            if step % 7 == 0:
                often.forget(records[number])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [Thread(target=work, args=(start,)) for start in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert (
        often.bytes
        == sum(len(each.data) + OFTEN_READ_ENTRY_BYTES for each in often._entries.values())
        <= EIGHT
    )


def test_a_dropped_store_frees_the_objects_that_were_read() -> None:
    def make() -> None:
        store = Store()
        store.put(record := packed("a"))
        assert store.often_read is not None
        read(store.often_read, record)
        alive.add(store.often_read)

    alive: WeakSet[OftenRead] = WeakSet()
    gc.disable()
    try:
        make()
        assert not alive
    finally:
        gc.enable()
