"""A terminal of a given width, and the text that a program writes to it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable
from typing import TextIO


def written_to_terminal(columns: int, write: Callable[[TextIO], object]) -> str:
    """Return what is written to a terminal of this width; 0 is one that does not tell its width."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(follower, "w") as terminal, os.fdopen(leader, "rb", buffering=0) as shown:
        write(terminal)
        terminal.flush()
        return shown.read(10_000).decode().replace("\r\n", "\n")
