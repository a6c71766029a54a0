"""Looking up by indexes: the answer of a scan, whatever is asked for and whatever happens in between; and
what it costs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf_selectcache.core.selection.grammar import LabelRequirement, parse_labels
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store import indexes
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.indexes import (
    MOST_INDEXES,
    OWNER,
    SCANNED_CANDIDATES,
    IndexedProperty,
    Lookup,
)
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Readable, Store
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers

APP, NODE = IndexedProperty("label", "app"), Indexed("node", ("spec", "node"))
IMAGES = Indexed("image", function=lambda obj: obj["images"])


def record(
    name: str,
    version: str = "1",
    *,
    namespace: str = "shop",
    uid: str = "",
    owners: tuple[str, ...] = (),
    spec: object = None,
    images: Iterable[str] = (),
    **labels: str,
) -> Record:
    data = {"spec": spec, "images": list(images)}
    return Record(
        namespace, name, uid or f"uid-of-{name}", version, labels, owners, msgspec.json.encode(data)
    )


def filled(
    count: int, of: Callable[[int], Record], *, request_index: Callable[[], None] = lambda: None
) -> Store:
    store = Store(request_index=request_index)
    store.begin()
    for number in range(count):
        store.put(of(number))
    store.commit("100")
    return store


def build(store: Store | Union, most: int = 10) -> int:
    """Build all that is wanted; return in how many slices."""
    slices = 0
    while store.build(most):
        slices += 1
    return slices


def by_label(text: str, **more: Any) -> Lookup:
    return Lookup(labels=parse_labels(text), **more)


def found(store: Readable, asked: Lookup, *, asking: bool = False) -> set[Record]:
    """Return the answer; there must be nothing in it twice."""
    chosen = store.checked(store.chosen(asked, asking=asking))
    answer = [
        each
        for each in chosen.records
        if chosen.rest.admits(each) and (not chosen.rest.where or where(each, asked))
    ]
    assert len(set(answer)) == len(answer)
    return set(answer)


# ---- Brute force.


def where(held: Record, asked: Lookup) -> bool:
    spec = held.decode()["spec"]
    return all(isinstance(spec, dict) and spec.get("node") == value for _, value in asked.where)


def meets(held: Record, asked: Lookup) -> bool:
    obj = held.decode()
    nodes: list[Any] = []
    if isinstance(obj["spec"], dict):
        node = obj["spec"].get("node")
        nodes = node if isinstance(node, list) else [node]
    return (
        (asked.names is None or held.name in asked.names)
        and (asked.namespaces is None or held.namespace in asked.namespaces)
        and all(holds(each, held.labels.get(each.key)) for each in asked.labels)
        and (asked.owner is None or asked.owner in held.owners)
        and all(value in (obj["images"] if by is IMAGES else nodes) for by, value in asked.values)
        and where(held, asked)
    )


def holds(requirement: LabelRequirement, value: str | None) -> bool:
    match requirement.operator:
        case "exists" | "!":
            return (value is None) is (requirement.operator == "!")
        case "=" | "==" | "in":
            return value in requirement.values
        case "!=" | "notin":
            return value is None or value not in requirement.values
        case ">":
            return value is not None and value.isdecimal() and int(value) > int(requirement.values[0])
        case _:
            return value is not None and value.isdecimal() and int(value) < int(requirement.values[0])


VALUES = st.sampled_from(["a", "b", "", "1", "2", "3"])
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), VALUES, max_size=2)
RECORDS = st.builds(
    lambda labels, **given: record(**given, **labels),
    LABELS,
    name=st.sampled_from("pqrstuvw"),
    namespace=st.sampled_from(["shop", "bank", ""]),
    version=st.sampled_from("123456789"),
    uid=st.sampled_from(["", "", "other"]),
    owners=st.lists(st.sampled_from("xyz"), max_size=3).map(tuple),
    spec=st.sampled_from(
        [
            None,
            {},
            {"node": "n1"},
            {"node": "n2"},
            {"node": 5},
            {"node": True},
            {"node": ["n1", 5]},
            [],
            {"node": {}},
        ]
    ),
    images=st.lists(st.sampled_from(["i", "j", "k"]), max_size=3),
)
REQUIREMENTS = st.lists(
    st.sampled_from(
        [
            each
            for text in (
                "app=a",
                "app=none",
                "tier==b",
                "app in (a,b)",
                "tier in (,1)",
                "app!=a",
                "tier notin (a,b)",
                "app",
                "!app",
                "!tier",
                "app>1",
                "tier<3",
                "other",
                "!other",
            )
            for each in parse_labels(text)
        ]
    ),
    max_size=3,
).map(tuple)
SOME = {"names": ["p", "q", "none"], "namespaces": ["shop", "bank", "none"]}
LOOKUPS = st.builds(
    Lookup,
    **{each: st.none() | st.frozensets(st.sampled_from(names), max_size=2) for each, names in SOME.items()},
    labels=REQUIREMENTS,
    owner=st.none() | st.sampled_from(["x", "y", "none"]),
    values=st.lists(
        st.sampled_from([(IMAGES, "i"), (IMAGES, "none"), (NODE, "n1"), (NODE, 5)]), max_size=2
    ).map(tuple),
    where=st.lists(st.sampled_from([(NODE, "n1"), (NODE, "n3"), (NODE, 5)]), max_size=1).map(tuple),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put", "put", "put", "leave"]), RECORDS),
        st.tuples(st.just("commit"), st.sampled_from(["5", "7", "20", "30"])),
        st.tuples(st.sampled_from(["begin", "abandon", "build", "all"]), st.integers(1, 4)),
        st.tuples(st.just("ask"), LOOKUPS),
        st.tuples(st.just("declare"), st.sampled_from([NODE, IMAGES])),
    ),
    max_size=40,
)


@contextmanager
def small() -> Iterator[None]:
    """Let every read be worth an index, and what is few, many and all at once be small numbers."""
    with patch.multiple(
        indexes, SCANNED_CANDIDATES=0, STEP_CHANGES=6, MOST_INDEXES=3, TUPLE_RECORDS=3, DOUBLING_RECORDS=6
    ):
        yield


def taken(target: Store | Writer, step: tuple[str, Any], build: Callable[[int], bool]) -> None:
    match step:
        case "put", given:
            target.put(given)
        case "leave", given:
            target.leave(given)
        case "commit", version:
            if (target.view if isinstance(target, Writer) else target)._staged is not None:
                target.commit(version)
        case "begin", _:
            target.begin()
        case "abandon", _:
            target.abandon()
        case "build", most:
            build(most)
        case "all", most:
            while build(most):
                pass
        case _:
            pass


@settings(max_examples=40)
@given(STEPS, st.lists(LOOKUPS, max_size=5))
def test_a_lookup_answers_like_a_scan_whatever_happens(
    steps: list[tuple[str, Any]], asked: list[Lookup]
) -> None:
    store = Store()
    with small():
        for step in steps:
            if step[0] == "declare":
                store.declare(step[1])
            taken(store, step, store.build)
            for each in [step[1]] if step[0] == "ask" else asked:
                assert found(store, each, asking=step[0] == "ask") == {
                    held for held in store.records()[0] if meets(held, each)
                }
        build(store)
        for each in asked:
            assert found(store, each) == {held for held in store.records()[0] if meets(held, each)}


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), STEPS), max_size=12), st.lists(LOOKUPS, min_size=1, max_size=4))
def test_so_it_does_where_several_branches_are_shown(
    rounds: list[tuple[int, list[tuple[str, Any]]]], asked: list[Lookup]
) -> None:
    union = Union([Keys("shop"), Keys("shop", frozenset("pqr")), Keys("bank")])
    with small():
        for which, steps in rounds:
            for step in steps[:8]:
                if step[0] == "declare":
                    for store in union.stores:
                        store.declare(step[1])
                taken(writers(union)[which], step, union.build)
                for each in [*([step[1]] if step[0] == "ask" else []), *asked]:
                    for readable in (
                        union.store,
                        union.needed([union.substores[which]]),
                        union.needed(union.substores[:2]),
                    ):
                        assert found(readable, each, asking=step[0] == "ask") == {
                            held for held in readable.records()[0] if meets(held, each)
                        }


# ---- On demand.


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("app=a,tier=b", ["label app"]),
        ("app!=a,tier=b", ["label tier"]),
        ("app!=a", []),
        ("!app", []),
        ("app,!tier", ["label app"]),
        ("app>1", ["label app"]),
        ("app notin (a,b),tier!=a", []),
    ],
)
def test_indexes_are_made_one_at_a_time_and_not_for_negations(text: str, wanted: list[str]) -> None:
    store = filled(
        4 * SCANNED_CANDIDATES,
        lambda i: record(f"pod-{i}", app="ab12"[i % 4], tier="ab"[i % 2]) if i % 4 else record(f"pod-{i}"),
    )
    made = []
    for _ in range(2):
        found(store, by_label(text), asking=True)
        build(store, 1000)
        made = list(store.weights())[1:]
    assert made == wanted
    assert found(store, by_label(text)) == {
        each for each in store.records()[0] if all(of.matches(each.labels) for of in parse_labels(text))
    }


def test_a_second_index_is_made_where_the_first_leaves_much() -> None:
    store = filled(
        3 * SCANNED_CANDIDATES, lambda i: record(f"pod-{i}", app="ab"[i % 2], tier="ab"[i % 3 == 0])
    )
    asked = by_label("app=a,tier=b")
    chosen = [(store.chosen(asked).by, build(store, 1000))[0] for _ in range(3)]
    assert chosen == [(), ("label app",), ("label tier", "label app")]


def test_of_an_owner_of_very_many_the_others_are_not_looked_at_either() -> None:
    many = SCANNED_CANDIDATES
    store = filled(2 * many, lambda i: record(f"pod-{i}", owners=("set-1" if i <= many else "set-2",)))
    asked = Lookup(owner="set-1")
    store.chosen(asked)
    build(store)
    assert (store.chosen(asked).size, store.chosen(asked).by) == (many + 1, ("owners",))


def test_there_is_an_end_of_indexes() -> None:
    store = filled(SCANNED_CANDIDATES + 1, lambda i: record(f"pod-{i}", app="a"))
    wanted = [store.chosen(by_label(f"key-{number}=a")).missing for number in range(MOST_INDEXES + 1)]
    assert (len(set(wanted)), wanted[-1]) == (MOST_INDEXES + 1, None)
    build(store, 1000)
    assert store.chosen(Lookup(owner="x")).missing == OWNER, "owners always have one"
    assert store.chosen(by_label("another=a")).missing is None


# ---- Kept true.


@pytest.mark.parametrize("count", [2, 80])
def test_an_object_that_left_and_came_back_while_an_index_is_built_is_in_it_once(count: int) -> None:
    store = filled(count, lambda i: record(f"pod-{i}", app="a"))
    with small():
        store.chosen(by_label("app=a"))
    assert store.build(count // 2)
    last = store.records()[0][-1]
    store.leave(last)
    store.put(last)
    build(store)
    assert store.chosen(by_label("app=a")).size == len(found(store, by_label("app=a"))) == count


@pytest.mark.parametrize("branches", [1, 2])
def test_a_generation_that_is_another_has_its_indexes_built_anew_and_a_like_one_keeps_them(
    branches: int,
) -> None:
    told: list[None] = []
    union = Union([Keys()] * branches, request_index=lambda: told.append(None))
    first = writers(union)[0]

    def listed(version: str, count: int) -> None:
        for branch in writers(union)[:1] if first.version else writers(union):
            branch.begin()
            for number in range(count):
                branch.put(record(f"pod-{number}", version if number < 3 else "1", app="ab"[number % 2]))
            branch.commit(version)
            branch.progress(version)

    listed("10", 1 + SCANNED_CANDIDATES)
    asked = by_label("app=a")
    union.store.chosen(asked)
    build(union)
    told.clear()
    listed("20", 1 + SCANNED_CANDIDATES)
    assert (union.store.chosen(asked).by, told) == (("label app",), [])
    with patch.object(indexes, "STEP_CHANGES", 2), patch("kopf_selectcache.core.store.store.STEP_CHANGES", 2):
        listed("30", 1 + SCANNED_CANDIDATES)
    assert (union.store.chosen(asked, asking=False).by, len(told)) == ((), 1)
    build(union)
    assert union.store.chosen(asked).by == ("label app",)
    assert found(union.store, asked) == {
        each for each in union.store.records()[0] if each.labels["app"] == "a"
    }


def test_a_choice_does_not_change_afterwards_and_has_the_object_beside_it() -> None:
    store = filled(20, lambda i: record(f"pod-{i}", app="a"))
    with small():
        store.chosen(by_label("app=a"))
        build(store)
    chosen = store.chosen(by_label("app=a"), ("shop", "pod-3"))
    store.leave(record("pod-3", "101"))
    assert (len(chosen.records), chosen.beside) == (
        20,
        next(each for each in chosen.records if each.name == "pod-3"),
    )
    assert store.chosen(by_label("app=a"), ("shop", "pod-3")).beside is None
    assert store.chosen(by_label("app=a"), ("none", "pod-3")).beside is None


def test_readers_in_other_threads_find_the_state_of_one_moment() -> None:
    # Each generation moves all records to another value at once, so that any mixture shows.
    store, ready, done = (
        filled(300, lambda i: record(f"pod-{i}", app="0")),
        threading.Event(),
        threading.Event(),
    )
    seen: list[tuple[int, int]] = []

    def read() -> None:
        ready.set()
        while not done.is_set():
            for number in range(4):
                asked = by_label(f"app={number}")
                chosen = store.chosen(asked)
                seen.append(
                    (len([each for each in chosen.records if chosen.rest.admits(each)]), int(chosen.version))
                )

    readers = [threading.Thread(target=read) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for reader in readers:
            reader.start()
        ready.wait()
        for generation in range(101, 161):
            store.begin()
            for i in range(300):
                store.put(record(f"pod-{i}", str(generation), app=str(generation % 4)))
            store.commit(str(generation))
            build(store, 50)
    finally:
        done.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(interval)
    assert seen
    assert {count for count, _ in seen} <= {0, 300}


# ---- What they cost.


@pytest.mark.no_cover
@pytest.mark.parametrize(("values", "most"), [(10, 64), (50, 64), (1000, 15), (7000, 45), (20_000, 40)])
def test_an_index_costs_little_whether_values_are_few_or_all_distinct(values: int, most: int) -> None:
    store = filled(20_000, lambda i: record(f"pod-{i}", app=f"a-{i % values}"))
    store.chosen(by_label("app=a-1"))
    assert build(store, 200) >= 99
    apiece = store.weights()["label app"] / 20_000
    print(f"{values:,} values: {apiece:.1f} bytes an object")
    assert apiece <= most
