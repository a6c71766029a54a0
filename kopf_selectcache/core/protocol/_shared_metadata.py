"""Labels and owners of objects, decoded. Equal ones of several objects are decoded and stored once."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern

import msgspec

from kopf_selectcache.core.selection.grammar import LabelRequirement
from kopf_selectcache.core.selection.sent import Sent
from kopf_selectcache.core.store.interning import Sharing

from ._shapes import Owner

_NONE = b"null"

_LABELS = msgspec.json.Decoder(dict[str, str] | None)
_OWNERS = msgspec.json.Decoder(list[Owner] | None)

Undecoded = msgspec.Raw | msgspec.UnsetType


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
