"""Finalizers of reconcilers: errors of their declarations, warnings, and the command that removes them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import kopf

from kopf_selectcache import EVERYTHING, Cached, Key, LabelSelector, Selector, reconcile, settings_of
from kopf_selectcache.plugin.hooks import checked
from kopf_selectcache.plugin.reconcile import check_declared, reconcilers
from kopf_selectcache.plugin.reconcilers import ReconcileCalls
from kopf_selectcache.testing import FakeCache
from tests.messages.commands import run
from tests.messages.logs import log
from tests.messages.provoked import Provoked

DONE, KOPFS = "example.com/done", "kopf.zalando.org/KopfFinalizerMarker"


async def follow(**_: Any) -> None:
    """Do nothing."""


def config(name: str, *finalizers: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "finalizers": list(finalizers)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def start(
    finalizer: Any, filter_: Any = EVERYTHING, *, register: Callable[..., Any] | None = None
) -> Callable[[], Any]:
    """Return a function that starts an operator with a reconciler of ConfigMaps."""

    def work() -> Any:
        registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
        settings.peering.clusterwide = True
        settings_of(settings).selectors["configmaps"] = filter_
        for number, each in enumerate(finalizer if isinstance(finalizer, list) else [finalizer]):
            reconcile("configmaps", registry=registry, finalizer=each, id=f"follow-{number}")(follow)
        if register is not None:
            register("v1", "configmaps", registry=registry, id="theirs")(follow)
        return checked(settings, registry)

    return work


def leave(cached: Cached | None, *names: str) -> Callable[[], Any]:
    """Return a function that changes a cache with these objects, or removes it."""

    def work() -> None:
        registry = kopf.OperatorRegistry()
        reconcile("configmaps", registry=registry, finalizer=DONE)(follow)
        cache = FakeCache([config(name, DONE) for name in names], {"configmaps": EVERYTHING})
        informer = cache._runtime.informer("configmaps")
        check_declared([*reconcilers(registry)], cast("Any", cache._runtime), "configmaps", cached, informer)

    return work


def leave_on(finalizer: str | None) -> Callable[[], Any]:
    """Return a function that meets an object with Kopf's finalizer."""
    calls = SimpleNamespace(
        _cleanup=SimpleNamespace(leftover_of=lambda _: KOPFS),
        _handler=SimpleNamespace(finalizer=finalizer),
        _names={"handler": "Reconciler 'follow'", "resource": "configmaps"},
    )
    return lambda: ReconcileCalls._warn_of_leftover(
        cast("Any", calls), Key("a", namespace="ns"), cast("Any", {})
    )


def remove(*arguments: str) -> Callable[[], Any]:
    """Return a function that runs the command."""
    objects = config("a", "example.com/other", KOPFS), config("b")
    return run("finalizers", "remove", *arguments, prepare=lambda cluster: cluster.create(*objects))


MESSAGES: dict[str, Callable[[], Any]] = {
    "a name without a domain": start("done"),
    "a filter by labels": start(DONE, "app=web"),
    "a filter of which a part has labels, for Kopf's finalizer": start(
        True, [Selector("app=web"), Selector(namespaces=["shop"])]
    ),
    "a filter by labels of namespaces": start(DONE, Selector(namespaces=LabelSelector.parse("tenant=yes"))),
    "a part without finalizers": start(DONE, Cached(EVERYTHING, keep=["data"])),
    "Kopf's finalizer beside a handler of Kopf": start(True, register=kopf.on.event),
    "Kopf's finalizer is taken off and put on": start(False, register=kopf.on.delete),
    "Kopf's finalizer is kept and taken off": start([True, False]),
    "a cache is removed": leave(None, "a", "b"),
    "a filter is narrowed": leave(Cached(Selector(names=["a"])), "a", "b"),
    "Kopf's finalizer is left": log(leave_on(None)),
    "Kopf's finalizer is left beside another one": log(leave_on(DONE)),
    "the command shows what it would do": remove("configmaps", "a", "b", "c", "-n", "ns"),
    "the command removes a finalizer": remove("configmaps", "--all", "--yes"),
    "the command has no names": remove("configmaps"),
    "the command names a namespace of nodes": remove("nodes", "a", "-n", "ns"),
}


def provoke(provoked: Provoked) -> None:
    for title, work in MESSAGES.items():
        provoked.add("Finalizers", title, work)
