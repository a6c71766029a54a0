"""Indexes are built on the loop, for whichever thread wants them, while others go on."""
from __future__ import annotations

import asyncio

from kopf_selectcache.core.branches import Keys, Section
from kopf_selectcache.core.indexed import Indexed
from kopf_selectcache.core.lookup import WORTH, Lookup
from kopf_selectcache.core.merging import Merging
from kopf_selectcache.core.record import Record
from kopf_selectcache.core.selectors import parse_labels
from kopf_selectcache.indexing import SLICE, Indexing

NODE = Indexed("node", ("node",))
TURNS = 10_000
"""So many turns of the loop are more than enough."""


def filled(indexing: Indexing, count: int) -> Merging:
    merging = Merging(wanted=indexing.want)
    branch, = merging.branches
    branch.begin()
    for i in range(count):
        branch.put(Record("shop", f"pod-{i}", f"u-{i}", "1", {"app": f"app-{i % 2}"}, (), b'{"node":"n1"}'))
    branch.commit("5")
    indexing.begin(merging, ())
    return merging


async def until_found_by(merging: Merging, lookup: Lookup, by: str) -> int:
    """Give the loop away until the index is used; return how often."""
    for turn in range(TURNS):
        if merging.store.chosen(lookup, asking=False).by == (by,):
            return turn
        await asyncio.sleep(0)
    raise AssertionError(f"{by} was never built")


def test_what_a_thread_wants_is_built_on_the_loop_slice_by_slice() -> None:
    async def main() -> None:
        indexing = Indexing([])
        merging = filled(indexing, 20 * SLICE)
        asked = Lookup(labels=parse_labels("app=app-1"))
        running = asyncio.create_task(indexing.run())
        await asyncio.sleep(0)
        first = await asyncio.to_thread(merging.store.chosen, asked)
        assert (len(first.records), first.by) == (20 * SLICE, ())
        assert await until_found_by(merging, asked, "label app") >= 10, "others had their turns meanwhile"
        merging.store.chosen(Lookup(owner="x"))
        await until_found_by(merging, Lookup(owner="x"), "owners")
        running.cancel()
    asyncio.run(main())


def test_what_is_declared_or_was_wanted_before_is_built_from_the_start() -> None:
    async def main() -> None:
        indexing = Indexing([NODE])
        merging = filled(indexing, WORTH + 1)
        merging.store.chosen(Lookup(owner="x"))
        running = asyncio.create_task(indexing.run())
        await until_found_by(merging, Lookup(values=((NODE, "n1"),)), "index node")
        await until_found_by(merging, Lookup(owner="x"), "owners")
        running.cancel()
    asyncio.run(main())


def test_reads_after_the_operator_has_ended_want_nothing_of_it() -> None:
    indexing = Indexing([])
    merging = filled(indexing, WORTH + 1)

    async def main() -> None:
        running = asyncio.create_task(indexing.run())
        await asyncio.sleep(0)
        running.cancel()
    asyncio.run(main())
    assert len(merging.store.chosen(Lookup(owner="x")).records) == WORTH + 1


def test_sections_of_several_branches_are_weighed_as_the_whole() -> None:
    union = Merging([Keys(), Keys()])
    assert Section(union._union, [0]).weights() == union.store.weights()
