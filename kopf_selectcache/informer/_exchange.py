"""Exchange: prepares the next state of an informer beside the present one, and puts it into its place.

`filter_change` says when. No method here waits for a stream, except `replace`, which has no present state to
keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from kopf_selectcache._errors import SelectCacheError, StateError
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.own_writes import OwnWrites
from kopf_selectcache.core.store.siblings import SiblingPacking
from kopf_selectcache.core.store.swap import Swap
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.kind_keys import called
from kopf_selectcache.selectors.selecting import selects
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan

from ._messages import Subject
from ._readiness import ReadablePart
from ._streams import StreamFactory, StreamTasks
from ._versions import AwaitedVersions, shared_versions
from .environment import Environment
from .health import Condition, Health
from .index_builder import IndexBuilder
from .log import Logged
from .memory import LetGo, Share
from .reach import Prober
from .reflector import Reflector
from .state import (
    Derived,
    Followed,
    InformerState,
    Split,
    are_stored_alike,
    can_be_read,
    selecting,
    split_streams,
)


@dataclass(eq=False)
class Next:
    """The next state of an informer, while its streams are synced beside those of the present one."""

    declared: Cached
    swap: Swap
    state: InformerState
    packing: SiblingPacking | None
    share: Share
    split: Split
    make_condition: Callable[[Subject], Condition]
    line: str
    """The call that declares the next state."""
    former: InformerState
    """The present state when the change began. An index may be added meanwhile."""
    prober: Prober = field(init=False)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever the next state may be complete, or may have failed."""
    tasks: dict[Reflector, asyncio.Task[None]] = field(default_factory=dict)
    """The tasks of the new streams."""
    probing: asyncio.Task[None] | None = None

    @property
    def new(self) -> tuple[Reflector, ...]:
        """The streams of the next filter alone."""
        return tuple(each for each in self.state.reflectors if each.stream in self.split.opened)

    def new_condition(self, subject: Subject) -> Condition:
        """Return the condition of a new stream, of which nobody else learns before the step."""
        condition = self.make_condition(subject)
        condition.report_to(lambda *_: self.moved.set(), lambda: None)
        condition.line = lambda: self.line
        return condition

    def notify(self, _: Sequence[Change] = ()) -> None:
        """Note a report of one of the streams."""
        union = self.state.union
        if not union.is_alone:
            for substore, reason in union.pop_streams_to_relist().items():
                self.state.reflectors[union.substores.index(substore)].relist(reason)
        self.prober.look()
        self.moved.set()

    @property
    def is_new_enough(self) -> bool:
        """True if no reader can see an object go back, disappear or return with the step."""
        return self.swap.has_reached(self.swap.seen)

    def error(self) -> StateError | None:
        """Return the error for which the next state will not be complete by itself; None if there is none.
        Reads raise errors of streams of both filters already.
        """
        errors = [each.condition.error() for each in self.new]
        return next((error for error in errors if error is not None and not error.transient), None)

    @property
    def is_synced(self) -> bool:
        """True if all lists of the next state are complete, and its streams follow the server."""
        return self.swap.is_complete and all(each.condition.health is Health.SYNCED for each in self.new)


class LabelledNamespaces(Protocol):
    """The namespaces that an informer serves because of their labels (`namespaces`)."""

    def of(self, labels: Iterable[LabelSelector]) -> tuple[Followed, ...]:
        """Return the namespaces of label selectors that are followed."""

    def version(self, labels: Iterable[LabelSelector]) -> str:
        """Return the version as of which their namespaces are known."""

    def unknown(self, declared: Cached, timeout: float) -> SelectCacheError | None:
        """Return why it is not known which namespaces have the labels of a declaration."""

    def hide(self, state: InformerState) -> InformerState:
        """Return a state that serves only namespaces that have their label still."""


class Changed(Logged, Protocol):
    """The parts of an informer that an exchange reads and replaces."""

    declared_key: KindKey
    declared: Cached
    line: str
    state: InformerState
    packing: SiblingPacking | None
    share: Share
    prober: Prober
    begun: tuple[Resource, Plan] | None
    awaited: AwaitedVersions
    indexing: IndexBuilder
    factory: StreamFactory
    tasks: StreamTasks

    @property
    def chosen(self) -> LabelledNamespaces:
        """The namespaces that it serves because of their labels."""

    def held(self) -> int:
        """Return the number of stored objects."""

    def part(self) -> ReadablePart:
        """Return the readable part of the informer."""

    async def wait_until_settled(self) -> None:
        """Wait until each stream is synced or has failed."""

    def restart(self, state: InformerState) -> None:
        """Run the streams of another declaration instead of the present ones. Its state is empty."""

    async def look_at_rights(self, declared: Cached, resource: Resource) -> None:
        """Find out if streams of this declaration may be joined."""

    def plan_for(self, declared: Cached, resource: Resource) -> Plan:
        """Return the streams of a declaration."""

    def packing_for(self, declared: Cached) -> SiblingPacking | None:
        """Return the compression of a declaration."""

    def redeclare(self, declared: Cached, line: str) -> None:
        """Take another declaration, made by this call."""

    def excess_of(self, share: Share, declared: Cached, union: Union) -> LetGo:
        """Return the size of a store that exceeds its limit."""

    def new_condition(self, subject: Subject) -> Condition:
        """Return the condition of a stream."""

    def report_on(self, reflectors: Iterable[Reflector]) -> None:
        """Log the conditions of these streams as well."""

    def apply_changes(self, changes: Sequence[Change]) -> None:
        """Notify subscribers."""


class Exchange:
    """The transaction in which one state of an informer takes the place of another."""

    def __init__(self, informer: Changed, environment: Environment) -> None:
        self._informer = informer
        self._environment = environment

    def prepare(self, declared: Cached) -> Next | None:
        """Return the next state, with its streams; None if there is no present one that must be kept."""
        informer = self._informer
        state, resource = informer.state, informer.state.resource
        if state.is_resolving or resource is None or state.plan is None:
            return None
        planned = informer.plan_for(declared, resource)
        share, own_writes = informer.share.successor(declared.max_bytes), OwnWrites()
        union = Union(
            [stream.keys for stream in planned.streams],
            request_index=informer.indexing.want,
            tally=share.tally,
            version=informer.chosen.version(planned.labels),
            epoch=state.union.epoch,
        )
        is_alike = are_stored_alike(declared, informer.declared, state.indexes)
        share.packing = packing = informer.packing if is_alike else informer.packing_for(declared)
        split = split_streams(state, informer.declared, declared, planned)
        substores = dict(zip(planned.streams, union.substores, strict=True))
        swap = Swap(
            state.union,
            union,
            {each.substore: substores[stream] for stream, each in split.kept.items()},
            selects=lambda record: selects(planned.filter, record, resource, state.projection),
            selected=lambda record: selects(state.filter, record, resource, declared.projection),
        )
        share.records = swap.records
        next_state = replace(
            state,
            filter=planned.filter,
            projection=declared.projection,
            indexes=informer.indexing.with_slots(declared.indexes),
            plan=planned,
            union=union,
            reflectors=(),
            own_writes=own_writes,
            derived=Derived(),
            followed=informer.chosen.of(planned.labels),
            lost=frozenset(),
        )
        following = Next(
            declared,
            swap,
            next_state,
            packing,
            share,
            split,
            informer.new_condition,
            informer.line if declared is informer.declared else called(informer.declared_key),
            state,
        )
        reflectors = []
        for stream, substore, shared_version in zip(
            planned.streams, union.substores, shared_versions(union), strict=True
        ):
            reflector = split.kept.get(stream)
            if reflector is None:
                reflector = informer.factory.make(
                    stream,
                    substore,
                    shared_version,
                    next_state,
                    packing=packing,
                    share=share,
                    new_condition=following.new_condition,
                    notify=following.notify,
                )
                reflector.writer.share = swap.share
            reflectors.append(reflector)
        own_writes.follow(union.substores, selecting(planned, union, resource, declared.projection))
        following.state = replace(next_state, reflectors=tuple(reflectors))
        following.prober = Prober(union, reflectors, resource, environment=self._environment)
        return following

    def inherit_writes(self, following: Next) -> None:
        """Take over the own writes. Those that come from now on must be laid over both states."""
        informer = self._informer
        is_alike = are_stored_alike(following.declared, informer.declared, informer.state.indexes)
        present = informer.state.own_writes
        with present.lock, following.state.own_writes.lock:
            following.state.own_writes.inherit(present, following.swap.selects if is_alike else None)

    async def index(self, following: Next) -> None:
        """Compute the values of indexes that the present state lacks; raise Failed."""
        present = self._informer.state.indexes
        added = [
            each
            for name, each in following.state.indexes.items()
            if not (name in present and present[name].stored_as == each.stored_as)
        ]
        # New streams have read the values off whole objects.
        await self._informer.indexing.compute(added, following.swap.records(), following.share.tally)

    def oversized(self, following: Next) -> StateError:
        """Return the error of a next state that is larger than it may be."""
        state = following.state
        condition = following.new_condition(state.reflectors[0].writer)
        let_go = self._informer.excess_of(following.share, following.declared, state.union)
        condition.fail(replace(let_go, is_next=True))
        error = condition.error()
        assert error is not None, "it can't be read"
        return error

    def exchange(self, following: Next) -> None:
        """Replace the present state by the next one, and notify the subscribers of the differences."""
        informer, former, share = self._informer, self._informer.state, following.share
        added = informer.state.indexes.items() - following.former.indexes.items()
        if added:
            projection = following.state.projection
            is_alike = projection == former.projection
            stored = {name: each for name, each in added if is_alike or can_be_read(each, projection)}
            indexes = stored | dict(following.state.indexes)
            following.state = replace(following.state, indexes=indexes)
        state, split = following.state, following.split
        resource, planned = state.resource, state.plan
        assert resource is not None, "the present state has it"
        assert planned is not None, "it was planned"
        differences = following.swap.take()
        for stream, substore in zip(planned.streams, state.union.substores, strict=True):
            if (reflector := split.kept.get(stream)) is not None:
                reflector.follow(state.union, substore, state.own_writes, informer.apply_changes, share)
        for reflector in following.new:
            reflector.attach(informer.apply_changes, share)
        informer.redeclare(following.declared, following.line)
        informer.prober = following.prober
        informer.packing, informer.begun = following.packing, (resource, planned)
        with former.own_writes.lock, state.own_writes.lock:
            state.own_writes.overtake(lambda key: former.store.peek(*key))
            state.own_writes.join(each.substore for each in split.kept.values())
            state.own_writes.settle(state.union.shown)
            # Requests need the substores of kept streams.
            informer.state = state = informer.chosen.hide(replace(state))
        # From here on no read uses the streams that end.
        informer.indexing.replace(state.indexes, state.union, state.reflectors)
        informer.tasks.exchange(split.ended, following.tasks, following.probing)
        for store in former.union.stores:
            store.release()
        for reflector in split.ended:
            reflector.forget()
            reflector.condition.dismiss()  # Its waiters then wait for the streams of this state.
        share.take_over()
        informer.share = share
        informer.report_on(following.new)
        informer.awaited.wake()
        informer.apply_changes(differences)

    async def discard(self, following: Next) -> None:
        """End the new streams, and give back their memory."""
        tasks = [*following.tasks.values()]
        if following.probing is not None:
            tasks.append(following.probing)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for store in following.state.union.stores:
                store.release()
            for reflector in following.new:
                reflector.forget()
            following.share.give_up()

    async def replace(self, declared: Cached) -> None:
        """Begin anew with another declaration, since no state must be kept; raise its error."""
        informer, former = self._informer, (self._informer.declared, self._informer.line)
        self._redeclare(declared, called(informer.declared_key))
        try:
            await informer.wait_until_settled()
        except asyncio.CancelledError:
            self._redeclare(*former)
            raise
        if (error := informer.part().error) is not None:
            self._redeclare(*former)
            raise error

    def _redeclare(self, declared: Cached, line: str) -> None:
        """Begin anew with another declaration: no reader needs the objects of the present one."""
        informer = self._informer
        share = informer.share.successor(declared.max_bytes)
        share.take_over()
        informer.redeclare(declared, line)
        informer.share = share
        informer.packing = informer.packing_for(declared)
        informer.indexing.indexes = informer.indexing.with_slots(declared.indexes)
        informer.restart(
            replace(
                informer.state,
                filter=declared.filter,
                projection=declared.projection,
                indexes=informer.indexing.indexes,
                is_resolving=True,
                union=Union(),  # No object of one filter may be read as one of the other.
                reflectors=(),
                plan=None,
                derived=Derived(),
                followed=informer.chosen.of(declared.namespace_labels),
                lost=frozenset(),
            )
        )
