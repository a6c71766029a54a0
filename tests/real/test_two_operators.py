"""Several operators in one process, at once and one after the other: each has caches of its own, and leaves
nothing."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf
import pytest
from kopf.testing import KopfRunner

import kopf_selectcache as selectcache
from kopf_selectcache.client import transport
from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until
from tests.real.test_skeleton import create, pod

# aiohttp closes TLS connections a moment later than their session, and Kopf ends the loop before: sockets of
# Kopf's own clients are left to the garbage collector. Ours are counted instead: see `namespace`.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def namespace(api: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A namespace with a pod of each kind, and a ConfigMap that makes the operators answer; threads and
    sessions must end."""
    namespace = api.namespace()
    create(api, namespace, pod("web-1", app="web"), pod("db-1", app="db"))
    api.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/configmaps",
        body={"metadata": {"name": "ask", "labels": {"ask": "yes"}}},
    )
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
    before = set(threading.enumerate())
    opened = _recorded(monkeypatch)
    yield namespace
    assert len(opened) == 4  # Of each of two operators a session and its connector.
    assert [one for one in opened if not one.closed] == []
    # Kopf keeps the threads of its executor, in which it runs sync handlers and logins.
    wait_until(
        lambda: (
            not [
                thread
                for thread in set(threading.enumerate()) - before
                if not thread.name.startswith("ThreadPoolExecutor")
            ]
        ),
        "all threads of the operators to end",
    )
    gc.collect()  # Here, where it is expected.


def _recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have all sessions and connectors that our transport opens from now on put down."""
    opened: list[Any] = []

    def session(*args: Any, **kwargs: Any) -> aiohttp.ClientSession:
        made = aiohttp.ClientSession(*args, **kwargs)
        opened.append(made)
        return made

    def connector(*args: Any, **kwargs: Any) -> aiohttp.TCPConnector:
        made = aiohttp.TCPConnector(*args, **kwargs)
        opened.append(made)
        return made

    monkeypatch.setattr(
        transport,
        "aiohttp",
        SimpleNamespace(**{**vars(aiohttp), "ClientSession": session, "TCPConnector": connector}),
    )
    return opened


def operator(registry: kopf.OperatorRegistry, namespace: str, app: str, answers: Path) -> None:
    """Register an operator that writes down which pods its cache holds."""
    kopf.on.login(registry=registry)(
        kopf.login_with_kubeconfig
    )  # A registry of one's own comes without logins.

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: object) -> None:
        selectcache.settings_of(settings).selectors["v1/pods"] = selectcache.Selector(
            {"app": app}, namespaces=[namespace]
        )

    @kopf.on.event("configmaps", labels={"ask": "yes"}, registry=registry)
    @selectcache.with_cache
    def answer(cache: selectcache.Cache, **_: object) -> None:
        names = sorted(found["metadata"]["name"] for found in cache.list_cached("pods", namespace=namespace))
        answers.joinpath(app).write_text(",".join(names))  # A few bytes.


def test_two_at_once_have_two_caches(namespace: str, tmp_path: Path) -> None:
    stop = threading.Event()
    threads = []
    for app in ("web", "db"):
        registry = kopf.OperatorRegistry()
        operator(registry, namespace, app, tmp_path)
        threads.append(
            threading.Thread(
                target=kopf.run,
                kwargs={
                    "registry": registry,
                    "settings": kopf.OperatorSettings(),
                    "standalone": True,
                    "namespaces": [namespace],
                    "stop_flag": stop,
                },
            )
        )
    for thread in threads:
        thread.start()
    try:
        wait_until(
            lambda: tmp_path.joinpath("web").exists() and tmp_path.joinpath("db").exists(),
            "both operators to answer",
        )
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
    assert tmp_path.joinpath("web").read_text() == "web-1"
    assert tmp_path.joinpath("db").read_text() == "db-1"


def test_two_runners_one_after_the_other_with_fresh_registries(namespace: str, tmp_path: Path) -> None:
    for app, expected in {"web": "web-1", "db": "db-1"}.items():
        registry = kopf.OperatorRegistry()
        operator(registry, namespace, app, tmp_path)
        empty = tmp_path / f"{app}.py"
        empty.write_text("")
        with KopfRunner(
            ["run", str(empty), "--standalone", "-n", namespace], registry=registry, timeout=60
        ) as runner:
            # Within its turn.
            wait_until(lambda: tmp_path.joinpath(app).exists(), "the operator to answer")  # noqa: B023
        assert runner.exit_code == 0
        assert runner.exception is None
        assert tmp_path.joinpath(app).read_text() == expected


# As above; and where startup fails, Kopf leaves coroutines that it has not started to the garbage collector.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_second_operator_in_one_loop_with_the_same_settings_is_refused(
    api: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = api.namespace()
    create(api, namespace, pod("web-1", app="web"))
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))

    async def main() -> None:
        settings, stop = kopf.OperatorSettings(), asyncio.Event()
        caches: list[selectcache.Cache] = []

        async def run() -> None:
            registry = kopf.OperatorRegistry()
            kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)

            @kopf.on.startup(registry=registry)
            def configure(settings: kopf.OperatorSettings, **_: object) -> None:
                selectcache.settings_of(settings).selectors["v1/pods"] = selectcache.Selector(
                    namespaces=[namespace]
                )
                caches.append(selectcache.cache_of(settings))

            await kopf.operator(
                registry=registry, settings=settings, standalone=True, namespaces=[namespace], stop_flag=stop
            )

        first = asyncio.create_task(run())
        while not caches:  # Kopf calls the handler in a thread: there is no event for it.  # noqa: ASYNC110
            await asyncio.sleep(0)
        await caches[0].wait_synced()
        assert caches[0].count("pods", namespace=namespace) == 1
        with pytest.raises(
            Exception, match="handlers failed"
        ) as caught:  # The class is Kopf's own, and private.
            await asyncio.create_task(run())
        assert "these settings belong to another running operator" in str(caught.value.__cause__)
        with pytest.raises(selectcache.ReadError, match="these settings belong to another running operator"):
            caches[1].count("pods", namespace=namespace)
        assert caches[0].count("pods", namespace=namespace) == 1
        stop.set()
        await asyncio.wait({first})
        with pytest.raises(selectcache.ReadError, match="has ended"):
            caches[0].count("pods", namespace=namespace)

    asyncio.run(main())
