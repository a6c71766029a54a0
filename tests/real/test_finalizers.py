"""Deletions at each moment in the life of an object whose reconciler has a finalizer, on both servers: the
cleanup runs if the finalizer was ever on, and the object disappears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import kopf
import pytest
from aiohttp import web

import kopf_selectcache as selectcache
from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.plugin.reconciling import CRD, operated
from tests.real.inprocess import until
from tests.real.proxy import Loss, Proxy

DONE, OTHER = "example.com/done", "example.com/other"
GROUP = "finalizers.example.com"


class Point(Enum):
    """Where an operator is held up."""

    ADDING = auto()
    """The request that puts the finalizer on has not reached the server."""
    ADDED = auto()
    """The server has put it on, and the operator has no answer."""
    CALLING = auto()
    CALLED = auto()
    CLEANING = auto()
    REMOVING = auto()
    """The request that takes the finalizer off has not reached the server."""
    REMOVED = auto()
    """The server has taken it off, and the operator has no answer."""


@dataclass(frozen=True)
class Address:
    """The server, as the operator reaches it."""

    url: str
    token: str | None


def changes_finalizers(request: web.Request) -> bool:
    return request.headers.get("Content-Type") == "application/json-patch+json"


class Play:
    """A reconciler with a finalizer, and one object."""

    def __init__(self, api: Cluster, proxy: Proxy, others: list[str]) -> None:
        self._api, self._proxy, self._others = api, proxy, others
        self._namespace = api.namespace()
        self._registry = kopf.OperatorRegistry()
        self.calls: list[tuple[str, bool]] = []
        self.sizes: list[Any] = []
        """The `spec.size` that each call has seen."""
        self.writes_status = True
        self._stops_at: Point | None = None
        self._goes_on = asyncio.Event()
        self._version = self._create("web", others)["metadata"]["resourceVersion"]

        @selectcache.reconcile(f"{GROUP}/v1/webapps", registry=self._registry, finalizer=DONE)
        async def follow(name: str, spec: Any, deleting: bool, patch: kopf.Patch, **_: Any) -> None:
            self.calls.append((name, deleting))
            self.sizes.append(spec.get("size"))
            if self.writes_status:
                patch.status["count"] = len(self.calls)
            if self._stops_at is (Point.CLEANING if deleting else Point.CALLING):
                await self._goes_on.wait()

    # ---- The operator.

    @asynccontextmanager
    async def operated(self) -> AsyncIterator[None]:
        def configure(settings: kopf.OperatorSettings) -> None:
            settings.queueing.exit_timeout = 0.0

        filters = {f"{GROUP}/v1/webapps": selectcache.Selector(namespaces=[self._namespace])}
        address = Address(self._proxy.url, self._api.token)
        async with operated(self._registry, address, filters=filters, configure=configure):
            yield

    def stop_at(self, point: Point | None) -> None:
        """Hold the operator up at this point, and nowhere else."""
        self._proxy.release()
        self._goes_on.set()
        self._stops_at, self._goes_on, self._waiting = point, asyncio.Event(), self._proxy.waiting
        if point in (Point.ADDING, Point.REMOVING, Point.ADDED, Point.REMOVED):
            self._proxy.hold(changes_finalizers, answers=point in (Point.ADDED, Point.REMOVED))

    async def reach(self, point: Point) -> None:
        """Wait until the operator is held up."""

        def is_reached() -> bool:
            match point:
                case Point.CALLING | Point.CLEANING:
                    return ("web", point is Point.CLEANING) in self.calls
                case Point.CALLED:
                    return bool((self.found() or {}).get("status"))
            return self._proxy.waiting > self._waiting

        await until(is_reached, f"{point} is reached")

    async def settle(self) -> None:
        """Wait until the object is gone, and another one has had its whole life."""
        self._create("last", [])
        await until(lambda: ("last", False) in self.calls, "the other object is seen")
        if self._others:
            await until(lambda: self._finalizers() == self._others, "only the finalizer of others is on")
            self.patch({"metadata": {"finalizers": []}})
        await until(lambda: self.found() is None, "the object is gone")
        self.delete("last")
        await until(lambda: self.found("last") is None, "the other object is gone")

    # ---- The server.

    def was_on(self) -> bool:
        """Return True if the object, which is gone, has ever had the finalizer."""
        query = {"resourceVersion": self._version, "fieldSelector": "metadata.name=web"}
        with self._api.watch(self._path(), query=query) as watch:
            events = watch.until(lambda event: event["type"] == "DELETED")
        return any(DONE in each["object"]["metadata"].get("finalizers", []) for each in events)

    def found(self, name: str = "web") -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._api.request("GET", self._path(name))
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return found

    def delete(self, name: str = "web") -> None:
        self._api.request("DELETE", self._path(name))

    def patch(self, changes: dict[str, Any]) -> None:
        self._api.request("PATCH", self._path("web"), body=changes)

    def _finalizers(self) -> list[str]:
        return list((self.found() or {"metadata": {}})["metadata"].get("finalizers", []))

    def _create(self, name: str, finalizers: list[str]) -> dict[str, Any]:
        metadata = {"name": name, "finalizers": finalizers}
        body = {"apiVersion": f"{GROUP}/v1", "kind": "WebApp", "metadata": metadata, "spec": {}}
        made: dict[str, Any] = self._api.request("POST", self._path(), body=body)
        return made

    def _path(self, *name: str) -> str:
        return "/".join((f"/apis/{GROUP}/v1/namespaces/{self._namespace}/webapps", *name))


@pytest.fixture(scope="module")
def served(api: Cluster) -> Iterator[Cluster]:
    schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    api.create_crd(GROUP, "v1", "WebApp", "webapps", schema=schema, status=True)
    yield api
    api.request("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/webapps.{GROUP}")


STORIES: list[tuple[Point | None, Point | None]] = [
    (None, None),  # The operator is down, and has never seen the object.
    (Point.ADDING, None),
    (Point.ADDED, None),
    (Point.CALLING, None),
    (Point.CALLED, None),
    (Point.CALLED, Point.CLEANING),
    (Point.CALLED, Point.REMOVING),
    (Point.CALLED, Point.REMOVED),
]


def told(number: int, others: list[str], *, is_restarted: bool) -> Any:
    """Where the others' finalizer is on in each second story, and so on; all of them in `make soak`."""
    is_due = (number % 2 == 0) is (bool(others) is is_restarted)
    marks = () if is_due else (pytest.mark.soak,)
    return pytest.param(*STORIES[number], others, is_restarted, marks=marks)


@pytest.mark.parametrize(
    ("before", "after", "others", "is_restarted"),
    [
        told(number, others, is_restarted=is_restarted)
        for number in range(len(STORIES))
        for others in ([], [OTHER])
        for is_restarted in (True, False)
    ],
)
async def test_18_the_cleanup_runs_whenever_the_object_is_deleted(
    before: Point | None, after: Point | None, others: list[str], is_restarted: bool, served: Cluster
) -> None:
    with Proxy(served) as proxy:
        play = Play(served, proxy, others)
        if before is None:
            play.delete()
        play.stop_at(before)
        async with play.operated():
            if before is not None:
                await play.reach(before)
                play.delete()
            if after is not None:
                play.stop_at(after)
                await play.reach(after)
            if not is_restarted:
                play.stop_at(None)
                await play.settle()
        if is_restarted:
            play.stop_at(None)
            async with play.operated():
                await play.settle()
    was_on = await asyncio.to_thread(play.was_on)
    assert was_on is (before not in (None, Point.ADDING))
    assert (("web", True) in play.calls) is was_on
    assert (("web", False) in play.calls) <= was_on


@pytest.mark.parametrize("writes_status", [True, False])
async def test_18_an_object_that_changes_during_its_cleanup_is_cleaned_up_as_it_is_then(
    writes_status: bool, served: Cluster
) -> None:
    with Proxy(served) as proxy:
        play = Play(served, proxy, [])
        async with play.operated():
            await play.reach(Point.CALLED)
            play.writes_status = writes_status
            play.delete()
            play.stop_at(Point.CLEANING)
            await play.reach(Point.CLEANING)
            play.patch({"spec": {"size": 1}})
            play.stop_at(None)
            await until(lambda: play.found() is None, "the object is gone")
    assert play.sizes[-1] == 1


@pytest.mark.parametrize("is_answered", [True, False])
async def test_18_a_lost_answer_about_a_finalizer_loses_no_cleanup(
    is_answered: bool, served: Cluster
) -> None:
    with Proxy(served) as proxy:
        play = Play(served, proxy, [OTHER])
        proxy.losses.append(Loss(changes_finalizers, is_answered=is_answered))
        async with play.operated():
            await play.reach(Point.CALLED)
            proxy.losses.append(Loss(changes_finalizers, is_answered=is_answered))
            play.delete()
            await play.settle()
        assert [each.hits for each in proxy.losses] == [1, 1]
    assert play.was_on()
    assert ("web", True) in play.calls
