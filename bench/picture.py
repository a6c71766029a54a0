"""A picture of memory and sync time against the number of objects, both logarithmic: as shapes, and as SVG.
It measures nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, TypeAlias

from bench.measuring import Result
from bench.roster import AGAIN, PEERS

WIDTH, HEIGHT = 460, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 34, 34, 40
LEGEND = 24  # Pixels for a line of the legend.
FONT = 12
COLOURS = (
    "#d62728",
    "#1f77b4",
    "#2ca02c",
    "#9467bd",
    "#ff7f0e",
    "#8c564b",
    "#e377c2",
    "#17becf",
    "#bcbd22",
    "#7f7f7f",
    "#393b79",
    "#637939",
    "#843c39",
    "#7b4173",
    "#000000",
    "#aec7e8",
    "#ff9896",
)
"""One for each peer, in the order of the roster. The last one is for our cache, when it is measured again."""
GRID = "#dddddd"
PANELS = (("memory", "memory above the empty process, MB", 1e-6), ("sync", "time to sync, s", 1.0))

STYLE = (
    ".page{fill:#fff}text{fill:#1f2328}@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#f0f6fc}"
    + "".join(
        f"[stroke='{light}']{{stroke:{dark}}}[fill='{light}']{{fill:{dark}}}"
        for light, dark in {
            GRID: "#30363d",
            "#393b79": "#9c9ede",
            "#637939": "#b5cf6b",
            "#843c39": "#e7969c",
            "#7b4173": "#de9ed6",
            "#8c564b": "#c49c94",
            "#000000": "#ffffff",
        }.items()
    )
    + "}"
)
"""Colours that a dark page needs, beside those that are seen on both."""

Point: TypeAlias = tuple[float, float]
Points: TypeAlias = Sequence[Point]


@dataclass(frozen=True)
class Text:
    at: Point
    """The position of the text: its start, middle or end, by the anchor."""
    words: str
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False


@dataclass(frozen=True)
class Line:
    """A line through some points. With fewer than two points nothing is visible."""

    points: Points
    colour: str
    width: float


@dataclass(frozen=True)
class Dot:
    at: Point
    colour: str
    title: str = ""
    """The meaning of the line."""
    radius: float = 3.5


Shape: TypeAlias = Text | Line | Dot


@dataclass(frozen=True)
class Drawing:
    """The shapes in pixels; later ones are above earlier ones."""

    width: int
    height: int
    shapes: Sequence[Shape]


def drawing(results: Sequence[Result]) -> Drawing:
    """Return the picture. A peer has a point for each number of objects that it has stored."""
    names = list(dict.fromkeys(result.peer for result in results))
    known = list(dict.fromkeys([*(peer.name for peer in PEERS), AGAIN, *names]))
    colours = {name: COLOURS[known.index(name) % len(COLOURS)] for name in names}
    shapes: list[Shape] = []
    for index, (key, words, scale) in enumerate(PANELS):
        lines = {
            name: sorted(
                (float(result.objects), result.figures[key] * scale)
                for result in results
                if result.peer == name and result.figures.get(key, 0) > 0
            )
            for name in reversed(names)  # Ours is the first one, and above the others.
        }
        shapes += _panel(words, lines, colours, left=index * WIDTH)
    for index, name in enumerate(names):
        x, y = LEFT + index % 3 * 280, HEIGHT + LEGEND * (index // 3) + 16
        shapes += [Dot((x, y - 4), colours[name], radius=4), Text((x + 10, y), name)]
    return Drawing(WIDTH * len(PANELS), HEIGHT + LEGEND * math.ceil(len(names) / 3) + 8, shapes)


def _panel(
    words: str, lines: Mapping[str, Points], colours: Mapping[str, str], *, left: int
) -> Iterator[Shape]:
    begin, end, bottom = left + LEFT, left + WIDTH - RIGHT, HEIGHT - BOTTOM
    yield Text((begin, 20), words, bold=True)
    points = [point for line in lines.values() for point in line]
    if not points:
        yield Text((begin, 60), "nobody finished")
        return
    across, up = _Scale([x for x, _ in points], begin, end), _Scale([y for _, y in points], bottom, TOP)
    for value in across.ticks():
        yield Line([(across(value), TOP), (across(value), bottom)], GRID, 1)
        yield Text((across(value), bottom + 18), f"{value:,.0f}", "middle")
    for value in up.ticks():
        yield Line([(begin, up(value)), (end, up(value))], GRID, 1)
        yield Text((begin - 6, up(value) + 4), f"{value:,g}", "end")
    for name, line in lines.items():
        placed = [(across(x), up(y)) for x, y in line]
        yield Line(placed, colours[name], 1.5)
        for point in placed:
            yield Dot(point, colours[name], name)


def svg(drawn: Drawing) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{drawn.width}" height="{drawn.height}" viewBox="0 0'
        f' {drawn.width} {drawn.height}" font-family="sans-serif" font-size="{FONT}"><style>{STYLE}</style>'
        f'<rect class="page" width="100%" height="100%"/>{"".join(map(_element, drawn.shapes))}</svg>\n'
    )


def _element(shape: Shape) -> str:
    match shape:
        case Text((x, y), words, anchor, bold):
            return (
                f'<text x="{x:.1f}" y="{y:.1f}"'
                # The attributes of one element are in one line.
                f' text-anchor="{anchor}"{" font-weight=" + repr("bold") if bold else ""}>{escape(words)}</text>'  # noqa: E501
            )
        case Line(points, colour, width):
            return (
                f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none"'
                f' stroke="{colour}" stroke-width="{width}"/>'
            )
        case Dot((x, y), colour, title, radius):
            return (
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"'
                f' fill="{colour}">{f"<title>{escape(title)}</title>" if title else ""}</circle>'
            )


class _Scale:
    """Whole powers of ten around all values, mapped to pixels."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low, self._high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self._high += self._low == self._high
        self._begin, self._end = begin, end

    def __call__(self, value: float) -> float:
        return self._begin + (math.log10(value) - self._low) / (self._high - self._low) * (
            self._end - self._begin
        )

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]
