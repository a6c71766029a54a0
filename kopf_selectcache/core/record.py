"""One object as the cache holds it: what reads select by, and the object itself as bytes, decoded anew for each reader.

So whatever a reader does to what it gets stays with the reader, and nothing is a dict until somebody asks for one.
"""
from __future__ import annotations

from typing import Any

import msgspec


class Record(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A held object. The garbage collector need not look at it: it can be a part of no cycle."""

    namespace: str
    """Empty for a cluster-scoped kind."""
    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    labels: dict[str, str]
    """Other records may have the very same dict. Nobody changes it: readers get their own as a part of what `decode` makes."""
    owners: tuple[str, ...]
    """The uids of the objects that own it."""
    data: bytes
    fields: bytes = b""
    """The values of those field labels that can not be read off `data`, since their paths were dropped; empty if there are none."""

    def __repr__(self) -> str:
        """Show which object it is, and nothing of it: it may be a Secret."""
        return f"Record(namespace={self.namespace!r}, name={self.name!r}, uid={self.uid!r}, version={self.version!r})"

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    def decode(self) -> dict[str, Any]:
        """Return the object, made anew for this call, with its apiVersion and kind."""
        decoded: dict[str, Any] = msgspec.json.decode(self.data)
        return decoded

    def lost(self) -> dict[str, str]:
        """Return the values of those field labels that can not be read off what is kept."""
        values: dict[str, str] = msgspec.json.decode(self.fields) if self.fields else {}
        return values


def is_newer(version: str, than: str) -> bool:
    """Whether one resourceVersion comes after another, or may: of those that are no numbers, only that they differ is known."""
    return _rank(version) > _rank(than) if _comparable(version, than) else version != than


def is_older(version: str, than: str) -> bool:
    """Whether one resourceVersion is known to come before another. That is never known of those that are no numbers."""
    return _comparable(version, than) and _rank(version) < _rank(than)


def _comparable(one: str, two: str) -> bool:
    return one.isascii() and one.isdecimal() and two.isascii() and two.isdecimal()


def _rank(version: str) -> tuple[int, str]:
    # As Kubernetes compares them: by length, then digit by digit. Python refuses to make integers of endless texts.
    digits = version.lstrip("0")
    return len(digits), digits
