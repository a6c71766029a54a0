"""Compare the CPU time of reads with that of a plain `get` or `list` of the same objects: with `at_least=`,
of a split cache, in a snapshot, in pages, and of packed objects.

    python -m bench.read_cost --objects 1000

Needs no server: a fake cache has the objects. The plain read and the other are measured by turns, and the
figure is the median of their ratios, with the middle half: the machine is not the same from minute to minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import cycle, islice
from statistics import quantiles
from time import process_time
from typing import Any, NamedTuple

from bench.datasets import SETS, dataset
from kopf_selectcache import Cached, Key
from kopf_selectcache.core.store.packing import SiblingPacking, learned
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.errors import OutsideFilter
from kopf_selectcache.testing import FakeCache

Call = Callable[[], object]
KEY, GROUP = "v1/pods", 10
"""The declared kind, and the number of objects that a list by a label returns."""

SECONDS = 0.02
"""CPU time of one measurement, at least."""


class Row(NamedTuple):
    """A read, and the plain read that it is compared with."""

    name: str
    plain: str
    call: Call
    plain_call: Call


class Figure(NamedTuple):
    """The ratio of the CPU times of two reads."""

    low: float
    median: float
    high: float


def pod(number: int, app: str) -> dict[str, Any]:
    """Return a pod; ten have each value of the label `n`."""
    labels = {"app": app, "n": str(number // GROUP)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{app}-{number:05}", "namespace": "shop", "labels": labels},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none", "args": ["x" * 400]}]},
        "status": {"phase": "Running"},
    }


def rows(objects: int) -> list[Row]:
    """Return the reads of this number of pods inside of the filter; a split cache has as many outside."""
    inside = [pod(number, "web") for number in range(objects)]
    outside = [pod(number, "db") for number in range(objects)]
    cache: Any = FakeCache(inside, {KEY: "app=web"})
    split: Any = FakeCache([*inside, *outside], {KEY: Cached("app=web", outside="metadata")})
    now = cache.snapshot("pods").__enter__()  # It is open until the process ends.
    version, name, label = now.versions["pods"], f"web-{objects // 2:05}", "app=web,n=0"

    def get() -> object:
        return cache.get("pods", name, namespace="shop")

    def listed() -> object:
        return list(cache.list("pods", labels=label))

    def all_listed() -> object:
        return list(cache.list("pods", labels="app=web"))

    def get_outside() -> None:
        with suppress(OutsideFilter):
            split.get("pods", f"db-{objects // 2:05}", namespace="shop")

    def snapshot() -> None:
        with cache.snapshot("pods"):
            pass

    def pages() -> None:
        for page in cache.list_cached("pods", labels="app=web").batches(100):
            list(page)

    each, some, every = "get", f"list of {GROUP}", f"list of {objects:,}"
    return [
        Row("get(at_least=)", each, lambda: cache.get("pods", name, namespace="shop", at_least=version), get),
        Row("list(at_least=)", some, lambda: [*cache.list("pods", labels=label, at_least=version)], listed),
        Row("split: get, inside", each, lambda: split.get("pods", name, namespace="shop"), get),
        Row("split: get, outside", each, get_outside, get),
        Row(
            "split: get, absent", each, lambda: split.get("pods", "none", namespace="shop", default=None), get
        ),
        Row("split: list inside", some, lambda: [*split.list("pods", labels=label)], listed),
        Row("split: hidden", every, lambda: split.list_outside("pods"), all_listed),
        Row("snapshot, opened and ended", every, snapshot, all_listed),
        Row("get in a snapshot", each, lambda: now.get("pods", name, namespace="shop"), get),
        Row("list in a snapshot", some, lambda: [*now.list("pods", labels=label)], listed),
        Row("pages of 100", every, pages, all_listed),
    ]


def packed_rows(objects: int) -> list[Row]:
    """Return the reads of this number of packed pods, of both sets of the bench."""
    found: list[Row] = []
    for name in SETS:
        pods = list(islice(dataset(name, seed=1).pods(20_000), objects))
        keys = cycle([Key.of(each) for each in pods])
        raw, packed, often = (FakeCache(pods, {KEY: ""}) for _ in range(3))
        for cache in (packed, often):
            store = cache._access.runtime.informer(KEY).state.store  # noqa: SLF001  # What a bench of packing needs.
            pack(store.records()[0])
            if cache is packed:
                store.often_read = None

        def read(cache: FakeCache, keys: Iterator[Key] = keys) -> Call:
            return lambda: cache.get(KEY, next(keys))

        found += (
            Row(f"get, packed, {name}", "get, raw", read(packed), read(raw)),
            Row("the same, read often", "get, raw", read(often), read(raw)),
        )
    return found


def pack(records: Sequence[Record]) -> None:
    """Pack records as a synced cache has them."""
    packing = SiblingPacking(always=True)
    packing.adopt(learned([record.data for record in records]))
    for record in records:
        record.packing = packing
    for record in records:
        packing.pack_record(record)


def calls_in(call: Call, seconds: float) -> int:
    """Return the number of calls that take this CPU time."""
    number = 1
    while (taken := measured(call, number)) < seconds:
        number = max(2 * number, round(number * seconds / max(taken, seconds / 100)))
    return number


def measured(call: Call, number: int) -> float:
    begun = process_time()
    for _ in range(number):
        call()
    return process_time() - begun


def compared(row: Row, *, turns: int, seconds: float = SECONDS) -> Figure:
    """Measure both reads of a row by turns."""
    numbers = calls_in(row.call, seconds), calls_in(row.plain_call, seconds)
    ratios = []
    for _ in range(turns):
        plain = measured(row.plain_call, numbers[1]) / numbers[1]
        ratios.append(measured(row.call, numbers[0]) / numbers[0] / plain)
    return Figure(*quantiles(ratios, n=4))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.read_cost", description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args(arguments)
    print("| read | beside | CPU | its middle half |\n|---|---|---:|---:|")
    for row in (*rows(options.objects), *packed_rows(options.objects)):
        found = compared(row, turns=options.turns, seconds=options.seconds)
        low, ratio, high = (f"{value:.2g}" for value in found)
        print(f"| {row.name} | {row.plain} | {ratio}x | {low} to {high} |")


if __name__ == "__main__":
    main()
