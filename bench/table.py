"""A table of the figures of peers, as ratios to ours, in text or in Markdown. It measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.measuring import PACE, READS, Result, read_name
from bench.roster import OURS


@dataclass(frozen=True)
class Measure:
    key: str
    words: str
    scale: float = 1.0
    """The factor of the displayed figure."""


GROUPS: Mapping[str, Sequence[Measure]] = {
    "to hold them": (
        Measure("sync", "sync, s"),
        Measure("sync cpu", "its CPU, s"),
        Measure("memory", "memory above empty, MB", 1e-6),
        Measure("per object", "bytes an object"),
        Measure("peak", "peak above empty, MB", 1e-6),
        Measure("received", "received, MB", 1e-6),
        Measure("empty", "empty process, MB", 1e-6),
    ),
    "to read them, µs (p50)": tuple(Measure(read_name(*read), read_name(*read)) for read in READS),
    "to read them, µs (p99)": tuple(Measure(f"{read_name(*read)} p99", read_name(*read)) for read in READS),
    "to follow them": (
        Measure("event cpu", "CPU an event, µs"),
        Measure("lag", "write to read, ms (p50)"),
        Measure("lag p99", "ms (p99)"),
        Measure("behind", "read after the writer's answer, ms (p50)"),
        Measure("behind p99", "ms (p99)"),
        Measure("relist", "relist after a restart, s"),
        Measure("relist peak", "its peak, MB", 1e-6),
    ),
    "to hold nothing": (Measure("process", "memory of the process, MB", 1e-6),),
    "to take in a burst": (Measure("burst", "events a second"), Measure("burst cpu", "CPU an event, µs")),
    f"to share the loop with {PACE:,} changes a second, ms": (
        Measure("added p99", "later than without (p99)"),
        Measure("added p50", "(p50)"),
        Measure("late p99", "late (p99)"),
        Measure("late max", "(max)"),
        Measure("idle p99", "without changes (p99)"),
        Measure("idle max", "(max)"),
        Measure("late cpu", "CPU, of one processor"),
        Measure("caught up", "all held, s later"),
    ),
}
DID_NOT_FINISH = "did not finish"


def ratio(figure: float, ours: float) -> float | None:
    """Return the ratio to ours; None if it has no meaning."""
    return figure / ours if ours > 0 and figure >= 0 else None


def cell(measure: Measure, result: Result, ours: Result) -> str:
    figure = result.figures.get(measure.key)
    if figure is None:
        return ""
    shown = number(figure * measure.scale)
    base = ours.figures.get(measure.key)
    if result is ours or base is None or (times := ratio(figure, base)) is None:
        return shown
    return f"{shown} ({number(times)}x)"


def number(value: float) -> str:
    return (
        f"{value:,.0f}"
        if value >= 100
        else f"{value:.1f}"
        if value >= 10
        else f"{value:.2f}"
        if abs(value) >= 0.1
        else f"{value:.2g}"
    )


def tables(results: Sequence[Result], *, markdown: bool = False) -> str:
    """Return one table for each number of objects, in groups of measures. Peers that did not finish are
    listed below.
    """
    parts = []
    for objects in sorted({result.objects for result in results}):
        some = [result for result in results if result.objects == objects]
        ours = next((result for result in some if result.peer == OURS), Result(OURS, objects))
        parts.append(f"{'### ' if markdown else ''}{f'{objects:,}' if objects else 'No'} pods")
        for title, measures in GROUPS.items():
            there = [measure for measure in measures if any(measure.key in result.figures for result in some)]
            if not there:
                continue
            rows = [[title, *(measure.words for measure in there)]]
            rows += [
                [result.peer, *(cell(measure, result, ours) for measure in there)]
                for result in some
                if any(measure.key in result.figures for measure in there)
            ]
            parts.append(piped(rows) if markdown else aligned(rows))
        parts += [f"{result.peer}: {DID_NOT_FINISH}, {result.over}" for result in some if result.over]
    return "\n\n".join(parts)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if index else text.ljust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def piped(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(_line(row) for row in [rows[0], ["---", *["---:"] * (len(rows[0]) - 1)], *rows[1:]])


def _line(row: Iterable[str]) -> str:
    return f"| {' | '.join(row)} |"
