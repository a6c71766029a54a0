"""The table of bench/FAULTS.md: one row per attack, written by the program, checked by a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .attack import Attack

DOCUMENT = Path(__file__).parents[2] / "bench/FAULTS.md"
BEGIN, END = "<!-- begin: attacks, by python -m tests.hostile -->", "<!-- end: attacks -->"
HEAD = (
    "| attack | the server | state: held / fresh | requests a minute | memory, MB | block, ms"
    " |\n|---|---|---|---:|---:|---:|"
)


@dataclass(frozen=True)
class Row:
    """What was measured of one attack."""

    states: str
    requests: int
    peak: float
    """MB on top of what the process takes before the attack."""
    block: float
    """Seconds."""

    def shown(self, attack: Attack) -> str:
        return (
            f"| {attack.name} | {attack.what} | {self.states} | {self.requests} | {max(self.peak, 0):.0f} |"
            f" {self.block * 1000:.0f} |"
        )


def states(attack: Attack) -> str:
    return attack.held if attack.held == attack.fresh else f"{attack.held} / {attack.fresh}"


def read(text: str) -> dict[str, str]:
    """Return the lines of the table, by attack."""
    lines = text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines}


def written(text: str, attacks: Iterable[Attack], rows: Mapping[str, Row]) -> str:
    """Return the text with these rows in its table; the rows of other attacks stay as they are."""
    before, old = text.partition(BEGIN), read(text)
    lines = [
        rows[attack.name].shown(attack) if attack.name in rows else old[attack.name]
        for attack in attacks
        if attack.name in rows or attack.name in old
    ]
    return "".join(
        (before[0], BEGIN, "\n", HEAD, "\n", "\n".join(lines), "\n", END, before[2].partition(END)[2])
    )
