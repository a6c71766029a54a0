"""The tests' own API server does what the other tests rely on."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3

from tests.apiserver.build import kubernetes_version, module_of
from tests.apiserver.client import ApiError
from tests.apiserver.process import StartError, free_port
from tests.apiserver.server import ApiServer
from tests.apiserver.waiting import wait_until

StartApi = Callable[..., ApiServer]
READ_CONFIGMAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
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


def names_in(server: ApiServer, namespace: str) -> set[str]:
    return {item["metadata"]["name"] for item in server.request("GET", configmaps(namespace))["items"]}


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


def old_versions(server: ApiServer) -> tuple[str, str, str]:
    """Give a path, a continue token of it and its resourceVersion, after which something was written."""
    namespace = server.namespace()
    create(server, namespace, "a", "b", "c")
    page = server.request("GET", configmaps(namespace), query={"limit": 2})
    create(server, namespace, "d")
    return configmaps(namespace), page["metadata"]["continue"], page["metadata"]["resourceVersion"]


def first_of_watch(server: ApiServer, path: str, version: str) -> dict[str, Any]:
    with server.watch(path, query={"resourceVersion": version}) as watch:
        return next(watch)


# --- requests


@pytest.mark.skipif(
    "KUBEBUILDER_ASSETS" in os.environ, reason="then the server is of whatever version was given"
)
def test_the_server_is_of_the_version_in_go_mod(real_api: ApiServer) -> None:
    assert real_api.request("GET", "/version")["gitVersion"] == kubernetes_version(module_of())


def test_an_error_has_the_status_and_the_body(real_api: ApiServer) -> None:
    with pytest.raises(ApiError) as caught:
        real_api.request("GET", configmaps("default") + "/none")
    assert caught.value.status == 404
    assert caught.value.body["reason"] == "NotFound"


def test_an_answer_that_is_no_json_is_given_as_text(real_api: ApiServer) -> None:
    assert real_api.request("GET", "/readyz") == "ok"


def test_a_patch_is_a_merge_patch(real_api: ApiServer) -> None:
    namespace = real_api.namespace()
    create(real_api, namespace, "a")
    patched = real_api.request("PATCH", configmaps(namespace) + "/a", body={"data": {"key": "value"}})
    assert patched["data"] == {"key": "value"}


def test_a_patch_can_be_of_another_type(real_api: ApiServer) -> None:
    namespace = real_api.namespace()
    create(real_api, namespace, "a")
    patched = real_api.request(
        "PATCH",
        configmaps(namespace) + "/a",
        content_type="application/json-patch+json",
        body=[{"op": "add", "path": "/data", "value": {"key": "value"}}],
    )
    assert patched["data"] == {"key": "value"}


def test_metadata_alone_can_be_asked_for(real_api: ApiServer) -> None:
    answer = real_api.request(
        "GET",
        "/api/v1/namespaces/default",
        accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    )
    assert answer["kind"] == "PartialObjectMetadata"


def test_a_namespace_is_fresh_and_has_its_labels(real_api: ApiServer) -> None:
    name, other = real_api.namespace({"team": "red"}), real_api.namespace()
    assert name != other
    assert real_api.request("GET", f"/api/v1/namespaces/{name}")["metadata"]["labels"]["team"] == "red"


def test_pods_can_be_created_in_a_fresh_namespace(real_api: ApiServer) -> None:
    pods = f"/api/v1/namespaces/{real_api.namespace()}/pods"
    real_api.request(
        "POST",
        pods,
        body={"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "none"}]}},
    )
    assert real_api.request("GET", f"{pods}/p")["status"]["phase"] == "Pending"


def test_kubectl_works_with_the_kubeconfig(real_api: ApiServer, tmp_path: Path) -> None:
    namespace = real_api.namespace()
    create(real_api, namespace, "a")
    config = real_api.kubeconfig(tmp_path / "config", namespace=namespace)
    done = subprocess.run(
        [real_api.assets / "kubectl", "get", "configmaps", "-o", "name"],
        check=True,
        text=True,
        capture_output=True,
        env={"KUBECONFIG": str(config), "HOME": str(tmp_path)},
    )
    assert done.stdout.split() == ["configmap/a"]


def test_a_kubeconfig_can_be_of_another_user(real_api: ApiServer, tmp_path: Path) -> None:
    user = real_api.user()
    config = real_api.kubeconfig(tmp_path / "config", token=user.token)
    done = subprocess.run(
        [real_api.assets / "kubectl", "auth", "whoami", "-o", "json"],
        check=True,
        text=True,
        capture_output=True,
        env={"KUBECONFIG": str(config), "HOME": str(tmp_path)},
    )
    assert json.loads(done.stdout)["status"]["userInfo"]["username"] == user.name


# --- watches


def test_a_watch_gives_the_events(real_api: ApiServer) -> None:
    namespace = real_api.namespace()
    with real_api.watch(configmaps(namespace)) as watch:
        create(real_api, namespace, "a", "b")
        events = watch.until(lambda event: event["object"]["metadata"]["name"] == "b")
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]


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


def test_a_watch_that_the_server_ends_is_over(real_api: ApiServer) -> None:
    with real_api.watch(configmaps(real_api.namespace()), query={"timeoutSeconds": 1}) as watch:
        assert list(watch) == []


def test_a_watch_that_ends_before_the_awaited_event_is_an_error(real_api: ApiServer) -> None:
    with (
        real_api.watch(configmaps(real_api.namespace()), query={"timeoutSeconds": 1}) as watch,
        pytest.raises(AssertionError, match="the watch ended before"),
    ):
        watch.until(lambda _: True)


def test_a_watch_that_is_refused_is_an_error(real_api: ApiServer) -> None:
    with pytest.raises(ApiError) as caught:
        real_api.watch(configmaps("default"), token=real_api.user().token)
    assert caught.value.status == 403


# --- users and rights


def test_a_new_user_has_no_rights(real_api: ApiServer) -> None:
    assert status_of(real_api, configmaps("default"), token=real_api.user().token) == 403


def test_an_unknown_token_is_refused(real_api: ApiServer) -> None:
    assert status_of(real_api, configmaps("default"), token=secrets.token_hex()) == 401


def test_rights_in_a_namespace_end_at_its_border(real_api: ApiServer) -> None:
    namespace, user = real_api.namespace(), real_api.user()
    real_api.grant(user, [READ_CONFIGMAPS], namespace)
    assert status_of(real_api, configmaps(namespace), token=user.token) == 200
    assert status_of(real_api, configmaps("default"), token=user.token) == 403


def test_rights_without_a_namespace_are_for_all(real_api: ApiServer) -> None:
    user = real_api.user()
    real_api.grant(user, [READ_CONFIGMAPS])
    assert status_of(real_api, "/api/v1/configmaps", token=user.token) == 200


@pytest.mark.parametrize("everywhere", [True, False])
def test_withdrawn_rights_are_gone_at_once(real_api: ApiServer, *, everywhere: bool) -> None:
    namespace, user = real_api.namespace(), real_api.user()
    given = real_api.grant(user, [READ_CONFIGMAPS], None if everywhere else namespace)
    real_api.withdraw(given)
    assert status_of(real_api, configmaps(namespace), token=user.token) == 403


def test_of_two_grants_the_other_stays(real_api: ApiServer) -> None:
    namespace, user = real_api.namespace(), real_api.user()
    real_api.grant(user, [READ_CONFIGMAPS], namespace)
    real_api.withdraw(real_api.grant(user, [READ_CONFIGMAPS]))
    assert status_of(real_api, configmaps(namespace), token=user.token) == 200
    assert status_of(real_api, configmaps("default"), token=user.token) == 403


def test_a_user_keeps_name_and_rights_with_another_token_while_the_old_is_refused(
    real_api: ApiServer,
) -> None:
    user = real_api.user()
    real_api.grant(user, [READ_CONFIGMAPS])
    again = real_api.new_token(user)
    assert status_of(real_api, "/api/v1/configmaps", token=user.token) == 200
    real_api.revoke(user.token)
    assert status_of(real_api, "/api/v1/configmaps", token=user.token) == 401
    assert status_of(real_api, "/api/v1/configmaps", token=again.token) == 200
    assert again.name == user.name


def test_a_user_can_be_impersonated(real_api: ApiServer) -> None:
    real_api.grant("jane@example.com", [READ_CONFIGMAPS], namespace := real_api.namespace())
    assert status_of(real_api, configmaps(namespace), as_user="jane@example.com") == 200
    assert status_of(real_api, configmaps("default"), as_user="jane@example.com") == 403


def test_groups_can_be_impersonated(real_api: ApiServer) -> None:
    assert status_of(real_api, "/api/v1/secrets", as_user="jane", as_groups=["readers"]) == 403
    assert (
        status_of(real_api, "/api/v1/secrets", as_user="jane", as_groups=["readers", "system:masters"]) == 200
    )


# --- custom resources


def test_a_custom_resource_is_served_with_its_selectable_fields_and_status(real_api: ApiServer) -> None:
    text = {"type": "string"}
    real_api.create_crd(
        "paint.example.com",
        "v1beta1",
        "Wall",
        "walls",
        selectable_fields=[".spec.color"],
        status=True,
        short_names=["wl"],
        schema={
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {"color": text}},
                "status": {"type": "object", "properties": {"dry": text}},
            },
        },
    )
    walls = f"/apis/paint.example.com/v1beta1/namespaces/{real_api.namespace()}/walls"
    for color in ("red", "blue"):
        real_api.request(
            "POST",
            walls,
            body={
                "apiVersion": "paint.example.com/v1beta1",
                "kind": "Wall",
                "metadata": {"name": color},
                "spec": {"color": color},
            },
        )
    real_api.request("PATCH", f"{walls}/red/status", body={"status": {"dry": "yes"}})
    [red] = real_api.request("GET", walls, query={"fieldSelector": "spec.color=red"})["items"]
    assert (red["metadata"]["name"], red["status"]) == ("red", {"dry": "yes"})


def test_a_custom_resource_can_be_of_the_cluster_and_hold_anything(real_api: ApiServer) -> None:
    real_api.create_crd("sky.example.com", "v1", "Star", "stars", namespaced=False)
    stars = "/apis/sky.example.com/v1/stars"
    real_api.request(
        "POST",
        stars,
        body={
            "apiVersion": "sky.example.com/v1",
            "kind": "Star",
            "metadata": {"name": "sun"},
            "bright": {"very": True},
        },
    )
    assert real_api.request("GET", f"{stars}/sun")["bright"] == {"very": True}


# --- history that is gone


@pytest.fixture(scope="module")
def uncached_api(assets: Path) -> Iterator[ApiServer]:
    """A server that has no watch cache in front of the configmaps in etcd."""
    with ApiServer(assets=assets, flags={"watch-cache-sizes": "configmaps#0"}) as server:
        yield server


def test_after_expire_a_continue_token_and_an_old_watch_get_410(start_api: StartApi) -> None:
    server = start_api()
    path, token, version = old_versions(server)
    server.expire()
    with pytest.raises(ApiError) as caught:
        server.request("GET", path, query={"limit": 2, "continue": token})
    assert (caught.value.status, caught.value.body["reason"]) == (410, "Expired")
    event = first_of_watch(server, path, version)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_after_compact_a_continue_token_of_an_uncached_kind_gets_410(uncached_api: ApiServer) -> None:
    path, token, _ = old_versions(uncached_api)
    uncached_api.compact()
    assert status_of(uncached_api, path, query={"limit": 2, "continue": token}) == 410


def test_after_compact_an_old_watch_of_an_uncached_kind_gets_410(uncached_api: ApiServer) -> None:
    path, _, version = old_versions(uncached_api)
    uncached_api.compact()
    event = first_of_watch(uncached_api, path, version)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


def test_after_compact_even_the_version_of_the_last_write_is_too_old(uncached_api: ApiServer) -> None:
    namespace = uncached_api.namespace()
    create(uncached_api, namespace, "a", "b")
    page = uncached_api.request("GET", configmaps(namespace), query={"limit": 1})
    uncached_api.compact()
    query = {"limit": 1, "continue": page["metadata"]["continue"]}
    assert status_of(uncached_api, configmaps(namespace), query=query) == 410


def test_after_compact_a_continue_token_of_a_cached_kind_gets_410_in_the_end(real_api: ApiServer) -> None:
    path, token, _ = old_versions(real_api)
    real_api.compact()
    wait_until(
        lambda: status_of(real_api, path, query={"limit": 2, "continue": token}) == 410,
        "the token is too old",
    )


def test_after_compact_a_current_watch_goes_on(uncached_api: ApiServer) -> None:
    namespace = uncached_api.namespace()
    with uncached_api.watch(configmaps(namespace)) as watch:
        uncached_api.compact()
        create(uncached_api, namespace, "a")
        assert next(watch)["object"]["metadata"]["name"] == "a"


# --- servers that die


def test_a_killed_api_server_comes_back_with_url_and_data(start_api: StartApi) -> None:
    server = start_api()
    namespace, url = server.namespace(), server.url
    create(server, namespace, "a")
    with server.watch(configmaps(namespace)) as watch:
        next(watch)
        server.apiserver.kill()
        with pytest.raises(ConnectionError):
            next(watch)
    assert server.apiserver.pid is None
    with pytest.raises(urllib3.exceptions.HTTPError):
        server.request("GET", "/readyz")
    server.apiserver.start()
    assert server.url == url
    assert names_in(server, namespace) == {"a"}


def test_a_killed_etcd_comes_back_with_its_data(start_api: StartApi) -> None:
    server = start_api()
    namespace = server.namespace()
    create(server, namespace, "a")
    server.etcd.kill()
    wait_until(lambda: status_of(server, "/readyz") == 500, "the API server sees it")
    server.etcd.start()
    server.wait_ready()
    create(server, namespace, "b")
    assert names_in(server, namespace) == {"a", "b"}


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
