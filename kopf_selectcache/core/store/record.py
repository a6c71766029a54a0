"""One object as the cache holds it: what reads select by, and the object itself as bytes, decoded anew for
each reader.

So whatever a reader does to what it gets stays with the reader, and nothing is a dict until somebody asks for
one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from kopf_selectcache.core.errors import Undecodable
from kopf_selectcache.core.recursion import on_empty_stack

from .compression import Packing

_decoded = msgspec.json.Decoder().decode

INDEXED = ""
"""What is no field label: under it, the values of declared indexes stand beside those of field labels."""


class Record(msgspec.Struct, eq=False, gc=False):
    """A held object. The garbage collector need not look at it: it can be a part of no cycle."""

    namespace: str
    """Empty for a cluster-scoped kind."""
    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    labels: dict[str, str]
    """Other records may have the very same dict. Nobody changes it: readers get their own as a part of what
    `decode` makes."""
    owners: tuple[str, ...]
    """The uids of the objects that own it."""
    stored: bytes
    """The object in JSON, packed or not. It alone may be replaced, by the same object (`pack`). Empty if it
    is unreadable."""
    fields: bytes = b""
    """What cannot be read off what is kept: the values of field labels whose paths were dropped, and of
    declared indexes; empty if there is none."""
    packing: Packing | None = None
    """How it is packed, if it may be."""
    holders: int = 0
    """How many stores hold it, where that is counted (`core.store.accounting`)."""

    def __repr__(self) -> str:
        """Show which object it is, and nothing of it: it may be a Secret."""
        return (
            f"Record(namespace={self.namespace!r}, name={self.name!r}, uid={self.uid!r},"
            f" version={self.version!r})"
        )

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def data(self) -> bytes:
        """The object in JSON, with its apiVersion and kind."""
        return self.stored if self.packing is None else self.packing.unpack(self.stored)

    def decode(self) -> dict[str, Any]:
        """Return the object, made anew for this call."""
        decoded: dict[str, Any]
        try:
            decoded = _decoded(self.stored if self.packing is None else self.packing.unpack(self.stored))
        except RecursionError:
            decoded = on_empty_stack(partial(_decoded, self.data))
        return decoded

    def pack(self) -> None:
        """Store the object as its kind is packed now. Readers in other threads see it as it was, or as it is
        then, which is the same.
        """
        if self.packing is not None:
            self.stored = self.packing.pack(self.data)

    def is_same(self, other: Record) -> bool:
        """Whether this is the same object in the same version. A server that was restored gives versions out
        again, for other contents.
        """
        return (self.uid, self.version, self.fields) == (other.uid, other.version, other.fields) and (
            self.stored == other.stored or (self.stored != b"" != other.stored and self.data == other.data)
        )

    def lost(self) -> dict[str, str]:
        """Return the values of those field labels that can not be read off what is kept."""
        values: dict[str, str] = msgspec.json.decode(self.fields) if self.fields else {}
        values.pop(INDEXED, None)
        return values

    def indexed(self) -> dict[str, list[Any]]:
        """Return the values of declared indexes that were read when it came, by their names."""
        values: dict[str, list[Any]] = (
            msgspec.json.decode(self.fields).get(INDEXED, {}) if self.fields else {}
        )
        return values


TOO_DEEP = "it is nested too deeply"
OUT_OF_RANGE = "it has a number that is out of range"


class Unreadable(Record):
    """A held object that cannot be decoded: its metadata alone is known."""

    why: str = ""
    """A clause, such as `it is nested too deeply`."""

    @property
    def data(self) -> bytes:
        raise Undecodable(self.why, self.why)

    def decode(self) -> dict[str, Any]:
        raise Undecodable(self.why, self.why)

    @property
    def is_suspect(self) -> bool:
        """Whether it may have been damaged on its way: API servers send UTF-8 and valid JSON, of any depth
        and with any numbers.
        """
        return self.why not in (TOO_DEEP, OUT_OF_RANGE)

    def is_same(self, other: Record) -> bool:
        """Return True if this is the same object in the same version, and the same is known of it."""
        return (
            isinstance(other, Unreadable)
            and super().is_same(other)
            and ((self.labels, self.owners, self.why) == (other.labels, other.owners, other.why))
        )


def kept_json(value: object) -> bytes:
    """Return a value as JSON that is to be kept: in as many bytes as it has, where the encoder leaves room
    behind what it writes.
    """
    return bytes(memoryview(msgspec.json.encode(value)))


def is_newer(version: str, than: str) -> bool:
    """Whether one resourceVersion comes after another, or may: of those that are no numbers, only that they
    differ is known.
    """
    if not (version.isascii() and version.isdecimal() and than.isascii() and than.isdecimal()):
        return version != than
    # Of as many digits, the greater comes later as a text as well.
    return version > than if len(version) == len(than) else rank_of(version) > rank_of(than)


def is_older(version: str, than: str) -> bool:
    """Whether one resourceVersion is known to come before another. That is never known of those that are no
    numbers.
    """
    if not (version.isascii() and version.isdecimal() and than.isascii() and than.isdecimal()):
        return False
    return version < than if len(version) == len(than) else rank_of(version) < rank_of(than)


def is_number(version: str) -> bool:
    """Return True if the resourceVersion can be compared with others. Those of some aggregated servers
    cannot.
    """
    return version.isascii() and version.isdecimal()


def are_numbers(versions: Iterable[str]) -> bool:
    """Whether all of these versions are numbers, so that it is known which comes before which."""
    digits = "".join(versions)
    return digits.isascii() and digits.isdecimal()


def rank_of(version: str) -> tuple[int, str]:
    """Return what sorts versions that are numbers."""
    # As Kubernetes compares them: by length, then digit by digit. Python refuses to make integers of endless
    # texts.
    digits = version.lstrip("0")
    return len(digits), digits
