"""Ends a test run's servers when the run itself no longer can. A process of its own; it knows its orders
only.

Its orders come as lines on its standard input, which the run holds open for as long as it lives. However the
run ends, be it by SIGKILL, the operating system closes that pipe: then whatever is left of the servers is
killed, and their folder removed. A death signal (PR_SET_PDEATHSIG) would not do: it is sent when the *thread*
that started the server ends, it knows no process groups, and it leaves the folder."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


class Reaper:
    """The run's end of the pipe to one such process."""

    def __init__(self, folder: Path) -> None:
        # In a session of its own, as a Ctrl-C on the terminal must not end the reaper before the run.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,  # An order counts from the moment it is given.
        )

    def watch(self, group: int) -> None:
        self._order(f"+{group}")

    def forget(self, group: int) -> None:
        self._order(f"-{group}")

    def close(self) -> None:
        """Let it end, and with it all that it still watches over."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _order(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(f"{line}\n".encode())


def main(folder: Path) -> None:
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(50):  # A killed server may still be closing files: its folder fills while it is emptied.
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
