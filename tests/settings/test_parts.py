"""A read needs its part of several lists and watches, and no more; and readers while these begin anew."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import Forbidden, Selector
from kopf_selectcache.errors import Missing
from kopf_selectcache.informer.health import Health
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.faults.environment import until
from tests.secrets import Environment, caching, labelled, named, secret

WATCHING = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}]
APART = [Selector("app=web", namespaces=["shop"]), Selector(names=["ca"], namespaces=["infra"])]
EITHER = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["shop"])]
EVERYWHERE = [*EITHER, Selector("app=web", namespaces=["infra"]), Selector("tier=gold", namespaces=["infra"])]


def only_in(namespace: str) -> Callable[[EmbeddedCluster], str]:
    return lambda cluster: cluster.user("robot", WATCHING, namespace=namespace)


async def lost(environment: Environment, namespace: str) -> None:
    """Let the cluster say once that it does not serve the kind there; wait until it is asked again what the
    key means."""
    reflector = next(
        each for each in environment.informer.state.reflectors if each.stream.namespace == namespace
    )
    await until(lambda: reflector.condition.health is Health.SYNCED)
    refused = environment.cluster.faults.add(
        Refuse(404), verb="watch", resource="secrets", namespace=namespace, times=1
    )
    reflector.resume()
    await until(lambda: refused.hits)


# ---- What a read needs.


async def test_reads_that_several_watches_answer_together_are_not_spoiled_by_one_that_they_do_not_need() -> (
    None
):
    async with caching(
        EVERYWHERE, secret("a", app="web"), secret("b", tier="gold"), who=only_in("shop")
    ) as environment:
        await environment.informer.wait_until_settled(Selector(namespaces=["shop"]))
        assert named(environment.cache.list_cached("secrets", namespace="shop")) == ["a", "b"]
        assert environment.cache.get("secrets", "b", namespace="shop")["metadata"]["name"] == "b"
        environment.cluster.patch(secret("a"), labelled(app=None, tier="gold"))
        await until(
            lambda: (
                environment.cache.get("secrets", "a", namespace="shop")["metadata"]["labels"]
                == {"tier": "gold"}
            )
        )
        for namespace in ("infra", None):
            with pytest.raises(Forbidden):
                environment.cache.list_cached("secrets", namespace=namespace)
        assert environment.informer.state.version == ""


async def test_the_state_for_a_read_is_as_new_as_its_own_watches() -> None:
    """The watches of the other namespace have not heard of anything for long."""
    async with caching(EVERYWHERE, secret("a", app="web"), held="infra") as environment:
        await environment.informer.wait_until_settled(Selector(namespaces=["shop"]))
        part = environment.informer.state.part(Selector(namespaces=["shop"]))
        for number in range(3):
            environment.cluster.patch(secret("a"), labelled(number=str(number)))
            environment.cluster.bookmark()
            version = environment.cluster.get(secret("a"))["metadata"]["resourceVersion"]
            await until(lambda version=version: int(part.store.version) >= int(version))  # type: ignore[misc]
            record, version = part.store.get("shop", "a")
            assert record is not None
            assert part.store.records() == ([record], version)
        assert environment.informer.state.version == ""


# ---- Beginning anew.


@pytest.mark.parametrize("again", [True, False], ids=["and comes back", "and does not come back"])
async def test_whoever_waits_is_let_go_when_the_kind_is_served_no_more(*, again: bool) -> None:
    async with caching(APART, secret("a", app="web"), held="infra", request_timeout=80_000.0) as environment:
        await until(lambda: environment.informer.state.has_several_streams)
        waiting = asyncio.create_task(environment.informer.wait_until_settled())
        await asyncio.sleep(0)
        if not again:
            environment.informer.resolve = never  # type: ignore[method-assign]
        await lost(environment, "shop")
        if again:
            environment.cluster.faults.clear()
        await waiting
        await until(lambda: environment.informer.state.health is (Health.SYNCED if again else Health.MISSING))


async def never() -> Any:
    await asyncio.Event().wait()


async def test_a_kind_that_is_not_served_is_missing_while_the_cluster_is_asked_about_it() -> None:
    async with caching(APART, secret("a", app="web"), secret("ca", "infra")) as environment:
        await environment.cache.wait_synced()
        environment.informer.resolve = never  # type: ignore[method-assign]
        environment.cluster.faults.add(Refuse(404), verb="list", resource="secrets", namespace="infra")
        await lost(environment, "infra")
        await until(lambda: environment.informer.state.is_resolving)
        with pytest.raises(Missing):
            environment.cache.get("secrets", "ca", namespace="infra")


async def test_a_read_in_a_thread_during_a_new_beginning_pins_nothing_old() -> None:
    async with caching(APART, secret("a", app="web")) as environment:
        await environment.cache.wait_synced()
        informer, before, inside, go_on = (
            environment.informer,
            environment.informer.state.reflectors,
            threading.Event(),
            threading.Event(),
        )
        disjoint = Selector.disjoint

        def slow(*args: Any, **kwargs: Any) -> bool:
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                assert go_on.wait(60)
            return disjoint(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Selector, "disjoint", slow)
            reading = asyncio.create_task(
                asyncio.to_thread(environment.cache.list, "secrets", namespace="shop", labels="app=web")
            )
            await asyncio.to_thread(inside.wait, 60)
            await lost(environment, "infra")
            await until(lambda: informer.state.reflectors is not before)
            go_on.set()
            await asyncio.gather(reading, return_exceptions=True)
        await until(lambda: informer.state.is_synced)
        environment.cluster.create(secret("b", app="web"))
        environment.cluster.delete(secret("a"))
        await until(lambda: named(environment.cache.list_cached("secrets")) == ["b"])
        assert named(environment.cache.list("secrets", namespace="shop", labels="app=web")) == ["b"]
