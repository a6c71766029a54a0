"""Checks of the values of options: each returns the complaint and the remedy, or None. Sizes in bytes, as
Kubernetes writes them, and the options of a kind with their checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, get_args

from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.store.packing import Storage
from kopf_selectcache.selectors.signatures import near

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


LONGEST = 24 * 60 * 60.0
"""The longest time that an option may have. A longer one is a mistake, such as a number of milliseconds."""

Complaint: TypeAlias = tuple[str, str] | None


def number(least: float, most: float, unit: str) -> Callable[[object], Complaint]:
    def check(value: object) -> Complaint:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
            return f"not a number of {unit} from {least:.12g} to {most:.12g}", f"Assign a number of {unit}"
        return None

    return check


def period(value: object) -> Complaint:
    if (value == 0 and not isinstance(value, bool)) or number(1.0, 30 * LONGEST, "seconds")(value) is None:
        return None
    return (
        f"not 0 or a number of seconds from 1 to {30 * LONGEST:.12g} (30 days)",
        "Assign 0 for no resync, or 36000 for one every ten hours",
    )


def interval(value: object) -> Complaint:
    if (value == 0 and not isinstance(value, bool)) or number(60.0, 30 * LONGEST, "seconds")(value) is None:
        return None
    return (
        f"not 0 or a number of seconds from 60 to {30 * LONGEST:.12g} (30 days)",
        "Assign 0 for no audits, or 3600 for one per hour",
    )


def objects_per_page(value: object) -> Complaint:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100_000:
        return (
            "not a whole number from 1 to 100000",
            "Assign the number of objects per page, such as 500",
        )
    return None


def one_of(*choices: object) -> Callable[[object], Complaint]:
    def check(value: object) -> Complaint:
        if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in choices):
            *others, last = map(repr, choices)
            shown = f"{', '.join(others)} or {last}"
            return f"not {shown}", f"Assign {shown}"
        return None

    return check


def no_option(owner: str, name: str, options: Collection[str]) -> DeclarationError:
    """Return the error of an option that the owner does not have."""
    meant = near(name, options)
    return DeclarationError(
        f"{owner} has no option {clipped(name, 100)!r}",
        remedy=f"Did you mean {meant}?" if meant else f"It has {', '.join(sorted(options))}",
    )


def changed_late(option: str) -> DeclarationError:
    """Return the error of an option that is changed while an operator runs with it."""
    remedy = "Assign it in a startup handler (@kopf.on.startup)"
    return DeclarationError(f"{option} can't be changed after the operator has started", remedy=remedy)


@dataclass(frozen=True, slots=True)
class KindOption:
    """An option that `Cached` and the defaults have."""

    check: Callable[[object], Complaint]
    has_fallback: bool = True
    """True if `settings.selectcache` has an option of the same name, which applies if it is unset."""
    changes: bool = True
    """False if `cache.declare(..., replace=True)` cannot change it."""


OPTIONS: Mapping[str, KindOption] = {
    "storage": KindOption(one_of(*get_args(Storage))),
    "max_bytes": KindOption(complaint, has_fallback=False),
    "page_limit": KindOption(objects_per_page, changes=False),
    "audit_interval": KindOption(interval, changes=False),
    "bookmarks": KindOption(one_of(True, False), changes=False),
    "resync": KindOption(period, has_fallback=False),
}
"""Each is an argument of `Cached`, an attribute of `Defaults`, and one of `cache.declare`."""
