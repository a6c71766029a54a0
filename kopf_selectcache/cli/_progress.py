"""The progress of long work: redrawn in a terminal, a line every few seconds elsewhere, nothing for short
work.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from .terminal import USUAL_WIDTH, width_of

SOON = 1.0  # Seconds: what is done by then is not shown.
REDRAWN, TOLD = 0.1, 5.0  # Seconds between two looks: in a terminal, and where each is a line.


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
        """Leave the last state on the screen, if one was shown."""
        if self._shown:
            if self._reported != self._done:
                self._show()
            if self._file.isatty():
                self._file.write("\n")

    def _show(self) -> None:
        self._shown = True
        self._reported = self._done
        of = f" of {self._total:,} ({min(self._done / self._total, 1.0):.0%})" if self._total else ""
        text = f"{self._word}: {self._done:,}{of}"
        if self._file.isatty():
            # In the last column, some terminals begin a new line.
            columns = (width_of(self._file) or USUAL_WIDTH) - 1
            self._file.write(f"\r{text[:columns]}")
        else:
            self._file.write(f"{text}\n")
        self._file.flush()
