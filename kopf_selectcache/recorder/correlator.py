"""Correlator: decides for each occurrence if its Event is created, patched, or suppressed.

Pure: times are handed in, nothing waits here, and the caller serialises calls. The numbers and options are
those of client-go (tools/record). The differences are listed in docs/dev/decisions.md, 0027.

1. Occurrences that differ in their message only are *similar*. From the tenth distinct message on, with at
   most ten minutes between two of them, they become one Event, the *aggregate*.
2. An Event that was seen before is patched: its count, its last time, and its message.
3. Each object has a *bucket* of tokens for each type of Event. Without a token an occurrence is suppressed.
   The suppressed ones are counted, and one Event, their *summary*, is due when there is a token again.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Generic, TypeVar

from kopf_selectcache._errors import DeclarationError, require

from .events import MOST_OF_A_MESSAGE, MOST_OF_A_REASON, Event, EventType, Occurrence, cut

SUMMARY_REASON = "EventsSuppressed"
"""The reason of a summary."""

_PREFIX = "(combined from similar events): "
_NAME_CHARACTERS = 253
_KEY_DIGITS, _HASH_DIGITS = 32, 16  # The first digits of an Event's key are in its name.
_MOST_REASONS = 10  # That are counted one by one in a summary.
_NANOSECOND = 1e-9  # A token that is missing for less is there, as in golang.org/x/time/rate.
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The numbers and functions of a correlator. The defaults are those of client-go.

    >>> Limits(burst=5, refill=60).similar
    10
    >>> Limits(burst=0)
    Traceback (most recent call last):
    kopf_selectcache.errors.DeclarationError: Limits(): burst is 0. Give a
    whole number of 1 or more.
    """

    similar: int = 10
    """Distinct messages from which on similar occurrences become an aggregate."""
    similar_within: float = 600.0
    """Seconds without a similar occurrence after which their messages are forgotten."""
    burst: int = 25
    """Tokens in a full bucket."""
    refill: float = 300.0
    """Seconds until there is another token."""
    remembered: int = 4096
    """Events, groups of similar ones, and buckets that are remembered, of each."""
    shown: int = 3
    """Messages in an aggregate: the newest distinct ones. At most `similar`."""
    group_key: Callable[[Occurrence], tuple[str, str]] | None = None
    """Returns the key of a group of similar occurrences, and the key within it: the message by default."""
    aggregate_message: Callable[[Occurrence, Sequence[str]], str] | None = None
    """Returns the message of an aggregate from the newest occurrence and the newest distinct messages."""
    bucket_key: Callable[[Occurrence], str] | None = None
    """Returns the key of a bucket."""

    def __post_init__(self) -> None:
        for name in ("similar", "burst", "remembered", "shown"):
            given = getattr(self, name)
            fits = isinstance(given, int) and not isinstance(given, bool) and given >= 1
            require(fits, DeclarationError, "Limits()", name, given, "a whole number of 1 or more")
        for name in ("similar_within", "refill"):
            given = getattr(self, name)
            fits = isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < math.inf
            require(fits, DeclarationError, "Limits()", name, given, "seconds above 0")
        for each in fields(self):
            if "Callable" in str(each.type):
                given = getattr(self, each.name)
                fits = given is None or callable(given)
                require(fits, DeclarationError, "Limits()", each.name, given, "a function, or None")


@dataclass(frozen=True, slots=True)
class CorrelatorDecision:
    """The decision about an occurrence, or the summary of suppressed ones."""

    key: str
    """Identifies the Event among those of the correlator; for `confirm`."""
    event: Event | None
    """The Event as it should be; None if the occurrence is suppressed."""
    is_new: bool
    """The Event is to create; otherwise to patch: `count`, `last` and the message."""


@dataclass(slots=True)
class _Group:
    """Similar occurrences."""

    last: float
    messages: dict[str, str] = field(default_factory=dict)
    """By the key within the group, the newest last."""


@dataclass(slots=True)
class _Logged:
    """An Event that was seen."""

    count: int
    first: float
    name: str


@dataclass(slots=True)
class _Bucket:
    """A token bucket, as golang.org/x/time/rate has it: a refused request leaves it as it is."""

    tokens: float
    changed: float


@dataclass(slots=True)
class _Suppressed:
    """The suppressed occurrences of a bucket since its last summary."""

    bucket: _Bucket
    opens: float
    newest: Occurrence
    first: float
    last: float = 0.0
    count: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


class _Lru(Generic[T]):
    """A dictionary that forgets the least recently used entries."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[str, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> T | None:
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: str, value: T) -> str | None:
        """Store the value. Return the key that is forgotten for it."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        return self._entries.popitem(last=False)[0] if len(self._entries) > self._most else None


class Correlator:
    """The state of the Events of one recorder.

    >>> from kopf_selectcache.recorder.events import Reference, Reporter
    >>> web = Reference("v1", "Pod", "shop", "web")
    >>> correlator = Correlator(Limits())
    >>> for now in (0.0, 1.0):
    ...     pulled = Occurrence(Reporter("webapps"), web, EventType.NORMAL, "Pulled", "Pulled the image")
    ...     verdict = correlator.correlate(pulled, now)
    ...     print(verdict.is_new, verdict.event.name, verdict.event.count)
    True web.fa0123fa61cca15f 1
    False web.fa0123fa61cca15f 2
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._groups = _Lru[_Group](limits.remembered)
        self._log = _Lru[_Logged](limits.remembered)
        self._buckets = _Lru[_Bucket](limits.remembered)
        self._rate = 1 / limits.refill
        self._suppressed: dict[str, _Suppressed] = {}
        self.next_due = math.inf
        """The time, by the clock of `now`, before which `due` returns nothing. Infinite if nothing waits."""
        self.lost = 0
        """Suppressed occurrences without a summary: their bucket was forgotten first."""

    @property
    def waiting(self) -> int:
        """The suppressed occurrences that a summary will count."""
        return sum(each.count for each in self._suppressed.values())

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The groups, Events and buckets that are remembered."""
        return len(self._groups), len(self._log), len(self._buckets)

    def correlate(self, occurrence: Occurrence, now: float, stamp: float | None = None) -> CorrelatorDecision:
        """Decide about an occurrence.

        `now` is of a monotonic clock, in seconds. `stamp` is the time of the Event, in seconds since 1970;
        `now` if it is None.
        """
        stamp = now if stamp is None else stamp
        occurrence = _fit(occurrence)
        shown, key = self._aggregate(occurrence, now)
        name, bucket = self._bucket_of(shown, now)
        # The next token belongs to the summary: otherwise the liveliest reason would take each of them.
        if self._take_token(bucket, now, needed=2 if name in self._suppressed else 1):
            return self._count(shown, key, stamp, stamp)
        self._suppress(occurrence, name, bucket, stamp)
        return CorrelatorDecision(key, None, is_new=False)

    def confirm(self, key: str, event: Event, *, sent: int | None = None) -> None:
        """Remember the server's state of an Event: its name, count and first time.

        `sent` is the count that was written, if the server's is another one: the Event of a former process
        was patched instead of a creation, and its count was added. Occurrences since the write stay counted.
        """
        count = event.count
        if logged := self._log.get(key):
            count += max(0, logged.count - (event.count if sent is None else sent))
        self._log.put(key, _Logged(count, event.first, event.name))

    def due(self, now: float) -> list[CorrelatorDecision]:
        """Return the summaries of suppressed occurrences whose bucket has a token again.

        Each takes that token. At the end of a recorder, `due(math.inf)` returns all that are left.
        """
        if now < self.next_due:
            return []
        opened = {name: each for name, each in self._suppressed.items() if each.opens <= now}
        for name, each in opened.items():
            del self._suppressed[name]
            self._take_token(each.bucket, now, needed=0)
        self.next_due = min((each.opens for each in self._suppressed.values()), default=math.inf)
        return [self._summarize(name, each) for name, each in opened.items()]

    def _aggregate(self, occurrence: Occurrence, now: float) -> tuple[Occurrence, str]:
        """Return the occurrence as its Event, or that of its group, shows it, and the key of that Event."""
        limits = self._limits
        if limits.group_key is None:
            name, local = _group_key(occurrence), occurrence.message
        else:
            name, local = limits.group_key(occurrence)
        group = self._groups.get(name)
        if group is None or now - group.last > limits.similar_within:
            group = _Group(now)
            self._groups.put(name, group)
        group.last = now
        group.messages.pop(local, None)
        group.messages[local] = occurrence.message
        keys = list(group.messages)
        if len(keys) < limits.similar:
            return occurrence, _event_key(occurrence)
        newest = [group.messages[each] for each in keys[: -1 - limits.shown : -1]]
        del group.messages[keys[0]]
        if limits.aggregate_message is None:
            message = _PREFIX + "; ".join(newest)
        else:
            message = limits.aggregate_message(occurrence, newest)
        shown = replace(occurrence, message=cut(message, MOST_OF_A_MESSAGE))
        return shown, _key("similar", occurrence.about.namespace, name)

    def _count(
        self, occurrence: Occurrence, key: str, first: float, last: float, count: int = 1
    ) -> CorrelatorDecision:
        """Add to the count of an Event, and return the Event."""
        logged = self._log.get(key)
        is_new = logged is None or logged.count == 0
        if logged is None or is_new:
            logged = _Logged(0, first, _name(occurrence, key))
            self._log.put(key, logged)
        logged.count += count
        namespace = occurrence.about.namespace or "default"
        event = Event(occurrence, namespace, logged.name, logged.count, logged.first, last)
        return CorrelatorDecision(key, event, is_new)

    def _bucket_of(self, occurrence: Occurrence, now: float) -> tuple[str, _Bucket]:
        if self._limits.bucket_key is None:
            name = _key("bucket", *_bucket_parts(occurrence))
        else:
            name = self._limits.bucket_key(occurrence)
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = _Bucket(self._limits.burst, now)
            forgotten = self._buckets.put(name, bucket)
            if forgotten in self._suppressed:
                self.lost += self._suppressed.pop(forgotten).count
        return name, bucket

    def _take_token(self, bucket: _Bucket, now: float, needed: int = 1) -> bool:
        tokens = min(self._limits.burst, bucket.tokens + max(0.0, now - bucket.changed) * self._rate)
        if (needed - tokens) / self._rate >= _NANOSECOND:
            return False
        bucket.tokens = tokens - 1
        bucket.changed = now
        return True

    def _suppress(self, occurrence: Occurrence, name: str, bucket: _Bucket, stamp: float) -> None:
        """Count an occurrence for the next summary of its bucket."""
        waiting = self._suppressed.get(name)
        if waiting is None:
            opens = bucket.changed + (1 - bucket.tokens) * self._limits.refill
            waiting = self._suppressed[name] = _Suppressed(bucket, opens, occurrence, stamp, stamp)
            self.next_due = min(self.next_due, opens)
        waiting.count += 1
        waiting.last = stamp
        # The functions of limits may put Warnings and others into one bucket.
        if occurrence.type == EventType.WARNING or waiting.newest.type != EventType.WARNING:
            waiting.newest = occurrence
        reason = occurrence.reason
        if reason not in waiting.reasons and len(waiting.reasons) >= _MOST_REASONS:
            reason = "others"
        waiting.reasons[reason] = waiting.reasons.get(reason, 0) + 1

    def _summarize(self, name: str, each: _Suppressed) -> CorrelatorDecision:
        newest = each.newest
        reasons = ", ".join(f"{count} {reason}" for reason, count in each.reasons.items())
        message = f"(summary of suppressed events): {each.count} more: {reasons}. Newest: {newest.message}"
        shown = replace(newest, reason=SUMMARY_REASON, message=cut(message, MOST_OF_A_MESSAGE))
        about = newest.about
        key = _key("summary", name, about.kind, about.namespace, about.name, about.uid)
        return self._count(shown, key, each.first, each.last, each.count)


def _key(sort: str, *parts: str) -> str:
    return sha256("\0".join((sort, *parts)).encode(errors="replace")).hexdigest()[:_KEY_DIGITS]


def _bucket_parts(occurrence: Occurrence) -> tuple[str, ...]:
    # A restarted operator has another host and instance, and the Event is the same.
    about = occurrence.about
    parts = (occurrence.source.component, about.kind, about.namespace, about.name, about.uid)
    return (*parts, about.api_version, occurrence.type)


def _group_key(occurrence: Occurrence) -> str:
    return _key("group", *_bucket_parts(occurrence), occurrence.reason, occurrence.source.controller)


def _event_key(occurrence: Occurrence) -> str:
    about, related = occurrence.about, occurrence.related
    parts = [*_bucket_parts(occurrence), about.field_path, occurrence.reason, occurrence.action]
    if related is not None:
        parts += [related.kind, related.namespace, related.name, related.uid]
    return _key("event", *parts, occurrence.message)


def _name(occurrence: Occurrence, key: str) -> str:
    """Return the name of an Event."""
    name = occurrence.about.name[: _NAME_CHARACTERS - 1 - _HASH_DIGITS].rstrip("-.")
    # Names of some kinds, as of cluster roles, are none of an Event.
    return ".".join((*([name] if _SUBDOMAIN.fullmatch(name) else []), key[:_HASH_DIGITS]))


def _fit(occurrence: Occurrence) -> Occurrence:
    """Cut the texts of an occurrence to the lengths that the API accepts."""
    return replace(
        occurrence,
        reason=cut(occurrence.reason, MOST_OF_A_REASON),
        action=cut(occurrence.action, MOST_OF_A_REASON),
        message=cut(occurrence.message, MOST_OF_A_MESSAGE),
    )
