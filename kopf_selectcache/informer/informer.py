"""The cache of one declared kind: what its key means, which lists and watches keep it, and how it is doing as
a whole.

It never dies: whatever goes wrong is waited for and tried again, and told in the health of the feed. What of
it a read needs, and only that, decides whether the read is answered: one branch that may not be watched
spoils no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from kopf_selectcache._errors import DeclarationError, StateError
from kopf_selectcache.client.discovery import NotServed, resolve
from kopf_selectcache.client.fetcher import Shared
from kopf_selectcache.client.transport import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.protocol.query import is_beyond_server
from kopf_selectcache.core.selection.kinds import Key, Kind, find
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.compression import packing_of
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.store import Cause, Change, Readable, Store
from kopf_selectcache.core.store.substore import Branch
from kopf_selectcache.core.store.substore import Key as ObjectKey
from kopf_selectcache.core.store.union import Merging
from kopf_selectcache.selectors.kind_keys import assigned, unserved
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan, Stream, plan

from ._awaited_versions import AwaitedVersions
from ._confirmer import Confirming
from .audit import Audit, audited
from .causes import reason
from .claims import Claims
from .dictionary_training import apart, give_back
from .environment import World
from .health import Condition, Health
from .index_builder import Indexing
from .list_version import AgreedVersion, agreed_versions
from .log import News, context_of
from .memo import Memo
from .memory import AGAIN, Budget, told
from .metrics import Counts
from .phrase import Phrase
from .reflector import Listwatch
from .stream_writer import StreamWriter, failure_of

PAGES_AT_ONCE = 20
"""So many lists and watches of one cache may ask for a page at the same time. A filter over 100 namespaces
has 100 of them."""


Listener: TypeAlias = Callable[[Change | None], None]
"""A subscriber of changes. None means that reads must raise."""


class Part(NamedTuple):
    """What an answer needs of a cache: all of it, or some of its lists and watches."""

    error: StateError | None
    """What reads must raise, since it cannot be kept."""
    store: Readable
    """What to read. Its version is empty before the first complete lists."""
    trouble: str
    remedy: str
    """What is in the way, and the one thing to change; empty if nothing is."""


class Needed(NamedTuple):
    """What a request needs of a cache that several lists and watches keep."""

    listwatches: tuple[Listwatch, ...]
    """Those that could hold something of what is asked for."""
    near: tuple[Listwatch, ...]
    """Those that must have been listed before it can be answered."""
    store: Readable


class Feed:
    """The cache of one declared kind: its store, and the tasks that keep it."""

    def __init__(
        self,
        key: Key,
        declared: Cached,
        *,
        world: World,
        namespaces: tuple[str, ...] | None,
        claims: Claims | None = None,
        resolved: Callable[[], object] = lambda: None,
        budget: Budget | None = None,
        deliver: Callable[[Listener], Listener] = lambda listener: listener,
    ) -> None:
        self.key = key if isinstance(key, str) else "/".join(key)
        """As it was declared, for messages."""
        self.resource: Resource | None = None
        """None until the cluster has been asked what the key means."""
        self.filter: Selector | AnyOf = declared.filter
        """As declared; once the resource is known, with the namespaces that the operator is confined to."""
        self.projection = declared.projection
        """What is kept of each object."""
        self.memo = Memo()
        self.counts = Counts()
        self.packing = packing_of(declared.storage or world.settings.storage)
        """How objects are packed, if they may be."""
        self.share = (budget or Budget()).share(key, declared.max_bytes)
        """How much it holds, and may hold."""
        self._key = key
        self._declared = declared
        self._world = world
        self._namespaces = namespaces
        self._claims = claims or Claims()
        self._is_resolved = resolved  # Told whenever it has become known what the key means.
        self.indexing = Indexing(declared.indexes)
        self._listeners: list[Listener] = []
        self._deliver = deliver  # Makes of a subscriber what is called with changes.
        self._merging = Merging()
        self._confirming: Confirming  # With the first lists and watches.
        self._listwatches: tuple[Listwatch, ...] = ()
        self._needed = self._needing()
        self._moved = asyncio.Event()
        self.awaited = AwaitedVersions()
        """Those who wait until the leaves up to a version are confirmed."""
        self.waiting_handlers = 0
        """How many handlers wait for it to be as new as what they were called with."""
        self.next_wait_log = 0.0
        """When the next line about them may be logged."""
        self._turns = asyncio.Semaphore(PAGES_AT_ONCE)
        self._comparing = asyncio.Semaphore(PAGES_AT_ONCE)
        self._audit: Shared[Audit] | None = None
        self._kept_as: tuple[Resource, Plan] | None = None
        self._news = News(self, clock=world.clock, logger=world.logger)
        self._conditions = [
            self._new_condition()
        ]  # Of each list and watch; the first, before there are any, of the feed itself.
        self.is_resolving = True
        """True while the cluster is asked what the key means."""

    def __str__(self) -> str:
        return str(self.resource) if self.resource is not None else self.key

    @property
    def indexes(self) -> dict[str, Indexed]:
        """Those that are declared or were added, by name."""
        return self.indexing.indexes

    @property
    def store(self) -> Store:
        """What is held."""
        return self._merging.store

    @property
    def version(self) -> str:
        """The version as of which all of it is held; empty before the first complete lists."""
        return self.store.version

    def held(self) -> int:
        """Return how many objects are held."""
        return len(self.store.records()[0])

    @property
    def kind(self) -> Kind | None:
        """What is cached, as far as it is known: of a built-in kind before the cluster is asked."""
        return self.resource.kind if self.resource is not None else find(self._key)

    def is_of(self, group: str, plural: str) -> bool:
        """Return True if it is known to be of this resource, in whichever version."""
        return self.resource is not None and (self.resource.kind.group, self.resource.kind.plural) == (
            group,
            plural,
        )

    # ---- How it is doing: as a whole, or what a request needs of it.

    @property
    def health(self) -> Health:
        """How the cache is doing: as badly as its worst list and watch."""
        return self._worst(self._listwatches).health

    @property
    def trouble(self) -> str:
        """What is in the way, as a sentence without its full stop; empty if nothing is."""
        return self._worst(self._listwatches).trouble

    @property
    def remedy(self) -> str:
        """The one thing to change."""
        return self._worst(self._listwatches).remedy

    @property
    def synced(self) -> bool:
        """Whether the cache holds what the server had, and follows."""
        return self.health is Health.SYNCED

    @property
    def ready(self) -> Store | None:
        """What is held, where nothing is in the way of any read of it; else None, and `part` says what of it
        can be read.
        """
        for condition in self._conditions:
            if not condition.readable:
                return None
        store = self._merging.store
        return store if store.version else None

    @property
    def listwatches(self) -> tuple[Listwatch, ...]:
        """The streams that keep it; others once the cluster serves the kind differently, or the cache is let
        go.
        """
        return self._listwatches

    @property
    def world(self) -> World:
        """Its clock, sleep, randomness, transport and log."""
        return self._world

    def condition_of(self, listwatch: Listwatch) -> Condition:
        """Return the condition of a stream; while it is asked what the key means, that of the feed."""
        return self._worst((listwatch,))

    @property
    def parted(self) -> bool:
        """Whether several lists and watches keep it, so that a request may need but some of them."""
        return len(self._listwatches) > 1

    def part(self, request: Selector | None = None) -> Part:
        """Return what of it an answer to the request needs.

        A list and watch that cannot be kept spoils no answer that does not need it, unless it could hold
        objects of the same names as one that the answer needs together with others (`core.store.union`).
        """
        if request is None or not self.parted:
            condition = self._worst(self._listwatches)
            return Part(condition.error(), self.store, condition.trouble, condition.remedy)
        needed = self._needed(request)
        condition = self._worst(needed.listwatches)
        if not needed.store.version and condition.error() is None:
            condition = self._worst(needed.near)
        return Part(condition.error(), needed.store, condition.trouble, condition.remedy)

    def is_unconfirmed(self, namespace: str, name: str) -> bool:
        """Return whether an object is held although a watch has told that it left: another watch may hold it,
        or it may be gone.
        """
        return self._merging.is_unconfirmed((namespace, name))

    def age(self, request: Selector | None = None) -> float | None:
        """Return the seconds since the server last confirmed what is held; None before the first complete
        list.
        """
        ages = [each.age() for each in self._listwatches_for(request)]
        return max((age for age in ages if age is not None), default=None) if None not in ages else None

    def _worst(self, listwatches: Sequence[Listwatch]) -> Condition:
        """Return the worst of their conditions; while it is asked what the key means, that of the feed, and
        why it is asked.
        """
        if not self.parted:
            return self._conditions[0]
        conditions = [each.condition for each in listwatches]
        if self.is_resolving:
            conditions = [
                self._conditions[0],
                *(each for each in self._conditions if each.health is Health.MISSING),
            ]
        return max(conditions, key=lambda condition: condition.gravity)

    def _listwatches_for(self, request: Selector | None) -> tuple[Listwatch, ...]:
        return self._listwatches if request is None or not self.parted else self._needed(request).listwatches

    def _needing(self) -> Callable[[Selector], Needed]:
        """Return what tells what a request needs, and remembers it for as long as these lists and watches are
        kept.
        """
        listwatches, merging, kind = (
            self._listwatches,
            self._merging,
            self.resource.domains if self.resource is not None else None,
        )

        def needed(request: Selector) -> Needed:
            found = (
                tuple(each for each in listwatches if not each.filter.disjoint(request, kind=kind))
                or listwatches
            )
            branches = [each.branch for each in found]
            near = merging.near(branches)
            return Needed(
                found, tuple(each for each in listwatches if each.branch in near), merging.needed(branches)
            )

        return lru_cache(1024)(needed)

    async def settled(self, request: Selector | None = None) -> None:
        """Wait until each list and watch, or each that the request needs, is synced, or has said why it is
        not.
        """
        while True:
            if waited := [
                condition for condition in self._conditions_for(request) if not condition.has_settled
            ]:
                await waited[0].settled()
            elif self._is_incomplete(request):
                self._moved.clear()
                await self._moved.wait()
            else:
                return

    def _is_incomplete(self, request: Selector | None) -> bool:
        """Whether nothing is in the way, and not all has come: of several watches, each has to reach the
        newest list.
        """
        part = self.part(request)
        return part.error is None and not part.store.version

    def _conditions_for(self, request: Selector | None) -> Sequence[Condition]:
        if self.is_resolving:
            return self._conditions[:1]
        return [each.condition for each in self._listwatches_for(request)]

    @property
    def has_doubts(self) -> bool:
        """True if a stream let an object go that another stream may have."""
        return bool(self._merging.doubts)

    def has_unconfirmed(self, version: str, *, besides: ObjectKey) -> bool:
        """Return True if another object is shown that left a stream before this version, and may be in
        another stream.

        Nobody can confirm anything while one of the streams cannot be kept: reads that need it raise why.
        """
        return all(condition.readable for condition in self._conditions) and self._merging.has_doubts_before(
            version, besides=besides
        )

    def lasted(self) -> float:
        """Return for how many seconds it has been in its present state: since the first of its lists and
        watches was.
        """
        return max((each.lasted() for each in self._conditions if each.health is self.health), default=0.0)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener, on the loop's thread, with each change, and with None when reads must raise;
        return what ends that.

        The subscription survives a restart of the informer. The listener receives each departure once, with
        its cause and the last known record; what the next list finds enters again.
        """
        listener = self._deliver(listener)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _notify(self, change: Change | None) -> None:
        self._moved.set()
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:  # It is the listener's trouble alone.
                self._world.logger.exception(
                    "Somebody who is told of changes in the cache of %(resource)s failed.",
                    {"resource": str(self)},
                    extra=context_of(self),
                )

    def _new_condition(self) -> Condition:
        world = self._world
        return Condition(
            self,
            declared=assigned(self._key),
            sync_timeout=world.settings.sync_timeout,
            clock=world.clock,
            listener=self._news,
            unreadable=lambda: self._notify(None),
        )

    async def run(self) -> None:
        """Keep the cache until cancelled. A mistake of ours costs a relist, never the operator."""
        world = self._world
        while True:
            try:
                await self._kept(await self._resolved())
                if self.share.excess is not None:
                    self._let_go()
                    await apart(give_back)
                    await world.sleep(AGAIN * (0.5 + world.chance()))
            except Exception as error:
                world.logger.exception(
                    "The cache of %(resource)s stumbled over a mistake of its own, and starts again.",
                    {"resource": str(self)},
                    extra=context_of(self),
                )
                self._conditions[0].mistaken(error)
                await world.sleep(delay(6, world.chance()))

    async def _kept(self, planned: Plan) -> None:
        """Keep it until the cluster does not serve the resource any more, as it may come back in another
        version; or until it is too large.
        """
        let_go = self._conditions[0].health is Health.OVERSIZED  # It begins as it was left.
        if (self.resource, planned) != self._kept_as or (
            self.parted and not let_go
        ):  # What was not served may be no more, branch by branch.
            self.begin(planned)
        self._conditions[0].subject = self._listwatches[0]
        tasks = [
            asyncio.create_task(each.run(), name=f"selectcache: {self.key}, {each.filter}")
            for each in self._listwatches
        ]
        beside = {"its indexes": self.indexing.run} | (
            {"unconfirmed leaves": self._confirming.run} if self.parted else {}
        )
        if self._world.settings.audit_interval:
            beside["audit"] = self._audit_regularly
        tasks += [
            asyncio.create_task(self._again_and_again(work), name=f"selectcache: {self.key}, {what}")
            for what, work in beside.items()
        ]
        self.is_resolving = False
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.is_resolving = True
            for condition in self._conditions[1:]:
                condition.dismiss()  # Whoever waits for it, waits for what the cluster says now.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _let_go(self) -> None:
        """Say how much was held, which was too much, and hold nothing any more."""
        excess, kept_as = self.share.excess, self._kept_as
        assert excess is not None, "nothing is too much"
        assert kept_as is not None, "nothing was kept"
        why = told(
            self,
            self._key,
            excess,
            self._declared.filter,
            self._merging.newest(),
            kind=kept_as[0].domains,
            limit=self._declared.max_bytes,
            packed=self.packing is not None and (self.packing.packs or self.packing.fits),
            others=self._declared.is_particular,
            indexes=self.indexes,
        )
        self._conditions[0].oversized(*why)
        self.begin(kept_as[1], cause=Cause.EVICTED)
        for condition in self._conditions[1:]:
            condition.oversized(*why)

    def resume(self) -> None:
        """Open all watches anew: nobody knows which connections are still alive."""
        for each in self._listwatches:
            each.resume()

    async def _again_and_again(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what has no end. A mistake in it spoils no list and watch."""
        world = self._world
        while True:
            try:
                await work()
            except Exception:
                world.logger.exception(
                    "What is done beside the cache of %(resource)s stumbled over a mistake of its own, and"
                    " starts again.",
                    {"resource": str(self)},
                    extra=context_of(self),
                )
                await world.sleep(delay(6, world.chance()))

    async def _audit_regularly(self) -> None:
        world = self._world
        while True:
            await world.sleep(world.settings.audit_interval * (0.5 + world.chance()))
            try:
                await self.audit()
            except (
                Refused,
                Unreachable,
                Garbled,
            ) as error:  # What is wrong, the lists and watches find as well.
                why = (
                    f"the server answers {error.refusal.code} {error.refusal.reason}"
                    if isinstance(error, Refused)
                    else error
                )
                world.logger.info(
                    "The cache of %(resource)s could not be compared with the server: %(why)s. It is tried"
                    " again.",
                    {"resource": str(self), "why": str(why)},
                    extra=context_of(self),
                )

    async def audit(self) -> Audit:
        """Compare what is held with the server, and relist what has drifted; raise Refused, Unreachable or
        Garbled.

        Who asks while an audit is under way shares it.
        """
        if self._audit is None or self._audit.given_up:
            self._audit = Shared(self._audited())
        return await self._audit.result()

    async def _audited(self) -> Audit:
        resource, whole = self.resource, Audit()
        failed: Exception | None = None
        for each in self._listwatches:
            if resource is None or not each.version:
                continue
            try:
                found = await audited(each.stream, each.branch, resource, world=self._world)
            except (Refused, Unreachable, Garbled) as error:
                failed = error
                self.counts.failures["audit"] += 1
                if isinstance(error, Refused) and is_beyond_server(error.refusal):
                    each.relist(
                        "audit"
                    )  # Only a consistent list can tell whether the server lags or was restored.
                continue
            self.counts.audits += 1
            if not found:
                self.counts.drift += found.drift
                self._world.logger.warning(
                    "The cache of %(resource)s with %(filter)s has drifted from the server: %(drift)s. It is"
                    " listed anew.",
                    {"resource": str(self), "filter": str(each.filter), "drift": str(found)},
                    extra=context_of(self),
                )
                each.relist("audit")
            whole += found
        if failed is not None:
            raise failed
        return whole

    def begin(self, planned: Plan, *, cause: Cause = Cause.REPLACED) -> None:
        """Start with an empty store, ready to run the planned streams. Subscribers stay, and receive the
        departure of each object that was held.
        """
        resource, world = self.resource, self._world
        assert resource is not None, "planned before it was resolved"
        for needless in planned.needless:
            world.logger.warning(
                "The filter of %(resource)s: %(selector)s selects nothing that the other selectors do not.",
                {"resource": str(self), "selector": str(needless)},
                extra=context_of(self),
            )
        departed = self.store.records()[0] if self._listeners else []
        self.awaited.wake()
        for listwatch in self._listwatches:
            listwatch.forget()
        self._merging = Merging(
            [stream.keys for stream in planned.streams], wanted=self.indexing.want, tally=self.share.begin()
        )
        self._conditions[1:] = [self._new_condition() for _ in planned.streams[1:]]
        self._news.begin(self._conditions)
        self._listwatches = tuple(
            self._listwatch(*parts, resource)
            for parts in zip(
                planned.streams,
                self._merging.branches,
                self._conditions,
                agreed_versions(self._merging),
                strict=True,
            )
        )
        for listwatch in self._listwatches:
            listwatch.condition.subject = listwatch
        self._confirming = Confirming(
            self._merging, planned.streams, resource, world=world, notify=self.apply_changes
        )
        self._needed = self._needing()
        self.indexing.begin(self._merging, self._listwatches)
        self._kept_as = resource, planned
        for record in departed:
            self._notify(Change(record, None, cause))

    def _listwatch(
        self,
        stream: Stream,
        branch: Branch,
        condition: Condition,
        agreed: AgreedVersion | None,
        resource: Resource,
    ) -> Listwatch:
        writer = StreamWriter(
            self._merging,
            branch,
            condition,
            clock=self._world.clock,
            counts=self.counts,
            logger=self._world.logger,
            notify=self.apply_changes,
        )
        return Listwatch(
            stream,
            writer,
            resource,
            world=self._world,
            counts=self.counts,
            projection=self.projection,
            packing=self.packing,
            share=self.share,
            all_kept=self._merging.writing,
            agreed=agreed,
            turns=self._turns,
            comparing=self._comparing,
        )

    def apply_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._notify(change)
        self._moved.set()
        for branch, why in self._merging.take_outdated().items():
            self._listwatches[self._merging.branches.index(branch)].relist(why)
        self._confirming.look()
        self._news.look()
        if self.awaited:
            self._release_confirmed()

    def _release_confirmed(self) -> None:
        oldest = self._merging.oldest_doubt
        if oldest is None:
            self.awaited.wake()
        elif oldest.version:
            self.awaited.reach(oldest.version)

    async def _resolved(self) -> Plan:
        """Ask until the cluster knows the kind, and the filter fits it; return how it is to be kept."""
        world, failures, condition = self._world, 0, self._conditions[0]
        condition.subject = self
        while True:
            try:
                return await self.resolve()
            except NotServed as error:
                self.report_missing(
                    error,
                    Phrase(
                        "%(advice)s; it is looked for again and again",
                        advice=unserved(self._key, assigned(self._key)),
                    ),
                )
            except DeclarationError as error:
                condition.rejected(
                    Phrase("%(problem)s", problem=error.what)
                    if str(self) in error.what
                    else Phrase("the filter of %(resource)s: %(problem)s", resource=self, problem=error.what),
                    Phrase("%(advice)s", advice=error.remedy),
                )
            except (Refused, Unreachable, Garbled) as error:
                failure = failure_of(error)
                self.counts.failures[reason(failure)] += 1
                condition.troubled(failure, verb="get")
            await world.sleep(delay(failures, world.chance(), slow=condition.error() is not None))
            failures += 1

    def report_missing(self, error: NotServed, remedy: Phrase) -> None:
        """Report that the cluster does not serve the kind."""
        self._conditions[0].missing(Phrase("%(problem)s", problem=error), remedy)

    async def resolve(self) -> Plan:
        """Ask the cluster what the key means; return the planned streams."""
        resource = await resolve(self._world.transport, self._key)
        self._claims.claim(self._key, resource, logger=self._world.logger)
        self.resource = resource
        self._is_resolved()
        planned = plan(
            self._declared.filter,
            resource,
            namespaces=self._namespaces,
            share_watches=self._declared.share_watches,
        )
        self.filter = planned.filter
        return planned
