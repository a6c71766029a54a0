"""Count the Python calls of short paths: lists, a refused get, a declaration, a line of a watch.

`python -m bench.call_paths` prints the counts. With `--show on.change` or `--show reconcile` it prints the
calls from a line of a watch to such a handler, in their order and by file; with `--show change` those of a
change of a filter.

Only functions that are written in a file of the package count, each resumption of a coroutine or generator
as a call. A module is a file. A switch is a call in another module than the call before it. The counts do not
depend on time, but they depend on the version of Python: later versions inline comprehensions. The figures of
version 0.1.0 are from CPython 3.11.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeAlias

import kopf

import kopf_selectcache as selectcache
from kopf_selectcache.testing import EmbeddedCluster, FakeCache

PACKAGE = str(Path(selectcache.__file__).parent) + "/"
KIT = f"{PACKAGE}testing/"
"""No operator has it: what a fake cache adds to a path does not count."""
STORE = "Store"
"""The class that stores objects. The path of a line ends with the last call of one of its methods."""
LINES = 5
"""The number of lines of a watch. The shortest path counts: others train compression or meet a timer."""
PARTS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
"""Frames that are part of a function. The paths to handlers leave them out."""

Obj: TypeAlias = dict[str, Any]
Register: TypeAlias = Callable[[kopf.OperatorRegistry], object]
"""Registers the handlers of an operator."""


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
        file = frame.f_code.co_filename
        return file.startswith(folder) and not file.startswith(KIT)

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
        "change": summarize(trace("change")),
    } | {name: summarize(trace(name)) for name in HANDLERS}


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
    async with _cached() as (cluster, cache):
        return min([await _count_line(cluster, cache, str(number)) for number in range(LINES)])


def _files_and_calls(calls: Sequence[Call]) -> tuple[int, int]:
    return len({call.file for call in calls}), len(calls)


async def _trace_change() -> Sequence[Call]:
    """Return all calls from a change of a filter in a running operator until it returns."""
    paths = []
    async with _cached() as (_, cache):
        for number in range(LINES):
            calls: list[Call] = []
            with recording(calls):
                await cache.declare("v1/pods", f"app in (web,other-{number})", replace=True)
            paths.append([call for call in calls if call.function.rpartition(".")[2] not in PARTS])
    return min(paths, key=_files_and_calls)  # Other tasks of the operator run in the midst of some.


@asynccontextmanager
async def _cached() -> AsyncIterator[tuple[EmbeddedCluster, selectcache.Cache]]:
    """Run an operator beside a server, and return the cache of the operator."""
    found: asyncio.Future[selectcache.Cache] = asyncio.get_running_loop().create_future()

    def register(registry: kopf.OperatorRegistry) -> None:
        @kopf.on.event("configmaps", registry=registry)
        @selectcache.with_cache
        async def hand_over(cache: selectcache.Cache, **_: Any) -> None:
            if not found.done():
                found.set_result(cache)

    async with _operator(register, found) as cluster:
        yield cluster, found.result()


@asynccontextmanager
async def _operator(register: Register, ready: asyncio.Future[Any]) -> AsyncIterator[EmbeddedCluster]:
    """Run an operator beside a server with a pod and a ConfigMap, once `ready` is done."""
    with EmbeddedCluster().in_thread() as cluster:
        cluster.namespace("shop")
        cluster.create(
            _pod("web-1", app="web"),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "shop"}},
        )
        registry = _registry(cluster)
        register(registry)
        operator = asyncio.create_task(kopf.operator(registry=registry, clusterwide=True, standalone=True))
        operator.add_done_callback(lambda _: _fail(ready))
        try:
            async with asyncio.timeout(60):
                await ready
            yield cluster
        finally:
            operator.cancel()
            await asyncio.wait({operator})


def _fail(ready: asyncio.Future[Any]) -> None:
    if not ready.done():
        ready.set_exception(RuntimeError("the operator has ended"))


def _registry(cluster: EmbeddedCluster) -> kopf.OperatorRegistry:
    """Return what all operators here have: the login, and a filter of pods."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=cluster.url, ca_path=str(cluster.ca_file), token=cluster.token)

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        selectcache.settings_of(settings).selectors["v1/pods"] = "app=web"

    return registry


async def _change(cluster: EmbeddedCluster, value: str) -> None:
    await asyncio.to_thread(cluster.patch, _pod("web-1"), {"metadata": {"labels": {"value": value}}})


async def _count_line(cluster: EmbeddedCluster, cache: selectcache.Cache, value: str) -> Counts:
    """Change an object; count the step of the event loop that stores it."""
    calls: list[Call] = []
    with recording(calls):
        await _change(cluster, value)
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


# ---- The path to a handler, over the steps of the event loop.

HANDLERS: Mapping[str, Callable[..., Callable[..., Any]]] = {
    "on.change": selectcache.on.change,
    "reconcile": selectcache.reconcile,
}
"""The decorators of the handlers that a line of a watch leads to."""


@dataclass(eq=False)
class Step:
    """A step of the event loop: what one handle runs."""

    before: tuple[Step, int] | None
    """The step that scheduled it, and the number of calls which that had made by then."""
    calls: list[Call] = field(default_factory=list)


class Steps:
    """Records which steps of the loop lead to the first call of a function, as a profiler of this thread."""

    def __init__(self, target: CodeType, folder: str = PACKAGE) -> None:
        self._target, self._folder = target, folder
        self._step: Step | None = None
        self._scheduled: dict[int, tuple[asyncio.Handle, tuple[Step, int] | None]] = {}
        """The handles by their ids, which stay theirs while they are here, with what scheduled them."""
        self._found: tuple[Step, int] | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code is _SCHEDULES:
            handle = frame.f_locals["self"]
            self._scheduled[id(handle)] = handle, self._here()
        elif code is _RUNS:
            _, before = self._scheduled.get(id(frame.f_locals["self"]), (None, None))
            self._step = Step(before)
        elif code is self._target:
            self._found = self._found or self._here()
        elif (
            self._step is not None and code.co_filename.startswith(self._folder) and code.co_name not in PARTS
        ):
            calls = self._step.calls
            calls.append(Call(code.co_filename, code.co_qualname, outermost=not calls))

    def _here(self) -> tuple[Step, int] | None:
        return None if self._step is None else (self._step, len(self._step.calls))

    def path(self) -> list[Call]:
        """Return the calls up to the function. Of each step, those before it scheduled the next."""
        parts: list[list[Call]] = []
        at = self._found
        while at is not None:
            step, count = at
            parts.append(step.calls[:count])
            at = step.before
        return [call for part in reversed(parts) for call in part]


_SCHEDULES = asyncio.Handle.__init__.__code__
_RUNS = asyncio.Handle._run.__code__  # Nothing public shows the steps of a loop.  # noqa: SLF001


def trace(name: str) -> Sequence[Call]:
    """Return the calls from a line of a watch to a handler of an operator that has no other; or those of a
    change of a filter.
    """
    return asyncio.run(_trace_handler(HANDLERS[name]) if name in HANDLERS else _trace_change())


async def _trace_handler(decorator: Callable[..., Callable[..., Any]]) -> Sequence[Call]:
    called: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    awaited = ""

    async def handle(labels: Mapping[str, str], **_: Any) -> None:
        if labels.get("value", "") == awaited and not called.done():
            called.set_result(awaited)

    def register(registry: kopf.OperatorRegistry) -> None:
        options = {"initial": True} if decorator is selectcache.on.change else {}
        decorator("pods", registry=registry, **options)(handle)

    paths = []
    async with _operator(register, called) as cluster:
        for number in range(LINES):
            awaited, called = str(number), asyncio.get_running_loop().create_future()
            steps = Steps(handle.__code__)
            sys.setprofile(steps)
            try:
                async with asyncio.timeout(60):
                    await _change(cluster, awaited)
                    await called
            finally:
                sys.setprofile(None)
            path = steps.path()
            if any(call.function.startswith(f"{STORE}.") for call in path):  # The line has led to the call.
                paths.append(path)
    if not paths:
        raise RuntimeError(f"no line led from a class called {STORE} to the handler")
    return min(paths, key=len)


def show(calls: Sequence[Call]) -> str:
    """Return the calls in their order, and then by file."""
    lines = [f"{call.file.removeprefix(PACKAGE):40} {call.function}" for call in calls]
    files = Counter(call.file for call in calls)
    lines += ["", f"{len(calls)} calls in {len(files)} files:"]
    for file, count in files.most_common():
        functions = Counter(call.function for call in calls if call.file == file)
        names = ", ".join(f"{name} {times}x" if times > 1 else name for name, times in functions.items())
        lines.append(f"{count:4}  {file.removeprefix(PACKAGE)}: {names}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.call_paths", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--show",
        choices=("change", *HANDLERS),
        help="print the calls of a change of a filter, or from a line of a watch to a handler",
    )
    given = parser.parse_args()
    if given.show:
        print(show(trace(given.show)))
    else:
        for name, counts in measure_paths().items():
            print(
                f"{name:10} {counts.calls:4} calls, {counts.modules:3} modules, {counts.switches:4} switches"
            )


if __name__ == "__main__":
    main()
