"""Swap: puts the next state of an informer in the place of the present one. Others replace
only fields of it: while its key is resolved, when a namespace loses its label, and when an index is added.

A change of the filter prepares the next state beside the present one, and `swap` keeps what both need
(`filter_change` says when). `begin` starts the streams of a plan, `replace` those of another declaration.
Both put an empty state in place and keep nothing, so that reads wait until it is complete. `evict` and `drop`
empty the present one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

from kopf_selectcache._errors import StateError
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.core.store.changes import Change, ChangeCause, KnownBy, replaced
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.packing import SiblingPacking, packing_of
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.core.store.record import Record, is_older, rank_of
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.kind_keys import called, text_of
from kopf_selectcache.selectors.selecting import selects
from kopf_selectcache.selectors.selector import Branches
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan, Stream

from .background import IndexBuilder, run_in_thread, trim_heap
from .environment import Environment, sleep_until
from .health import Condition, Health, Subject
from .log import StateLog, context_of, warn_of_needless
from .memory import RETRY_EVICTED_SECONDS, Evicted, Share
from .metrics import Counts
from .reach import AwaitedVersions, Prober, shared_versions
from .reflector import Reflector
from .state import (
    Derived,
    InformerState,
    Split,
    are_stored_alike,
    can_be_read,
    split_streams,
)
from .streams import Resolver, StreamFactory, StreamTasks
from .subscribers import Subscribers

Selects = Callable[[Record], bool | None]
"""Returns whether a filter selects an object; None if that cannot be known."""


class Swap:
    """The present and the next union of a cache whose filter changes, until the step. Pure.

    Groups of streams that both filters have are *kept*: they go on, and the next union takes them over with
    the step. The streams of all other groups are listed beside the present ones. Once these groups are as new
    as all that readers have seen, nobody can see an object go back, disappear or return.
    """

    def __init__(
        self,
        before: Union,
        after: Union,
        kept: Mapping[Substore, Substore],
        *,
        selects: Selects,
        selected: Selects,
    ) -> None:
        """`kept` maps the substores of kept groups to those of the next union. `selects` is of the next
        filter, `selected` of the present one.
        """
        self.before = before
        self.after = after
        self._kept = kept
        self.selects = selects
        self._selected = selected
        self._epoch = before.epoch
        self._ended = [each for each in before.substores if each not in kept]
        self._new = [each for each in after.substores if each not in kept.values()]

    @property
    def is_outdated(self) -> bool:
        """True if the server was restored meanwhile: versions cannot be compared, so all begins anew."""
        return not self.before.epoch == self.after.epoch == self._epoch

    @property
    def is_complete(self) -> bool:
        """True if all lists of the new groups are complete."""
        return not self._new or self.after.version_of(self._new) != ""

    @property
    def seen(self) -> str:
        """The newest version of which readers may have seen something in the groups that end."""
        versions = (each.version for each in self._ended if each.epoch == self._epoch)
        return max(versions, key=rank_of, default="")

    def has_reached(self, version: str) -> bool:
        """Return True if the lists of the new groups are complete, and as new as this version."""
        if not self._new:
            return True
        reached = self.after.version_of(self._new)
        return reached != "" and not is_older(reached, version)

    def records(self) -> list[Record]:
        """Return the records of all streams of the next union."""
        of_kept = (each.view.records()[0] for each in self._kept)
        return list(dict.fromkeys(chain(self.after.newest(), *of_kept)))

    def share(self, record: Record) -> Record:
        """Return the same object as the present union holds it, so that it is in memory only once."""
        held = self.before.store.peek(*record.key)
        is_shared = held is not None and held.compression is record.compression and held.is_same(record)
        return held if held is not None and is_shared else record

    def take(self) -> list[Change]:
        """Have the next union take over the kept groups; return the changes that lead from the present one to
        it: departures, updates, entries; each ordered by namespace and name.
        """
        self.after.take_over(self.before, self._kept)
        before = {record.key: record for record in self.before.store.records()[0]}
        after = {record.key: record for record in self.after.store.records()[0]}
        left, updated, entered = list[Change](), list[Change](), list[Change]()
        for key in sorted(before.keys() | after.keys()):
            old, new = before.get(key), after.get(key)
            if old is new:
                continue
            if old is None or new is None or old.uid != new.uid:
                if old is not None:
                    left.append(self._departure(old, is_replaced=new is not None))
                if new is not None:
                    entered.append(self._entry(new, is_replacing=old is not None))
            elif old.version != new.version:
                updated.append(Change(old, new, ChangeCause.UPDATED))
        return [*left, *updated, *entered]

    def _entry(self, record: Record, *, is_replacing: bool) -> Change:
        filter_changed = not is_replacing and self._selected(record) is False
        return Change(None, record, ChangeCause.ENTERED, filter_changed)

    def _departure(self, record: Record, *, is_replaced: bool) -> Change:
        if is_replaced:
            return replaced(record)
        if self.selects(record) is False:
            known_by: KnownBy | None = "metadata" if self.after.store.has_outside(record) else None
            return Change(record, None, ChangeCause.LEFT, True, known_by)
        return self.after.departure_of(record)


@dataclass(eq=False)
class PreparedState:
    """The next state of an informer, while its streams are synced beside those of the present one."""

    declared: Cached
    packing: SiblingPacking | None
    share: Share
    split: Split
    make_condition: Callable[[Subject], Condition]
    line: str
    """The call that declares the next state."""
    former: InformerState
    """The present state when the change began. An index may be added meanwhile."""
    state: InformerState = field(init=False)
    new: tuple[Reflector, ...] = ()
    """The streams of the next filter alone."""
    swap: Swap = field(init=False)
    prober: Prober = field(init=False)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever the next state may be complete, or may have failed."""
    tasks: dict[Reflector, asyncio.Task[None]] = field(default_factory=dict)
    """The tasks of the new streams."""
    probing: asyncio.Task[None] | None = None

    def new_condition(self, subject: Subject) -> Condition:
        """Return the condition of a new stream, of which nobody else learns before the step."""
        condition = self.make_condition(subject)
        condition.report_to(lambda *_: self.moved.set(), lambda: None)
        condition.line = lambda: self.line
        return condition

    def notify(self, _: Sequence[Change] = ()) -> None:
        """Note a report of one of the streams."""
        if not self.state.union.is_alone:
            self.state.relist_where_needed()
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


class Swapped(Protocol):
    """The informer whose states are put in place."""

    state: InformerState
    declared: Cached
    line: str
    moved: asyncio.Event
    awaited: AwaitedVersions

    @property
    def kind(self) -> Kind | None: ...

    def redeclare(self, declared: Cached, line: str) -> None:
        """Take another declaration, made by this call."""

    def apply_changes(self, changes: Sequence[Change]) -> None:
        """Notify subscribers."""

    def wake_readers(self) -> None:
        """Have waiting reads look again."""

    async def wait_until_settled(self) -> None:
        """Wait until each stream is synced or has failed."""


class _Whole:
    """An informer as the subject of the condition of all of it."""

    def __init__(self, informer: Swapped) -> None:
        self._informer = informer

    def __str__(self) -> str:
        return str(self._informer)

    @property
    def kind(self) -> Kind | None:
        return self._informer.kind

    @property
    def filter(self) -> Branches:
        return self._informer.state.filter

    @property
    def version(self) -> str:
        return self._informer.state.version

    def held(self) -> int:
        return self._informer.state.held()


class Swapper:
    """Makes the states of one informer, and puts each in place of the former one."""

    def __init__(
        self,
        informer: Swapped,
        *,
        environment: Environment,
        counts: Counts,
        share: Share,
        resolver: Resolver,
        subscribers: Subscribers,
    ) -> None:
        self.informer = informer
        self.resolver = resolver
        self._chosen = resolver.chosen
        self._environment = environment
        self._subscribers = subscribers
        self.share = share
        """The bytes that the informer stores, and their limit."""
        self.packing = self._packing_for(informer.declared)
        """The compression of stored objects; None if they are stored unpacked."""
        self.indexing = IndexBuilder(informer.declared.indexes, self._set_indexes)
        self.log = StateLog(informer, clock=environment.clock, logger=environment.logger)
        self.prober: Prober  # Set by `begin`, with the first streams.
        self.tasks = StreamTasks(text_of(resolver.key), environment, informer, lambda: context_of(informer))
        self._factory = StreamFactory(environment, counts)
        self._begun: tuple[Resource, Plan] | None = None
        """The resource and the plan of the present streams; None if others must begin."""

    # ---- The parts of a state.

    def first(self) -> InformerState:
        """Return the state before the cluster has resolved the key."""
        declared = self.informer.declared
        return InformerState(
            declared.filter,
            declared.projection,
            self.indexing.indexes,
            self._new_condition(_Whole(self.informer)),
            followed=self._chosen.of(declared.namespace_labels),
        )

    def _packing_for(self, declared: Cached) -> SiblingPacking | None:
        return packing_of(declared.storage or self._environment.settings.storage)

    def _new_condition(self, subject: Subject, since: float | None = None) -> Condition:
        environment = self._environment
        return Condition(
            subject,
            key=self.resolver.key,
            sync_timeout=environment.settings.sync_timeout,
            clock=environment.clock,
            report=self.log.report,
            unreadable=self.informer.wake_readers,
            unsettled=environment.unsettling.note,
            since=since,
            line=lambda: self.informer.line,
            site=environment.settings.selectors.site,
        )

    def _new_stream_condition(self, subject: Subject) -> Condition:
        resolving = self.informer.state.resolving
        return self._new_condition(subject, None if resolving.has_settled else resolving.since)

    def _set_indexes(self, indexes: Mapping[str, Indexed]) -> None:
        self.informer.state = replace(self.informer.state, indexes=indexes, derived=Derived())

    def _made(
        self,
        state: InformerState,
        planned: Plan,
        union: Union,
        kept: Mapping[Stream, Reflector],
        *,
        projection: Projection,
        indexes: Mapping[str, Indexed],
        packing: SiblingPacking | None,
        share: Share,
        new_condition: Callable[[Subject], Condition],
        notify: Callable[[Sequence[Change]], None],
    ) -> tuple[InformerState, Prober]:
        """Return a state with the streams of a plan, new but for those that are kept, and their prober."""
        assert state.resource is not None, "planned before it was resolved"
        reflectors = tuple(
            kept[stream]
            if stream in kept
            else self._factory.make(
                stream,
                state.resource,
                union,
                substore,
                shared_version,
                projection=projection,
                indexes=indexes.values(),
                packing=packing,
                share=share,
                new_condition=new_condition,
                notify=notify,
            )
            for stream, substore, shared_version in zip(
                planned.streams, union.substores, shared_versions(union), strict=True
            )
        )
        prober = Prober(union, [each.comparison for each in reflectors], environment=self._environment)
        planned_state = replace(
            state,
            filter=planned.filter,
            projection=projection,
            indexes=indexes,
            plan=planned,
            union=union,
            reflectors=reflectors,
            derived=Derived(),
            followed=self._chosen.of(planned.labels),
            lost=frozenset(),
        )
        return planned_state, prober

    def _put(self, state: InformerState, prober: Prober | None) -> None:
        """Put a state in place, which its own writes follow. The caller holds their lock."""
        self.indexing.replace(state.indexes, state.union, state.reflectors)
        if prober is not None:
            self.prober = prober
        self.informer.state = state

    def _end(self, reflectors: Iterable[Reflector]) -> None:
        """Forget the streams of a former state, which no read uses any more."""
        for reflector in reflectors:
            reflector.forget()
            reflector.condition.dismiss()  # Its waiters then wait for the streams of the present state.
        self.informer.awaited.wake()
        self.informer.moved.set()

    # ---- Without a state that is kept.

    def has_begun(self, planned: Plan) -> bool:
        """Return True if the present streams are those of the plan, for the present resource."""
        return self._begun == (self.informer.state.resource, planned)

    def begin(self, planned: Plan, *, is_evicted: bool = False) -> None:
        """Replace the store by an empty one with the planned streams. Subscribers stay, and receive the
        differences once they are known.
        """
        former, resource = self.informer.state, self.informer.state.resource
        assert resource is not None, "planned before it was resolved"
        warn_of_needless(self.informer, planned.needless, logger=self._environment.logger)
        union = Union(
            [stream.keys for stream in planned.streams],
            request_index=self.indexing.want,
            tally=self.share.begin(),
            version=self._chosen.version(planned.labels),
            own_writes=former.own_writes,
        )
        state, prober = self._made(
            former,
            planned,
            union,
            {},
            projection=former.projection,
            indexes=former.indexes,
            packing=self.packing,
            share=self.share,
            new_condition=self._new_stream_condition,
            notify=self.informer.apply_changes,
        )
        self.log.begin(state.resolving, state.stream_conditions)
        self._begun = resource, planned
        with state.own_writes.lock:
            union.settle_own()
            self._put(state, prober)
        self._leave(former, is_evicted=is_evicted)

    def _leave(self, former: InformerState, *, is_evicted: bool = False) -> None:
        """Forget a former state. Subscribers keep the identities of its objects."""
        self._end(former.reflectors)
        records = former.store.records()[0] if self._subscribers else ()
        self._subscribers.drop(records, is_evicted=is_evicted)

    async def evict(self) -> None:
        """Drop the store, which exceeds its limit, and report it. Return when it may be listed again."""
        self.resolver.again.clear()
        self._evict()  # No variable here holds the former state.
        await run_in_thread(trim_heap)
        environment = self._environment
        pause = environment.sleep(RETRY_EVICTED_SECONDS * (0.5 + environment.chance()))
        await sleep_until(self.resolver.again, pause)

    def _evict(self) -> None:
        state = self.informer.state
        assert state.plan is not None, "nothing was planned"
        assert self.share.excess is not None, "nothing is too much"
        let_go = Evicted(self.share.excess, self.informer.declared.filter)
        state.resolving.fail(let_go)
        self.begin(state.plan, is_evicted=True)
        for condition in self.informer.state.stream_conditions:
            condition.fail(let_go)

    def drop(self) -> None:
        """Drop the stored objects, after the end of the informer. Reads that hold the previous state are
        answered from it.
        """
        former = self.informer.state
        with former.own_writes.lock:
            self._put(
                replace(
                    former,
                    is_resolving=True,
                    union=Union(own_writes=former.own_writes),
                    reflectors=(),
                    derived=Derived(),
                ),
                None,
            )
        self._end(former.reflectors)

    async def replace(self, declared: Cached) -> None:
        """Begin anew with another declaration, since no state must be kept; raise its error."""
        informer, former = self.informer, (self.informer.declared, self.informer.line)
        self._restart(declared, called(self.resolver.key))
        try:
            await informer.wait_until_settled()
        except asyncio.CancelledError:
            self._restart(*former)
            raise
        if (error := informer.state.part().error) is not None:
            self._restart(*former)
            raise error

    def _restart(self, declared: Cached, line: str) -> None:
        """Run the streams of another declaration: no reader needs the objects of the present one."""
        informer, former = self.informer, self.informer.state
        share = self.share.successor(declared.max_bytes)
        share.take_over()
        informer.redeclare(declared, line)
        self.share, self.packing, self._begun = share, self._packing_for(declared), None
        with former.own_writes.lock:
            self._put(
                replace(
                    former,
                    filter=declared.filter,
                    projection=declared.projection,
                    indexes=self.indexing.with_slots(declared.indexes),
                    is_resolving=True,
                    # No object of one filter may be read as one of the other.
                    union=Union(own_writes=former.own_writes),
                    reflectors=(),
                    plan=None,
                    derived=Derived(),
                    followed=self._chosen.of(declared.namespace_labels),
                    lost=frozenset(),
                ),
                None,
            )
        self.tasks.end()
        self.resolver.again.set()
        former.resolving.reset()
        self._leave(former)
        self._chosen.look()

    # ---- Beside a state that is kept (`filter_change`).

    def prepare(self, declared: Cached, planned: Plan | None = None) -> PreparedState | None:
        """Return the next state, with its streams; None if there is no present one that must be kept."""
        informer, state, resource = self.informer, self.informer.state, self.informer.state.resource
        if state.is_resolving or resource is None or state.plan is None:
            return None
        planned = planned or self.resolver.plan(declared, resource)
        share = self.share.successor(declared.max_bytes)
        is_alike = are_stored_alike(declared, informer.declared, state.indexes)
        packing = self.packing if is_alike else self._packing_for(declared)
        split = split_streams(state, informer.declared, declared, planned)
        union = Union(
            [stream.keys for stream in planned.streams],
            request_index=self.indexing.want,
            tally=share.tally,
            version=self._chosen.version(planned.labels),
            epoch=state.union.epoch,
        )
        prepared = PreparedState(
            declared,
            packing,
            share,
            split,
            self._new_condition,
            informer.line if declared is informer.declared else called(self.resolver.key),
            state,
        )
        prepared.state, prepared.prober = self._made(
            state,
            planned,
            union,
            split.kept,
            projection=declared.projection,
            indexes=self.indexing.with_slots(declared.indexes),
            packing=packing,
            share=share,
            new_condition=prepared.new_condition,
            notify=prepared.notify,
        )
        substores = dict(zip(planned.streams, union.substores, strict=True))
        prepared.swap = swap = Swap(
            state.union,
            union,
            {each.substore: substores[stream] for stream, each in split.kept.items()},
            selects=lambda record: selects(planned.filter, record, resource, state.projection),
            selected=lambda record: selects(state.filter, record, resource, declared.projection),
        )
        share.records = swap.records
        prepared.new = tuple(each for each in prepared.state.reflectors if each.stream in split.opened)
        for each in prepared.new:
            each.writer.share = swap.share
        return prepared

    def inherit_writes(self, prepared: PreparedState) -> None:
        """Take over the own writes. Those that come from now on must be laid over both states."""
        present = self.informer.state
        is_alike = are_stored_alike(prepared.declared, self.informer.declared, present.indexes)
        with present.own_writes.lock, prepared.state.own_writes.lock:
            prepared.state.own_writes.inherit(present.own_writes, prepared.swap.selects if is_alike else None)
            prepared.state.union.settle_own()

    async def index(self, prepared: PreparedState) -> None:
        """Compute the values of indexes that the present state lacks; raise IndexFailed."""
        present = self.informer.state.indexes
        added = [
            each
            for name, each in prepared.state.indexes.items()
            if not (name in present and present[name].stored_as == each.stored_as)
        ]
        if added:  # New streams have read the values off whole objects.
            await self.indexing.compute(added, prepared.swap.records(), prepared.share.tally)

    def oversized(self, prepared: PreparedState) -> StateError:
        """Return the error of a next state that is larger than it may be."""
        state = prepared.state
        condition = prepared.new_condition(state.reflectors[0].writer)
        assert prepared.share.excess is not None, "nothing is too much"
        condition.fail(Evicted(prepared.share.excess, prepared.declared.filter, is_next=True))
        error = condition.error()
        assert error is not None, "it can't be read"
        return error

    def swap(self, prepared: PreparedState) -> None:
        """Replace the present state by the next one, and notify the subscribers of the differences."""
        informer, former, share = self.informer, self.informer.state, prepared.share
        added = former.indexes.items() - prepared.former.indexes.items()
        if added:
            projection = prepared.state.projection
            is_alike = projection == former.projection
            stored = {name: each for name, each in added if is_alike or can_be_read(each, projection)}
            prepared.state = replace(prepared.state, indexes=stored | dict(prepared.state.indexes))
        state, split = prepared.state, prepared.split
        assert state.resource is not None, "the present state has it"
        assert state.plan is not None, "it was planned"
        differences = prepared.swap.take()
        for stream, substore in zip(state.plan.streams, state.union.substores, strict=True):
            if (reflector := split.kept.get(stream)) is not None:
                reflector.follow(state.union, substore, informer.apply_changes, share)
        for reflector in prepared.new:
            reflector.attach(informer.apply_changes, share)
        informer.redeclare(prepared.declared, prepared.line)
        self.packing, self._begun = prepared.packing, (state.resource, state.plan)
        with former.own_writes.lock, state.own_writes.lock:
            state.union.settle_own()  # Kept streams hold now what they held before.
            # Requests need the substores of kept streams.
            self._put(self._chosen.hide(replace(state)), prepared.prober)
        # From here on no read uses the streams that end.
        self.tasks.exchange(split.ended, prepared.tasks, prepared.probing)
        for store in former.union.stores:
            store.release()
        self._end(split.ended)
        share.take_over()
        self.share = share
        for reflector in prepared.new:
            reflector.condition.report_to(self.log.report, informer.wake_readers)
            reflector.condition.line = lambda: informer.line
        self.log.begin(state.resolving, state.stream_conditions)
        informer.apply_changes(differences)

    async def discard(self, prepared: PreparedState) -> None:
        """End the new streams, and give back their memory."""
        tasks = [*prepared.tasks.values()]
        if prepared.probing is not None:
            tasks.append(prepared.probing)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for store in prepared.state.union.stores:
                store.release()
            for reflector in prepared.new:
                reflector.forget()
            prepared.share.give_up()
