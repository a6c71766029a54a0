"""Probe: the names, uids and versions of one stream's objects, as of a version that the stream may not have
reached.

Theory of operation
-------------------
Nobody tells a quiet watch which version it has reached. If it holds exactly what a list as of version v has,
all of it at one moment, then the events up to v are over for it: those that it has not received were undone
before v. So the probe *counts*, and the substore jumps to v as if it had been listed.

Objects are never ticked off one by one. If X is equal now and Y later, X may have changed in between: the
watch has still to report an event of X from before v, and would ignore it after the jump.

A watch that reaches v by itself ends the probe. If it holds an object as it was before v, and the list does
not, then it has *missed* an event. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from .record import ObjectKey, Record, is_newer, is_reached
from .substore import Substore

Listed: TypeAlias = dict[ObjectKey, tuple[str, str]]
"""The uid and the version of each object of a list."""


class Differences(NamedTuple):
    """How stored objects differ from a list."""

    missing: list[ObjectKey]
    extra: list[ObjectKey]
    outdated: list[ObjectKey]
    """Objects with another uid or version."""


def listed_of(records: Iterable[Record]) -> Listed:
    """Return what a comparison needs of one page."""
    return {record.key: (record.uid, record.version) for record in records}


def differences(held: Mapping[ObjectKey, Record], listed: Listed) -> Differences:
    """Compare stored objects with a list."""
    return Differences(
        [key for key in listed if key not in held],
        [key for key in held if key not in listed],
        [key for key, found in listed.items() if key in held and not _is_equal(held[key], found)],
    )


class Probe:
    """A complete list of one stream, until it counts or is over."""

    def __init__(self, substore: Substore, version: str, listed: Listed) -> None:
        self.version = version
        self._substore = substore
        self._listed = listed
        self._differing = self._compare()

    @property
    def is_over(self) -> bool:
        """True once the watch has reached the version by itself. Versions without order show nothing."""
        return is_reached(self.version, self._substore.version)

    def counts(self) -> bool:
        """Return True if the substore holds exactly the listed objects now.

        A call looks at one difference more than have ended, and at all objects once none is left. So an event
        costs the same on average, however many objects there are.
        """
        while self._differing:
            key = self._differing[-1]
            if not _is_equal(self._substore.view.held(key), self._listed.get(key)):
                return False
            self._differing.pop()
        self._differing = self._compare()
        return not self._differing

    def has_missed(self) -> bool:
        """Return True if a substore that is past the list holds an object that the list has not."""
        held = map(self._substore.view.held, self._compare())
        return any(record is not None and not is_newer(record.version, self.version) for record in held)

    def _compare(self) -> list[ObjectKey]:
        held = {record.key: record for record in self._substore.view.records()[0]}
        missing, extra, outdated = differences(held, self._listed)
        return [*missing, *extra, *outdated]


def _is_equal(held: Record | None, found: tuple[str, str] | None) -> bool:
    return (None if held is None else (held.uid, held.version)) == found
