"""The inputs of the protocol machine: pages, events, bookmarks and refusals. Also the URL parameters of
versions, and the delay before a request is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from kopf_selectcache.core.store.record import Record

END_OF_INITIAL_EVENTS = "k8s.io/initial-events-end"
"""The annotation of the one bookmark after which a WatchList's initial state is complete."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. More follow if there is a `token`, whether or not this one has items."""

    version: str
    token: str
    records: tuple[Record, ...]
    size: int = field(default=0, compare=False)  # In bytes, as it came.


class Event(Struct, frozen=True, gc=False):
    """An object was added or modified, or has left: deleted, or no longer selected."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    record: Record


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The server has sent all there is up to this version; `complete` says that the initial state was part of
    it.
    """

    version: str
    complete: bool = False


_PASSING = (408, 410, 429)
"""Transient codes below 500: request timeout, list expired between two pages, too many requests."""

_NOT_IMPLEMENTED = 501

_INTERNAL, _UNTYPED = 500, "failed to create typed patch object"
"""How a server refuses to apply an object that the schema does not allow: not as its own failure."""


class FieldCause(NamedTuple):
    """One cause in a refusal: a field that the server refuses, or a field manager that owns the field."""

    field: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server said no: as the answer to a request, or in the middle of a stream."""

    code: int
    reason: str = ""
    message: str = ""
    retry_after: float | None = None
    token: str = ""
    """With a 410 for an expired continue token: where an inconsistent list could go on."""
    causes: tuple[FieldCause, ...] = ()
    """The causes, field by field, of an answer to a write."""

    @property
    def is_of_schema(self) -> bool:
        """True if the schema does not allow the object of an apply: nothing was executed.

        >>> why = "failed to create typed patch object (a; v1, Kind=Node): .spc: field not declared in schema"
        >>> Refusal(500, "", why).is_of_schema, Refusal(500, "", "it failed").is_of_schema
        (True, False)
        """
        return self.code == _INTERNAL and self.message.startswith(_UNTYPED)

    @property
    def is_transient(self) -> bool:
        """True if the same request may succeed later without a person's help.

        >>> codes = (302, 400, 401, 403, 404, 405, 408, 410, 422, 429, 500, 501, 502, 503, 504)
        >>> [code for code in codes if Refusal(code).is_transient]
        [408, 410, 429, 500, 502, 503, 504]
        """
        is_passing = self.code in _PASSING or (self.code >= 500 and self.code != _NOT_IMPLEMENTED)
        return is_passing and not self.is_of_schema


Message: TypeAlias = Event | Bookmark | Refusal


# ---- URL parameters of the versions of lists, and what servers say that have not reached one.

_BEYOND = ("Too large resource version", "required revision is a future revision")
"""Messages of servers that have not reached the version of a list. Up to Kubernetes 1.33, a list at an exact
version gets the second, which is etcd's, with the code 500. Watches of such a version are accepted and
silent."""


def written(path: str, query: Mapping[str, str]) -> str:
    """Return a request as people read it.

    >>> written('/api/v1/pods', {'labelSelector': 'app=web'}), written('/api/v1/pods', {})
    ('/api/v1/pods?labelSelector=app=web', '/api/v1/pods')
    """
    return path + ("?" if query else "") + "&".join(f"{key}={value}" for key, value in query.items())


def exactly(version: str) -> dict[str, str]:
    """Return the parameters of a list at exactly this version.

    >>> exactly('100')
    {'resourceVersion': '100', 'resourceVersionMatch': 'Exact'}
    """
    return {"resourceVersion": version, "resourceVersionMatch": "Exact"}


def is_beyond_server(refusal: Refusal) -> bool:
    """Return True if a list is refused because the server has not reached the requested version.

    >>> is_beyond_server(Refusal(504, message='Timeout: Too large resource version: 9, current: 5'))
    True
    >>> is_beyond_server(Refusal(500, message='etcdserver: mvcc: required revision is a future revision'))
    True
    >>> is_beyond_server(Refusal(500, message='etcdserver: leader changed'))
    False
    """
    return any(words in refusal.message for words in _BEYOND)


def not_older_than(version: str) -> dict[str, str]:
    """Return the parameters of a list at this version, or a newer one.

    >>> not_older_than('100')
    {'resourceVersion': '100', 'resourceVersionMatch': 'NotOlderThan'}
    """
    return {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}


# ---- The delay before a request is repeated. The caller passes the randomness, as a number from 0 to 1.

SHORTEST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.5, 30.0
"""The first and the longest delay, in seconds. They limit the rate of requests after failures."""

LONGEST_ASKED_SECONDS = 600.0
"""The longest additional wait that a server can ask for, in seconds: a mistake cannot switch a cache off for
days."""

SLOW_SECONDS = 10.0
"""The delay after failures that only people can correct: a missing permission, a refused selector, a kind
that is not served."""


def delay(failures: int, jitter: float, *, at_least: float = 0.0, slow: bool = False) -> float:
    """Return the delay. It doubles with each failure in a row, and is randomised, so that a thousand clients
    do not come back at once.

    >>> [delay(failures, 1.0) for failures in range(8)]
    [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    >>> delay(0, 0.0), delay(0, 1.0, at_least=7), delay(0, 1.0, slow=True)
    (0.25, 7.5, 10.0)
    >>> delay(0, 1.0, at_least=-7), delay(0, 1.0, at_least=1e9)
    (0.5, 600.5)
    """
    longest = max(
        min(SHORTEST_DELAY_SECONDS * 2.0 ** min(failures, 16), LONGEST_DELAY_SECONDS),
        SLOW_SECONDS if slow else 0.0,
    )
    # Half of it is not random: the wait that the server asks for is always exceeded.
    return min(max(at_least, 0.0), LONGEST_ASKED_SECONDS) + longest * (0.5 + 0.5 * jitter)
