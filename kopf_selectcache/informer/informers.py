"""Runtime: creates and runs the informers of one operator.

`InformersByName` finds them by any name of their kind: the declared key, and the other names that the cluster
has for it. `LoopMonitor` detects that the event loop was blocked or the machine slept: Kopf and all handlers
share the loop, so a handler that blocks it stops every cache as well. A connection may be dead after a gap
that is longer than a live connection is ever silent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import NamedTuple

from kopf_selectcache._errors import NotDeclared, NotSynced, ReadError, awaited_call, call_of
from kopf_selectcache.client.discovery import Kinds
from kopf_selectcache.client.fetcher import Fetcher
from kopf_selectcache.client.transport import WritingTransport
from kopf_selectcache.client.writer import Writer
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource, find, parse_key
from kopf_selectcache.selectors.kind_keys import SETTINGS, Site, are_alike, called, not_declared, text_of
from kopf_selectcache.selectors.selector import Branches, Selector
from kopf_selectcache.selectors.text import EVERYTHING, LabelSelector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import SelectCacheSettings

from .background import run_in_thread, trim_heap
from .environment import Ending, Environment, Extensions, Memo, Retries, context_of_loop, ended
from .health import LOOKED_FOR, Health
from .informer import Informer
from .log import context_of
from .memory import Budget
from .namespaces import AbsentNamespaces, Follower, NamespacesByLabel, named_by
from .state import CacheDivision, Undivided
from .streams import Claims

KEEP_ALIVE_SECONDS = 20.0
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
        self.division: CacheDivision = Undivided()
        """How replicas divide the caches."""
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
        self._trimming: asyncio.Task[None] | None = None  # Once ranges of this replica have moved.
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
    def all_informers(self) -> list[Informer]:
        """All informers, with those that only the package itself reads."""
        return [*self._followers, *self.informers.values()]

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
            for informer in self.all_informers:
                informer.resume()

    # ---- Namespaces that replicas divide. On the operator's loop only.

    def divide(self, division: CacheDivision) -> None:
        """Divide caches among replicas. Call it before `run`."""
        self.division = division
        for key, informer in self.informers.items():
            informer.chosen.divide(division, division.why_divided(key, informer.declared))

    def look_at_division(self) -> None:
        """Note that this replica caches other namespaces. In this step, reads lose those that have gone."""
        for informer in self.informers.values():
            if informer.declared.divided:
                informer.chosen.look()
        if self._group is not None and (self._trimming is None or self._trimming.done()):
            self._trimming = self._look(self.trim_at_rest(), "free memory")

    async def wait_divided(self, has: Callable[[str], bool]) -> None:
        """Wait until the divided caches serve all namespaces for which a function returns True, or it is
        known why they can't.
        """
        for informer in tuple(self.informers.values()):
            with suppress(ReadError):  # It has been removed.
                await informer.wait_until(partial(informer.chosen.are_served, has))

    def _divided(self, key: KindKey, cached: Cached) -> Cached:
        return cached.replaced(divided=self.division.why_divided(key, cached))

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
        cached = self._divided(key, cached)
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
        async with self.namespaces.known(cached.chosen_filter, timeout=None):
            try:
                yield
            finally:
                if not informer.ending.reached:  # A removed kind follows nothing any more.
                    informer.chosen.use(informer.declared.chosen_filter)

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
        await self.namespaces.wait_ended()

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
        which = Selector(label) if label.requirements else EVERYTHING
        declared = Cached(which, keep=["metadata.labels"], storage="raw")
        place = f"namespaces={label!r}" if label.requirements else "settings.selectcache.sharding"
        return self.follow("v1/namespaces", declared, place)

    def follow(self, key: KindKey, declared: Cached, line: str) -> Informer:
        """Start an informer that only the package itself reads. `line` names it in messages."""
        informer = Informer(
            key, declared, environment=self.environment.of_kind(declared), namespaces=None, line=line
        )
        informer.swapper.log.level = logging.DEBUG  # Nobody has declared it.
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
            self._divided(key, cached),
            environment=self.environment.of_kind(cached),
            namespaces=namespaces,
            claims=self._claims,
            resolved=self.names.forget,
            budget=self._budget,
            line=line,
            followed=self.namespaces,
            changed=self.names.note_change,
        )
        informer.chosen.division = self.division
        self.names.add(key, informer)
        return informer

    def _start(self, informer: Informer, group: asyncio.TaskGroup) -> None:
        self._tasks[informer] = group.create_task(
            informer.run(), name=f"selectcache: {informer.key}", context=context_of_loop()
        )

        self._look_at_paths(informer)

    def _look_at_paths(self, informer: Informer) -> None:
        if informer.declared.own_paths:
            from .checks import look  # Most caches have no such paths.  # noqa: PLC0415

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

    def _look(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        looking = asyncio.create_task(work, name=f"selectcache: {name}", context=context_of_loop())
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)
        return looking

    async def run(self) -> None:
        """Run all informers until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self.pulse.run(), name="selectcache: pulse")
                for informer in self.all_informers:
                    self._start(informer, group)
        finally:
            self._group = None
            for looking in self._looking:
                looking.cancel()

    async def trim_at_rest(self) -> None:
        """Return free memory to the system once the connections of the start, or those of ranges that have
        gone, are closed. Kopf opens one for each API group, and each takes 0.25 MB for TLS.
        """
        for key in tuple(self.informers):
            await self._settle(key)
        await self._rest(KEEP_ALIVE_SECONDS)
        await run_in_thread(trim_heap)

    async def _settle(self, key: KindKey) -> None:
        if (informer := self.informers.get(key)) is not None:
            with suppress(ReadError):  # It is removed meanwhile.
                await informer.wait_until_settled()


def _named(informer: Informer) -> dict[str, str]:
    """Return the parts of a log line that name a cache."""
    return {"resource": str(informer), "filter": clipped(informer.state.filter)}


BEAT_SECONDS = 1.0
"""Seconds between two checks."""

NOTICED_SECONDS = 5.0
"""Gaps of at least this many seconds are reported. Large answers and busy machines cause shorter ones."""


def wall() -> float:
    """Return a monotonic time in seconds. It includes the machine's sleep if the system counts that."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class LoopMonitor:
    """Measures the gaps of one operator's event loop."""

    def __init__(
        self,
        gap: Callable[[float], None],
        *,
        logger: logging.Logger,
        clock: Callable[[], float] = wall,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.longest = 0.0
        """The longest gap so far, in seconds."""
        self._gap = gap  # Called with each gap that was noticed.
        self._logger = logger
        self._clock = clock
        self._sleep = sleep

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before = self._clock()
            await self._sleep(BEAT_SECONDS)
            late = self._clock() - before - BEAT_SECONDS
            self.longest = max(self.longest, late)
            if late >= NOTICED_SECONDS:
                self._logger.warning(
                    "The operator's event loop stood still for %(seconds).0f s, and no cache was updated."
                    " Either a handler blocked it, or the machine was asleep. Write handlers that take long"
                    " without awaiting as plain functions (def, not async def).",
                    {"seconds": late},
                )
                try:
                    self._gap(late)
                except Exception:  # A failing callback must not end the task group of all informers.
                    self._logger.exception(
                        "The caches could not be refreshed after the pause. The next audit refreshes them."
                    )


class Removal(NamedTuple):
    """The removal of a cache, for the errors of later reads."""

    key: KindKey
    kind: Kind | None
    at: str
    """The time, in UTC."""
    place: str
    """The file and line of the call."""

    @classmethod
    def now(cls, key: KindKey, informer: Informer, place: str, time: datetime) -> Removal:
        """Return the removal of an informer at this time."""
        at = time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return cls(key, informer.kind, at, place)

    def error(self) -> NotDeclared:
        """Return the error of a read after the removal."""
        return NotDeclared(
            f"the cache of {text_of(self.key)} was undeclared at {self.at} by {self.place}",
            remedy=f"To declare it again: {awaited_call(f'declare({self.key!r}, ...)')}",
        )

    def concerns(self, key: KindKey) -> bool:
        """Return True if the key names the removed kind."""
        if parse_key(key) == parse_key(self.key) or (find(key) or self) is self.kind:
            return True
        group, _, name = parse_key(key)
        return self.kind is not None and name in self.kind.names and group in (None, self.kind.group)


def remedy_of_withdrawn(remedy: str) -> str:
    """Return the remedy of a declaration that has failed, and is withdrawn."""
    return f"{remedy.removesuffix(LOOKED_FOR)}\nThen declare it again" if LOOKED_FOR in remedy else remedy


def withdrawn(key: KindKey) -> NotDeclared:
    """Return the error of a read of a kind whose declaration has failed."""
    return NotDeclared(
        f"the declaration of {text_of(key)} failed and was withdrawn",
        remedy=f"To declare it again: {awaited_call(f'declare({key!r}, ...)')}",
    )


def close(informer: Informer, error: Callable[[], ReadError]) -> None:
    """End all waits with this error, and give back the budget. Cancel the informer's task next."""
    informer.ending.end(error)
    informer.swapper.share.release()


MOST_REMOVALS = 100
"""The number of removed caches that are remembered for messages."""


class InformerLookups:
    """Memoised lookups of informers by name. Reads use it in any thread."""

    def __init__(self) -> None:
        self._by: tuple[list[Resource | Health], dict[KindKey, Informer]] = [], {}

    def by(self, known: list[Resource | Health]) -> dict[KindKey, Informer]:
        """Return the lookups that are valid for this knowledge: the resource of each informer, or its health
        while that is not resolved.
        """
        by = self._by
        if by[0] != known:
            by = self._by = known, {}
        return by[1]


class InformersByName:
    """The informers of one operator by name. Reads use it in any thread, while the operator's loop adds and
    discards informers.
    """

    def __init__(self, ending: Ending, site: Site = SETTINGS) -> None:
        self.informers: Mapping[KindKey, Informer] = {}
        """The informers by declared key. The mapping is replaced in one assignment, and never changed."""
        self.ending = ending
        self._site = site
        self.pending: dict[Informer, int] = {}
        """Informers that no call of `declare` has seen synced yet, with the number of calls that wait."""
        self.quick: dict[KindKey, Informer] = {}
        """The informers found by key, until the cluster resolves another key, or another informer is added or
        discarded. Reads look here first."""
        self.changed = asyncio.Event()
        """Set once an informer is added, changed or discarded; then there is another event."""
        self._found = InformerLookups()
        self._removals: tuple[Removal, ...] = ()

    def add(self, key: KindKey, informer: Informer) -> None:
        """Find this informer from now on."""
        self.informers = {**self.informers, key: informer}
        self._removals = tuple(each for each in self._removals if not each.concerns(key))
        self._forget_all()

    def key_of(self, informer: Informer) -> KindKey:
        """Return the declared key of an informer."""
        return next(key for key, each in self.informers.items() if each is informer)

    def discard(self, informer: Informer, removal: Removal | None = None) -> None:
        """Find this informer no more; reads of its kind raise the error of the removal, if there is one."""
        self.informers = {key: each for key, each in self.informers.items() if each is not informer}
        self.pending.pop(informer, None)
        if removal is not None:
            self._removals = (removal, *self._removals)[:MOST_REMOVALS]
        self._forget_all()

    def _forget_all(self) -> None:
        # The order matters: a lookup takes these before it takes the mapping, so it cannot fill the new ones
        # from an old mapping.
        self._found = InformerLookups()
        self.forget()
        self.note_change()

    def note_change(self) -> None:
        """Wake those who wait until other objects are cached."""
        self.changed.set()
        self.changed = asyncio.Event()

    def informer(self, key: KindKey) -> Informer:
        """Return the informer of this kind, by any of its names.

        The declared key comes first. The name of a built-in kind means that kind and no custom resource, as
        with kubectl. Raise NotSynced while keys are not resolved that could change the result.
        """
        # If a key is resolved meanwhile, or the mapping is replaced, the result is stored in a dict that
        # nobody uses any more.
        quick, memory = self.quick, self._found
        if self.ending.reached:
            raise self.ending.error()
        informers = self.informers
        if (exact := informers.get(key)) is not None:
            quick[key] = exact
            return exact
        known = memory.by(
            [informer.state.resource or informer.state.health for informer in informers.values()]
        )
        if (found := known.get(key)) is None:
            found = known[key] = self._named(key, informers)
        quick[key] = found
        return found

    def forget(self) -> None:
        """Forget the lookups: the cluster has resolved a key, or the operator has ended."""
        self.quick = {}

    def _named(self, key: KindKey, informers: Mapping[KindKey, Informer]) -> Informer:
        asked = parse_key(key)
        if same := next(
            (informer for declared, informer in informers.items() if parse_key(declared) == asked), None
        ):
            return same
        meant = {declared: _means(key, declared, informer) for declared, informer in informers.items()}
        if unknown := [declared for declared, answer in meant.items() if answer is None]:
            raise NotSynced(
                f"{text_of(key)} may be the declared {text_of(unknown[0])}: the cluster has not answered yet"
                " which resource that is",
                remedy=(
                    f"To wait for it: {call_of('wait_synced')}\nName the kind as it is declared, such as"
                    f" {unknown[0]!r}"
                ),
            )
        found = [declared for declared, answer in meant.items() if answer] or [
            declared
            for declared, informer in informers.items()
            if informer.kind is None and find(key) is None and are_alike(key, declared)
        ]
        if len(found) > 1:
            raise ReadError(
                f"{text_of(key)} may be any of {', '.join(map(text_of, found))}",
                remedy=f"Name the kind as it is declared, such as {found[0]!r}",
            )
        if not found:
            removal = next((each for each in self._removals if each.concerns(key)), None)
            raise removal.error() if removal is not None else not_declared(key, informers, self._site)
        return informers[found[0]]


def _means(key: KindKey, declared: KindKey, informer: Informer) -> bool | None:
    """Return True if the key names the kind of the informer; None while the cluster must resolve that."""
    known, (group, version, name) = find(key), parse_key(key)
    _, in_version, _ = parse_key(declared)
    if informer.state.resource is not None:
        in_version = informer.state.resource.version
    waiting = informer.state.resource is None and informer.state.health is Health.SYNCING
    if (kind := informer.kind) is None:  # A custom resource that is not resolved.
        within = parse_key(declared)[0]
        compatible = (
            known is None
            and (group is None or within in (None, group))
            and (version is None or in_version in (None, version))
        )
        return None if waiting and compatible else False
    same = kind is known if known is not None else name in kind.names and group in (None, kind.group)
    if not same or version is None or version == in_version:
        return same
    if in_version is not None:
        return False
    # A built-in kind that is declared without a version has the version that the cluster prefers.
    return True if kind.versions == (version,) or not waiting else None
