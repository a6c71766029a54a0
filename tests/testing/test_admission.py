"""Admission webhooks in the embedded cluster alone: its own methods, its loop, its clock, its limits, and an
operator of Kopf. What a real server does as well is in tests/conformance/test_webhooks.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
import trustme

from kopf_selectcache.testing import EmbeddedCluster, Problem
from tests.apiserver.process import free_port
from tests.conformance.places import Place
from tests.conformance.webhooks import CONFIGURATIONS, EVERYTHING, Hooks, add, patching
from tests.conftest import client_of

MAP: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
SERVICE = {"service": {"namespace": "default", "name": "hook"}}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster().in_thread() as cluster:
        yield cluster


@pytest.fixture
def hooks(cluster: EmbeddedCluster) -> Iterator[Hooks]:
    hooks = Hooks()
    client = client_of(cluster)
    hooks.begin(Place(client, "default", "configmaps"))
    yield hooks
    client.close()
    hooks.close()


def configuration(*hooks: dict[str, Any], kind: str = "Validating") -> dict[str, Any]:
    return {
        "apiVersion": CONFIGURATIONS.removeprefix("/apis/"),
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "mine"},
        "webhooks": list(hooks),
    }


# ---- The methods of the cluster.


def test_writes_of_the_cluster_itself_are_reviewed(cluster: EmbeddedCluster, hooks: Hooks) -> None:
    hooks.reply = lambda path, request: (
        patching(add("/data", {"by": "hook"}))
        if path.startswith("/m") and request["object"]
        else {"allowed": request["operation"] != "DELETE", "status": {"message": "it stays"}}
    )
    cluster.create(configuration(hooks.hook("m"), kind="Mutating"), configuration(hooks.hook("v")))
    made, other = cluster.create(MAP, {**MAP, "metadata": {"name": "b"}})
    assert made["data"] == other["data"] == {"by": "hook"}
    assert cluster.patch(MAP, {"data": None})["data"] == {"by": "hook"}
    with pytest.raises(Problem) as caught:
        cluster.delete(MAP)
    assert caught.value.code == 400
    assert cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}")[0]["data"] == made["data"]


def test_a_status_is_reviewed_after_its_object(cluster: EmbeddedCluster, hooks: Hooks) -> None:
    cluster.create(configuration(hooks.hook("v")))
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }
    assert cluster.create(pod)[0]["status"]["phase"] == "Running"
    assert hooks.called() == [("/v", "CREATE", "p"), ("/v", "UPDATE", "p")]


async def test_the_own_loop_of_the_cluster_cannot_wait_for_a_webhook(hooks: Hooks) -> None:
    async with EmbeddedCluster() as cluster:
        hook = hooks.hook("v", namespaceSelector={})
        cluster.create(configuration(hook))
        with pytest.raises(RuntimeError):
            cluster.create(MAP)
        async with aiohttp.ClientSession() as session:  # By HTTP, both go on.
            answer = await session.post(
                f"{cluster.url}/api/v1/namespaces/default/configmaps",
                json=MAP,
                headers={"Authorization": f"Bearer {cluster.token}"},
                ssl=False,
            )
            assert answer.status == 201
        assert cluster.get(MAP)["metadata"]["name"] == "a"


def test_a_cluster_that_does_not_run_calls_no_webhooks(hooks: Hooks) -> None:
    cluster = EmbeddedCluster(tls=False)
    cluster.create(configuration(hooks.hook("v", namespaceSelector={})))
    with pytest.raises(RuntimeError):
        cluster.create(MAP)


def test_a_write_ends_with_the_cluster(hooks: Hooks) -> None:
    asked, may_answer = threading.Event(), threading.Event()
    ended: list[BaseException] = []

    def reply(*_: Any) -> dict[str, Any]:
        asked.set()
        may_answer.wait(60)
        return {}

    def write(cluster: EmbeddedCluster) -> None:
        try:
            cluster.create(MAP)
        except BaseException as error:  # Any end is one.  # noqa: BLE001
            ended.append(error)

    hooks.reply = reply
    with EmbeddedCluster(tls=False).in_thread() as running:
        running.create(configuration(hooks.hook("v", namespaceSelector={})))
        thread = threading.Thread(target=write, args=[running])
        thread.start()
        asked.wait(60)
    thread.join(60)
    may_answer.set()
    assert len(ended) == 1


def test_manifests_with_webhooks_are_applied_before_their_webhooks_are(cluster: EmbeddedCluster) -> None:
    hook = {
        "name": "a.b.c",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": SERVICE,
        "rules": [EVERYTHING],
    }
    folder = [configuration(hook), MAP]
    text = "\n---\n".join(map(str, folder))  # A dict of Python is YAML, too.
    assert [obj["kind"] for obj in cluster.apply(text)] == ["ConfigMap", "ValidatingWebhookConfiguration"]
    with pytest.raises(Problem) as caught:
        cluster.delete(MAP)
    assert caught.value.code == 500


# ---- Calls.


def test_a_webhook_has_so_much_time(hooks: Hooks) -> None:
    class Timer:
        def cancel(self) -> None:
            """Do nothing."""

    timers: list[tuple[float, Callable[[], None]]] = []
    may_answer = threading.Event()

    def later(seconds: float, call: Callable[[], None]) -> Timer:
        timers.append((seconds, call))
        return Timer()

    def reply(*_: Any) -> dict[str, Any]:
        seconds, expire = timers[-1]
        assert seconds == 3
        loop[0].call_soon_threadsafe(expire)
        may_answer.wait(60)
        return {}

    loop: list[asyncio.AbstractEventLoop] = []
    hooks.reply = reply
    with EmbeddedCluster(tls=False, later=later).in_thread() as cluster:
        cluster._do(lambda: loop.append(asyncio.get_running_loop()))
        cluster.create(configuration(hooks.hook("v", namespaceSelector={}, timeoutSeconds=3)))
        with pytest.raises(Problem) as caught:
            cluster.create(MAP)
        assert caught.value.code == 500
        may_answer.set()


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"[]"),
        (200, b'{"response": {"allowed": true}}'),
        (200, b"x" * (3 * 1024 * 1024 + 1)),
        (302, b""),
        {"patch": "*", "patchType": "JSONPatch"},
    ],
    ids=lambda value: str(value)[:20],
)
def test_other_answers_are_errors(cluster: EmbeddedCluster, hooks: Hooks, answer: Any) -> None:
    hooks.reply = lambda *_: answer
    cluster.create(configuration(hooks.hook("v"), kind="Mutating"))
    with pytest.raises(Problem) as caught:
        cluster.create(MAP)
    assert caught.value.code == 500


def test_a_certificate_must_be_of_the_host(cluster: EmbeddedCluster, hooks: Hooks) -> None:
    config = {"url": f"{hooks.url.replace('127.0.0.1', 'localhost')}/v", "caBundle": hooks.bundle}
    cluster.create(configuration(hooks.hook("v", clientConfig=config)))
    with pytest.raises(Problem) as caught:
        cluster.create(MAP)
    assert caught.value.code == 500


def test_a_service_that_exists_has_no_endpoints(cluster: EmbeddedCluster, hooks: Hooks) -> None:
    cluster.create({"kind": "Service", "metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}})
    cluster.create(configuration(hooks.hook("v", clientConfig=SERVICE)))
    with pytest.raises(Problem) as caught:
        cluster.create(MAP)
    assert caught.value.code == 500


def test_after_a_restore_the_webhooks_are_those_of_the_backup(cluster: EmbeddedCluster, hooks: Hooks) -> None:
    backup = cluster.backup()
    hooks.reply = lambda *_: {"allowed": False}
    cluster.create(configuration(hooks.hook("v")))
    with pytest.raises(Problem):
        cluster.create(MAP)
    cluster.restore(backup)
    cluster.create(MAP)


# ---- Kopf.


async def test_handlers_of_kopf_admit_and_change_objects(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    registry = kopf.OperatorRegistry()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=cluster.url, token=cluster.token, ca_path=str(cluster.ca_file))

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.admission.managed = "auto.example.com"
        settings.admission.server = kopf.WebhookServer(
            addr="127.0.0.1",
            port=free_port(),
            certfile=tmp_path / "cert.pem",
            pkeyfile=tmp_path / "key.pem",
            cafile=tmp_path / "ca.pem",
        )

    @kopf.on.mutate("configmaps", registry=registry, operations=["CREATE"])
    def fill(patch: kopf.Patch, warnings: list[str], **_: Any) -> None:
        patch["data"] = {"by": "kopf"}
        warnings.append("it is filled")

    @kopf.on.validate("configmaps", registry=registry, operations=["CREATE"])
    def check(name: str, **_: Any) -> None:
        if name == "bad":
            raise kopf.AdmissionError("a bad name", code=422)

    def has_webhooks(configuration: dict[str, Any]) -> bool:
        return bool(configuration.get("webhooks"))

    over = asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(registry=registry, clusterwide=True, standalone=True, stop_flag=over)
    )
    written = {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "auto.example.com"}}
    for kind in ("Validating", "Mutating"):
        await cluster.until({**written, "kind": f"{kind}WebhookConfiguration"}, has_webhooks)
    (made,) = await asyncio.to_thread(cluster.create, MAP)
    assert made["data"] == {"by": "kopf"}
    with pytest.raises(Problem) as caught:
        await asyncio.to_thread(cluster.create, {**MAP, "metadata": {"name": "bad"}})
    assert caught.value.code == 422
    over.set()
    await operator
    assert not has_webhooks(cluster.get(written))
    await asyncio.to_thread(cluster.create, {**MAP, "metadata": {"name": "bad"}})
