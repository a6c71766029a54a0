"""Several operators in one process, at once and one after the other: each has caches of its own, and leaves
nothing."""

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
