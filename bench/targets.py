"""The targets of our cache, most of them as ratios to its peers in the same run, and the growth of each
figure with the number of objects. It measures nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.grouped import Grouped
from bench.measuring import AT_LEAST, PACE, ROUND_STEP, Result
from bench.roster import INDEX, KOPF_ALONE, METADATA, OURS, RAW
from bench.table import DID_NOT_FINISH, aligned, number, piped
from bench.unrelated import Unrelated

CONTROLLER, CONTROLLER_METADATA, UNSAFE, CLIENT_GO, CLIENT_GO_JSON, KUBE_RS, KUBE_RS_STRIPPED, INFORMER = (
    "controller-runtime",
    "controller-runtime-metadata",
    "controller-runtime-unsafe",
    "client-go",
    "client-go-json",
    "kube-rs",
    "kube-rs-stripped",
    "informer",
)
GROUPED, UNRELATED = Grouped.name, Unrelated.name
INDEX_LIMITS = {4_000: 1 / 100, 8_000: 1 / 400}
"""The longest time until handlers run, of that with `@kopf.index`, with a number of objects."""
FEWEST = 10_000
"""The slope of memory is measured from this number of objects on."""
MET, MISSED, UNDECIDED = "met", "missed", "undecided"


class Run:
    """The figures of one set of objects."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.sizes = sorted({result.objects for result in results if result.step == ROUND_STEP})
        self._figures: dict[tuple[str, int], dict[str, float]] = {}
        self._failed = {(result.peer, result.objects) for result in results if result.over}
        for result in results:
            self._figures.setdefault((result.peer, result.objects), {}).update(result.figures)

    def get(self, peer: str, objects: int, key: str) -> float | None:
        return self._figures.get((peer, objects), {}).get(key)

    def failed(self, peer: str, objects: int) -> bool:
        """Tell whether a measurement of this peer did not finish."""
        return (peer, objects) in self._failed


@dataclass(frozen=True)
class Verdict:
    """The comparison of a figure with its limit."""

    figure: float
    limit: float
    unit: str
    at_most: bool = False
    """True if the figure is only known to be no larger: the peer was ended before it was done."""

    @property
    def met(self) -> bool:
        return self.figure <= self.limit

    def __str__(self) -> str:
        if not self.at_most:
            return f"{number(self.figure)}{self.unit} {MET if self.met else MISSED}"
        return f"at most {number(self.figure)}{self.unit} {MET if self.met else UNDECIDED}"


@dataclass(frozen=True)
class Target:
    """A figure of ours with an upper bound: of a figure of a peer, or of itself."""

    words: str
    key: str
    limit: float | Mapping[str, float]
    """One limit, or one for each set of objects that has this target."""
    peer: str = ""
    """Empty if the limit is a figure."""
    ours: str = OURS
    their_key: str = ""
    """Set if the peer's figure is another one than ours."""
    at: int | None = None
    """Set if the figure is one with this number of objects."""
    unit: str = "x"
    scale: float = 1
    """The factor of a figure that is shown."""
    judge: Callable[[Target, Run, int], tuple[float, bool] | None] | None = field(default=None, compare=False)
    """Set if the figure is found in another way than as a ratio, or as it is."""

    def limit_of(self, data: str) -> float | None:
        return self.limit.get(data) if isinstance(self.limit, Mapping) else self.limit

    def verdict(self, run: Run, data: str, objects: int) -> Verdict | None:
        """Return the verdict with this number of objects; None if something was not measured."""
        if (limit := self.limit_of(data)) is None:
            return None
        found = (self.judge or _compared)(self, run, objects)
        return None if found is None else Verdict(found[0] * self.scale, limit, self.unit, found[1])


def _compared(target: Target, run: Run, objects: int) -> tuple[float, bool] | None:
    ours = run.get(target.ours, objects, target.key)
    if not target.peer:
        return None if ours is None else (ours, False)
    theirs = run.get(target.peer, objects, target.their_key or target.key)
    return (ours / theirs, False) if ours is not None and theirs else None


def _against_index(target: Target, run: Run, objects: int) -> tuple[float, bool] | None:
    """Compare with a peer that may have been ended early: then the ratio is no larger."""
    if (found := _compared(target, run, objects)) is not None:
        return found
    ours, theirs = run.get(OURS, objects, target.key), run.get(target.peer, objects, AT_LEAST)
    return (ours / theirs, True) if ours is not None and theirs else None


def _one_more(target: Target, run: Run, objects: int) -> tuple[float, bool] | None:
    """Return the memory of one more object, from the next smaller number of objects to this one. With few
    objects, the memory that the process has in reserve is more than they take.
    """
    fewer = max((size for size in run.sizes if FEWEST <= size < objects), default=0)
    less, more = run.get(OURS, fewer, target.key), run.get(OURS, objects, target.key)
    return None if less is None or more is None else ((more - less) / (objects - fewer), False)


def _difference(target: Target, run: Run, objects: int) -> tuple[float, bool] | None:
    ours, theirs = run.get(OURS, objects, target.key), run.get(target.peer, objects, target.key)
    return None if ours is None or theirs is None else (ours - theirs, False)


TARGETS = (
    Target("memory an object", "per object", {GROUPED: 1 / 12, UNRELATED: 1 / 8}, CONTROLLER),
    Target("memory of one more full pod", "memory", {GROUPED: 1_200}, unit=" bytes", judge=_one_more),
    Target(
        "memory of a million pods",
        "memory",
        {GROUPED: 1.5},
        at=1_000_000,
        unit=" GiB",
        scale=2**-30,
    ),
    Target("memory of metadata alone", "memory", 1 / 4, CONTROLLER_METADATA, ours=METADATA),
    Target("CPU to sync", "sync cpu", 1, CONTROLLER),
    Target("CPU to sync", "sync cpu", 1, KUBE_RS),
    Target("get, a dict", "get", 1, CONTROLLER),
    Target("get, a view", "get view", 2, unit=" µs"),
    Target("one in fifty by label, dicts", "label", 1, CONTROLLER),
    Target("one in fifty by label, views", "label view", 1, UNSAFE, their_key="indexed view"),
    Target("one in fifty by label, keys", "label keys", 1, CLIENT_GO),
    Target("CPU of an event in a burst", "burst cpu", 1 / 9, CLIENT_GO_JSON, at=1_000),
    Target("CPU of an event in a burst", "burst cpu", 1, KUBE_RS_STRIPPED, at=1_000),
    Target("CPU of an event at the server's pace", "event cpu", 1, CONTROLLER),
    Target("CPU of an event at the server's pace", "event cpu", 1, KUBE_RS),
    Target("from write to read (p99)", "lag p99", 2, CLIENT_GO),
    *(
        Target("time until handlers run", "sync", limit, INDEX, at=objects, judge=_against_index)
        for objects, limit in INDEX_LIMITS.items()
    ),
    Target(
        "memory of the process with nothing to hold, more than",
        "process",
        12,
        KOPF_ALONE,
        at=0,
        unit=" MB",
        scale=1e-6,
        judge=_difference,
    ),
)
OTHER_LIMITS = (
    Target("memory an object", "per object", 1 / 25, INFORMER),
    Target("peak at sync, of our own memory after it", "peak", 1.5, OURS, their_key="memory"),
    Target("peak at relist, of our own memory", "relist peak", 1.5, OURS, their_key="memory"),
    Target("get, a view, not packed", "get view", 1, UNSAFE, ours=RAW),
    Target("CPU of an event in a burst", "burst cpu", 1 / 10, INFORMER, at=1_000),
    Target("CPU of an event in a burst", "burst cpu", 1 / 40, INDEX, at=1_000),
    Target(
        f"added lateness of the loop at {PACE:,} changes a second (p99)",
        "added p99",
        20,
        at=1_000,
        unit=" ms",
    ),
)
"""Limits besides the targets."""
GROWING = (
    ("sync", "sync"),
    ("sync cpu", "CPU to sync"),
    ("memory", "memory"),
    ("get", "get"),
    ("label", "list by label"),
)
"""Figures that depend on the number of objects; a list by label returns more in proportion."""


def judged(results: Sequence[Result], targets: Sequence[Target] = TARGETS, *, markdown: bool = False) -> str:
    """Report whether each target is met: with each set and number of objects. Targets that were not measured
    are left out. Figures of another number of objects have it in brackets.
    """
    runs = {
        data: Run([result for result in results if result.data == data])
        for data in dict.fromkeys(result.data for result in results)
    }
    columns = [(data, size) for data, run in runs.items() for size in run.sizes or [0]]
    heads = [f"{data}, {size:,} pods" if size else f"{data} pods" for data, size in columns]
    rows = [["ours, at most", "of", "allowed", *heads]]
    for target in targets:
        cells = [_cell(target, runs[data], data, size) for data, size in columns]
        if any(cells):
            rows.append([target.words, target.peer, _allowed(target), *cells])
    return (piped if markdown else aligned)(rows) if len(rows) > 1 else ""


def _cell(target: Target, run: Run, data: str, size: int) -> str:
    """Return the verdict. One with another number of objects is in the first column of its set."""
    if target.at is not None and size != min(run.sizes, default=0):
        return ""
    at = size if target.at is None else target.at
    if (verdict := target.verdict(run, data, at)) is None:
        # A target without its peer is neither met nor missed.
        failed = target.limit_of(data) is not None and any(
            run.failed(peer, at) for peer in (target.ours, target.peer)
        )
        return DID_NOT_FINISH if failed else ""
    return f"{verdict} ({at:,} pods)" if at not in (0, size) else str(verdict)


def _allowed(target: Target) -> str:
    limits = target.limit.values() if isinstance(target.limit, Mapping) else [target.limit]
    return "; ".join(f"{number(limit)}{target.unit}" for limit in limits)


def counted(results: Sequence[Result], targets: Sequence[Target] = TARGETS) -> tuple[int, int]:
    """Return the number of verdicts that are met, and of all."""
    cells = judged(results, targets, markdown=True)
    return cells.count(f" {MET}"), cells.count(f" {MET}") + cells.count(f" {MISSED}")


def growth(results: Sequence[Result], *, markdown: bool = False) -> str:
    """Report the growth of each figure: 0 is flat, 1 linear; and the memory of one more object. Empty for one
    number of objects.
    """
    rows = [["with the number of objects", *(words for _, words in GROWING), "bytes of one more"]]
    for peer in dict.fromkeys(result.peer for result in results):
        own = sorted(
            (
                result
                for result in results
                if (result.peer, result.step) == (peer, ROUND_STEP) and "memory" in result.figures
            ),
            key=lambda result: result.objects,
        )
        if len(own) > 1:
            more = (own[-1].figures["memory"] - own[0].figures["memory"]) / (own[-1].objects - own[0].objects)
            rows.append([peer, *(_power(own, key) for key, _ in GROWING), number(more)])
    return (piped if markdown else aligned)(rows) if len(rows) > 1 else ""


def _power(results: Sequence[Result], key: str) -> str:
    found = exponent(
        [(result.objects, result.figures[key]) for result in results if result.figures.get(key, 0) > 0]
    )
    return "" if found is None else f"{found:.2f}"


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the power of x that y grows with, fitted on logarithms.

    >>> round(exponent([(1, 3), (10, 300), (100, 30_000)]), 6)
    2.0
    """
    if len({x for x, _ in points}) < 2:
        return None
    logs = [(math.log(x), math.log(y)) for x, y in points]
    middle_x, middle_y = sum(x for x, _ in logs) / len(logs), sum(y for _, y in logs) / len(logs)
    return sum((x - middle_x) * (y - middle_y) for x, y in logs) / sum((x - middle_x) ** 2 for x, _ in logs)
