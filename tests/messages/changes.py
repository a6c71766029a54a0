"""Handlers of changes: errors of their declarations, their log records, and errors of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import kopf
import msgspec

from kopf_selectcache import Cached, on, reconcile, with_cache
from kopf_selectcache.cache.changes import Resumed
from kopf_selectcache.core.store.changes import ChangeCause, PendingChanges
from kopf_selectcache.plugin import changes as plugin_changes
from kopf_selectcache.plugin.changes import deliver_changes
from kopf_selectcache.plugin.operator import Operator
from kopf_selectcache.testing import FakeCache
from tests.cache.clients import model
from tests.kopf_operators import cycles, declaring, started
from tests.messages.logs import Capture
from tests.messages.provoked import Lines, Provoked

V1ConfigMap = model("V1ConfigMap")
FILTER = {"pods": "app=web"}
ENOUGH = 3
"""Departures that are more than may wait here."""


def pod(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "labels": {"app": "web"}}
    spec = {"containers": [{"name": "main", "image": "nginx"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def follow(**_: Any) -> None:
    """Do nothing."""


async def write_patch(patch: kopf.Patch, **_: Any) -> None:
    patch.status["seen"] = True


async def take_other(other: str, **_: Any) -> str:
    return other


async def take_cause(cause: str) -> str:
    return cause


def declare(kind: Any = "pods", fn: Any = follow, **options: Any) -> Callable[[], Any]:
    """Return a function that decorates a handler of changes."""
    return lambda: on.change(kind, registry=kopf.OperatorRegistry(), **options)(fn)


def start(kind: Any = "pods", filters: Mapping[str, Any] = FILTER, **options: Any) -> Callable[[], Any]:
    """Return a function that starts an operator with a handler of changes, and pods with app=web."""

    def provoke() -> None:
        registry = kopf.OperatorRegistry()
        on.change(kind, registry=registry, **options)(follow)
        started(registry, declaring(**filters))

    return provoke


HANDLERS: dict[str, Callable[[], Any]] = {
    "a cause is no bool": declare(entered=1),
    "a field of Kopf and its value": declare(field="spec.replicas", value=1),
    "annotations of Kopf": declare(annotations={"a": "b"}),
    "an old value of Kopf": declare(old=1),
    "no cause is left": declare(entered=False, updated=False, left=False, gone=False),
    "a path of where is empty": declare(where={"": 1}),
    "an argument does not exist": declare(names=["a"]),
    "a selector cannot be read": declare(labels="app=("),
    "it decorates no function": declare(fn=7),
    "it decorates a function with a cache": declare(fn=with_cache(lambda **_: None)),
    "it is called as a decorator of Kopf": lambda: cast("Any", on).change("apps", "v1", "deployments"),
    "it has a filter of Kopf": declare(when=lambda **_: True),
    "it is not called": lambda: on.change(cast("Any", follow)),
    "where is a function": declare(where=len),
    "as_ is no form of objects": declare(as_=5),
    "as_ is a class of another kind": start(as_=V1ConfigMap),
    "as_ is a struct with a field that is not kept": start(
        as_=msgspec.defstruct("Pod", [("status", dict)]), filters={"pods": Cached("app=web", keep=["spec"])}
    ),
    "a value of where is a function": declare(where={"spec.nodeName": len}),
    "a path of where is a number": declare(where={5: 1}),
    "a namespace is none": declare(namespace="A_B"),
    "the number of calls is 0": declare(retries=0),
    "the timeout is a text": declare(timeout="5"),
    "the errors are a text": declare(errors="permanent"),
    "the id is a number": declare(id=5),
    "the finalizer of a reconciler has no domain": lambda: reconcile("pods", finalizer="done"),
    "it takes a patch": declare(fn=write_patch),
    "it takes something else": declare(fn=take_other),
    "it takes no other arguments": declare(fn=take_cause),
    "it is a generator": declare(fn=lambda **_: (yield 1)),
    "another decorator": lambda: cast("Any", on).changes,
    "its label contradicts itself": start(labels="app=a,app=b"),
    "its field cannot be selected by": start(fields="spec.image=x"),
    "its namespace is outside of the filter": start(namespace="ns", labels="app=db"),
    "its label contradicts the filter": start(labels="app=db"),
    "its kind has no namespace": start("nodes", {"nodes": "app=web"}, namespace="ns"),
}


def deliver(
    act: Callable[[FakeCache], object] = lambda _: None,
    fails: Exception | None = None,
    **options: Any,
) -> Callable[[], Lines]:
    """Return a function that delivers changes of pods with app=web, acts on the cluster meanwhile, and
    returns the records of the log.
    """

    async def work() -> Lines:
        cache = FakeCache([pod("web-0")], dict(FILTER))
        failures = [] if fails is None else [fails]

        async def informer(_: object) -> Any:
            if failures:
                raise failures.pop()
            return cache._runtime.informer("pods")

        async def gate(*_: object, **__: object) -> None:
            """Open."""

        operator = SimpleNamespace(
            settings=kopf.OperatorSettings(),
            informer=informer,
            gate=gate,
            unsettling=SimpleNamespace(is_settled=True),
            waits=None,
            recorder=None,
            cache=None,
            is_stopping=False,
            shards=None,
        )
        registry = kopf.OperatorRegistry()
        on.change("pods", registry=registry, id="follow", **options)(follow)
        with Capture() as captured:
            delivering = asyncio.create_task(
                deliver_changes(cast("Operator", operator), cache._runtime, registry)
            )
            await cycles()
            act(cache)
            await cycles()
            delivering.cancel()
            await asyncio.wait({delivering})
        assert captured.lines, "nothing was logged"
        return Lines("\n".join(captured.lines))

    return lambda: asyncio.run(work())


def _depart_too_often() -> Lines:
    def act(cache: FakeCache) -> None:
        names = [f"web-{number}" for number in range(1, ENOUGH + 1)]
        for name in names:
            cache.cluster.create(pod(name))
        for name in names:
            cache.cluster.delete(pod(name))

    with patch.object(plugin_changes, "PendingChanges", partial(PendingChanges, most=1)):
        return deliver(act)()


RECORDS: dict[str, Callable[[], Any]] = {
    "the predicate of a handler of changes fails": deliver(where={"spec.containers.name": "main"}),
    "the calls of a handler of changes fail": deliver(fails=RuntimeError("a bug")),
    "a handler of changes is too slow": _depart_too_often,
}


async def _wait_gone(**given: Any) -> None:
    await FakeCache([pod("web-0")], dict(FILTER)).wait_deleted("pods", "web-0", namespace="ns", **given)


async def _wait_with_a_uid() -> None:
    await cast("Any", FakeCache([], dict(FILTER))).wait_deleted("pods", "web-0", "ns", "1")


def _await(work: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], Any]:
    return lambda: asyncio.run(work())


OF_CHANGES: dict[str, Callable[[], Any]] = {
    "an object still exists": _await(partial(_wait_gone, timeout=0)),
    "the body of a resumed change": lambda: Resumed(None, None, ChangeCause.RESUMED).body,
    "changes by a label that contradicts itself": _await(
        lambda: anext(FakeCache([], dict(FILTER)).changes("pods", labels="app=a,app=b"))  # type: ignore[arg-type]
    ),
    "changes without a cause": lambda: cast("Any", FakeCache([], dict(FILTER))).changes(
        "pods", updated=False
    ),
    "changes in a sync function": lambda: cast("Any", FakeCache([], dict(FILTER))).blocking.changes("pods"),
    "a uid without its name": _await(_wait_with_a_uid),
    "initial is no bool": lambda: FakeCache([], dict(FILTER)).changes("pods", initial=cast("Any", "x")),
    "changes of what is never held": _await(
        lambda: anext(FakeCache([], dict(FILTER)).changes("pods", labels="app=db"))  # type: ignore[arg-type]
    ),
}


def provoke(provoked: Provoked) -> None:
    provoked.add_all(
        {"Handlers of changes": HANDLERS, "Changes": OF_CHANGES, "Log records of changes": RECORDS}
    )
