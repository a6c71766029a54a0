"""Informer: maintains the cache of one kind. Resolves the key, runs the streams of its filter, and restarts
them.

It never ends by itself: failures are retried with backoff, and reported to the conditions of its streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from kopf_selectcache.core.selection.kinds import Kind, KindKey, find
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.record import Keep
from kopf_selectcache.selectors.kind_keys import assigned, text_of
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan

from .audit import Auditor
from .environment import Ending, Environment
from .filter_change import FilterChange
from .health import Health, Mistake
from .log import context_of
from .memory import Budget
from .metrics import Counts
from .namespaces import ChosenNamespaces, NamespacesByLabel, unfollowed
from .reach import AwaitedVersions
from .state import InformerState
from .streams import Claims, Resolver
from .subscribers import Completed, Listener, PendingWrites, Resyncer, Subscribers
from .swap import Swapper


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
        line: str | None = None,
        followed: NamespacesByLabel | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.key = text_of(key)
        """The declared key, for messages."""
        self.line = line or assigned(key)
        """The assignment or the call that declares the kind, for messages."""
        self.ending = Ending()  # The removal of this cache: reads that wait for it end then.
        self.counts = Counts()
        self.declared = declared
        """All that is declared of the kind."""
        self.environment = environment
        """Its settings, transport, logger, random source, clock and sleep."""
        self.moved = asyncio.Event()
        """Set whenever reads that wait must look again."""
        self.awaited = AwaitedVersions()
        """Futures that wait until the leaves up to a version are confirmed."""
        self.waiting_handlers = 0
        """The number of handlers that wait until the cache is as new as their body."""
        self.next_wait_log = 0.0
        """The earliest time of the next log line about them."""
        self._is_resolved = resolved  # Called whenever the cluster has resolved the key.
        self._subscribers = Subscribers(self, environment.logger)
        self.chosen = ChosenNamespaces(
            self,
            followed or unfollowed(),
            environment=environment,
            watched=namespaces,
            changed=changed,
        )
        """The namespaces that it serves because of their labels."""
        self.chosen.use(declared.chosen_filter)
        self.resolver = Resolver(
            key,
            self,
            environment=environment,
            claims=claims or Claims(),
            namespaces=namespaces,
            chosen=self.chosen,
        )
        """Asks the cluster what the key means, and plans the streams."""
        self.swapper = Swapper(
            self,
            environment=environment,
            counts=self.counts,
            share=(budget or Budget()).share(key, declared.max_bytes),
            resolver=self.resolver,
            subscribers=self._subscribers,
        )
        """Puts the next state in the place of the present one."""
        self.state: InformerState = self.swapper.first()
        """The state that reads use, replaced in one assignment. A read takes one reference."""
        self.filter_change = FilterChange(self.swapper, environment)
        """Changes of the filter and the options."""
        self.pending_writes = PendingWrites(
            lambda: self.states, self, environment=environment, context=lambda: context_of(self)
        )
        self.auditor = Auditor(
            lambda: self.state, self.counts, environment=environment, context=lambda: context_of(self)
        )
        """Compares the stored objects with the server."""
        self._resyncer = Resyncer(
            declared.resync,
            environment,
            store=lambda: self.state.store,
            is_synced=lambda: self.state.is_synced and self.is_complete,
            notify=self._notify,
        )

    def __str__(self) -> str:
        return str(self.state.resource) if self.state.resource is not None else self.key

    # ---- The present state.

    def redeclare(self, declared: Cached, line: str) -> None:
        """Set the declaration, and the line that made it. The swapper replaces the state as well."""
        self.declared, self.line = declared, line
        self._resyncer.set_period(declared.resync)

    @property
    def states(self) -> tuple[InformerState, ...]:
        """The present state, and the next one while the filter changes: both show own writes."""
        prepared = self.filter_change.prepared
        return (self.state,) if prepared is None else (self.state, prepared.state)

    @property
    def kind(self) -> Kind | None:
        """The kind; None until a custom resource is resolved. Built-in kinds are known from the start."""
        resource = self.state.resource
        return resource.kind if resource is not None else find(self.resolver.key)

    async def wait_until_settled(self, request: Selector | None = None) -> None:
        """Wait until each stream, or each that the request needs, is synced or has failed."""

        async def wait() -> None:
            while True:
                state = self.state
                part = state.part(request)
                if state.is_resolving and part.error is not None:
                    return
                if (unsettled := state.unsettled(request)) is not None:
                    await unsettled.wait_until_settled()
                    continue
                if part.error is not None or part.store.version:
                    return
                self.moved.clear()  # Each of several streams must reach the version of the newest list.
                await self.moved.wait()

        await self.ending.limit(wait())

    async def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Wait until a condition of its state is met."""

        async def wait() -> None:
            while not is_reached():
                self.moved.clear()
                await self.moved.wait()

        await self.ending.limit(wait())

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
        self.moved.set()
        self._subscribers.notify(change)

    def wake_readers(self) -> None:
        """Have waiting reads look again: they must raise, or the filter has changed."""
        self._notify(None)

    async def run(self) -> None:
        """Maintain the cache until cancelled. A bug in this package causes a restart, and never ends the
        operator.
        """
        self.chosen.start()
        try:
            await self._run()
        finally:
            await self.chosen.stop()

    async def _run(self) -> None:
        environment = self.environment
        while True:
            try:
                planned = await self.resolver.retry(self.resolve, self.state.resolving, self.counts)
                await self._run_streams(planned)
                if self.swapper.share.excess is not None:
                    await self.swapper.evict()
            except Exception as error:
                environment.logger.exception(
                    "The cache of %(resource)s failed because of a bug in kopf_selectcache, and starts"
                    " again.",
                    {"resource": str(self)},
                    extra=context_of(self),
                )
                self.state.resolving.fail(Mistake(type(error).__name__))
                await environment.rest()

    def mark_resolving(self) -> None:
        """Note that the cluster is asked which kind the key names."""
        self.state = replace(self.state, is_resolving=True)
        self.environment.unsettling.note()

    def mark_resolved(self) -> None:
        """Note that the cluster has resolved the key, and the streams run."""
        self.state = replace(self.state, is_resolving=False)
        self.state.resolving.reset()
        self.swapper.log.forget(self.state.resolving)

    def look_again(self) -> None:
        """Ask now whether the cluster serves the kind: somebody has seen that it does."""
        self.resolver.again.set()
        for each in self.state.reflectors:
            each.look_again()

    async def _run_streams(self, planned: Plan) -> None:
        """Run the streams until the cluster stops to serve the resource, which may come back in another
        version, or until the store exceeds its limit.
        """
        condition = self.state.resolving
        let_go = condition.health is Health.OVERSIZED  # The store is empty already.
        # After the resource was missing, its objects may be gone. Several streams would notice that one by
        # one.
        if not self.swapper.has_begun(planned) or (self.state.has_several_streams and not let_go):
            self.swapper.begin(planned)
        self.mark_resolved()
        if not self.state.reflectors:
            self.apply_changes(())  # It is complete already.
        self.chosen.look()
        beside = {
            "its indexes": self.swapper.indexing.run,
            "own writes": self.pending_writes.run,
            "resync": self._resyncer.run,
        }
        if self.environment.settings.audit_interval:
            beside["audit"] = self.auditor.run
        tasks = [self.swapper.tasks.start_beside(what, work) for what, work in beside.items()]
        if self.resolver.is_provisional:
            name = f"selectcache: {self.key}, its resource"
            tasks.append(asyncio.create_task(self.resolver.run(), name=name))
        probe = self.swapper.prober.run if self.state.has_several_streams else None
        await self.swapper.tasks.run(self.state.reflectors, probe, tasks, ends=self._note_end_of_streams)

    def _note_end_of_streams(self) -> None:
        self.mark_resolving()
        self.filter_change.interrupt()
        for each in self.state.reflectors:
            each.condition.dismiss()  # Its waiters then wait for the condition of resolving.

    def resume(self) -> None:
        """Open all watches again: their connections may be dead."""
        for each in self.state.reflectors:
            each.resume()

    def apply_changes(self, changes: Sequence[Change]) -> None:
        """Notify subscribers, and all who wait for a change of the state."""
        self.moved.set()
        for change in changes:
            self._subscribers.notify(change)
        union = self.state.union
        if self._subscribers.await_completion and union.store.version:
            self._subscribers.complete(union.departure_of)
        if not union.is_alone:
            self.state.relist_where_needed()
            self.swapper.prober.look()
        self.swapper.log.look()
        if self.awaited:
            self._release_confirmed()

    def _release_confirmed(self) -> None:
        oldest = self.state.union.unconfirmed.oldest()
        if oldest is None:
            self.awaited.wake()
        elif oldest.since:
            self.awaited.reach(oldest.since)

    async def resolve(self) -> Plan:
        """Ask the cluster which kind the key names; return the plan of the streams."""
        resource = await self.resolver.resolve(self.line)
        self.state = replace(self.state, resource=resource)
        self._is_resolved()
        if resource.kind.namespaced is not False:
            await self.chosen.wait_known()
        return await self.resolver.find_plan(self.declared, resource)
