"""Draws the protocol's states for docs/protocol.md, from its table of transitions: `python -m
tests.core.diagram` writes it anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kopf_selectcache.core.protocol.machine import TRANSITIONS

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"
BEGIN, END = "```mermaid\n", "```\n"


def drawn(transitions: Mapping[tuple[str, str], frozenset[str]] = TRANSITIONS) -> str:
    """Return the diagram: an arrow from state to state, with the inputs that can lead there."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, input_), afters in transitions.items():
        for after in sorted(afters):
            arrows.setdefault((before, after), []).append(input_)
    first = next(iter(transitions))[0]
    lines = ["stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {before} --> {after}: {', '.join(inputs)}" for (before, after), inputs in arrows.items()]
    return "".join(f"{line}\n" for line in lines)


def shown(document: str) -> str:
    """Return the diagram that a document has."""
    return document.partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    document = DOCUMENT.read_text()
    DOCUMENT.write_text(document.replace(BEGIN + shown(document) + END, BEGIN + drawn() + END))


if __name__ == "__main__":
    main()
