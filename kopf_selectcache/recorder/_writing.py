"""Events as JSON, in the core API and in events.k8s.io, and the requests that write them. Pure.

The server stores one Event for both APIs. In events.k8s.io it lets only the series and the metadata of an
Event change, so the message of an Event that is counted stays the first one there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from kopf_selectcache.cache.server_writes import MANAGER

from .events import MOST_OF_A_MESSAGE, MOST_OF_A_REASON, Api, Event, Reference, cut


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
        begun = parsed(seconds(event.first)), parsed(micros(event.first))
        return self.first in begun and self.count <= event.count


# ---- Requests.


def path_of(api: Api, event: Event, *, is_new: bool) -> str:
    """Return the path of a request that creates an Event, or changes it."""
    path = f"{api.root}/namespaces/{quote(event.namespace, safe='')}/events"
    return path if is_new else f"{path}/{quote(event.name, safe='')}"


def query() -> dict[str, str]:
    return {"fieldManager": MANAGER}


def created(api: Api, event: Event) -> dict[str, Any]:
    """Return the body of a request that creates an Event."""
    occurrence = event.occurrence
    source = occurrence.source
    metadata: dict[str, Any] = {"name": event.name, "namespace": event.namespace}
    if occurrence.annotations:
        metadata["annotations"] = dict(occurrence.annotations)
    body: dict[str, Any] = {"apiVersion": api.value, "kind": "Event", "metadata": metadata}
    about = _reference(occurrence.about)
    related = {} if occurrence.related is None else {"related": _reference(occurrence.related)}
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


def changed(api: Api, event: Event, *, had_series: bool = False) -> dict[str, Any]:
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


def _reference(given: Reference) -> dict[str, str]:
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


# ---- Answers.


def found(obj: Mapping[str, Any]) -> ServerEvent:
    """Return the part of an Event of the server, in either API, that continues it."""
    series = obj.get("series")
    series = series if isinstance(series, Mapping) else {}
    counts = (series.get("count"), obj.get("count"), obj.get("deprecatedCount"))
    count = max([each for each in counts if isinstance(each, int)] or [1])
    firsts = ("firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
    lasts = (series.get("lastObservedTime"), obj.get("lastTimestamp"), obj.get("deprecatedLastTimestamp"))
    first = next((time for key in firsts if (time := parsed(obj.get(key))) is not None), None)
    last = next((time for text in lasts if (time := parsed(text)) is not None), first)
    return ServerEvent(max(count, 1), first, last, has_series=bool(series))


def parsed(text: object) -> float | None:
    """Return a time of the server as seconds since 1970; None if there is none."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except ValueError:
        return None


# ---- Texts.


def seconds(time: float) -> str:
    """Return a time as the server writes those of the core API.

    >>> seconds(0.5), micros(0.5)
    ('1970-01-01T00:00:00Z', '1970-01-01T00:00:00.500000Z')
    """
    return datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micros(time: float) -> str:
    """Return a time as the server writes those of events.k8s.io."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
