"""Siblings are packed against one of them, and read as they are: whatever becomes of that one, of its owner
and of the others, and while other threads read."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakSet

import msgspec
import pytest
import zstandard

from kopf_selectcache.core.store import packing as packing_module
from kopf_selectcache.core.store import record as record_module
from kopf_selectcache.core.store.packing import (
    GAIN_ATTEMPTS,
    OVERHEAD_BYTES,
    SAMPLE_OBJECTS,
    SINGLE_OWNERS,
    TEMPLATE_PLACE_BYTES,
    SiblingPacking,
    Tally,
    Template,
    learned,
    weight,
    weights_of,
)
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Store
from tests.interleaving import stepping


def pod(owner: str, number: int, *, seed: int = 0, size: int = 12) -> bytes:
    """Make a pod: all of one owner have its spec in common, and nothing of value with those of another."""
    own, common = random.Random(f"{owner} {number} {seed}"), random.Random(owner)  # The same each time.
    return msgspec.json.encode(
        {
            "kind": "Pod",
            "metadata": {"name": f"{owner}-{number}", "uid": f"{own.getrandbits(128):x}"},
            "spec": {
                f"container{index}": f"registry.example.com/{common.getrandbits(160):x}"
                for index in range(size)
            },
            "status": {"podIP": f"10.0.{own.randrange(256)}.{own.randrange(256)}", "phase": "Running"},
        }
    )


def record(
    packing: SiblingPacking | None, data: bytes, owner: str = "", *, name: str = "a", version: str = "1"
) -> Record:
    owners = (owner,) if owner else ()
    return Record("shop", name, f"uid-{name}", version, {}, owners, data, b"", packing)


@pytest.fixture(scope="module")
def learnt() -> Callable[[], SiblingPacking]:
    found = learned([pod(f"sample-{number}", 0) for number in range(SAMPLE_OBJECTS)])

    def fresh() -> SiblingPacking:
        packing = SiblingPacking()
        packing.begin()
        packing.adopt(found)
        assert packing.packs
        return packing

    return fresh


def group(packing: SiblingPacking, owner: str, count: int = 5, *, seed: int = 0) -> list[Record]:
    """Return packed records of one owner."""
    found = [
        record(packing, pod(owner, number, seed=seed), owner, name=f"{owner}-{number}")
        for number in range(count)
    ]
    for each in found:
        packing.pack_record(each)
    return found


def expected(owner: str, count: int = 5) -> list[bytes]:
    return [pod(owner, number) for number in range(count)]


def template_of(record: Record) -> Template:
    assert isinstance(record.packing, Template)
    return record.packing


Learnt = Callable[[], SiblingPacking]


def seen(record: Record, way: str = "read") -> bytes:
    """Return the object of a record as a reader sees it, in one of the two ways."""
    try:
        return record.data if way == "read" else msgspec.json.encode(record.decode())
    except Exception as error:  # Garbled bytes cannot be unpacked, or decoded.  # noqa: BLE001
        return repr(error).encode()


def test_7_equal_bytes_of_two_groups_are_different_objects(learnt: Learnt) -> None:
    packing = learnt()
    (first, *_), (other, *_) = group(packing, "web"), group(packing, "db")
    other.uid = first.uid
    assert first.stored == other.stored, "each is the template of its group"
    assert (first.data, other.data) == (pod("web", 0), pod("db", 0))
    assert not first.is_same(other)
    assert first.is_same(record(None, pod("web", 0), "web", name="web-0"))


def test_7_groups_that_resemble_each_other_stay_apart(learnt: Learnt) -> None:
    packing = learnt()
    found = {
        (owner, number): record(packing, pod("web", number + at * 10), owner, name=f"{owner}-{number}")
        for number in range(5)
        for at, owner in enumerate(("blue", "green"))
    }
    for each in found.values():
        packing.pack_record(each)
    assert len({id(each.packing) for each in found.values()}) == 2
    for (owner, number), each in found.items():
        assert seen(each) == pod("web", number + 10 * (owner == "green"))


def test_compressors_are_freed_between_the_objects_of_two_lists(
    monkeypatch: pytest.MonkeyPatch, learnt: Callable[[], SiblingPacking]
) -> None:
    existing: WeakSet[Compressor] = WeakSet()

    class Compressor:
        def __init__(self, **options: Any) -> None:
            self._compressor = real(**options)
            existing.add(self)

        def compress(self, data: bytes) -> bytes:
            return self._compressor.compress(data)

    packing, real = learnt(), zstandard.ZstdCompressor
    packing.free_compressors()
    monkeypatch.setattr(zstandard, "ZstdCompressor", Compressor)
    before = group(packing, "web")
    assert len(existing) == 2, "one of the kind, and one of the group"
    packing.free_compressors()
    assert not existing
    assert packing.packs
    records = before + group(packing, "web", seed=1) + group(packing, "db")
    assert [each.data for each in records] == [
        *expected("web"),
        *(pod("web", number, seed=1) for number in range(5)),
        *expected("db"),
    ]


def test_7_siblings_are_read_when_the_object_of_their_template_has_gone(learnt: Learnt) -> None:
    packing = learnt()
    found = group(packing, "web")
    del found[0]
    packing._firsts.clear()
    gc.collect()
    assert [each.data for each in found] == expected("web")[1:]


def test_7_a_change_of_the_object_of_a_template_leaves_its_siblings(learnt: Learnt) -> None:
    packing = learnt()
    found = group(packing, "web")
    changed = record(packing, pod("web", 0, seed=7), "web", name="web-0", version="2")
    packing.pack_record(changed)
    assert changed.packing is found[1].packing
    assert seen(changed) == pod("web", 0, seed=7)
    assert [seen(each) for each in found] == expected("web")


def test_7_a_template_exists_as_long_as_its_records(learnt: Learnt) -> None:
    packing = learnt()
    templates: WeakSet[Template] = WeakSet()
    found = group(packing, "web")
    templates.add(template_of(found[1]))
    found.clear()
    group_of_others = [group(packing, f"other-{number}") for number in range(8)]  # Compressors are few.
    gc.collect()
    assert not templates
    assert len(group_of_others) == 8
    assert [each.data for each in group(packing, "web")] == expected("web")


def test_a_template_that_was_read_is_freed_when_others_are_read(
    learnt: Learnt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing_module, "MOST_WARM_BYTES", 4 * len(pod("web", 0)))
    packing = learnt()
    groups = [group(packing, f"app-{number}") for number in range(12)]
    for _ in range(2):
        for number, each in enumerate(groups):
            assert [record.data for record in each] == expected(f"app-{number}")
    frames = [template_of(each[1]).frame for each in groups]
    assert 1 <= sum(frame is not None for frame in frames) <= 4


def test_unpacked_templates_of_a_kind_take_at_most_4_mb_also_those_of_deleted_objects(learnt: Learnt) -> None:
    packing, templates, unpacked = learnt(), WeakSet[Template](), 0
    kept: list[Record] = []
    for number in range(120):
        owner = f"app-{number}"
        found = [
            record(packing, pod(owner, each, size=1_000), owner, name=f"{owner}-{each}") for each in range(2)
        ]
        for each in found:
            packing.pack_record(each)
        templates.add(template_of(found[1]))
        kept += found if number % 2 else []
        for each in (*found, *kept[-6:]):
            assert each.data
        unpacked = sum(len(each.frame or b"") for each in templates)
        assert unpacked <= 4 * 1024 * 1024
    assert unpacked > 3 * 1024 * 1024, "the limit was reached"


def test_siblings_that_have_all_changed_are_packed_against_one_of_their_new_form(learnt: Learnt) -> None:
    packing = learnt()
    old = group(packing, "web")
    new = [record(packing, pod("web-2", number), "web", name=f"web-{number}") for number in range(12)]
    for each in new:
        packing.pack_record(each)
    assert [each.data for each in new] == expected("web-2", 12)
    assert [each.data for each in old] == expected("web")
    assert all(isinstance(each.packing, Template) for each in new[GAIN_ATTEMPTS + 1 :])
    assert template_of(new[-1]) is not template_of(old[-1])


def test_an_object_is_packed_once(learnt: Learnt) -> None:
    packing = learnt()
    found = group(packing, "web")
    before = [(each.stored, each.packing) for each in found]
    for each in found:
        packing.pack_record(each)
    assert [(each.stored, each.packing) for each in found] == before


def test_the_owners_of_single_objects_are_forgotten(learnt: Learnt) -> None:
    packing = learnt()
    kept = [record(packing, pod("web", number), f"owner-{number}") for number in range(SINGLE_OWNERS + 1)]
    for each in kept:
        packing.pack_record(each)
    again = record(packing, pod("web", 0, seed=1), "owner-0", name="b")
    packing.pack_record(again)
    assert again.packing is packing
    again = record(packing, pod("web", 9, seed=1), "owner-9", name="b")
    packing.pack_record(again)
    assert template_of(again) is kept[9].packing


# ---- Readers in other threads.


@pytest.mark.parametrize("way", ["read", "decode"])
def test_7_an_object_is_read_as_it_is_in_the_midst_of_its_packing(learnt: Learnt, way: str) -> None:
    """The writer is stopped before each instruction, and readers let in."""
    packing = learnt()
    found = [record(packing, pod("web", number), "web", name=f"web-{number}") for number in range(3)]

    def look(_: int) -> None:
        assert [seen(each, way) for each in found] == expected("web", 3)

    def pack() -> None:
        for each in found:
            packing.pack_record(each)

    stepping([packing_module.__file__, record_module.__file__], pack, look, finely=True)
    assert all(isinstance(each.packing, Template) for each in found)


@pytest.mark.parametrize("way", ["read", "decode"])
def test_7_an_object_is_read_as_it_is_if_it_is_packed_in_the_midst_of_the_read(
    learnt: Learnt, way: str
) -> None:
    """The reader is stopped before each instruction, and the object packed in one of them."""
    assert any(_is_over(learnt(), at, way) for at in range(200)), "a read has fewer steps"


def _is_over(packing: SiblingPacking, at: int, way: str) -> bool:
    """Read an object that is packed in one step of the read; return True if the read has fewer steps."""
    found = [record(packing, pod("web", number), "web", name=f"web-{number}") for number in range(2)]
    packing.pack_record(found[0])
    steps: list[int] = []

    def pack(step: int) -> None:
        steps.append(step)
        if step == at:
            packing.pack_record(found[1])

    def read() -> bytes:
        return seen(found[at % 2], way)

    files = [record_module.__file__, packing_module.__file__]
    assert stepping(files, read, pack, finely=True) == pod("web", at % 2)
    return len(steps) <= at


def test_7_threads_read_siblings_of_many_groups_at_once(
    learnt: Learnt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing_module, "MOST_WARM_BYTES", 3 * len(pod("web", 0)))
    packing = learnt()
    groups = {f"app-{number}": group(packing, f"app-{number}") for number in range(12)}

    def read(seed: int) -> bool:
        rng = random.Random(seed)
        names = rng.choices(list(groups), k=300)
        return all([seen(each) for each in groups[name]] == expected(name) for name in names)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4)))


# ---- Accounting.


def weighed(records: Iterator[Record] | list[Record]) -> int:
    """Return the bytes of records and of their templates, each once."""
    records = list(records)
    templates = {id(each.packing): each.packing for each in records if isinstance(each.packing, Template)}
    return sum(map(weight, records)) + sum(
        len(each.stored) + TEMPLATE_PLACE_BYTES for each in templates.values()
    )


def test_the_tally_has_each_template_once_and_in_the_end_nothing(learnt: Learnt) -> None:
    packing, tally = learnt(), Tally()
    store, rng = Store(tally=tally), random.Random(3)
    for version in range(1, 400):
        owner, number = f"app-{rng.randrange(6)}", rng.randrange(6)
        each = record(
            packing,
            pod(owner, number, seed=version),
            owner,
            name=f"{owner}-{number}",
            version=str(version),
        )
        if rng.random() < 0.3:
            store.leave(each)
        elif rng.random() < 0.5:
            packing.pack_record(each, tally)
            store.put(each)
        else:
            store.put(each)
            packing.pack_record(each, tally)
        held = store.records()[0]
        assert (tally.objects, tally.bytes) == (len(held), weighed(held))
        weights = weights_of(held)
        assert (weights.objects, weights.total) == (tally.objects, tally.bytes)
        assert weights.total - OVERHEAD_BYTES * len(held) >= weights.stored + weights.values
    store.begin()
    store.commit("1000")
    assert (tally.objects, tally.bytes) == (0, 0)


def test_with_a_tally_an_object_held_no_more_is_not_retained_for_its_siblings(learnt: Learnt) -> None:
    packing, tally = learnt(), Tally()
    first, second, third = (
        record(packing, pod("web", number), "web", name=f"web-{number}") for number in range(3)
    )
    store = Store(tally=tally)
    packing.pack_record(first, tally)
    store.put(first)
    store.leave(first)
    packing.pack_record(second, tally)
    assert second.packing is packing, "there is no template"
    store.put(second)
    packing.pack_record(third, tally)
    assert third.packing is second.packing is not packing
