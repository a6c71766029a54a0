"""Predicates: which changes of objects are reacted to. They are combined with `&`, `|` and `~`.

A predicate looks at the object before and after the change, and at nothing else: a cache may be older than
the change, or newer. It drops changes, and never objects of a cache. Pure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.selectors.signatures import is_async, no_attribute, refuse_awaitable
from kopf_selectcache.selectors.text import LabelDict, LabelSelector

Obj: TypeAlias = Mapping[str, Any]


class Predicate(ABC):
    """Decides if a change is reacted to.

    >>> relevant = (generation_changed | labels_changed) & ~deleted
    >>> old, new = {'metadata': {'generation': 1}}, {'metadata': {'generation': 2}}
    >>> relevant.admits(Change.of('updated', old, new)), relevant.admits(Change.of('deleted', new, None))
    (True, False)
    """

    paths: tuple[tuple[str, ...], ...] = ()
    """The paths of the object that it reads, as far as that is known. They must be stored."""

    @abstractmethod
    def admits(self, change: Change) -> bool:
        """Return True if the change is reacted to."""

    def __and__(self, other: AnyPredicate) -> Predicate:
        return _All((predicate_of(self), predicate_of(other)))

    def __or__(self, other: AnyPredicate) -> Predicate:
        return _Any((predicate_of(self), predicate_of(other)))

    def __invert__(self) -> Predicate:
        return _Not(predicate_of(self))

    __rand__, __ror__ = __and__, __or__


Decision: TypeAlias = Callable[[Obj | None, Obj | None], object]
"""A function of the object before and after. `old` is None if it enters, `new` if it departs."""

AnyPredicate: TypeAlias = Predicate | Decision


def _paths_of(parts: Iterable[Predicate]) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(path for part in parts for path in part.paths))


@dataclass(frozen=True)
class _All(Predicate):
    parts: tuple[Predicate, ...]

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]  # It depends on the parts.
        return _paths_of(self.parts)

    def admits(self, change: Change) -> bool:
        # A loop: each change of each source comes here.
        for part in self.parts:  # noqa: SIM110
            if not part.admits(change):
                return False
        return True


@dataclass(frozen=True)
class _Any(Predicate):
    parts: tuple[Predicate, ...]

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]  # It depends on the parts.
        return _paths_of(self.parts)

    def admits(self, change: Change) -> bool:
        return any(part.admits(change) for part in self.parts)


@dataclass(frozen=True)
class _Not(Predicate):
    part: Predicate

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]  # It depends on the part.
        return self.part.paths

    def admits(self, change: Change) -> bool:
        return not self.part.admits(change)


@dataclass(frozen=True)
class _ByFunction(Predicate):
    fn: Decision

    def admits(self, change: Change) -> bool:
        decision = self.fn(change.old, change.new)
        refuse_awaitable(decision, "a function in predicates= returned an awaitable, and nobody awaits it")
        return bool(decision)


@dataclass(frozen=True)
class _Caused(Predicate):
    cause: str

    def admits(self, change: Change) -> bool:
        return change.cause == self.cause


@dataclass(frozen=True)
class _Changed(Predicate):
    """Admits updates that change a value, and every change that is no update.

    An update is admitted as well if the value cannot be compared: the former object is not known, or
    neither has the value, although the kind could.
    """

    path: tuple[str, ...]
    is_optional: bool
    """True if an object without the value has it empty; False if it is unknown then."""

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]  # It depends on the path.
        return (self.path,)

    def admits(self, change: Change) -> bool:
        old, new = change.old, change.new
        if old is None or new is None or not change.is_whole:
            return True
        before, after = _value(old, self.path), _value(new, self.path)
        if self.is_optional:
            return (before or {}) != (after or {})
        return before != after or after is None


@dataclass(frozen=True)
class _Labelled(Predicate):
    selector: LabelSelector

    def admits(self, change: Change) -> bool:
        return any(
            self.selector.matches(_value(obj, ("metadata", "labels")) or {})
            for obj in (change.old, change.new)
            if obj is not None
        )


def _value(obj: Obj, path: tuple[str, ...]) -> Any:
    for name in path:
        obj = obj.get(name) or {}
    return obj if obj != {} else None


generation_changed: Predicate = _Changed(("metadata", "generation"), is_optional=False)
"""Updates of the specification, and all changes that are no updates. Updates of kinds without a generation
are admitted: it is not known what they change."""

version_changed: Predicate = _Changed(("metadata", "resourceVersion"), is_optional=False)
"""Every change but a resync."""

labels_changed: Predicate = _Changed(("metadata", "labels"), is_optional=True)
annotations_changed: Predicate = _Changed(("metadata", "annotations"), is_optional=True)

entered: Predicate = _Caused("entered")
"""The filter selects the object now: it is new, has changed, or the cache has just started."""
updated: Predicate = _Caused("updated")
left: Predicate = _Caused("left")
"""The filter does not select the object any more. It may still exist."""
deleted: Predicate = _Caused("deleted")
"""The object does not exist any more, which is proved."""

_ELSEWHERE = {
    "Event": "Make a change for the test of a predicate: selectcache.Change.of('updated', old, new)",
    "gone": "Write: selectcache.predicates.deleted",
}

if not TYPE_CHECKING:  # With it, mypy would accept every name.

    def __getattr__(name: str) -> NoReturn:
        if name in _ELSEWHERE:
            raise no_attribute(f"selectcache.predicates has no {name!r}", remedy=_ELSEWHERE[name])
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def labelled(labels: str | LabelDict | LabelSelector) -> Predicate:
    """Return the predicate of objects that a label selector selects, before or after the change: so the
    loss of a label is reacted to.

    >>> web = labelled('app=web')
    >>> old, new = {'metadata': {'labels': {'app': 'web'}}}, {'metadata': {'labels': {'app': 'db'}}}
    >>> web.admits(Change.of('updated', old, new)), web.admits(Change.of('updated', new, new))
    (True, False)
    """
    if isinstance(labels, LabelSelector):
        return _Labelled(labels)
    if isinstance(labels, str):
        return _Labelled(LabelSelector.parse(labels))
    return _Labelled(LabelSelector.from_dict(labels))


def predicate_of(given: AnyPredicate) -> Predicate:
    """Return the predicate of a function of `(old, new)`; a predicate stays as it is.

    >>> has_data = predicate_of(lambda old, new: bool((new or old).get('data')))
    >>> has_data.admits(Change.of('entered', None, {'data': {'a': '1'}}))
    True
    """
    if isinstance(given, Predicate):
        if is_async(given.admits):
            what = f"predicates=: {type(given).__name__}.admits() is async"
            raise DeclarationError(what, remedy="Write: def admits(self, change)")
        return given
    wanted = "a sync function that takes (old, new)"
    if is_async(given):
        raise DeclarationError(f"predicates=: {_name_of(given)} is async", remedy=f"Give {wanted}")
    require_function("predicates=", given, wanted, None, None)
    return _ByFunction(given)


def require_function(
    argument: str, given: object, wanted: str, *arguments: object, **options: object
) -> None:
    """Raise DeclarationError unless this is a function that can be called so."""
    members, is_class = dir(given), isinstance(given, type)
    is_derived = is_class and issubclass(cast("type", given), Predicate)
    what, remedy = "", f"Give {wanted}"
    if "admits" in members and not is_derived:
        what, remedy = "is not a Predicate", "Derive it from selectcache.predicates.Predicate"
    elif is_derived or (is_class and "__call__" in members):
        what, remedy = "is a class", f"Give an instance: {_name_of(given)}()"
    elif not callable(given):
        what = "is not a function"
    elif not takes(given, *arguments, **options):
        what = f"takes {_count_of(given)}"
    if what:
        raise DeclarationError(f"{argument}: {_name_of(given)} {what}", remedy=remedy)


def _name_of(given: object) -> str:
    name = getattr(given, "__name__", None)
    return shown(given) if name is None else clipped(name)


def _count_of(fn: Callable[..., object]) -> str:
    parameters = signature(fn).parameters.values()
    count = sum(each.kind is not each.VAR_KEYWORD for each in parameters)
    return f"{count or 'no'} argument{'s' * (count != 1)}"


def takes(fn: object, *arguments: object, **options: object) -> bool:
    """Return True if this is a function that can be called so, as far as its signature tells."""
    try:
        signature(cast("Any", fn)).bind(*arguments, **options)
    except ValueError:  # A function that is written in C may have none.
        return True
    except TypeError:
        return False
    return True


def all_of(*groups: Iterable[AnyPredicate]) -> Predicate:
    """Return the predicate that admits what every predicate of all groups admits: those of all sources, and
    those of one. Without any it admits everything.
    """
    parts: list[Predicate] = []
    for each in (predicate_of(each) for group in groups for each in group):
        parts += each.parts if isinstance(each, _All) else (each,)
    return parts[0] if len(parts) == 1 else _All(tuple(parts))
