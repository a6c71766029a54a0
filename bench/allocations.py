"""Count the allocations and calls of each operation of the hot paths. The counts are the same each time, so
they can be compared. No clock is used.

`python -m bench.allocations` prints them; with `--write`, they become the limits of
tests/test_allocations.py.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from bench.data import encoded
from bench.unrelated import Unrelated
from kopf_selectcache import Key, Selector
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Event
from kopf_selectcache.core.store.packing import SAMPLE_OBJECTS, SiblingPacking, learned
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Store
from tests.cache.environment import PODS, Environment, pod

KEPT = Path(__file__).with_name("allocations.json")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Calls and allocations depend on the version of Python."""

COUNT = 200
"""The number of objects, and of repetitions of each operation."""

Figures: TypeAlias = Mapping[str, float]
Work: TypeAlias = Callable[[int], Any]
"""One operation of many, by its number. Its result stays until all operations are done."""


def figures(work: Work) -> Figures:
    """Measure an operation: the blocks and bytes of its results, its peak of memory, and its calls."""
    for number in range(COUNT):  # Everything that is created only once exists by now.
        work(number)
    gc.collect()
    gc.disable()
    try:
        return {**_retained(work), "peak": _peak(work), "calls": _calls(work)}
    finally:
        gc.enable()


def _retained(work: Work) -> Figures:
    results: list[Any] = [None] * COUNT
    blocks = sys.getallocatedblocks()
    for number in range(COUNT):
        results[number] = work(number)
    blocks = sys.getallocatedblocks() - blocks
    results = [None] * COUNT
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(COUNT):
            results[number] = work(number)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return {"blocks": round(blocks / COUNT, 1), "bytes": round((after - before) / COUNT)}


def _peak(work: Work) -> float:
    peaks = []
    tracemalloc.start()
    try:
        for number in range(COUNT):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            work(number)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    return round(sum(peaks) / COUNT)


def _calls(work: Work) -> float:
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    for number in range(COUNT):
        sys.setprofile(count)
        work(number)
        sys.setprofile(None)
        calls -= 2  # The operation itself, and the end of the counting.
    return round(calls / COUNT, 1)


def works() -> Mapping[str, Work]:
    """Return the hot paths: the storing of an object, and reads."""
    bodies = list(Unrelated(seed=1).pods(COUNT))
    for number, body in enumerate(bodies):
        body["metadata"]["resourceVersion"] = str(number + 1)
    items = [
        encoded({key: value for key, value in body.items() if key not in ("kind", "apiVersion")})
        for body in bodies
    ]
    lines = [b'{"type":"MODIFIED","object":' + encoded(body) + b"}" for body in bodies]
    reader, packing, store = Reader.of(PODS, ALL), SiblingPacking(always=True), Store()
    packing.begin()
    packing.adopt(learned([reader.record(item).data for item in items][:SAMPLE_OBJECTS]))
    packed = Reader.of(PODS, ALL, packing=packing)
    environment = Environment()
    environment.declare(Selector()).hold(*bodies)
    cache = environment.cache()
    keys = [Key.of(body) for body in bodies]
    events = [event for event in map(reader.line, lines) if isinstance(event, Event)]

    def pack(item: bytes) -> Record:
        record = packed.record(item)
        packing.pack_record(record)
        return record

    kept = [pack(item) for item in items]
    many = indexed()
    label = {"app": "app-1"}
    return {
        "read an item of a page": lambda number: reader.record(items[number]),
        "read and pack an item of a page": lambda number: pack(items[number]),
        "read an event": lambda number: reader.line(lines[number]),
        "put an event into the store": lambda number: store.put(events[number].record),
        "get": lambda number: cache.get("pods", keys[number]),
        "get a view": lambda number: cache.get("pods", keys[number], as_="view"),
        "get, of one that is not there": lambda number: cache.get(
            "pods", "none", namespace=keys[number].namespace, default=None
        ),
        "decode a packed record": lambda number: kept[number].decode(),
        "held by label": lambda _: many.list_cached("pods", labels=label),
        "held by label, keys only": lambda _: many.list_cached("pods", labels=label).keys(),
        "count by label": lambda _: many.count("pods", labels=label),
    }


def indexed() -> Cache:
    """Return a cache of objects with an index of their label. Each value has 40 objects."""
    environment = Environment()
    feed = environment.declare(Selector())
    feed.hold(*(pod(f"pod-{number}", app=f"app-{number % 50}") for number in range(2_000)))
    cache = environment.cache()
    cache.list_cached("pods", labels="app=app-1")
    while feed.store.build(1_000):
        pass
    assert cache.explain("pods", labels="app=app-1").looks_at == 40, "there is an index"
    return cache


def measured() -> Mapping[str, Figures]:
    return {name: figures(work) for name, work in works().items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.allocations", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    parser.add_argument("--write", action="store_true", help="keep the figures, for this version of Python")
    options = parser.parse_args()
    found = measured()
    if options.json:
        print(json.dumps(found))
    for name, each in found.items() if not options.json else ():
        print(f"{name:36} {'  '.join(f'{key} {value:,}' for key, value in each.items())}")
    if options.write:
        kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        KEPT.write_text(json.dumps({**kept, VERSION: found}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
