"""Split caches whose filter chooses namespaces by label: both sides follow the namespaces that have it."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache import Cached, LabelSelector, NotFound, NotSynced, OutsideFilter, Selector
from tests.both_sides import on_both_sides
from tests.faults.environment import until
from tests.secrets import Environment, secret

from .test_namespaces_by_label import NO, lists, mark, tenants

SPLIT = Cached(Selector("app=web", namespaces=LabelSelector.parse("tenant=yes")), outside="metadata")


def where_is(environment: Environment, name: str, namespace: str) -> str:
    try:
        environment.cache.get("secrets", name, namespace=namespace)
    except NotFound:
        return "absent"
    except NotSynced:
        return "not synced"
    except OutsideFilter as error:
        return str(error.reason)
    return "inside"


def sides(environment: Environment, namespace: str) -> list[str]:
    return [where_is(environment, name, namespace) for name in ("web-1", "s-0", "none")]


async def serves(environment: Environment, *names: str) -> None:
    informer = environment.informer
    await until(
        lambda: informer.state.ready and {*(informer.state.filter.branches[0].namespaces or ())} == {*names}
    )
    await until(lambda: informer.filter_change.is_idle and not informer.state.lost)


def fill(environment: Environment) -> None:
    environment.cluster.create(*(secret("web-1", each, app="web") for each in ("shop", "infra", "blog")))


async def test_16_both_sides_of_a_namespace_follow_its_label() -> None:
    async with tenants("shop", declared=SPLIT) as environment:
        fill(environment)
        await serves(environment, "shop")
        await until(lambda: sides(environment, "shop") == ["inside", "outside", "absent"])
        assert sides(environment, "infra") == ["excluded"] * 3
        kept, before = set(environment.informer.state.reflectors), lists(environment, namespace="shop")
        assert [each.stream.is_outside for each in environment.informer.state.reflectors] == [False, True]
        mark(environment, "infra")
        await serves(environment, "shop", "infra")
        assert sides(environment, "infra") == ["inside", "outside", "absent"]
        assert on_both_sides(environment.cache, "secrets", namespace=["shop", "infra"]) == 4
        assert kept <= set(environment.informer.state.reflectors)
        assert lists(environment, namespace="shop") == before
        mark(environment, "shop", NO)
        await serves(environment, "infra")
        assert sides(environment, "shop") == ["excluded"] * 3
        assert sides(environment, "infra") == ["inside", "outside", "absent"]
        with pytest.raises(OutsideFilter):
            on_both_sides(environment.cache, "secrets", namespace="shop")


async def test_16_no_read_finds_an_object_of_a_namespace_that_has_lost_the_label_inside() -> None:
    """Its streams end later: until then, its objects are known to be outside of the filter."""
    async with tenants("shop", "infra", declared=SPLIT) as environment:
        fill(environment)
        await serves(environment, "shop", "infra")
        await until(lambda: sides(environment, "shop") == ["inside", "outside", "absent"])
        informer = environment.informer
        await informer.chosen.stop()  # The change of the filter waits.
        mark(environment, "shop", NO)
        await until(lambda: informer.state.lost == {"shop"})
        assert sides(environment, "shop") == ["outside", "outside", "absent"]
        assert sides(environment, "infra") == ["inside", "outside", "absent"]
        wanted: Any = None
        try:
            environment.cache.get("secrets", "web-1", namespace="shop")
        except OutsideFilter as error:
            wanted = error.wanted
        assert wanted == ("namespace=infra",)


async def test_16_without_a_namespace_that_has_the_label_nothing_is_known() -> None:
    async with tenants(declared=SPLIT) as environment:
        await until(lambda: environment.informer.state.ready)
        assert environment.informer.state.reflectors == ()
        assert sides(environment, "shop") == ["excluded"] * 3
