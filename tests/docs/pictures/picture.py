"""What a picture consists of: boxes, texts and arrows, in colours that come from one palette."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from itertools import pairwise
from typing import Literal, TypeAlias

WIDTH = 400
"""Pictures are as wide as a phone shows, so that their text stays readable there."""
LINE = 20
"""Pixels from one line of text to the next."""

PALETTE: Mapping[str, tuple[str, str]] = {
    "text": ("#1f2328", "#f0f6fc"),
    "muted": ("#59636e", "#9198a1"),
    "surface": ("#f6f8fa", "#151b23"),
    "edge": ("#818b98", "#656c76"),
    "blue": ("#0969da", "#58a6ff"),
    "blue surface": ("#ddf4ff", "#0c2d4f"),
    "orange": ("#bc4c00", "#f0883e"),
    "orange surface": ("#fff1e5", "#3d1f08"),
    "green": ("#116329", "#56d364"),
    "red": ("#c2212c", "#ff7b72"),
}
"""Each colour on a light page, and on a dark one."""

MONOSPACE = 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace'
STYLE = f"""\
    text {{ fill: $text; font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif }}
    .head {{ font-weight: 600; font-size: 15px }}
    .code {{ font: 13px {MONOSPACE} }}
    .call {{ font: 600 13px {MONOSPACE} }}
    .note {{ fill: $muted }}
    .good {{ fill: $green }}
    .bad {{ fill: $red; font-weight: 600 }}
    .box {{ fill: $surface; stroke: $edge; stroke-width: 1.5 }}
    .pod {{ fill: $blue-surface; stroke: $blue; stroke-width: 1.5 }}
    .left {{ fill: $orange-surface; stroke: $orange; stroke-width: 1.5 }}
    .gone {{ fill: none; stroke: $edge; stroke-width: 1.5; stroke-dasharray: 4 4 }}
    .line {{ fill: none; stroke: $blue; stroke-width: 2 }}
    .tip {{ fill: $blue }}
    .own {{ fill: none; stroke: $orange; stroke-width: 2 }}
    .owntip {{ fill: $orange }}
    .dashed {{ stroke-dasharray: 6 5 }}
"""
CODE = re.compile("`([^`]+)`")
COLOUR = re.compile(r"\$([a-z-]+)")

Point: TypeAlias = tuple[float, float]
Anchor: TypeAlias = Literal["start", "middle", "end"]


def coloured(style: str, *, dark: bool) -> str:
    """Return CSS with the palette's colours.

    >>> coloured(".note { fill: $muted }", dark=True)
    '.note { fill: #9198a1 }'
    """
    return COLOUR.sub(lambda match: PALETTE[match[1].replace("-", " ")][dark], style)


class Picture:
    """A picture. Later elements are above earlier ones."""

    def __init__(self, title: str, height: float, *, width: float = WIDTH, style: str = "") -> None:
        """`title` says what it shows, for readers who do not see it; `style` is CSS beside that of all."""
        self.title, self.width, self.height = title, width, height
        self._style = STYLE + style
        self._elements: list[str] = []

    def add(self, *elements: str) -> None:
        self._elements += elements

    def box(
        self, x: float, y: float, width: float, height: float, kind: str = "box", *, radius: float = 8
    ) -> None:
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
        self.add(f'<rect class="{kind}" {place}/>')

    def text(self, x: float, y: float, *lines: str, kind: str = "", anchor: Anchor = "start") -> None:
        """Add lines of text, one below the other. What is between backticks is code."""
        attributes = (f' class="{kind}"' if kind else "") + (
            f' text-anchor="{anchor}"' if anchor != "start" else ""
        )
        for number, line in enumerate(lines):
            words = CODE.sub(r'<tspan class="code">\1</tspan>', escape(line, quote=False))
            self.add(f'<text{attributes} x="{x:g}" y="{y + number * LINE:g}">{words}</text>')

    def object(self, x: float, y: float, name: str, kind: str = "pod", *, width: float = 80) -> None:
        """Add an object of the cluster."""
        self.box(x, y, width, 32, kind, radius=6)
        self.text(x + width / 2, y + 21, name, kind="code", anchor="middle")

    def line(self, *points: Point, kind: str = "line") -> None:
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        self.add(f'<path class="{kind}" d="M{path}"/>')

    def arrow(self, *points: Point, kind: str = "line", tip: str = "tip") -> None:
        """Add a line of horizontal and vertical pieces, with a tip at its end."""
        (before_x, before_y), (x, y) = list(pairwise(points))[-1]
        across, down = _sign(x - before_x), _sign(y - before_y)
        self.line(*points[:-1], (x - 11 * across, y - 11 * down), kind=kind)
        back_x, back_y = x - 12 * across, y - 12 * down
        self.add(
            f'<path class="{tip}" d="M{x:g} {y:g}L{back_x + 6 * down:g} {back_y + 6 * across:g}'
            f'L{back_x - 6 * down:g} {back_y - 6 * across:g}z"/>'
        )

    def svg(self, *, dark: bool) -> str:
        """Return it as an SVG, which is shown at 440 pixels where nobody asks for another width."""
        shown = 440 / WIDTH if self.width == WIDTH else 1
        elements = "\n".join(f"  {each}" for each in self._elements)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}"'
            f' width="{self.width * shown:g}" height="{self.height * shown:g}" role="img"'
            f' aria-labelledby="title">\n'
            f'  <title id="title">{escape(self.title, quote=False)}</title>\n'
            f"  <style>\n{coloured(self._style, dark=dark)}  </style>\n{elements}\n</svg>\n"
        )


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
