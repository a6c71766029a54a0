"""Show what grows in the memory of an operator while objects come and go: `python -m bench.churn`.

Each round creates, changes and deletes objects with names, labels and namespaces that were never there, and
changes filters. Then nothing is left of them, and the objects in the memory of the operator are counted.
The server is another process. The caches' clock is fast: what they forget after a time is forgotten.

Some numbers grow up to a bound: comparisons of reads (1,024 for each kind), and what a recorder remembers of
Events (4,096) and has still to write (1,000).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import sys
import time
import tracemalloc
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import kopf
from kopf._cogs.structs.credentials import Vault

import kopf_selectcache as selectcache
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.testing import EmbeddedCluster

ALIVE = 20
"""Objects of each kind at one time."""

PER_NAMESPACE = 50
"""Lifetimes in one namespace."""

SPEED = 60.0
"""Seconds of the caches' clock in one."""

PACKAGES = ("kopf_selectcache", "kopf", "aiohttp", "asyncio", "msgspec")

APPS = "example.com/v1/webapps"
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "webapps.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "WebApp", "plural": "webapps", "singular": "webapp"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


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
            while alive:
                end(cluster, alive.popleft())
            cluster.cut("watch")
            cluster.bookmark()
            print("done", flush=True)


def begin(cluster: EmbeddedCluster, number: int) -> list[dict[str, Any]]:
    namespace = f"space-{number // PER_NAMESPACE}"
    if number % PER_NAMESPACE == 0:
        cluster.namespace(namespace, tenant=f"t{number}")
    metadata = {"namespace": namespace, "labels": {"app": "web", "number": str(number)}}
    app = {
        "apiVersion": "example.com/v1",
        "kind": "WebApp",
        "metadata": {"name": f"app-{number}", **metadata},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}", **metadata}}
    pod |= {"spec": {"containers": [{"name": f"c{number}", "image": f"web:{number}"}], "nodeName": ""}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"config-{number}", **metadata}}
    config |= {"data": {f"key-{number}": "x"}}
    cluster.create(app, pod, config)
    cluster.patch(pod, {"status": {"phase": "Running"}}, subresource="status")
    cluster.patch(config, {"metadata": {"labels": {"app": "web" if number % 3 else "db"}}})
    return [app, pod, config]


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
    create = {"registry": registry}

    @kopf.on.event("pods", labels={"app": "web"}, **create)  # type: ignore[arg-type]
    @selectcache.with_cache
    async def seen(cache: selectcache.Cache, namespace: str, name: str, **_: Any) -> None:
        cache.held("pods", namespace=namespace, label={"app": "web"})
        cache.exists("pods", name, namespace)
        cache.get("pods", name, namespace, default=None)
        cache.count("pods", label=f"app=web,number={name.rpartition('-')[2]}")
        await cache.fetch("secrets", name, namespace, default=None)
        await cache.fetch("pods", name, namespace, default=None)
        with suppress(TimeoutError):
            await cache.wait_for(
                "pods", lambda pod: pod["metadata"]["name"] == f"never-{name}", namespace=namespace, timeout=1
            )

    @selectcache.on.change("configmaps", **create)  # type: ignore[arg-type]
    async def changed(
        cache: selectcache.Cache, name: str, cause: str, events: Any, body: Any, **_: Any
    ) -> None:
        cache.held("pods", label=f"number={name.rpartition('-')[2]}")
        if cause == "entered":
            events.record(body, "Normal", "Seen", f"{name} was seen.")

    @selectcache.reconcile(APPS, owns=["configmaps"], deleted=True, **create)  # type: ignore[arg-type]
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
            await cache.live.patch("configmaps", f"{name}-child", namespace, {"data": {"of": name}})
        except selectcache.ServerError:
            pass  # Its owner, or its namespace, is being deleted.
        patch.status["ready"] = len(cache.owned(body, "configmaps"))


@asynccontextmanager
async def operating(server: dict[str, str], *, speed: float) -> AsyncIterator[Runtime]:
    registry, settings, stop = kopf.OperatorRegistry(), kopf.OperatorSettings(), asyncio.Event()
    operator(registry)
    settings.posting.enabled = False
    settings.queueing.idle_timeout = 0.1
    settings.queueing.exit_timeout = 1.0
    select = selectcache.settings_of(settings).selectors
    select["v1/pods"] = "app=web"
    select[APPS] = selectcache.EVERYTHING
    select["v1/configmaps"] = selectcache.Cached("app=web", index={"of": lambda obj: obj["data"].get("of")})
    init, begun = Runtime.__init__, time.monotonic()

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / speed)

    def hurry(runtime: Runtime, *args: Any, **options: Any) -> None:
        init(runtime, *args, clock=lambda: (time.monotonic() - begun) * speed, sleep=sleep, **options)

    Runtime.__init__ = hurry  # type: ignore[assignment, method-assign]
    vault = Vault({"login": kopf.ConnectionInfo(server=server["url"], token=server["token"])})
    running = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=settings,
            vault=vault,
            clusterwide=True,
            standalone=True,
            stop_flag=stop,
        )
    )
    try:
        while (found := operator_of(settings)) is None or not all(  # There is no event.  # noqa: ASYNC110
            each.synced for each in found.runtime.informers.values()
        ):
            await asyncio.sleep(0.05)
        yield found.runtime
    finally:
        Runtime.__init__ = init  # type: ignore[method-assign]
        stop.set()
        await running


def module_of(obj: object) -> str:
    kind = type(obj)
    return f"{kind.__module__}.{kind.__qualname__}"


def resident() -> float:
    """Return the megabytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def change_filters(cache: Cache, number: int) -> None:
    """Change filters to ones that were never there before, and declare a kind for a while."""
    for step in range(20):
        unique = f"{number}-{step}"
        await cache.change("configmaps", f"app in (web, w{unique})")
        await cache.declare("services", f"app=w{unique}")
        spaces = LabelSelector.parse(f"tenant in (t{number}, t{unique})")
        await cache.change("services", selectcache.Selector(f"app=w{unique}", namespaces=spaces))
        await cache.why("pods", f"pod-{unique}", "space-1")
        await cache.plan("services", f"app=v{unique}")
        await cache.remove("services")


def packages(snapshot: tracemalloc.Snapshot) -> Counter[str]:
    """Return the bytes of each package."""
    found: Counter[str] = Counter()
    for each in snapshot.statistics("filename"):
        path = each.traceback[0].filename
        package = next((name for name in PACKAGES if f"/{name}/" in path), "others")
        found[package] += each.size
    return found


async def settled(runtime: Runtime) -> None:
    """Wait until the operator knows none of the objects any more, and nothing runs."""
    while any(len(each.store.records()[0]) for each in runtime.informers.values()):  # There is no event.  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await asyncio.sleep(2.0)


async def measure(rounds: int, lifetimes: int, *, traced: bool, speed: float) -> None:
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.churn", "--serve",
        cwd=Path(__file__).parent.parent, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdin is not None, "it is a pipe"
    assert server.stdout is not None, "it is a pipe"
    try:
        address = json.loads(await server.stdout.readline())
        async with operating(address, speed=speed) as runtime:
            before: Counter[str] = Counter()
            snapshot = None
            for number in range(rounds):
                begun = time.monotonic()
                server.stdin.write(b"%d\n" % lifetimes)
                await server.stdout.readline()
                await settled(runtime)
                gc.collect()
                gc.collect()
                objects = gc.get_objects()
                now = Counter(map(module_of, objects))
                total = len(objects)
                del objects
                of_ours = sum(count for name, count in now.items() if name.startswith("kopf_selectcache."))
                print(
                    f"round {number + 1}: {total:,} objects, {of_ours:,} of our classes, {resident():.1f} MB,"
                    f" after {lifetimes:,} lifetimes in {time.monotonic() - begun:.0f} s",
                    flush=True,
                )
                for kind, count in (now - before).most_common(30) if before else ():
                    print(f"    {count:+7,} {kind}")
                before = now
                await change_filters(Cache(runtime), number)
                if traced:
                    later = tracemalloc.take_snapshot()
                    print("    bytes:", dict(packages(later)))
                    if snapshot is not None:
                        for each in later.compare_to(snapshot, "lineno")[:14]:
                            print(
                                f"    {each.size_diff / 1024:+9.1f} KiB {each.count_diff:+7,}"
                                f" {each.traceback}"
                            )
                    snapshot = later
    finally:
        server.kill()
        await server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--lifetimes", type=int, default=1000)
    parser.add_argument("--traced", action="store_true")
    parser.add_argument("--speed", type=float, default=SPEED)
    given = parser.parse_args()
    if given.serve:
        serve()
    else:
        if given.traced:
            tracemalloc.start(8)
        asyncio.run(measure(given.rounds, given.lifetimes, traced=given.traced, speed=given.speed))


if __name__ == "__main__":
    main()
