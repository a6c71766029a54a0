"""One peer as a process, with caps on its time and memory: its orders, its answers and its resources.

A peer that exceeds a cap is ended. Not finishing is a result, reported by `Over`.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.wire import received

LOOK = 0.1  # Seconds between two checks of the memory of a busy peer.
REPEATED = 400  # The last characters of its output.
RESET_PEAK = "5"  # See proc_pid_clear_refs(5).


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    # Its CPU clock; the number is made as by clock_getcpuclockid(3). /proc has only ticks of 10 ms.
    return time.clock_gettime((~pid << 3) | 2)


class Over(Exception):
    """The peer did not finish; the message has the reason."""


class OverTime(Over):
    """It took too long."""


@dataclass(frozen=True)
class Cap:
    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Usage:
    """The resources that a process has used so far."""

    cpu: float
    """Seconds."""
    resident: int
    """Bytes."""
    peak: int
    """Bytes: the peak of resident memory since `Running.forget_peak`."""


def usage_of(pid: int) -> Usage:
    """Return the resources that a process has used so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return Usage(cpu_of(pid), _bytes(status, "VmRSS"), _bytes(status, "VmHWM"))


class Running:
    """A process that speaks the protocol of `bench.peers.asking`; use it in a `with` statement."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], cap: Cap, log: Path) -> None:
        self._cap = cap
        self._log = log
        self._rest = b""
        with log.open("wb") as errors:
            self._process = subprocess.Popen(  # A program of this bench.  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                start_new_session=True,
                env={**os.environ, **env},
                cwd=Path(__file__).parent.parent,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # It has nothing to clean up.
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def ask(self, **order: Any) -> dict[str, Any]:
        """Send an order, and wait for its answer."""
        self.tell(**order)
        return self.answer()

    def tell(self, **order: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            raise Over(f"it ended: {self._last_line()}") from None

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        end = time.monotonic() + self._cap.seconds
        while b"\n" not in self._rest:
            if select.select([self._process.stdout], [], [], LOOK)[0]:
                more = self._process.stdout.read(1 << 16)
                if not more:
                    raise Over(f"it ended: {self._last_line()}")
                self._rest += more
            elif time.monotonic() > end:
                raise OverTime(f"more than {self._cap.seconds:,.0f} s")
            elif self._process.poll() is None and self.usage().resident > self._cap.megabytes * 1e6:
                raise Over(f"more than {self._cap.megabytes:,.0f} MB")
        line, _, self._rest = self._rest.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            raise Over(said["error"])
        return said

    def send(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def usage(self) -> Usage:
        return usage_of(self._process.pid)

    def received(self) -> int:
        """Return the bytes received over its connections."""
        return received(self._process.pid)

    def connections(self) -> int:
        """Return the number of its open sockets."""
        sockets = 0
        for entry in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with suppress(OSError):  # Closed meanwhile.
                sockets += str(entry.readlink()).startswith("socket:")
        return sockets

    def forget_peak(self) -> None:
        """Count the peak from now on."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text(RESET_PEAK)

    def _last_line(self) -> str:
        """Return the end of its other output."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return (lines[-1] if lines else f"exit code {self._process.wait()}")[-REPEATED:]


def _bytes(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found is not None else 0  # A process that has ended has none.
