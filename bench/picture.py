"""A picture of memory and sync against the number of objects, both logarithmic, in SVG. Measures nothing."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from bench.measuring import Result

WIDTH, HEIGHT = 460, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 40
LEGEND = 24   # Pixels for a line of the legend.
COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#7f7f7f", "#393b79", "#637939", "#843c39", "#7b4173")
PANELS = (("memory", "memory above the empty process, MB", 1e-6), ("sync", "time to sync, s", 1.0))

Line = list[tuple[float, float]]


def drawn(results: Sequence[Result]) -> str:
    """Return the picture. A peer has a point for each number of objects that it came to hold."""
    names = list(dict.fromkeys(result.peer for result in results))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    parts = []
    for index, (key, words, scale) in enumerate(PANELS):
        lines: dict[str, Line] = {
            name: sorted((float(result.objects), result.figures[key] * scale) for result in results
                         if result.peer == name and result.figures.get(key, 0) > 0)
            for name in names}
        parts.append(f'<g transform="translate({index * WIDTH} 0)">{_panel(words, lines, colours)}</g>')
    for index, name in enumerate(names):
        x, y = LEFT + index % 3 * 280, HEIGHT + LEGEND * (index // 3) + 16
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colours[name]}"/><text x="{x + 10}" y="{y}">{escape(name)}</text>')
    width, height = WIDTH * len(PANELS), HEIGHT + LEGEND * math.ceil(len(names) / 3) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n')


def _panel(words: str, lines: Mapping[str, Line], colours: Mapping[str, str]) -> str:
    points = [point for line in lines.values() for point in line]
    text = f'<text x="{LEFT}" y="20" font-weight="bold">{escape(words)}</text>'
    if not points:
        return f'{text}<text x="{LEFT}" y="60">nobody finished</text>'
    across = _Scale([x for x, _ in points], LEFT, WIDTH - RIGHT)
    up = _Scale([y for _, y in points], HEIGHT - BOTTOM, TOP)
    parts = [text]
    parts += [
        f'<path d="M{across(value):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>'
        f'<text x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:,.0f}</text>' for value in across.ticks()]
    parts += [
        f'<path d="M{LEFT} {up(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        f'<text x="{LEFT - 6}" y="{up(value) + 4:.1f}" text-anchor="end">{value:,g}</text>' for value in up.ticks()]
    for name, line in lines.items():
        placed = [(across(x), up(y)) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colours[name]}"><title>{escape(name)}</title></circle>' for x, y in placed]
    return "".join(parts)


class _Scale:
    """Whole powers of ten around all values, onto pixels."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low, self._high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self._high += self._low == self._high
        self._begin, self._end = begin, end

    def __call__(self, value: float) -> float:
        return self._begin + (math.log10(value) - self._low) / (self._high - self._low) * (self._end - self._begin)

    def ticks(self) -> list[float]:
        return [10.0 ** power for power in range(self._low, self._high + 1)]
