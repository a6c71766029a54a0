"""The targets of our cache, as ratios to its peers in the same run, and the growth of each figure with the
number of objects. It measures nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.measuring import PACE, Result
from bench.roster import METADATA, OURS, RAW
from bench.table import aligned, number, piped


@dataclass(frozen=True)
class Target:
    """A figure of ours with an upper bound relative to a figure of a peer."""

    words: str
    key: str
    peer: str
    limit: float
    ours: str = OURS
    their_key: str = ""
    """Set if the peer's figure is another one than ours."""
    fewest: int = 0
    """Judged from this number of objects on."""

    def ratio(self, results: Iterable[Result]) -> float | None:
        """Return the ratio of ours to theirs; None if one of them was not measured."""
        figures = {result.peer: result.figures for result in results}
        one, other = (
            figures.get(self.ours, {}).get(self.key),
            figures.get(self.peer, {}).get(self.their_key or self.key),
        )
        return one / other if one is not None and other else None


CONTROLLER, UNSAFE, CLIENT_GO, INFORMER, INDEX = (
    "controller-runtime",
    "controller-runtime-unsafe",
    "client-go",
    "informer",
    "index",
)
TARGETS = (
    Target("memory", "memory", CONTROLLER, 1 / 8),
    Target("memory", "memory", INFORMER, 1 / 25),
    Target("memory of metadata alone", "memory", "controller-runtime-metadata", 1 / 4, ours=METADATA),
    Target("peak at sync, of our own memory after it", "peak", OURS, 1.5, their_key="memory"),
    Target("peak at relist, of our own memory", "relist peak", OURS, 1.5, their_key="memory"),
    Target("CPU to sync", "sync cpu", CONTROLLER, 1),
    Target("time to sync", "sync", INDEX, 1 / 50, fewest=4_000),
    Target("time to sync", "sync", INDEX, 1 / 300, fewest=8_000),
    Target("get, a dict", "get", CONTROLLER, 1),
    Target("get, a view, not packed", "get view", UNSAFE, 1, ours=RAW),
    Target("list by label, dicts", "label", CONTROLLER, 1),
    Target("list by label, views", "label view", UNSAFE, 1, their_key="indexed view"),
    Target("list by label, keys", "label keys", CLIENT_GO, 1),
    Target("CPU of an event", "event cpu", CONTROLLER, 1),
    Target("CPU of an event", "event cpu", "kube-rs", 1),
    Target("CPU of an event", "event cpu", INDEX, 1 / 5),
    Target("CPU of an event in a burst", "burst cpu", "client-go-json", 1),
    Target("CPU of an event in a burst", "burst cpu", INFORMER, 1 / 5),
    Target("CPU of an event in a burst", "burst cpu", INDEX, 1 / 20),
    Target("from write to read (p99)", "lag p99", CLIENT_GO, 2),
)


@dataclass(frozen=True)
class Bound:
    """A figure of ours with an absolute upper bound, because somebody waits for it."""

    words: str
    key: str
    limit: float
    unit: str


BOUNDS = (
    Bound("get, a view", "get view", 2, "µs"),
    Bound(f"added lateness of the loop at {PACE:,} changes a second (p99)", "added p99", 20, "ms"),
)
GROWING = (
    ("sync", "sync"),
    ("sync cpu", "CPU to sync"),
    ("memory", "memory"),
    ("get", "get"),
    ("label", "list by label"),
)
"""Figures that depend on the number of objects; a list by label returns more in proportion."""


def judged(results: Sequence[Result], *, markdown: bool = False) -> str:
    """Report whether each target is met, for each number of objects. Targets that were not measured are left
    out.
    """
    sizes = sorted({result.objects for result in results})
    rows = [["ours, at most", "of", "allowed", *(f"{objects:,} pods" for objects in sizes)]]
    for target in TARGETS:
        found = [
            target.ratio([result for result in results if result.objects == objects])
            if objects >= target.fewest
            else None
            for objects in sizes
        ]
        if any(ratio is not None for ratio in found):
            rows.append(
                [
                    target.words,
                    target.peer,
                    f"{number(target.limit)}x",
                    *(verdict(ratio, target.limit, "x") for ratio in found),
                ]
            )
    for bound in BOUNDS:
        figures = [
            next(
                (
                    result.figures.get(bound.key)
                    for result in results
                    if (result.peer, result.objects) == (OURS, objects)
                ),
                None,
            )
            for objects in sizes
        ]
        if any(figure is not None for figure in figures):
            rows.append(
                [
                    bound.words,
                    "",
                    f"{number(bound.limit)} {bound.unit}",
                    *(verdict(figure, bound.limit, f" {bound.unit}") for figure in figures),
                ]
            )
    return (piped if markdown else aligned)(rows) if len(rows) > 1 else ""


def verdict(figure: float | None, limit: float, unit: str) -> str:
    return "" if figure is None else f"{number(figure)}{unit} {'met' if figure <= limit else 'missed'}"


def growth(results: Sequence[Result], *, markdown: bool = False) -> str:
    """Report the growth of each figure: 0 is flat, 1 linear; and the memory of one more object. Empty for one
    number of objects.
    """
    rows = [["with the number of objects", *(words for _, words in GROWING), "bytes of one more"]]
    for peer in dict.fromkeys(result.peer for result in results):
        own = sorted(
            (result for result in results if result.peer == peer and "memory" in result.figures),
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
