"""Streams are added to a union and removed from it while it is read."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from kopf_selectcache.core.store.accounting import Tally, weight
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.indexes import Lookup
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Change, ChangeCause
from kopf_selectcache.core.store.substore import Keys, ObjectKey
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers

NODE = Indexed("node", ("node",))


def pod(version: str, name: str = "it", namespace: str = "shop") -> Record:
    return Record(namespace, name, f"uid-{name}", version, {}, (), b'{"node":"n1"}')


def listed(writer: Writer, version: str, *records: Record) -> list[Change]:
    writer.begin()
    for record in records:
        writer.put(record)
    return writer.commit(version)


def admitted(union: Union, keys: Keys | None = None) -> Writer:
    return Writer(union, union.admit(keys or Keys()))


def names(union: Union) -> list[str]:
    return sorted(record.name for record in union.store.records()[0])


def test_a_second_stream_is_added_to_an_only_one_and_read_once_it_is_listed() -> None:
    union = Union()
    (one,) = writers(union)
    listed(one, "10", pod("1", "a"))
    before = union.store
    other = admitted(union)
    assert (union.store.version, names(union), before.version) == ("", ["a"], "10")
    changes = listed(other, "10", pod("2", "b"))
    assert ([change.cause for change in changes], union.store.version) == ([ChangeCause.ENTERED], "10")
    assert (names(union), len(before.records()[0])) == (["a", "b"], 1)


def test_a_new_stream_of_other_objects_leaves_the_versions_of_the_others() -> None:
    union = Union([Keys("shop"), Keys("bank")])
    shop, bank = writers(union)
    listed(shop, "10", pod("1", "a"))
    listed(bank, "11")
    infra = admitted(union, Keys("infra"))
    both = union.needed([shop.substore, bank.substore])
    assert (both.version, union.store.version, union.needed([infra.substore]).version) == ("10", "", "")
    listed(infra, "12")
    assert union.store.version == "10"


@pytest.mark.parametrize("complete", [True, False])
def test_the_objects_of_a_removed_stream_depart_once(*, complete: bool) -> None:
    union = Union([Keys("shop"), Keys("bank", complete=complete)])
    shop, bank = writers(union)
    listed(shop, "10", pod("1", "a"))
    listed(bank, "11", pod("2", "b", "bank"))
    before = union.store
    (change,) = union.retire(bank.substore)
    assert (change.before, change.after, change.cause) == (pod_of(before, "b"), None, ChangeCause.LEFT)
    assert (names(union), union.store.version) == (["a"], "10")
    assert sorted(record.name for record in before.records()[0]) == ["a", "b"], "readers of before see it"


def pod_of(store: object, name: str) -> Record:
    (found,) = [each for each in store.records()[0] if each.name == name]  # type: ignore[attr-defined]
    assert isinstance(found, Record)
    return found


def test_an_object_that_the_others_could_hold_is_shown_until_they_have_come_so_far() -> None:
    union = Union([Keys(), Keys()])
    a, b = writers(union)
    listed(a, "10")
    listed(b, "10", pod("1"))
    b.put(pod("15"))
    b.progress("20")
    assert union.retire(b.substore) == []
    assert (names(union), len(union.doubts)) == (["it"], 1)
    (change,) = a.put(pod("16"))
    assert (change.cause, union.doubts) == (ChangeCause.UPDATED, ())
    a.progress("20")
    assert (names(union), union.store.version) == (["it"], "20")


def test_a_leave_that_waits_for_a_removed_stream_is_settled() -> None:
    union = Union([Keys(), Keys()])
    a, b = writers(union)
    listed(a, "10", pod("1"))
    listed(b, "10")
    a.leave(pod("12"))
    a.progress("13")
    assert names(union) == ["it"]
    (change,) = union.retire(b.substore)
    assert (change.cause, names(union), union.doubts) == (ChangeCause.LEFT, [], ())


def test_a_new_stream_belongs_to_the_present_epoch() -> None:
    union = Union([Keys(), Keys()])
    a, b = writers(union)
    listed(a, "100", pod("90"))
    listed(b, "100")
    a.begin()
    a.put(pod("40"))
    a.commit("50", restored=True)
    listed(b, "51")
    listed(a, "51", pod("40"))
    assert admitted(union).epoch == a.epoch == 1


def test_declared_indexes_are_those_of_the_store_before() -> None:
    union = Union()
    (one,) = writers(union)
    union.store.declare(NODE)
    listed(one, "10", pod("1", "a"))
    listed(admitted(union), "10", pod("2", "b"))
    while union.build(10):
        pass
    chosen = union.store.chosen(Lookup(values=((NODE, "n1"),)))
    assert (len(chosen.records), chosen.by) == (2, ("index node",))


def test_the_last_stream_cannot_be_removed() -> None:
    union = Union()
    with pytest.raises(AssertionError):
        union.retire(union.substores[0])


class Server:
    """Objects that are in some of the streams, and streams that lag behind."""

    def __init__(self, seed: int) -> None:
        self.rng, self.tally = random.Random(seed), Tally()
        self.union = Union([self.rng.choice(SPACES)], tally=self.tally)
        self.version = 10
        self.objects: dict[ObjectKey, Record] = {}
        self.members: dict[ObjectKey, list[Writer]] = {}
        self.coming: dict[Writer, list[Callable[[], object]]] = {}
        self._list(writers(self.union)[0])

    def _list(self, writer: Writer) -> None:
        inside = [
            each for each in self.objects.values() if writer.keys.have(each.key) and self.rng.random() < 0.5
        ]
        for each in inside:
            self.members[each.key].append(writer)
        self.coming[writer] = []
        listed(writer, str(self.version), *inside)

    def admit(self) -> None:
        self._list(admitted(self.union, self.rng.choice(SPACES)))

    def retire(self) -> None:
        writer = self.rng.choice(list(self.coming))
        del self.coming[writer]
        for key, members in self.members.items():
            self.members[key] = [each for each in members if each is not writer]
        self.union.retire(writer.substore)

    def change(self) -> None:
        self.version += 1
        record = pod(str(self.version), self.rng.choice("abc"), self.rng.choice(["shop", "bank"]))
        before = self.members.get(record.key, [])
        inside = [each for each in self.coming if each.keys.have(record.key) and self.rng.random() < 0.5]
        self.objects[record.key], self.members[record.key] = record, inside
        for writer, coming in self.coming.items():
            if writer in inside:
                coming.append(partial(writer.put, record))
            elif writer in before:
                coming.append(partial(writer.leave, record))
            coming.append(partial(writer.progress, record.version))

    def deliver(self, share: float = 0.4) -> None:
        for coming in self.coming.values():
            while coming and self.rng.random() < share:
                coming.pop(0)()


SPACES = [Keys(), Keys("shop"), Keys("bank"), Keys("shop", frozenset("ab"))]


@pytest.mark.parametrize("seed", range(60))
def test_streams_come_and_go_and_the_union_shows_what_they_hold(seed: int) -> None:
    server, seen = Server(seed), dict[ObjectKey, int]()
    union = server.union
    for _ in range(60):
        match server.rng.randrange(8):
            case 0 if len(server.coming) < 4:
                server.admit()
            case 1 if len(server.coming) > 1:
                server.retire()
            case _:
                server.change()
        server.deliver()
        for record in union.store.records()[0]:
            assert seen.get(record.key, 0) <= int(record.version), "no object goes back"
            seen[record.key] = int(record.version)
    server.deliver(share=1.0)
    assert {record.key for record in union.store.records()[0]} == {
        key for key, members in server.members.items() if members
    }
    assert (union.doubts, union.store.version) == ((), str(server.version))
    records = {id(record): record for store in union.stores for record in store.records()[0]}
    assert (server.tally.objects, server.tally.bytes) == (len(records), sum(map(weight, records.values())))
