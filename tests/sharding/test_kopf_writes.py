"""The writes of Kopf itself for a key are refused once its range has moved; each names its sender."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from math import inf
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
from kopf._cogs.clients.api import get
from kopf._cogs.clients.creating import create_obj
from kopf._cogs.clients.errors import APIError
from kopf._cogs.clients.patching import patch_obj
from kopf._cogs.structs.credentials import Vault
from kopf._cogs.structs.references import NamespaceName, Resource

from kopf_selectcache import _kopf
from kopf_selectcache.client.fence import Fence, fenced, guard
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.client.writer import WriteCall, Writer
from kopf_selectcache.core.protocol.lost_answer import Verb, Write
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse, Silence
from kopf_selectcache.testing.request_log import Asked
from tests.apiserver.process import free_port
from tests.faults.environment import reached
from tests.plugin.test_kopf_names import ADVICE

LOGGER = logging.getLogger("kopf.test")
SENDER = "web-1 range=17 epoch=4"
PODS = Resource("", "v1", "pods", kind="Pod", namespaced=True, subresources=frozenset({"status"}))
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x", "namespace": "team-0"},
    "spec": {"containers": [{"name": "app", "image": "app"}]},
}
PATH = "/api/v1/namespaces/team-0/pods"


@asynccontextmanager
async def served() -> AsyncIterator[tuple[EmbeddedCluster, kopf.OperatorSettings]]:
    """Let Kopf write to a cluster with one pod; its writes are checked."""
    guard()
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = [0.0]
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("team-0")
        cluster.create(POD)
        vault = Vault({"login": kopf.ConnectionInfo(server=cluster.url, token=cluster.token)})
        token = _kopf.vault_var.set(vault)
        try:
            yield cluster, settings
        finally:
            _kopf.vault_var.reset(token)
            await vault.close()


async def patched(
    settings: kopf.OperatorSettings,
    patch: kopf.Patch,
    resource: Resource = PODS,
    namespace: str = "team-0",
    name: str = "x",
) -> Any:
    return await patch_obj(
        settings=settings,
        resource=resource,
        namespace=NamespaceName(namespace),
        name=name,
        patch=patch,
        logger=LOGGER,
    )


def labelled(value: str) -> kopf.Patch:
    return kopf.Patch({"metadata": {"labels": {"app": value}}})


def writes_to(cluster: EmbeddedCluster) -> list[Asked]:
    return [each for each in cluster.requests if each.name == "x" and each.verb == "patch"]


async def test_each_write_of_kopf_has_the_time_that_is_left_and_names_its_sender() -> None:
    def finalize(body: Any) -> None:
        body["metadata"]["finalizers"] = ["example.com/mine"]
        body.setdefault("status", {})["message"] = "seen"

    async with served() as (cluster, settings):
        patch = kopf.Patch(
            {"metadata": {"labels": {"app": "web"}}, "status": {"reason": "new"}}, fns=[finalize]
        )
        fence = Fence(lambda: 4.5, sender=SENDER)
        with fenced(fence):
            body, remaining = await patched(settings, patch)
        assert remaining is None
        assert (body["metadata"]["labels"], body["status"]["message"]) == ({"app": "web"}, "seen")
        requests = writes_to(cluster)
        # Merge patches and JSON patches, each of the object and of its status.
        assert [each.resource for each in requests] == ["pods", "pods/status"] * 2
        assert {each.query.get("timeout") for each in requests} == {"4.500s"}
        (agent,) = {each.agent for each in requests}
        assert agent == f"kopf/{_kopf.INSTALLED} {SENDER}"
        assert fence.close(), "all were answered"


async def test_kopf_takes_an_object_of_another_replica_for_absent(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as (cluster, settings):
        fence = Fence(lambda: 5.0)
        assert fence.close()
        with caplog.at_level(logging.INFO), fenced(fence):
            assert await patched(settings, labelled("late")) == (None, None)
        assert writes_to(cluster) == []
    told = [each for each in caplog.records if each.levelno >= logging.INFO]
    assert [each.getMessage() for each in told] == [
        f"Kopf's PATCH of {PATH}/x was not sent: this replica does not handle its object any more."
    ]


async def test_each_try_of_kopf_is_checked() -> None:
    async with served() as (cluster, settings):
        cluster.faults.add(Refuse(503), verb="patch", resource="pods", times=1)
        left = [5.0, 0.0]
        fence = Fence(lambda: left.pop(0))
        with fenced(fence):
            assert await patched(settings, labelled("late")) == (None, None)
        assert [each.code for each in writes_to(cluster)] == [503]
        assert not fence.close(), "the server may execute it yet"


async def test_a_write_of_kopf_that_is_not_answered_in_time_may_be_executed_later() -> None:
    async with served() as (cluster, settings):
        settings.networking.error_backoffs = []
        await patched(settings, labelled("early"))  # So that the time is not spent on a connection.
        silence = cluster.faults.add(Silence(), verb="patch", resource="pods")
        fence = Fence(lambda: 0.05)
        with fenced(fence), pytest.raises(TimeoutError):
            await patched(settings, labelled("late"))
        assert await reached(lambda: len(silence.hits) == 1)
        silence.release()
        assert not fence.close()


@pytest.mark.parametrize("code", [404, 409, 422, 429, 501])
async def test_a_refusal_is_an_answer_to_kopf(code: int) -> None:
    async with served() as (cluster, settings):
        settings.networking.error_backoffs = []
        cluster.faults.add(Refuse(code), verb="patch", resource="pods")
        fence = Fence(lambda: inf)
        with fenced(fence), nullcontext() if code == 404 else pytest.raises(APIError):
            assert await patched(settings, labelled("web")) == (None, None)
        (request,) = writes_to(cluster)
        assert "timeout" not in request.query, "static replicas have no end"
        assert fence.close()


async def test_a_write_that_never_reached_a_server_is_not_awaited() -> None:
    async with served() as (_, settings):
        settings.networking.error_backoffs = []
        vault = Vault({"login": kopf.ConnectionInfo(server=f"http://127.0.0.1:{free_port()}")})
        _kopf.vault_var.set(vault)
        fence = Fence(lambda: 5.0)
        with fenced(fence), pytest.raises(aiohttp.ClientConnectorError):
            await patched(settings, labelled("web"))
        await vault.close()
        assert fence.close()


async def test_the_manager_of_fields_is_the_same_in_each_replica() -> None:
    """The server takes it from the User-Agent."""
    async with served() as (cluster, settings):
        pod = {**POD, "metadata": {"name": "y", "namespace": "team-0"}}
        writer = Writer(KopfTransport(_kopf.vault_var.get()))
        create = WriteCall(Write(Verb.CREATE, pod, "y"), PATH, {"fieldManager": "maker"}, f"{PATH}/y")
        label = Write(Verb.MERGE, {"metadata": {"labels": {"ours": "yes"}}}, "y")
        await writer.run(create, timeout=30.0)
        for fence in (
            Fence(lambda: 5.0, sender=SENDER),
            Fence(lambda: 5.0, sender="web-2 range=1 epoch=2"),
        ):
            with fenced(fence):
                await patched(settings, labelled("web"), name="y")
                await writer.run(WriteCall(label, f"{PATH}/y", {}, f"{PATH}/y"), timeout=30.0)
        found = cluster.get(pod)["metadata"]["managedFields"]
        assert {each["manager"] for each in found} == {"maker", "kopf", "kopf-selectcache"}
        ours = [each.agent for each in cluster.requests if "kopf-selectcache" in each.agent]
        assert ours == [
            "kopf-selectcache",
            f"kopf-selectcache/{SENDER}",
            "kopf-selectcache/web-2 range=1 epoch=2",
        ]


async def test_creations_are_checked_and_reads_are_not() -> None:
    async with served() as (cluster, settings):
        body: Any = {**POD, "metadata": {"name": "y"}}
        fence = Fence(lambda: 5.0, sender=SENDER)

        async def create() -> Any:
            return await create_obj(
                settings=settings,
                resource=PODS,
                namespace=NamespaceName("team-0"),
                body=body,
                logger=LOGGER,
            )

        with fenced(fence):
            await create()
            fence.close()
            with pytest.raises(_kopf.APINotFoundError, match="this replica does not handle it any more"):
                await create()
            found = await get(f"{PATH}/y", settings=settings, logger=LOGGER)
        assert found["metadata"]["name"] == "y"
        (request,) = [
            each
            for each in cluster.requests
            if each.verb == "create" and each.resource == "pods" and SENDER in each.agent
        ]
        assert (request.code, request.query) == (201, {"timeout": "5.000s"})


async def test_kopf_alone_writes_as_ever() -> None:
    async with served() as (cluster, settings):
        await patched(settings, labelled("web"))
        (request,) = writes_to(cluster)
        assert (request.query, request.agent) == ({}, f"kopf/{_kopf.INSTALLED}")


@pytest.mark.parametrize("in_thread", [False, True])
async def test_kopf_posts_an_event_only_while_the_range_is_held(*, in_thread: bool) -> None:
    guard()
    events = asyncio.Queue[Any]()
    _kopf.event_queue_var.set(events)
    _kopf.event_queue_loop_var.set(asyncio.get_running_loop())
    settings = kopf.OperatorSettings()
    _kopf.settings_var.set(settings)
    pod = kopf.Body(POD)  # type: ignore[arg-type]  # It has all that a reference needs.

    async def post(reason: str) -> None:
        if in_thread:
            await asyncio.to_thread(kopf.info, pod, reason=reason)
        else:
            kopf.info(pod, reason=reason)

    fence = Fence(lambda: 5.0)
    with fenced(fence):
        await post("Begun")
        fence.close()
        await post("Late")
    await post("Other")
    await asyncio.sleep(0)
    assert [events.get_nowait().reason for _ in range(events.qsize())] == ["Begun", "Other"]


async def test_kopf_goes_on_with_other_credentials_if_a_session_is_closed() -> None:
    async with served() as (cluster, settings):
        closed = aiohttp.ClientSession()
        await closed.close()
        login = kopf.ConnectionInfo(server=cluster.url, token=cluster.token)
        first = kopf.AiohttpSession(server=cluster.url, aiohttp_session=closed, priority=1)
        vault = Vault({"first": first, "second": login})
        _kopf.vault_var.set(vault)
        with fenced(Fence(lambda: 5.0)):
            body, _ = await patched(settings, labelled("web"))
        await vault.close()
        assert body["metadata"]["labels"] == {"app": "web"}


def test_all_requests_of_kopf_are_sent_by_one_function() -> None:
    """Each of its tries is one request of the session in its context."""
    package = Path(vars(kopf)["__file__"]).parent
    texts = {str(each.relative_to(package)): each.read_text() for each in package.rglob("*.py")}
    sends = re.compile(r"session\.(request|get|post|put|patch|delete|ws_connect)\(")
    assert [path for path, text in texts.items() if sends.search(text)] == ["_cogs/clients/api.py"], ADVICE
    own = vars(_kopf.api).get("_selectcache_request", _kopf.api.request)
    used = re.findall(r"context\.(\w+)\.(\w+)", inspect.getsource(inspect.unwrap(own)))
    assert set(used) == {("server", "rstrip"), ("session", "request"), ("session", "closed")}, ADVICE
    for each in (_kopf.api.post, _kopf.api.patch, _kopf.api.delete):
        assert "await request(" in inspect.getsource(each), ADVICE


def test_kopf_looks_up_wrapped_functions_at_each_call() -> None:
    posting, admission = _kopf.posting, _kopf.admission
    posts = (posting.event, posting.info, posting.warn, posting.exception, posting.K8sPoster.emit)
    managers = (admission.validating_configuration_manager, admission.mutating_configuration_manager)
    for functions, name in ((posts, "enqueue"), (managers, "configuration_manager")):
        for each in functions:
            assert re.search(
                rf"\b{name}\(\n", inspect.getsource(each)
            ) or f" {name}(ref=" in inspect.getsource(each), ADVICE


def test_the_manager_of_webhooks_reads_handlers_once_and_leaves_persistent_ones() -> None:
    own = vars(_kopf.admission).get(
        "_selectcache_configuration_manager", _kopf.admission.configuration_manager
    )
    text = inspect.getsource(own)
    assert re.findall(r"registry\.\S+", text) == ["registry._webhooks.get_all_handlers()"], ADVICE
    assert "persistent_only=True" in text.partition("finally:")[2], ADVICE
    assert "if not persistent_only or handler.persistent" in inspect.getsource(
        _kopf.admission.build_webhooks
    ), ADVICE
