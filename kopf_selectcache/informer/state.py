"""InformerState: the filter, plan, store, projection and indexes of one informer, as one immutable value.

The informer replaces it in one assignment. A read takes one reference, and so never sees half of a change.

`Split` has the streams that a change of the filter keeps, opens and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from kopf_selectcache._errors import NotSynced, StateError
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.own_writes import OwnWrites
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Readable, Store
from kopf_selectcache.core.store.substore import Keys, Substore, groups_of
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.selecting import selects
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan, Stream

from .health import Condition
from .reflector import Reflector


def selecting(
    planned: Plan, union: Union, resource: Resource, projection: Projection
) -> Callable[[Substore, Record], bool]:
    """Return a function that returns False if a stream is known not to select an object."""
    streams = dict(zip(union.substores, planned.streams, strict=True))

    def may_select(substore: Substore, record: Record) -> bool:
        stream = streams[substore]
        return stream.is_outside or selects(stream.selector, record, resource, projection) is not False

    return may_select


class Needed(NamedTuple):
    """The streams and the store that one request needs."""

    reflectors: tuple[Reflector, ...]
    """The streams that could hold objects of the request."""
    near: tuple[Reflector, ...]
    """The streams that must have been listed before it can be answered."""
    store: Readable


class Followed(Protocol):
    """The namespaces that have one label (`namespaces`)."""

    label: LabelSelector

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of following them."""

    @property
    def is_known(self) -> bool:
        """True if it is known which namespaces have the label."""

    def unreadable(self) -> tuple[StateError | None, str, str] | None:
        """Return the error that reads must raise, a message and a remedy; None if reads may be answered."""

    def age(self) -> float | None:
        """Return the seconds since the server last confirmed them."""

    def present(self) -> Present:
        """Return them, and the version as of which they are known."""


class Present(NamedTuple):
    """The namespaces that have a label, as of one version."""

    names: frozenset[str]
    version: str


class Serving(NamedTuple):
    """The namespaces that a filter chooses by label, as one read needs them."""

    followed: tuple[Followed, ...]
    error_of: Callable[[str], NotSynced | StateError | None]
    """Returns why a namespace cannot be synced; None if it may be."""
    lost: frozenset[str]
    watched: Collection[str] | None
    """The namespaces that the operator watches; None for all."""


class Derived:
    """A slot for the value that reads derive from one state, such as memoised comparisons with its filter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class InformerState:
    """One version of all that a read depends on."""

    filter: Selector | AnyOf
    """The declared filter; once planned, restricted to the namespaces of the operator."""
    projection: Projection
    """The part of each object that is stored."""
    indexes: Mapping[str, Indexed]
    """The declared and added indexes, by name."""
    resolving: Condition
    """The condition of asking the cluster what the key means, and of the informer as a whole."""
    is_resolving: bool = True
    """True while the cluster is asked what the key means."""
    resource: Resource | None = None
    """The resolved key; None until the cluster has resolved it."""
    plan: Plan | None = None
    """The plan of the streams; None before the first one."""
    union: Union = field(default_factory=Union)
    reflectors: tuple[Reflector, ...] = ()
    own_writes: OwnWrites = field(default_factory=OwnWrites)
    """The own writes that its streams have not reported yet. Reads show them."""
    derived: Derived = field(default_factory=Derived)
    followed: tuple[Followed, ...] = ()
    """The namespaces that the filter chooses by label."""
    lost: frozenset[str] = frozenset()
    """The namespaces that have lost a label since the streams were planned. The store has their objects
    still, and reads do not."""
    needed: Callable[[Selector], Needed] = field(init=False, repr=False)
    """Returns the streams and the store that a request needs, if there are several streams. Memoised."""

    store: Store = field(init=False, repr=False)
    """The stored objects of all streams."""
    stream_conditions: tuple[Condition, ...] = field(init=False, repr=False)
    has_several_streams: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", self.union.store)
        object.__setattr__(self, "stream_conditions", tuple(each.condition for each in self.reflectors))
        object.__setattr__(self, "has_several_streams", len(self.reflectors) > 1)
        object.__setattr__(self, "needed", lru_cache(1024)(self._needed()))

    def _needed(self) -> Callable[[Selector], Needed]:
        # A cached method would hold this state, and so all objects, until the next garbage collection.
        union, substores = self.union, {each: each.substore for each in self.reflectors}
        kind = self.resource.domains if self.resource is not None else None

        def needed(request: Selector) -> Needed:
            found = tuple(each for each in substores if not each.filter.disjoint(request, kind=kind))
            found = found or tuple(substores)
            holding = [substores[each] for each in found]
            near = union.near(holding)
            return Needed(
                found,
                tuple(each for each, substore in substores.items() if substore in near),
                union.needed(holding),
            )

        return needed

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that the health of the informer depends on: those of the streams; while the key is
        resolved, that of resolving and those of missing streams.
        """
        streams, followed = self.stream_conditions, self.followed_conditions
        if self.is_resolving or not (streams or followed):
            return self.resolving, *(each for each in streams if each.is_missing), *followed
        return (*streams, *followed) if followed else streams

    @property
    def followed_conditions(self) -> tuple[Condition, ...]:
        """The conditions of the namespaces that the filter chooses by label."""
        return tuple(condition for each in self.followed for condition in each.conditions)


def are_stored_alike(declared: Cached, other: Cached, present: Mapping[str, Indexed]) -> bool:
    """Return True if both store the same part of each object in the same form, and the stored objects have
    all values of the indexes, or can give them. `present` has the indexes of the other one, by name.
    """
    return (declared.projection, declared.storage) == (
        other.projection,
        other.storage,
    ) and not _needs_whole_objects(declared, present)


def _needs_whole_objects(declared: Cached, present: Mapping[str, Indexed]) -> bool:
    """Return True if an index that is not present reads a part of the objects that is not stored."""
    return not all(
        each.late or _has_values(each, present.get(each.name)) or can_be_read(each, declared.projection)
        for each in declared.indexes
    )


def can_be_read(index: Indexed, projection: Projection) -> bool:
    """Return True if the stored part of each object has the values of an index."""
    return not projection.partial or (index.path is not None and projection.exact(index.path))


def _has_values(index: Indexed, present: Indexed | None) -> bool:
    """Return True if the stored objects have its values, read off whole objects."""
    return present is not None and not present.late and present.is_like(index)


class Relist(StrEnum):
    """Why a change opens a stream, and does not keep one."""

    NEW = "new selector"
    PROJECTION = "another part of each object is stored"
    STORAGE = "objects are stored in another form"
    INDEX = "an index reads a part of each object that is not stored"
    INCOMPLETE = "the present list is not complete"
    MOVING = "its objects may move to or from another watch"


@dataclass(frozen=True)
class Split:
    """The streams of a change."""

    kept: Mapping[Stream, Reflector]
    """The present streams that the next filter keeps."""
    opened: Mapping[Stream, Relist]
    """The streams that it opens, with the reason for each."""
    ended: tuple[Reflector, ...]
    """The present streams that it ends."""

    def __str__(self) -> str:
        opened = ", ".join(f"{stream.selector} ({why})" for stream, why in self.opened.items())
        new = f"{len(self.opened)} new{f', {clipped(opened)}' if opened else ''}"
        return f"watches: {new}; {len(self.kept)} kept, {len(self.ended)} closed"


def split_streams(state: InformerState, before: Cached, declared: Cached, planned: Plan) -> Split:
    """Return the streams that a change from one declaration to another keeps, opens and ends. It keeps whole
    groups: the streams that could hold the same objects.
    """
    present = {each.stream: each for each in state.reflectors}
    streams = {each.substore: each.stream for each in state.reflectors}
    groups = {frozenset(map(streams.get, group)) for group in state.union.groups}
    opened: dict[Stream, Relist] = {}
    for keyed in groups_of(_Keyed(stream, stream.keys) for stream in planned.streams):
        group = frozenset(each.stream for each in keyed)
        found = {stream: _relist(stream, present, state, before, declared) for stream in group}
        if group not in groups or any(found.values()):
            opened |= {stream: why or Relist.MOVING for stream, why in found.items()}
    kept = {stream: present[stream] for stream in planned.streams if stream not in opened}
    return Split(
        kept,
        {stream: opened[stream] for stream in planned.streams if stream in opened},
        tuple(each for each in state.reflectors if each.stream not in kept),
    )


class _Keyed(NamedTuple):
    stream: Stream
    keys: Keys


def _relist(
    stream: Stream,
    present: Mapping[Stream, Reflector],
    state: InformerState,
    before: Cached,
    declared: Cached,
) -> Relist | None:
    """Return why a stream cannot be kept; None if it can."""
    if stream not in present:
        return Relist.NEW
    if declared.projection != before.projection:
        return Relist.PROJECTION
    if declared.storage != before.storage:
        return Relist.STORAGE
    if _needs_whole_objects(declared, state.indexes):
        return Relist.INDEX
    if not (state.union.has_one_epoch and _is_complete(present[stream])):
        return Relist.INCOMPLETE
    return None


def _is_complete(reflector: Reflector) -> bool:
    substore = reflector.substore
    return reflector.goes_on and bool(substore.version) and substore.view.stages_nothing
