"""The rows of tests/FEATURES.md about the freshness and the explanation of reads, on both servers."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import aclosing
from secrets import token_hex
from typing import Any

import pytest

from kopf_selectcache import Selector, Stale
from kopf_selectcache.types import Standing

from .places import Place
from .test_features import WEB, cached, configs, names

__all__ = ["configs"]


async def test_a20_many_objects_are_read_in_pages_of_one_generation(configs: Place) -> None:
    every = [f"web-{number}" for number in range(7)]
    configs.create(*every, labels=WEB)
    async with cached(configs) as cache:
        found = list[str]()
        for page in cache.list_cached("configmaps").batches(3):
            found += [each["metadata"]["name"] for each in page]
            holders = [each for each in gc.get_referrers(page) if isinstance(each, list)]
            assert not holders, "no other page is made yet, and none is kept"
            configs.delete(found[-1])
        assert sorted(found) == every


async def test_b4_a_departure_beside_a_quiet_alternative_is_shown_and_is_deleted_says_more(
    configs: Place,
) -> None:
    filters = {"v1/configmaps": ["app=web", "tier=gold"]}
    async with cached(configs, filters) as cache, aclosing(cache.changes("configmaps")) as changes:  # type: ignore[type-var]

        async def is_deleted_after(depart: Callable[[str], object]) -> bool:
            name = f"web-{token_hex(4)}"
            configs.create(name, labels=WEB)
            entered = await anext(changes)
            assert entered.cause == "entered"
            assert entered.new is not None
            depart(name)
            change = await anext(changes)
            assert (change.name, change.cause, change.known_by) == (name, "left", None)
            uid = entered.new["metadata"]["uid"]
            return bool(await cache.is_deleted("configmaps", name, namespace=configs.namespace, uid=uid))

        assert await is_deleted_after(configs.delete)
        assert not await is_deleted_after(lambda name: configs.label(name, app="db"))


async def test_b10_an_answer_is_as_new_as_a_version(configs: Place) -> None:
    async with cached(configs) as cache:
        for name, labels in (("web-1", WEB), ("db-1", {"app": "db"}), ("web-2", WEB)):
            made = configs.create(name, labels=labels)
            found = await cache.fetch_list(
                "configmaps", labels="app=web", namespace=configs.namespace, at_least=made
            )
            assert int(found.version) >= int(made["metadata"]["resourceVersion"])
            listed = cache.list("configmaps", labels="app=web", namespace=configs.namespace, at_least=made)
            assert set(names(found)) == set(names(listed)) == set(configs.names(labelSelector="app=web"))
            with pytest.raises(Stale):
                cache.list(
                    "configmaps",
                    labels="app=web",
                    namespace=configs.namespace,
                    at_least=f"{found.version}000",
                )


async def test_b10_waits_and_changes_begin_at_a_version(configs: Place) -> None:
    """An object that is as it should be already may have been changed meanwhile."""

    def is_ready(config: Any) -> bool:
        return bool(config["metadata"]["labels"].get("ready") == "yes")

    configs.create("web-1", labels=WEB | {"ready": "yes"})
    async with cached(configs) as cache:
        for _ in range(5):
            configs.label("web-1", ready="no")
            version = configs.label("web-1", ready="yes")
            found = await cache.wait_for("configmaps", is_ready, at_least=version, timeout=60)
            assert int(found["metadata"]["resourceVersion"]) >= int(version)
            made = configs.create(f"web-{version}", labels=WEB)
            async with aclosing(cache.changes("configmaps", at_least=made)) as changes:  # type: ignore[type-var]
                held = {(await anext(changes)).name for _ in range(2)}
            assert held == set(configs.names(labelSelector="app=web"))
            configs.delete(f"web-{version}")
            await cache.wait_deleted(
                "configmaps", f"web-{version}", namespace=configs.namespace, at_least=made, timeout=60
            )


async def test_b10_a_snapshot_stays_as_it_is(configs: Place) -> None:
    configs.create("web-1", labels=WEB)
    async with cached(configs) as cache:
        with cache.snapshot("configmaps") as now:
            made = configs.create("web-2", labels=WEB)
            namespace = configs.namespace
            await cache.fetch_list("configmaps", labels="app=web", namespace=namespace, at_least=made)
            assert names(now.list("configmaps", labels="app=web", namespace=namespace)) == ["web-1"]
            with pytest.raises(Stale):
                now.list_cached("configmaps", at_least=made)
        assert names(cache.list("configmaps", labels="app=web", namespace=namespace)) == [
            "web-1",
            "web-2",
        ]


async def test_b11_the_reason_for_one_object_is_known(place: Place) -> None:
    pods = place.of("pods")
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]}
    pods.create("db-1", labels={"app": "db"}, spec=spec)
    branches = ["app=web", "app=db,tier", Selector(fields="spec.nodeName=n2"), Selector(names=["a"])]
    async with cached(place, {"v1/pods": branches}) as cache:
        found = await cache.why("pods", "db-1", namespace=place.namespace)
        assert found.standing is Standing.OUTSIDE
        expected = [("app=web",), ("tier",), ("spec.nodeName=n2",), ("name=a",)]
        assert [each.fails for each in found.branches] == expected
        assert (found.state, found.message) == ("synced", "")
        assert (await cache.why("pods", "db-2", namespace=place.namespace)).standing is Standing.ABSENT
    async with cached(place, {"v1/pods": Selector(fields="spec.nodeName=n1")}) as cache:
        assert (await cache.why("pods", "db-1", namespace=place.namespace)).standing is Standing.CACHED
