"""Count the Python calls of short paths: lists, a refused get, a declaration, a line of a watch.

Only functions that are written in a file of the package count, each resumption of a coroutine or generator
as a call. A module is a file. A switch is a call in another module than the call before it. The counts do not
depend on time, but they depend on the version of Python: later versions inline comprehensions. The figures of
version 0.1.0 are from CPython 3.11.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

import kopf

import kopf_selectcache as selectcache
from kopf_selectcache.testing import EmbeddedCluster, FakeCache

PACKAGE = str(Path(selectcache.__file__).parent) + "/"
STORE = "Store"
"""The class that stores objects. The path of a line ends with the last call of one of its methods."""
LINES = 5
"""The number of lines of a watch. The shortest path counts: others train compression or meet a timer."""

Obj: TypeAlias = dict[str, Any]


class Counts(NamedTuple):
    """What was counted along a path."""

    calls: int
    modules: int
    switches: int


class Call(NamedTuple):
    file: str
    function: str
    outermost: bool
    """True if no function of the package is among its callers."""


def summarize(calls: Sequence[Call]) -> Counts:
    """Count the calls, the modules and the switches between modules."""
    files = [call.file for call in calls]
    return Counts(len(files), len(set(files)), sum(one != other for one, other in pairwise(files)))


@contextmanager
def recording(calls: list[Call], folder: str = PACKAGE) -> Iterator[None]:
    """Append each call of a function in the folder to the list, in this thread."""

    def is_inside(frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(folder)

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and is_inside(frame):
            caller = frame.f_back
            while caller is not None and not is_inside(caller):
                caller = caller.f_back
            calls.append(Call(frame.f_code.co_filename, frame.f_code.co_qualname, outermost=caller is None))

    sys.setprofile(record)
    try:
        yield
    finally:
        sys.setprofile(None)


def count(work: Callable[[], object]) -> Counts:
    """Count the calls of a function of no arguments."""
    calls: list[Call] = []
    with recording(calls):
        work()
    return summarize(calls)


def measure_paths() -> Mapping[str, Counts]:
    """Count all paths, by name."""
    return {
        "list": _list(),
        "get": _get(),
        "refused": _refused(),
        "declare": _declare(),
        "line": asyncio.run(_line()),
    }


def _pod(name: str, **labels: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
    }


def _list() -> Counts:
    """Count a list of five objects. The same list has been read a few times before."""
    cache = FakeCache([_pod(f"web-{number}", app="web") for number in range(5)], {"v1/pods": ""})

    def work() -> object:
        return cache.list("pods", namespace="shop", labels="app=web")

    for _ in range(3):
        work()
    return count(work)


def _get() -> Counts:
    """Count a get outside of the filter, until the error text exists. The kind has been read before."""
    cache = FakeCache([_pod("web-1", app="web"), _pod("db-1", app="db")], {"pods": "app=web"})

    def work() -> None:
        try:
            cache.get("pods", "db-1", namespace="shop")
        except selectcache.OutsideFilter as error:
            str(error)
        else:
            raise AssertionError("the filter excludes the object")

    cache.list("pods", labels="app=web")
    return count(work)


def _refused() -> Counts:
    """Count a list that has not been read before, and that the filter does not cover, until the error text
    exists. The kind has been read before.
    """
    cache = FakeCache([_pod("web-1", app="web"), _pod("db-1", app="db")], {"pods": "app=web"})

    def work() -> None:
        try:
            cache.list("pods", namespace="shop", labels="tier=gold")
        except selectcache.OutsideFilter as error:
            str(error)
        else:
            raise AssertionError("the filter does not cover the list")

    cache.list("pods", labels="app=web")
    return count(work)


def _declare() -> Counts:
    """Count a declaration. The settings exist, and other settings have had the same declaration."""

    def make() -> Callable[[], None]:
        selectors = selectcache.SelectCacheSettings().selectors

        def work() -> None:
            selectors["v1/pods"] = "app=web"

        return work

    make()()
    return count(make())


async def _line() -> Counts:
    """Count the path of a line of a watch in a running operator, from the event loop to the store."""
    with EmbeddedCluster().in_thread() as cluster:
        cluster.namespace("shop")
        cluster.create(
            _pod("web-1", app="web"),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "shop"}},
        )
        found: asyncio.Future[selectcache.Cache] = asyncio.get_running_loop().create_future()
        operator = asyncio.create_task(
            kopf.operator(registry=_registry(cluster, found), clusterwide=True, standalone=True)
        )
        operator.add_done_callback(lambda _: _fail(found))
        try:
            async with asyncio.timeout(60):
                await found
            paths = [await _count_line(cluster, found.result(), str(number)) for number in range(LINES)]
        finally:
            operator.cancel()
            await asyncio.wait({operator})
    return min(paths)


def _fail(found: asyncio.Future[selectcache.Cache]) -> None:
    if not found.done():
        found.set_exception(RuntimeError("the operator has ended"))


def _registry(cluster: EmbeddedCluster, found: asyncio.Future[selectcache.Cache]) -> kopf.OperatorRegistry:
    """Return the handlers of an operator that hands over its cache."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=cluster.url, ca_path=str(cluster.ca_file), token=cluster.token)

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        selectcache.settings_of(settings).selectors["v1/pods"] = "app=web"

    @kopf.on.event("configmaps", registry=registry)
    @selectcache.with_cache
    async def hand_over(cache: selectcache.Cache, **_: Any) -> None:
        if not found.done():
            found.set_result(cache)

    return registry


async def _count_line(cluster: EmbeddedCluster, cache: selectcache.Cache, value: str) -> Counts:
    """Change an object; count the step of the event loop that stores it."""
    calls: list[Call] = []
    with recording(calls):
        await asyncio.to_thread(cluster.patch, _pod("web-1"), {"metadata": {"labels": {"value": value}}})
    async with asyncio.timeout(60):
        while (
            cache.get("pods", "web-1", namespace="shop")["metadata"]["labels"].get("value") != value
        ):  # Not recorded.
            with recording(calls):
                await asyncio.sleep(0.01)
    return summarize(cut_at_store(calls))


def cut_at_store(calls: Sequence[Call]) -> Sequence[Call]:
    """Return the longest step of the loop that calls the store, up to the last call of the store."""
    steps: list[list[Call]] = []
    for call in calls:
        if call.outermost:
            steps.append([])
        if steps:
            steps[-1].append(call)
    paths = []
    for step in steps:
        last = max(
            (at for at, call in enumerate(step) if call.function.startswith(f"{STORE}.")), default=None
        )
        if last is not None:
            paths.append(step[: last + 1])
    if not paths:
        raise RuntimeError(
            f"no line was stored by a class called {STORE}: give its present name in {Path(__file__).name}"
        )
    return max(paths, key=len)
