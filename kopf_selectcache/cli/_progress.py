"""Progress bar for long work: redrawn in a terminal, a line every few seconds elsewhere, nothing for short
work.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from .terminal import USUAL_WIDTH, width_of

SOON = 1.0  # Seconds: what is done by then needs no bar.
REDRAWN, TOLD = 0.1, 5.0  # Seconds between two looks of the bar: in a terminal, and where each is a line.
WIDTH = 30


class Progress:
    """The progress of counted work."""

    def __init__(
        self,
        word: str,
        total: int | None,
        *,
        file: TextIO,
        clock: Callable[[], float],
        soon: float = SOON,
    ) -> None:
        self._word = word
        self._total = total  # None if it shows only in the end.
        self._file = file
        self._clock = clock
        self._done = 0
        self._next = clock() + soon
        self._shown = False
        self._reported = 0

    def step(self, count: int = 1) -> None:
        """Add to the work that is done."""
        self._done += count
        if self._clock() >= self._next:
            self._next = self._clock() + (REDRAWN if self._file.isatty() else TOLD)
            self._show()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the bar; leave its last state on the screen, if it was shown."""
        if self._shown:
            if self._reported != self._done:
                self._show()
            if self._file.isatty():
                self._file.write("\n")

    def _show(self) -> None:
        self._shown = True
        self._reported = self._done
        if self._total is None:
            self._file.write(
                f"\r{self._word}: {self._done:,}"
                if self._file.isatty()
                else f"{self._word}: {self._done:,}\n"
            )
            self._file.flush()
            return
        part = min(self._done / self._total, 1.0) if self._total else 1.0
        text = f"{self._word} {part:4.0%}, {self._done:,} of {self._total:,}"
        if self._file.isatty():
            columns = (
                width_of(self._file) or USUAL_WIDTH
            ) - 1  # In the last one, some terminals begin a new line.
            width = min(WIDTH, columns - len(text) - len("[] "))
            filled = round(width * part)
            bar = f"[{'#' * filled}{'.' * (width - filled)}] " if width > 0 else ""
            self._file.write(f"\r{bar}{text}"[: columns + 1])
        else:
            self._file.write(f"{text}\n")
        self._file.flush()
