"""The two forms of an Event: that of the core group, in which it is stored, and that of events.k8s.io."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kopf_selectcache.core.selection import kinds

GROUP = "events.k8s.io"
TABLE = ("", "events")

# The names in the core group of the fields of events.k8s.io.
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "reportingComponent": "reportingController",
}
_BACK = {other: name for name, other in _NAMES.items()}
_KINDS = tuple(kind for kind in kinds.BUILT_IN if kind.kind == "Event")


def to_regarding(event: Mapping[str, Any]) -> dict[str, Any]:
    return {_NAMES.get(key, key): value for key, value in event.items()}


def to_involved(event: Mapping[str, Any]) -> dict[str, Any]:
    return {_BACK.get(key, key): value for key, value in event.items()}


def shown(data: bytes) -> bytes:
    """Return a stored event in the form of events.k8s.io."""
    return msgspec.json.encode(to_regarding(msgspec.json.decode(data, type=dict[str, Any])))


def fill(event: dict[str, Any]) -> None:
    """Add the fields that the server always writes for an event, even if they are empty."""
    for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(key, None)
    event.setdefault("source", {})
    for key in ("reportingComponent", "reportingInstance"):
        event.setdefault(key, "")


def misplaced(event: Mapping[str, Any], namespace: str) -> str | None:
    """Return the namespace of the event's object, if the event must not be in its own namespace."""
    about = event.get("involvedObject")
    of = (about.get("namespace") if isinstance(about, Mapping) else "") or ""
    return None if (of or "default") == namespace else str(of)


def field_values(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the field labels of both groups."""
    values: dict[str, str] = {}
    for kind in _KINDS:
        values |= kind.values(to_regarding(event) if kind.group else event)
    return values
