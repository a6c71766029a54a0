"""PartialObject: an object of which only a part is stored. It says so, and writes of whole objects refuse
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from kopf_selectcache._errors import NotKept
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.store.record import PartialRecord, Record


class NotInPart(NotKept, KeyError):
    """A key that a partial object lacks. It is also a KeyError, as mappings raise: `get` has its default."""


def refuse_key(key: object, partial: str) -> NoReturn:
    """Raise NotInPart."""
    raise NotInPart(
        f"there is no {shown(key)} in the object, of which only a part is stored: {clipped(partial, 200)}",
        remedy="Read whole objects with cache.live.get(...); or store that part as well",
    )


class PartialObject(dict[str, Any]):
    """The dict of an object of which only a part is stored.

        pod = cache.get('pods', 'web-1', namespace)     # with Cached(..., metadata_only=True)
        pod.partial                                     # 'metadata_only=True'
        pod['spec']                                     # NotKept

    It is equal to a plain dict, and written as one to JSON. Copies and pickles are partial as well;
    `dict(pod)` is a plain dict.
    """

    __slots__ = ("partial",)

    partial: str
    """The stored part, as it is declared: `keep=['spec.nodeName']`."""

    def __init__(self, obj: Mapping[str, Any], partial: str) -> None:
        super().__init__(obj)
        self.partial = partial

    def __missing__(self, key: str) -> NoReturn:
        refuse_key(key, self.partial)

    def copy(self) -> PartialObject:
        return PartialObject(self, self.partial)

    def __or__(self, other: Any) -> Any:
        return _joined(dict.__or__(self, other), self.partial)

    def __ror__(self, other: Any) -> Any:
        return _joined(dict.__ror__(self, other), self.partial)

    def __reduce__(self) -> tuple[Any, ...]:
        return PartialObject, (dict(self), self.partial)


def _joined(joined: Any, partial: str) -> Any:
    return joined if joined is NotImplemented else PartialObject(joined, partial)


def partial_of(source: object) -> str:
    """Return the stored part of an object that a read has returned; empty if it is whole, or unknown."""
    found = getattr(source, "partial", "") if isinstance(source, Mapping) else ""
    return found if isinstance(found, str) else ""


def object_of(record: Record) -> dict[str, Any]:
    """Return a stored object as a new dict, marked if only a part of it is stored."""
    obj = record.decode()
    return PartialObject(obj, record.part) if isinstance(record, PartialRecord) else obj
