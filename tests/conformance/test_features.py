"""The features of tests/FEATURES.md, on both servers: for each row that works, the least that must hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from secrets import token_hex
from threading import Event
from typing import Any

import pytest
from aiohttp import web

from kopf_selectcache import (
    Cache,
    Cached,
    Caches,
    DeclarationError,
    Forbidden,
    NotDeclared,
    NotSynced,
    OutsideFilter,
    ReadError,
    SelectCacheSettings,
    Selector,
    Stale,
)
from kopf_selectcache.errors import Missing, NotKept, Oversized
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import Reason, WatchError, Witness
from tests.apiserver.cluster import Cluster
from tests.faults.environment import connections_closed, nothing_left
from tests.real.inprocess import Operator, credentials, operating, until
from tests.real.proxy import Fault, Proxy

from .applying import applied
from .places import Place, fresh_group, names_of

Obj = dict[str, Any]
WEB = {"app": "web"}
CONFIGS = {"v1/configmaps": "app=web"}


@pytest.fixture
def configs(place: Place) -> Place:
    return place.of("configmaps")


@asynccontextmanager
async def cached(place: Place, filters: Any = CONFIGS, **options: Any) -> AsyncIterator[Cache]:
    """Keep caches of the namespace, synced."""
    async with operated(place, filters, **options) as operator:
        yield operator.cache


@asynccontextmanager
async def operated(place: Place, filters: Any = CONFIGS, **options: Any) -> AsyncIterator[Operator]:
    async with AsyncExitStack() as stack:
        try:
            entered = operating(place.api, place.namespace, filters, **options)
            operator = await stack.enter_async_context(entered)
        except ReadError as error:
            raise AssertionError("the caches are not synced") from error
        yield operator


async def synced(cache: Cache) -> None:
    try:
        await cache.wait_synced(timeout=60)
    except ReadError as error:
        raise AssertionError("the caches are not synced") from error


def answer(cache: Cache, read: Callable[[Cache], Any]) -> Any:
    """Give the answer of a read, or the class and reason of its error."""
    try:
        return read(cache)
    except ReadError as error:
        return type(error), getattr(error, "reason", None)


@asynccontextmanager
async def opened(caches: Caches) -> AsyncIterator[Cache]:
    """Start caches, and wait at the end until their connections are closed."""
    try:
        async with caches as cache:
            yield cache
    finally:
        await connections_closed()


def caches_of(place: Place, filters: Any) -> Caches:
    return Caches(filters, login=credentials(place.api), namespaces=[place.namespace])


def names(found: Any) -> list[str]:
    return sorted(each["metadata"]["name"] for each in found)


def owner(made: Obj) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "web-1", "uid": made["metadata"]["uid"]}


# ---- A. Selectors at the cache.


async def test_a1_the_server_selects_by_labels_and_fields(configs: Place) -> None:
    configs.create("web-1", "web-2", labels=WEB)
    configs.create("db-1", labels={"app": "db"})
    filters = {
        "v1/configmaps": Selector("app=web", fields="metadata.name!=web-2"),
        "v1/secrets": "app=web",
    }
    async with cached(configs, filters) as cache:
        assert names(cache.list_cached("configmaps")) == ["web-1"]
        configs.create("web-3", labels=WEB)
        configs.create("db-2", labels={"app": "db"})
        configs.create("web-4", labels=WEB)
        await cache.wait_for("configmaps", lambda obj: obj["metadata"]["name"] == "web-4")
        assert names(cache.list_cached("configmaps")) == ["web-1", "web-3", "web-4"]
        assert cache.list_cached("secrets") == []


@pytest.mark.needs("custom resources of the whole cluster")
async def test_a2_custom_resources_have_every_form_of_key(place: Place, api: Cluster) -> None:
    group = fresh_group()
    # The definition stays, so its names are not those that tests of kubectl use.
    api.create_crd(group, "v1", "Gadget", "gadgets", short_names=["gd"])
    gadgets = place.of("gadgets", prefix=f"/apis/{group}/v1", kind="Gadget")
    gadgets.create("one", labels=WEB)
    gadgets.create("two")
    for declared in (f"{group}/v1/gadgets", f"gadgets.v1.{group}", (group, "v1", "gadgets")):
        async with cached(place, {declared: "app=web"}) as cache:
            for key in (declared, f"gadgets.{group}", "gadgets", "Gadget", "gd"):
                assert answer(cache, lambda cache, key=key: names(cache.list_cached(key))) == ["one"]  # type: ignore[misc]


async def test_a3_a_kind_that_is_not_declared_has_no_cache(configs: Place) -> None:
    configs.create("web-1", labels=WEB)
    async with operating(configs.api, configs.namespace, {"v1/secrets": "app=web"}) as operator:
        with pytest.raises(NotDeclared):
            operator.cache.list_cached("configmaps")
        with pytest.raises(NotDeclared):
            operator.cache.get("configmaps", "web-1", namespace=configs.namespace)
        assert list(operator.runtime.informers) == ["v1/secrets"]
        found = await operator.cache.fetch("configmaps", "web-1", namespace=configs.namespace)
        assert found["metadata"]["labels"] == WEB
        assert list(operator.runtime.informers) == ["v1/secrets"]


async def test_a4_a_read_outside_of_the_filter_raises(configs: Place) -> None:
    configs.create("db-1", labels={"app": "db"})
    async with cached(configs) as cache:
        with pytest.raises(OutsideFilter) as raised:
            cache.get("configmaps", "db-1", namespace=configs.namespace, default=None)
        assert raised.value.reason is Reason.HIDDEN
        with pytest.raises(OutsideFilter):
            cache.list("configmaps", namespace=configs.namespace)
        with pytest.raises(OutsideFilter) as raised:
            cache.list_cached("configmaps", labels="app=db")
        assert raised.value.reason is Reason.EXCLUDED


@pytest.mark.needs("nodes and custom resources of the whole cluster")
async def test_a5_an_agent_caches_its_own_node_and_its_own_resources(place: Place, api: Cluster) -> None:
    group, node = fresh_group(), f"node-{place.namespace}"
    for name in (node, f"{node}-other"):
        api.request("POST", "/api/v1/nodes", body={"metadata": {"name": name}})
    field = {"type": "object", "properties": {"node": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": field}}
    api.create_crd(group, "v1", "State", "states", schema=schema, selectable_fields=[".spec.node"])
    states = place.of("states", prefix=f"/apis/{group}/v1", kind="State")
    states.create("mine", labels=WEB, spec={"node": node})
    states.create("unlabelled", spec={"node": node})
    states.create("theirs", labels=WEB, spec={"node": "other"})
    filters = {
        "v1/nodes": Selector(fields=f"metadata.name={node}"),
        f"{group}/v1/states": Selector("app=web", fields={"spec.node": node}),
    }
    async with cached(place, filters) as cache:
        assert names(cache.list_cached("nodes")) == [node]
        assert cache.get("nodes", node)["metadata"]["name"] == node
        assert names(cache.list_cached(f"states.{group}")) == ["mine"]
        with pytest.raises(OutsideFilter):
            cache.get("nodes", f"{node}-other")


@pytest.mark.needs("users and rights of the whole cluster")
async def test_a10_names_and_namespaces_need_a_role_for_them_only(configs: Place, api: Cluster) -> None:
    configs.create("a", "b", "other")
    user = api.user()
    verbs = ["get", "list", "watch"]
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs, "resourceNames": ["a", "b"]}
    whole = {"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}
    api.grant(user, [rule, whole], configs.namespace)
    settings = SelectCacheSettings(audit_interval=0)
    filters = {
        "v1/configmaps": Selector(names=["a", "b"], namespaces=[configs.namespace]),
        "v1/secrets": Selector(fields=f"metadata.namespace={configs.namespace}"),
    }
    login = credentials(api, token=user.token)
    async with opened(Caches(filters, login=login, settings=settings)) as cache:
        await synced(cache)
        assert names(cache.list("configmaps", names=["a", "b"], namespace=configs.namespace)) == [
            "a",
            "b",
        ]
        assert cache.list("secrets", namespace=configs.namespace) == []


async def test_a12_objects_are_projected_before_they_are_stored(configs: Place) -> None:
    def shout(obj: Obj) -> Obj:
        obj["data"]["key"] = obj["data"]["key"].upper()
        return obj

    data = {"key": "low", "large": "x"}
    made = await asyncio.to_thread(applied, configs, "web-1", "test", metadata={"labels": WEB}, data=data)
    assert "managedFields" in made["metadata"]
    filters = {"v1/configmaps": Cached("app=web", drop=["data.large"], transform=shout)}
    async with cached(configs, filters) as cache:
        found = cache.get("configmaps", "web-1", namespace=configs.namespace)
        assert found["data"] == {"key": "LOW"}
        assert "managedFields" not in found["metadata"]
        with pytest.raises(NotKept):
            cache.list_cached("configmaps", where={"data.large": "x"})


async def test_a13_callers_have_copies_or_views_that_cannot_be_changed(configs: Place) -> None:
    configs.create("web-1", labels=WEB, data={"key": "1"})
    async with cached(configs) as cache:
        copy = cache.get("configmaps", "web-1", namespace=configs.namespace)
        copy["data"]["key"] = "2"
        view = cache.get("configmaps", "web-1", namespace=configs.namespace, as_="view")
        assert view["data"]["key"] == "1"
        with pytest.raises(TypeError):
            view["data"]["key"] = "3"
        assert cache.get("configmaps", "web-1", namespace=configs.namespace)["data"] == {"key": "1"}


async def test_a14_each_object_is_passed_to_subscribers_again(configs: Place) -> None:
    configs.create("web-1", "web-2", labels=WEB)
    async with cached(configs, {"v1/configmaps": Cached("app=web", resync=1)}) as cache:
        changes = cache.changes("configmaps", initial=False)
        for _ in range(2):
            seen = [await anext(changes), await anext(changes)]
            assert {(each.name, str(each.cause)) for each in seen} == {
                ("web-1", "resync"),
                ("web-2", "resync"),
            }
            assert all(each.old is each.new for each in seen)
        await cache.declare("configmaps", "app=web", resync=0, replace=True)


@pytest.mark.parametrize("bookmarks", [True, False])
async def test_a15_watches_ask_for_bookmarks_and_errors_are_passed_on(
    configs: Place, *, bookmarks: bool
) -> None:
    asked, errors = list[str](), list[WatchError]()

    def is_list(request: web.Request) -> bool:
        return request.path.endswith("/configmaps") and "watch" not in request.query

    def note_watch(request: web.Request) -> bool:
        if request.path.endswith("/configmaps") and "watch" in request.query:
            asked.append(request.query.get("allowWatchBookmarks", "false"))
        return False

    with Proxy(configs.api) as proxy:
        proxy.faults += [Fault(is_list, 500), Fault(note_watch, 500)]
        options = {"bookmarks": bookmarks, "on_watch_error": errors.append, "initial": "pages"}
        async with cached(configs, url=proxy.url, pace=0.02, **options) as cache:
            await until(lambda: asked, "there is a watch")
            assert cache.list_cached("configmaps") == []
    assert set(asked) == {"true" if bookmarks else "false"}
    assert [(each.verb, str(each.resource)) for each in errors] == [("list", "configmaps")]


async def test_a16_a_kind_is_declared_at_run_time_and_is_synced_then(configs: Place) -> None:
    configs.create("web-1", labels=WEB)
    async with cached(configs, {"v1/secrets": "app=web"}) as cache:
        with pytest.raises(NotDeclared):
            cache.list_cached("configmaps")
        await cache.declare("v1/configmaps", "app=web")
        assert answer(cache, lambda cache: names(cache.list_cached("configmaps"))) == ["web-1"]
        with pytest.raises(Missing):
            await cache.declare(f"{fresh_group()}/v1/widgets", "")


async def test_a17_kinds_are_removed_and_caches_start_once(configs: Place) -> None:
    before = asyncio.all_tasks()
    caches = caches_of(configs, CONFIGS)
    async with caches as cache:
        await synced(cache)
        assert cache.list_cached("configmaps") == []
        with pytest.raises(DeclarationError):
            await caches.start()
        await cache.undeclare("v1/configmaps")
        with pytest.raises(NotDeclared):
            cache.list_cached("configmaps")
    await connections_closed()
    await nothing_left(before)


async def test_a18_no_read_answers_before_the_first_list(configs: Place) -> None:
    listed = Event()

    def is_list(request: web.Request) -> bool:
        if request.path.endswith("/configmaps"):
            listed.set()
        return request.path.endswith("/configmaps")

    with Proxy(configs.api) as proxy:
        proxy.hold(is_list)
        login, namespaces = credentials(configs.api, url=proxy.url), [configs.namespace]
        async with opened(Caches({"v1/configmaps": ""}, login=login, namespaces=namespaces)) as cache:
            await asyncio.to_thread(listed.wait, 60)
            for read in (
                lambda: cache.list_cached("configmaps"),
                lambda: cache.get("configmaps", "a", namespace=configs.namespace, default=None),
                lambda: cache.count("configmaps", namespace=configs.namespace),
            ):
                with pytest.raises(NotSynced):
                    read()
            proxy.release()
            await synced(cache)
            assert cache.list_cached("configmaps") == []


async def test_a19_reads_select_by_fields_labels_paths_indexes_and_owners(configs: Place) -> None:
    def parity(obj: Obj) -> str:
        return "odd" if int(obj["data"]["number"]) % 2 else "even"

    def by_number(namespace: str, body: Any, **_: Any) -> dict[tuple[str, int], None]:
        return {(namespace, int(body["data"]["number"])): None}

    first = configs.create("web-1", labels=WEB, data={"number": "1"})
    configs.create("web-2", labels={**WEB, "tier": "gold"}, data={"number": "2"})
    configs.create("web-3", metadata={"labels": WEB, "ownerReferences": [owner(first)]}, data={"number": "3"})
    filters = {"v1/configmaps": Cached("app=web", index={"parity": parity, "number": by_number})}
    async with cached(configs, filters) as cache:
        assert names(cache.list_cached("configmaps", fields="metadata.name!=web-1")) == ["web-2", "web-3"]
        assert names(cache.list_cached("configmaps", labels="tier in (gold,silver)")) == ["web-2"]
        assert names(cache.list_cached("configmaps", where={"data.number": "3"})) == ["web-3"]
        assert names(cache.list_cached("configmaps", index={"parity": "odd"})) == ["web-1", "web-3"]
        assert names(cache.list_cached("configmaps", index={"number": (configs.namespace, 2)})) == ["web-2"]
        assert names(cache.list_cached("configmaps", owner=first)) == ["web-3"]
        await cache.add_index("configmaps", late="data.number")
        assert names(cache.list_cached("configmaps", index={"late": "1"})) == ["web-1"]


async def test_a20_lists_are_sorted_and_limited(configs: Place) -> None:
    for name, rank in (("a", "2"), ("b", "3"), ("c", "1")):
        configs.create(name, labels=WEB, data={"rank": rank})
    async with cached(configs) as cache:
        found = cache.list(
            "configmaps", labels="app=web", namespace=configs.namespace, sort_by="data.rank", limit=2
        )
        assert [each["metadata"]["name"] for each in found] == ["c", "a"]


async def test_a22_an_uncached_object_is_read_from_the_server(configs: Place) -> None:
    configs.create("web-1", labels=WEB)
    configs.create("db-1", labels={"app": "db"})
    async with cached(configs) as cache:
        found = await cache.fetch("configmaps", "db-1", namespace=configs.namespace, default=None)
        assert found is not None
        assert found["metadata"]["labels"] == {"app": "db"}
        everything = await cache.fetch_list(
            "configmaps", namespace=configs.namespace, labels="app in (web,db)"
        )
        assert names(everything) == ["db-1", "web-1"]
        configs.patch("web-1", {"data": {"key": "new"}})
        live = await cache.live.get("configmaps", "web-1", namespace=configs.namespace)
        assert live["data"] == {"key": "new"}
        assert names(await cache.live.list("configmaps", namespace=configs.namespace, labels="app=db")) == [
            "db-1"
        ]


async def test_a24_a_write_of_another_client_is_read_at_once(configs: Place) -> None:
    async with cached(configs) as cache:
        for number in range(20):
            name = f"web-{number}"
            made = configs.create(name, labels=WEB)
            cache.remember(made)
            uid = made["metadata"]["uid"]
            read = partial(Cache.get, kind="configmaps", name=name, namespace=configs.namespace)
            assert answer(cache, lambda cache, read=read: read(cache)["metadata"]["uid"]) == uid  # type: ignore[misc]
            cache.remember(configs.patch(name, {"metadata": {"labels": {"app": "db"}}}))
            assert name not in names(cache.list_cached("configmaps"))
            with pytest.raises(OutsideFilter):
                cache.get("configmaps", name, namespace=configs.namespace)


# ---- B. What none of the others has.


async def test_b1_an_error_names_an_object_that_the_read_would_miss(configs: Place) -> None:
    filters = {
        "v1/configmaps": Selector("app=web", fields="metadata.name!=x"),
        "v1/secrets": Selector(names=["a"]),
    }
    async with cached(configs, filters) as cache:
        with pytest.raises(OutsideFilter) as by_label:
            cache.list("configmaps", namespace=configs.namespace, fields="metadata.name!=x")
        assert witness(by_label).fails == ("app=web",)
        with pytest.raises(OutsideFilter) as by_field:
            cache.list("configmaps", namespace=configs.namespace, labels="app=web")
        assert witness(by_field).name == "x"
        with pytest.raises(OutsideFilter) as by_name:
            cache.list("secrets", namespace=configs.namespace)
        assert witness(by_name).name != "a"
        with pytest.raises(OutsideFilter) as by_namespace:
            cache.list("secrets", names=["a"], namespace=[configs.namespace, "other"])
        assert witness(by_namespace).namespace == "other"


def witness(raised: pytest.ExceptionInfo[OutsideFilter]) -> Witness:
    assert raised.value.witness is not None
    return raised.value.witness


async def test_b2_an_object_that_moves_between_branches_is_never_absent(configs: Place) -> None:
    configs.create("mover", labels={"app": "web"})
    configs.create("fixed")
    filters = {"v1/configmaps": ["app=web", "tier=gold", Selector(names=["fixed"])]}
    async with operated(configs, filters) as operator:
        assert names(operator.cache.list_cached("configmaps")) == ["fixed", "mover"]
        for number in range(20):
            labels = {"app": None, "tier": "gold"} if number % 2 == 0 else {"app": "web", "tier": None}
            version = await asyncio.to_thread(configs.label, "mover", **labels)
            await until(lambda version=version: version in versions(operator), "the cache has the change")  # type: ignore[misc]
        reader = operator.readers["v1/configmaps"]
        assert {"mover", "fixed"} == set.intersection(*reader.names) == set.union(*reader.names)


def versions(operator: Operator) -> set[str]:
    return {each["metadata"]["resourceVersion"] for each in operator.cache.list_cached("configmaps")}


async def test_b4_an_object_that_left_is_distinguished_from_a_deleted_one(configs: Place) -> None:
    configs.create("leaves", "goes", labels=WEB)
    async with cached(configs) as cache, aclosing(cache.changes("configmaps")) as changes:  # type: ignore[type-var]
        assert {(await anext(changes)).name for _ in range(2)} == {"leaves", "goes"}
        configs.label("leaves", app="db")
        left = await anext(changes)
        configs.delete("goes")
        gone = await anext(changes)
        assert [(each.name, each.cause) for each in (left, gone)] == [
            ("leaves", "left"),
            ("goes", "left"),
        ]
        assert not await cache.is_deleted("configmaps", "leaves", namespace=configs.namespace)
        assert await cache.is_deleted("configmaps", "goes", namespace=configs.namespace)
    filters = {"v1/configmaps": Selector(names=["leaves"])}
    async with cached(configs, filters) as cache, aclosing(cache.changes("configmaps")) as changes:  # type: ignore[type-var]
        assert (await anext(changes)).cause == "entered"
        configs.delete("leaves")
        assert (await anext(changes)).cause == "deleted"


async def test_b6_the_filter_is_changed_while_it_is_read(configs: Place) -> None:
    configs.create("always", labels={"app": "web", "tier": "gold"})
    configs.create("web", labels=WEB)
    configs.create("gold", labels={"tier": "gold"})
    async with operated(configs) as operator:
        for filter_ in ("tier=gold", "app=web") * 3:
            await operator.cache.declare("v1/configmaps", filter_, replace=True)
            assert len(operator.cache.list_cached("configmaps")) == 2
            assert len(operator.cache.list_cached("configmaps", labels="tier=gold")) == (
                2 if "gold" in filter_ else 1
            )
        async with aclosing(operator.cache.changes("configmaps", initial=False)) as changes:  # type: ignore[type-var]
            coming = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            await operator.cache.declare("v1/configmaps", "tier=gold", replace=True)
            assert (await coming).filter_changed
        assert names(operator.cache.list_cached("configmaps", labels="tier=gold")) == ["always", "gold"]
        seen = operator.readers["v1/configmaps"].names
        filters = {frozenset({"always", "web"}), frozenset({"always", "gold"})}
        assert {frozenset(each) for each in seen} <= filters


@pytest.mark.needs("users and rights of the whole cluster")
async def test_b8_the_rights_that_a_filter_needs_are_known_and_enough(configs: Place, api: Cluster) -> None:
    configs.create("web-1", labels=WEB)
    user = api.user()
    async with operating(api, configs.namespace, {}, token=user.token) as operator:
        plan = await operator.cache.plan("v1/configmaps", "app=web")
        assert plan.missing == plan.permissions
        assert {verb for right in plan.permissions for verb in right.verbs} == {"list", "watch"}
        with pytest.raises(Forbidden) as raised:
            await operator.cache.declare("v1/configmaps", "app=web")
        assert raised.value.code == 403
        api.grant(user, [right.rule() for right in plan.permissions], configs.namespace)
        await operator.cache.declare("v1/configmaps", "app=web")
        assert names(operator.cache.list_cached("configmaps")) == ["web-1"]


async def test_b9_a_cache_has_a_limit_of_bytes(configs: Place) -> None:
    for number in range(4):
        configs.create(f"web-{number}", labels=WEB, data={"key": token_hex(50_000)})
    async with cached(configs, {"v1/secrets": "app=web"}) as cache:
        with pytest.raises(Oversized):
            await cache.declare("v1/configmaps", "app=web", max_bytes="100Ki")
        await cache.declare("v1/configmaps", "app=web", max_bytes="10Mi")
        assert cache.count("configmaps", labels="app=web", namespace=configs.namespace) == 4


async def test_b10_the_age_of_an_answer_is_known_and_bounded(configs: Place) -> None:
    async with cached(configs) as cache:
        assert (cache.info("configmaps").age or 0) < 600
        assert cache.list_cached("configmaps", max_age=600) == []
        with pytest.raises(Stale):
            cache.list_cached("configmaps", max_age=0)


async def test_b11_a_read_is_explained_and_a_cache_is_audited(configs: Place) -> None:
    configs.create("web-1", "web-2", labels=WEB)
    configs.create("db-1", labels={"app": "db"})
    async with cached(configs) as cache:
        explained = cache.explain("configmaps", labels="app in (web,db)", namespace=configs.namespace)
        assert not explained.verdict
        assert explained.verdict.witness is not None
        assert cache.explain("configmaps", labels="app=web", namespace=configs.namespace).verdict
        audit = await cache.audit("configmaps")
        assert (bool(audit), audit.objects) == (True, 2)


async def test_b13_a_fake_cache_answers_as_the_cache_of_a_server(configs: Place) -> None:
    objects = [configs.create(f"{app}-1", labels={"app": app}) for app in ("web", "db")]
    objects = [{"apiVersion": "v1", "kind": "ConfigMap", **each} for each in objects]
    fake = FakeCache(objects, CONFIGS, namespaces=[configs.namespace])
    async with cached(configs) as cache:
        for read in reads(configs.namespace):
            assert answer(fake, read) == answer(cache, read)


def reads(namespace: str) -> list[Callable[[Cache], Any]]:
    return [
        lambda cache: cache.get("configmaps", "web-1", namespace=namespace)["metadata"]["uid"],
        lambda cache: cache.get("configmaps", "db-1", namespace=namespace, default=None),
        lambda cache: cache.get("configmaps", "web-1", namespace="other", default=None),
        lambda cache: names(cache.list("configmaps", labels="app=web")),
        lambda cache: names(cache.list("configmaps")),
        lambda cache: names(cache.list_cached("configmaps")),
        lambda cache: names(cache.list_cached("configmaps", labels="app=db")),
        lambda cache: cache.count("secrets"),
    ]


# ---- E. Beside them.


async def test_e1_a_second_cache_has_its_own_filter_and_login(configs: Place) -> None:
    configs.create("web-1", labels=WEB)
    configs.create("db-1", labels={"app": "db"})
    other = caches_of(configs, {"v1/configmaps": "app=db"})
    async with cached(configs) as first, other as second:
        await synced(second)
        assert names(first.list("configmaps", labels="app=web", namespace=configs.namespace)) == ["web-1"]
        assert answer(second, lambda cache: names(cache.list_cached("configmaps"))) == ["db-1"]
        with pytest.raises(OutsideFilter):
            second.get("configmaps", "web-1", namespace=configs.namespace)


def test_e2_a_selector_is_the_query_of_any_client(configs: Place) -> None:
    configs.create("web-1", "web-2", labels=WEB)
    configs.create("db-1", labels={"app": "db"})
    selector = Selector("app=web", fields="metadata.name!=web-2", namespaces=[configs.namespace])
    assert names_of(configs.listed(everywhere=True, **selector.query())) == ["web-1"]
    selector = Selector("app=web", names=["web-2"], namespaces=[configs.namespace])
    assert names_of(configs.listed(everywhere=True, **selector.query())) == ["web-2"]


async def test_e3_writes_are_live_and_have_the_login_of_the_operator(configs: Place) -> None:
    async with cached(configs) as cache:
        obj = {"metadata": {"name": "web-1", "namespace": configs.namespace, "labels": WEB}}
        made = await cache.live.create({"apiVersion": "v1", "kind": "ConfigMap", **obj})
        assert configs.names(labelSelector="app=web") == ["web-1"]
        assert configs.get("web-1")["metadata"]["uid"] == made["metadata"]["uid"]
        await cache.live.patch("configmaps", "web-1", {"data": {"key": "2"}}, namespace=configs.namespace)
        assert configs.get("web-1").get("data") == {"key": "2"}
        assert cache.get("configmaps", "web-1", namespace=configs.namespace)["data"] == {"key": "2"}


@pytest.mark.needs("nodes of the whole cluster")
async def test_e8_an_agent_caches_the_pods_of_its_node(place: Place) -> None:
    pods = place.of("pods")
    for name, node in (("mine", "node-1"), ("theirs", "node-2")):
        pods.create(name, spec={"nodeName": node, "containers": [{"name": "main", "image": "none"}]})
    async with cached(place, {"v1/pods": Selector(fields="spec.nodeName=node-1")}) as cache:
        assert names(cache.list("pods", fields="spec.nodeName=node-1", namespace=place.namespace)) == ["mine"]
        with pytest.raises(OutsideFilter):
            cache.get("pods", "theirs", namespace=place.namespace)
