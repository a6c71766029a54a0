"""Caches in the test's own process, in front of a real server, and readers in threads that keep all that they
saw.

Time is real, but for how long caches take a second to be. It starts no servers, and knows no product but by
its classes."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from threading import Event, Thread
from typing import Any

import kopf
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache import ReadError
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.transport import JSON, KopfTransport
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings
from tests.apiserver.cluster import Cluster
from tests.faults.environment import connections_closed

Seen = tuple[str, ...]
Contents = dict[str, tuple[str, str, Any]]


class Reader:
    """Reads one kind all along: names and versions, or which error there was; each time that it is another
    answer."""

    def __init__(self, read: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        self._read = read
        self.seen = [self._now()]
        self._over = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    @property
    def names(self) -> list[set[str]]:
        return [{each.partition("@")[0] for each in seen} for seen in self.seen]

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.001):
            if self.seen[-1] != (now := self._now()):
                self.seen.append(now)

    def _now(self) -> Seen:
        try:
            return tuple(
                sorted(
                    f"{each['metadata']['name']}@{each['metadata']['resourceVersion']}"
                    for each in self._read()
                )
            )
        except ReadError as error:
            return (f"!{type(error).__name__}",)


class Operator:
    """Caches of one namespace, and their readers."""

    def __init__(
        self, runtime: Runtime, vault: Vault, api: Cluster, namespace: str, filters: Mapping[str, Any]
    ) -> None:
        self.runtime = runtime
        self.vault = vault
        self.cache = Cache(runtime)
        self._api = api
        self._namespace = namespace
        self._filters = filters
        self.readers: dict[str, Reader] = {}

    def read_all_along(self) -> None:
        """Start the readers."""
        for kind in map(str, self.runtime.informers):
            self.readers[kind] = Reader(lambda kind=kind: self.cache.list_cached(kind))  # type: ignore[misc]

    def holds(self, kind: str) -> Contents:
        """What a reader gets; nothing while it gets an error."""
        try:
            return contents(self.cache.list_cached(kind))
        except ReadError:
            return {}

    def wanted(self, kind: str) -> Contents:
        """What the server has within the filter."""
        filters = self._filters[kind]
        path = f"/api/v1/namespaces/{self._namespace}/{kind}"
        lists = [
            self._api.request("GET", path, query={"labelSelector": each})
            for each in ([filters] if isinstance(filters, str) else filters)
        ]
        return {name: what for listed in lists for name, what in contents(listed["items"]).items()}

    async def in_step(self, kind: str) -> None:
        """Wait until the cache is what the server has, and its reader has seen that; it must not change
        meanwhile."""
        wanted = await asyncio.to_thread(self.wanted, kind)
        await until(lambda: self.holds(kind) == wanted, f"the cache of {kind} is {wanted}")
        last = tuple(sorted(f"{name}@{version}" for name, (_, version, _) in wanted.items()))
        # A thread comes when it comes.
        await until(lambda: self.readers[kind].seen[-1] == last, f"the reader of {kind} has seen {last}")

    def relists(self, kind: str) -> dict[str, int]:
        return dict(self.runtime.informer(kind).counts.relists)


class Telling(KopfTransport):
    """Tells when a list has been answered, before that is taken in."""

    def __init__(self, vault: Vault, asked: Callable[[], object], *, request_timeout: float) -> None:
        super().__init__(vault, request_timeout=request_timeout)
        self._asked = asked

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON, most: int | None = None
    ) -> bytes:
        answer = await super().get(path, query, accept=accept, most=most)
        await asyncio.to_thread(self._asked)
        return answer


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)
    # What is left of connections is told here, and not in a test that has nothing to do with it.
    gc.collect()


async def until(condition: Callable[[], object], what: str, *, deadline: float = 120.0) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"waited {deadline:g} s in vain until {what}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def operating(
    api: Cluster,
    namespace: str,
    selectors: Mapping[str, Any],
    *,
    url: str = "",
    token: str = "",
    pace: float = 1.0,
    asked: Callable[[], object] = lambda: None,
    **options: Any,
) -> AsyncIterator[Operator]:
    """Keep caches, synced, for the code within the block; `pace` says how long what they take for a second
    is, and `asked` is called after each list. What they give up after `sync_timeout` has that time by the
    clock on the wall: the server is as fast as it is."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds * pace)

    vault = Vault({"login": credentials(api, url=url, token=token)})
    settings = SelectCacheSettings(**{"audit_interval": 0, "sync_timeout": 120.0 / pace, **options})
    settings.selectors.update(selectors)
    runtime = Runtime(
        settings,
        Telling(vault, asked, request_timeout=settings.request_timeout),
        namespaces=(namespace,),
        chance=lambda: 0.5,
        logger=logging.getLogger("kopf_selectcache"),
        clock=lambda: time.monotonic() / pace,
        sleep=sleep,
    )
    task = asyncio.create_task(runtime.run())
    operator = Operator(runtime, vault, api, namespace, selectors)
    try:
        await operator.cache.wait_synced()
        operator.read_all_along()
        yield operator
    finally:
        for reader in operator.readers.values():
            reader.stop()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await vault.close()
        await connections_closed()


def credentials(api: Cluster, *, url: str = "", token: str = "") -> kopf.ConnectionInfo:
    return kopf.ConnectionInfo(
        server=url or api.url, ca_path=None if url else str(api.ca_file), token=token or api.token
    )


def contents(objects: Iterable[Mapping[str, Any]]) -> Contents:
    """By name, all that the tests change of an object."""
    found = [each["metadata"] for each in objects]
    return {each["name"]: (each["uid"], each["resourceVersion"], each.get("labels")) for each in found}
