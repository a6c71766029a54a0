"""Measure the memory of a change of a filter: the peak above what the cache holds before, in bytes for each
object.

`python -m bench.change_memory` changes the declaration of a cache of small pods on a server in process. The
objects of both filters are in memory once: beside them, a change takes the bytes that it adds, the tables of
the next store, and a page.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.checkout import Followed, Server, pod
from kopf_selectcache import Cached
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Page
from kopf_selectcache.core.store.packing import weight

CHANGES: Mapping[str, Cached] = {
    "another filter, the same objects": Cached("app=web"),
    "another part of each object": Cached("app", drop=["status"]),
}


class Figures(NamedTuple):
    """Bytes of one change."""

    held: int
    """The memory that the cache takes before."""
    peak: int
    """The peak above that."""
    added: int
    """The memory that it takes afterwards, above that before."""
    page: int
    """The records of a page, which are decoded before they are compared with those that are held."""


async def measure(declared: Cached, objects: int) -> Figures:
    """Change the declaration of a cache of this number of objects."""
    server = Server([pod(number, 0) for number in range(objects)])
    first = Reader("v1", "Pod").page(server.pages[""])
    assert isinstance(first, Page), "the server refuses nothing"
    page = sum(map(weight, first.records))
    del first
    gc.collect()
    tracemalloc.start()
    empty, _ = tracemalloc.get_traced_memory()
    followed = Followed(server)
    await followed.watched()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    await followed.informer.filter_change.change(declared, timeout=600.0)
    _, peak = tracemalloc.get_traced_memory()
    await asyncio.sleep(0.1)  # The streams of the former filter end.
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await followed.end()
    return Figures(before - empty, peak - before, after - before, page + len(server.pages[""]))


def main(arguments: Sequence[str] | None = None) -> dict[str, Figures]:
    parser = argparse.ArgumentParser(prog="bench.change_memory", description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000)
    objects: int = parser.parse_args(arguments).objects
    logging.disable(logging.CRITICAL)
    found: dict[str, Figures] = {}
    try:
        for name, declared in CHANGES.items():
            figures = found[name] = asyncio.run(measure(declared, objects))
            each: dict[str, Any] = {key: round(value / objects) for key, value in figures._asdict().items()}
            print(
                f"{name}: {each['held']:,} bytes an object before, {each['peak']:,} more at the peak,"
                f" {each['added']:+,} afterwards; a page has {figures.page / 1e6:.1f} MB"
            )
    finally:
        logging.disable(logging.NOTSET)
    return found


if __name__ == "__main__":
    main()
