"""Namespaces with selectors of their own, all others, and more namespaces than lists and watches: what is
held, and that a read outside fails with the reason."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import kopf
import pytest

from kopf_selectcache import (
    ALL_OTHERS,
    EVERYTHING,
    UNSET,
    Cached,
    DeclarationError,
    Key,
    NotFound,
    OutsideFilter,
    Selector,
    settings_of,
)
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.informer.health import Health
from kopf_selectcache.settings.planner import MOST_STREAMS
from kopf_selectcache.testing import EmbeddedCluster, FakeCache
from kopf_selectcache.testing.faults import Disconnect, MalformedJSON, Refuse
from kopf_selectcache.types import Level
from tests.faults.environment import until
from tests.rows import each_row
from tests.secrets import caching, labelled, named, secret

NAMESPACES: Any = {"shop": "app=db", "infra": Selector(EVERYTHING, names=["ca"]), ALL_OTHERS: UNSET}
OBJECTS = [
    secret(f"{app}-{namespace}", namespace, app=app)
    for app in ("web", "db")
    for namespace in ("shop", "infra", "blog", "news")
] + [secret("ca", "infra"), secret("ca", "blog")]
MANY = ["shop", *(f"n-{number}" for number in range(MOST_STREAMS))]


def keys(cache: FakeCache) -> list[str]:
    return [str(key) for key in sorted(cache.list_cached("secrets").keys())]


# ---- Reads of a fake cache.


def test_each_namespace_is_held_by_its_own_selector() -> None:
    cache = FakeCache(OBJECTS, {"secrets": Cached("app=web", namespaces=NAMESPACES)})
    assert keys(cache) == ["blog/web-blog", "infra/ca", "news/web-news", "shop/db-shop"]
    cache.cluster.patch(secret("web-shop"), labelled(app="db"))
    cache.cluster.delete(secret("db-shop"))
    cache.cluster.namespace("later")  # It did not exist.
    cache.cluster.create(secret("late", "later", app="web"))
    cache.cluster.patch(secret("web-news", "news"), labelled(app="db"))
    assert keys(cache) == ["blog/web-blog", "infra/ca", "later/late", "shop/web-shop"]


@each_row(
    ("request_", "served"),
    [
        ({"namespace": "shop", "labels": "app=db"}, True),
        ({"namespace": "shop", "labels": "app=web"}, False),
        ({"namespace": "shop"}, False),
        ({"namespace": "infra", "names": ["ca"]}, True),
        ({"namespace": "infra", "labels": "app=web"}, False),
        ({"namespace": "blog", "labels": "app=web,tier=gold"}, True),
        ({"namespace": "blog", "labels": "app=db"}, False),
        ({"namespace": "anything-else", "labels": "app=web"}, True),
        ({"namespace": ["blog", "news"], "labels": "app=web"}, True),
        ({"namespace": ["blog", "shop"], "labels": "app=web"}, False),
        ({"labels": "app=web"}, False),
        ({"fields": "metadata.namespace!=shop,metadata.namespace!=infra", "labels": "app=web"}, True),
        ({"fields": "metadata.namespace!=shop", "labels": "app=web"}, False),
    ],
)
def test_a_read_is_served_if_the_selectors_of_its_namespaces_cover_it(
    request_: dict[str, Any], served: bool
) -> None:
    cache = FakeCache(OBJECTS, {"secrets": Cached("app=web", namespaces=NAMESPACES)})
    if served:
        assert cache.explain("secrets", **request_).verdict
        cache.list("secrets", **request_)
        return
    with pytest.raises(OutsideFilter) as caught:
        cache.list("secrets", **request_)
    witness = caught.value.witness
    assert witness is not None
    settings = {"labels": witness.labels, "fields": witness.fields}
    assert not cache.info("secrets").filter.matches(
        name=witness.name, namespace=witness.namespace, **settings
    )


def test_a_single_object_is_absent_hidden_or_excluded_by_the_selector_of_its_namespace() -> None:
    cache = FakeCache(OBJECTS, {"secrets": Cached("app=web", namespaces=NAMESPACES)})
    assert cache.get("secrets", "ca", namespace="infra")["metadata"]["name"] == "ca"
    with pytest.raises(OutsideFilter) as excluded:
        cache.get("secrets", "web-infra", namespace="infra")
    with pytest.raises(OutsideFilter) as hidden:
        cache.get("secrets", "ca", namespace="blog")
    assert (excluded.value.reason, hidden.value.reason) == ("excluded", "hidden")
    cache.cluster.delete(secret("ca", "infra"))
    with pytest.raises(NotFound):
        cache.get("secrets", "ca", namespace="infra")


def test_a_namespace_that_is_not_covered_is_outside_of_the_filter() -> None:
    cache = FakeCache(OBJECTS, {"secrets": Cached("app=web", namespaces=["shop", "blog"])})
    with pytest.raises(OutsideFilter) as caught:
        cache.list("secrets", namespace="infra", labels="app=web")
    assert caught.value.reason == "excluded"
    assert caught.value.witness is not None
    assert caught.value.witness.fails == ("namespace in (blog,shop)",)


def test_all_others_are_those_of_the_watched_namespaces() -> None:
    declared = {"secrets": Cached("app=web", namespaces=NAMESPACES)}
    cache = FakeCache(OBJECTS, declared, namespaces=["shop", "blog"])
    assert keys(cache) == ["blog/web-blog", "infra/ca", "shop/db-shop"]
    with pytest.raises(OutsideFilter):
        cache.list("secrets", namespace="news", labels="app=web")
    alone = FakeCache(OBJECTS, declared, namespaces=["shop"])
    assert keys(alone) == ["infra/ca", "shop/db-shop"]


def test_more_namespaces_than_streams_are_held_by_one() -> None:
    cache = FakeCache(OBJECTS, {"secrets": Selector("app=web", namespaces=MANY)})
    assert keys(cache) == ["shop/web-shop"]
    cache.cluster.namespace("n-7")
    cache.cluster.create(secret("late", "n-7", app="web"), secret("other", "blog", app="web"))
    cache.cluster.delete(secret("web-shop"))
    assert keys(cache) == ["n-7/late"]
    for key, reason in (
        (Key("web-shop", namespace="shop"), "hidden"),
        (Key("other", namespace="blog"), "excluded"),
    ):
        with pytest.raises(OutsideFilter) as caught:
            cache.get("secrets", key)
        assert caught.value.reason == reason


# ---- Defaults.


def defaults() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    ours = settings_of(settings)
    ours.defaults.labels = "app=web"
    ours.defaults.namespaces = {"shop": UNSET, "blog": "app=db"}
    ours.defaults.keep = ["type"]
    ours.selectors["secrets"] = Selector()
    ours.selectors["namespaces"] = EVERYTHING
    return settings


def test_kinds_that_are_declared_at_run_time_have_the_defaults() -> None:
    cache = FakeCache(OBJECTS, defaults())
    cache.blocking.declare("configmaps", Selector())
    assert str(cache.info("configmaps").filter) == str(cache.info("secrets").filter)
    cache.blocking.declare("configmaps", Selector())  # The same again changes nothing.
    cache.blocking.declare("configmaps", "tier=gold", drop=["data"], replace=True)
    assert cache.info("configmaps").filter == Selector("tier=gold", namespaces=["blog", "shop"])
    levels = {each.option: each.level for each in cache.info("configmaps").origins}
    assert (levels["labels"], levels["drop"], levels["keep"]) == (Level.KIND, Level.KIND, Level.NOWHERE)
    cache.blocking.declare("configmaps", "tier=silver", replace=True)
    assert {each.option: each.level for each in cache.info("configmaps").origins}["drop"] is Level.KIND
    plan = cache.blocking.plan("pods", Selector())
    assert [str(each.filter) for each in plan.opened] == [
        "labels='app=db', namespaces=['blog']",
        "labels='app=web', namespaces=['shop']",
    ]


# ---- Streams.


async def test_a_departure_in_a_namespace_does_not_wait_for_the_stream_of_all_others() -> None:
    declared = Cached("app=web", namespaces={"shop": "app=db", ALL_OTHERS: UNSET})
    async with caching(declared, secret("a", "shop", app="db")) as environment:
        await environment.cache.wait_synced()
        changes: list[Change] = []
        environment.informer.subscribe(lambda change: changes.append(change) if change else None)
        before = [asked.verb for asked in environment.cluster.requests].count("list")
        environment.cluster.delete(secret("a", "shop"))
        await until(lambda: not environment.cache.list_cached("secrets"))
        assert [change.cause for change in changes] == [ChangeCause.LEFT]
        assert [asked.verb for asked in environment.cluster.requests].count("list") == before
        assert not environment.informer.state.union.unconfirmed


async def test_a_joined_stream_stores_the_objects_in_its_namespaces_and_is_audited() -> None:
    objects = [secret("a", "shop", app="web"), secret("b", "infra", app="web")]
    async with caching(Selector("app=web", namespaces=MANY), *objects) as environment:
        await environment.cache.wait_synced()
        (watch,) = environment.watches()
        assert (watch.namespace, watch.query["labelSelector"]) == ("", "app=web")
        environment.cluster.create(secret("c", "shop", app="web"), secret("d", "infra", app="web"))
        await until(lambda: len(environment.cache.list_cached("secrets")) == 2)
        assert named(environment.cache.list_cached("secrets")) == ["a", "c"]
        audit = await environment.cache.audit("secrets")
        assert audit
        assert audit.objects == 2


SECRETS = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}]


def user_of(cluster: EmbeddedCluster, namespaces: Iterable[str]) -> str:
    """Return the token of a user with a Role in each of these namespaces."""
    token = ""
    for each in namespaces:
        if each != "shop":  # It exists.
            cluster.namespace(each)
        token = cluster.user("robot", SECRETS, namespace=each)
    return token


@pytest.mark.parametrize(("count", "asks"), [(3, False), (MOST_STREAMS + 1, True)])
async def test_roles_in_the_namespaces_are_enough_for_any_number_of_them(
    count: int, asks: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kopf_selectcache")
    spaces, objects = MANY[:count], [secret("a", "shop", app="web"), secret("b", "infra", app="web")]

    def robot(cluster: EmbeddedCluster) -> str:
        for number in range(30):
            cluster.namespace(f"other-{number}")
        return user_of(cluster, spaces)

    async with caching(Selector("app=web", namespaces=spaces), *objects, who=robot) as environment:
        await environment.informer.wait_until_settled()
        assert environment.informer.state.part().error is None
        assert len(environment.informer.state.reflectors) == count
        assert named(environment.cache.list("secrets", labels="app=web", namespace="shop")) == ["a"]
        environment.cluster.create(secret("c", spaces[-1], app="web"))
        await until(lambda: len(environment.cache.list_cached("secrets")) == 2)
        wide = [each for each in environment.cluster.requests if each.code == 403]
        assert [each.query["limit"] for each in wide] == (["1"] if asks else [])
    assert sum("in all namespaces" in message for message in caplog.messages) == asks


async def test_a_question_that_fails_otherwise_does_not_keep_streams_from_being_joined() -> None:
    declared = Selector("app=web", namespaces=MANY)
    async with caching(declared, secret("a", "shop", app="web")) as environment:
        await environment.cache.wait_synced()
        resource = environment.informer.state.resource
        assert resource is not None
        for fault in (Refuse(500), Disconnect(), MalformedJSON()):
            failing = environment.cluster.faults.add(fault, verb="list", resource="secrets", times=4)
            await environment.informer.resolver.find_plan(environment.informer.declared, resource)
            failing.release()
            planned = environment.informer.resolver.plan(environment.informer.declared, resource)
            assert len(planned.streams) == 1, fault


async def test_all_others_need_the_right_to_all_namespaces_and_the_named_ones_do_not() -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}]

    def robot(cluster: EmbeddedCluster) -> str:
        return cluster.user("robot", rules, namespace="shop")

    declared = Cached("app=web", namespaces={"shop": "app=db", ALL_OTHERS: UNSET})
    async with caching(declared, secret("a", "shop", app="db"), who=robot) as environment:
        await environment.informer.wait_until_settled(Selector(namespaces=["shop"]))
        assert named(environment.cache.list("secrets", namespace="shop", labels="app=db")) == ["a"]
        await until(lambda: environment.informer.state.health is Health.FORBIDDEN)


@pytest.mark.parametrize("options", [{"page_limit": 2}, {"audit_interval": 60.0}, {"bookmarks": False}])
def test_options_that_a_cache_begins_with_cannot_be_changed(options: dict[str, Any]) -> None:
    cache = FakeCache(OBJECTS, {"secrets": Cached("app=web", page_limit=3)})
    with pytest.raises(DeclarationError):
        cache.blocking.declare("secrets", "app=db", **options, replace=True)
    cache.blocking.declare("secrets", "app=db", page_limit=3, replace=True)
    assert keys(cache) == ["blog/db-blog", "infra/db-infra", "news/db-news", "shop/db-shop"]


async def test_a_kind_may_have_its_own_page_limit_and_watches_without_bookmarks() -> None:
    objects = [secret(f"s-{number}", "shop") for number in range(5)]
    async with caching(Cached("", page_limit=2, bookmarks=False), *objects) as environment:
        await environment.cache.wait_synced()
        await until(lambda: bool(environment.watches()))
        assert "allowWatchBookmarks" not in environment.watches()[0].query
        first = next(
            asked
            for asked in environment.cluster.requests
            if (asked.verb, asked.resource) == ("list", "secrets")
        )
        assert first.query["limit"] == "2"
