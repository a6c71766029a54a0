"""Occurrences that handlers record, and the Events of the cluster that come of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kopf_selectcache.settings.rights import Right


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
    resource_version: str = ""
    """That of the server's last answer; empty if there was none."""


def cut(text: str, most: int) -> str:
    """Cut a text between two characters, to a number of bytes in UTF-8.

    >>> cut("Backup done", 1024), len(cut("ä" * 600, 1024).encode())
    ('Backup done', 1023)
    """
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[: most - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS
