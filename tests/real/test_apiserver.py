"""The tests' own API server does what the other tests rely on."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.apiserver.client import ApiError
from tests.apiserver.process import StartError, free_port
from tests.apiserver.server import ApiServer
from tests.apiserver.waiting import wait_until

StartApi = Callable[..., ApiServer]
# A run that starts a server and never ends it.
ORPHAN = """
import pathlib, sys, time
from tests.apiserver.server import ApiServer
server = ApiServer(assets=pathlib.Path(sys.argv[1]))
print(server.url, server.folder, flush=True)
time.sleep(600)
"""

pytestmark = pytest.mark.aside


def configmaps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def create(server: ApiServer, namespace: str, *names: str) -> None:
    for name in names:
        server.request("POST", configmaps(namespace), body={"metadata": {"name": name}})


def status_of(server: ApiServer, path: str, **options: Any) -> int:
    try:
        server.request("GET", path, **options)
    except ApiError as error:
        return error.status
    return 200


def listens(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as sock:
        return sock.connect_ex((parts.hostname, parts.port)) == 0


# --- watches


def test_a_watch_without_events_ends_at_its_deadline(real_api: ApiServer) -> None:
    with (
        real_api.watch(configmaps(real_api.namespace()), deadline=0.2) as watch,
        pytest.raises(TimeoutError),
    ):
        next(watch)


def test_a_watch_with_events_ends_after_its_deadline(real_api: ApiServer) -> None:
    namespace = real_api.namespace()
    create(real_api, namespace, "a")

    def change_again(event: dict[str, Any]) -> bool:
        version = event["object"]["metadata"]["resourceVersion"]
        real_api.request("PATCH", f"{configmaps(namespace)}/a", body={"data": {"after": version}})
        return False

    with (
        real_api.watch(configmaps(namespace), deadline=1) as watch,
        pytest.raises(TimeoutError),
    ):
        watch.until(change_again)  # Each event makes the next.


def test_a_watch_that_ends_before_the_awaited_event_is_an_error(real_api: ApiServer) -> None:
    with (
        real_api.watch(configmaps(real_api.namespace()), query={"timeoutSeconds": 1}) as watch,
        pytest.raises(AssertionError, match="the watch ended before"),
    ):
        watch.until(lambda _: True)


# --- history that is gone


@pytest.fixture(scope="module")
def uncached_api(assets: Path) -> Iterator[ApiServer]:
    """A server that has no watch cache in front of the configmaps in etcd."""
    with ApiServer(assets=assets, flags={"watch-cache-sizes": "configmaps#0"}) as server:
        yield server


def test_after_compact_even_the_version_of_the_last_write_is_too_old(uncached_api: ApiServer) -> None:
    namespace = uncached_api.namespace()
    create(uncached_api, namespace, "a", "b")
    page = uncached_api.request("GET", configmaps(namespace), query={"limit": 1})
    uncached_api.compact()
    query = {"limit": 1, "continue": page["metadata"]["continue"]}
    assert status_of(uncached_api, configmaps(namespace), query=query) == 410


# --- servers that die


def test_a_running_server_is_not_started_twice(real_api: ApiServer) -> None:
    with pytest.raises(RuntimeError, match="kube-apiserver runs already"):
        real_api.apiserver.start()


def test_a_stopped_server_leaves_nothing(start_api: StartApi) -> None:
    server = start_api()
    server.stop()
    assert not listens(server.url)
    assert server.etcd.pid is None
    assert not server.folder.exists()
    server.stop()  # And once more is no error.


def test_a_server_ends_with_its_run_even_when_that_is_killed(assets: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(assets)], stdout=subprocess.PIPE, text=True
    ) as run:
        try:
            assert run.stdout is not None
            url, folder = run.stdout.readline().split()
            assert listens(url)
        finally:
            run.send_signal(signal.SIGKILL)
    wait_until(lambda: not listens(url), "the server has ended")
    wait_until(lambda: not Path(folder).exists(), "its folder is removed")


# --- servers that do not start, and those that start otherwise


def test_a_server_that_does_not_start_tells_the_end_of_its_log_and_leaves_nothing(
    start_api: StartApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(
        StartError, match=r"kube-apiserver ended with exit code 1(.|\n)*unknown flag: --no-such"
    ):
        start_api(flags={"no-such": "1"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("taken", [0, 1], ids=["etcd", "kube-apiserver"])
def test_another_port_is_chosen_when_the_first_is_taken_in_between(
    start_api: StartApi,
    monkeypatch: pytest.MonkeyPatch,
    taken: int,
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        first = [free_port(), free_port()]
        first[taken] = other.getsockname()[1]
        monkeypatch.setattr(
            "tests.apiserver.server.free_port", lambda: first.pop(0) if first else free_port()
        )
        server = start_api()
    assert server.request("GET", "/readyz") == "ok"
    assert not first


def test_feature_gates_reach_the_server(
    real_api: ApiServer, start_api: StartApi, kubernetes: tuple[int, int]
) -> None:
    query = {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": True}
    by_default = kubernetes >= (1, 34)
    other = start_api(feature_gates={"WatchList": not by_default})
    on, off = (real_api, other) if by_default else (other, real_api)
    with on.watch(configmaps("default"), query=query) as watch:
        assert next(watch)["type"] == "BOOKMARK"
    with pytest.raises(
        ApiError,
        match="sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
    ):
        off.watch(configmaps("default"), query=query)
