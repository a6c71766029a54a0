"""The store: generations, the guard of each object, the difference at a commit, and readers that see no
half-made state."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest
from msgspec.structs import replace

from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Page
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.indexes import Lookup
from kopf_selectcache.core.store.packing import Tally
from kopf_selectcache.core.store.record import Record, UnreadableRecord, is_newer, is_older
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.core.store.union import Union
from tests.core.writers import writers
from tests.rows import each_row


def pod(name: str, version: str, *, uid: str = "", namespace: str = "shop", data: bytes = b"{}") -> Record:
    return Record(namespace, name, uid or f"uid-of-{name}", version, {}, (), data)


def committed(*records: Record, version: str = "100") -> Store:
    store = Store()
    store.begin()
    for record in records:
        assert store.put(record) == []
    store.commit(version)
    return store


def told(changes: list[Change]) -> list[tuple[str | None, ...]]:
    return [
        tuple(record.version if record else None for record in (change.before, change.after))
        for change in changes
    ]


def held(store: Store) -> dict[str, str]:
    return {record.name: record.version for record in store.records()[0]}


# ---- Versions.


@each_row(
    ("later", "earlier"), [("10", "9"), ("100", "99"), ("1", "0"), ("010", "9"), ("9" * 5000, "8" * 5000)]
)
def test_versions_that_are_numbers_are_compared_as_numbers_however_long(later: str, earlier: str) -> None:
    assert is_newer(later, earlier)
    assert not is_newer(earlier, later)
    assert is_older(earlier, later)
    assert not is_older(later, earlier)


# ---- Records.


def test_each_reader_gets_an_object_of_its_own() -> None:
    record = pod("a", "1", data=b'{"spec":{"list":[1]}}')
    mine = record.decode()
    mine["spec"]["list"].append(2)
    assert record.decode() == {"spec": {"list": [1]}}


def test_a_record_never_shows_the_object_in_its_text() -> None:
    assert "canary" not in repr(pod("a", "1", data=b'{"data":{"password":"canary"}}'))


# ---- Generations.


def test_a_commit_tells_the_difference_and_each_departure_once() -> None:
    left, stays, changes, replaced = (
        pod("left", "1"),
        pod("stays", "2"),
        pod("changes", "3"),
        pod("replaced", "4", uid="one"),
    )
    store = committed(left, stays, changes, replaced)
    store.begin()
    for record in (
        pod("stays", "2"),
        pod("changes", "103"),
        pod("replaced", "104", uid="two"),
        pod("came", "105"),
    ):
        store.put(record)
    difference = store.commit("110")
    assert sorted(told(difference), key=str) == sorted(
        [("1", None), ("3", "103"), ("4", None), (None, "104"), (None, "105")], key=str
    )
    assert [(change.before, change.cause) for change in difference if change.after is None] == [
        (left, ChangeCause.LEFT),
        (replaced, ChangeCause.DELETED),
    ]
    assert [change.cause for change in difference if change.after is not None].count(ChangeCause.UPDATED) == 1
    store.begin()
    for record in store.records()[0]:
        store.put(record)
    assert store.commit("111") == []


def test_a_restored_server_may_give_a_version_out_again_for_another_content() -> None:
    store = committed(pod("a", "95", data=b'{"lost":1}'))
    store.begin()
    store.put(pod("a", "95", data=b'{"new":1}'))
    assert told(store.commit("96")) == [("95", "95")]
    record, version = store.get("shop", "a")
    assert record is not None
    assert record.decode() == {"new": 1}
    assert version == "96"


def test_a_restored_server_may_differ_in_nothing_but_dropped_fields() -> None:
    store = committed(replace(pod("a", "95"), fields=b'{"status.phase":"Failed"}'))
    store.begin()
    store.put(replace(pod("a", "95"), fields=b'{"status.phase":"Running"}'))
    store.commit("96")
    record, _ = store.get("shop", "a")
    assert record is not None
    assert record.lost() == {"status.phase": "Running"}


def unreadable(app: str = "web", owner: str = "o", why: str = "it is nested too deeply") -> UnreadableRecord:
    return UnreadableRecord("shop", "a", "uid-of-a", "95", {"app": app}, (owner,), b"", why=why)


@pytest.mark.parametrize(
    "other", [unreadable(app="db"), unreadable(owner="p"), unreadable(why="it is not UTF-8")]
)
def test_an_unreadable_object_of_a_restored_server_has_the_labels_owners_and_reason_of_the_last_list(
    other: UnreadableRecord,
) -> None:
    store = committed(unreadable())
    store.begin()
    store.put(other)
    assert told(store.commit("96")) == [("95", "95")]
    found = store.unreadable["shop", "a"]
    assert (found.labels, found.owners, found.why) == (other.labels, other.owners, other.why)


def test_an_unreadable_object_that_did_not_change_is_shared_between_generations() -> None:
    before = unreadable()
    store = committed(before)
    store.begin()
    store.put(unreadable())
    assert told(store.commit("96")) == []
    assert store.unreadable["shop", "a"] is before


@pytest.mark.parametrize("versions", [("8", "9", "10"), ("10", "9", "8"), ("9", "10", "9")])
def test_while_a_generation_is_staged_the_order_of_versions_means_nothing(versions: tuple[str, ...]) -> None:
    store = committed(*(pod("a", version) for version in versions))
    assert held(store) == {"a": "10"}


def test_an_object_that_left_while_staged_is_not_brought_back_by_a_replay() -> None:
    store = Store()
    store.begin()
    store.put(pod("a", "5"))
    store.leave(pod("a", "7"))
    store.put(pod("a", "5"))
    store.commit("10")
    assert held(store) == {}


# ---- The guard of each object.


@pytest.mark.parametrize("version", ["9", "10", "009"])
def test_an_object_never_goes_back_and_a_replay_changes_nothing(version: str) -> None:
    store = committed(pod("a", "10"))
    assert store.put(pod("a", version)) == []
    assert held(store) == {"a": "10"}


def test_an_older_object_of_another_uid_does_not_come_back() -> None:
    store = committed(pod("a", "10", uid="two"))
    assert store.put(pod("a", "9", uid="one")) == []
    assert held(store) == {"a": "10"}


def test_a_deletion_and_creation_seen_as_one_change_is_reported_as_both() -> None:
    old, new = pod("a", "9", uid="one"), pod("a", "10", uid="two")
    store = committed(old)
    assert store.put(new) == [
        Change(old, None, ChangeCause.DELETED, known_by="confirmed"),
        Change(None, new, ChangeCause.ENTERED),
    ]


@each_row(
    ("version", "uid", "is_over"),
    [("9", "two", False), ("10", "two", True), ("11", "two", True), ("11", "one", False)],
)
def test_a_deletion_ends_its_own_object_unless_that_has_come_back_since(
    version: str, uid: str, is_over: bool
) -> None:
    store, staged = committed(pod("a", "10", uid="two")), Store()
    staged.begin()
    staged.put(pod("a", "10", uid="two"))
    for each in (store, staged):
        each.leave(pod("a", version, uid=uid))
    staged.commit("20")
    assert held(store) == held(staged) == ({} if is_over else {"a": "10"})


def test_an_object_comes_changes_and_leaves() -> None:
    store = committed()
    first, second, last = pod("a", "101"), pod("a", "102"), pod("a", "103")
    assert store.put(first) == [Change(None, first, ChangeCause.ENTERED)]
    assert store.put(second) == [Change(first, second, ChangeCause.UPDATED)]
    assert store.leave(last) == [Change(second, None, ChangeCause.LEFT, last=last)]
    assert store.leave(last) == []


def test_an_object_may_become_unreadable_and_readable_again() -> None:
    store = committed(pod("a", "95"))
    for version, record in (("101", unreadable()), ("102", pod("a", "")), ("103", unreadable())):
        store.put(replace(record, version=version))
        assert [each.version for each in store.unreadable.values()] == [version] * (not record.stored)
    store.leave(pod("a", "104"))
    assert store.unreadable == {}
    for record, found in ((unreadable(), 1), (pod("a", "95"), 0)):
        store.begin()
        store.put(record)
        store.commit("110")
        assert len(store.unreadable) == found


def test_the_version_moves_forward_only() -> None:
    store = committed(version="9")
    store.progress("10")
    store.progress("9")
    assert store.version == "10"


# ---- A declared index.

NODE = Indexed("node", path=("spec", "node"))


def on(node: str, name: str, version: str) -> Record:
    return pod(name, version, data=b'{"spec":{"node":"%s"}}' % node.encode())


def found_on(store: Store, node: str) -> list[str]:
    """Finish the index; return the names and versions that it has."""
    while store.build(100):
        pass
    chosen = store.chosen(Lookup(values=((NODE, node),)))
    assert chosen.by == ("index node",)
    return sorted(record.name + record.version for record in chosen.records)


def test_a_record_that_changes_before_the_index_has_reached_it_is_found_by_its_new_value() -> None:
    store = committed(on("x", "a", "1"), on("x", "b", "2"))
    store.declare(NODE)
    assert store.build(1)
    store.put(on("y", "b", "101"))
    assert (found_on(store, "x"), found_on(store, "y")) == (["a1"], ["b101"])


def test_an_index_that_is_declared_during_a_list_has_its_records() -> None:
    store = committed(on("x", "a", "1"))
    store.begin()
    store.put(on("x", "a", "1"))
    store.put(on("x", "b", "2"))
    store.declare(NODE)
    assert found_on(store, "x") == ["a1"]
    store.commit("110")
    assert found_on(store, "x") == ["a1", "b2"]


# ---- Copies.


def test_a_store_that_takes_over_another_holds_and_stages_the_same() -> None:
    tally = Tally()
    store, other = Store(tally=tally), Store(tally=tally)
    store.begin()
    store.put(unreadable())
    store.commit("100")
    store.begin()
    store.put(pod("b", "60"))
    store.leave(pod("c", "70"))
    other.take_over(store)
    store.release()
    assert (tally.objects, held(other), list(other.unreadable)) == (2, {"a": "95"}, [("shop", "a")])
    other.put(pod("c", "65"))
    other.commit("110")
    assert (tally.objects, held(other)) == (1, {"b": "60"})


def test_a_copy_does_not_change_with_the_store() -> None:
    store, other = committed(pod("a", "1")), Store()
    other.take_over(store)
    frozen = store.frozen()
    store.put(pod("b", "101"))
    assert held(frozen) == held(other) == {"a": "1"}


# ---- Reading.


def test_records_given_to_a_reader_do_not_change_afterwards() -> None:
    store = committed(pod("a", "1"))
    records, _ = store.records()
    store.put(pod("b", "101"))
    assert len(records) == 1


@pytest.mark.parametrize("branches", [1, 2])
def test_i8_memory_stays_within_one_and_a_half_times_in_a_relist_without_changes(
    branches: int,
) -> None:
    """Page by page, as it comes: 960 objects of some 2 KB, in each of the branches."""
    union = Union([Keys()] * branches)
    pages = [
        [
            {
                "metadata": {
                    "name": f"n-{page}-{number}",
                    "namespace": "shop",
                    "uid": f"u-{page}-{number}",
                    "resourceVersion": "5",
                    "labels": {"app": "web"},
                },
                "spec": f"{page}-{number}" * 300,
            }
            for number in range(60)
        ]
        for page in range(16)
    ]

    def listed(version: str) -> None:
        for branch in writers(union):
            branch.begin()
            for page in pages:
                answer = {
                    "kind": "PodList",
                    "apiVersion": "v1",
                    "metadata": {"resourceVersion": version},
                    "items": page,
                }
                read = Reader("v1", "Pod").page(msgspec.json.encode(answer))
                assert isinstance(read, Page)
                for record in read.records:
                    branch.put(record)
            branch.commit(version)

    tracemalloc.start()
    try:
        listed("10")
        steady, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        listed("20")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{steady:,} bytes held, {peak:,} at most during the relist: {peak / steady:.2f} times")
    assert len(union.store.records()[0]) == 960
    assert peak <= 1.5 * steady
