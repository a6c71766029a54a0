"""Runtime: creates and runs the informers of one operator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from time import monotonic

from kopf_selectcache._errors import ReadError, context_of_loop
from kopf_selectcache.client.discovery import Kinds
from kopf_selectcache.client.fetcher import Fetcher
from kopf_selectcache.client.transport import WritingTransport
from kopf_selectcache.client.writer import Writer
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.selectors.kind_keys import called
from kopf_selectcache.selectors.selector import Branches, Selector
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import SelectCacheSettings

from ._dictionary_training import run_in_thread, trim_heap
from ._loop_monitor import LoopMonitor
from .ending import Ending, ended
from .environment import Environment, Retries
from .extensions import Extensions, Memo
from .informer import Informer
from .log import context_of, warn_of_needless
from .memory import Budget
from .names import InformersByName, Removal, close, withdrawn
from .namespaces import AbsentNamespaces, Follower, NamespacesByLabel, named_by
from .resolving import Claims

KEPT_ALIVE = 20.0
"""Seconds after which idle connections are closed: aiohttp keeps them for 15."""


class Runtime:
    """The informers of one operator, and the objects that they share."""

    def __init__(
        self,
        settings: SelectCacheSettings,
        transport: WritingTransport,
        *,
        namespaces: tuple[str, ...] | None,
        chance: Callable[[], float],
        logger: logging.Logger,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.settings = settings
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self._rest = rest  # Sleeps until the operator is at rest.
        self.ending = Ending()
        self.extensions = Extensions(self)
        """The objects that higher layers keep for this operator, such as those of recorders."""
        self.memo = Memo()
        """Memoised requests of reads, by their usual arguments."""
        self.names = InformersByName(self.ending, settings.selectors.site)
        self.namespaces_for: Callable[[KindKey, Branches], tuple[str, ...] | None] = lambda *_: namespaces
        """Returns the namespaces that the operator watches, None for all, for a filter that is declared
        later; raises DeclarationError if the filter needs them and they are unknown."""
        self.warn_of_filter: Callable[[KindKey, Branches], None] = lambda *_: None
        """Warns if handlers do not fit a filter that is declared or changed later."""
        self.check_declared: Callable[[KindKey, Cached | None, Informer | None], None] = lambda *_: None
        """Raises DeclarationError if handlers forbid what is declared later, and ReadError if they forbid the
        change of a cache, or its removal: then there is no declaration."""
        self.namespaces = NamespacesByLabel(self._follow, self._unfollow)
        """The namespaces that caches choose by label."""
        self._followers: list[Informer] = []
        self._claims = Claims()
        self.environment = Environment(settings, transport, logger, chance, clock, sleep)
        self._budget = Budget(settings.max_bytes)
        self.now = now
        self._group: asyncio.TaskGroup | None = None  # Set while `run` runs.
        self._tasks: dict[Informer, asyncio.Task[None]] = {}
        self._looking = set[asyncio.Task[None]]()
        self._absent: AbsentNamespaces | None = None
        for key in settings.selectors:
            self._make(key, settings.effective(key), namespaces, settings.selectors.site.line(key))
        self._initial = set(self.informers.values())
        self.fetches = Fetcher(
            transport, per_second=settings.fetch_per_second, clock=clock, sleep=sleep, chance=chance
        )
        self.retries = Retries(clock, sleep, chance)
        self.writer = Writer(transport, clock=clock, sleep=sleep, chance=chance)
        self.kinds = Kinds(self.fetches, clock=clock, sleep=sleep, chance=chance)
        self.pulse = LoopMonitor(self.after_gap, logger=logger)

    @property
    def informers(self) -> Mapping[KindKey, Informer]:
        """The informers by declared key. Another mapping replaces it when a kind is declared or removed."""
        return self.names.informers

    @property
    def initial(self) -> list[Informer]:
        """The informers of the kinds that were declared at the start, and are not removed."""
        return [informer for informer in self.informers.values() if informer in self._initial]

    def informer(self, key: KindKey) -> Informer:
        """Return the informer of this kind, by any of its names; see `InformersByName`."""
        return self.names.informer(key)

    async def resolve(self, key: KindKey) -> Resource:
        """Return the resource of a key in this cluster; ask for each key only once."""
        return await self.kinds.resolve(key)

    async def wait_started(self, _: str) -> Runtime:
        """Return it at once: a runtime exists once the operator has logged in. `cache_of` waits for that, and
        refuses the calls of a verb that it would wait for.
        """
        return self

    def end(self, error: Callable[[], ReadError] = ended) -> None:
        """Make all reads raise this error from now on, and cancel those that wait. Call it on the operator's
        loop.
        """
        self.ending.end(error)
        self.extensions.close()
        # The order matters: the lookup takes the dict before it checks `ending`, so it cannot fill the new
        # dict.
        self.names.forget()

    def after_gap(self, seconds: float) -> None:
        """Open all watches again if the loop was blocked for at least the idle timeout of connections."""
        if seconds >= self.settings.idle_timeout:
            for informer in (*self.informers.values(), *self._followers):
                informer.resume()

    # ---- Kinds that come and go. On the operator's loop only.

    def declare(self, key: KindKey, cached: Cached) -> Informer:
        """Start the informer of a new kind, and return it. Reads find it from now on."""
        self.check_declared(key, cached, None)
        informer = self._make(key, cached, self.namespaces_for(key, cached.filter), called(key))
        self.environment.logger.info(
            "The cache of %(resource)s is declared, with %(filter)s.",
            _named(informer),
            extra=context_of(informer),
        )
        self.warn_of_filter(key, cached.filter)
        if self._group is not None:
            self._start(informer, self._group)
        self._look_at_namespaces(named_by(cached.filter, informer.line))
        return informer

    async def change(self, key: KindKey, informer: Informer, cached: Cached, *, timeout: float) -> None:  # noqa: ASYNC109  # It is that of the change.
        """Change what is declared of a kind; return once the new state has replaced the old one."""
        self.namespaces_for(key, cached.filter)
        self.check_declared(key, cached, informer)
        within = self._prepared(informer, cached)
        former = informer.state.projection
        try:
            await informer.filter_change.change(cached, timeout=timeout, within=within)
        finally:  # It may be in use although its call was cancelled.
            informer.chosen.look()
            informer.wake_readers()
            self.names.note_change()
        self.warn_of_filter(self.names.key_of(informer), cached.filter)
        self._look_at_namespaces(named_by(cached.filter, informer.line))
        if informer.state.projection != former:
            self._look_at_paths(informer)

    @asynccontextmanager
    async def _prepared(self, informer: Informer, cached: Cached) -> AsyncIterator[None]:
        """Find out what a change of a filter must know before it begins; follow its namespaces after it."""
        async with self.namespaces.known(cached.filter, timeout=None):
            if informer.state.resource is not None:
                needless = informer.resolver.plan(cached, informer.state.resource).needless
                warn_of_needless(informer, needless, logger=self.environment.logger)
            try:
                yield
            finally:
                if not informer.ending.reached:  # A removed kind follows nothing any more.
                    informer.chosen.use(informer.declared.filter)

    async def remove(self, informer: Informer, place: str) -> None:
        """Remove a kind, and return once its tasks have ended. Cancelled, it is removed as well."""
        self.check_declared(self.names.key_of(informer), None, informer)
        self.environment.logger.info(
            "The cache of %(resource)s, with %(filter)s, is removed by %(place)s.",
            _named(informer) | {"place": place},
            extra=context_of(informer),
        )
        removal = Removal.now(self.names.key_of(informer), informer, place, self.now())
        await self._end(informer, removal.error, removal)

    async def withdraw(self, informer: Informer) -> None:
        """Remove a kind whose declaration has failed, as if it had not been declared."""
        self.environment.logger.info(
            "The declaration of %(resource)s with %(filter)s is withdrawn.",
            _named(informer),
            extra=context_of(informer),
        )
        key = self.names.key_of(informer)
        await self._end(informer, lambda: withdrawn(key))

    async def _end(
        self, informer: Informer, error: Callable[[], ReadError], removal: Removal | None = None
    ) -> None:
        self._claims.release(self.names.key_of(informer))
        self.names.discard(informer, removal)
        self._initial.discard(informer)
        close(informer, error)
        informer.chosen.end()
        if (task := self._end_task(informer)) is not None:
            await asyncio.wait({task})
        await informer.chosen.wait_ended()

    def _end_task(self, informer: Informer) -> asyncio.Task[None] | None:
        """End the task of an informer, and then drop its objects; return the task, if there is any."""
        task = self._tasks.pop(informer, None)
        if task is None:
            informer.swapper.drop()
            return None
        task.add_done_callback(lambda _: informer.swapper.drop())
        task.cancel()
        return task

    def _follow(self, label: LabelSelector) -> Informer:
        """Start an informer of the namespaces with a label: their names are all that it stores."""
        declared = Cached(Selector(label), keep=["metadata.labels"], storage="raw")
        informer = Informer(
            "v1/namespaces",
            declared,
            environment=self.environment.of_kind(declared),
            namespaces=None,
            line=f"namespaces={label!r}",
        )
        self._followers.append(informer)
        if self._group is not None:
            self._start(informer, self._group)
        return informer

    def _unfollow(self, follower: Follower) -> asyncio.Task[None] | None:
        informer = next(each for each in self._followers if each is follower)
        self._followers.remove(informer)
        return self._end_task(informer)

    def _make(self, key: KindKey, cached: Cached, namespaces: tuple[str, ...] | None, line: str) -> Informer:
        informer = Informer(
            key,
            cached,
            environment=self.environment.of_kind(cached),
            namespaces=namespaces,
            claims=self._claims,
            resolved=self.names.forget,
            budget=self._budget,
            line=line,
            followed=self.namespaces,
            changed=self.names.note_change,
        )
        self.names.add(key, informer)
        return informer

    def _start(self, informer: Informer, group: asyncio.TaskGroup) -> None:
        self._tasks[informer] = group.create_task(
            informer.run(), name=f"selectcache: {informer.key}", context=context_of_loop()
        )

        self._look_at_paths(informer)

    def _look_at_paths(self, informer: Informer) -> None:
        if informer.declared.own_paths:
            from .path_check import look  # Most caches have no such paths.  # noqa: PLC0415

            self._look(look(informer, self.environment), f"{informer.key}, its paths")

    def warn_of_absent(self, watched: Iterable[str], place: str) -> None:
        """Warn of the namespaces that do not exist: of those that the operator watches, which `place` names,
        and of those that filters name, now and later. Call it after the login.
        """
        self._absent = AbsentNamespaces(self.environment)
        named = dict.fromkeys(watched, place)
        for informer in self.informers.values():
            named = named_by(informer.declared.filter, informer.line) | named
        self._look_at_namespaces(named)

    def _look_at_namespaces(self, named: Mapping[str, str]) -> None:
        if named and self._absent is not None:
            self._look(self._absent.look(named), "namespaces")

    def _look(self, work: Coroutine[None, None, None], name: str) -> None:
        looking = asyncio.create_task(work, name=f"selectcache: {name}", context=context_of_loop())
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)

    async def run(self) -> None:
        """Run all informers until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self.pulse.run(), name="selectcache: pulse")
                for informer in (*self._followers, *self.informers.values()):
                    self._start(informer, group)
        finally:
            for looking in self._looking:
                looking.cancel()

    async def trim_at_rest(self) -> None:
        """Return free memory to the system once the connections of the start are closed. Kopf opens one for
        each API group, and each takes 0.25 MB for TLS.
        """
        for key in tuple(self.informers):
            await self._settle(key)
        await self._rest(KEPT_ALIVE)
        await run_in_thread(trim_heap)

    async def _settle(self, key: KindKey) -> None:
        if (informer := self.informers.get(key)) is not None:
            with suppress(ReadError):  # It is removed meanwhile.
                await informer.wait_until_settled()


def _named(informer: Informer) -> dict[str, str]:
    """Return the parts of a log line that name a cache."""
    return {"resource": str(informer), "filter": clipped(informer.state.filter)}
