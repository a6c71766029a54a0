"""A recording of `make demo`, and the picture that plays it.

docs/dev/demo.txt has the demo's output. `python -m tests.docs.pictures.recording` records it again.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path

from tests.docs.pictures.picture import WIDTH, Picture

ROOT = Path(__file__).parents[3]
RECORDING = ROOT / "docs/dev/demo.txt"
DEMO = ROOT / "examples/demo/demo.py"
TITLE, ANSWER, NOTE = "---", "   -> ", "      "
FIRST, AFTER = "--- 1.", "--- 6."
"""The steps with which the picture begins, and before which it ends."""

COLUMNS, ROWS = 46, 20
HIGH = 18
"""Pixels of a row."""
TOP = 48
"""Pixels above the first row."""
SECONDS = {"prompt": 1.0, "step": 1.4, "typed": 0.7, "answer": 0.4, "problem": 1.2}
"""How long a line is the last one, by its kind: the demo is too fast to be read."""
END = 5.0


def record() -> None:
    """Run the demo, which takes a minute."""
    command = [sys.executable, str(DEMO)]
    made = subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE)  # It is ours.
    RECORDING.write_text(made.stdout, encoding="utf-8")


def shown() -> Iterator[str]:
    """Yield the lines of the picture: in each step, each line once, and none between steps."""
    known: set[str] = set()
    begun = False
    for line in RECORDING.read_text(encoding="utf-8").splitlines():
        if line.startswith(AFTER):
            return
        if line.startswith(TITLE):
            begun = begun or line.startswith(FIRST)
            known.clear()
        if begun and line and line not in known:
            known.add(line)
            yield line


def kind_of(line: str) -> str:
    if line.startswith(TITLE):
        return "step"
    if line == f"{ANSWER}None" or (line.startswith(ANSWER) and ("OutsideFilter" in line or " 409 " in line)):
        return "problem"
    return "answer" if line.startswith((ANSWER, NOTE)) else "typed"


def wrapped(line: str) -> list[str]:
    """Return a line as rows of the terminal. What follows hangs below its first row."""
    bare = line.lstrip(" ")
    indent = " " * (len(line) - len(bare))
    hanging = indent + ("   " if bare.startswith("-> ") else "" if bare.startswith(TITLE) else "  ")
    return textwrap.wrap(
        bare, COLUMNS, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False
    )


def demo() -> Picture:
    rows = [("prompt", "$ make demo")]
    moves, now = [(0.0, 1)], SECONDS["prompt"]
    still = 1  # The number of rows that are seen where nothing moves: up to the last problem, and its notes.
    for line in shown():
        kind = kind_of(line)
        rows += [(kind, row) for row in wrapped(line)]
        moves.append((now, len(rows)))
        still = len(rows) if kind == "problem" or line.startswith(NOTE) else still
        now += SECONDS[kind]
    # It begins at the first conflict, where there is something to see.
    begin = next(at for at, seen in moves if "409" in rows[seen - 1][1] or "409" in rows[seen - 2][1])
    played = f"play {now + END:.1f}s step-end -{begin:.1f}s infinite"
    frames = " ".join(f"{100 * at / (now + END):.2f}% {{ {_moved(len(rows) - seen)} }}" for at, seen in moves)
    inside = ROWS * HIGH
    drawn = Picture(
        "A recording of make demo. A plain index answers None for a ConfigMap that exists, so the operator"
        " gets 409 Conflict. This cache raises OutsideFilter instead, and fetch finds the ConfigMap.",
        TOP + inside + 12,
        style="    .step { font-weight: 600 }\n    .prompt { fill: $blue }\n    .answer { fill: $green }\n"
        "    .problem { fill: $red }\n"
        f"    .rows {{ {_moved(len(rows) - still)}; animation: {played} }}\n"
        f"    @keyframes play {{ {frames} }}\n"
        "    @media (prefers-reduced-motion: reduce) { .rows { animation: none } }\n",
    )
    drawn.box(2, 2, WIDTH - 4, TOP + inside + 8)
    drawn.add(*(f'<circle class="box" cx="{22 + 18 * number}" cy="22" r="5"/>' for number in range(3)))
    drawn.add(
        f'<clipPath id="terminal"><rect y="{TOP - 3}" width="{WIDTH}" height="{inside + 2}"/></clipPath>'
    )
    drawn.add('<g clip-path="url(#terminal)"><g class="rows">')
    for number, (kind, row) in enumerate(rows):
        y = TOP + (ROWS - len(rows) + number) * HIGH + 10
        drawn.add(
            f'<text class="code {kind}" x="16" y="{y}" xml:space="preserve">{escape(row, quote=False)}</text>'
        )
    drawn.add("</g></g>")
    return drawn


def _moved(rows: int) -> str:
    return f"transform: translateY({rows * HIGH}px)"


if __name__ == "__main__":
    record()
