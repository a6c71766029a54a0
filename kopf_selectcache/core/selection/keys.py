"""Keys: which objects a stream could hold, as far as their metadata shows. Streams that could hold the same
key are a *group*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol, TypeVar

from .grammar import FieldTerm, LabelRequirement


class HasKeys(Protocol):
    """A stream, or a substore."""

    @property
    def keys(self) -> Keys:
        """The keys that it could hold."""


_HasKeys = TypeVar("_HasKeys", bound=HasKeys)


class Selectable(Protocol):
    """The metadata of an object, such as that of a record."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Selected:
    """The objects that one branch of a filter selects, as far as their metadata shows."""

    namespaces: frozenset[str] | None = None
    names: frozenset[str] | None = None
    requirements: tuple[LabelRequirement, ...] = ()
    terms: tuple[FieldTerm, ...] = ()
    """Terms of the name and the namespace."""

    def has(self, record: Selectable) -> bool:
        known = {"metadata.name": record.name, "metadata.namespace": record.namespace}
        return (
            (self.namespaces is None or record.namespace in self.namespaces)
            and (self.names is None or record.name in self.names)
            and all(each.matches(record.labels) for each in self.requirements)
            and all(each.matches(known) for each in self.terms)
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """The namespace and names that a substore selects; None means any."""

    namespace: str | None = None
    names: frozenset[str] | None = None
    complete: bool = False
    """True if the stream has no other selector. An object that departs from such a substore is gone."""
    namespaces: frozenset[str] | None = None
    """The namespaces of a stream of all objects, of which those in other namespaces are not stored."""
    excluded: frozenset[str] = frozenset()
    """The namespaces that a stream of all objects excludes."""
    are_outside: bool = False
    """True if the stream has the objects outside of the filter, as `OutsideRecord`s."""
    others: tuple[Selected, ...] = ()
    """The objects of a stream that are not stored, because others have them."""

    @property
    def are_of_path(self) -> bool:
        """True if there is no restriction besides the namespace of the path."""
        return self.names is None and self.namespaces is None and not self.excluded

    def have(self, key: tuple[str, str]) -> bool:
        return self.have_namespace(key[0]) and (self.names is None or key[1] in self.names)

    def is_other(self, record: Selectable) -> bool:
        """Return True if another stream has the object."""
        return any(each.has(record) for each in self.others)

    def meet(self, other: Keys) -> bool:
        """Return True if both could hold the same key."""
        if self.names is not None and other.names is not None and self.names.isdisjoint(other.names):
            return False
        for each, of in ((self, other), (other, self)):
            if each.namespace is not None:
                return of.have_namespace(each.namespace)
            if each.namespaces is not None:
                return any(map(of.have_namespace, each.namespaces))
        return True

    def have_namespace(self, namespace: str) -> bool:
        """Return True if there could be objects of this namespace."""
        return (
            self.namespace in (None, namespace)
            and (self.namespaces is None or namespace in self.namespaces)
            and namespace not in self.excluded
        )


def groups_of(streams: Iterable[_HasKeys]) -> tuple[frozenset[_HasKeys], ...]:
    """Return groups of streams, or of their substores. Those of different groups have no key in common."""
    within: dict[str | None, list[_HasKeys]] = {}
    for stream in streams:
        within.setdefault(stream.keys.namespace, []).append(stream)
    # There may be a thousand namespaces. Only a stream of all of them has a key in common with several.
    parts = [[*chain(*within.values())]] if None in within else within.values()
    found: list[frozenset[_HasKeys]] = []
    for part in parts:
        groups: list[frozenset[_HasKeys]] = []
        for stream in part:
            near = [group for group in groups if any(stream.keys.meet(other.keys) for other in group)]
            groups = [*(group for group in groups if group not in near), frozenset({stream}).union(*near)]
        found += groups
    return tuple(found)
