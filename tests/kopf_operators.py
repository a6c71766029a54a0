"""What tests of the Kopf glue need: a cluster in memory, as a transport or over HTTP, and handlers called as
Kopf does.

The cluster answers discovery, lists and watches, and knows no selectors. What is right or wrong about the
protocol is tested elsewhere; here it is only there for caches to be synced, held up, or refused."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import aiohttp.web
import kopf
import pytest
from kopf._cogs.clients.auth import vault_var
from kopf._cogs.structs import bodies, patches
from kopf._cogs.structs.credentials import Vault
from kopf._cogs.structs.ephemera import Memo
from kopf._cogs.structs.references import Resource
from kopf._core.actions import execution
from kopf._core.engines.indexing import OperatorIndexers
from kopf._core.engines.posting import settings_var
from kopf._core.intents import causes, handlers
from kopf._core.intents.stoppers import DaemonStopper
from kopf._core.reactor.inventory import ResourceMemories
from kopf._core.reactor.processing import process_resource_event
from kopf._core.reactor.subhandling import subhandling_context

from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import WritingTransport
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.plugin.hooks import hook
from kopf_selectcache.plugin.operator import Operator, launch, operator_of
from kopf_selectcache.settings.options import settings_of

T = TypeVar("T")
Answer = tuple[int, dict[str, Any]]

PODS = Resource("", "v1", "pods", kind="Pod", singular="pod", shortcuts=frozenset({"po"}), namespaced=True)
GROUPS: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    # Without namespaces among its resources, Kopf would wait for them.
    "/api/v1": (
        ("pods", "Pod", True),
        ("secrets", "Secret", True),
        ("nodes", "Node", False),
        ("namespaces", "Namespace", False),
    ),
    "/apis/example.com/v1": (("webapps", "WebApp", True),),
}
VERBS = ["list", "watch", "get", "patch"]
NARROWS = pytest.mark.since_kopf("1.45", "settings.watching has no selectors")


def without_selectors(settings: kopf.OperatorSettings) -> kopf.OperatorSettings:
    """Return the settings as Kopf 1.44 has them, which cannot watch fewer objects of a kind than all."""
    for name in ("label_selectors", "field_selectors", "shard_selectors"):
        vars(settings.watching).pop(name, None)
    return settings


def run(test: Coroutine[Any, Any, T]) -> T:
    """Run a test on a loop of its own. A wait that never ends is ended here, and a failure, not a
    measurement."""

    async def bounded() -> T:
        async with asyncio.timeout(180):
            return await test

    return asyncio.run(bounded())


def pod(name: str = "web-1", *, namespace: str = "shop", version: int = 5, **labels: str) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": labels,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


def declaring(**selectors: Any) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings_of(settings).selectors.update(selectors)
    return settings


def names_of(cache: Any) -> list[str]:
    return sorted(one["metadata"]["name"] for one in cache.list_cached("pods"))


async def cycles() -> None:
    """Let everything run that can run without anything from outside."""
    for _ in range(100):
        await asyncio.sleep(0)


class Cluster:
    """An API server without the server. Paths are held up until released, or refused with a code."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = objects
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.refused: dict[str, int] = {}
        self._held: dict[str, asyncio.Event] = {}
        self._reached: dict[str, asyncio.Event] = {}

    def reached(self, path: str) -> asyncio.Event:
        """Return the event that is set when this path is asked for."""
        return self._reached.setdefault(path, asyncio.Event())

    def hold(self, path: str) -> asyncio.Event:
        """Let requests for this path wait until the event is set."""
        return self._held.setdefault(path, asyncio.Event())

    async def answer(self, path: str, query: Mapping[str, str]) -> Answer:
        self.asked.append((path, query))
        self.reached(path).set()
        if path in self._held:
            await self._held[path].wait()
        if code := self.refused.get(path):
            return code, {"kind": "Status", "code": code, "message": "not allowed"}
        if path == "/api":
            return 200, {"kind": "APIVersions", "versions": ["v1"]}
        if path in ("/apis", "/apis/example.com"):
            one = {"groupVersion": "example.com/v1", "version": "v1"}
            group = {"name": "example.com", "versions": [one], "preferredVersion": one}
            return 200, {"kind": "APIGroupList", "groups": [group]} if path == "/apis" else group
        if path in GROUPS:
            listed = [
                {
                    "name": name,
                    "singularName": kind.lower(),
                    "kind": kind,
                    "namespaced": namespaced,
                    "verbs": VERBS,
                }
                for name, kind, namespaced in GROUPS[path]
            ]
            return 200, {
                "kind": "APIResourceList",
                "groupVersion": path.split("/", 2)[2],
                "resources": listed,
            }
        for prefix, resources in GROUPS.items():
            for name, kind, _ in resources:
                if path.startswith(prefix) and path.endswith(f"/{name}"):
                    items = [one for one in self.objects if one["kind"] == kind]
                    api_version = prefix.split("/", 2)[2]
                    return 200, {
                        "kind": f"{kind}List",
                        "apiVersion": api_version,
                        "metadata": {"resourceVersion": "10"},
                        "items": items,
                    }
        return 404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": f"no {path} here"}

    # ---- As a transport.

    async def get(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        accept: str = "",
        most: int | None = None,
    ) -> bytes:  # As transports are called.
        assert accept is not None
        code, body = await self.answer(path, query)
        if code != 200:
            raise Refused(Refusal(code, str(body.get("reason", "")), str(body["message"])))
        return json.dumps(body).encode()

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], **_: object
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await self.get(path, query)
        yield _silence()

    # ---- Over HTTP.

    async def _serve(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        code, body = await self.answer(request.path, request.query)
        if code != 200 or "watch" not in request.query:
            return aiohttp.web.json_response(body, status=code)
        stream = aiohttp.web.StreamResponse()
        await stream.prepare(request)
        await asyncio.Event().wait()
        return stream

    @asynccontextmanager
    async def served(self) -> AsyncIterator[kopf.ConnectionInfo]:
        """Serve on a free port, and give what a login would."""
        app = aiohttp.web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        runner = aiohttp.web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await runner.setup()
        await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            host, port = runner.addresses[0][:2]
            yield kopf.ConnectionInfo(server=f"http://{host}:{port}")
        finally:
            await runner.cleanup()


async def _silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def runtime_over(cluster: Cluster) -> Any:
    """Return what makes runtimes for operators in this cluster."""

    def make(settings: kopf.OperatorSettings, *, namespaces: tuple[str, ...] | None) -> Runtime:
        return Runtime(
            settings_of(settings),
            cast("WritingTransport", cluster),
            namespaces=namespaces,
            chance=lambda: 0.5,
            logger=logging.getLogger("tests"),
        )

    return make


@asynccontextmanager
async def launched(
    settings: kopf.OperatorSettings, cluster: Cluster, *, login: Vault | None = None, **options: Any
) -> AsyncIterator[Operator]:
    """Run the caches of an operator that has logged in, for code within the block, without the rest of the
    operator."""
    settings.peering.clusterwide = True
    with context(settings, login):
        operator = launch(settings, make_runtime=runtime_over(cluster), **options)
        try:
            yield operator
        finally:
            operator.task.cancel()
            await asyncio.wait({operator.task})


def started(
    registry: kopf.OperatorRegistry | None, settings: kopf.OperatorSettings, cluster: Cluster | None = None
) -> None:
    """Call our startup hook as the last of a registry's, and end what it began."""

    async def main() -> None:
        with context(settings):
            settings.peering.clusterwide = True
            fake = hook(
                causes.Activity.STARTUP, registry=registry, make_runtime=runtime_over(cluster or Cluster())
            )
            await asyncio.create_task(called(fake, activity(causes.Activity.STARTUP, settings)))
            if operator := operator_of(settings):
                await asyncio.wait({operator.task})

    run(main())


@contextlib.contextmanager
def context(settings: kopf.OperatorSettings, login: Vault | None = None) -> Any:
    """Make the running code that of an operator, as `spawn_tasks` does."""
    vault = Vault({"login": kopf.ConnectionInfo(server="https://localhost")}) if login is None else login
    tokens = settings_var.set(settings), vault_var.set(vault)
    try:
        yield
    finally:
        settings_var.reset(tokens[0])
        vault_var.reset(tokens[1])


# ---- Causes and calls, as Kopf makes them.


def _common(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "logger": logging.getLogger("tests.handler"),
        "indices": OperatorIndexers().indices,
        "memo": Memo(),
        "resource": PODS,
        "patch": patches.Patch(),
        "body": bodies.Body(body),  # type: ignore[arg-type]  # Any mapping is a body, and any object a memo.
    }


def changing(
    body: Mapping[str, Any] | None = None,
    reason: causes.Reason = causes.Reason.CREATE,
) -> causes.ChangingCause:
    return causes.ChangingCause(**_common(body or pod()), initial=False, reason=reason)


def watching(type_: str | None = "ADDED", body: Mapping[str, Any] | None = None) -> causes.WatchingCause:
    body = body or pod()
    event: Any = {"type": type_, "object": body}
    return causes.WatchingCause(**_common(body), type=event["type"], event=event)


def indexing(body: Mapping[str, Any] | None = None) -> causes.IndexingCause:
    return causes.IndexingCause(**_common(body or pod()))


def spawning(body: Mapping[str, Any] | None = None) -> causes.SpawningCause:
    """Return what Kopf asks the `when=` of a daemon about, before it is there."""
    return causes.SpawningCause(**_common(body or pod()), reset=False)


def spawned(body: Mapping[str, Any] | None = None) -> causes.DaemonCause:
    return causes.DaemonCause(**_common(body or pod()), stopper=DaemonStopper())


def admission(body: Mapping[str, Any] | None = None) -> causes.WebhookCause:
    return causes.WebhookCause(
        **_common(body or pod()),
        dryrun=False,
        reason=None,
        webhook=None,
        headers={},
        sslpeer={},
        userinfo={"username": "someone", "uid": "1", "groups": []},
        warnings=[],
        operation="CREATE",
        subresource=None,
    )


def activity(which: causes.Activity, settings: kopf.OperatorSettings) -> causes.ActivityCause:
    return causes.ActivityCause(
        logger=logging.getLogger("tests.activity"),
        indices=OperatorIndexers().indices,
        memo=Memo(),  # type: ignore[arg-type]  # Any mapping is a body, and any object a memo.
        activity=which,
        settings=settings,
    )


async def called(handler: execution.Handler, cause: execution.Cause) -> Any:
    """Call a handler with all that Kopf puts around it."""
    extra = (
        subhandling_context if isinstance(handler, handlers.ChangingHandler) else execution.no_extra_context
    )
    return await execution.invoke_handler(
        handler=handler,
        cause=cause,
        retry=0,
        started=dt.datetime.now(dt.UTC),
        runtime=dt.timedelta(),
        settings=settings_var.get(),
        lifecycle=None,
        subrefs=set(),
        extra_context=extra,
    )


async def processed(registry: kopf.OperatorRegistry, type_: Any, body: dict[str, Any]) -> None:
    """Let Kopf take in an event of its own stream, with all that it makes of it."""
    await process_resource_event(
        lifecycle=kopf.lifecycles.all_at_once,
        registry=registry,
        settings=settings_var.get(),
        resource=PODS,
        indexers=OperatorIndexers(),
        memories=ResourceMemories(),
        memobase=Memo(),  # type: ignore[arg-type]  # Any mapping is a body, and any object a memo.
        event_queue=asyncio.Queue(),
        raw_event={"type": type_, "object": body},  # type: ignore[typeddict-item]
    )  # Of an event, all that there is.


def only(handlers_: Any) -> Any:
    """Return the one handler of a registry's part."""
    (handler,) = handlers_.get_all_handlers()
    return handler


@asynccontextmanager
async def operating(
    registry: kopf.OperatorRegistry,
    cluster: Cluster,
    *,
    settings: kopf.OperatorSettings | None = None,
    logs_in: bool = False,
    **options: Any,
) -> AsyncIterator[asyncio.Task[None]]:
    """Run an embedded operator against the cluster over HTTP, and stop it as a signal would.

    It is given its credentials, or logs in after startup, as most operators do.
    """
    stop = asyncio.Event()
    settings = settings or kopf.OperatorSettings()
    settings.scanning.disabled = True
    options = {"clusterwide": True, "standalone": True, "stop_flag": stop, **options}
    async with cluster.served() as info:
        if logs_in:
            kopf.on.login(registry=registry)(lambda **_: info)  # type: ignore[arg-type, return-value, unused-ignore]  # A login is handed over as it is.
        operator = asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=settings,
                vault=Vault({} if logs_in else {"login": info}),
                **options,
            )
        )
        try:
            yield operator
        finally:
            stop.set()
            await asyncio.wait({operator})
