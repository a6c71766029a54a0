"""Indexes are built on the loop, for whichever thread wants them, while others go on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from kopf_selectcache.core.selection.grammar import parse_labels
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.indexes import SCANNED_CANDIDATES, Lookup
from kopf_selectcache.core.store.packing import Tally, weight
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Section
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.informer.background import (
    DECODED_PER_SLICE,
    INDEXED_PER_SLICE,
    IndexBuilder,
    IndexFailed,
)
from kopf_selectcache.informer.reflector import Reflector
from tests.core.writers import writers

NODE = Indexed("node", ("node",))
TURNS = 10_000
"""So many turns of the loop are more than enough."""


class Follows:
    """In the place of a list and watch: it reads what it is told."""

    def __init__(self) -> None:
        self.reads: list[str] = []

    def index(self, indexes: tuple[Indexed, ...]) -> None:
        self.reads = [each.name for each in indexes]


def listed(union: Union, count: int, version: str = "5") -> list[Any]:
    """List as many as there are, without values of indexes; return what that changed."""
    (branch,) = writers(union)
    branch.begin()
    for i in range(count):
        branch.put(Record("shop", f"pod-{i}", f"u-{i}", "1", {"app": f"app-{i % 2}"}, (), b'{"node":"n1"}'))
    return branch.commit(version)


def filled(indexing: IndexBuilder, count: int, *follows: Follows) -> Union:
    union = Union(request_index=indexing.want, tally=Tally())
    listed(union, count)
    indexing.replace(indexing.indexes, union, cast("tuple[Reflector, ...]", follows))
    return union


def added(name: str, by: Callable[[Any], Any]) -> Indexed:
    return Indexed(name, function=by, late=True)


def noded(obj: dict[str, Any]) -> str:
    return str(obj["node"])


def failing(_: object) -> str:
    raise ValueError


async def until_found_by(union: Union, lookup: Lookup, by: str) -> int:
    """Give the loop away until the index is used; return how often."""
    for turn in range(TURNS):
        if union.store.chosen(lookup, asking=False).by == (by,):
            return turn
        await asyncio.sleep(0)
    raise AssertionError(f"{by} was never built")


async def test_an_index_for_a_thread_is_built_on_the_loop_slice_by_slice() -> None:
    indexing = IndexBuilder([])
    union = filled(indexing, 20 * INDEXED_PER_SLICE)
    asked = Lookup(labels=parse_labels("app=app-1"))
    running = asyncio.create_task(indexing.run())
    await asyncio.sleep(0)
    with ThreadPoolExecutor(
        1
    ) as pool:  # The loop waits for it, and builds nothing before the turns are counted.
        first = pool.submit(union.store.chosen, asked).result()
    assert (len(first.records), first.by) == (20 * INDEXED_PER_SLICE, ())
    assert await until_found_by(union, asked, "label app") >= 10, "others had their turns meanwhile"
    union.store.chosen(Lookup(owner="x"))
    await until_found_by(union, Lookup(owner="x"), "owners")
    running.cancel()


async def test_an_index_declared_or_requested_before_is_built_from_the_start() -> None:
    indexing = IndexBuilder([NODE])
    union = filled(indexing, SCANNED_CANDIDATES + 1)
    union.store.chosen(Lookup(owner="x"))
    running = asyncio.create_task(indexing.run())
    await until_found_by(union, Lookup(values=((NODE, "n1"),)), "index node")
    await until_found_by(union, Lookup(owner="x"), "owners")
    running.cancel()


async def test_reads_after_the_operator_has_ended_want_nothing_of_it() -> None:
    indexing = IndexBuilder([])
    union = filled(indexing, SCANNED_CANDIDATES + 1)
    running = asyncio.create_task(indexing.run())
    await asyncio.sleep(0)
    running.cancel()
    assert len(union.store.chosen(Lookup(owner="x")).records) == SCANNED_CANDIDATES + 1


# ---- Added.


@pytest.mark.parametrize("running", [False, True])
async def test_indexes_added_at_once_are_all_there(running: bool) -> None:
    indexing, follows = IndexBuilder([NODE]), Follows()
    union = filled(indexing, 3 * DECODED_PER_SLICE, follows)
    builder = asyncio.create_task(indexing.run() if running else asyncio.sleep(0))
    one, two = added("one", noded), added("two", noded)
    await asyncio.gather(indexing.add([one]), indexing.add([two]))
    assert list(indexing.indexes) == follows.reads == ["node", "one", "two"]
    for each in (one, two):
        chosen = union.store.chosen(Lookup(values=((each, "n1"),)))
        assert (chosen.by, len(chosen.records)) == ((f"index {each.name}",), 3 * DECODED_PER_SLICE)
    builder.cancel()


async def test_of_one_name_there_is_one_whoever_is_first() -> None:
    indexing = IndexBuilder([])
    union = filled(indexing, 3 * DECODED_PER_SLICE)
    same = added("it", noded)

    def refuse() -> None:
        assert indexing.indexes["it"] is same
        raise ValueError("another one")

    told = await asyncio.gather(
        indexing.add([same]),
        indexing.add([added("it", noded)]),
        indexing.add([added("it", str)], refuse),
        return_exceptions=True,
    )
    assert [*map(type, told)] == [type(None), type(None), ValueError]
    assert indexing.indexes["it"] is same
    assert union.store.chosen(Lookup(values=((same, "n1"),))).size == 3 * DECODED_PER_SLICE


async def test_nothing_is_left_of_one_that_failed() -> None:
    def late(obj: dict[str, Any]) -> str:
        seen.append(obj)
        return "wrong" if len(seen) < 2 * DECODED_PER_SLICE else failing(obj)

    seen: list[Any] = []
    indexing, follows = IndexBuilder([]), Follows()
    union = filled(indexing, 3 * DECODED_PER_SLICE, follows)
    told = await asyncio.gather(
        indexing.add([added("it", late)]), indexing.add([added("good", noded)]), return_exceptions=True
    )
    assert [type(each) for each in told] == [IndexFailed, type(None)]
    assert list(indexing.indexes) == follows.reads == ["good"]
    assert listed(union, 3 * DECODED_PER_SLICE, "6") == [], "nothing has changed"
    again = added("it", noded)
    await indexing.add([again])
    assert union.store.chosen(Lookup(values=((again, "n1"),))).size == 3 * DECODED_PER_SLICE
    assert union.store.chosen(Lookup(values=((again, "wrong"),))).size == 0
    assert len(seen) == 2 * DECODED_PER_SLICE


async def test_a_store_begun_anew_meanwhile_has_the_index_too() -> None:
    indexing, follows = IndexBuilder([]), Follows()
    filled(indexing, 3 * DECODED_PER_SLICE)
    one = added("one", noded)
    adding = asyncio.create_task(indexing.add([one]))
    for _ in range(2):
        await asyncio.sleep(0)
    union = filled(indexing, 5, follows)
    assert follows.reads == []
    await adding
    assert follows.reads == ["one"]
    chosen = union.store.chosen(Lookup(values=((one, "n1"),)))
    assert (chosen.by, len(chosen.records)) == (("index one",), 5)
    assert union.tally is not None
    assert union.tally.bytes == sum(map(weight, union.store.records()[0]))


async def test_a_function_is_called_once_for_each_held_object_and_its_values_are_counted() -> None:
    def counting(obj: dict[str, Any]) -> str:
        calls.append(1)
        return str(obj["node"])

    calls: list[int] = []
    indexing = IndexBuilder([])
    union = filled(indexing, 3 * INDEXED_PER_SLICE)
    builder = asyncio.create_task(indexing.run())
    await asyncio.sleep(0)
    await indexing.add([added("it", counting)])
    assert len(calls) == 3 * INDEXED_PER_SLICE
    assert union.tally is not None
    assert union.tally.bytes == sum(map(weight, union.store.records()[0]))
    builder.cancel()


def test_sections_of_several_branches_are_weighed_as_the_whole() -> None:
    union = Union([Keys(), Keys()])
    for branch in writers(union):
        branch.begin()
        for number in range(30):
            branch.put(Record("shop", f"pod-{number}", f"u-{number}", "1", {}, (), b"{}"))
        branch.commit("100")
    weights = union.store.weights()
    assert weights[""] > sys.getsizeof({f"pod-{number}": None for number in range(30)}), "it holds something"
    assert Section(union._union, [0]).weights() == weights
