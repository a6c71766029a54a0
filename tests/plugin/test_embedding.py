"""Whole operators, however they are started: on which loop and in which thread, several at once, twice, and
paused.

Each begins with nothing, reads in both kinds of handler, and ends with nothing left of it.
"""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import kopf
import pytest
import uvloop
from kopf._cogs.structs.credentials import Vault
from kopf.testing import KopfRunner

import kopf_selectcache as selectcache
from kopf_selectcache.errors import DeclarationError
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from tests.faults.environment import until
from tests.secrets import named, secret

ASK: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "ask", "namespace": "shop", "labels": {"ask": "yes"}},
}
DEADLINE = 60.0

Told = queue.Queue[tuple[str, object]]
Left = list[asyncio.Task[Any]]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster with a pair of Secrets, and something that makes handlers answer; afterwards no thread and no
    socket is left."""
    before = set(threading.enumerate())
    with EmbeddedCluster(tls=False).in_thread() as running:
        running.namespace("shop")
        running.create(secret("web-1", app="web"), secret("db-1", app="db"), ASK)
        yield running
    # Kopf keeps the threads of its executor, in which it runs sync handlers and logins.
    left = [
        thread
        for thread in set(threading.enumerate()) - before
        if not thread.name.startswith("ThreadPoolExecutor")
    ]
    for thread in left:
        thread.join(DEADLINE)  # That of a loop which was closed without waiting for it ends a moment later.
    assert [thread for thread in left if thread.is_alive()] == []
    gc.collect()  # Whatever was not closed is an error here.


def caching(app: str, cluster: EmbeddedCluster) -> kopf.OperatorRegistry:
    """Register an operator that caches the Secrets of this app."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(lambda **_: kopf.ConnectionInfo(server=cluster.url, token=cluster.token))  # type: ignore[arg-type, return-value, unused-ignore]  # A login is handed over as it is.

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings_of(settings).selectors["v1/secrets"] = {"app": app}

    return registry


def operator(app: str, told: Told, cluster: EmbeddedCluster) -> kopf.OperatorRegistry:
    """Register an operator that tells what both kinds of handler read, too."""
    registry = caching(app, cluster)

    @kopf.on.event("configmaps", labels={"ask": "yes"}, registry=registry)
    @selectcache.with_cache
    async def in_loop(cache: selectcache.Cache, **_: Any) -> None:
        told.put((app, named(cache.list_cached("secrets"))))

    @kopf.on.event("configmaps", labels={"ask": "yes"}, registry=registry)
    @selectcache.with_cache
    def in_thread(cache: selectcache.SyncCache, **_: Any) -> None:
        found = cache.wait_for("secrets", lambda one: one["metadata"]["name"] == f"{app}-1", timeout=DEADLINE)
        asked = cache.fetch("configmaps", "ask", namespace="shop")  # Of no cache: on the loop, by the server.
        told.put((app, [found["metadata"]["name"], asked["metadata"]["name"]]))

    return registry


def expected(*apps: str) -> list[tuple[str, object]]:
    return sorted(
        [(app, [f"{app}-1"]) for app in apps] + [(app, [f"{app}-1", "ask"]) for app in apps], key=str
    )


def answers(told: Told, number: int) -> list[tuple[str, object]]:
    return sorted((told.get(timeout=DEADLINE) for _ in range(number)), key=str)


async def whole(left: Left, options: dict[str, Any]) -> None:
    """Run an operator as a part of something bigger, and note what it leaves running."""
    before = asyncio.all_tasks()
    await kopf.operator(**options)
    for _ in range(10):  # Kopf leaves generators to the loop to close.
        await asyncio.sleep(0)
    left.extend(asyncio.all_tasks() - before)


def on_a_loop_given(left: Left, options: dict[str, Any]) -> None:
    loop = asyncio.new_event_loop()
    kopf.run(loop=loop, **options)
    left.extend(asyncio.all_tasks(loop))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())  # In it, names of hosts are looked up.
    loop.close()


LAUNCHES: dict[str, Callable[[Left, dict[str, Any]], None]] = {
    "asyncio.run": lambda left, options: asyncio.run(whole(left, options)),
    "uvloop.run": lambda left, options: uvloop.run(whole(left, options)),
    "kopf.run": lambda _, options: kopf.run(**options),
    "kopf.run with a loop": on_a_loop_given,
}


class Running:
    """Operators in threads of their own."""

    def __init__(self) -> None:
        self.left: Left = []
        self.settings: list[kopf.OperatorSettings] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(
        self,
        launch: Callable[[Left, dict[str, Any]], None],
        registry: kopf.OperatorRegistry,
        **others: Any,
    ) -> None:
        settings = kopf.OperatorSettings()
        options = {
            "registry": registry,
            "settings": settings,
            "standalone": True,
            "clusterwide": True,
            "stop_flag": self._stop,
            **others,
        }

        def target() -> None:
            try:
                launch(self.left, options)
            except BaseException as error:  # Whatever it is, the test is to fail by it.  # noqa: BLE001
                self._failures.append(error)

        self.settings.append(settings)
        self._threads.append(threading.Thread(target=target))
        self._threads[-1].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE)
        assert not any(thread.is_alive() for thread in self._threads), "an operator did not end"
        assert self._failures == []
        assert self.left == []
        assert [operator_of(settings) for settings in self.settings] == [None] * len(self.settings)


@pytest.mark.parametrize("launch", LAUNCHES.values(), ids=LAUNCHES)
def test_however_it_is_embedded_it_syncs_reads_in_both_kinds_of_handler_and_ends(
    launch: Callable[[Left, dict[str, Any]], None],
    cluster: EmbeddedCluster,
) -> None:
    told: Told = queue.Queue()
    with Running() as running:
        running.start(launch, operator("web", told, cluster))
        assert answers(told, 2) == expected("web")


# A runner leaves the sockets of its loop to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_runner_runs_twice_in_one_process(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    told: Told = queue.Queue()
    registry = operator("web", told, cluster)
    empty = tmp_path / "operator.py"
    empty.write_text("")
    for _ in range(2):
        with KopfRunner(
            ["run", "-A", "--standalone", str(empty)], registry=registry, timeout=DEADLINE
        ) as runner:
            assert answers(told, 2) == expected("web")
        assert runner.exit_code == 0
        assert runner.exception is None
    gc.collect()


# ---- In which namespaces.


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["-A"], ["web-1", "web-2", "web-3"]),
        (["-n", "shop", "-n", "infra"], ["web-1", "web-2"]),
        (["-n", "infra"], ["web-2"]),
    ],
)
def test_a_filter_without_namespaces_holds_those_of_kopf_run(
    arguments: list[str], names: list[str], cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    cluster.namespace("infra")
    cluster.create(
        secret("web-2", "infra", app="web"),
        secret("web-3", "default", app="web"),
        {**ASK, "metadata": {**ASK["metadata"], "namespace": "infra"}},
    )
    told: queue.Queue[list[str]] = queue.Queue()
    registry = caching("web", cluster)

    @kopf.on.event("configmaps", labels={"ask": "yes"}, registry=registry)
    @selectcache.with_cache
    async def tell(cache: selectcache.Cache, **_: Any) -> None:
        told.put(named(cache.list_cached("secrets")))

    empty = tmp_path / "operator.py"
    empty.write_text("")
    with KopfRunner(["run", *arguments, "--standalone", str(empty)], registry=registry, timeout=DEADLINE):
        assert told.get(timeout=DEADLINE) == names
    gc.collect()


def test_embedded_with_a_pattern_of_namespaces_it_ends_at_once(cluster: EmbeddedCluster) -> None:
    registry, settings = caching("web", cluster), kopf.OperatorSettings()
    with pytest.raises(Exception) as caught:  # The class is Kopf's own, and private.
        asyncio.run(kopf.operator(registry=registry, settings=settings, standalone=True, namespaces=["sh*"]))
    assert isinstance(caught.value.__cause__, DeclarationError)


# ---- Paused.


PEERINGS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusterkopfpeerings.kopf.dev"},
    "spec": {
        "group": "kopf.dev",
        "scope": "Cluster",
        "names": {"kind": "ClusterKopfPeering", "plural": "clusterkopfpeerings"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}
PEERING = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "ours"}}


async def test_a_paused_operator_keeps_its_caches_and_admission_reads_them(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Kopf closes its own streams as long as an operator of higher priority is there, and goes on to answer
    requests."""
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    handled: list[str] = []
    reviews: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()
    settings_of(settings).selectors["v1/secrets"] = "app=web"
    cluster.create(PEERINGS)
    cluster.create(PEERING)
    caplog.set_level("INFO")
    caplog.set_level("DEBUG", logger="kopf._cogs.clients.watching")

    def has_paused() -> bool:
        """Return True once Kopf has closed its watch: it tells of the pause before."""
        _, paused, later = caplog.text.partition("Pausing operations in favour of")
        return bool(paused) and "Pausing the watch-stream for secrets" in later

    async def server(serve: Any) -> AsyncIterator[Any]:
        yield {"url": "https://localhost"}
        while True:
            review, answered = await reviews.get()
            answered.set_result(await serve(review))

    @kopf.on.event("secrets", registry=registry)
    async def handle(name: str, **_: Any) -> None:
        handled.append(name)

    @kopf.on.validate("secrets", registry=registry)
    @selectcache.with_cache
    async def validate(cache: selectcache.Cache, warnings: list[str], **_: Any) -> None:
        warnings.extend(named(cache.list_cached("secrets")))

    async def held() -> list[str]:
        """Return what admission reads."""
        review = {
            "request": {
                "uid": "1",
                "userInfo": {"username": "someone"},
                "operation": "CREATE",
                "object": secret("new"),
                "oldObject": None,
                "resource": {"group": "", "version": "v1", "resource": "secrets"},
            }
        }
        answered = asyncio.get_running_loop().create_future()
        reviews.put_nowait((review, answered))
        answer = (await answered)["response"]
        assert answer["allowed"]
        return list(answer["warnings"])

    stop = asyncio.Event()
    settings.admission.server = server
    vault = Vault({"login": kopf.ConnectionInfo(server=cluster.url, token=cluster.token)})
    running = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=settings,
            vault=vault,
            peering_name="ours",
            priority=1,
            clusterwide=True,
            stop_flag=stop,
        )
    )
    await until(lambda: {*handled} >= {"web-1", "db-1"} or running.done())
    assert await held() == ["web-1"]

    cluster.patch(PEERING, {"status": {"another": {"priority": 100, "lifetime": 600}}})
    await until(lambda: has_paused() or running.done())
    cluster.create(secret("web-2", app="web"))
    while await held() != ["web-1", "web-2"]:
        pass
    cluster.delete(secret("web-1"))
    while await held() != ["web-2"]:
        pass
    assert "web-2" not in handled, "Kopf does not follow"
    found = operator_of(settings)
    assert found is not None
    report = found.report()["v1/secrets"]
    assert (report["health"], report["objects"]) == ("synced", 1)

    cluster.patch(PEERING, {"status": {"another": None}})
    await until(lambda: "web-2" in handled or running.done())
    assert await held() == ["web-2"]
    assert found.runtime.informer("secrets").counts.lists == 1, "it was never listed anew"
    stop.set()
    await running
