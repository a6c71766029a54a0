"""Writes text for people: wrapped and coloured on a terminal, unchanged in pipes and files."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping
from typing import TextIO

USUAL_WIDTH = 80
"""The columns of a terminal that does not tell its width."""
NARROWEST = 20
"""Text is not wrapped to fewer columns than these."""

_RED, _GREEN, _YELLOW, _BOLD = "31", "32", "33", "1"
_MARKS = (
    (re.compile(r"\s*(!|missing:|error:) "), _RED),
    (re.compile(r"\s*(\*|too much:|hint:|note:) "), _YELLOW),
    (re.compile(r"KIND .*"), _BOLD),
    (re.compile(r"Nothing is missing, and nothing is too much\.|.* No problems found\."), _GREEN),
)
"""The beginning of a marked line, and its colour as an SGR code of ECMA-48."""


def width_of(file: TextIO, environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of columns of a terminal, or None for a pipe or a file. COLUMNS comes first."""
    if not file.isatty():
        return None
    columns = environment.get("COLUMNS", "")
    if columns.isascii() and columns.isdecimal() and int(columns[:6]) > 0:
        return int(columns[:6])
    try:
        return os.get_terminal_size(file.fileno()).columns or USUAL_WIDTH
    except OSError:
        return USUAL_WIDTH


def write(file: TextIO, text: str, *, environment: Mapping[str, str] = os.environ) -> None:
    """Write lines. On a terminal they are wrapped, and coloured unless NO_COLOR is set or TERM is `dumb`."""
    if (width := width_of(file, environment)) is not None:
        coloured = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        lines = ["\n".join(_wrapped(line, max(width, NARROWEST))) for line in text.splitlines()]
        text = "".join(f"{_painted(line) if coloured else line}\n" for line in lines)
    file.write(text)


def _wrapped(line: str, width: int) -> list[str]:
    """Wrap a line; its later lines are indented two columns more. A word is never broken."""
    if len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _painted(line: str) -> str:
    for pattern, colour in _MARKS:
        if (found := pattern.match(line)) is not None:
            return f"\x1b[{colour}m{found[0]}\x1b[0m{line[found.end() :]}"
    return line
