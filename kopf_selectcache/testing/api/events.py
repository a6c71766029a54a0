"""The two forms of an Event: that of the core group, in which it is stored, and that of events.k8s.io."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kopf_selectcache.core.selection import kinds
from kopf_selectcache.core.selection.values import is_label_key

from .metadata import KEY_NAME, StatusCause, cause, invalid_value

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

# The field, whether an event with an `eventTime` must have it, and its longest length in bytes.
_TEXTS = (
    ("reportingInstance", True, 128),
    ("action", True, 128),
    ("reason", True, 128),
    ("message", False, 1024),
)
# The fields that events.k8s.io lets nobody change, in the order in which the server checks them.
_FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)
_SHOWN = {"reportingComponent": "reportingController"}
_KINDS = tuple(kind for kind in kinds.BUILT_IN if kind.kind == "Event")


def required(field: str) -> StatusCause:
    return cause("FieldValueRequired", "Required value", field)


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


def problems(group: str, event: Mapping[str, Any]) -> list[StatusCause]:
    """Return what the server refuses of an event, whether it is new or not. Only an event with an `eventTime`
    is checked as a whole.
    """
    namespace = event["metadata"]["namespace"]
    about = event.get("involvedObject")
    of = (about.get("namespace") if isinstance(about, Mapping) else "") or ""
    has_time = bool(event.get("eventTime"))
    places = ("default", "kube-system") if has_time else ("default",)
    found = []
    if namespace not in places if not of else not has_time and namespace != of:
        found.append(invalid_value("involvedObject.namespace", of, "does not match event.namespace"))
    if not has_time:
        return found
    controller = event.get("reportingComponent") or ""
    field = "reportingController" if group else "reportingComponent"
    if not controller:
        found += [required(field), invalid_value(field, "", "name part must be non-empty")]
    if not is_label_key(controller):
        found.append(invalid_value(field, controller, KEY_NAME))
    for field, is_required, most in _TEXTS:
        text = str(event.get(field) or "")
        if is_required and not text:
            found.append(required(field))
        if len(text.encode()) > most:
            found.append(invalid_value(field, "", f"can have at most {most} characters"))
    return found


def problems_of_new(event: Mapping[str, Any]) -> list[StatusCause]:
    """Return what events.k8s.io refuses of a new event besides that."""
    found = _problems_of_series(event)
    if not event.get("eventTime"):
        found.append(required("eventTime"))
    if (type_ := event.get("type") or "") not in ("Normal", "Warning"):
        found.append(invalid_value("type", "", f"has invalid value: {type_}"))
    unset = ("firstTimestamp", "lastTimestamp", "count", "source")
    return found + [invalid_value(field, "", "needs to be unset") for field in unset if event.get(field)]


def problems_of_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[StatusCause]:
    """Return what events.k8s.io refuses of a change."""
    found = _problems_of_series(new) if old.get("series") != new.get("series") else []
    return found + [
        invalid_value(_SHOWN.get(field, field), new.get(field), "field is immutable")
        for field in _FIXED
        if (old.get(field) or None) != (new.get(field) or None)
    ]


def _problems_of_series(event: Mapping[str, Any]) -> list[StatusCause]:
    series = event.get("series")
    if not series:
        return []
    found = []
    if (series.get("count") or 0) < 2:
        found.append(invalid_value("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        found.append(required("series.lastObservedTime"))
    return found


def field_values(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the field labels of both groups."""
    values: dict[str, str] = {}
    for kind in _KINDS:
        values |= kind.values(to_regarding(event) if kind.group else event)
    return values
