"""Kinds that are declared, changed and removed at run time: their errors and log records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import kopf
from kopf._core.intents import causes

from kopf_selectcache import (
    Cache,
    Cached,
    Forbidden,
    NotSynced,
    Selector,
    _kopf,
    cache_of,
    on,
    with_cache,
)
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.plugin.access import note_activity
from kopf_selectcache.plugin.changes import deliver_changes
from kopf_selectcache.settings.declaration import Selectors
from kopf_selectcache.testing import FakeCache
from tests.kopf_operators import (
    Cluster,
    activity,
    called,
    changing,
    context,
    cycles,
    declaring,
    launched,
    only,
    watching,
)
from tests.messages.logs import Capture
from tests.messages.provoked import Lines, Provoked

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PLACE = "handlers.py:7"


def operate(
    work: Callable[[Cache, Cluster], Coroutine[Any, Any, Any]],
    make: Callable[[], Cluster] = Cluster,
    **registered: Any,
) -> Callable[[], Any]:
    """Return a function that does some work with the cache of an operator that has pods with app=web."""

    async def provoke() -> Any:
        cluster = make()
        async with launched(declaring(pods="app=web"), cluster, **registered) as operator:
            await operator.gate(None, None)
            operator.runtime.now = lambda: NOW
            cache = Cache(operator.runtime)
            cache._place = PLACE
            return await work(cache, cluster)

    return lambda: asyncio.run(provoke())


def log(work: Callable[[Cache, Cluster], Coroutine[Any, Any, Any]], **registered: Any) -> Callable[[], Lines]:
    """Return a function that does the same, and returns the records of it."""

    async def captured(cache: Cache, cluster: Cluster) -> Lines:
        logger = logging.getLogger("tests")  # That of the operator's runtime.
        with Capture() as capture:
            before = logger.level
            logger.setLevel(logging.DEBUG)
            logger.addHandler(capture)
            try:
                await work(cache, cluster)
                await cycles()
            finally:
                logger.removeHandler(capture)
                logger.setLevel(before)
        beside = (" is synced: ", "Namespaces that do not exist")  # They come whenever they come.
        return Lines("\n".join(line for line in capture.lines if not any(part in line for part in beside)))

    return operate(captured, **registered)


async def _declare_and_remove(cache: Cache, _: Cluster) -> None:
    await cache.declare("v1/secrets", "app=web")
    await cache.undeclare("secrets")


async def _change_in_vain(cache: Cache, cluster: Cluster) -> None:
    """Time out, fail, are cancelled, and are overtaken."""
    cluster.refused["/api/v1/pods"] = 503
    with suppress(NotSynced):
        await cache.declare("pods", "tier=gold", timeout=0.05, replace=True)
    cluster.refused["/api/v1/pods"] = 403
    with suppress(Forbidden):
        await cache.declare("pods", "tier=gold", replace=True)
    del cluster.refused["/api/v1/pods"]
    cluster.hold("/api/v1/pods")
    changing = asyncio.create_task(cache.declare("pods", "tier=gold", replace=True))
    await cycles()
    changing.cancel()
    await asyncio.wait({changing})
    changing = asyncio.create_task(cache.declare("pods", "tier=gold", replace=True))
    await cycles()
    newer = asyncio.create_task(cache.declare("pods", "tier=silver", replace=True))
    await asyncio.gather(changing, return_exceptions=True)
    newer.cancel()
    await asyncio.wait({newer})


async def _time_out_a_change(cache: Cache, cluster: Cluster) -> None:
    cluster.refused["/api/v1/pods"] = 503
    await cache.declare("pods", "tier=gold", timeout=0.05, replace=True)


async def _change_nothing(cache: Cache, _: Cluster) -> None:
    await cache.declare("pods", "app=web", replace=True)
    await cache.declare("pods", ["app in (db,web)", "app=web"], replace=True)
    await cache.declare("pods", ["app in (db,web)", "app=web"], replace=True)


async def _change(cache: Cache, _: Cluster) -> None:
    await cache.declare(
        "pods", [Selector("app=web"), Selector("tier=gold", namespaces=["shop"])], replace=True
    )
    await cache.declare("pods", "tier=gold", replace=True)
    await cache.declare("pods", "tier=gold", keep=["spec"], replace=True)
    await cache.declare("pods", "tier=gold", keep=["spec"], storage="raw", replace=True)


class _Unreviewing(Cluster):
    """A cluster that reviews no permissions."""

    async def send(self, *_: object) -> bytes:
        raise Refused(Refusal(403, "Forbidden"))


async def _plan(cache: Cache, _: Cluster) -> Lines:
    declared = await cache.plan("v1/secrets", Selector(names=["ca"], namespaces=["shop"]))
    changed = await cache.plan("pods", [Selector("app=web"), Selector("tier=gold")])
    smaller = await cache.plan("pods", "tier=gold")
    return Lines(f"{declared}\n{changed}\n{smaller}")


def _plan_with_reviews() -> Lines:
    cache = FakeCache([], {"pods": "app=web"})
    planned = cache.blocking.plan("pods", "tier=gold")
    lacking = replace(planned, missing=planned.permissions, objects=None, bytes=None)
    return Lines(f"{planned}\n{lacking}")


async def _plan_forbidden(cache: Cache, cluster: Cluster) -> None:
    cluster.refused["/api/v1/secrets"] = 403
    await cache.plan("v1/secrets", "app=web")


async def _fail(cache: Cache, cluster: Cluster) -> None:
    cluster.refused["/api/v1/secrets"] = 403
    await cache.declare("secrets", "app=web")


async def _fail_to_change(cache: Cache, cluster: Cluster) -> None:
    cluster.refused["/api/v1/pods"] = 403
    await cache.declare("pods", "tier=gold", replace=True)


async def _change_too_late(cache: Cache, cluster: Cluster) -> None:
    cluster.hold("/api/v1/pods")
    await cache.declare("pods", "tier=gold", timeout=0.01, replace=True)


async def _fail_silently(cache: Cache, cluster: Cluster) -> None:
    with suppress(Forbidden):  # The records of the log count.
        await _fail(cache, cluster)


async def _time_out(cache: Cache, cluster: Cluster) -> None:
    cluster.hold("/api/v1/secrets")
    await cache.declare("secrets", "app=web", timeout=0)


async def _wait_for_removed(cache: Cache, _: Cluster) -> None:
    waiting = asyncio.create_task(cache.wait_for("pods", lambda _: False))
    await cycles()
    await cache.undeclare("pods")
    await waiting


async def _wait_for_withdrawn(cache: Cache, cluster: Cluster) -> None:
    held = cluster.hold("/api/v1/secrets")
    cluster.refused["/api/v1/secrets"] = 403
    declaring = asyncio.create_task(cache.declare("secrets", "app=web"))
    await cycles()
    waiting = asyncio.create_task(cache.wait_for("secrets", lambda _: False))
    await cycles()
    declaring.cancel()
    await asyncio.wait({declaring})
    held.set()
    await waiting


async def _read_removed(cache: Cache, _: Cluster) -> None:
    await cache.undeclare("pods")
    cache.get("pods", "web-1", namespace="shop")


async def _handle(_: Cache, __: Cluster) -> None:
    registry = kopf.OperatorRegistry()
    kopf.on.create("pods", registry=registry)(with_cache(kinds=["secrets"])(lambda **_: None))
    await called(only(registry._changing), changing())


async def _handle_event(_: Cache, __: Cluster) -> None:
    registry = kopf.OperatorRegistry()
    kopf.on.event("pods", registry=registry)(with_cache(kinds=["secrets"])(lambda **_: None))
    await called(only(registry._watching), watching())


def start(call: Callable[[Cache], Coroutine[Any, Any, Any]]) -> Callable[[], Any]:
    """Return a function that makes a call in a startup handler."""

    async def provoke() -> None:
        settings = declaring()
        with context(settings):
            _kopf.cause_var.set(activity(causes.Activity.STARTUP, settings))
            note_activity(causes.Activity.STARTUP)
            await call(cache_of(settings))

    return lambda: asyncio.run(provoke())


async def _gather(cache: Cache) -> None:
    await asyncio.gather(cache.declare("v1/secrets", "app=web", timeout=0))


async def _gather_waits(cache: Cache) -> None:
    await asyncio.gather(cache.wait_synced(0))


async def _start_late() -> None:
    cache = FakeCache()
    cache._runtime.wait_started = lambda _: asyncio.Event().wait()  # type: ignore[assignment, return-value]
    vars(cache._runtime)["unended_handlers"] = str  # As in `cache_of`, before there is an operator.
    await cache.declare("pods", "app=web", timeout=0)


async def follow(**_: Any) -> None:
    """Do nothing."""


def _following() -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    on.change("pods", registry=registry, id="follow")(follow)
    return registry


async def _remove_followed(cache: Cache, _: Cluster) -> None:
    await cycles()
    await cache.undeclare("pods")


def _too_late() -> None:
    selectors = Selectors()
    with selectors.in_use():
        selectors |= {"v1/pods": "app=web"}


ERRORS: dict[str, Callable[[], Any]] = {
    "a kind that is declared otherwise": operate(lambda cache, _: cache.declare("v1/pods", "app=db")),
    "a kind that is declared with other options": operate(
        lambda cache, _: cache.declare("v1/pods", "app in (web)", keep=["spec"], max_bytes="1Mi")
    ),
    "a declaration with options twice": operate(
        lambda cache, _: cache.declare("nodes", Cached("app=web"), keep=["spec"])
    ),
    "a declaration with an unknown option": operate(
        lambda cache, _: cache.declare("nodes", "app=web", keeping=["spec"])  # type: ignore[call-arg]
    ),
    "a timeout that is no number": operate(
        lambda cache, _: cache.declare("nodes", "app=web", timeout="5")  # type: ignore[arg-type]
    ),
    "a plan without permission": operate(_plan_forbidden, _Unreviewing),
    "a plan with an unknown option": operate(
        lambda cache, _: cache.plan("nodes", "app=web", keeping=["spec"])  # type: ignore[call-arg]
    ),
    "a declaration without permission": operate(_fail),
    "a change without permission": operate(_fail_to_change),
    "a change that times out": operate(_change_too_late),
    "a declaration that times out": operate(_time_out),
    "a change that times out after failures": operate(_time_out_a_change),
    "a declaration before the login": lambda: asyncio.run(_start_late()),
    "a change of an option that cannot be changed": operate(
        lambda cache, _: cache.declare("pods", "app=web", page_limit=7, replace=True)
    ),
    "a declaration in a startup handler": start(lambda cache: cache.declare("v1/secrets", "app=web")),
    "a removal in a startup handler": start(lambda cache: cache.undeclare("v1/secrets")),
    "a plan in a startup handler": start(lambda cache: cache.plan("v1/secrets", "app=web")),
    "changes in a startup handler": start(lambda cache: anext(cache.changes("v1/secrets"))),  # type: ignore[arg-type]
    "a declaration in a task of a startup handler": start(_gather),
    "a wait in a task of a startup handler": start(_gather_waits),
    "a declaration without a filter": operate(
        lambda cache, _: cache.declare("nodes")  # type: ignore[call-arg]
    ),
    "a removal without a kind": operate(lambda cache, _: cache.undeclare()),  # type: ignore[call-arg]
    "a negative timeout": operate(lambda cache, _: cache.declare("nodes", "app=web", timeout=-1)),
    "a change of a misspelt kind": operate(lambda cache, _: cache.declare("podz", "app=web", replace=True)),
    "a removal of a kind with a name like another": operate(lambda cache, _: cache.undeclare("secretz")),
    "a removal of a kind that is not declared": operate(lambda cache, _: cache.undeclare("nodes")),
    "a read of a removed kind": operate(_read_removed),
    "a wait for a removed kind": operate(_wait_for_removed),
    "a wait for a kind whose declaration is withdrawn": operate(_wait_for_withdrawn),
    "a handler that waits for a kind that is not declared": operate(_handle),
    "a handler of events that waits for a kind that is not declared": operate(_handle_event),
    "settings that are updated too late": _too_late,
}

PLANS: dict[str, Callable[[], Any]] = {
    "plans of a declaration and of changes": operate(_plan, _Unreviewing),
    "plans with reviews of permissions": _plan_with_reviews,
}

RECORDS: dict[str, Callable[[], Any]] = {
    "a kind is declared and removed": log(_declare_and_remove),
    "a filter and options are changed": log(_change),
    "changes that are given up": log(_change_in_vain),
    "nothing is changed, and a selector is needless": log(_change_nothing),
    "a declaration is withdrawn": log(_fail_silently),
    "a kind with handlers of changes is removed": log(
        _remove_followed, registry=_following(), beside=deliver_changes
    ),
}


def provoke(provoked: Provoked) -> None:
    provoked.add_all(
        {"Kinds that come and go": ERRORS, "Plans": PLANS, "Log records of kinds that come and go": RECORDS}
    )
