"""Occurrences that handlers record, the Events of the cluster that come of them, and Events as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from kopf_selectcache.settings.planner import Right


class Api(StrEnum):
    """The API in which Events are written."""

    CORE = "v1"
    EVENTS = "events.k8s.io/v1"

    @property
    def group(self) -> str:
        return "" if self is Api.CORE else "events.k8s.io"

    @property
    def root(self) -> str:
        """The path of the API."""
        return "/api/v1" if self is Api.CORE else f"/apis/{self.value}"

    def right(self, namespace: str) -> Right:
        """Return the permission to write Events in a namespace."""
        what_for = frozenset({"recorders"})
        return Right(self.group, "events", frozenset({"create", "patch"}), namespace, what_for=what_for)


MOST_OF_A_MESSAGE = 1024
"""Bytes of a message that the API accepts."""

MOST_OF_A_REASON = 128
"""Bytes of a reason, of an action, and of the instance that records, that the API accepts."""

_ELLIPSIS = "..."


class EventType(StrEnum):
    """The types of Events that the API defines."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an Event is about, or is related to."""

    api_version: str
    kind: str
    namespace: str
    """Empty for an object of the cluster."""
    name: str
    uid: str = ""
    field_path: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who records."""

    component: str
    host: str = ""
    controller: str = ""
    """`reportingComponent` of the core API, `reportingController` of events.k8s.io."""
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One call of `record`: what has happened to an object."""

    source: Reporter
    about: Reference
    type: EventType
    reason: str
    message: str
    action: str = ""
    related: Reference | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """An Event of the cluster as it should be."""

    occurrence: Occurrence
    """The newest one; its message may be that of an aggregate."""
    namespace: str
    name: str
    count: int
    first: float
    """The time of the first occurrence, in seconds since 1970."""
    last: float


def cut(text: str, most: int) -> str:
    """Cut a text between two characters, to a number of bytes in UTF-8.

    >>> cut("Backup done", 1024), len(cut("ä" * 600, 1024).encode())
    ('Backup done', 1023)
    """
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[: most - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS


# ---- Events as JSON, in the core API and in events.k8s.io.
#
# The server stores one Event for both APIs. In events.k8s.io it lets only the series and the metadata of an
# Event change, so the message of an Event that is counted stays the first one there.


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """The part of an Event of the server that continues it."""

    count: int
    first: float | None
    """The time of the first occurrence; None if the server has none."""
    last: float | None
    has_series: bool = False

    def continued(self, event: Event) -> Event:
        """Return the Event with the occurrences that the server had before."""
        first = event.first if self.first is None else min(self.first, event.first)
        return replace(event, count=event.count + self.count, first=first)

    def is_begun_with(self, event: Event) -> bool:
        """Return True if this is a state of the same count: it has the same first time, as either API writes
        it. The Event of an earlier run has an earlier one.
        """
        begun = _parsed(seconds(event.first)), _parsed(micros(event.first))
        return self.first in begun and self.count <= event.count


def path_of(api: Api, event: Event, *, is_new: bool) -> str:
    """Return the path of a request that creates an Event, or changes it."""
    path = f"{api.root}/namespaces/{quote(event.namespace, safe='')}/events"
    return path if is_new else f"{path}/{quote(event.name, safe='')}"


def created_body(api: Api, event: Event) -> dict[str, Any]:
    """Return the body of a request that creates an Event."""
    occurrence = event.occurrence
    source = occurrence.source
    metadata: dict[str, Any] = {"name": event.name, "namespace": event.namespace}
    if occurrence.annotations:
        metadata["annotations"] = dict(occurrence.annotations)
    body: dict[str, Any] = {"apiVersion": api.value, "kind": "Event", "metadata": metadata}
    about = _reference_body(occurrence.about)
    related = {} if occurrence.related is None else {"related": _reference_body(occurrence.related)}
    common = {"type": occurrence.type.value, "reason": occurrence.reason, **related}
    message = cut(occurrence.message, MOST_OF_A_MESSAGE)
    if api is Api.CORE:
        named = {"component": source.component, "host": source.host}
        return (
            body
            | common
            | {
                "involvedObject": about,
                "message": message,
                "source": {key: value for key, value in named.items() if value},
                "count": event.count,
                "firstTimestamp": seconds(event.first),
                "lastTimestamp": seconds(event.last),
                "reportingComponent": source.controller,
                "reportingInstance": source.instance,
            }
            | ({"action": occurrence.action} if occurrence.action else {})
        )
    return (
        body
        | common
        | {
            "regarding": about,
            "note": message,
            "eventTime": micros(event.first),
            # The server requires them here.
            "action": cut(occurrence.action or occurrence.reason, MOST_OF_A_REASON),
            "reportingController": source.controller or source.component,
            "reportingInstance": cut(source.instance or source.host or source.component, MOST_OF_A_REASON),
        }
        | _series(event)
    )


def changed_body(api: Api, event: Event, *, had_series: bool = False) -> dict[str, Any]:
    """Return the body of a merge patch that brings an Event up to date."""
    if api is Api.EVENTS:
        return _series(event)
    body = {
        "count": event.count,
        "lastTimestamp": seconds(event.last),
        "message": cut(event.occurrence.message, MOST_OF_A_MESSAGE),
    }
    # Clients show the series rather than the count.
    return body | ({"series": None} if had_series else {})


def _series(event: Event) -> dict[str, Any]:
    if event.count < 2:
        return {}  # The server refuses a series of one.
    return {"series": {"count": event.count, "lastObservedTime": micros(event.last)}}


def _reference_body(given: Reference) -> dict[str, str]:
    parts = {
        "apiVersion": given.api_version,
        "kind": given.kind,
        "namespace": given.namespace,
        "name": given.name,
        "uid": given.uid,
        "fieldPath": given.field_path,
        "resourceVersion": given.resource_version,
    }
    return {key: value for key, value in parts.items() if value}


def server_event(obj: Mapping[str, Any]) -> ServerEvent:
    """Return the part of an Event of the server, in either API, that continues it."""
    series = obj.get("series")
    series = series if isinstance(series, Mapping) else {}
    counts = (series.get("count"), obj.get("count"), obj.get("deprecatedCount"))
    count = max([each for each in counts if isinstance(each, int)] or [1])
    firsts = ("firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
    lasts = (series.get("lastObservedTime"), obj.get("lastTimestamp"), obj.get("deprecatedLastTimestamp"))
    first = next((time for key in firsts if (time := _parsed(obj.get(key))) is not None), None)
    last = next((time for text in lasts if (time := _parsed(text)) is not None), first)
    return ServerEvent(max(count, 1), first, last, has_series=bool(series))


def _parsed(text: object) -> float | None:
    """Return a time of the server as seconds since 1970; None if there is none."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except ValueError:
        return None


def seconds(time: float) -> str:
    """Return a time as the server writes those of the core API.

    >>> seconds(0.5), micros(0.5)
    ('1970-01-01T00:00:00Z', '1970-01-01T00:00:00.500000Z')
    """
    return datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micros(time: float) -> str:
    """Return a time as the server writes those of events.k8s.io."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
