"""FakeCache: what a handler could not see in a cluster, it cannot see in its test."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kopf
import pytest

from kopf_selectcache import (
    DeclarationError,
    Key,
    NotDeclared,
    OutsideFilter,
    ReadError,
    Selector,
    settings_of,
)
from kopf_selectcache.core.protocol.decoder import SLICE_BYTES
from kopf_selectcache.errors import ConflictingSelectors, Missing, NotSelectable
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.sample_objects import Population
from kopf_selectcache.types import Reason
from tests.objects import config_map, custom_resource, pod
from tests.rows import each_row

Obj = dict[str, Any]


def webapp(name: str, **labels: str) -> Obj:
    return {
        "apiVersion": "example.com/v1",
        "kind": "WebApp",
        "spec": {"size": 1},
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
    }


def namespace(name: str, **labels: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def names(objects: Sequence[Obj]) -> list[str]:
    return sorted(each["metadata"]["name"] for each in objects)


def web_and_db() -> FakeCache:
    return FakeCache(
        [pod("web-1", phase="Running", app="web"), pod("db-1", app="db")], {"v1/pods": "app=web"}
    )


def test_holds_the_objects_of_the_filter_with_their_status() -> None:
    cache = web_and_db()
    assert names(cache.list_cached("pods")) == ["web-1"]
    assert cache.get("pods", "web-1", namespace="shop")["status"]["phase"] == "Running"


def test_hides_objects_as_production_does() -> None:
    with pytest.raises(OutsideFilter) as hidden:
        web_and_db().get("pods", "db-1", namespace="shop")
    assert hidden.value.reason is Reason.HIDDEN
    with pytest.raises(OutsideFilter):
        web_and_db().list("pods", labels="app in (web,db)")
    with pytest.raises(NotDeclared):
        web_and_db().list_cached("nodes")


def test_takes_the_settings_that_the_operator_configures() -> None:
    settings = kopf.OperatorSettings()
    settings_of(settings).selectors["pods"] = "app=db"
    assert names(
        FakeCache([pod("web-1", app="web"), pod("db-1", app="db")], settings).list_cached("pods")
    ) == ["db-1"]


def test_a_field_that_only_the_cluster_knows_is_judged_by_its_definition() -> None:
    with pytest.raises(NotSelectable) as info:
        FakeCache([custom_resource("WebApp")], {"example.com/v1/webapps": Selector(fields="spec.image=x")})
    assert info.value.field == "spec.image"


def test_a_wrong_declaration_fails_here_already() -> None:
    with pytest.raises(NotSelectable):
        FakeCache([], {"pods": Selector(fields="spec.color=red")})
    with pytest.raises(Missing):
        FakeCache([], {"webapps.example.com": "app=web"})


def test_fetches_from_all_objects_in_sync_tests() -> None:
    cache = web_and_db()
    assert cache.blocking.fetch("pods", "db-1", namespace="shop")["metadata"]["name"] == "db-1"
    assert cache.blocking.fetch("pods", "nope", namespace="shop", default=None) is None
    assert names(cache.blocking.fetch_list("pods", namespace="shop")) == ["db-1", "web-1"]
    with pytest.raises(ReadError):
        _ = cache.fetch("pods", "db-1", namespace="shop")  # As a sync handler would be refused.


async def test_fetches_from_all_objects_in_async_tests() -> None:
    cache = web_and_db()
    assert (await cache.fetch("pods", "db-1", namespace="shop"))["metadata"]["name"] == "db-1"
    with pytest.raises(ReadError):
        cache.blocking.fetch("pods", "db-1", namespace="shop")  # It would stop the operator's loop.


def test_follows_each_change_at_once() -> None:
    cache = web_and_db()
    cache.cluster.patch(pod("db-1"), {"metadata": {"labels": {"app": "web"}}})
    assert names(cache.list_cached("pods")) == ["db-1", "web-1"]
    cache.cluster.patch(pod("web-1"), {"metadata": {"labels": {"app": "gone"}}})
    assert names(cache.list_cached("pods")) == ["db-1"]
    cache.cluster.delete(pod("db-1"))
    cache.cluster.create(pod("web-2", app="web"))
    assert names(cache.list_cached("pods")) == ["web-2"]


async def test_wait_for_is_woken_by_a_change() -> None:
    cache = web_and_db()
    waiting = asyncio.create_task(cache.wait_for("pods", lambda each: each["metadata"]["name"] == "web-2"))
    await asyncio.sleep(0)
    assert not waiting.done()
    cache.cluster.create(pod("web-2", app="web"))
    async with asyncio.timeout(60):
        assert (await waiting)["metadata"]["name"] == "web-2"


def test_defines_custom_resources_by_their_objects() -> None:
    cache = FakeCache([webapp("one", app="web"), webapp("two")], {"example.com/v1/webapps": "app=web"})
    assert names(cache.list_cached("webapps")) == ["one"]
    with pytest.raises(OutsideFilter):
        cache.get("webapps", "two", namespace="shop")


def test_its_own_object_is_there_as_the_body_says() -> None:
    body = pod("web-1", app="web", step="two")
    assert names(FakeCache([], {"pods": "app=web"}, own=body).list_cached("pods")) == ["web-1"]
    cache = FakeCache([pod("web-1", app="web", step="one")], {"pods": "app=web"}, own=body)
    assert cache.get("pods", "web-1", namespace="shop")["metadata"]["labels"]["step"] == "two"


@each_row("given", [{}, {"uid": "1"}, {"resourceVersion": "3"}, {"uid": "1", "resourceVersion": "1000000"}])
def test_its_own_object_has_the_labels_of_the_body_and_not_those_of_the_list(given: dict[str, str]) -> None:
    entered, left = pod("web-1", app="web"), pod("web-2", app="db")
    for body in (entered, left):
        body["metadata"] |= given
    assert names(
        FakeCache([pod("web-1", app="db")], {"pods": "app=web"}, own=entered).list_cached("pods")
    ) == ["web-1"]
    assert (
        names(FakeCache([pod("web-2", app="web")], {"pods": "app=web"}, own=left).list_cached("pods")) == []
    )


def test_its_own_object_keeps_the_uid_by_which_it_owns_others() -> None:
    listed, mine = webapp("shop"), pod("web-1")
    listed["metadata"]["uid"] = "1"
    mine["metadata"]["ownerReferences"] = [
        {"apiVersion": "example.com/v1", "kind": "WebApp", "name": "shop", "uid": "1"}
    ]
    cache = FakeCache(
        [mine, listed], {"pods": Selector(namespaces=["shop"]), "webapps": ""}, own=webapp("shop", app="web")
    )
    assert names(cache.list_cached("pods", owner=cache.get("webapps", "shop", namespace="shop"))) == ["web-1"]


def test_its_own_object_may_be_deleted() -> None:
    body = pod("web-1", app="web")
    cache = FakeCache([pod("web-1", app="web")], {"pods": "app=web"}, own=body, deleted=True)
    assert names(cache.list_cached("pods")) == []
    assert cache.blocking.is_deleted("pods", "web-1", namespace="shop")
    cache.cluster.create(body)
    assert names(cache.list_cached("pods")) == ["web-1"]


@each_row(
    "given",
    [
        {"own": {}},
        {"own": {"kind": "Pod", "metadata": {"name": "a"}}},
        {"own": "web-1"},
        {"deleted": True},
        {"namespace": "shop"},
    ],
)
def test_its_arguments_about_the_handler_must_make_sense(given: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        FakeCache(**given)


def test_objects_are_there_as_a_backup_brings_them_back() -> None:
    app = {**webapp("shop", app="web"), "status": {"ready": True}}
    app["metadata"] |= {
        "uid": "1",
        "generation": 7,
        "resourceVersion": "999999",
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "deletionTimestamp": "2021-01-01T00:00:00Z",
        "finalizers": ["example.com/kept"],
    }
    mine = pod("web-1")
    mine["metadata"]["ownerReferences"] = [
        {"apiVersion": "example.com/v1", "kind": "WebApp", "name": "shop", "uid": "1"}
    ]
    cache = FakeCache([mine, app], {"pods": Selector(namespaces=["shop"]), "webapps": "app=web"})
    held = cache.get("webapps", "shop", namespace="shop")
    assert held["metadata"].pop("resourceVersion") != "999999"  # This cluster has versions of its own.
    del held["metadata"]["annotations"]  # Of the canary, which is in all objects of tests.
    assert held == {
        **app,
        "metadata": {key: value for key, value in app["metadata"].items() if key != "resourceVersion"},
    }
    assert names(cache.list_cached("pods", owner=app)) == ["web-1"]


@each_row(
    ("objects", "selectors"),
    [
        (pod("web-1"), {}),
        (["web-1"], {}),
        ([{**pod("web-1"), "metadata": None}], {}),
        ([{"kind": "Pod", "metadata": {"name": "web-1"}}], {}),
        ([{"apiVersion": "v1", "metadata": {"name": "web-1"}}], {}),
        ([pod("web-1"), pod("web-1")], {}),
        ([{**pod("web-1"), "kind": "Widget"}], {}),
        ([], "app=web"),
        ([], ["app=web"]),
    ],
)
def test_objects_or_filters_of_another_type_are_refused(objects: Any, selectors: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        FakeCache(objects, selectors)


def test_a_call_that_needs_a_server_is_refused() -> None:
    cluster = FakeCache().cluster
    tries: list[Callable[[], object]] = [
        cluster.bookmark,
        cluster.cut,
        cluster.stop_listening,
        lambda: cluster.restore(cluster.backup()),
        lambda: cluster.requests,
        lambda: cluster.in_thread().__enter__(),
    ]
    for each in tries:
        with pytest.raises(RuntimeError):
            each()


def test_filters_are_confined_to_the_namespaces_of_the_operator() -> None:
    cache = FakeCache(
        [pod("web-1", app="web"), pod("web-2", "other", app="web")], {"pods": "app=web"}, namespaces=["shop"]
    )
    cache.cluster.create(pod("web-3", app="web"), pod("web-4", "other", app="web"))
    assert names(cache.list_cached("pods")) == ["web-1", "web-3"]
    with pytest.raises(OutsideFilter):
        cache.get("pods", "web-2", namespace="other")
    both = FakeCache(
        [pod("web-1", app="web"), pod("web-2", "other", app="web")],
        {"pods": "app=web"},
        namespaces=["shop", "other"],
    )
    both.cluster.namespace("third")
    both.cluster.create(pod("web-3", app="web"), pod("web-4", "third", app="web"))
    assert names(both.list_cached("pods")) == ["web-1", "web-2", "web-3"]
    assert both.count("pods", namespace="other", labels="app=web") == 1
    with pytest.raises(OutsideFilter):
        both.count("pods", namespace="third", labels="app=web")


def test_follows_a_custom_resource_through_changes_of_its_definition() -> None:
    cache = FakeCache(
        [custom_resource("WebApp"), webapp("one")],
        {"example.com/v1/webapps": Selector(namespaces=["shop"])},
    )
    cache.cluster.patch(custom_resource("WebApp"), {"spec": {"names": {"shortNames": ["wa"]}}})
    cache.cluster.create(webapp("two"))
    assert names(cache.list_cached("webapps")) == ["one", "two"]
    cache.cluster.delete(custom_resource("WebApp"))
    with pytest.raises(Missing):
        cache.list_cached("webapps")
    cache.cluster.create(custom_resource("WebApp"))
    cache.cluster.create(webapp("three"))
    assert names(cache.list_cached("webapps")) == ["three"]


def test_follows_after_its_version_was_forgotten() -> None:
    cache = FakeCache(
        [custom_resource("WebApp"), webapp("one")],
        {"example.com/v1/webapps": Selector(namespaces=["shop"])},
    )
    cache.cluster.create(pod("other"))
    cache.cluster.compact()
    cache.cluster.patch(
        custom_resource("WebApp"), {"spec": {"names": {"shortNames": ["wa"]}}}
    )  # It ends the watch.
    cache.cluster.delete(webapp("one"))
    assert names(cache.list_cached("webapps")) == []


def test_a_declaration_of_another_group_or_kind_gives_no_plural() -> None:
    cache = FakeCache(
        [{**webapp("one"), "kind": "D"}, webapp("two")], {"apps/v1/deployments": "", "webapps": ""}
    )
    assert cache.blocking.fetch("ds.example.com", "one", namespace="shop")["kind"] == "D"
    assert names(cache.list_cached("webapps")) == ["two"]


@each_row(
    ("kind", "plural"),
    [
        ("Policy", "policies"),
        ("Gateway", "gateways"),
        ("Mesh", "meshes"),
        ("Mesh", "meshs"),
        ("Redis", "redis"),
        ("DB", "dbs"),
    ],
)
def test_a_regular_plural_is_recognized(kind: str, plural: str) -> None:
    cache = FakeCache(
        [{**webapp("one"), "kind": kind}], {f"example.com/v1/{plural}": Selector(namespaces=["shop"])}
    )
    assert names(cache.list_cached(plural)) == ["one"]


def test_a_plural_that_nobody_can_guess_is_asked_for() -> None:
    child = {**webapp("one"), "kind": "Child"}
    with pytest.raises(Missing):
        FakeCache([child], {"example.com/v1/children": ""})
    cache = FakeCache([child, custom_resource("Child", plural="children")], {"example.com/v1/children": ""})
    assert names(cache.list_cached("children")) == ["one"]


def test_two_declarations_of_one_resource_are_refused() -> None:
    with pytest.raises(ConflictingSelectors):
        FakeCache([webapp("one")], {"webapps": "", "webapps.example.com": ""})


def test_changes_of_other_threads_wake_waiting_tasks() -> None:
    async def main() -> None:
        cache = web_and_db()
        waiting = asyncio.create_task(
            cache.wait_for("pods", lambda each: each["metadata"]["name"] == "web-2")
        )
        await asyncio.sleep(0)
        await asyncio.to_thread(cache.cluster.create, pod("web-2", app="web"))
        async with asyncio.timeout(60):
            assert (await waiting)["metadata"]["name"] == "web-2"

    asyncio.run(main(), debug=True)  # In debug mode, a loop refuses calls of other threads.


def test_sync_tests_can_wait_as_well() -> None:
    cache = web_and_db()

    def is_there(each: Obj) -> bool:
        if each["metadata"]["name"] == "web-1":
            pool.submit(cache.cluster.create, pod("web-2", app="web"))
        return bool(each["metadata"]["name"] == "web-2")

    with ThreadPoolExecutor(1) as pool:
        assert cache.blocking.wait_for("pods", is_there, timeout=60)["metadata"]["name"] == "web-2"


def test_many_threads_may_change_the_cluster() -> None:
    cache = FakeCache([], {"pods": "app=web"})
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda number: cache.cluster.create(pod(f"web-{number}", "default", app="web")), range(200)
            )
        )
    assert len(cache.list_cached("pods")) == 200


def test_a_fake_cache_ends_where_the_next_one_begins_and_not_in_the_garbage_collector() -> None:
    cache = web_and_db()
    ended = weakref.ref(cache.cluster)
    del cache
    gc.collect()
    assert ended() is not None  # Its loop would run at any line of any thread.
    FakeCache()
    gc.collect()
    assert ended() is None


def test_it_takes_more_objects_than_a_page_is_read_in_at_once() -> None:
    pods = list(Population(seed=1, namespaces=["shop"]).pods(300))
    assert sum(len(str(pod)) for pod in pods) > 3 * SLICE_BYTES
    assert FakeCache(pods, {"v1/pods": ""}).count("pods") == 300


# ---- Kinds that come and go.


def test_kinds_are_declared_changed_and_removed_in_sync_tests() -> None:
    cache = FakeCache([config_map("web", app="web"), config_map("db", app="db")])
    with pytest.raises(NotDeclared):
        cache.list_cached("configmaps")
    cache.blocking.declare("v1/configmaps", "app=web")
    cache.blocking.declare("configmaps", "app=web")
    with pytest.raises(DeclarationError):
        cache.blocking.declare("configmaps", "app=db")
    assert cache.list_cached("configmaps").keys() == [Key("web", namespace="shop")]
    cache.blocking.declare("configmaps", ["app=db", "app=cache"], replace=True)
    cache.cluster.create(config_map("cache", app="cache"))
    assert sorted(cache.list_cached("configmaps").keys()) == [
        Key("cache", namespace="shop"),
        Key("db", namespace="shop"),
    ]
    cache.blocking.undeclare("configmaps")
    cache.cluster.create(config_map("more", app="cache"))
    with pytest.raises(NotDeclared) as caught:
        cache.list_cached("configmaps")
    assert "test_fake.py" in caught.value.what
    cache.blocking.declare("configmaps", "")
    assert len(cache.list("configmaps")) == 4


def test_the_difference_of_a_change_is_delivered() -> None:
    async def main() -> list[tuple[str, str, bool]]:
        cache = FakeCache([pod("web-1", app="web"), pod("db-1", app="db")], {"pods": "app=web"})
        changes = aiter(cache.changes("pods", initial=False))
        first = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await cache.declare("pods", "app=db", replace=True)
        seen = [await first, await anext(changes)]
        await cache.undeclare("pods")
        with pytest.raises(NotDeclared):
            await anext(changes)
        return [(each.name, str(each.cause), each.filter_changed) for each in seen]

    assert asyncio.run(main()) == [("web-1", "left", True), ("db-1", "entered", True)]


def test_a_kind_without_a_definition_is_not_declared_later() -> None:
    cache = FakeCache([namespace("shop")])
    with pytest.raises(Missing):
        cache.blocking.declare("example.com/v1/webapps", "")
    with pytest.raises(NotDeclared):
        cache.list("webapps")
    cache.cluster.create(custom_resource("WebApp"))
    cache.blocking.declare("example.com/v1/webapps", "")
    cache.cluster.create(webapp("web"))
    assert cache.list("webapps").keys() == [Key("web", namespace="shop")]


def test_an_index_that_a_read_asks_for_is_built() -> None:
    cache = FakeCache(
        [pod(f"web-{i}", app="web", shop=str(i % 50)) for i in range(1000)], {"pods": "app=web"}
    )
    assert len(cache.list("pods", labels="app=web,shop=3")) == 20
    assert "by its index of label shop" in str(cache.explain("pods", labels="app=web,shop=3"))
