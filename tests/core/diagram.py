"""The protocol's table of transitions. `python -m tests.core.diagram` draws it in docs/dev/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

DOCUMENT = Path(__file__).parents[2] / "docs/dev/protocol.md"
BEGIN, END = "```mermaid\n", "```\n"

TRANSITIONS: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(
    {
        (state, input_): frozenset(after.split())
        for state, row in {
            "Idle": {"Start": "Listing Filling"},
            "Listing": {
                "Page": "Listing Watching Waiting",
                "Refusal": "Waiting",
                "Lost": "Waiting",
                "Silent": "Waiting",
            },
            "Filling": {
                "Opened": "Filling",
                "Event": "Filling Waiting",
                "Bookmark": "Filling Watching Waiting",
                "Refusal": "Waiting",
                "Lost": "Waiting",
                "Silent": "Waiting",
            },
            "Watching": {
                "Opened": "Watching",
                "Event": "Watching Waiting",
                "Bookmark": "Watching Waiting",
                "Probed": "Watching",
                "Refusal": "Waiting",
                "Lost": "Watching Waiting",
                "Silent": "Waiting",
            },
            "Waiting": {"Due": "Listing Filling Watching"},
        }.items()
        for input_, after in row.items()
    }
)
"""For each state and each input that can come in it, the states that can follow. Anything else is a mistake
of ours."""


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
