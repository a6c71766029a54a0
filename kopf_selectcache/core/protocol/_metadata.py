"""The metadata of objects: labels and owners decoded, names that requests can have, and an object's bytes
without `managedFields`.

Equal labels and owners of several objects are decoded and stored once.

`managedFields` are located by their neighbours, without parsing the JSON. The result is certain once the
decoder has accepted both the part and the rest without it. In all other cases the decoder reads the object as
a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from sys import intern
from typing import Any, Generic, TypeVar

import msgspec

from kopf_selectcache.core.selection.grammar import LabelRequirement, Sent

from ._decoding import Owner

_T = TypeVar("_T")

MOST = 4096
"""The number of values that are remembered while most of them recur."""

FEW = 1024
"""The number of values that are remembered while few recur. A small number is enough because servers list
objects by name, so that objects with equal values are close together."""

_NONE = b"null"

_LABELS = msgspec.json.Decoder(dict[str, str] | None)


_OWNERS = msgspec.json.Decoder(list[Owner] | None)

Undecoded = msgspec.Raw | msgspec.UnsetType


class Sharing(Generic[_T]):
    """Returns the identical value for equal input. Callers must not change the value.

    >>> sharing = Sharing(lambda text: text.decode().split(','))
    >>> sharing.of(b'a,b') is sharing.of(b'a,b')
    True
    """

    def __init__(self, make: Callable[[Any], _T]) -> None:
        self._make = make
        self._known: dict[Hashable, _T] = {}
        # The number of hits since the last reset.
        self._found = 0

    def of(self, given: Hashable) -> _T:
        """Return the value of this input. Exceptions of the function that makes it pass through."""
        try:
            value = self._known[given]
        except KeyError:
            value = self._make(given)
            # Records that share a forgotten value still share it.
            if len(self._known) >= (MOST if self._found > len(self._known) else FEW):
                self._known, self._found = {}, 0
            self._known[given] = value
        else:
            self._found += 1
        return value


class SharedMetadata:
    """The labels and owners of the objects of one request. Each method raises the errors of the decoder."""

    def __init__(self, sent: Sent) -> None:
        self._labels: Sharing[dict[str, str] | LabelRequirement] = Sharing(_sharing(sent))
        self._owners: Sharing[tuple[str, ...]] = Sharing(_uids)

    def labels(self, data: Undecoded) -> dict[str, str] | LabelRequirement:
        """Return the labels; or the requirement that they fail, if the selector does not select them."""
        return self._labels.of(_NONE if data is msgspec.UNSET else bytes(data))

    def owners(self, data: Undecoded) -> tuple[str, ...]:
        """Return the uids of the owners."""
        return () if data is msgspec.UNSET else self._owners.of(bytes(data))


def labels_alone(data: Undecoded) -> dict[str, str]:
    """Return labels that nothing else shares."""
    return {} if data is msgspec.UNSET else _LABELS.decode(data) or {}


def _sharing(sent: Sent) -> Callable[[bytes], dict[str, str] | LabelRequirement]:
    """Return a function that decodes labels. It shares keys and values, of which many are repeated.

    For labels that the selector does not select, the function returns the requirement that they fail, so that
    equal labels of many objects are compared with the selector once.
    """
    values: Sharing[str] = Sharing(str)

    def made(data: bytes) -> dict[str, str] | LabelRequirement:
        labels = {intern(key): values.of(value) for key, value in (_LABELS.decode(data) or {}).items()}
        return sent.failing_label(labels) or labels

    return made


def _uids(data: bytes) -> tuple[str, ...]:
    """Return the uids of the owners in this JSON."""
    return tuple([owner.uid for owner in _OWNERS.decode(data) or ()])


_DOTS = frozenset({".", ".."})


def can_be_named(namespace: str, name: str) -> bool:
    """Return True if requests can name the object: in a path (`core.selection.resource`), and in a field
    selector.
    """
    return not (
        "/" in name
        or "%" in name
        or "\0" in name
        or name in _DOTS
        or "/" in namespace
        or "%" in namespace
        or "\0" in namespace
        or namespace in _DOTS
    )


_MANAGED = b',"managedFields":[{'

_skip = msgspec.json.Decoder(msgspec.Raw).decode


def without_managed(data: bytes, metadata: int) -> bytes | None:
    """Return an object without the `managedFields` of its metadata, which begins at this position; None if
    they are written in an unusual way.

    The result is correct only if it can be decoded. It may still have `managedFields` that were not found.

    >>> without_managed(b'{"metadata":{"name":"a","managedFields":[{"manager":"b"}]},"spec":{}}', 12)
    b'{"metadata":{"name":"a"},"spec":{}}'
    """
    start = data.find(_MANAGED, metadata)
    if start < 0:
        return data
    if data[start - 1] == ord("{"):
        return None  # A comma before the first member is invalid JSON, and the cut would hide it.
    value = start + len(_MANAGED) - 2
    end = data.find(b"]", value) + 1  # It has no lists inside; a bracket in a text is rare.
    try:
        # The metadata before the key is complete, so this is a key of the metadata and not of a nested value;
        # and the cut is a whole value.
        _skip(data[metadata:start] + b"}")
        _skip(memoryview(data)[value:end])
    except (msgspec.DecodeError, RecursionError):
        return None
    return data[:start] + data[end:]
