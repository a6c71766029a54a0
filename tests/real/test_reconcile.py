"""Reconcilers of a real server, with faults between, servers that are killed, and operators that end at each
boundary: in the end, the last state of each object is reconciled, and nothing runs any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import kopf
import pytest
from aiohttp import web

from tests.apiserver.server import ApiServer
from tests.faults.crowds import Calls, Crowd
from tests.plugin.reconciling import CRD, app, config, operated
from tests.real.inprocess import run, until
from tests.real.proxy import Fault, Loss, Proxy, status

WRITERS = 4
BOUNDARIES = 12
"""Requests of an operator for the objects; it ends before the answer to each."""
FAULTS = 0.01
"""The share of changes with a fault."""
PLACES = {
    "WebApp": "/apis/example.com/v1/namespaces/shop/webapps",
    "ConfigMap": "/api/v1/namespaces/shop/configmaps",
}


@dataclass(frozen=True)
class Objects:
    """The objects of the server."""

    api: ApiServer

    def create(self, *objects: dict[str, Any]) -> None:
        for obj in objects:
            self.api.request("POST", PLACES[obj["kind"]], body=obj)

    def patch(self, obj: dict[str, Any], changes: dict[str, Any]) -> None:
        self.api.request("PATCH", self._path(obj), body=changes)

    def delete(self, obj: dict[str, Any]) -> None:
        self.api.request("DELETE", self._path(obj))

    def statuses(self) -> dict[str, Any]:
        found = self.api.request("GET", PLACES["WebApp"])["items"]
        return {each["metadata"]["name"]: each.get("status") for each in found}

    def _path(self, obj: dict[str, Any]) -> str:
        return f"{PLACES[obj['kind']]}/{obj['metadata']['name']}"


@dataclass(frozen=True)
class Address:
    """The server, as the operator reaches it."""

    url: str
    token: str | None


def is_of_objects(path: str) -> bool:
    return "/webapps" in path or "/configmaps" in path


def is_read(request: web.Request) -> bool:
    return request.method == "GET" and request.path.endswith(("/webapps", "/configmaps"))


def is_list(request: web.Request) -> bool:
    return is_read(request) and "watch" not in request.query


def is_patch(request: web.Request) -> bool:
    return request.method == "PATCH"


def expired() -> dict[str, Any]:
    return {"type": "ERROR", "object": status(410, "Expired")}


def refuse_reads(proxy: Proxy, chance: Random) -> None:
    proxy.faults.append(
        Fault(is_read, chance.choice((429, 500, 503)), times=chance.randint(1, 2), retry_after="0")
    )
    proxy.end_streams(is_read)


def refuse_patches(proxy: Proxy, chance: Random) -> None:
    code = chance.choice((409, 429, 500, 503))
    proxy.faults.append(Fault(is_patch, code, times=chance.randint(1, 3), retry_after="0"))


def lose_list(proxy: Proxy, _: Random) -> None:
    proxy.losses.append(Loss(is_list, is_answered=True))
    proxy.say_in_streams(is_read, expired())


MISHAPS: Sequence[Callable[[Proxy, Random], object]] = (
    refuse_reads,
    refuse_patches,
    lose_list,
    lambda proxy, _: proxy.losses.append(Loss(is_patch, is_answered=False)),
    lambda proxy, _: proxy.losses.append(Loss(is_patch, is_answered=True)),
    lambda proxy, _: proxy.end_streams(is_read),
    lambda proxy, _: proxy.say_in_streams(is_read, expired()),
)


def is_pending(proxy: Proxy) -> bool:
    """Return True while a mishap is to come: after many in a row the operator waits for long."""
    to_come: list[Fault | Loss] = [*proxy.faults, *proxy.losses]
    return any(each.hits < each.times for each in to_come)


class Play:
    """A server with objects that change, and operators with a reconciler of them, one after the other."""

    def __init__(self, api: ApiServer, proxy: Proxy, keys: int, seed: int) -> None:
        self.api, self.proxy, self.chance = api, proxy, Random(seed)
        self.objects, self.calls, self.registry = Objects(api), Calls(), kopf.OperatorRegistry()
        self.calls.register(self.registry, Random(seed))
        self.changes = 0
        self.crowds = [
            Crowd(
                self.objects,
                [f"app-{number}" for number in range(writer, keys, WRITERS)],
                Random(seed + 1 + writer),
            )
            for writer in range(WRITERS)
        ]

    def operated(self) -> Any:
        exit_timeout = self.chance.choice((0.0, 0.05, 0.5))

        def configure(settings: kopf.OperatorSettings) -> None:
            settings.queueing.exit_timeout = exit_timeout

        self.calls.restart()
        address = Address(self.proxy.url, self.api.token)
        return operated(self.registry, address, configure=configure)

    def unreconciled(self) -> list[str]:
        statuses = self.objects.statuses()
        return [name for crowd in self.crowds for name in crowd.unreconciled(statuses)]

    async def change(self, count: int, *, faults: float = 0.0) -> None:
        """Make `count` changes. Each writer changes its own objects."""
        before, self.changes = self.changes, self.changes + count
        await asyncio.gather(
            *(
                asyncio.to_thread(self._change, crowd, range(before + writer, self.changes, WRITERS), faults)
                for writer, crowd in enumerate(self.crowds)
            )
        )

    def _change(self, crowd: Crowd, numbers: range, faults: float) -> None:
        chance = Random(numbers.start)
        for number in numbers:
            if chance.random() < faults and not is_pending(self.proxy):
                chance.choice(MISHAPS)(self.proxy, chance)
            crowd.happen(1 + number)

    async def end_at_each_boundary(self) -> None:
        """Let operators end while their first request, their second one, and so on, waits for its answer."""
        for boundary in range(BOUNDARIES):
            self.proxy.passed.clear()
            waiting = self.proxy.waiting
            self.proxy.hold(partial(self._has_passed, boundary))
            async with self.operated():
                await self.change(2 * BOUNDARIES)
                await until(partial(self._is_held, waiting), f"request {boundary} is held")
            self.proxy.release()

    def _is_held(self, before: int) -> bool:
        return self.proxy.waiting > before

    def _has_passed(self, least: int, request: web.Request) -> bool:
        """Return True for a request for the objects, if at least `least` of them have passed. Kopf waits for
        the answers to others.
        """
        return is_of_objects(request.path) and sum(is_of_objects(at) for _, at in self.proxy.passed) >= least

    async def run_with_faults(self, changes: int) -> None:
        """Let an operator run while objects change, with faults between it and the server."""
        async with self.operated():
            await self.change(changes // 2, faults=FAULTS)
            if self.chance.random() < 0.1:
                await asyncio.to_thread(self.api.expire)
            await self.change(changes - changes // 2, faults=FAULTS)
        self.proxy.faults.clear()
        self.proxy.losses.clear()

    async def end(self) -> None:
        """Wait until the last state of each object is reconciled, and nothing runs any more."""
        self.objects.create(app("last"), config("last", n="0"))
        async with self.operated():
            while await asyncio.to_thread(self.unreconciled):  # noqa: ASYNC110  # There is no event for it.
                await asyncio.sleep(0.1)
            before, number = -1, 0
            while before != (before := self._calls_of_others()):  # As long as the calls that are due run.
                for _ in range(5):  # A loop would call again meanwhile.
                    number += 1
                    self.objects.patch(app("last"), {"spec": {"size": number}})
                    await until(self._is_last(number), "the last object is reconciled")
        assert self.unreconciled() == []
        assert set(self.calls.ends.values()) <= {1}

    def _calls_of_others(self) -> int:
        return self.calls.by_name.total() - self.calls.by_name["last"]

    def _is_last(self, number: int) -> Callable[[], bool]:
        return lambda: self.objects.statuses()["last"] == {"count": number, "other": 0}


@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # Of connections to operators that have ended.
@pytest.mark.parametrize(
    ("events", "keys", "restarts"),
    [(300, 12, 2), pytest.param(100_000, 1000, 60, marks=pytest.mark.soak)],
)
def test_the_last_state_of_each_object_is_reconciled_on_a_real_server(
    events: int, keys: int, restarts: int, start_api: Any, counted: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for logger in ("kopf", "kopf_selectcache"):  # Captured records of 100,000 events take gigabytes.
        caplog.set_level(logging.CRITICAL, logger)

    async def main(api: ApiServer) -> None:
        api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "shop"}})
        schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        await asyncio.to_thread(
            partial(api.create_crd, "example.com", "v1", "WebApp", "webapps", schema=schema, status=True)
        )
        with Proxy(api) as proxy:
            play = await asyncio.to_thread(Play, api, proxy, keys, 1)
            await play.end_at_each_boundary()
            while play.changes < events:
                await play.run_with_faults(min(events - play.changes, events // restarts))
            await play.end()
            counted(
                f"reconciled: {play.changes:,} changes, {play.calls.by_name.total():,} calls, {keys:,} keys"
            )

    run(main(start_api()))
