"""Fields and parts that the server has left out of the patches of handlers: who names them in the log."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.testing import EmbeddedCluster, FakeCache
from tests.faults.environment import run, until
from tests.plugin.reconciling import APPS, CRD, app, config, operated, serving

KIND = "webapps.example.com"
DROPPED = "The server dropped status.nope from "


@pytest.mark.parametrize("by_function", [False, True])
async def test_20_a_field_that_the_server_drops_from_a_patch_is_named_at_the_first_one(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture, by_function: bool
) -> None:
    """A patch that changes nothing makes no version, and no other call. The log names the field once."""
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry, id="follow")
    async def follow(name: str, patch: kopf.Patch, **_: Any) -> None:
        calls.append(name)
        if by_function:
            patch.fns.append(lambda obj: obj.__setitem__("status", {"nope": 1}))
        else:
            patch.status["nope"] = 1

    async with serving(app("a"), app("b")) as cluster, operated(registry, cluster):
        await until(lambda: len(cluster.requests.where(verb="patch")) > 1)
        await until(lambda: DROPPED in caplog.text)
    assert set(calls) == {"a", "b"}
    assert (
        caplog.text.count(
            f"{DROPPED}a patch of Reconciler 'follow': webapps.example.com don't have that field"
        )
        == 1
    )


def test_20_the_warning_names_the_handler_that_writes(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """A sync handler has another stack than its write."""

    @kopf.timer("example.com", "v1", "webapps", interval=0.01, id="check", registry=registry)
    @with_cache
    def check(cache: Any, name: str, namespace: str, **_: Any) -> None:
        cache.live.patch(APPS, name, {"status": {"nope": 1}}, namespace=namespace, subresource="status")

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await until(lambda: len(cluster.requests.where(verb="patch")) > 2)

    run(main())
    assert caplog.text.count(f"{DROPPED}cache.live.patch() of Timer 'check'") == 1


async def test_20_kopf_itself_warns_of_a_field_that_the_server_drops_from_its_patch(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    @kopf.timer("example.com", "v1", "webapps", interval=0.01, registry=registry)
    @with_cache
    def check(patch: kopf.Patch, **_: Any) -> None:
        patch.status["nope"] = 1

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: "finished with inconsistencies" in caplog.text)
    assert "('status', 'nope')" in caplog.text


def test_20_a_test_is_warned_of_a_misspelt_field_in_its_objects() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cache = FakeCache([pod | {"spec": {"nodeNam": "n"}}], {"pods": selectcache.EVERYTHING})
        cache.cluster.patch(pod, {"status": {"nope": 1}})
    assert [str(each.message) for each in caught] == [
        f"A Pod has no field {field}: the server has dropped it from 'a'. Correct its name"
        for field in ("spec.nodeNam", "status.nope")
    ]
    assert not cache.get("pods", "a", namespace="shop")["spec"]


WRITES: list[tuple[Any, dict[str, Any]]] = [
    ({"status": {"count": 1}}, {}),
    ([{"op": "add", "path": "/status", "value": {"count": 1}}], {"type": "json"}),
    ([{"op": "test", "path": "/spec", "value": {}}], {"type": "json", "subresource": "status"}),
    ({"spec": {"a": 1}, "status": {"count": 1}}, {"subresource": "status"}),
    ({"status": {"count": 1}}, {}),
]


def test_20_the_log_names_a_part_that_the_server_ignores_once_for_each_handler(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """The status is there after the last write, so that the same patch is no mistake any more."""
    rounds: list[None] = []

    @kopf.timer("example.com", "v1", "webapps", interval=0.01, id="check", registry=registry)
    @with_cache
    async def check(cache: selectcache.Cache, name: str, namespace: str, **_: Any) -> None:
        for changes, options in WRITES:
            await cache.live.patch(APPS, name, changes, namespace=namespace, **options)
        await cache.live.ensure(config("a"))  # What is no change of an object is not compared.
        rounds.append(None)

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await until(lambda: len(rounds) > 1)

    run(main())
    said = (
        each.getMessage().partition(" in cache.live.patch() of Timer 'check': ") for each in caplog.records
    )
    assert [(one, why) for one, _, why in said if "server ignored" in one] == [
        (
            "The server ignored the status",
            f"the status of {KIND} is a subresource. To write it, give subresource='status'.",
        ),
        (
            "The server ignored spec",
            f"subresource='status' only writes the status of {KIND}. To write spec, leave subresource= out.",
        ),
    ]


async def test_20_a_status_that_is_no_subresource_is_not_called_ignored(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    plain = copy.deepcopy(CRD)
    del plain["spec"]["versions"][0]["subresources"]
    answers: list[Any] = []

    @kopf.timer("example.com", "v1", "webapps", interval=0.01, registry=registry)
    @with_cache
    async def check(cache: selectcache.Cache, name: str, namespace: str, **_: Any) -> None:
        answers.append(
            await cache.live.patch(
                APPS, name, {"status": {"nope": 1, "count": len(answers)}}, namespace=namespace
            )
        )

    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        cluster.create(plain, app())
        async with operated(registry, cluster):
            await until(lambda: len(answers) > 1)
    assert [each["status"] for each in answers[:2]] == [{"count": 0}, {"count": 1}]
    assert DROPPED in caplog.text
    assert "The server ignored" not in caplog.text
