"""Show the lateness of event loops as histograms in text, with and without changes. It measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.measuring import Result
from bench.peers.asking import BOUNDS

WIDTH = 30


def histograms(results: Sequence[Result], *, markdown: bool = False) -> str:
    """Show the lateness of the loop of each peer that has one."""
    fence = "```" if markdown else ""
    return "\n\n".join(
        "how late the event loop woke,"
        f" {result.peer}\n{fence and fence + chr(10)}{histogram(result.late)}{fence and chr(10) + fence}"
        for result in results
        if result.late
    )


def histogram(counts: Mapping[str, Sequence[int]]) -> str:
    """Show parts of a whole as bars, side by side; nothing below the last that has any.

    >>> print(histogram({'idle': [9, 1, 0], 'busy': [5, 3, 2]}))
                  idle                                        busy
    up to   1 ms    90.00 %  ###########################        50.00 %  ###############
    up to   2 ms    10.00 %  ###                                30.00 %  #########
    up to   5 ms                                                20.00 %  ######
    """
    last = max(index for each in counts.values() for index, count in enumerate(each) if count)
    names = [f"up to {bound:3,.0f} ms" for bound in BOUNDS] + [f"more    {'':4}"]
    width = max(len(name) for name in names)
    rows = [" " * width + "".join(f"  {name:{WIDTH + 12}}" for name in counts)]
    rows += [
        f"{names[index]:{width}}" + "".join(f"  {_bar(each[index] / sum(each))}" for each in counts.values())
        for index in range(last + 1)
    ]
    return "\n".join(row.rstrip() for row in rows)


def _bar(part: float) -> str:
    shown = f"{100 * part:7.2f} %" if part else ""
    return f"{shown:>9}  {'#' * (round(WIDTH * part) or bool(part)):{WIDTH}} "
