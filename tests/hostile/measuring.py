"""What an attack costs a process: its peak memory, and how long its event loop is blocked."""

from __future__ import annotations

import asyncio
import resource
import selectors
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
MB = 1024 * 1024


class MeasuredLoop(asyncio.SelectorEventLoop):
    """An event loop that knows its longest block: the CPU time between two looks at the sockets. Other
    processes do not count."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._measuring = _Measuring(self)
        super().__init__(self._measuring)

    def forgive(self) -> None:
        """Do not count what this iteration has done so far: it was the measurement itself."""
        self._measuring.began = time.thread_time()


class _Measuring(selectors.DefaultSelector):
    def __init__(self, loop: MeasuredLoop) -> None:
        super().__init__()
        self._loop = loop
        self.began = time.thread_time()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        self._loop.longest = max(self._loop.longest, time.thread_time() - self.began)
        try:
            return super().select(timeout)
        finally:
            self.began = time.thread_time()


def reset_peak() -> None:
    """Begin to measure the peak of the memory anew, where the system can (Linux)."""
    with suppress(OSError):
        _CLEAR.write_text(_RESET_PEAK)


def peak() -> float:
    """Return the most memory, in MB, that this process has had."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
