"""The embedded cluster: how it begins and ends, how clients get to it, and what tests can do to it without
HTTP."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import socket
import ssl
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import aiohttp
import kopf
import pytest

from kopf_selectcache.testing import EmbeddedCluster, ManifestError, Problem
from tests.apiserver.client import ApiError, Client
from tests.apiserver.cluster import Cluster
from tests.messages.testkit import RULES
from tests.rows import each_row

from .serving import FOLLOWED, PODS, Served, pod


class _Timer:
    """A timer that never fires."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def left() -> tuple[int, int]:
    """Give how many files (sockets are files) and threads this process has."""
    # Names alone: a Path made of each would say no more.
    return len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208


def test_it_listens_on_no_other_address_of_the_machine(cluster: EmbeddedCluster) -> None:
    # Linux answers on all of 127.0.0.0/8. Elsewhere, no interface has this address.
    with (
        pytest.raises(OSError),
        socket.create_connection(("127.0.0.2", cluster.port), timeout=60),
    ):  # Refused or unreachable.
        pass


class TestItsLife:
    def test_it_runs_on_the_loop_of_the_test(self) -> None:
        async def run() -> list[str]:
            async with EmbeddedCluster() as cluster, aiohttp.ClientSession() as session:
                cluster.create(pod("a"))
                trust = ssl.create_default_context(cafile=str(cluster.ca_file))
                headers = {"Authorization": f"Bearer {cluster.token}"}
                async with session.get(cluster.url + PODS, headers=headers, ssl=trust) as response:
                    listed = await response.json()
                assert [asked.code for asked in await cluster.requests.until("list", "pods")] == [200]
                return [item["metadata"]["name"] for item in listed["items"]]

        assert asyncio.run(run()) == ["a"]

    def test_it_leaves_nothing_behind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with EmbeddedCluster().in_thread() as warm:  # What the first one imports stays.
            assert warm.url
        gc.collect()  # Other tests may have left something to collect.
        before = left()
        with EmbeddedCluster().in_thread() as cluster:
            client = Client(cluster.url, ca_file=cluster.ca_file, token=cluster.token)
            client.request("GET", PODS)
            with client.watch(PODS, query=FOLLOWED), socket.create_connection(("127.0.0.1", cluster.port)):
                cluster.requests.wait("watch", "pods")
            client.close()
        gc.collect()
        # A thread of an earlier test may have come to its end meanwhile.
        assert all(now <= then for now, then in zip(left(), before, strict=True))
        assert list(tmp_path.iterdir()) == []

    def test_without_the_extra_it_says_how_to_install_it_and_leaves_nothing_behind(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setitem(sys.modules, "trustme", None)
        with (
            pytest.raises(ImportError),
            EmbeddedCluster().in_thread(),
        ):
            pass
        assert list(tmp_path.iterdir()) == []

    def test_it_sends_no_bookmarks_when_it_is_over(self) -> None:
        timers: list[_Timer] = []

        def later(_: float, call: Callable[[], None]) -> _Timer:
            timers.append(_Timer(call))
            return timers[-1]

        with EmbeddedCluster(tls=False, later=later).in_thread():
            pending = [timer for timer in timers if not timer.cancelled]
        assert pending
        assert all(timer.cancelled for timer in timers)

    def test_many_threads_may_write_before_it_runs(self) -> None:
        cluster = EmbeddedCluster(tls=False)
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(lambda number: cluster.create(pod(f"a-{number}")), range(200)))
        assert len({each["metadata"]["resourceVersion"] for (each,) in made}) == 200

    async def test_it_leaves_no_task_behind(self) -> None:
        async with EmbeddedCluster() as cluster:
            # Neither of them will ever say a word: one has not even begun with TLS.
            _, silent = await asyncio.open_connection("127.0.0.1", cluster.port)
            trust = ssl.create_default_context(cafile=str(cluster.ca_file))
            _, idle = await asyncio.open_connection("127.0.0.1", cluster.port, ssl=trust)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for writer in (silent, idle):
            writer.transport.abort()
        await asyncio.sleep(0)

    def test_it_ends_with_open_watches(self) -> None:
        with EmbeddedCluster(tls=False).in_thread() as cluster:
            client = Served(cluster)
            watch = client.watch(PODS, query=FOLLOWED)
        with pytest.raises(ConnectionError):
            next(watch)
        watch.close()
        client.close()

    def test_a_port_that_is_taken_raises_oserror(self, cluster: EmbeddedCluster) -> None:
        with (
            pytest.raises(OSError) as caught,
            EmbeddedCluster(tls=False, port=cluster.port).in_thread(),
        ):
            pass
        assert caught.value.errno == errno.EADDRINUSE

    @each_row("port", [65536, -1, True, "8080"])
    def test_an_invalid_port_is_refused_at_once(self, port: Any) -> None:
        with pytest.raises(ValueError):
            EmbeddedCluster(port=port)
        with EmbeddedCluster(tls=False).in_thread() as cluster:
            cluster.stop_listening()
            with pytest.raises(ValueError):
                cluster.listen_again(port=port)

    def test_a_call_from_another_thread_that_is_interrupted_leaves_nothing_unfinished(
        self,
        cluster: EmbeddedCluster,
        monkeypatch: pytest.MonkeyPatch,
        recwarn: pytest.WarningsRecorder,
    ) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        warnings.simplefilter(
            "always"
        )  # As an error, nobody would hear of it: nothing can be raised while garbage goes.
        gc.collect()  # Other tests may have left something to warn about.
        recwarn.clear()
        with monkeypatch.context() as patch:
            patch.setattr(cluster._loop, "call_soon_threadsafe", interrupted)
            with pytest.raises(KeyboardInterrupt):
                cluster.get(pod("a"))
        gc.collect()
        assert [str(warning.message) for warning in recwarn] == []

    def test_a_call_that_needs_it_to_run_says_so(self) -> None:
        cluster = EmbeddedCluster()
        with pytest.raises(RuntimeError):
            cluster.stop_listening()
        with pytest.raises(RuntimeError):
            cluster.ca_file.exists()


class TestHowToGetThere:
    def test_the_client_of_real_servers_works_unchanged(self) -> None:
        with EmbeddedCluster().in_thread() as cluster:
            client = Cluster(cluster.url, ca_file=cluster.ca_file, token=cluster.token)
            namespace = client.namespace()
            user = client.user()
            pods = f"/api/v1/namespaces/{namespace}/pods"
            grant = client.grant(
                user, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}], namespace
            )
            assert client.request("GET", pods, token=user.token)["items"] == []
            client.withdraw(grant)
            with pytest.raises(ApiError) as caught:
                client.request("GET", pods, token=user.token)
            assert caught.value.status == 403
            client.revoke(user.token)
            client.create_crd("example.com", "v1", "Widget", "widgets")
            client.close()

    def test_a_kubeconfig_is_complete_and_nobody_elses_to_read(self, tmp_path: Path) -> None:
        with EmbeddedCluster().in_thread() as cluster:
            other = cluster.user("other")
            path = cluster.kubeconfig(tmp_path / "config", token=other, namespace="ns")
            config = json.loads(path.read_text())
            assert config["clusters"][0]["cluster"]["server"] == cluster.url
            assert config["users"][0]["user"] == {"token": other}
            assert config["contexts"][0]["context"]["namespace"] == "ns"
            assert "certificate-authority-data" in config["clusters"][0]["cluster"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(tmp_path.iterdir()) == [path]

    def test_a_client_that_does_not_trust_the_authority_does_no_harm(self) -> None:
        with EmbeddedCluster().in_thread() as cluster:
            with socket.create_connection(("127.0.0.1", cluster.port)) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while plain.recv(1024):
                    pass
            client = Client(cluster.url, ca_file=cluster.ca_file, token=cluster.token)
            assert client.request("GET", "/version")["major"] == "1"
            client.close()


class TestObjects:
    def test_a_pod_that_its_node_would_have_to_end_is_gone_at_once_without_grace(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create({**pod("a"), "spec": {**pod("a")["spec"], "nodeName": "node01"}})
        cluster.delete(pod("a"))
        assert client.names() == ["a"]
        assert cluster.get(pod("a"))["metadata"]["deletionGracePeriodSeconds"] == 30
        cluster.delete(pod("a"), grace_period=5)
        assert cluster.get(pod("a"))["metadata"]["deletionGracePeriodSeconds"] == 5
        cluster.delete(pod("a"), grace_period=0)
        assert client.names() == []

    @pytest.mark.parametrize("given", ["pods", [pod("a")], None])
    def test_a_body_that_is_no_object_is_refused(self, cluster: EmbeddedCluster, given: Any) -> None:
        tries: list[Callable[[], object]] = [
            lambda: cluster.get(given),
            lambda: cluster.create(given),
            lambda: cluster.delete(given),
            lambda: cluster.patch(given, {}),
        ]
        for each in tries:
            with pytest.raises(TypeError):
                each()
        with pytest.raises(ValueError):
            cluster.create({"metadata": {"name": "a"}})

    def test_the_name_of_a_file_is_no_manifest_and_an_object_is_none_to_apply(
        self, cluster: EmbeddedCluster
    ) -> None:
        with pytest.raises(ManifestError):
            cluster.apply("crd.yaml")
        with pytest.raises(TypeError):
            cluster.apply(cast("Any", pod("a")))

    def test_an_object_without_a_name_never_stands_for_all_objects(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"))
        with pytest.raises(ValueError):
            cluster.delete({"apiVersion": "v1", "kind": "Pod"})
        assert client.names() == ["a"]

    def test_manifests_are_applied_namespaces_first_and_again(self, cluster: EmbeddedCluster) -> None:
        text = """
        {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: prod}, data: {color: red}}
        ---
        {apiVersion: v1, kind: Namespace, metadata: {name: prod}}
        """
        cluster.apply(text)
        again = cluster.apply(text.replace("red", "blue"))
        assert again[1]["data"] == {"color": "blue"}

    def test_an_object_applied_again_retains_additions_of_others(self, cluster: EmbeddedCluster) -> None:
        text = (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {app: web}}, data: {color: red}}"
        )
        (made,) = cluster.apply(text)
        cluster.patch(made, {"metadata": {"finalizers": ["example.com/kept"], "labels": {"seen": "yes"}}})
        (again,) = cluster.apply(text.replace("red", "blue"))
        assert again["metadata"]["finalizers"] == ["example.com/kept"]
        assert again["metadata"]["labels"] == {"app": "web", "seen": "yes"}
        assert again["data"] == {"color": "blue"}

    def test_the_body_that_kopf_hands_to_handlers_is_an_object(self, cluster: EmbeddedCluster) -> None:
        (made,) = cluster.create(kopf.Body(cast("Any", {**pod("a"), "status": {"phase": "Running"}})))
        assert made["status"]["phase"] == "Running"
        with pytest.raises(TypeError):
            cluster.create({**pod("b"), "spec": {"containers": {1}}})

    def test_a_user_has_the_rights_of_the_rules_and_can_be_locked_out(self, cluster: EmbeddedCluster) -> None:
        cluster.namespace("team")
        token = cluster.user(
            "ann", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}], namespace="team"
        )
        client = Served(cluster, token=token)
        assert client.request("GET", "/api/v1/namespaces/team/pods")["items"] == []
        assert client.refused(PODS).status == 403
        assert {asked.user for asked in cluster.requests} == {"ann"}
        cluster.revoke(token)
        assert client.refused(PODS).status == 401
        client.close()

    @pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
    def test_a_rule_that_allows_nothing_is_refused_and_makes_no_user(
        self, cluster: EmbeddedCluster, rule: Any
    ) -> None:
        with pytest.raises((TypeError, ValueError)):
            cluster.user("ann", [rule])
        with pytest.raises(Problem) as caught:
            cluster.get({"kind": "ClusterRole", "metadata": {"name": "user-ann"}})
        assert caught.value.reason == "NotFound"

    @pytest.mark.parametrize(
        "rule",
        [
            {"apiGroups": [""], "resources": ["pods", "pods/status", "*", "*/scale"], "verbs": ["*"]},
            {
                "apiGroups": ["example.com"],
                "resources": ["limits", "webapps/status"],
                "verbs": ("get", "approve"),
            },
            {
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["roles"],
                "verbs": ["bind", "escalate"],
                "resourceNames": ["a"],
            },
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ],
    )
    def test_a_rule_that_may_allow_something_is_taken(self, cluster: EmbeddedCluster, rule: Any) -> None:
        cluster.user("ann", [rule])
        role = cluster.get({"kind": "ClusterRole", "metadata": {"name": "user-ann"}})
        assert role["rules"] == [{part: list(words) for part, words in rule.items()}]

    def test_an_existing_user_gets_one_more_token_and_other_rules(self, cluster: EmbeddedCluster) -> None:
        first = cluster.user("ann", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
        second = cluster.user("ann", [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}])
        for token in (first, second):
            client = Served(cluster, token=token)
            assert client.request("GET", "/api/v1/namespaces/default/secrets")["items"] == []
            assert client.refused(PODS).status == 403
            client.close()


class TestWaiting:
    def test_a_wait_ends_when_the_object_meets_the_condition(self, cluster: EmbeddedCluster) -> None:
        # Each look is followed by a change: it takes one to be looked at again.
        changes: Iterator[Callable[[], object]] = iter(
            [
                lambda: cluster.patch(pod("a"), {"metadata": {"labels": {"app": "other"}}}),
                lambda: cluster.patch(pod("a"), {"status": {"phase": "Running"}}, subresource="status"),
            ]
        )

        def is_running(now: dict[str, Any]) -> bool:
            if now["status"]["phase"] != "Running":
                next(changes)()
            return bool(now["status"]["phase"] == "Running")

        cluster.create(pod("a"))
        assert cluster.wait_for(pod("a"), is_running)["metadata"]["labels"] == {"app": "other"}

    async def test_an_object_that_is_not_there_yet_is_waited_for(self) -> None:
        async with EmbeddedCluster(tls=False) as cluster, asyncio.timeout(60):
            waiting = asyncio.create_task(cluster.until(pod("a"), lambda _: True))
            await asyncio.sleep(0)
            assert not waiting.done()
            cluster.create(pod("a"))
            assert (await waiting)["metadata"]["name"] == "a"

    @pytest.mark.parametrize(
        ("existing", "awaited"),
        [
            ([], pod("a")),
            ([pod("a")], pod("a")),
            ([], {"kind": "Node", "metadata": {"name": "a"}}),
            ([], {"kind": "Widget", "metadata": {"name": "a", "namespace": "shop"}}),
        ],
    )
    def test_a_wait_for_something_that_never_comes_has_an_end(
        self, cluster: EmbeddedCluster, existing: list[dict[str, Any]], awaited: dict[str, Any]
    ) -> None:
        cluster.create(*existing)
        with pytest.raises(TimeoutError):
            cluster.wait_for(awaited, lambda _: False, timeout=0.01)

    def test_the_absence_of_an_object_can_be_awaited(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"))
        with pytest.raises(TimeoutError):
            cluster.wait_deleted(pod("a"), timeout=0.01)
        deleting = threading.Thread(target=lambda: cluster.delete(pod("a"), grace_period=0))
        deleting.start()
        cluster.wait_deleted(pod("a"))
        deleting.join()
        with pytest.raises(Exception, match="Widget"):
            cluster.wait_deleted({"kind": "Widget", "metadata": {"name": "a"}})

    def test_a_long_status_is_clipped_and_no_data_of_a_secret_is_shown(
        self, cluster: EmbeddedCluster
    ) -> None:
        secret = {
            "kind": "Secret",
            "metadata": {"name": "a"},
            "stringData": {"key": "canary"},
        }
        cluster.create({**pod("a"), "status": {"message": "x" * 100_000}}, secret)
        for awaited in (pod("a"), secret):
            with pytest.raises(TimeoutError) as raised:
                cluster.wait_for(awaited, lambda _: False, timeout=0.01)
            assert len(str(raised.value)) < 1_500
            assert "canary" not in str(raised.value)

    def test_a_mistake_in_the_predicate_is_raised_where_it_was_made(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"))
        with pytest.raises(KeyError) as caught:
            cluster.wait_for(pod("a"), lambda now: now["nope"])
        assert caught.value.args == ("nope",)
        cluster.create(pod("b"))  # Nobody is told of changes who does not wait any more.

    async def test_a_loop_is_not_stopped(self) -> None:
        async with EmbeddedCluster(tls=False) as cluster:
            with pytest.raises(RuntimeError):
                cluster.wait_for(pod("a"), lambda _: True)
