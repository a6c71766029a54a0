"""Show what grows in the memory of an operator while objects come and go: `python -m bench.churn`.

In each round objects come, change and go, with names, labels and namespaces that were never there. Meanwhile
filters change, a kind is removed and declared again, and watches end or expire. Then nothing is left of the
objects, and what the operator still holds is counted. The server is another process. The caches' clock is
fast: what they forget after a time is forgotten.

The last third of the rounds is compared with the third before. Something grows if in all of its last rounds
there is more of it than in any of those before. It exits with 1 if something of the package does.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import os
import sys
import time
import tracemalloc
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import kopf

import kopf_selectcache as selectcache
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.recorder.recording import recordings_of
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.testing import EmbeddedCluster
from tests.plugin.reconciling import APPS, CRD, operated
from tests.retained import OURS, counts_of, entries_of, referrers_of, tracked

ALIVE = 20
"""Objects of each kind at one time."""

PER_NAMESPACE = 50
"""Lifetimes in one namespace."""

CHANGES = 20
"""Changes of filters in a round."""

GAP = 0.2
"""Seconds for which a kind is removed."""

SPEED = 60.0
"""Seconds of the caches' clock in one."""

REMEMBERED = 100
"""Events that are remembered: fewer than by default, so that the bound is reached soon."""

DISTINCT = 8
"""Reads of each object that no other has: so the bound of those that are remembered is reached soon."""

PACKAGES = (OURS, "kopf")

LEAST, LEAST_BYTES = CHANGES // 2, 8192
"""What counts as growth. Whatever each change of a filter, or each object, leaves behind is more."""


# ---- The server's process.


def serve() -> None:
    """Serve, and execute as many lifetimes as each line of the input says."""
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        cluster.create(CRD)
        print(json.dumps({"url": cluster.url, "token": cluster.token}), flush=True)
        numbers, alive = itertools.count(), deque[list[dict[str, Any]]]()
        for line in sys.stdin:
            for _ in range(int(line)):
                alive.append(begin(cluster, next(numbers)))
                if len(alive) > ALIVE:
                    end(cluster, alive.popleft())
            for kind in ("secrets", "configmaps", "webapps"):
                cluster.cut("watch", kind)  # Kopf, which watches pods, would never learn of what it misses.
            while alive:
                end(cluster, alive.popleft())
            time.sleep(1.0)
            cluster.compact()
            cluster.cut("watch")  # They have expired, so the caches list again.
            cluster.bookmark()
            print("done", flush=True)


def begin(cluster: EmbeddedCluster, number: int) -> list[dict[str, Any]]:
    namespace = f"space-{number // PER_NAMESPACE}"
    if number % PER_NAMESPACE == 0:
        cluster.namespace(namespace, tenant=f"t{number}")
    metadata = {"namespace": namespace, "labels": {"app": "web", "number": str(number)}}

    def made(kind: str, **parts: Any) -> dict[str, Any]:
        version = "example.com/v1" if kind == "WebApp" else "v1"
        named = {"name": f"{kind.lower()}-{number}", **metadata}
        return {"apiVersion": version, "kind": kind, "metadata": named, **parts}

    app, secret = made("WebApp"), made("Secret")
    pod = made("Pod", spec={"containers": [{"name": f"c{number}", "image": f"web:{number}"}], "nodeName": ""})
    config = made("ConfigMap", data={f"key-{number}": "x"})
    cluster.create(app, pod, config, secret)
    cluster.patch(pod, {"status": {"phase": "Running"}}, subresource="status")
    cluster.patch(config, {"metadata": {"labels": {"app": "web" if number % 3 else "db"}}})
    return [app, pod, config, secret]


def end(cluster: EmbeddedCluster, objects: list[dict[str, Any]]) -> None:
    cluster.patch(objects[0], {"spec": {"size": 1}})
    cluster.delete(*objects[1:], grace_period=0)
    cluster.delete(objects[0])
    number = int(objects[0]["metadata"]["labels"]["number"])
    if number % PER_NAMESPACE == PER_NAMESPACE - 1:
        space = {"apiVersion": "v1", "kind": "Namespace"}
        cluster.delete(space | {"metadata": {"name": objects[0]["metadata"]["namespace"]}})


# ---- The operator.


def operator(registry: kopf.OperatorRegistry) -> None:
    """Register handlers that read, write, record Events, and follow changes."""
    recorder = selectcache.Recorder("churn", remembered=REMEMBERED)

    @kopf.on.event("pods", labels={"app": "web"}, registry=registry)
    @selectcache.with_cache
    async def seen(cache: selectcache.Cache, namespace: str, name: str, **_: Any) -> None:
        cache.list_cached("pods", namespace=namespace, labels={"app": "web"})
        cache.exists("pods", name, namespace=namespace)
        cache.get("pods", name, namespace=namespace, default=None)
        for other in range(DISTINCT):
            cache.count("pods", labels=f"app=web,number={name.rpartition('-')[2]},other!={other}")
        await cache.fetch("services", name, namespace=namespace, default=None)
        await cache.fetch("pods", name, namespace=namespace, default=None)
        with suppress(TimeoutError):
            await cache.wait_for(
                "pods", lambda pod: pod["metadata"]["name"] == f"never-{name}", namespace=namespace, timeout=1
            )

    @selectcache.on.change("configmaps", registry=registry)
    async def changed(cache: selectcache.Cache, name: str, cause: str, body: Any, **_: Any) -> None:
        cache.list_cached("pods", labels=f"number={name.rpartition('-')[2]}")
        if cause == "entered":
            recorder.record(body, "Normal", "Seen", f"{name} was seen.")

    @selectcache.on.change("secrets", registry=registry)
    async def changed_secret(name: str, **_: Any) -> None:
        await asyncio.sleep(0)
        if name.endswith("1"):
            raise kopf.TemporaryError("again and again, until the object is gone", delay=30)

    @selectcache.reconcile("secrets", registry=registry)
    async def reconcile_secret(cache: selectcache.Cache, name: str, namespace: str, **_: Any) -> None:
        with cache.snapshot("pods", "configmaps") as now:
            now.list_cached("pods", namespace=namespace)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                async for _change in cache.changes("pods", namespace=namespace):
                    break
        if name.endswith("2"):
            raise kopf.TemporaryError("its next call is due when the object is gone", delay=1000)

    @selectcache.reconcile("pods", registry=registry)
    def reconcile_pod(cache: selectcache.SyncCache, body: Any, name: str, namespace: str, **_: Any) -> None:
        cache.get("secrets", name.replace("pod", "secret"), namespace=namespace, default=None)
        with suppress(selectcache.ServerError):  # It exists.
            cache.live.create({"apiVersion": "v1", "kind": "Pod", "metadata": {**body.metadata}})
        with suppress(selectcache.ServerError):  # It does not.
            cache.live.delete("pods", f"{name}-absent", namespace=namespace)

    @selectcache.reconcile(APPS, owns=["configmaps"], deleted=True, registry=registry)
    async def reconcile(
        cache: selectcache.Cache, body: Any, name: str, namespace: str, deleted: Any, patch: Any, **_: Any
    ) -> None:
        if deleted or body.metadata.get("deletionTimestamp"):
            return
        child = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": "1"}}
        child["metadata"] = {"name": f"{name}-child", "namespace": namespace, "labels": {"app": "web"}}
        kopf.append_owner_reference(child, owner=body)
        try:
            await cache.live.ensure(child)
            await cache.live.patch("configmaps", f"{name}-child", {"data": {"of": name}}, namespace=namespace)
        except selectcache.ServerError:
            pass  # Its owner, or its namespace, is being deleted.
        patch.status["count"] = len(cache.list_cached("configmaps", owner=body))


FILTERS: dict[str, Any] = {
    APPS: selectcache.EVERYTHING,
    "v1/pods": "app=web",
    "v1/secrets": "app=web",
    "v1/configmaps": selectcache.Cached("app=web", index={"of": lambda obj: obj["data"].get("of")}),
}


@dataclass(frozen=True, slots=True)
class Address:
    """The server, as an operator must know it."""

    url: str
    token: str | None


def configure(settings: kopf.OperatorSettings) -> None:
    settings.queueing.idle_timeout = 0.1
    settings.queueing.exit_timeout = 1.0


@asynccontextmanager
async def operating(server: Address, *, speed: float) -> AsyncIterator[Runtime]:
    registry, begun = kopf.OperatorRegistry(), time.monotonic()
    operator(registry)
    init = Runtime.__init__

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / speed)

    def hurry(runtime: Runtime, *args: Any, **options: Any) -> None:
        init(runtime, *args, clock=lambda: (time.monotonic() - begun) * speed, sleep=sleep, **options)

    with patch.object(Runtime, "__init__", hurry):
        async with operated(registry, server, filters=FILTERS, configure=configure) as settings:
            while (found := operator_of(settings)) is None or not all(  # No event tells.  # noqa: ASYNC110
                each.state.is_synced for each in found.runtime.informers.values()
            ):
                await asyncio.sleep(0.05)
            yield found.runtime


async def change_filters(cache: Cache, number: int) -> None:
    """Change filters to ones that were never there before, and declare kinds for a while."""
    for step in range(CHANGES):
        unique = f"{number}-{step}"
        await cache.declare("configmaps", f"app in (web, w{unique})", replace=True)
        await cache.declare("services", f"app=w{unique}")
        spaces = LabelSelector.parse(f"tenant in (t{number}, t{unique})")
        await cache.declare(
            "services", selectcache.Selector(f"app=w{unique}", namespaces=spaces), replace=True
        )
        await cache.why("pods", f"pod-{unique}", namespace="space-1")
        await cache.plan("services", f"app=v{unique}")
        await cache.undeclare("services")
        await cache.undeclare("secrets")
        await asyncio.sleep(GAP)  # Meanwhile nobody hears of those that come and go.
        await cache.declare("secrets", f"app in (web, w{unique})")


# ---- What is left.


@dataclass(frozen=True, slots=True)
class Left:
    """What the operator holds after a round."""

    objects: int
    """All objects that the garbage collector tracks."""
    counts: Mapping[str, Counter[str]]
    """The objects of the classes of each package."""
    entries: Mapping[str, Counter[str]]
    """The entries of the containers of each package."""
    bytes: Counter[str]
    """The bytes that each package's own lines have allocated, and the bytes of all other lines."""
    resident: float
    """The megabytes of the process in memory."""


def look() -> Left:
    sizes: Counter[str] = Counter()
    for each in tracemalloc.take_snapshot().statistics("filename"):
        path = each.traceback[0].filename
        sizes[next((name for name in PACKAGES if f"/{name}/" in path), "others")] += each.size
    objects = tracked()
    counts = {name: counts_of(objects, name) for name in PACKAGES}
    entries = {name: entries_of(objects, name) for name in PACKAGES}
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return Left(len(objects), counts, entries, sizes, resident)


async def settled(runtime: Runtime, tasks: int) -> None:
    """Wait until the operator knows none of the objects any more, and nothing runs that did not before."""
    while any(len(each.state.store.records()[0]) for each in runtime.informers.values()):  # No event tells.  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    begun = time.monotonic()
    while time.monotonic() < begun + 3.0 or (  # Nor is there one here.  # noqa: ASYNC110
        time.monotonic() < begun + 30.0
        and (len(asyncio.all_tasks()) > tasks or any(each.stats().waiting for each in recordings_of(runtime)))
    ):
        await asyncio.sleep(0.1)


# ---- The verdict.


def growing(rounds: Sequence[Mapping[str, int]], least: float) -> dict[str, tuple[int, int]]:
    """Return what grows, by name: its largest number in the second third of the rounds, and its smallest in
    the last, if that is larger by `least` or more.
    """
    size = len(rounds) // 3
    last, before = rounds[-size:], rounds[-2 * size : -size]
    found = {}
    for name in sorted(set().union(*last)):
        most, now = max(each.get(name, 0) for each in before), min(each.get(name, 0) for each in last)
        if now >= most + least:
            found[name] = most, now
    return found


def judge(left: Sequence[Left]) -> bool:
    """Print the verdict; return True if nothing of the package grows."""
    size = len(left) // 3
    before, last = left[-2 * size : -size], left[-size:]
    grown = {}
    for name in PACKAGES:
        found = {
            **growing([each.counts[name] for each in left], LEAST),
            **growing([each.entries[name] for each in left], LEAST),
            **growing([{"bytes": each.bytes[name]} for each in left], LEAST_BYTES),
        }
        for what, (most, now) in found.items():
            print(f"    {what}: at most {most:,} before, at least {now:,} in the last {size} rounds")
            for line in referrers_of(what):
                print(f"        {line}")
        grown[name] = bool(found)
    for name in PACKAGES:
        sizes = [
            f"{max(each.counts[name].total() for each in rounds):,} objects and"
            f" {max(each.bytes[name] for each in rounds) / 1024:,.0f} KiB"
            for rounds in (before, last)
        ]
        print(
            f"{name}: at most {sizes[0]} in rounds {len(left) - 2 * size + 1} to {len(left) - size},"
            f" and {sizes[1]} in the last {size}: {'it grows' if grown[name] else 'it does not grow'}."
        )
    print("The largest containers of ours, at last:")
    for what, number in left[-1].entries[OURS].most_common(10):
        print(f"    {number:7,} {what}")
    return not grown[OURS]


# ---- The rounds.


@asynccontextmanager
async def served() -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.churn", "--serve",
        cwd=Path(__file__).parent.parent, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def play(rounds: int, lifetimes: int, *, speed: float) -> bool:
    """Play the rounds and print what is left after each; return True if nothing of the package grows."""
    left: list[Left] = []
    async with served() as server:
        assert server.stdin is not None, "it is a pipe"
        assert server.stdout is not None, "it is a pipe"
        address = Address(**json.loads(await server.stdout.readline()))
        async with operating(address, speed=speed) as runtime:
            cache, tasks = Cache(runtime), len(asyncio.all_tasks())
            print("       tracked objects             KiB allocated by           MB")
            print(
                "round  all      ours     Kopf's    ours     Kopf     others   resident  seconds", flush=True
            )
            for number in range(rounds):
                begun = time.monotonic()
                server.stdin.write(b"%d\n" % lifetimes)
                changes = asyncio.create_task(change_filters(cache, number))
                await server.stdout.readline()
                await changes
                await settled(runtime, tasks)
                # With the filter go the comparisons of reads with it, which begin again after 1,024.
                await cache.declare("pods", f"app in (web, w{number})", replace=True)
                await asyncio.sleep(1.0)
                now = look()
                left.append(now)
                kib = {name: f"{now.bytes[name] / 1024:<8,.0f}" for name in (*PACKAGES, "others")}
                print(
                    f"{number + 1:5}  {now.objects:<8,} {now.counts[OURS].total():<8,}"
                    f" {now.counts['kopf'].total():<9,} {kib[OURS]} {kib['kopf']} {kib['others']}"
                    f" {now.resident:<9.1f} {time.monotonic() - begun:.0f}",
                    flush=True,
                )
            return judge(left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="for the other process")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--lifetimes", type=int, default=150, help="in a round")
    parser.add_argument("--speed", type=float, default=SPEED, help="of the caches' clock")
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    tracemalloc.start()
    logging.getLogger("kopf_selectcache").setLevel(logging.ERROR)  # Streams end here for good reason.
    if not asyncio.run(play(given.rounds, given.lifetimes, speed=given.speed)):
        sys.exit(1)


if __name__ == "__main__":
    main()
