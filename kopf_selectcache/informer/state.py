"""InformerState: the filter, plan, store, projection and indexes of one informer, as one immutable value.

The informer replaces it in one assignment. A read takes one reference, and so never sees half of a change.
The state tells the read which part of it can be read, or the error that explains why none can. A failed
stream does not affect requests that do not need it, unless it could hold objects of the same names as a
stream that the request needs together with others (`core.store.union`).

`Split` has the streams that a change of the filter keeps, opens and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from kopf_selectcache._errors import NotSynced, StateError
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import KindKey, Resource
from kopf_selectcache.core.selection.regions import Keys, groups_of
from kopf_selectcache.core.store.claims import OwnWrites
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.core.store.store import Readable, Store
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan, Stream

from .health import Condition, Health
from .reflector import Reflector


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


class CacheDivision(Protocol):
    """How replicas divide caches among themselves."""

    def why_divided(self, key: KindKey, declared: Cached) -> str:
        """Return the reason for which each replica caches its own namespaces of a kind only; empty if each
        caches all.
        """

    def serves(self, namespace: str) -> bool:
        """Return True if divided caches of this replica have a namespace, or will. Any thread may ask."""

    def owner_of(self, namespace: str) -> str:
        """Return the name of the replica that handles a namespace; empty if none does."""


class Undivided:
    """Of an operator without other replicas."""

    def why_divided(self, _: KindKey, __: Cached) -> str:
        return ""

    def serves(self, _: str) -> bool:
        return True

    def owner_of(self, _: str) -> str:
        return ""


class Serving(NamedTuple):
    """The namespaces that a filter chooses by label, as one read needs them."""

    followed: tuple[Followed, ...]
    error_of: Callable[[str], NotSynced | StateError | None]
    """Returns why a namespace cannot be synced; None if it may be."""
    lost: frozenset[str]
    watched: Collection[str] | None
    """The namespaces that the operator watches; None for all."""
    division: CacheDivision | None
    """How replicas divide them; None if they don't."""


NOTHING_YET = Store()
"""A store without a version, for a part that cannot be read."""


class ReadablePart(NamedTuple):
    """The readable part of an informer for one request."""

    error: StateError | None
    """The error that reads must raise; None if the store can be read."""
    store: Readable
    """The store to read. Its version is empty before the first complete lists."""
    message: str = ""
    remedy: str = ""
    """The failure and the one thing to change; empty if the store can be read."""


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
    own_writes: OwnWrites = field(init=False, repr=False)
    """The own writes that its streams have not reported yet. Reads show them."""
    stream_conditions: tuple[Condition, ...] = field(init=False, repr=False)
    has_several_streams: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", self.union.store)
        object.__setattr__(self, "own_writes", self.union.own_writes)
        object.__setattr__(self, "stream_conditions", tuple(each.condition for each in self.reflectors))
        object.__setattr__(self, "has_several_streams", len(self.reflectors) > 1)
        if self.has_several_streams:
            object.__setattr__(self, "needed", lru_cache(1024)(self._needed()))

    def _needed(self) -> Callable[[Selector], Needed]:
        # A cached method would hold this state, and so all objects, until the next garbage collection.
        union, substores = self.union, {each: each.substore for each in self.reflectors}
        namespaces = {each: each.filter.namespaces and {*each.filter.namespaces} for each in self.reflectors}
        kind = self.resource.domains if self.resource is not None else None

        def needed(request: Selector) -> Needed:
            asked = request.namespaces
            found = tuple(
                each
                for each, there in namespaces.items()  # Compared first: there may be a hundred streams.
                if not (asked and there and there.isdisjoint(asked))
                and not each.filter.disjoint(request, kind=kind)
            )
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

    @property
    def version(self) -> str:
        """The version as of which the store is complete; empty before the first complete lists."""
        return self.store.version

    def held(self) -> int:
        """Return the number of stored objects."""
        return len(self.store.records()[0])

    def is_of(self, group: str, plural: str) -> bool:
        """Return True if the key is resolved to this resource, in any version."""
        kind = None if self.resource is None else self.resource.kind
        return kind is not None and (kind.group, kind.plural) == (group, plural)

    def relist_where_needed(self) -> None:
        """Relist the streams that have missed something, as the others show."""
        for substore, reason in self.union.pop_streams_to_relist().items():
            self.reflectors[self.union.substores.index(substore)].relist(reason)

    # ---- Health.

    def worst(self, reflectors: Sequence[Reflector] | None = None) -> Condition:
        """Return the worst condition of some streams, or of all; while the key is resolved, the worst of
        `conditions`.
        """
        conditions: Sequence[Condition] = self.conditions
        if reflectors is not None and self.reflectors and not self.is_resolving:
            conditions = [*(each.condition for each in reflectors), *self.followed_conditions]
        return max(conditions, key=lambda condition: condition.gravity)

    @property
    def health(self) -> Health:
        """The health of its worst stream."""
        return self.worst().health

    @property
    def message(self) -> str:
        """The failure, as a sentence without its full stop; empty if there is none."""
        return self.worst().message

    @property
    def remedy(self) -> str:
        """The one thing to change."""
        return self.worst().remedy

    @property
    def is_synced(self) -> bool:
        """True if all lists are complete, and all watches follow."""
        return self.health is Health.SYNCED

    def lasted(self) -> float:
        """Return for how many seconds it has had its present health: the longest time of such a stream."""
        health = self.health
        return max((each.lasted() for each in self.conditions if each.health is health), default=0.0)

    # ---- What a request needs.

    @property
    def ready(self) -> Store | None:
        """The store, if every request can be answered; else None, and `part` has what can be read."""
        # Each read runs this: a loop without calls takes a third of the time.
        for condition in self.conditions if self.is_resolving else self.stream_conditions:
            if not condition.readable:
                return None
        if self.followed and any(each.unreadable() is not None for each in self.followed):
            return None
        return self.store if self.store.version else None

    def part(self, request: Selector | None = None) -> ReadablePart:
        """Return the readable part of the informer for a request; for None, all of it."""
        for each in self.followed:
            if (unreadable := each.unreadable()) is not None:
                error, message, remedy = unreadable
                return ReadablePart(error, NOTHING_YET, message, remedy)
        if request is None or not self.has_several_streams:
            if self.is_resolving or len(self.stream_conditions) != 1:
                return _part(self.worst(self.reflectors), self.store)
            return _part(self.stream_conditions[0], self.store)
        needed = self.needed(request)
        condition = self.worst(needed.reflectors)
        if not needed.store.version and condition.readable:
            condition = self.worst(needed.near)
        return _part(condition, needed.store)

    def streams_for(self, request: Selector | None = None) -> tuple[Reflector, ...]:
        """Return the streams that a request needs; for None, all."""
        if request is None or not self.has_several_streams:
            return self.reflectors
        return self.needed(request).reflectors

    def age(self, request: Selector | None = None) -> float | None:
        """Return the seconds since the server last confirmed the stored objects; None before the first
        complete list.
        """
        ages = [each.age() for each in self.streams_for(request)]
        ages += [each.age() for each in self.followed]
        return max((age for age in ages if age is not None), default=None) if None not in ages else None

    def unsettled(self, request: Selector | None) -> Condition | None:
        """Return a condition that a request needs, and that has neither been synced nor failed; None if
        there is none.
        """
        needed = (
            [self.resolving] if self.is_resolving else [each.condition for each in self.streams_for(request)]
        )
        return next((each for each in (*self.followed_conditions, *needed) if not each.has_settled), None)

    def has_unconfirmed_up_to(self, version: str, *, besides: ObjectKey) -> bool:
        """Return True if there is an unconfirmed leave of another object up to this version.

        Return False while a stream is unreadable, because nothing can be confirmed then: reads that need that
        stream raise its error.
        """
        return all(each.readable for each in self.conditions) and self.union.has_unconfirmed_up_to(
            version, besides=besides
        )


def _part(condition: Condition, store: Readable) -> ReadablePart:
    if condition.readable and store.version:
        return ReadablePart(None, store)
    return ReadablePart(condition.error(), store, condition.message, condition.remedy)


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
