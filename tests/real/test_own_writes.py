"""Threads of one operator that write and read on a real API server, beside foreign writers, while the server
and etcd are killed and started again: no read is older than the own write."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any

import pytest
from urllib3.exceptions import HTTPError

from kopf_selectcache import OutsideFilter
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.errors import NotFound, SelectCacheError
from tests.apiserver.client import ApiError
from tests.apiserver.server import ApiServer
from tests.real.inprocess import operating, run, until

pytestmark = pytest.mark.timeout(3600)

WORKERS = 4
NAMES = 5
KIND = "v1/configmaps"


class Worker:
    """One thread that writes its own objects, and reads them after each write."""

    def __init__(self, cache: Cache, namespace: str, number: int) -> None:
        self.cache = cache
        self.live = cache.blocking.live
        self.namespace = namespace
        self.drawn = random.Random(number)
        self.names = [f"w{number}-{each}" for each in range(NAMES)]
        self.known: dict[str, dict[str, Any] | None] = dict.fromkeys(self.names)
        """Each object as the server last answered; None if there is none."""
        self.written: set[str] = set()
        """The names whose last write has succeeded. Of others nothing is promised: a read is no write."""
        self.done = Counter[str]()
        self.reads = 0
        self.mistakes: list[str] = []

    def work(self, writes: int) -> None:
        while self.done.total() - self.done["failed"] < writes:
            name = self.drawn.choice(self.names)
            known = self.known[name]
            verb = "create" if known is None else self.drawn.choice(sorted(WRITES))
            try:
                self.known[name] = self.write(verb, name, known)
            except SelectCacheError:
                # The server is away, or a foreign writer was faster. What it has is what counts from now on.
                self.done["failed"] += 1
                self.written.discard(name)
                self.known[name] = self.persistently(name)
            else:
                self.done[verb] += 1
                self.written.add(name)
            for each in {name, self.drawn.choice(self.names)} & self.written:
                self.check(each)

    def write(self, verb: str, name: str, known: dict[str, Any] | None) -> dict[str, Any] | None:
        named = {"name": name, "namespace": self.namespace}
        labels = {"app": self.drawn.choice(("web", "web", "db"))}
        count = {"count": str(self.done.total())}
        obj = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**named, "labels": labels},
            "data": count,
        }
        if known is None:
            return self.live.create(obj)
        match verb:
            case "patch":
                changes = {"metadata": {"labels": labels}, "data": count}
                return self.live.patch(KIND, name, changes, namespace=self.namespace)
            case "replace":
                return self.live.replace({**known, "data": count})
            case "apply":
                return self.live.apply(obj, field_manager="worker", force=True)
            case "update":
                return self.live.update(
                    KIND, name, lambda found: {**found, "data": count}, namespace=self.namespace
                )
            case _:
                self.live.delete(KIND, name, namespace=self.namespace, uid=known["metadata"]["uid"])
                return None

    def persistently(self, name: str) -> dict[str, Any] | None:
        """Return what the server has of an object, as soon as it answers."""
        while True:
            with suppress(SelectCacheError):
                return self.live.get(KIND, name, namespace=self.namespace, default=None, timeout=60)

    def check(self, name: str) -> None:
        """Compare a read with the last own write of the object."""
        known = self.known[name]
        try:
            shown: Any = self.cache.get(KIND, name, namespace=self.namespace)["metadata"]
        except (OutsideFilter, NotFound):
            shown = None
        except SelectCacheError:
            return  # The cache says that it cannot be read.
        self.reads += 1
        if known is None or known["metadata"]["labels"]["app"] != "web":
            if shown is not None:
                self.mistakes.append(
                    f"{name} is shown as of {shown['resourceVersion']}, and was written: {known}"
                )
        elif shown is None or int(shown["resourceVersion"]) < int(known["metadata"]["resourceVersion"]):
            self.mistakes.append(f"{name} is shown as {shown}, and was written: {known['metadata']}")


WRITES = ("patch", "patch", "replace", "apply", "update", "delete")


def meddle(api: ApiServer, namespace: str, over: Event) -> None:
    """Change the data of random objects as another client, until it is over."""
    drawn = random.Random("foreign")
    while not over.is_set():
        name = f"w{drawn.randrange(WORKERS)}-{drawn.randrange(NAMES)}"
        with suppress(ApiError, OSError, HTTPError):
            api.request(
                "PATCH",
                f"/api/v1/namespaces/{namespace}/configmaps/{name}",
                body={"data": {"foreign": str(drawn.random())}},
                content_type="application/merge-patch+json",
            )


async def disturb(api: ApiServer, workers: list[Worker], times: int, total: int) -> None:
    """Kill the API server and etcd in turn, and start them again, spread over the work."""
    for number in range(1, times + 1):
        mark = number * total // (times + 1)
        await until(partial(_have_done, workers, mark), "the work goes on", deadline=1800)
        process = api.etcd if number % 2 else api.apiserver
        await asyncio.to_thread(process.kill)
        await asyncio.to_thread(process.start)
        await asyncio.to_thread(api.wait_ready)


def _have_done(workers: list[Worker], writes: int) -> bool:
    return sum(each.done.total() for each in workers) > writes


async def play(api: ApiServer, *, writes: int, kills: int) -> list[Worker]:
    namespace, over = api.namespace(), Event()
    async with operating(api, namespace, {KIND: "app=web"}, sync_timeout=20.0) as operator:
        workers = [Worker(operator.cache, namespace, number) for number in range(WORKERS)]
        foreign = asyncio.create_task(asyncio.to_thread(meddle, api, namespace, over))
        disturbing = asyncio.create_task(disturb(api, workers, kills, writes))
        await asyncio.gather(*(asyncio.to_thread(each.work, writes // WORKERS) for each in workers))
        await disturbing
        over.set()
        await foreign
        informer = operator.runtime.informer(KIND)
        # A deletion whose event came before its answer is dropped after `sync_timeout`.
        await until(lambda: not informer.state.own_writes, "the watch has reported all own writes")
        wanted = await asyncio.to_thread(
            api.request,
            "GET",
            f"/api/v1/namespaces/{namespace}/configmaps",
            query={"labelSelector": "app=web"},
        )
        versions = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in wanted["items"]}
        await until(lambda: _versions(operator.cache) == versions, "the cache equals the server")
    return workers


def _versions(cache: Cache) -> dict[str, str]:
    found = [each["metadata"] for each in cache.list_cached(KIND)]
    return {each["name"]: each["resourceVersion"] for each in found}


def _show(start_api: Any, counted: Any, *, writes: int, kills: int) -> None:
    async def main(api: ApiServer) -> None:
        workers = await play(api, writes=writes, kills=kills)
        done = sum((each.done for each in workers), Counter[str]())
        counted(f"own writes: {dict(done)}; {sum(each.reads for each in workers):,} reads")
        assert [mistake for each in workers for mistake in each.mistakes] == []

    run(main(start_api(flags={"request-timeout": "5s"})))


@pytest.mark.real
def test_9_no_thread_reads_an_object_older_than_it_has_written_it(start_api: Any, counted: Any) -> None:
    _show(start_api, counted, writes=100, kills=1)


@pytest.mark.soak
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # Of connections to killed servers.
def test_9_nor_in_ten_thousand_writes_and_twenty_restarts(start_api: Any, counted: Any) -> None:
    _show(start_api, counted, writes=10_000, kills=20)
