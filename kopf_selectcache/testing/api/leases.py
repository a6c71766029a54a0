"""Leases: their times, which have microseconds, and their numbers. Operators take turns by them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

from . import types
from .kinds import Served
from .metadata import StatusCause, invalid_value

TABLE = ("coordination.k8s.io", "leases")
_TIMES = ("acquireTime", "renewTime")
_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"  # As Go writes the form of a time, and the parts of it.
_PARTS = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d"),
    (".000000", r"\.\d{6}"),
    ("Z07:00", r"Z|[+-]\d\d:\d\d"),
)


def read(served: Served, lease: dict[str, Any]) -> None:
    """Read a lease as Go does: null is dropped, times are in UTC. Raise 400 for what is not a time."""
    spec = types.without_nulls(types.fields_of(served)["spec"], lease.get("spec") or {})
    for key in ("strategy", "preferredHolder"):  # They need a feature gate that is off by default.
        spec.pop(key, None)
    for key in _TIMES:
        if key in spec:
            spec[key] = _in_utc(served, spec[key])
    lease["spec"] = spec


def problems(lease: Mapping[str, Any]) -> list[StatusCause]:
    """Return what the server refuses of a lease."""
    spec = lease["spec"]
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    found = []
    if duration is not None and duration <= 0:
        found.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        why = "must be greater than or equal to 0"
        found.append(invalid_value("spec.leaseTransitions", transitions, why))
    return found


def _in_utc(served: Served, text: str) -> str:
    rest = text
    for part, form in _PARTS:
        found = re.match(form, rest, re.ASCII)
        if found is None:
            why = f'parsing time "{text}" as "{_LAYOUT}": cannot parse "{rest}" as "{part}"'
            raise types.unhandled(served, why)
        rest = rest[found.end() :]
    if rest:
        raise types.unhandled(served, f'parsing time "{text}": extra text: "{rest}"')
    try:
        time = dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise types.unhandled(served, f'parsing time "{text}": out of range') from None
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
