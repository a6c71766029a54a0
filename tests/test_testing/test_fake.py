"""FakeCache: what a handler could not see in a cluster, it cannot see in its test."""
import asyncio
from typing import Any

import kopf
import pytest

from kopf_selectcache import (
    Missing,
    NotDeclared,
    NotFound,
    NotSelectable,
    OutsideFilter,
    ReadError,
    Reason,
    Selector,
    settings_of,
)
from kopf_selectcache.testing import FakeCache

Obj = dict[str, Any]


def pod(name: str, namespace: str = "shop", **labels: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "status": {"phase": "Running"}}


def webapp(name: str, **labels: str) -> Obj:
    return {"apiVersion": "example.com/v1", "kind": "WebApp", "spec": {"size": 1},
            "metadata": {"name": name, "namespace": "shop", "labels": labels}}


def names(objects: list[Obj]) -> list[str]:
    return sorted(each["metadata"]["name"] for each in objects)


def web_and_db() -> FakeCache:
    return FakeCache([pod("web-1", app="web"), pod("db-1", app="db")], {"v1/pods": "app=web"})


def test_holds_what_the_filter_lets_through_with_its_status() -> None:
    cache = web_and_db()
    assert names(cache.held("pods")) == ["web-1"]
    assert cache.get("pods", "web-1", "shop")["status"]["phase"] == "Running"


def test_hides_what_production_hides() -> None:
    with pytest.raises(OutsideFilter) as hidden:
        web_and_db().get("pods", "db-1", "shop")
    assert hidden.value.reason is Reason.HIDDEN
    with pytest.raises(OutsideFilter, match="app=web"):
        web_and_db().list("pods", label="app in (web,db)")
    with pytest.raises(NotDeclared):
        web_and_db().held("nodes")


def test_proves_absence_where_production_does() -> None:
    cache = FakeCache([pod("web-1")], {"pods": Selector(namespaces=["shop"])})
    with pytest.raises(NotFound):
        cache.get("pods", "nope", "shop")


def test_selects_by_field_as_the_server_does() -> None:
    cache = FakeCache([pod("one"), {**pod("two"), "spec": {"nodeName": "node01"}}], {"pods": Selector(field="spec.nodeName=node01")})
    assert names(cache.held("pods")) == ["two"]


def test_takes_the_settings_that_the_operator_configures() -> None:
    settings = kopf.OperatorSettings()
    settings_of(settings).selectors["pods"] = "app=db"
    assert names(FakeCache([pod("web-1", app="web"), pod("db-1", app="db")], settings).held("pods")) == ["db-1"]


def test_a_wrong_declaration_fails_here_already() -> None:
    with pytest.raises(NotSelectable):
        FakeCache([], {"pods": Selector(field="spec.color=red")})
    with pytest.raises(Missing, match="CustomResourceDefinition"):
        FakeCache([], {"webapps.example.com": "app=web"})


def test_fetches_from_all_objects_in_sync_tests() -> None:
    cache = web_and_db()
    assert cache.blocking.fetch("pods", "db-1", "shop")["metadata"]["name"] == "db-1"
    assert cache.blocking.fetch("pods", "nope", "shop", default=None) is None
    assert names(cache.blocking.fetch_list("pods", namespace="shop")) == ["db-1", "web-1"]
    with pytest.raises(ReadError, match=r"cache\.blocking\.fetch"):
        _ = cache.fetch("pods", "db-1", "shop")   # As a sync handler would be refused.


def test_fetches_from_all_objects_in_async_tests() -> None:
    async def main() -> None:
        cache = web_and_db()
        assert (await cache.fetch("pods", "db-1", "shop"))["metadata"]["name"] == "db-1"
        with pytest.raises(ReadError, match=r"await cache\.fetch"):
            cache.blocking.fetch("pods", "db-1", "shop")   # It would stop the operator's loop.
    asyncio.run(main())


def test_follows_each_change_at_once() -> None:
    cache = web_and_db()
    cache.cluster.patch(pod("db-1"), {"metadata": {"labels": {"app": "web"}}})
    assert names(cache.held("pods")) == ["db-1", "web-1"]
    cache.cluster.patch(pod("web-1"), {"metadata": {"labels": {"app": "gone"}}})
    assert names(cache.held("pods")) == ["db-1"]
    cache.cluster.delete(pod("db-1"))
    cache.cluster.create(pod("web-2", app="web"))
    assert names(cache.held("pods")) == ["web-2"]


def test_wait_for_is_woken_by_a_change() -> None:
    async def main() -> None:
        cache = web_and_db()
        waiting = asyncio.create_task(cache.wait_for("pods", lambda each: each["metadata"]["name"] == "web-2"))
        await asyncio.sleep(0)
        assert not waiting.done()
        cache.cluster.create(pod("web-2", app="web"))
        async with asyncio.timeout(60):
            assert (await waiting)["metadata"]["name"] == "web-2"
    asyncio.run(main())


def test_defines_custom_resources_by_their_objects() -> None:
    cache = FakeCache([webapp("one", app="web"), webapp("two")], {"example.com/v1/webapps": "app=web"})
    assert names(cache.held("webapps")) == ["one"]
    with pytest.raises(OutsideFilter):
        cache.get("webapps", "two", "shop")


def test_its_own_object_is_as_new_as_the_body() -> None:
    body = pod("web-1", app="web")
    body["metadata"] |= {"resourceVersion": "1000000", "uid": "x"}
    cache = FakeCache([pod("web-1", app="web")], {"pods": "app=web"})
    uid = cache.get("pods", "web-1", "shop")["metadata"]["uid"]
    body["metadata"]["uid"] = uid
    newer = FakeCache([pod("web-1", app="web")], {"pods": "app=web"}, own=body)
    assert newer.get("pods", "web-1", "shop")["metadata"]["resourceVersion"] == "1000000"


def test_two_fake_caches_know_nothing_of_each_other() -> None:
    one, two = web_and_db(), web_and_db()
    one.cluster.delete(pod("web-1"))
    assert names(one.held("pods")) == []
    assert names(two.held("pods")) == ["web-1"]
