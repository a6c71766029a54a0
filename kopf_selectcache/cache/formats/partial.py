"""PartialObject: an object of which only a part is stored. It says so, and writes of whole objects refuse
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NoReturn

from kopf_selectcache._errors import NotKept
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.store.projection import Part, Tree
from kopf_selectcache.core.store.record import PartialRecord, Record


class NotInPart(NotKept, KeyError):
    """A key that a partial object lacks. It is also a KeyError, as mappings raise."""


def refuse_key(key: object, partial: str) -> NoReturn:
    """Raise NotInPart."""
    raise NotInPart(
        f"there is no {shown(key)} in the object, of which only a part is stored: {clipped(partial, 200)}",
        remedy="Store that part as well; or ask the server for whole objects: cache.fetch(..., whole=True)",
    )


class PartialMembers(dict[str, Any]):
    """A dict of which a part is stored. `[...]` and `get` raise NotKept for a member that is not."""

    __slots__ = ()

    partial: str
    """The stored part, as it is declared: `keep=['spec.nodeName']`."""
    _tree: Tree | None

    def __missing__(self, key: str) -> NoReturn:
        if not is_stored(key, self._tree):
            refuse_key(key, self.partial)
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the member, or the default if there is none; raise NotKept if it is not stored."""
        if key not in self and is_lost(key, self._tree):
            refuse_key(key, self.partial)
        return dict.get(self, key, default)


class PartialObject(PartialMembers):
    """The dict of an object of which only a part is stored.

        pod = cache.get('pods', 'web-1', namespace)     # with Cached(..., metadata_only=True)
        pod.partial                                     # 'metadata_only=True'
        pod['spec']                                     # NotKept

    It is equal to a plain dict, and written as one to JSON. Copies and pickles are partial as well;
    `dict(pod)` is a plain dict. Members of which a part is stored are partial, too.
    """

    __slots__ = ("_tree", "partial")

    def __init__(self, obj: Mapping[str, Any], partial: str, tree: Tree | None = None) -> None:
        super().__init__(obj)
        self.partial = partial
        self._tree = tree if tree is not None else tree_of(partial)

    def copy(self) -> PartialObject:
        return PartialObject(self, self.partial, self._tree)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> PartialObject:
        return PartialObject(deepcopy(dict(self), memo), self.partial, self._tree)

    def __or__(self, other: Any) -> Any:
        return self._joined(dict.__or__(self, other))

    def __ror__(self, other: Any) -> Any:
        return self._joined(dict.__ror__(self, other))

    def _joined(self, joined: Any) -> Any:
        return joined if joined is NotImplemented else PartialObject(joined, self.partial, self._tree)

    def __reduce__(self) -> tuple[Any, ...]:
        return PartialObject, (dict(self), self.partial)


def tree_of(partial: str) -> Tree | None:
    """Return what is stored of an object; None if it is not known, as of a pickled one."""
    return partial.tree if isinstance(partial, Part) else None


def is_lost(key: str, tree: Tree | None) -> bool:
    """Return True if it is known that a member is not stored."""
    return tree is not None and tree.part(key).is_empty


def is_stored(key: str, tree: Tree | None) -> bool:
    """Return True if it is known that a member would be stored, if the object had it."""
    return tree is not None and not tree.part(key).is_empty


def marked(value: Any, partial: str, tree: Tree, mark: Callable[[dict[str, Any], str, Tree], Any]) -> Any:
    """Mark the members of a new value of which a part is stored, in place; return the value, marked."""
    if isinstance(value, list):
        return type(value)(marked(each, partial, tree, mark) for each in value)
    if not isinstance(value, dict):
        return value
    for key, part in tree.parts.items():
        if part.parts and key in value:
            dict.__setitem__(value, key, marked(value[key], partial, part, mark))
    return mark(value, partial, tree)


def partial_of(source: object) -> str:
    """Return the stored part of an object that a read has returned; empty if it is whole, or unknown."""
    found = getattr(source, "partial", "") if isinstance(source, Mapping) else ""
    return found if isinstance(found, str) else ""


def object_of(record: Record) -> dict[str, Any]:
    """Return a stored object as a new dict, marked if only a part of it is stored."""
    obj = record.decode()
    if not isinstance(record, PartialRecord):
        return obj
    tree = tree_of(record.part)
    if tree is None:
        return PartialObject(obj, record.part)
    found: dict[str, Any] = marked(obj, record.part, tree, PartialObject)
    return found
