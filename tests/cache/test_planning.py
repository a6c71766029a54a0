"""`cache.plan` names the streams, rights and objects of a declaration or a change, and changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from kopf_selectcache import Cache, Cached, DeclarationError, Forbidden, NotDeclared, Selector
from kopf_selectcache.core.store.packing import weight, weights_of
from kopf_selectcache.errors import Missing
from kopf_selectcache.informer.state import Relist
from kopf_selectcache.settings.planner import READ, Right
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.faults import Refuse
from tests.cache.environment import begin_with
from tests.gated import Gated, gated


def config(name: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "x" * 1000}}


CONFIGS = [
    config("web", app="web"),
    config("both", app="web", tier="gold"),
    config("gold", tier="gold"),
    config("db", app="db"),
]
FILTER = "app=web"


@asynccontextmanager
async def _operator() -> AsyncIterator[tuple[Gated, Cache]]:
    async with gated("app=none", *CONFIGS) as environment:
        await environment.cache.declare("configmaps", FILTER)
        yield environment, environment.cache


operated = begin_with("gated", "cache", make=_operator)
"""Gives a test an operator that has config maps with app=web, and its cache."""


def reasons(plan: Any) -> list[tuple[str, str]]:
    return [(each.query.get("labelSelector", ""), each.reason) for each in plan.opened]


@operated
async def test_a_plan_of_a_declaration_opens_all_streams_and_changes_nothing(cache: Cache) -> None:
    await cache.undeclare("configmaps")
    plan = await cache.plan("v1/configmaps", [Selector("app=web"), Selector("tier=gold")])
    assert plan.former is None
    assert reasons(plan) == [("app=web", Relist.NEW), ("tier=gold", Relist.NEW)]
    assert (plan.kept, plan.ended, plan.missing, plan.objects) == ((), (), (), 3)
    (right,) = plan.permissions
    assert right == Right("", "configmaps", READ, what_for=right.what_for)
    with pytest.raises(NotDeclared):
        cache.list_cached("configmaps")


@operated
async def test_a_plan_of_a_change_counts_retained_objects_without_a_list_of_them(
    gated: Gated, cache: Cache
) -> None:
    present = Selector(FILTER, namespaces=["shop"])
    await cache.declare("configmaps", present, replace=True)
    lists = len([e for e in gated.cluster.requests if e.query.get("labelSelector") == "app=web"])
    following = [present, Selector("tier=gold", namespaces=["infra"])]
    plan = await cache.plan("configmaps", following)
    assert plan.former == present
    assert reasons(plan) == [("tier=gold", Relist.NEW)]
    assert [each.query for each in plan.kept] == [{"labelSelector": "app=web"}]
    assert not plan.ended
    assert plan.objects == 2
    await cache.declare("configmaps", following, replace=True)
    held = sum(map(weight, gated.operator.runtime.informer("configmaps").state.store.records()[0]))
    assert plan.bytes is not None
    assert held / 2 < plan.bytes < held * 2
    after = len([e for e in gated.cluster.requests if e.query.get("labelSelector") == "app=web"])
    assert after == lists
    assert cache.info("configmaps").filter == plan.filter


def sibling(group: int, number: int) -> dict[str, Any]:
    """Make a config map of a group, whose data only the group has in common."""
    made = config(f"group-{group}-{number}", app="web")
    common = Random(group)
    made["data"] = {f"key{index}": f"{common.getrandbits(160):x}" for index in range(12)}
    owner = {"apiVersion": "example.com/v1", "kind": "Unserved", "name": "owner", "uid": f"owner-{group}"}
    made["metadata"]["ownerReferences"] = [owner]
    return made


async def test_16_a_plan_counts_the_templates_of_retained_objects() -> None:
    siblings = [sibling(group, number) for group in range(20) for number in range(6)]
    async with gated(FILTER, *siblings, kind="configmaps") as environment:
        records = environment.operator.runtime.informer("configmaps").state.store.records()[0]
        plan = await environment.cache.plan("configmaps", FILTER)
        assert plan.objects == len(records) == 120
        assert plan.bytes == weights_of(records).total > 1.1 * sum(map(weight, records))


@pytest.mark.parametrize(
    ("options", "reason"), [({"keep": ["data"]}, Relist.PROJECTION), ({"storage": "raw"}, Relist.STORAGE)]
)
@operated
async def test_a_plan_says_why_a_stream_is_listed_anew(cache: Cache, options: Any, reason: Relist) -> None:
    plan = await cache.plan("configmaps", FILTER, **options)
    assert reasons(plan) == [("app=web", reason)]
    assert [each.query for each in plan.ended] == [{"labelSelector": "app=web"}]
    assert not plan.kept
    assert plan.objects == 2


@operated
async def test_a_plan_keeps_the_present_options_as_a_change_does(gated: Gated, cache: Cache) -> None:
    cached = Cached(FILTER, keep=["metadata.labels"], index={"key": "data.key"})
    await cache.declare("configmaps", cached, replace=True)
    plan = await cache.plan("configmaps", FILTER)
    assert [each.query for each in plan.kept] == [{"labelSelector": FILTER}]
    assert not plan.opened
    plan = await cache.plan("configmaps", Cached(FILTER))
    assert reasons(plan) == [(FILTER, Relist.PROJECTION)]
    assert not plan.kept
    some = Selector(names=["web", "db"], namespaces=["shop"])
    await cache.declare("configmaps", some, share_watches=True, replace=True)
    plan, informer = await cache.plan("configmaps", some), gated.operator.runtime.informer("configmaps")
    (right,) = plan.permissions
    assert (right.names, right.namespace) == (None, "shop")
    present = informer.state.reflectors
    assert [each.filter for each in plan.kept] == [each.stream.selector for each in present]
    await cache.declare("configmaps", some, replace=True)
    assert informer.state.reflectors == present


@operated
async def test_a_plan_has_the_options_that_are_not_given_as_they_are(cache: Cache) -> None:
    await cache.declare(
        "configmaps", FILTER, drop=["data"], index={"app": "metadata.labels.app"}, replace=True
    )
    plan = await cache.plan("configmaps", [Selector("app=web"), Selector("tier=gold")])
    assert reasons(plan) == [("app=web", Relist.MOVING), ("tier=gold", Relist.NEW)]
    assert plan.bytes is not None
    assert plan.bytes < 3 * 1000, "the data is not stored"
    plan = await cache.plan("configmaps", Cached(FILTER))
    assert reasons(plan) == [("app=web", Relist.PROJECTION)]


@operated
async def test_a_plan_needs_the_rights_of_retained_streams_too(cache: Cache) -> None:
    plan = await cache.plan("configmaps", FILTER)
    assert not plan.opened
    assert [right.resource for right in plan.permissions] == ["configmaps"]


@operated
async def test_a_plan_of_a_kind_that_is_not_resolved_lists_all_anew(gated: Gated, cache: Cache) -> None:
    informer = gated.operator.runtime.informer("configmaps")
    informer.mark_resolving()
    plan = await cache.plan("configmaps", FILTER)
    assert reasons(plan) == [("app=web", Relist.INCOMPLETE)]


def refuse_reviews(gated: Gated, code: int) -> None:
    gated.cluster.faults.add(Refuse(code), resource="selfsubjectaccessreviews")


@pytest.mark.parametrize("code", [403, 404])
@operated
async def test_a_plan_without_reviews_does_not_know_missing_rights(
    gated: Gated, cache: Cache, code: int
) -> None:
    refuse_reviews(gated, code)
    plan = await cache.plan("configmaps", "tier=gold")
    assert plan.missing is None
    assert plan.objects == 2
    assert "does not tell" in str(plan)


@operated
async def test_a_plan_with_refused_lists_raises_as_fetch_does(gated: Gated, cache: Cache) -> None:
    gated.cluster.faults.add(Refuse(403), verb="list")
    with pytest.raises(Forbidden):
        await cache.plan("configmaps", "tier=gold")
    refuse_reviews(gated, 500)
    with pytest.raises(Exception, match="500"):
        await cache.plan("configmaps", "tier=gold")


@operated
async def test_a_plan_of_bad_input_raises_before_any_request(gated: Gated, cache: Cache) -> None:
    before = len(gated.cluster.requests)
    with pytest.raises(DeclarationError):
        await cache.plan("configmaps", "app=(")
    with pytest.raises(DeclarationError):
        await cache.plan("configmaps", FILTER, timeout="5")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await cache.plan("configmaps", FILTER, keeping=["data"])  # type: ignore[call-arg]
    assert len(gated.cluster.requests) == before
    with pytest.raises(Missing):
        await cache.plan("example.com/v1/none", FILTER, timeout=5)


def test_a_fake_cache_plans() -> None:
    cache = FakeCache(CONFIGS, {"configmaps": FILTER})
    plan = cache.blocking.plan("configmaps", "app in (web,db)")
    assert plan.objects == 3
    assert plan.missing == ()
    assert cache.blocking.plan("nodes", "").former is None
    assert "opens /api/v1/configmaps" in str(plan)
