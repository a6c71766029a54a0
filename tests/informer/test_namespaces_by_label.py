"""Namespaces by label, followed live: a namespace that gains the label is served once it is synced, and one
that loses it or goes is not served from then on. Other streams are not disturbed; nothing stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from kopf_selectcache import (
    Cached,
    DeclarationError,
    Forbidden,
    Key,
    LabelSelector,
    NotDeclared,
    NotSynced,
    OutsideFilter,
    ReadError,
    Selector,
    Superseded,
)
from kopf_selectcache.settings.planner import MOST_STREAMS
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse, Silence
from tests.faults.environment import run, until
from tests.informer.test_namespaces import user_of
from tests.secrets import Environment, caching, labelled, secret

TENANTS = Selector(namespaces=LabelSelector.parse("tenant=yes"))
YES, NO = labelled(tenant="yes"), labelled(tenant=None)


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@asynccontextmanager
async def tenants(
    *names: str, objects: int = 1, declared: Any = TENANTS, **options: Any
) -> AsyncIterator[Environment]:
    """Keep the secrets of `shop`, `infra` and `blog`, of which these are tenants at the start."""
    spaces = ("shop", "infra", "blog")
    blog = {**namespace("blog")}
    given = [secret(f"s-{number}", each) for each in spaces for number in range(objects)]
    who = options.pop("who", lambda cluster: cluster.token)
    marked = [namespace(each) | {"metadata": {"name": each, "labels": {"tenant": "yes"}}} for each in names]

    def prepare(cluster: EmbeddedCluster) -> str:
        for each in marked:
            cluster.patch(each, YES)
        return str(who(cluster))

    async with caching(declared, blog, *given, who=prepare, **options) as environment:
        yield environment


def mark(environment: Environment, name: str, patch: dict[str, Any] = YES) -> None:
    environment.cluster.patch(namespace(name), patch)


def served(environment: Environment) -> set[str]:
    """Return the namespaces of the objects that are read, one by one."""
    found = set()
    for name in ("shop", "infra", "blog"):
        with suppress(ReadError):
            environment.cache.get("secrets", "s-0", namespace=name)
            found.add(name)
    return found


async def serves(environment: Environment, *names: str) -> None:
    informer = environment.informer
    await until(
        lambda: informer.state.ready and {*(informer.state.filter.branches[0].namespaces or ())} == {*names}
    )
    await until(lambda: informer.filter_change.is_idle and not informer.state.lost)
    found = environment.cache.list_cached("secrets").keys() if names else []
    there = {key.namespace for key in found}
    assert served(environment) == there


def lists(environment: Environment, resource: str = "secrets", namespace: str | None = None) -> int:
    return sum(
        asked.verb == "list" and asked.resource == resource and namespace in (None, asked.namespace)
        for asked in environment.cluster.requests
    )


# ---- Gain and loss.


async def test_16_a_namespace_that_gains_the_label_is_served_and_others_are_not_disturbed() -> None:
    async with tenants("shop") as environment:
        await serves(environment, "shop")
        (kept,) = environment.informer.state.reflectors
        before = lists(environment, namespace="shop")
        mark(environment, "infra")
        await serves(environment, "shop", "infra")
        assert kept in environment.informer.state.reflectors
        assert lists(environment, namespace="shop") == before
        listed = environment.cache.list("secrets", namespace=["shop", "infra"])
        assert sorted(listed.keys()) == [Key("s-0", namespace="infra"), Key("s-0", namespace="shop")]
        with pytest.raises(OutsideFilter):
            environment.cache.get("secrets", "s-0", namespace="blog")


async def test_1_a_namespace_that_loses_the_label_is_not_served_from_then_on() -> None:
    async with tenants("shop", "infra") as environment:
        await serves(environment, "shop", "infra")
        mark(environment, "infra", NO)
        await serves(environment, "shop")
        for read in (environment.cache.list, environment.cache.list_cached, environment.cache.count):
            with pytest.raises(OutsideFilter):
                read("secrets", namespace="infra")
        assert environment.cache.list_cached("secrets").keys() == [Key("s-0", namespace="shop")]
        await until(lambda: len(environment.informer.state.reflectors) == 1)


async def test_1_a_lost_namespace_is_not_read_while_its_streams_cannot_end_yet() -> None:
    """Another namespace gains the label at the same time, and its lists are not answered."""
    async with tenants("shop", "infra") as environment:
        await serves(environment, "shop", "infra")
        cache, informer = environment.cache, environment.informer
        silence = environment.cluster.faults.add(Silence(), verb="list", resource="secrets", namespace="blog")
        mark(environment, "blog")
        await until(lambda: informer.filter_change.prepared is not None)
        mark(environment, "infra", NO)
        await until(lambda: informer.state.lost)
        assert len(informer.state.reflectors) == 2
        assert cache.list_cached("secrets").keys() == [Key("s-0", namespace="shop")]
        with pytest.raises(OutsideFilter):
            cache.get("secrets", "s-0", namespace="infra")
        with pytest.raises(OutsideFilter):
            cache.list("secrets", namespace="infra")
        with pytest.raises(NotSynced):
            cache.get("secrets", "s-0", namespace="blog")
        mark(environment, "infra")  # It has the label again: its objects are there still.
        await until(lambda: not informer.state.lost)
        assert cache.get("secrets", "s-0", namespace="infra")
        mark(environment, "infra", NO)
        silence.release()
        await serves(environment, "shop", "blog")


async def test_1_a_namespace_that_is_deleted_is_not_served_and_its_objects_leave() -> None:
    async with tenants("shop", "infra") as environment:
        await serves(environment, "shop", "infra")
        environment.cluster.delete(secret("s-0", "infra"))
        environment.cluster.delete(namespace("infra"))
        await serves(environment, "shop")
        with pytest.raises(OutsideFilter):
            environment.cache.get("secrets", "s-0", namespace="infra")


async def test_16_subscribers_receive_the_difference_with_its_cause() -> None:
    async with tenants("shop") as environment:
        await serves(environment, "shop")
        seen: list[tuple[str, str, bool]] = []

        async def follow() -> None:
            async for change in environment.cache.changes("secrets"):
                obj: Any = change.new or change.old
                seen.append((str(change.cause), obj["metadata"]["namespace"], change.filter_changed))

        task = asyncio.create_task(follow())
        await until(lambda: len(seen) == 1)
        mark(environment, "infra")
        await until(lambda: len(seen) == 2)
        mark(environment, "infra", NO)
        await until(lambda: len(seen) == 3)
        mark(environment, "shop", NO)  # The iterator goes on: a namespace may gain the label.
        await until(lambda: len(seen) == 4)
        mark(environment, "blog")
        await until(lambda: len(seen) == 5)
        task.cancel()
        assert seen == [
            ("entered", "shop", False),
            ("entered", "infra", True),
            ("left", "infra", True),
            ("left", "shop", True),
            ("entered", "blog", True),
        ]


# ---- No namespace at all.


async def test_1_a_cache_of_no_namespace_is_synced_and_holds_nothing() -> None:
    async with tenants() as environment:
        cache, informer = environment.cache, environment.informer
        await cache.wait_synced()
        assert informer.state.is_synced
        assert not informer.state.reflectors
        for read in (cache.list, cache.list_cached):
            with pytest.raises(OutsideFilter):
                read("secrets")
        with pytest.raises(OutsideFilter):
            cache.get("secrets", "s-0", namespace="shop")
        why = await cache.why("secrets", "s-0", namespace="shop")
        assert why.standing == "outside"
        assert why.branches[0].fails == ("the label tenant=yes of its namespace",)
        assert (await cache.why("secrets", "none", namespace="shop")).standing == "absent"
        assert cache.info("secrets").age is not None
        await cache.audit("secrets")
        found = asyncio.create_task(cache.wait_for("secrets", lambda _: True))
        mark(environment, "blog")
        assert (await found)["metadata"]["namespace"] == "blog"
        mark(environment, "blog", NO)
        await serves(environment)
        await cache.wait_synced()


async def test_without_the_right_to_follow_namespaces_the_kind_is_forbidden() -> None:
    def who(cluster: EmbeddedCluster) -> str:
        rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
        return cluster.user("operator", [rule])

    async with tenants("shop", who=who) as environment:
        with pytest.raises(Forbidden, match=r"permission to list namespaces") as caught:
            await environment.cache.wait_synced()
        assert "resources: ['namespaces']" in caught.value.remedy
        with pytest.raises(Forbidden):
            environment.cache.get("secrets", "s-0", namespace="shop")


async def test_1_reads_raise_if_namespaces_may_not_be_followed_any_more() -> None:
    async with tenants("shop") as environment:
        await serves(environment, "shop")
        cluster = environment.cluster
        refusal = cluster.faults.add(Refuse(403), resource="namespaces")
        cluster.cut()
        await until(lambda: environment.informer.state.ready is None)
        with pytest.raises(Forbidden):
            environment.cache.get("secrets", "s-0", namespace="shop")
        refusal.release()
        mark(environment, "infra")
        await serves(environment, "shop", "infra")


def test_16_a_namespace_without_the_right_to_list_there_does_not_disturb_the_others() -> None:
    def who(cluster: EmbeddedCluster) -> str:
        rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}
        token = cluster.user("operator", [rule])
        secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
        for name in ("shop", "blog"):
            token = cluster.user("operator", [secrets], namespace=name)
        return token

    async def main() -> None:
        async with tenants("shop", who=who) as environment:
            await serves(environment, "shop")
            mark(environment, "infra")
            mark(environment, "blog")
            await serves(environment, "shop", "blog")
            with pytest.raises(Forbidden):
                environment.cache.get("secrets", "s-0", namespace="infra")
            secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
            environment.cluster.user("operator", [secrets], namespace="infra")
            await serves(environment, "shop", "blog", "infra")

    run(main())


# ---- Declarations that come and go.


async def test_2_kinds_share_one_informer_of_namespaces_and_the_last_one_ends_it() -> None:
    async with tenants("shop") as environment:
        await serves(environment, "shop")
        cache, runtime = environment.cache, environment.runtime
        await cache.declare("v1/configmaps", Selector("app=web", namespaces=TENANTS.namespace_label))
        assert lists(environment, "namespaces") == 1
        (followed,) = runtime.namespaces.labelled
        assert followed.users == 2
        await cache.undeclare("secrets")
        assert followed.users == 1
        mark(environment, "infra")
        await until(lambda: "infra" in str(cache.info("configmaps").filter))
        before = asyncio.all_tasks()
        await cache.undeclare("configmaps")
        assert not runtime.namespaces.labelled
        left = {task.get_name() for task in asyncio.all_tasks() & before if not task.done()}
        assert not [name for name in left if "namespaces" in name or "configmaps" in name]
        await until(lambda: not [each for each in asyncio.all_tasks() if "namespaces" in each.get_name()])


async def test_16_a_filter_is_changed_to_namespaces_by_label_and_back() -> None:
    async with tenants("shop", "infra", declared=Selector(namespaces=["shop", "blog"])) as environment:
        cache, runtime = environment.cache, environment.runtime
        await serves(environment, "shop", "blog")
        planned = await cache.plan("secrets", TENANTS)
        assert [each.path for each in planned.opened] == ["/api/v1/namespaces/infra/secrets"]
        assert "list, watch namespaces" in [str(each) for each in planned.permissions]
        assert not runtime.namespaces.labelled
        kept = next(each for each in environment.informer.state.reflectors if "shop" in str(each.filter))
        await cache.declare("secrets", TENANTS, replace=True)
        assert served(environment) == {"shop", "infra"}
        assert kept in environment.informer.state.reflectors
        mark(environment, "blog")
        await serves(environment, "shop", "infra", "blog")
        changed = asyncio.create_task(
            cache.declare("secrets", [cache.info("secrets").filter, "app=web"], replace=True)
        )
        await until(lambda: environment.informer.filter_change.prepared is not None)
        environment.cluster.bookmark()  # The streams have been listed at different times.
        await changed
        assert cache.info("secrets").filter.branches[0].namespace_label == TENANTS.namespace_label
        await cache.declare("secrets", "", replace=True)
        assert not runtime.namespaces.labelled
        mark(environment, "infra", NO)
        assert served(environment) == {"shop", "infra", "blog"}


async def test_16_a_change_beside_a_change_of_the_namespaces_has_both() -> None:
    async with tenants("shop") as environment:
        await serves(environment, "shop")
        cache = environment.cache
        silence = environment.cluster.faults.add(Silence(), verb="list", resource="secrets", namespace="blog")
        mark(environment, "blog")
        await until(lambda: environment.informer.filter_change.prepared is not None)
        changed = asyncio.create_task(
            cache.declare("secrets", Selector("!old", namespaces=TENANTS.namespace_label), replace=True)
        )
        await until(lambda: environment.informer.filter_change.prepared is not None)
        mark(environment, "infra")
        silence.release()
        await changed
        await serves(environment, "shop", "blog", "infra")
        assert "!old" in str(cache.info("secrets").filter)


@pytest.mark.parametrize(
    "newer", ["the present filter", "another filter", "an equal filter", "none: removed"]
)
@pytest.mark.parametrize(
    "older",
    [
        TENANTS,
        Selector("!old"),
        [Selector("app=web"), Selector("app=db")],
        Selector(namespaces=["shop", "blog"]),
    ],
    ids=["namespaces by label", "label", "or", "namespaces"],
)
async def test_16_the_last_of_two_changes_is_in_force_whatever_the_first_waits_for(
    older: Any, newer: str
) -> None:
    """The first change waits for a list: of the namespaces that have its label, or of its objects."""
    present = Selector(namespaces=LabelSelector.parse("other=yes")) if newer == "none: removed" else ""
    async with tenants("infra", declared=present) as environment:
        cache, informer = environment.cache, environment.informer
        await cache.wait_synced()
        waits = [
            environment.cluster.faults.add(Silence(), verb="list", resource=resource)
            for resource in ("namespaces", "secrets")
        ]
        asked = len(environment.cluster.requests)
        first = asyncio.create_task(cache.declare("secrets", older, replace=True))
        await until(lambda: any(each.verb == "list" for each in [*environment.cluster.requests][asked:]))
        if newer == "the present filter":
            await cache.declare("secrets", "", replace=True)
            with pytest.raises(Superseded):
                await first
        elif newer == "none: removed":
            await cache.undeclare("secrets")
            with pytest.raises(NotDeclared):
                await first
        else:
            filter_ = older if newer == "an equal filter" else Selector("!older")
            second = asyncio.create_task(cache.declare("secrets", filter_, replace=True))
            await asyncio.sleep(0)
            for each in waits:
                each.release()
            if newer == "another filter":
                with pytest.raises(Superseded):
                    await first
            await second
        for each in waits:
            each.release()
        await asyncio.wait([first])
        if newer != "none: removed":
            filters = {"the present filter": "", "another filter": "!older", "an equal filter": older}
            assert informer.declared.filter == Cached(filters[newer]).filter
        by_label = newer == "an equal filter" and older is TENANTS
        assert bool(environment.runtime.namespaces.labelled) is by_label


async def test_16_a_change_to_a_label_that_cannot_be_followed_leaves_the_filter() -> None:
    def who(cluster: EmbeddedCluster) -> str:
        rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
        return cluster.user("operator", [rule])

    async with tenants(declared="", who=who) as environment:
        await environment.cache.wait_synced()
        before = asyncio.all_tasks()
        with pytest.raises(Forbidden):
            await environment.cache.declare("secrets", TENANTS, replace=True)
        assert served(environment) == {"shop", "infra", "blog"}
        with pytest.raises(Forbidden):
            await environment.cache.declare("v1/configmaps", TENANTS)
        with pytest.raises(NotDeclared):
            environment.cache.list_cached("configmaps")
        assert not environment.runtime.namespaces.labelled
        await until(lambda: not (asyncio.all_tasks() - before))


async def test_16_a_change_waits_for_the_namespaces_until_its_timeout() -> None:
    async with tenants(declared="") as environment:
        await environment.cache.wait_synced()
        environment.cluster.faults.add(Silence(), verb="list", resource="namespaces")
        with pytest.raises(NotSynced):
            await environment.cache.declare("secrets", TENANTS, timeout=0, replace=True)
        environment.runtime.settings.sync_timeout = 0.001
        with pytest.raises(NotSynced):
            await environment.cache.plan("secrets", TENANTS)
        assert not environment.runtime.namespaces.labelled


async def test_16_a_namespace_whose_objects_exceed_the_limit_is_served_once_they_do_not() -> None:
    async with tenants("shop", declared=Cached(TENANTS, max_bytes="64Ki", storage="raw")) as environment:
        await serves(environment, "shop")
        big = secret("big", "infra") | {"data": {"x": "A" * 100_000}}
        environment.cluster.create(big)
        mark(environment, "infra")
        slept = len(environment.time.slept)
        await until(lambda: len(environment.time.slept) > slept + 3)
        assert served(environment) == {"shop"}
        environment.cluster.delete(big)
        await serves(environment, "shop", "infra")


async def test_1_nothing_is_served_or_dropped_while_namespaces_are_listed_anew() -> None:
    async with tenants("shop") as environment:
        await serves(environment, "shop")
        (followed,) = environment.runtime.namespaces.labelled
        follower: Any = followed.informer
        follower.swapper.begin(follower.state.plan)
        environment.informer.chosen.look()
        assert not environment.informer.chosen.is_outdated
        assert environment.informer.state.held() == 1
        with pytest.raises(NotSynced):
            environment.cache.get("secrets", "s-0", namespace="shop")


async def test_a_change_that_fails_for_none_of_the_namespaces_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with tenants("shop") as environment:
        await serves(environment, "shop")
        filter_change = environment.informer.filter_change
        failed: list[Cached] = []
        change = filter_change.change

        async def fail(declared: Cached, *, timeout: float) -> None:  # As that of `FilterChange`.  # noqa: ASYNC109
            if not failed:
                failed.append(declared)
                raise DeclarationError("it cannot be planned", remedy="Correct it")
            await change(declared, timeout=timeout)

        monkeypatch.setattr(filter_change, "change", fail)
        mark(environment, "infra")
        await serves(environment, "shop", "infra")
        assert len(failed) == 1


# ---- Many.


async def test_roles_are_enough_for_any_number_of_namespaces_that_gain_the_label() -> None:
    follow = [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}]
    many = ["shop", *(f"tenant-{number}" for number in range(MOST_STREAMS))]

    def robot(cluster: EmbeddedCluster) -> str:
        cluster.user("robot", follow)
        return user_of(cluster, many)

    async with tenants("shop", who=robot) as environment:
        await serves(environment, "shop")
        for name in many:
            mark(environment, name)
        await serves(environment, *many)
        assert len(environment.informer.state.reflectors) == len(many)


@pytest.mark.parametrize("count", [130, pytest.param(500, marks=pytest.mark.soak)])
async def test_2_many_namespaces_come_and_go_and_nothing_stays_behind(count: int) -> None:
    """Up to 120 at a time: more than 100 share one list and watch. A dictionary that is trained of 100
    objects would change the size of those that stay.
    """
    async with tenants("shop", max_bytes="100Mi", storage="raw") as environment:
        await serves(environment, "shop")
        cluster, informer = environment.cluster, environment.informer
        tasks, held = len(asyncio.all_tasks()), informer.swapper.share.bytes
        before, most = len(cluster.requests), 0
        for start in range(0, count, 120):
            names = [f"n-{number}" for number in range(start, min(start + 120, count))]
            for name in names:
                cluster.namespace(name, tenant="yes")
                cluster.create(secret("s-0", name))
                await asyncio.sleep(0)
            wanted, change = len(names) + 1, informer.filter_change
            await until(lambda: informer.state.held() == wanted and change.is_idle)  # noqa: B023  # It is awaited in the loop.
            most = max(most, len(informer.state.reflectors))
            for name in names:
                cluster.delete(secret("s-0", name))
                cluster.delete(namespace(name))
            await serves(environment, "shop")
        assert 1 <= most <= 100
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        assert len(informer.state.reflectors) == 1
        assert informer.swapper.share.bytes == held
        assert len(cluster.requests) - before < 5 * count
        assert not informer.chosen.failing
