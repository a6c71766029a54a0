"""`initial`: handlers of changes tell objects that were there when they began from those that came later."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import LabelSelector, Selector, _kopf
from kopf_selectcache.settings.options import settings_of
from tests.faults.environment import reached, until
from tests.informer.test_namespaces_by_label import namespace
from tests.plugin.test_change_handlers import operating
from tests.plugin.test_embedding import PEERING, PEERINGS
from tests.secrets import labelled, secret


@pytest.fixture
def caches() -> list[selectcache.Cache]:
    return []


@pytest.fixture
def seen(registry: kopf.OperatorRegistry) -> dict[str, tuple[bool, bool]]:
    """The last `initial` and `filter_changed` of each object and cause."""
    found: dict[str, tuple[bool, bool]] = {}

    @selectcache.on.change("secrets", registry=registry)
    async def follow(name: str, cause: str, initial: bool, filter_changed: bool, **_: Any) -> None:
        found[f"{name} {cause}"] = initial, filter_changed

    return found


async def test_15_initial_is_true_of_the_objects_of_the_start_and_of_no_others(
    registry: kopf.OperatorRegistry, seen: dict[str, tuple[bool, bool]]
) -> None:
    async with operating(registry, secret("a", app="web"), secret("z", app="db")) as cluster:
        assert await reached(lambda: "a entered" in seen)
        cluster.create(secret("b", app="web"))
        cluster.patch(secret("z"), labelled(app="web"))
        cluster.patch(secret("a"), labelled(tier="gold"))
        assert await reached(lambda: len(seen) == 4)
        cluster.cut()
        cluster.create(secret("c", app="web"))
        cluster.delete(secret("a"))
        cluster.compact()  # The cache must list again.
        assert await reached(lambda: len(seen) == 6)
    later = {"b entered", "z entered", "c entered", "a updated", "a left"}
    assert seen == {"a entered": (True, False)} | dict.fromkeys(later, (False, False))


async def test_15_initial_is_false_for_an_object_created_in_a_pause(
    registry: kopf.OperatorRegistry, seen: dict[str, tuple[bool, bool]]
) -> None:
    given: list[kopf.OperatorSettings] = []
    options: dict[str, Any] = {"standalone": False, "peering_name": "ours", "priority": 1}
    options["configure"] = given.append
    async with operating(registry, PEERINGS, PEERING, secret("a", app="web"), **options) as cluster:
        await until(lambda: "a entered" in seen)
        cluster.patch(PEERING, {"status": {"another": {"priority": 100, "lifetime": 600}}})
        parts = _kopf.parts_of(given[0])
        assert parts is not None
        await until(parts.paused.is_on)
        cluster.create(secret("b", app="web"))
        cluster.patch(PEERING, {"status": {"another": None}})
        assert await reached(lambda: "b entered" in seen)
    assert seen == {"a entered": (True, False), "b entered": (False, False)}


async def test_15_initial_is_false_for_an_object_that_a_filter_change_brings(
    registry: kopf.OperatorRegistry,
    seen: dict[str, tuple[bool, bool]],
    caches: list[selectcache.Cache],
) -> None:
    def configure(settings: kopf.OperatorSettings) -> None:
        caches.append(selectcache.cache_of(settings))

    objects = secret("a", app="web"), secret("b", app="db")
    async with operating(registry, *objects, configure=configure):
        await until(lambda: "a entered" in seen)
        await caches[0].declare("v1/secrets", "app in (web,db)", replace=True)
        assert await reached(lambda: "b entered" in seen)
    assert seen == {"a entered": (True, False), "b entered": (False, True)}


@pytest.mark.parametrize("initial", [True, False])
async def test_15_initial_is_false_for_an_object_that_the_filter_excluded_at_the_start(
    registry: kopf.OperatorRegistry, caches: list[selectcache.Cache], *, initial: bool
) -> None:
    seen: list[tuple[str, bool, bool]] = []

    @selectcache.on.change("secrets", registry=registry, labels="app=db", initial=initial)
    async def follow(name: str, initial: bool, filter_changed: bool, **_: Any) -> None:
        seen.append((name, initial, filter_changed))

    def configure(settings: kopf.OperatorSettings) -> None:
        del settings_of(settings).selectors["v1/secrets"]
        settings_of(settings).selectors["configmaps"] = ""
        caches.append(selectcache.cache_of(settings))

    objects = secret("a", app="web"), secret("b", app="db")
    async with operating(registry, *objects, configure=configure) as cluster:
        (cache,) = caches
        await cache.declare("v1/secrets", "app=web")
        await cache.declare("v1/secrets", "app=db", replace=True)
        assert await reached(lambda: seen)
        cluster.create(secret("c", app="db"))
        assert await reached(lambda: len(seen) == 2)
        assert seen == [("b", False, True), ("c", False, False)]
        await cache.undeclare("secrets")
        seen.clear()
        await cache.declare("v1/secrets", "app=db")
        cluster.create(secret("d", app="db"))
        assert await reached(lambda: seen[-1:] == [("d", False, False)])


async def test_15_initial_is_true_for_an_object_there_at_a_declaration_at_run_time(
    registry: kopf.OperatorRegistry,
    seen: dict[str, tuple[bool, bool]],
    caches: list[selectcache.Cache],
) -> None:
    def configure(settings: kopf.OperatorSettings) -> None:
        del settings_of(settings).selectors["v1/secrets"]
        settings_of(settings).selectors["configmaps"] = ""
        caches.append(selectcache.cache_of(settings))

    async with operating(registry, secret("a", app="web"), configure=configure) as cluster:
        (cache,) = caches
        await cache.declare("v1/secrets", "app=web")
        assert await reached(lambda: len(seen) == 1)
        await cache.undeclare("v1/secrets")
        cluster.create(secret("b", app="web"))
        await cache.declare("v1/secrets", "app=web")
        assert await reached(lambda: len(seen) == 2)
    assert seen == {"a entered": (True, False), "b entered": (True, False)}


async def test_15_initial_is_false_in_a_namespace_that_gains_the_label(
    registry: kopf.OperatorRegistry, seen: dict[str, tuple[bool, bool]]
) -> None:
    by_label = Selector("app=web", namespaces=LabelSelector.parse("tenant=yes"))
    other = namespace("other")
    other["metadata"]["labels"] = {"tenant": "yes"}
    elsewhere = other, secret("b", namespace="other", app="web")
    async with operating(registry, *elsewhere, secret("a", app="web"), filter_=by_label) as cluster:
        assert await reached(lambda: "b entered" in seen)
        cluster.patch(namespace("shop"), labelled(tenant="yes"))
        assert await reached(lambda: "a entered" in seen)
    assert seen == {"b entered": (True, False), "a entered": (False, True)}


async def test_15_an_initial_entry_that_is_joined_with_updates_stays_initial(
    registry: kopf.OperatorRegistry, caches: list[selectcache.Cache]
) -> None:
    seen: list[tuple[str, bool, int]] = []
    works, has_failed = asyncio.Event(), asyncio.Event()

    @selectcache.on.change("secrets", registry=registry, backoff=0.01)
    async def follow(cause: str, initial: bool, labels: Any, **_: Any) -> None:
        if not works.is_set():
            has_failed.set()
            raise RuntimeError("not yet")
        seen.append((str(cause), initial, len(labels)))

    def configure(settings: kopf.OperatorSettings) -> None:
        caches.append(selectcache.cache_of(settings))

    async with operating(registry, secret("a", app="web"), configure=configure) as cluster:
        await has_failed.wait()
        cluster.patch(secret("a"), labelled(tier="gold"))
        await until(lambda: caches[0].list_cached("secrets", labels="tier"))
        works.set()
        assert await reached(lambda: seen)
    assert seen == [("entered", True, 2)]
