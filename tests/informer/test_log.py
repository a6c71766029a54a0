"""The log of a cache with several lists and watches: a line for each change of the whole, and each cause
once.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kopf_selectcache import Cached, Selector
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.reflector import HEALTHY_WATCH_SECONDS
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.faults.environment import until
from tests.objects import custom_resource
from tests.secrets import caching, named, secret

RIGHT = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
EITHER = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["shop"])]
APART = [Selector("app=web", namespaces=["shop"]), Selector("app=web", namespaces=["infra"])]

Told = Callable[[], list[str]]


async def test_one_line_tells_that_all_of_a_cache_is_there_and_how_it_came(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    async with caching(
        APART, secret("a", app="web"), secret("b", "infra", app="web"), held="infra"
    ) as environment:
        await until(
            lambda: any(
                "has 1 object with labels='app=web', namespaces=['shop'] so far" in line
                for line in caplog.messages
            )
        )
        assert told() == [], "that is one list and watch of two"
        environment.time.now += 2.5
        environment.cluster.faults.clear()
        await until(lambda: environment.informer.state.is_synced)
        (line,) = told()
        synced = re.fullmatch(
            r"INFO: The cache of secrets is synced: 2 objects, \d+ B, with \(labels='app=web',"
            r" namespaces=\['shop'\]\) or "
            r"\(labels='app=web', namespaces=\['infra'\]\), in (.+) s, over 2 lists and watches\.",
            line,
        )
        assert synced is not None, line
        # Time also passes while the refused list is repeated, once or twice.
        assert float(synced[1]) >= 2.5
        environment.cluster.create(secret("c", app="web"))
        await until(lambda: named(environment.cache.list_cached("secrets")) == ["a", "b", "c"])
        assert told() == []


async def test_a_right_that_two_watches_lack_is_logged_once_and_so_is_its_grant(told: Told) -> None:
    async with caching(
        EITHER, secret("a", app="web"), who=lambda cluster: cluster.user("reader")
    ) as environment:
        await until(
            lambda: (
                [each.condition.health for each in environment.informer.state.reflectors]
                == [Health.FORBIDDEN] * 2
            )
        )
        (line,) = told()
        assert line.startswith(
            "WARNING: the operator does not have permission to list secrets in the namespace shop: "
        )
        environment.cluster.user("reader", [RIGHT])
        await until(lambda: environment.informer.state.is_synced)
        (line,) = told()
        assert line.startswith("INFO: The cache of secrets is synced: 1 object, ")


async def test_rights_that_are_missing_in_two_namespaces_are_two_causes_and_end_one_by_one(
    told: Told,
) -> None:
    def who(cluster: EmbeddedCluster) -> str:
        return cluster.user("reader")

    async with caching(APART, secret("a", app="web"), who=who) as environment:
        await until(
            lambda: (
                [each.condition.health for each in environment.informer.state.reflectors]
                == [Health.FORBIDDEN] * 2
            )
        )
        assert sorted(line.split(": ")[1] for line in told()) == [
            f"the operator does not have permission to list secrets in the namespace {name}"
            for name in ("infra", "shop")
        ]
        environment.cluster.user("reader", [RIGHT], namespace="shop")
        await until(lambda: environment.informer.state.reflectors[0].condition.health is Health.SYNCED)
        assert told() == [
            (
                "INFO: The cache of secrets follows the server again with labels='app=web',"
                " namespaces=['shop']."
            )
        ]
        environment.cluster.user("reader", [RIGHT], namespace="infra")
        await until(lambda: environment.informer.state.is_synced)
        (line,) = told()
        assert line.startswith("INFO: The cache of secrets is synced: 1 object, ")


async def test_a_failure_of_all_watches_for_a_while_is_logged_once_and_so_is_its_end(told: Told) -> None:
    async with caching(EITHER, secret("a", app="web")) as environment:
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        told()
        refused = environment.cluster.faults.add(Refuse(500), verb="watch", resource="secrets")
        environment.time.now += HEALTHY_WATCH_SECONDS + 1  # That watches end after a while is no failure.
        environment.cluster.cut()
        await until(lambda: all(each.condition.message for each in environment.informer.state.reflectors))
        assert told() == ["WARNING: secrets: the server answers 500 InternalError. The cache keeps retrying."]
        refused.release()
        await until(lambda: not any(each.condition.message for each in environment.informer.state.reflectors))
        assert told() == ["INFO: The cache of secrets follows the server again."]


async def test_a_kind_that_goes_and_comes_back_is_logged_once_each_way(told: Told) -> None:
    definition = custom_resource("Widget")
    async with caching(EITHER, definition, resource="widgets.example.com") as environment:
        for _ in range(2):
            await until(lambda: environment.informer.state.is_synced)
            (line,) = told()
            assert line.startswith("INFO: The cache of widgets.example.com is synced: 0 objects, ")
            environment.time.now += HEALTHY_WATCH_SECONDS + 1
            environment.cluster.delete(definition)
            await until(
                lambda: (
                    environment.informer.state.health is Health.MISSING
                    and environment.informer.state.is_resolving
                )
            )
            (line,) = told()
            assert line.startswith(
                "WARNING: the cluster does not serve widgets.example.com. Install the definition of"
                " widgets.example.com. Or remove "
            )
            environment.cluster.create(definition)


async def test_of_the_caches_of_the_package_only_problems_and_their_ends_are_logged(told: Told) -> None:
    async with caching("app=web") as environment:
        await until(lambda: environment.informer.state.is_synced)
        told()
        follower = environment.runtime.follow("v1/configmaps", Cached("app=web"), "a test")
        await until(lambda: follower.state.is_synced)
        assert told() == []
        refused = environment.cluster.faults.add(Refuse(403), verb="list", resource="services")
        other = environment.runtime.follow("v1/services", Cached("app=web"), "a test")
        await until(lambda: other.state.message)
        (line,) = told()
        assert line.startswith("WARNING: the operator does not have permission to list services: ")
        refused.release()
        environment.cluster.faults.clear()
        await until(lambda: other.state.is_synced)
        assert [each[:37] for each in told()] == ["INFO: The cache of services is synced"]


async def test_the_condition_of_a_whole_cache_is_about_its_kind_filter_and_objects() -> None:
    async with caching(APART, secret("a", app="web"), secret("b", "infra", app="web")) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        subject, state = informer.state.resolving.subject, informer.state
        assert (subject.kind, subject.filter) == (informer.kind, state.filter)
        assert (subject.version, subject.held(), str(subject)) == (state.version, 2, "secrets")
