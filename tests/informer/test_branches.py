"""Several lists and watches keep one cache: what moves between them is never absent, and one that fails
spoils no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import Cached, Forbidden, NotFound, NotSynced, OutsideFilter, Selector, Stale
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.core.protocol.machine import Lost
from kopf_selectcache.errors import Missing
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.streams import PAGES_AT_ONCE
from kopf_selectcache.settings.planner import MOST_STREAMS
from kopf_selectcache.testing import EmbeddedCluster, FakeCache
from kopf_selectcache.testing.faults import NotServed, Silence
from tests.faults.environment import operating, until
from tests.faults.server import Script, Server, held, listed, pod
from tests.secrets import caching, labelled, named, secret

WATCHING = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
EITHER = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["shop"])]
BOTH = [Selector("app=web", namespaces=["shop"]), Selector(names=["ca"], namespaces=["infra"])]


# ---- What is held.


def test_several_names_and_namespaces_are_held_and_absent_ones_are_proved_absent() -> None:
    declared = Selector(names=["ca", "tls"], namespaces=["shop", "infra"])
    objects = [secret(name, namespace) for name in ("ca", "tls", "other") for namespace in ("shop", "infra")]
    for asked in (declared, Cached(declared, share_watches=True)):
        cache = FakeCache(objects, {"secrets": asked})
        cache.cluster.delete(secret("tls", "infra"))
        cache.cluster.patch(secret("other"), labelled(seen="yes"))
        assert sorted(
            (each["metadata"]["namespace"], each["metadata"]["name"])
            for each in cache.list("secrets", names=["ca", "tls"], namespace=["shop", "infra"])
        ) == [("infra", "ca"), ("shop", "ca"), ("shop", "tls")]
        with pytest.raises(NotFound):
            cache.get("secrets", "tls", namespace="infra")
        with pytest.raises(OutsideFilter):
            cache.get("secrets", "other", namespace="shop")


# ---- How it is kept.


async def test_a_break_before_a_relist_begins_is_not_the_reason_for_the_relist() -> None:
    async with caching(EITHER, secret("a", app="web")) as environment:
        await environment.cache.wait_synced()
        reflector = environment.informer.state.reflectors[0]
        reflector.relist(MetricReason.AUDIT)
        reflector.writer.report(Lost("the connection broke off"))
        await until(lambda: environment.informer.counts.relists.total() > 0)
        assert environment.informer.counts.relists == {"audit": 1}
        assert environment.informer.counts.failures["lost"] == 1


async def test_when_one_watch_finds_that_the_server_was_restored_the_others_are_listed_anew() -> None:
    async with caching(EITHER, secret("a", app="web")) as environment:
        await environment.cache.wait_synced()
        backup = environment.cluster.backup()
        environment.cluster.create(secret("b", app="web"))
        environment.cluster.create(secret("c", tier="gold"))
        await until(lambda: named(environment.cache.list_cached("secrets")) == ["a", "b", "c"])
        environment.cluster.restore(backup)
        environment.informer.state.reflectors[0].relist(MetricReason.AUDIT)
        await until(lambda: [each.substore.epoch for each in environment.informer.state.reflectors] == [1, 1])
        assert named(environment.cache.list_cached("secrets")) == ["a"]
        assert environment.informer.counts.relists == {"audit": 1, "restored": 1}


async def test_the_namespaces_of_the_operator_are_cached_one_by_one() -> None:
    def who(cluster: EmbeddedCluster) -> str:
        cluster.user("reader", [WATCHING], namespace="infra")
        return cluster.user("reader", [WATCHING], namespace="shop")

    async with caching(
        "", secret("a"), secret("b", "infra"), secret("c", "default"), who=who, namespaces=("infra", "shop")
    ) as environment:
        await environment.cache.wait_synced()
        assert named(environment.cache.list("secrets", namespace=["infra", "shop"])) == ["a", "b"]
        with pytest.raises(OutsideFilter):
            environment.cache.list("secrets")


async def test_a_selector_that_adds_nothing_is_logged_and_not_watched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with caching(["app", "app=web,tier"], secret("a", app="web")) as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced)
        assert [asked.query["labelSelector"] for asked in environment.watches()] == ["app"]
    assert (
        "The filter of secrets has a selector that adds nothing to the others: labels='app=web,tier'."
        in caplog.messages
    )


async def test_too_many_lists_and_watches_for_the_namespaces_of_the_operator_are_a_rejected_filter() -> None:
    # In all namespaces, the second one covers the names.
    names = Selector(names=[f"n{number}" for number in range(100)], namespaces=["elsewhere"])
    async with caching([names, Selector()], namespaces=("infra", "shop")) as environment:
        await environment.informer.wait_until_settled()
        assert environment.informer.state.health is Health.REJECTED


# ---- What moves between branches.


async def test_an_object_that_moves_to_a_slower_branch_is_never_absent() -> None:
    async with caching(EITHER, secret("a", app="web"), silent="tier") as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        environment.cluster.patch(secret("a"), labelled(app=None, tier="gold"))
        await until(environment.probes)
        for _ in range(100):
            await asyncio.sleep(0)
        assert environment.cache.get("secrets", "a", namespace="shop")["metadata"]["labels"] == {
            "app": "web"
        }, "as it was known last"
        for fault in environment.cluster.faults:
            fault.release()
        await until(
            lambda: (
                environment.cache.get("secrets", "a", namespace="shop")["metadata"]["labels"]
                == {"tier": "gold"}
            )
        )


@pytest.mark.parametrize(
    "leave",
    [
        lambda cluster: cluster.patch(secret("a"), labelled(app=None)),
        lambda cluster: cluster.delete(secret("a")),
        lambda cluster: (cluster.delete(secret("a")), cluster.create(secret("a"))),
    ],
    ids=["leaves the filter", "is deleted", "is deleted and made anew"],
)
async def test_an_object_that_is_gone_is_dropped_though_a_branch_is_silent(
    leave: Callable[[EmbeddedCluster], object],
) -> None:
    async with caching(EITHER, secret("a", app="web"), secret("b", app="web"), silent="tier") as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        leave(environment.cluster)
        await until(lambda: named(environment.cache.list_cached("secrets")) == ["b"])
        assert environment.probes() == 1
        with pytest.raises(OutsideFilter):
            environment.cache.get("secrets", "a", namespace="shop")


# ---- How each of them is doing.


async def test_a_right_that_one_watch_lacks_spoils_only_the_reads_that_need_it() -> None:
    def who(cluster: EmbeddedCluster) -> str:
        return cluster.user("reader", [WATCHING], namespace="shop")

    async with caching(BOTH, secret("a", app="web"), secret("ca", "infra"), who=who) as environment:
        await environment.informer.wait_until_settled()
        assert named(environment.cache.list("secrets", namespace="shop", labels="app=web")) == ["a"]
        assert environment.cache.get("secrets", "a", namespace="shop")["metadata"]["name"] == "a"
        with pytest.raises(OutsideFilter):
            environment.cache.get("secrets", "b", namespace="shop")
        missing = (
            "does not have permission to list secrets in the namespace infra: (?s:.*)Grant it the verbs"
            " list and watch"
            " in the namespace infra: .*resourceNames: ..ca.."
        )
        for read in (
            lambda: environment.cache.get("secrets", "ca", namespace="infra"),
            lambda: environment.cache.list_cached("secrets"),
            lambda: environment.cache.count("secrets", namespace="infra", names=["ca"]),
        ):
            with pytest.raises(Forbidden, match=missing):
                read()
        assert environment.informer.state.health is Health.FORBIDDEN
        environment.cluster.user("reader", [{**WATCHING, "resourceNames": ["ca"]}], namespace="infra")
        await until(lambda: environment.informer.state.is_synced)
        assert named(environment.cache.list_cached("secrets")) == ["a", "ca"]


async def test_complete_parts_are_read_while_other_lists_are_still_awaited() -> None:
    async with caching(BOTH, secret("a", app="web"), secret("ca", "infra"), held="infra") as environment:
        await until(lambda: environment.informer.state.part(Selector(namespaces=["shop"])).store.version)
        assert environment.cache.info("secrets").age is None, "of all"
        assert environment.cache.get("secrets", "a", namespace="shop")["metadata"]["name"] == "a"
        assert environment.cache.explain("secrets", namespace="shop", labels="app=web").verdict
        for read in (
            lambda: environment.cache.get("secrets", "ca", namespace="infra"),
            lambda: environment.cache.list_cached("secrets"),
        ):
            with pytest.raises(NotSynced):
                read()
        for fault in environment.cluster.faults:
            fault.release()
        await environment.cache.wait_synced()
        assert named(environment.cache.list_cached("secrets")) == ["a", "ca"]


async def test_an_answer_is_as_old_as_the_parts_it_needs() -> None:
    async with caching(BOTH, secret("a", app="web"), secret("ca", "infra"), silent="app") as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        environment.time.now += 100.0
        environment.cluster.patch(secret("ca", "infra"), labelled(seen="yes"))
        await until(
            lambda: environment.cache.get("secrets", "ca", namespace="infra")["metadata"].get("labels")
        )
        assert environment.cache.get("secrets", "ca", namespace="infra", max_age=1.0)
        with pytest.raises(Stale):
            environment.cache.get("secrets", "a", namespace="shop", max_age=99.0)
        with pytest.raises(Stale):
            environment.cache.list_cached("secrets", max_age=99.0)
        assert environment.cache.info("secrets").age == 100.0
        newer, older = (
            environment.informer.state.part(Selector(namespaces=[namespace])).store.version
            for namespace in ("infra", "shop")
        )
        assert int(newer) > int(older) == int(environment.informer.state.version)


async def test_once_it_is_served_again_no_watch_is_read_before_it_has_been_listed_anew() -> None:
    declared = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["infra"])]
    async with caching(declared, secret("a", app="web"), secret("b", "infra", tier="gold")) as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        gone = environment.cluster.faults.add(NotServed(), resource="secrets", namespace="shop")
        environment.cluster.cut("watch", "secrets", namespace="shop")
        await gone.hit()
        held = environment.cluster.faults.add(Silence(), verb="list", resource="secrets", namespace="infra")
        environment.cluster.delete(secret("b", "infra"))
        gone.release()
        await held.hit()
        await until(lambda: len([asked for asked in environment.watches() if asked.namespace == "shop"]) >= 3)
        await until(
            lambda: (
                environment.informer.state.part(declared[0]).error is None
                and environment.informer.state.part(declared[0]).store.version
            )
        )
        assert named(environment.cache.list("secrets", namespace="shop", labels="app=web")) == ["a"]
        with pytest.raises((NotSynced, Missing)):
            environment.cache.list("secrets", namespace="infra", labels="tier=gold")
        held.release()
        await environment.cache.wait_synced()
        assert named(environment.cache.list_cached("secrets")) == ["a"]


# ---- As many as there may be.


async def test_a_hundred_namespaces_are_cached_and_at_most_twenty_are_listed_at_a_time() -> None:
    namespaces, answered = tuple(f"ns-{number:02}" for number in range(MOST_STREAMS)), asyncio.Event()
    async with Server() as server:
        for namespace in namespaces:
            lists = [
                held(
                    answered,
                    listed(
                        "100",
                        pod("a", "90") | {"metadata": {**pod("a", "90")["metadata"], "namespace": namespace}},
                    ),
                )
            ]
            server.scripts[f"/api/v1/namespaces/{namespace}/pods"] = Script(lists)
        async with operating(server, namespaces=namespaces) as environment:

            def asked() -> int:
                return sum(
                    len(script.listed) for path, script in server.scripts.items() if "namespaces" in path
                )

            await until(lambda: asked() == PAGES_AT_ONCE)
            for _ in range(100):
                await asyncio.sleep(0)
            assert asked() == PAGES_AT_ONCE
            answered.set()
            await until(lambda: environment.informer.state.is_synced)
            assert asked() == len(namespaces)
            assert {each["metadata"]["namespace"] for each in environment.cache.list_cached("pods")} == set(
                namespaces
            )


def test_of_a_kind_that_is_served_again_nothing_of_before_is_left() -> None:
    cache = FakeCache(
        [webapp("old", app="web"), webapp("gold", tier="gold")],
        {"example.com/v1/webapps": ["app=web", "tier=gold"]},
    )
    defined = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "webapps.example.com"},
    }
    definition = cache.cluster.get(defined)
    cache.cluster.delete(defined)
    with pytest.raises(Missing):
        cache.list_cached("webapps")
    cache.cluster.create({**defined, "spec": definition["spec"]}, webapp("new", tier="gold"))
    assert named(cache.list("webapps", labels="tier=gold")) == ["new"]
    assert named(cache.list_cached("webapps")) == ["new"]


def webapp(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "WebApp",
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
    }
