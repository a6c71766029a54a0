"""InformerState: the filter, plan, store, projection and indexes of one informer, as one immutable value.

The informer replaces it in one assignment. A read takes one reference, and so never sees half of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from kopf_selectcache._errors import NotSynced, StateError
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.own_writes import OwnWrites
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Readable, Store
from kopf_selectcache.core.store.substore import Substore
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.selecting import selects
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.planner import Plan

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


@dataclass(frozen=True, slots=True, eq=False)
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
