"""Quantities of bytes, as Kubernetes writes them: the one format of sizes in settings, messages and
commands.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TypeAlias

Size: TypeAlias = int | str
"""Bytes, or a quantity as Kubernetes writes them: `'200Mi'`."""

LEAST = 64 * 1024
"""A smaller budget is a mistake, such as `'200'` for `'200Mi'`."""

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(|[kMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})")


def bytes_in(size: Size) -> int | None:
    """Return the number of bytes; None if the size is invalid.

    >>> [bytes_in(size) for size in (65536, '200Mi', '1.5G', '200MB')]
    [65536, 209715200, 1500000000, None]
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    if not isinstance(size, str) or (found := _QUANTITY.fullmatch(size)) is None:
        return None
    unit = {**_BINARY, **_DECIMAL}.get(found[2])
    return int(Decimal(found[1]) * unit if unit is not None else Decimal(found[0]))


def complaint(size: object) -> tuple[str, str] | None:
    """Return what is wrong with a budget and the remedy, or None if it is a budget."""
    if size is None:
        return None
    found = bytes_in(size) if isinstance(size, (int, str)) else None
    if found is not None and found >= LEAST:
        return None
    wrong = "not a number of bytes" if found is None else f"below the minimum of {LEAST:,} bytes"
    return wrong, "Write a quantity such as '200Mi', a number of bytes, or None for no limit"


def readable(size: float) -> str:
    """Return bytes for people.

    >>> [readable(size) for size in (1, 1023, 1127, 209715200)]
    ['1 B', '1,023 B', '1.1 KiB', '200 MiB']
    """
    return f"{size:,.0f} B" if size < 1024 else re.sub("([A-Z]i)$", r" \1B", written(size))


def written(size: float) -> str:
    """Return bytes as a quantity of Kubernetes, for an option such as `max_bytes=`.

    >>> [written(size) for size in (500, 209715200, 1610612736)]
    ['0.5Ki', '200Mi', '1.5Gi']
    """
    unit = max(
        (unit for unit, each in _BINARY.items() if size >= each), key=_BINARY.__getitem__, default="Ki"
    )
    return f"{size / _BINARY[unit]:.1f}".removesuffix(".0") + unit
