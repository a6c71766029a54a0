"""One server process of the tests: started, found ready, ended. It signals no process that it did not
start."""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .reaper import Reaper
from .waiting import PAUSE

START_DEADLINE = 120.0  # Seconds, for what takes 4: machines may be busy with other tests.


class StartError(Exception):
    """A server did not come up; the message has the end of its log."""


class PortTakenError(StartError):
    """Another process took the port after it was found free."""


class Process:
    """A server that can be started again after it was stopped or killed: same command, same ports, same
    data."""

    def __init__(
        self, command: Sequence[str], *, log: Path, ready: Callable[[], bool], reaper: Reaper
    ) -> None:
        self.command = command
        self.log = log
        self._ready = ready
        self._reaper = reaper
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return Path(self.command[0]).name

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def start(self, *, deadline: float = START_DEADLINE) -> None:
        """Start the server and wait until it is ready; StartError with the end of its log, if it does not get
        there."""
        if self.pid is not None:
            raise RuntimeError(f"{self.name} runs already")
        self._reap()
        # Without our environment: ETCD_* and proxy variables of a user must not change what the tests see.
        with self.log.open("ab") as log:
            begin = log.tell()
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={},
                cwd=self.log.parent,
                start_new_session=True,
            )
        self._reaper.watch(self._child.pid)
        end = time.monotonic() + deadline
        while (code := self._child.poll()) is None and time.monotonic() < end:
            if self._ready():
                return
            time.sleep(PAUSE)
        self.kill()
        said = self.log.read_bytes()[begin:].decode(errors="replace")
        how = f"was not ready after {deadline:g} s" if code is None else f"ended with exit code {code}"
        kind = PortTakenError if "address already in use" in said else StartError
        raise kind(f"{self.name} {how}; the end of its log:\n" + "\n".join(said.splitlines()[-30:]))

    def kill(self) -> None:
        """End the server by SIGKILL: it has no chance to say goodbye to anybody."""
        if self.pid is not None:
            self._signal(signal.SIGKILL)
        self._reap()

    def _signal(self, number: signal.Signals) -> None:
        # Safe from reused process ids: ours is not waited for yet, so that nobody else can have its number.
        if self._child is not None:
            os.killpg(self._child.pid, number)

    def _reap(self) -> None:
        if self._child is not None:
            self._child.wait()
            self._reaper.forget(self._child.pid)
            self._child = None


def free_port() -> int:
    """Give a port of 127.0.0.1 on which nobody listens now.

    Not from the range from which the operating system takes ports for outgoing connections: there, somebody's
    request could take it while a server is restarted. Somebody may take it all the same before it is used:
    see PortTakenError."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(
            10_000, 32_000
        )  # A seeded generator would give all runs the same ports.
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise StartError("no free port found on 127.0.0.1")
