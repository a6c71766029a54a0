"""Operators under a rain of faults: what happens to the cluster, what is read meanwhile, and what must be
true in the end.

Everything is drawn from one seed. The sockets are real, and the cluster shares the loop; only the pauses of
the operators pass at once. Nothing here knows how a cache works: it compares what is read with what was
written."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import cycle
from random import Random
from typing import Any

import kopf
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache import NotFound, NotSynced, OutsideFilter, ReadError, StateError
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Gone

from .mishaps import ENDS, MISHAPS, Mishap, lag
from .population import (
    ALWAYS,
    CA,
    MOVER,
    PAGED,
    READING,
    STEADY,
    STREAMED,
    SUNG,
    TLS,
    WANTED,
    Key,
    Population,
)


class Lie(AssertionError):
    """A read, a log line or a count that must not be."""


class Reader:
    """Somebody who reads from one operator all the time, and believes nothing."""

    def __init__(
        self, cache: Cache, population: Population, resources: Mapping[str, Any], secrets: Sequence[str]
    ) -> None:
        self._cache = cache
        self._population = population
        self._resources = resources
        self._secrets = secrets
        self._last: dict[Key, tuple[str, int]] = {}
        self._lie: Lie | None = None
        self.answers: Counter[str] = Counter()

    async def read(self) -> None:
        """Read in one way after another: again and again, and in the midst of every change."""
        looks = cycle(self._looks())

        def changed(_: object) -> None:
            if self._lie is None:
                try:
                    next(looks)()
                except Lie as lie:
                    self._lie = lie

        forget = [
            self._cache._runtime.informer(resource).subscribe(changed) for resource in self._resources
        ]  # No reader is told sooner.
        try:
            while self._lie is None:
                next(looks)()
                await asyncio.sleep(1.0)
            raise self._lie
        finally:
            for each in forget:
                each()

    def look(self) -> None:
        """Read in every way, at once."""
        for look in self._looks():
            look()

    def _looks(self) -> list[Callable[[], None]]:
        cache = self._cache
        looks: list[Callable[[], None]] = [partial(self._one, key) for key in (MOVER, STEADY, CA, TLS)]
        looks.append(partial(self._refused, lambda: cache.get("secrets", "hidden", namespace="infra")))
        for resource in self._resources:
            looks += [
                partial(self._held, resource),
                partial(self._listed, resource),
                partial(self._refused, partial(cache.list, resource)),
            ]
        return looks

    def _held(self, resource: str) -> None:
        if (found := self._answer(lambda: self._cache.list_cached(resource))) is not None:
            keys = {self._checked(resource, obj) for obj in found}
            if (
                absent := {
                    key for key in ALWAYS if key[0] == resource and not self._population.may_be_absent(key)
                }
                - keys
            ):
                raise Lie(f"I8b: {absent} not among what is held")

    def _listed(self, resource: str) -> None:
        for obj in self._answer(lambda: self._cache.list(resource, labels="app=web")) or ():
            self._checked(resource, obj)
            if obj["metadata"]["labels"].get("app") != "web":
                raise Lie(f"I5: {obj['metadata']} is no answer to app=web")

    def _refused(self, read: Callable[[], Any]) -> None:
        if (found := self._answer(read, outside=True)) is not None:
            raise Lie(f"I6: {found} is the answer to what is not all held")

    def _one(self, key: Key) -> None:
        resource, namespace, name = key
        if (
            found := self._answer(lambda: self._cache.get(resource, name, namespace=namespace), absent=key)
        ) is not None:
            self._checked(resource, found)

    def agrees(self) -> str:
        """Compare what is held with what there is; return in which way it differs."""
        for resource in self._resources:
            state = self._cache._runtime.informer(resource).state
            if not state.is_synced:
                return f"{resource} are {state.health.value}: {state.message}"
            held = {
                (resource, *record.key): (record.uid, record.version) for record in state.store.records()[0]
            }
            wanted = self._population.held(resource)
            if held != wanted:
                return (
                    f"I3: {resource} are {state.health.value} ({state.message or 'and well'}), and"
                    f" hold what is not there: {sorted(held.items() - wanted.items())}, and not what is:"
                    f" {sorted(wanted.items() - held.items())}"
                )
        return ""

    def reached(self) -> int:
        """Return the version up to which everything has been taken in."""
        return min(self.versions())

    def is_ahead(self, version: int) -> bool:
        """Return True if a cache has not noticed that the server was restored to before its own version."""
        return max(self.versions()) > version

    def versions(self) -> list[int]:
        """Return the versions of its caches, and of their streams."""
        informers = map(self._cache._runtime.informer, self._resources)
        return [
            int(version or 0)
            for each in informers
            for version in (
                each.state.store.version,
                *(substore.version for substore in each.state.union.substores),
            )
        ]

    async def gone(self, key: Key, uid: str) -> bool:
        return await self._cache.is_deleted(key[0], key[2], namespace=key[1], uid=uid)

    async def audit(self) -> None:
        for resource in self._resources:
            with suppress(ReadError):  # It is asked for again, as long as there is a difference.
                await self._cache.audit(resource)

    def settle(self) -> None:
        self._last.clear()

    def _answer(self, read: Callable[[], Any], *, outside: bool = False, absent: Key | None = None) -> Any:
        """Return the answer, or None where the cache says that it has none to give, as it may."""
        try:
            answer = read()
        except ReadError as error:
            _silent(str(error), "an error", self._secrets)
            self.answers[type(error).__name__] += 1
            if isinstance(error, NotFound) and self._population.may_be_absent(absent):
                return None
            if not isinstance(error, (NotSynced, StateError)) and not (
                outside and isinstance(error, OutsideFilter)
            ):
                raise Lie(f"of {absent or 'many'} it is said: {type(error).__name__}: {error}") from error
            return None
        self.answers["answer"] += 1
        return answer

    def _checked(self, resource: str, obj: Mapping[str, Any]) -> Key:
        metadata = obj["metadata"]
        key, labels = (resource, metadata["namespace"], metadata["name"]), metadata.get("labels", {})
        if not WANTED[resource](key, labels):
            raise Lie(f"I5: {key} with {labels} is outside of the filter")
        if labels not in self._population.been[key, metadata["uid"], metadata["resourceVersion"]]:
            raise Lie(f"I2: {key} has never been {metadata}")
        before, now = self._last.get(key), (metadata["uid"], int(metadata["resourceVersion"]))
        if before is not None and before[1] > now[1] and not self._population.restored:
            raise Lie(f"I1: {key} went back from {before} to {now}")
        self._last[key] = now
        return key


class Soak:
    """Two operators before one cluster, and what goes wrong between them."""

    def __init__(self, cluster: EmbeddedCluster, vault: Vault, seed: int) -> None:
        self.chance = Random(seed)
        self.cluster = cluster
        self.vault = vault
        self.readers: list[Reader] = []
        self.hits: Counter[str] = Counter()
        """How often each kind of fault has happened."""
        self.secrets = [*SUNG]
        """What nothing may tell: of Secrets, and all tokens."""
        self._token = self._new_token()
        self.population = Population(cluster, self.chance)
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def operator(self, selectors: Mapping[str, Any], **options: Any) -> AsyncIterator[None]:
        """Run an operator, and somebody who reads from it. What they stumble over ends the test."""
        settings = SelectCacheSettings(page_limit=3, **options)
        settings.selectors.update(selectors)
        clock = asyncio.get_running_loop().time
        runtime = Runtime(
            settings,
            KopfTransport(
                self.vault, request_timeout=settings.request_timeout, clock=clock, chance=self.chance.random
            ),
            namespaces=None,
            chance=self.chance.random,
            logger=logging.getLogger("kopf_selectcache"),
            clock=clock,
        )
        reader = Reader(Cache(runtime), self.population, selectors, self.secrets)
        self.readers.append(reader)
        tasks = [asyncio.create_task(runtime.run()), asyncio.create_task(reader.read())]
        self._tasks += tasks
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def log_in(self) -> None:
        """Do what Kopf does: log in whenever there are no credentials left."""
        while True:
            await self.vault.populate(
                {"login": kopf.ConnectionInfo(server=self.cluster.url, token=self._token)}
            )
            await self.vault.wait_for_emptiness()
            self.cluster.revoke(self._token)
            self._token = self._new_token()

    def _new_token(self) -> str:
        self.secrets.append(self.cluster.user("operator", READING))
        return self.secrets[-1]

    async def play(self) -> None:
        """Let some faults happen, together with what happens anyway; then be sure that all is as it should
        be."""
        if self.chance.random() < 0.1:
            # Once it has been quiet for a while, operators know that this server sends bookmarks: a server
            # that was restored they notice by its silence.
            await asyncio.sleep(100.0)
            self.population.restore()
            if self.chance.random() < 0.5:
                await self._quiet(audits=False)
        # Where new versions make up for the lost ones too soon, only an audit finds it. A cache may agree
        # with the restored server by chance, and not have noticed it.
        unheard = self.population.restored or any(
            reader.is_ahead(self.cluster.version) for reader in self.readers
        )
        for _ in range(self.chance.randint(3, 9)):
            mishap = self.chance.choice([*MISHAPS, lag(self.cluster.version)])
            unheard = unheard or mishap.unheard
            await self._play(mishap)
            if self.chance.random() < 0.1:
                self._strike()
            await asyncio.sleep(self.chance.choice((0.0, 0.1, 1.0, 30.0)))
            self._require_alive()
        self.cluster.faults.clear()
        await self._quiet(audits=unheard)

    async def _play(self, mishap: Mishap) -> None:
        chance = self.chance
        fault, resource = mishap.fault(chance), chance.choice(("secrets", "secrets", "configmaps"))
        planned = self.cluster.faults.add(
            fault,
            resource=resource,
            where=mishap.meets,
            nth=chance.randint(1, 2),
            times=chance.choice((1, 1, 2, 4)),
        )
        if mishap.verb != "watch":  # Have it listed anew.
            self.cluster.faults.add(
                Gone(),
                verb="watch",
                resource=resource,
                where=lambda asked: "sendInitialEvents" not in asked.query,
                times=1,
            )
        self.population.story.append(f"{fault} for {resource}")
        for _ in range(10):  # Other faults may be in its way.
            self.cluster.cut("watch", resource, how=chance.choice(ENDS))
            for _ in range(chance.randint(1, 3)):
                self.population.happen()
            await asyncio.sleep(1.0)
            if planned.hits:
                self.hits[type(fault).__name__] += 1
                return

    def _strike(self) -> None:
        """What happens to whole servers."""
        cluster, population = self.cluster, self.population
        what = self.chance.randint(0, 4)
        population.story.append(f"strike {what}")
        match what:
            case 0:
                cluster.compact()
            case 1:
                population.back_up()
            case 2:
                cluster.revoke(self._token)
            case 3:
                cluster.bookmark()
            case _:
                cluster.stop_listening()
                cluster.listen_again()

    def _require_alive(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()
                raise Lie("an operator ended")

    async def _quiet(self, *, audits: bool) -> None:
        """Wait until every cache is equal to the filtered cluster."""
        cluster, said = self.cluster, [""]
        for _ in range(900):
            self._require_alive()
            if not any(said := [reader.agrees() for reader in self.readers]):
                break
            if audits:
                for reader in self.readers:
                    await reader.audit()
            await asyncio.sleep(1.0)
        else:
            raise Lie(
                f"it did not settle: {said}, at {[reader.versions() for reader in self.readers]}; asked last:"
                f" {[str(asked) for asked in [*cluster.requests][-12:]]}"
            )
        self.population.settle(min(reader.reached() for reader in self.readers))
        for reader in self.readers:
            reader.settle()
            reader.look()
        cluster.requests.clear()


@asynccontextmanager
async def soaking(seed: int) -> AsyncIterator[Soak]:
    """Run all of it, for the code within the block; afterwards no task of it is left."""
    before = asyncio.all_tasks()
    async with EmbeddedCluster(tls=False, random=Random(seed)) as cluster:
        vault = Vault()
        soak = Soak(cluster, vault, seed)
        login = asyncio.create_task(soak.log_in())
        try:
            with _listening(soak.secrets):
                async with soak.operator(PAGED), soak.operator(STREAMED, initial="stream"):
                    yield soak
        except Lie as lie:
            lie.add_note(
                "\n".join(
                    [
                        f"seed {seed}; faults:",
                        *map(str, cluster.faults),
                        "story:",
                        *soak.population.story,
                        "requests:",
                        *map(str, [*cluster.requests][-300:]),
                    ]
                )
            )
            raise
        finally:
            login.cancel()
            with suppress(asyncio.CancelledError):
                await login
            await vault.close()
    for _ in range(10):  # Kopf leaves a generator of its vault to the loop to close.
        await asyncio.sleep(0)
    if left := asyncio.all_tasks() - before:
        raise Lie(f"tasks are left: {left}")


class _Listener(logging.Handler):
    """Reads every line that is logged, and keeps none but a lie."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__()
        self._secrets = secrets
        self.lie: Lie | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _silent(self.format(record), "a log line", self._secrets)
        except Lie as lie:
            self.lie = lie


@contextmanager
def _listening(secrets: Sequence[str]) -> Iterator[None]:
    logger, listener = logging.getLogger("kopf_selectcache"), _Listener(secrets)
    before = logger.level, logger.propagate
    logger.addHandler(listener)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(before[0])
        logger.propagate = before[1]
    if listener.lie is not None:
        raise listener.lie


def _silent(text: str, where: str, secrets: Sequence[str]) -> None:
    if any(secret in text for secret in secrets):
        raise Lie(f"I10: {where} has a secret: {text}")
