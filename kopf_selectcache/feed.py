"""The cache of one declared kind: what its key means, which lists and watches keep it, and how it is doing as a whole.

It never dies: whatever goes wrong is waited for and tried again, and told in the health of the feed. What of it a read
needs, and only that, decides whether the read is answered: one branch that may not be watched spoils no other.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from .auditing import Audit, audited
from .confirming import Confirming
from .core.backoff import delay
from .core.branches import Branch
from .core.fields import Key, Kind, find
from .core.merging import Merging
from .core.problems import Garbled
from .core.protocol import Lost
from .core.resources import Resource
from .core.store import Change, Store
from .core.wire import Refusal
from .declarations import Cached
from .discovery import NotServed, resolve
from .errors import ConflictingSelectors, DeclarationError, StateError
from .fetching import Shared
from .health import Condition, Health
from .keys import likely
from .listwatch import Listwatch, reason
from .observe import Counts
from .planning import Plan, Stream, plan
from .selector import AnyOf, Comparisons, Selector
from .transport import Refused, Unreachable
from .world import World

Claims: TypeAlias = "dict[tuple[str, str], Feed]"
"""Which feed keeps which resource, by API version and plural: several keys may turn out to mean the same."""

_BEYOND = "Too large resource version"
"""What servers say to a version that they have yet to reach. Watches of it are accepted, and silent."""


class Part(NamedTuple):
    """What an answer needs of a cache: all of it, or some of its lists and watches."""

    error: StateError | None
    """What reads must raise, since it cannot be kept."""
    store: Store
    """What to read: of one list and watch what it alone holds, else all. Its version is empty before the first complete lists."""
    trouble: str
    remedy: str
    """What is in the way, and the one thing to change; empty if nothing is."""


class Feed:
    """The cache of one declared kind: its store, and the tasks that keep it."""

    def __init__(
        self, key: Key, declared: Cached, *, world: World, namespaces: tuple[str, ...] | None, claims: Claims | None = None,
    ) -> None:
        self.key = key if isinstance(key, str) else "/".join(key)
        """As it was declared, for messages."""
        self.resource: Resource | None = None
        """None until the cluster has been asked what the key means."""
        self.filter: Selector | AnyOf = declared.filter
        """As declared; once the resource is known, with the namespaces that the operator is confined to."""
        self.projection = declared.projection
        """What is kept of each object."""
        self.comparisons = Comparisons()
        self.counts = Counts()
        self._key = key
        self._declared = declared
        self._world = world
        self._namespaces = namespaces
        self._claims = claims if claims is not None else {}
        self._listeners: list[Callable[[Change | None], None]] = []
        self._merging = Merging()
        self._confirming: Confirming
        self._listwatches: tuple[Listwatch, ...] = ()
        self._moved = asyncio.Event()
        self._audit: Shared[Audit] | None = None
        self._kept_as: tuple[Resource, Plan] | None = None
        self._conditions = [self._new_condition()]   # Of each list and watch; the first, before there are any, of the feed itself.
        self._resolving = True
        self._needed = lru_cache(1024)(self._needed_by)

    def __str__(self) -> str:
        return str(self.resource) if self.resource is not None else self.key

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

    # ---- How it is doing: as a whole, or what a request needs of it.

    @property
    def health(self) -> Health:
        """How the cache is doing: as badly as its worst list and watch."""
        return self._worst().health

    @property
    def trouble(self) -> str:
        """What is in the way, as a sentence without its full stop; empty if nothing is."""
        return self._worst().trouble

    @property
    def remedy(self) -> str:
        """The one thing to change."""
        return self._worst().remedy

    @property
    def synced(self) -> bool:
        """Whether the cache holds what the server had, and follows."""
        return self.health is Health.SYNCED

    @property
    def parted(self) -> bool:
        """Whether several lists and watches keep it, so that a request may need but some of them."""
        return len(self._listwatches) > 1

    def part(self, request: Selector | None = None) -> Part:
        """Return what of it an answer to the request needs.

        What one list and watch alone can hold is read as that one knows it: whatever moves away from it is no answer any
        more. What several can hold is known only when all have told (`core.merging`), and then of all others as well.
        """
        condition, store = self._worst(request), self.store
        if request is not None and self.parted:
            needed = self._needed(request)
            if len(needed) == 1:
                store = needed[0].branch.view
            elif not store.version and condition.error() is None:
                condition = self._worst()
        return Part(condition.error(), store, condition.trouble, condition.remedy)

    def age(self, request: Selector | None = None) -> float | None:
        """Return the seconds since the server last confirmed what is held; None before the first complete list."""
        ages = [each.age() for each in self._listwatches_for(request)]
        return max((age for age in ages if age is not None), default=None) if None not in ages else None

    def _worst(self, request: Selector | None = None) -> Condition:
        if self._resolving or not self.parted:
            return self._conditions[0]
        return max((each.condition for each in self._listwatches_for(request)), key=lambda condition: condition.gravity)

    def _listwatches_for(self, request: Selector | None) -> tuple[Listwatch, ...]:
        return self._listwatches if request is None or not self.parted else self._needed(request)

    def _needed_by(self, request: Selector) -> tuple[Listwatch, ...]:
        """Return the lists and watches that could hold something of what is asked for."""
        kind = self.resource.domains if self.resource is not None else None
        return tuple(each for each in self._listwatches if not each.filter.disjoint(request, kind=kind)) or self._listwatches

    async def settled(self, request: Selector | None = None) -> None:
        """Wait until each list and watch, or each that the request needs, is synced, or has said why it is not."""
        while True:
            if waited := [condition for condition in self._conditions_for(request) if not condition.has_settled]:
                await waited[0].settled()
            elif self._is_catching_up(request):
                self._moved.clear()
                await self._moved.wait()
            else:
                return

    def _is_catching_up(self, request: Selector | None) -> bool:
        """Whether all lists are there that a read of several needs, and some watch has yet to reach the newest of them."""
        part = self.part(request)
        return self.parted and not self._resolving and part.error is None and not part.store.version

    def _conditions_for(self, request: Selector | None) -> Sequence[Condition]:
        if request is None or self._resolving or not self.parted:
            return self._conditions
        return [each.condition for each in self._needed(request)]

    def subscribe(self, listener: Callable[[Change | None], None]) -> Callable[[], None]:
        """Call the listener, on the loop's thread, with each change, and with None when reads must raise; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _notify(self, change: Change | None) -> None:
        self._moved.set()
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:   # It is the listener's trouble alone.
                self._world.logger.exception("Somebody who is told of changes in the cache of %s failed.", self)

    def _new_condition(self) -> Condition:
        world = self._world
        return Condition(
            self, sync_timeout=world.settings.sync_timeout, clock=world.clock, logger=world.logger, unreadable=lambda: self._notify(None))

    # ---- Keeping it.

    async def run(self) -> None:
        """Keep the cache until cancelled. A mistake of ours costs a relist, never the operator."""
        world = self._world
        while True:
            try:
                await self._kept(await self._resolved())
            except Exception as error:
                world.logger.exception("The cache of %s stumbled over a mistake of its own, and starts again.", self)
                self._conditions[0].mistaken(error)
                await world.sleep(delay(6, world.chance()))

    async def _kept(self, planned: Plan) -> None:
        """Keep it until the cluster does not serve the resource any more: it may come back in another version."""
        if (self.resource, planned) != self._kept_as or self.parted:   # What was not served may be no more, branch by branch.
            self._begin(planned)
        self._conditions[0].subject = self._listwatches[0]
        tasks = [asyncio.create_task(each.run(), name=f"selectcache: {self.key}, {each.filter}") for each in self._listwatches]
        if self.parted:
            tasks.append(asyncio.create_task(self._confirming.run(), name=f"selectcache: {self.key}, what is in doubt"))
        if self._world.settings.audit_interval:
            tasks.append(asyncio.create_task(self._audit_regularly(), name=f"selectcache: {self.key}, audit"))
        self._resolving = False
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._resolving = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def resume(self) -> None:
        """Open all watches anew: nobody knows which connections are still alive."""
        for each in self._listwatches:
            each.resume()

    async def _audit_regularly(self) -> None:
        world = self._world
        while True:
            await world.sleep(world.settings.audit_interval * (0.5 + world.chance()))
            try:
                await self.audit()
            except (Refused, Unreachable, Garbled) as error:   # What is wrong, the lists and watches find as well.
                why = f"the server answers {error.refusal.code} {error.refusal.reason}" if isinstance(error, Refused) else error
                world.logger.info("The cache of %s could not be compared with the server: %s. It is tried again.", self, why)

    async def audit(self) -> Audit:
        """Compare what is held with the server, and relist what has drifted; raise Refused, Unreachable or Garbled.

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
                if isinstance(error, Refused) and _BEYOND in error.refusal.message:
                    each.relist("audit")   # Only a consistent list can tell whether the server lags or was restored.
                continue
            self.counts.audits += 1
            if not found:
                self.counts.drift += found.drift
                self._world.logger.warning(
                    "The cache of %s with %s has drifted from the server: %s. It is listed anew.", self, each.filter, found)
                each.relist("audit")
            whole += found
        if failed is not None:
            raise failed
        return whole

    def _begin(self, planned: Plan) -> None:
        """Hold nothing yet, and be ready to keep what was planned."""
        resource, world = self.resource, self._world
        assert resource is not None, "planned before it was resolved"
        for needless in planned.needless:
            world.logger.warning("The filter of %s: %s selects nothing that the other selectors do not.", self, needless)
        self._merging = Merging([stream.keys for stream in planned.streams])
        self._conditions[1:] = [self._new_condition() for _ in planned.streams[1:]]
        self._listwatches = tuple(
            self._listwatch(*parts, resource) for parts in zip(planned.streams, self._merging.branches, self._conditions, strict=True))
        for listwatch in self._listwatches:
            listwatch.condition.subject = listwatch
        self._confirming = Confirming(self._merging, planned.streams, resource, world=world, notify=self._taken_in)
        self._needed.cache_clear()
        self._kept_as = resource, planned

    def _listwatch(self, stream: Stream, branch: Branch, condition: Condition, resource: Resource) -> Listwatch:
        return Listwatch(
            stream, branch, condition, resource, world=self._world, counts=self.counts, notify=self._taken_in,
            projection=self.projection)

    def _taken_in(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._notify(change)
        self._moved.set()
        for branch in self._merging.take_outdated():
            self._listwatches[self._merging.branches.index(branch)].relist("restored")
        self._confirming.look()

    async def _resolved(self) -> Plan:
        """Ask until the cluster knows the kind, and the filter fits it; return how it is to be kept."""
        world, failures = self._world, 0
        condition = self._conditions[0]
        condition.subject = self
        while True:
            try:
                return await self._planned()
            except NotServed as error:
                meant = f"Did you mean {meant!r}? If not, install" if (meant := likely(self._key)) is not None else "Install"
                condition.missing(str(error), f"{meant} its definition, or correct the key; it is looked for again and again")
            except DeclarationError as error:
                condition.rejected(error.what if str(self) in error.what else f"the filter of {self}: {error.what}", error.remedy)
            except Refused as error:
                self._told(error.refusal)
            except (Unreachable, Garbled) as error:
                self._told(Lost(str(error), garbled=isinstance(error, Garbled)))
            await world.sleep(delay(failures, world.chance(), slow=condition.error() is not None))
            failures += 1

    async def _planned(self) -> Plan:
        resource = await resolve(self._world.transport, self._key)
        self._claim(resource)
        self.resource = resource
        planned = plan(self._declared.filter, resource, namespaces=self._namespaces, share_watches=self._declared.share_watches)
        self.filter = planned.filter
        return planned

    def _told(self, trouble: Refusal | Lost) -> None:
        self.counts.failures[reason(trouble)] += 1
        self._conditions[0].troubled(trouble, verb="get")

    def _claim(self, resource: Resource) -> None:
        """Raise ConflictingSelectors if another key was found to mean the same: one of the filters would never be read."""
        for claimed in [each for each, feed in self._claims.items() if feed is self]:
            del self._claims[claimed]   # It was served in another version before.
        other = self._claims.setdefault((resource.api_version, resource.kind.plural), self)
        if other is not self:
            raise ConflictingSelectors(
                f"{self.key} and {other.key} are both {resource}", remedy=f"Declare them once: remove settings.selectcache.selectors[{self._key!r}]")
