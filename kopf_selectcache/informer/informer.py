"""Informer: maintains the cache of one kind. Resolves the key, runs the streams of its filter, and restarts
them.

It never ends by itself: failures are retried with backoff, and reported to the conditions of its streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.client.discovery import NotServed, Resolution, search, settle
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.selection.kinds import Kind, KindKey, find
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.own_writes import OwnWrites
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.core.store.record import Keep, ObjectKey
from kopf_selectcache.core.store.siblings import SiblingPacking, packing_of
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.kind_keys import assigned
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan

from ._dictionary_training import run_in_thread, trim_heap
from ._messages import Mistake, Subject
from ._readiness import ReadablePart, age_of, part_for, ready_store, streams_for, wait_until_settled, worst_of
from ._streams import StreamFactory, StreamTasks
from ._versions import AwaitedVersions, shared_versions
from .access_review import may_join
from .audit import Audit, Auditor
from .claims import Claims, warn_provisional
from .ending import Ending
from .environment import Environment, sleep_until
from .filter_change import FilterChange
from .health import Condition, Health, reason_of
from .index_builder import IndexBuilder
from .laying import Laying
from .log import StateLog, context_of, warn_of_needless
from .memory import AGAIN, Budget, LetGo, Share, indexed_bytes
from .metrics import Counts
from .namespaces import ChosenNamespaces, NamespacesByLabel, unfollowed
from .reach import Prober
from .reflector import Reflector
from .state import Derived, InformerState, selecting
from .stream_writer import failure_of
from .subscribers import Completed, Listener, Resyncer, Subscribers

RESOLVED_AGAIN = 60.0
"""Average seconds between two requests for a key whose resource is provisional."""

LONGEST_WAIT = 5.0
"""Seconds that a read waits until its streams are as new as its `at_least=`."""


class Informer:
    """The informer of one declared kind: its state, and the tasks that maintain it."""

    def __init__(
        self,
        key: KindKey,
        declared: Cached,
        *,
        environment: Environment,
        namespaces: tuple[str, ...] | None,
        claims: Claims | None = None,
        resolved: Callable[[], object] = lambda: None,
        budget: Budget | None = None,
        deliver: Callable[[Callable[[Any], object]], Callable[[Any], object]] = lambda listener: listener,
        line: str | None = None,
        followed: NamespacesByLabel | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.key = key if isinstance(key, str) else "/".join(key)
        """The declared key, for messages."""
        self.line = line or assigned(key)
        """The assignment or the call that declares the kind, for messages."""
        self.ending = Ending()  # The removal of this cache: reads that wait for it end then.
        self.counts = Counts()
        self.packing = packing_of(declared.storage or environment.settings.storage)
        """The compression of stored objects; None if they are stored unpacked."""
        self.share = (budget or Budget()).share(key, declared.max_bytes)
        """The bytes that it stores, and their limit."""
        self.declared_key = key
        self._joins = True
        """False if the server forbids to list all namespaces, so that no streams are joined."""
        self.declared = declared
        """All that is declared of the kind."""
        self._resyncer = Resyncer(
            declared.resync,
            environment,
            store=lambda: self.store,
            is_synced=lambda: self.synced and self.is_complete,
            notify=self._notify,
        )
        self._environment = environment
        self._namespaces = namespaces
        self._claims = claims or Claims()
        self._is_resolved = resolved  # Called whenever the cluster has resolved the key.
        self._subscribers = Subscribers(self, environment.logger, deliver)
        self.prober: Prober  # Set by `begin`, with the first streams.
        self._moved = asyncio.Event()
        self.begun: tuple[Resource, Plan] | None = None
        """The resource and the plan of the present streams; None if others must begin."""
        self._resolution: Resolution | None = None
        self.awaited = AwaitedVersions()
        """Futures that wait until the leaves up to a version are confirmed."""
        self.waiting_handlers = 0
        """The number of handlers that wait until the cache is as new as their body."""
        self.longest_wait = LONGEST_WAIT
        """Seconds that a read waits for its `at_least=`, at most. Fake caches do not wait."""
        self.next_wait_log = 0.0
        """The earliest time of the next log line about them."""
        self.laying = Laying(
            lambda: self.states,
            self,
            environment=environment,
            context=lambda: context_of(self),
        )
        self.factory = StreamFactory(environment, self.counts)
        self._news = StateLog(self, clock=environment.clock, logger=environment.logger)
        self.indexing = IndexBuilder(declared.indexes, self._set_indexes)
        self.state = InformerState(
            declared.filter, declared.projection, self.indexing.indexes, self.new_condition(self)
        )
        """The state that reads use, replaced in one assignment. A read takes one reference."""
        self._auditor = Auditor(
            lambda: self.state, self.counts, environment=environment, context=lambda: context_of(self)
        )
        self.chosen = ChosenNamespaces(
            self,
            followed or unfollowed(),
            environment=environment,
            watched=namespaces,
            changed=changed,
        )
        """The namespaces that it serves because of their labels."""
        self.chosen.use(declared.filter)
        self.state = replace(self.state, followed=self.chosen.of(declared.namespace_labels))
        self.tasks = StreamTasks(self.key, environment, self, lambda: context_of(self))
        self._again = asyncio.Event()
        """Set if the streams may be planned anew without a pause."""
        self.filter_change = FilterChange(self, environment, self.tasks.start)
        """Changes of the filter and the options."""

    def __str__(self) -> str:
        return str(self.resource) if self.resource is not None else self.key

    # ---- The present state.

    def redeclare(self, declared: Cached, line: str) -> None:
        """Set the declaration, and the line that made it. `filter_change` replaces the state as well."""
        self.declared, self.line = declared, line
        self._resyncer.set_period(declared.resync)

    @property
    def resource(self) -> Resource | None:
        return self.state.resource

    @property
    def filter(self) -> Selector | AnyOf:
        return self.state.filter

    @property
    def projection(self) -> Projection:
        return self.state.projection

    @property
    def indexes(self) -> Mapping[str, Indexed]:
        return self.state.indexes

    @property
    def own_writes(self) -> OwnWrites:
        """The own writes that its streams have not reported yet. Reads show them."""
        return self.state.own_writes

    @property
    def states(self) -> tuple[InformerState, ...]:
        """The present state, and the next one while the filter changes: both show own writes."""
        following = self.filter_change.following
        return (self.state,) if following is None else (self.state, following.state)

    @property
    def store(self) -> Store:
        return self.state.store

    @property
    def reflectors(self) -> tuple[Reflector, ...]:
        """The streams. They are replaced if the cluster serves the kind differently, or the store
        is dropped.
        """
        return self.state.reflectors

    @property
    def version(self) -> str:
        """The version as of which the store is complete; empty before the first complete lists."""
        return self.store.version

    def held(self) -> int:
        """Return the number of stored objects."""
        return len(self.store.records()[0])

    @property
    def kind(self) -> Kind | None:
        """The kind; None until a custom resource is resolved. Built-in kinds are known from the start."""
        return self.resource.kind if self.resource is not None else find(self.declared_key)

    def is_of(self, group: str, plural: str) -> bool:
        """Return True if the key is resolved to this resource, in any version."""
        kind = None if self.resource is None else self.resource.kind
        return kind is not None and (kind.group, kind.plural) == (group, plural)

    # ---- Health, and what a request needs (`_readiness`).

    @property
    def health(self) -> Health:
        """The health of its worst stream."""
        return self._worst().health

    @property
    def message(self) -> str:
        """The failure, as a sentence without its full stop; empty if there is none."""
        return self._worst().message

    @property
    def remedy(self) -> str:
        """The one thing to change."""
        return self._worst().remedy

    def _worst(self) -> Condition:
        return worst_of(self.state, self.state.reflectors)

    @property
    def synced(self) -> bool:
        """True if all lists are complete, and all watches follow."""
        return self.health is Health.SYNCED

    @property
    def ready(self) -> Store | None:
        """The store, if every request can be answered; else None, and `part` has what can be read."""
        state = self.state
        if state.is_resolving:
            return ready_store(state)
        # Each read runs this: a loop without calls takes a third of the time.
        for condition in state.stream_conditions:
            if not condition.readable:
                return None
        if state.followed:
            return ready_store(state)
        return state.store if state.store.version else None

    @property
    def environment(self) -> Environment:
        """Its settings, transport, logger, random source, clock and sleep."""
        return self._environment

    @property
    def has_several_streams(self) -> bool:
        """True if it has several streams, so that a request may need some of them only."""
        return self.state.has_several_streams

    def condition_of(self, reflector: Reflector) -> Condition:
        """Return the condition of a stream; while the key is resolved, that of resolving."""
        return worst_of(self.state, (reflector,))

    def part(self, request: Selector | None = None) -> ReadablePart:
        """Return the readable part of the informer for a request; for None, all of it."""
        return part_for(self.state, request)

    def streams_for(self, request: Selector | None = None) -> tuple[Reflector, ...]:
        """Return the streams that a request needs; for None, all."""
        return streams_for(self.state, request)

    def age(self, request: Selector | None = None) -> float | None:
        """Return the seconds since the server last confirmed the stored objects; None before the first
        complete list.
        """
        return age_of(self.state, request)

    async def wait_until_settled(self, request: Selector | None = None) -> None:
        """Wait until each stream, or each that the request needs, is synced or has failed."""
        await self.ending.limit(wait_until_settled(lambda: self.state, request, self._moved))

    async def wait_complete(self) -> None:
        """Wait until all lists are complete."""
        await self.wait_until(lambda: bool(self.version))

    async def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Wait until a condition of its state is met."""

        async def wait() -> None:
            while not is_reached():
                self._moved.clear()
                await self._moved.wait()

        await self.ending.limit(wait())

    def is_unconfirmed(self, namespace: str, name: str) -> bool:
        """Return True if the object left a stream and is still stored: another stream may have it, or it may
        be deleted.
        """
        return self.state.union.is_unconfirmed((namespace, name))

    @property
    def has_unconfirmed(self) -> bool:
        """True if there are unconfirmed leaves."""
        return bool(self.state.union.unconfirmed)

    def has_unconfirmed_up_to(self, version: str, *, besides: ObjectKey) -> bool:
        """Return True if there is an unconfirmed leave of another object up to this version.

        Return False while a stream is unreadable, because nothing can be confirmed then: reads that need that
        stream raise its error.
        """
        state = self.state
        return all(each.readable for each in state.conditions) and state.union.has_unconfirmed_up_to(
            version, besides=besides
        )

    def lasted(self) -> float:
        """Return for how many seconds it has had its present health: the longest time of such a stream."""
        return max(
            (each.lasted() for each in self.state.conditions if each.health is self.health), default=0.0
        )

    def subscribe(
        self, listener: Listener, completed: Completed = lambda: None, keep: Keep = lambda _: True
    ) -> Callable[[], None]:
        """Call the listener, on the loop's thread, with each change, and with None when reads must raise or
        the filter has changed; return the function that ends the subscription.

        It survives restarts of the informer: the listener receives the differences only. `completed` is
        called when the store is complete, for the first time and after each restart. `keep` returns what
        the subscriber needs of an object that is evicted (`subscribers`).
        """
        return self._subscribers.add(listener, completed, keep)

    @property
    def is_complete(self) -> bool:
        """True if all lists of the present store are complete, and subscribers were told."""
        return not self._subscribers.await_completion

    @property
    def is_current(self) -> bool:
        """True if the store is complete and all watches are open. Between two watches, the cluster may have
        stopped to serve the kind.
        """
        state = self.state
        are_open = all(each.is_watching and each.comparison.is_open for each in state.reflectors)
        return self.is_complete and not state.is_resolving and are_open

    def _notify(self, change: Change | None) -> None:
        self._moved.set()
        self._subscribers.notify(change)

    def new_condition(self, subject: Subject, since: float | None = None) -> Condition:
        """Return the condition of a stream, or of resolving the key."""
        environment = self._environment
        return Condition(
            subject,
            key=self.declared_key,
            sync_timeout=environment.settings.sync_timeout,
            clock=environment.clock,
            report=self._news.report,
            unreadable=self.wake_readers,
            unsettled=environment.unsettling.note,
            since=since,
            line=lambda: self.line,
            site=environment.settings.selectors.site,
        )

    def wake_readers(self) -> None:
        """Have waiting reads look again: they must raise, or the filter has changed."""
        self._notify(None)

    def _new_stream_condition(self, subject: Subject) -> Condition:
        resolving = self.state.resolving
        return self.new_condition(subject, None if resolving.has_settled else resolving.since)

    def _set_indexes(self, indexes: Mapping[str, Indexed]) -> None:
        self.state = replace(self.state, indexes=indexes, derived=Derived())

    async def run(self) -> None:
        """Maintain the cache until cancelled. A bug in this package causes a restart, and never ends the
        operator.
        """
        try:
            await self._run()
        finally:
            await self.chosen.stop()

    async def _run(self) -> None:
        environment = self._environment
        while True:
            try:
                await self._run_streams(await self._resolved())
                if self.share.excess is not None:
                    self._again.clear()
                    self._let_go()
                    await run_in_thread(trim_heap)
                    await sleep_until(self._again, environment.sleep(AGAIN * (0.5 + environment.chance())))
            except Exception as error:
                environment.logger.exception(
                    "The cache of %(resource)s failed because of a bug in kopf_selectcache, and starts"
                    " again.",
                    {"resource": str(self)},
                    extra=context_of(self),
                )
                self.state.resolving.fail(Mistake(type(error).__name__))
                await environment.sleep(delay(6, environment.chance()))

    def mark_resolving(self) -> None:
        """Note that the cluster is asked which kind the key names."""
        self.state = replace(self.state, is_resolving=True)
        self._environment.unsettling.note()

    def mark_resolved(self) -> None:
        """Note that the cluster has resolved the key, and the streams run."""
        self.state = replace(self.state, is_resolving=False)
        self.state.resolving.reset()
        self._news.forget(self.state.resolving)

    def look_again(self) -> None:
        """Ask now whether the cluster serves the kind: somebody has seen that it does."""
        self._again.set()
        for each in self.reflectors:
            each.look_again()

    async def _run_streams(self, planned: Plan) -> None:
        """Run the streams until the cluster stops to serve the resource, which may come back in another
        version, or until the store exceeds its limit.
        """
        condition = self.state.resolving
        let_go = condition.health is Health.OVERSIZED  # The store is empty already.
        # After the resource was missing, its objects may be gone. Several streams would notice that one by
        # one.
        if (self.resource, planned) != self.begun or (self.has_several_streams and not let_go):
            self.begin(planned)
        self.mark_resolved()
        if not self.reflectors:
            self.apply_changes(())  # It is complete already.
        self.chosen.look()
        beside = {
            "its indexes": self.indexing.run,
            "own writes": self.laying.run,
            "resync": self._resyncer.run,
        }
        if self._environment.settings.audit_interval:
            beside["audit"] = self._auditor.run
        tasks = [self.tasks.start_beside(what, work) for what, work in beside.items()]
        if self._resolution is not None and self._resolution.refused:
            tasks.append(
                asyncio.create_task(
                    self._resolve_again(self._resolution), name=f"selectcache: {self.key}, its resource"
                )
            )
        probe = self.prober.run if self.has_several_streams else None
        await self.tasks.run(self.state.reflectors, probe, tasks, ends=self._note_end_of_streams)

    def _note_end_of_streams(self) -> None:
        self.mark_resolving()
        self.filter_change.interrupt()
        for each in self.state.reflectors:
            each.condition.dismiss()  # Its waiters then wait for the condition of resolving.

    def _let_go(self) -> None:
        """Drop the store, which exceeds its limit, and report its size."""
        state = self.state
        assert state.plan is not None, "nothing was planned"
        let_go = self.excess_of(self.share, self.declared, state.union)
        state.resolving.fail(let_go)
        self.begin(state.plan, is_evicted=True)
        for each in self.state.reflectors:
            each.condition.fail(let_go)

    def excess_of(self, share: Share, declared: Cached, union: Union) -> LetGo:
        """Return the size of a store that exceeds its limit."""
        assert share.excess is not None, "nothing is too much"
        return LetGo(
            share.excess,
            declared.filter,
            packed=self.packing is not None and (self.packing.packs or self.packing.fits),
            indexes=tuple(each.name for each in declared.indexes),
            values=indexed_bytes(union.newest()) if declared.indexes else 0,
        )

    def resume(self) -> None:
        """Open all watches again: their connections may be dead."""
        for each in self.state.reflectors:
            each.resume()

    async def audit(self) -> Audit:
        """Compare the stored objects with the server, and relist the streams that have drifted; raise
        Refused, Unreachable or Garbled.
        """
        return await self._auditor.audit()

    def begin(self, planned: Plan, *, is_evicted: bool = False) -> None:
        """Replace the store by an empty one with the planned streams. Subscribers stay, and receive the
        differences once they are known.
        """
        state, resource, environment = self.state, self.resource, self._environment
        assert resource is not None, "planned before it was resolved"
        warn_of_needless(self, planned.needless, logger=environment.logger)
        self.share.packing = self.packing
        union = Union(
            [stream.keys for stream in planned.streams],
            request_index=self.indexing.want,
            tally=self.share.begin(),
            version=self.chosen.version(planned.labels),
        )
        begun = replace(
            state,
            filter=planned.filter,
            plan=planned,
            union=union,
            reflectors=(),
            derived=Derived(),
            followed=self.chosen.of(planned.labels),
            lost=frozenset(),
        )
        reflectors = tuple(
            self.factory.make(
                *parts,
                begun,
                packing=self.packing,
                share=self.share,
                new_condition=self._new_stream_condition,
                notify=self.apply_changes,
            )
            for parts in zip(planned.streams, union.substores, shared_versions(union), strict=True)
        )
        self._news.begin(state.resolving, [each.condition for each in reflectors])
        self.prober = Prober(union, reflectors, resource, environment=environment)
        self.indexing.begin(union, reflectors)
        self.begun = resource, planned
        with self.own_writes.lock:
            self.own_writes.follow(union.substores, selecting(planned, union, resource, begun.projection))
            self.state = replace(begun, reflectors=reflectors)
        self._leave(state, is_evicted=is_evicted)

    def _leave(self, former: InformerState, *, is_evicted: bool = False) -> None:
        """Forget a former state, which no read uses any more. Subscribers keep the identities of its
        objects.
        """
        for reflector in former.reflectors:
            reflector.condition.dismiss()
            reflector.forget()
        self.awaited.wake()
        self._moved.set()
        records = former.store.records()[0] if self._subscribers else ()
        self._subscribers.drop(records, is_evicted=is_evicted)

    # ---- Changes of the filter (`filter_change`).

    def packing_for(self, declared: Cached) -> SiblingPacking | None:
        """Return the compression of a declaration."""
        return packing_of(declared.storage or self._environment.settings.storage)

    def restart(self, state: InformerState) -> None:
        """Run the streams of another declaration. Its state is empty: no reader needs the present objects."""
        former, self.begun = self.state, None
        with state.own_writes.lock:
            self.state = state
        self.tasks.end()
        self._again.set()
        state.resolving.reset()
        for each in former.reflectors:
            each.condition.dismiss()
        self._leave(former)
        self.chosen.look()

    def report_on(self, reflectors: Iterable[Reflector]) -> None:
        """Log the conditions of these streams as well, which have become those of the present state."""
        for each in reflectors:
            each.condition.report_to(self._news.report, self.wake_readers)
            each.condition.line = lambda: self.line
        self._news.begin(self.state.resolving, self.state.stream_conditions)

    def apply_changes(self, changes: Sequence[Change]) -> None:
        self._moved.set()
        for change in changes:
            self._subscribers.notify(change)
        union = self.state.union
        if self._subscribers.await_completion and union.store.version:
            self._subscribers.complete(union.departure_of)
        if not union.is_alone:
            for substore, reason in union.pop_streams_to_relist().items():
                self.state.reflectors[union.substores.index(substore)].relist(reason)
            self.prober.look()
        self._news.look()
        if self.awaited:
            self._release_confirmed()

    def _release_confirmed(self) -> None:
        oldest = self.state.union.oldest_unconfirmed
        if oldest is None:
            self.awaited.wake()
        elif oldest.since:
            self.awaited.reach(oldest.since)

    async def _resolved(self) -> Plan:
        """Resolve the key, with retries, until the cluster serves it and the filter fits; return the plan."""
        environment, failures, condition = self._environment, 0, self.state.resolving
        while True:
            self._again.clear()
            try:
                return await self.resolve()
            except (NotServed, DeclarationError) as error:
                condition.fail(error)
            except (Refused, Unreachable, Garbled) as error:
                failure = failure_of(error)
                self.counts.failures[reason_of(failure)] += 1
                condition.fail(failure, verb="get")
            pause = delay(failures, environment.chance(), slow=condition.error() is not None)
            await sleep_until(self._again, environment.sleep(pause))
            failures += 1

    async def _resolve_again(self, before: Resolution) -> None:
        """Return once groups have answered that refused, and the key means another resource."""
        environment = self._environment
        while before.refused:
            await environment.sleep(RESOLVED_AGAIN * (0.5 + environment.chance()))
            try:
                found = await search(environment.transport, self.declared_key)
            except (NotServed, Refused, Unreachable, Garbled):
                continue
            if found.improves(before):
                if found.resource != before.resource:
                    return
                before = self._resolution = found
        await asyncio.get_running_loop().create_future()  # The resource is certain: the streams go on.

    async def resolve(self) -> Plan:
        """Ask the cluster which kind the key names; return the plan of the streams."""
        environment, before = self._environment, self._resolution
        found = await settle(
            environment.transport, self.declared_key, sleep=environment.sleep, chance=environment.chance
        )
        self._resolution, resource = found, found.resource
        self._claims.claim(self.declared_key, resource, line=self.line, logger=environment.logger)
        if found.refused and (before is None or before.refused.keys() != found.refused.keys()):
            warn_provisional(self.key, found, logger=environment.logger)
        self.state = replace(self.state, resource=resource)
        self._is_resolved()
        if resource.kind.namespaced is not False:
            await self.chosen.wait_known()
        self._joins = True  # The operator may have the permission now.
        await self.look_at_rights(self.declared, resource)
        return self.plan_for(self.declared, resource)

    async def look_at_rights(self, declared: Cached, resource: Resource) -> None:
        """Find out if streams of this declaration may be joined, before it is planned."""
        planned = self.plan_for(declared, resource)
        if not planned.joined or await may_join(planned, resource, self._environment.transport):
            return
        self._joins = False
        self._environment.logger.info(
            "The operator does not have permission to list %(resource)s in all namespaces, so the cache"
            " watches"
            " each of %(count)s namespaces.",
            {
                "resource": str(self),
                "count": f"{sum(len(each.selector.namespaces or ()) for each in planned.joined):,}",
            },
            extra=context_of(self),
        )

    def plan_for(self, declared: Cached, resource: Resource) -> Plan:
        """Return the streams of a declaration."""
        labelled = self.chosen.sets(declared) if resource.kind.namespaced is not False else None
        return declared.plan(resource, namespaces=self._namespaces, labelled=labelled, joins=self._joins)
