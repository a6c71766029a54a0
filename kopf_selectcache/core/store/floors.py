"""Floors: states of objects that readers have seen end, and that a stream that is behind may still report.

When the filter of a cache changes, the streams of both filters go on. One that is behind ignores
these states. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from .record import Record, is_newer


class Floor(NamedTuple):
    """The version of one object up to which its states have ended."""

    version: str
    but: str = ""
    """The uid of an object of that name whose states have not all ended; empty if there is none."""
    until: str = ""
    """The version up to which the states of that object have ended as well; empty if none have."""

    def is_over(self, record: Record) -> bool:
        """Return True if this state has ended."""
        version = self.until if record.uid == self.but else self.version
        return version != "" and not is_newer(record.version, version)

    def joined(self, other: Floor) -> Floor:
        """Return the floor of all states that are over by one of the two."""
        newer, older = (other, self) if is_newer(other.version, self.version) else (self, other)
        until = older.until if older.but == newer.but else older.version
        return newer._replace(until=until) if is_newer(until or "0", newer.until or "0") else newer


class Floors(dict[tuple[str, str], Floor]):
    """The floors of one stream, or of one union."""

    def __init__(self) -> None:
        self._listed: list[Record] = []
        self._highest = ""

    def lay(self, key: tuple[str, str], floor: Floor) -> None:
        """Add a floor to that of the key."""
        before = self.get(key)
        # What was the highest means nothing once all are dropped.
        if not self or is_newer(floor.version, self._highest):
            self._highest = floor.version
        self[key] = floor if before is None else before.joined(floor)

    def are_over(self, record: Record, *, listed: bool) -> bool:
        """Return True if a reported state has ended. Remember it if it is of a list, which may be newer."""
        floor = self.get(record.key)
        is_over = floor is not None and floor.is_over(record)
        if is_over and listed:
            self._listed.append(record)
        return is_over

    def begin(self) -> None:
        """Begin a list."""
        self._listed.clear()

    def commit(self, version: str) -> list[Record]:
        """End a list as of a version; return its objects that are valid, since their floors are not newer."""
        valid = [
            each
            for each in self._listed
            if (floor := self.get(each.key)) is None or not is_newer(floor.version, version)
        ]
        self._listed.clear()
        self.progress(version)
        return valid

    def progress(self, version: str) -> None:
        """Drop all floors once the stream has passed the highest."""
        if not is_newer(self._highest, version):
            self.clear()
