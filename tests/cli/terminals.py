"""A terminal of a given width, and the text that a program writes to it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO


def written_to_terminal(columns: int, write: Callable[[TextIO], object]) -> str:
    """Return what is written to a terminal of this width; 0 is one that does not tell its width."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    parts = list[bytes]()
    with os.fdopen(leader, "rb", buffering=0) as shown:
        with os.fdopen(follower, "w") as terminal:
            write(terminal)
        with suppress(OSError):  # The end of what is written to a terminal that is closed.
            while part := shown.read(10_000):  # A read may return a part of it.
                parts.append(part)
    return b"".join(parts).decode().replace("\r\n", "\n")
