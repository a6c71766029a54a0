"""`cache.live`: reads that always ask the server, and writes with their errors, on the API of a fake
cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest

from kopf_selectcache import (
    AlreadyExists,
    Cached,
    Conflict,
    Forbidden,
    HiddenByFilter,
    InvalidObject,
    Key,
    NotFound,
    ReadError,
    Selector,
)
from kopf_selectcache.cache import writes
from kopf_selectcache.errors import Stalled
from kopf_selectcache.testing import FakeCache, faults
from kopf_selectcache.types import BodyView
from tests.cache.clients import APIObject, earlier, imported, model
from tests.cache.clients import Pod as PykubePod
from tests.cache.live_objects import DB, NODE, WEB, Obj, provoked, secret
from tests.objects import custom_resource, pod
from tests.rows import each_row


@pytest.fixture
def cache() -> FakeCache:
    return FakeCache([WEB, DB, NODE], {"v1/pods": "app=web"})


# ---- Reads.


def test_a_read_asks_the_server_for_objects_in_and_outside_the_cache(cache: FakeCache) -> None:
    live = cache.blocking.live
    cache.cluster.patch(WEB, {"metadata": {"labels": {"app": "db"}}})
    assert live.get("pods", "web-1", namespace="shop")["metadata"]["labels"] == {"app": "db"}
    assert live.get("pods", "x", namespace="shop", default=None) is None
    assert isinstance(live.get("pods", "db-1", namespace="shop", as_="view"), BodyView)
    with pytest.raises(NotFound):
        live.get("pods", "x", namespace="shop")
    with pytest.raises(ReadError):
        live.get("pods", "a/b", namespace="shop")
    assert [each["metadata"]["name"] for each in live.list("pods", namespace="shop", labels="app=db")] == [
        "db-1",
        "web-1",
    ]
    assert len(live.list("pods", names=["db-1"], namespace="shop", limit=5)) == 1


# ---- Writes.


async def changed_later(_: Obj) -> None: ...


class Awaitable:
    def __await__(self) -> Any:
        yield


def renamed(obj: Obj, **metadata: str) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def test_an_object_is_patched_in_three_ways(cache: FakeCache) -> None:
    live = cache.blocking.live
    live.patch("pods", "web-1", {"metadata": {"labels": {"x": "y"}}}, namespace="shop", dry_run=True)
    live.replace(pod(app="web", x="y"), dry_run=True)
    merged = live.patch("pods", "web-1", {"metadata": {"labels": {"tier": "gold"}}}, namespace="shop")
    assert merged["metadata"]["labels"] == {"app": "web", "tier": "gold"}
    removed = [{"op": "remove", "path": "/metadata/labels/tier"}]
    assert live.patch("pods", "web-1", removed, namespace="shop", type="json")["metadata"]["labels"] == {
        "app": "web"
    }
    image = {"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}}
    assert live.patch("pods", "web-1", image, namespace="shop", type="strategic")["spec"]["containers"][0][
        "image"
    ] == ("example.com/other")
    ready = {"status": {"phase": "Running"}}
    assert (
        live.patch("pods", "web-1", ready, namespace="shop", subresource="status")["status"]["phase"]
        == "Running"
    )
    node = live.patch("nodes", "n1", changes={"metadata": {"labels": {"a": "b"}}})
    assert node["metadata"]["labels"] == {"a": "b"}


def test_an_object_is_deleted(cache: FakeCache) -> None:
    live = cache.blocking.live
    found = live.get("pods", "web-1", namespace="shop")["metadata"]
    assert type(provoked(lambda: live.delete("pods", "web-1", namespace="shop", uid="other"))) is Conflict
    assert type(provoked(lambda: live.delete("pods", "web-1", namespace="shop", version="1"))) is Conflict
    live.delete("pods", "web-1", namespace="shop", dry_run=True)
    assert cache.exists("pods", "web-1", namespace="shop")
    live.delete(
        "pods",
        "web-1",
        namespace="shop",
        uid=found["uid"],
        version=found["resourceVersion"],
        propagation="background",
        grace_period=0,
    )
    with pytest.raises(NotFound):
        live.delete("pods", "web-1", namespace="shop")


def test_a_read_after_an_update_is_repeated_if_somebody_was_faster(cache: FakeCache) -> None:
    calls = []

    def change(obj: Obj) -> None:
        calls.append(obj["metadata"]["resourceVersion"])
        if len(calls) == 1:
            cache.cluster.patch(WEB, {"metadata": {"labels": {"theirs": "1"}}})
        obj["metadata"]["labels"]["ours"] = "1"

    changed = cache.blocking.live.update("pods", "web-1", change, namespace="shop")
    assert changed["metadata"]["labels"] == {"app": "web", "theirs": "1", "ours": "1"}
    assert len(set(calls)) == 2


def test_an_update_that_changes_nothing_writes_nothing(cache: FakeCache) -> None:
    before = cache.cluster.get(WEB)["metadata"]["resourceVersion"]
    found = cache.blocking.live.update("pods", "web-1", lambda obj: obj, namespace="shop", as_="view")
    assert found.metadata["resourceVersion"] == before
    assert cache.cluster.get(WEB)["metadata"]["resourceVersion"] == before


def deployment(replicas: int = 1) -> Obj:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {}},
    }


def test_the_status_is_replaced_alone(cache: FakeCache) -> None:
    live = cache.blocking.live
    obj = live.get("pods", "web-1", namespace="shop")
    obj["spec"]["containers"][0]["image"] = "example.com/other"
    replaced = live.replace({**obj, "status": {"phase": "Running"}}, subresource="status")
    assert replaced["status"]["phase"] == "Running"
    assert replaced["spec"]["containers"][0]["image"] == "none"
    updated = live.update(
        "pods",
        "web-1",
        lambda obj: {**obj, "status": {"phase": "Failed"}},
        namespace="shop",
        subresource="status",
    )
    assert updated["status"]["phase"] == "Failed"


def test_the_scale_is_updated() -> None:
    cache = FakeCache([deployment()], {})
    live = cache.blocking.live

    def scale(obj: Obj) -> None:
        assert obj["kind"] == "Scale"
        obj["spec"]["replicas"] = 3

    assert live.update("deployments", "web", scale, namespace="shop", subresource="scale")["kind"] == "Scale"
    assert live.get("deployments", "web", namespace="shop")["spec"]["replicas"] == 3
    assert (
        live.update("deployments", "web", scale, namespace="shop", subresource="scale")["spec"]["replicas"]
        == 3
    )
    assert type(provoked(lambda: live.replace(deployment(), subresource="scale"))) is InvalidObject
    with pytest.raises(NotFound):
        live.update("deployments", "other", scale, namespace="shop", subresource="scale")


def test_a_part_of_an_object_can_replace_its_status() -> None:
    cache = FakeCache([WEB], {"v1/pods": Cached("app=web", drop=["spec"])})
    held = {**cache.get("pods", "web-1", namespace="shop"), "status": {"phase": "Running"}}
    assert cache.blocking.live.replace(held, subresource="status")["spec"]
    web = {**WEB, "status": {"phase": "Running"}}
    cache = FakeCache([web], {"v1/pods": Cached("app=web", drop=["status"])})
    held = cache.get("pods", "web-1", namespace="shop")
    assert type(provoked(lambda: cache.blocking.live.replace(held, subresource="status"))) is InvalidObject


def test_9_an_object_that_is_written_in_another_version_is_read_in_that_of_the_cache() -> None:
    definition = custom_resource("Widget")
    (version,) = definition["spec"]["versions"]
    definition["spec"]["versions"] = [version, {**version, "name": "v1alpha1", "storage": False}]
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "namespace": "shop", "labels": {"app": "web"}},
    }
    cache = FakeCache([definition, widget], {"widgets.v1.example.com": "app=web"})
    live, older = cache.blocking.live, "widgets.v1alpha1.example.com"
    changes = {"metadata": {"labels": {"x": "y"}}}
    cache.cluster.faults.add(faults.Refuse(403), verb="get", resource="widgets", times=1)
    assert live.patch(older, "a", changes, namespace="shop")["apiVersion"] == "example.com/v1alpha1"
    live.get(older, "a", namespace="shop")  # The write has read it before, and was refused.
    live.delete(older, "a", namespace="shop")
    assert not cache.list_cached("widgets.v1.example.com")


def test_9_an_object_that_a_write_has_read_is_shown(
    cache: FakeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def remember(_: object, __: object, answer: bytes) -> None:
        shown.append(msgspec.json.decode(answer)["metadata"]["name"])

    monkeypatch.setattr(writes, "remember_answer", remember)
    live = cache.blocking.live
    live.ensure(WEB)
    live.ensure(WEB, adopt=True)
    live.update("pods", "web-1", lambda obj: obj, namespace="shop")
    assert shown == ["web-1"] * 3


def test_an_update_ends_with_its_timeout(cache: FakeCache) -> None:
    cache.cluster.faults.add(faults.Refuse(409, "Conflict"), verb="update", resource="pods")

    def change(obj: Obj) -> Obj:
        return {**obj, "metadata": {**obj["metadata"], "labels": {}}}

    error = provoked(lambda: cache.blocking.live.update("pods", "web-1", change, namespace="shop", timeout=5))
    assert type(error) is Conflict


# ---- Ensure and adopt.


def test_ensure_creates_or_returns_the_existing_object(cache: FakeCache) -> None:
    live = cache.blocking.live
    made = live.ensure(pod("web-2", app="web"))
    assert live.ensure(pod("web-2", app="web", more="labels")) == made
    assert live.ensure({**NODE, "metadata": {"name": "n1", "labels": {"a": "b"}}})["metadata"]["name"] == "n1"


def test_ensure_names_the_requirement_of_each_alternative_that_a_hidden_object_lacks() -> None:
    either = [Selector("app=web"), Selector(namespaces=["other"]), Selector(fields="status.phase=Running")]
    error = provoked(
        lambda: FakeCache([DB], {"v1/pods": either}).blocking.live.ensure(pod("db-1", app="web"))
    )
    assert type(error) is HiddenByFilter
    assert isinstance(error, AlreadyExists)
    assert (error.name, error.namespace) == ("db-1", "shop")
    assert error.lacks == ("app=web", "namespace=other", "status.phase=Running")


def test_ensure_proposes_to_adopt_only_an_object_it_can_adopt(cache: FakeCache) -> None:
    cache.cluster.create(pod("theirs"))
    ensure = cache.blocking.live.ensure
    assert "adopt=True" in provoked(lambda: ensure(pod("theirs", app="web"))).remedy
    for ours in (pod("db-1", app="web"), pod("theirs")):
        remedies = {provoked(lambda: ensure(ours, adopt=adopt)).remedy for adopt in (False, True)}  # noqa: B023  # They are called at once.
        assert len(remedies) == 1
        assert "live.patch" in remedies.pop()


def test_a_new_object_that_lacks_something_fails_at_once(cache: FakeCache) -> None:
    live = cache.blocking.live
    for write, verb in ((live.create, "create"), (live.ensure, "create"), (live.apply, "patch")):
        refused = cache.cluster.faults.add(faults.Refuse(404, "NotFound"), verb=verb, resource="pods")
        error = provoked(lambda: write(pod("web-2", app="web")))  # noqa: B023  # It is called at once.
        assert type(error) is NotFound
        assert error.remedy == "Create that first"
        assert len(refused.hits) == 1
        refused.release()


def test_an_object_is_adopted_with_its_label_and_its_owner(cache: FakeCache) -> None:
    cache.cluster.create({**pod("theirs"), "metadata": {"name": "theirs", "namespace": "shop"}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": True}
    ours = pod("theirs", app="web", other="label")
    ours["metadata"]["ownerReferences"] = [owner]
    adopted = cache.blocking.live.ensure(ours, adopt=True)
    assert adopted["metadata"]["labels"] == {"app": "web"}
    assert [each["uid"] for each in adopted["metadata"]["ownerReferences"]] == ["u1"]
    assert cache.get("pods", "theirs", namespace="shop") == adopted
    assert cache.blocking.live.ensure(ours, adopt=True) == adopted, "there is nothing left to adopt"


def test_owners_are_added_to_an_object_of_an_undeclared_kind(cache: FakeCache) -> None:
    given = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "shop", "labels": {"a": "b"}},
    }
    cache.cluster.create({**given, "metadata": {"name": "a", "namespace": "shop"}})
    assert "labels" not in cache.blocking.live.ensure(given, adopt=True)["metadata"]


def test_an_object_of_another_controller_is_not_adopted(cache: FakeCache) -> None:
    theirs = pod("theirs")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": True}
    theirs["metadata"]["ownerReferences"] = [owner]
    before = cache.cluster.create(theirs)
    error = provoked(lambda: cache.blocking.live.ensure(pod("theirs", app="web"), adopt=True))
    assert type(error) is AlreadyExists
    assert [cache.cluster.get(theirs)] == before


def test_a_label_with_another_value_is_not_changed(cache: FakeCache) -> None:
    error = provoked(lambda: cache.blocking.live.ensure(pod("db-1", app="web"), adopt=True))
    assert type(error) is HiddenByFilter
    assert cache.cluster.get(DB)["metadata"]["labels"] == {"app": "db"}
    error = provoked(lambda: cache.blocking.live.ensure(pod("db-1"), adopt=True))
    assert type(error) is HiddenByFilter


def test_an_object_that_changes_while_it_is_adopted_is_looked_at_again(cache: FakeCache) -> None:
    theirs = pod("theirs")
    cache.cluster.create(theirs)

    class Faster(faults.Fault):
        """Somebody else labels the object before the patch arrives."""

        def instead(self, request: Any) -> None:
            cache.cluster.patch(theirs, {"metadata": {"labels": {"app": "theirs"}}})

    cache.cluster.faults.add(Faster(), verb="patch", resource="pods", times=1)
    with pytest.raises(HiddenByFilter):
        cache.blocking.live.ensure(pod("theirs", app="web"), adopt=True)
    assert cache.cluster.get(theirs)["metadata"]["labels"] == {"app": "theirs"}


def test_an_object_that_vanishes_or_changes_meanwhile_is_ensured_again(cache: FakeCache) -> None:
    cache.cluster.create(pod("theirs"))
    cache.cluster.faults.add(faults.Refuse(404, "NotFound"), verb="get", resource="pods", times=1)
    cache.cluster.faults.add(faults.Refuse(409, "Conflict"), verb="patch", resource="pods", times=1)
    assert cache.blocking.live.ensure(pod("theirs", app="web"), adopt=True)["metadata"]["labels"]
    cache.cluster.faults.add(faults.Refuse(409, "Conflict"), verb="create", resource="pods")
    assert type(provoked(lambda: cache.blocking.live.ensure(pod("x"), timeout=2))) is Conflict


# ---- Objects in and out.


def test_an_object_of_pykube_comes_back_with_its_client(cache: FakeCache) -> None:
    api = object()
    given = PykubePod(api, {**pod("web-2", app="web"), "kind": None, "apiVersion": None})
    del given.obj["kind"], given.obj["apiVersion"]
    made = cache.blocking.live.create(given)
    assert (type(made), made.api) == (PykubePod, api)
    assert made.obj["metadata"]["uid"]
    assert type(cache.blocking.live.ensure(given, as_=dict)) is dict
    assert [each["metadata"]["name"] for each in cache.list_cached("pods", owner=made)] == []


def test_a_model_of_kubernetes_comes_back_as_one(cache: FakeCache) -> None:
    meta = earlier(
        "V1ObjectMeta",
        {"name": "str", "namespace": "str", "labels": "dict(str, str)", "creation_timestamp": "datetime"},
        {
            "name": "name",
            "namespace": "namespace",
            "labels": "labels",
            "creation_timestamp": "creationTimestamp",
        },
    )
    kind = earlier(
        "V1Pod", {"metadata": "V1ObjectMeta", "spec": "object"}, {"metadata": "metadata", "spec": "spec"}
    )
    given = kind(
        metadata=meta(
            name="web-2",
            namespace="shop",
            labels={"app": "web"},
            creation_timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        ),
        spec={"containers": (pod()["spec"]["containers"][0],), "x": date(2026, 1, 1)},
    )
    with imported({"kubernetes_asyncio.client.models": [meta, kind]}):
        made = cache.blocking.live.create(given)
    assert type(made) is kind
    assert cache.get("pods", "web-2", namespace="shop")["metadata"]["labels"] == {"app": "web"}


def test_as_makes_the_answer(cache: FakeCache) -> None:
    class Named(msgspec.Struct):
        kind: str

    live = cache.blocking.live
    assert live.create(pod("web-2"), as_=Named) == Named("Pod")
    assert live.patch("pods", "web-2", {}, namespace="shop", as_=lambda obj: obj["kind"]) == "Pod"
    assert live.patch(PykubePod, "web-2", {}, namespace="shop").obj["kind"] == "Pod"
    with pytest.raises(ReadError):
        live.create(NODE, as_=PykubePod)


Unnamed = type("Odd", (APIObject,), {"version": "example.com/v1", "endpoint": "odds"})
LACKING: dict[str, Any] = {
    "no object": 5,
    "None": None,
    "no apiVersion": {"kind": "Pod", "metadata": {"name": "a", "namespace": "b"}},
    "no kind": {"apiVersion": "v1", "metadata": {"name": "a", "namespace": "b"}},
    "no metadata": {"apiVersion": "v1", "kind": "Pod"},
    "no name": {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "b"}},
    "a name that is no text": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 5}},
    "no namespace": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},
    "a namespace of a cluster-scoped kind": {**NODE, "metadata": {"name": "a", "namespace": "b"}},
    "a name with a slash": pod("a/b"),
    "a namespace with a slash": pod("a", "b/c"),
    "no JSON": {**pod("a"), "spec": object()},
    "a lone surrogate": {**pod("a"), "spec": "\ud800"},
    "an infinite number": {**pod("a"), "spec": {"a": [1, {"b": float("inf")}]}},
    "a number that is NaN": {**pod("a"), "spec": ({"a": None}, float("nan"))},
    "a model without a kind": model("V1Widget")(),
    "pykube's object without a kind": APIObject(None, {"metadata": {}}),
    "pykube's class without a kind": Unnamed(None, {}),
    "pykube's object without a body": PykubePod(None, 5),  # type: ignore[arg-type]
}


@each_row("what", LACKING)
@each_row("verb", ["create", "replace", "ensure", "apply"])
def test_an_object_that_lacks_something_is_not_sent(cache: FakeCache, what: str, verb: str) -> None:
    refused = cache.cluster.faults.add(faults.Refuse(500))
    error = provoked(lambda: getattr(cache.blocking.live, verb)(LACKING[what]))
    refused.release()
    assert type(error) is InvalidObject
    assert not refused.hits


@each_row(
    "call",
    [
        lambda live: live.replace(WEB, subresource="a/b"),
        lambda live: live.update("pods", Key.of(WEB), lambda obj: obj, subresource="a/b"),
        lambda live: live.update("pods", Key.of(WEB), lambda obj: renamed(obj, name="x")),
        lambda live: live.update("pods", Key.of(WEB), lambda obj: renamed(obj, resourceVersion="1")),
        lambda live: live.update("pods", Key.of(WEB), lambda _: 5),
        lambda live: live.update("pods", Key.of(WEB), 5),
        lambda live: live.update("pods", Key.of(WEB), None),
        lambda live: live.update("pods", Key.of(WEB), changed_later),
        lambda live: live.update("pods", Key.of(WEB), lambda _: Awaitable()),
        lambda live: live.create(pod("a"), dry_run="yes"),
        lambda live: live.create(pod("a"), field_manager=""),
        lambda live: live.create(pod("a"), timeout=0),
        lambda live: live.patch("pods", 5, {}, namespace="shop"),
        lambda live: live.patch("pods", "a", {}, namespace=5),
        lambda live: live.patch("pods", "a", {"op": "x"}, namespace="shop", type="json"),
        lambda live: live.patch("pods", "a", [], namespace="shop", type="merge"),
        lambda live: live.patch("pods", "a", {}, namespace="shop", type="apply"),
        lambda live: live.patch("pods", "a", {}, namespace="shop", subresource="a/b"),
        lambda live: live.patch("pods", "a", {"x": object()}, namespace="shop"),
        lambda live: live.patch("pods", "a", {"x": float("-inf")}, namespace="shop"),
        lambda live: live.patch("pods", "a", changes={}),
        lambda live: live.delete("pods", "a", namespace="shop", uid=5),
        lambda live: live.delete("pods", "a", namespace="shop", version=""),
        lambda live: live.delete("pods", "a", namespace="shop", propagation="later"),
        lambda live: live.delete("pods", "a", namespace="shop", grace_period=-1),
        lambda live: live.apply(
            {**pod("a"), "metadata": {"name": "a", "managedFields": [{}]}}, field_manager="x"
        ),
    ],
)
def test_an_argument_that_makes_no_sense_is_not_sent(cache: FakeCache, call: Callable[[Any], Any]) -> None:
    assert type(provoked(lambda: call(cache.blocking.live))) is InvalidObject


# ---- Objects of which a part is kept.


def partly(**options: Any) -> FakeCache:
    return FakeCache([secret()], {"v1/secrets": Cached("app=web", **options)})


@pytest.mark.parametrize(
    "options",
    [{"drop": ["data"]}, {"keep": ["metadata"]}, {"transform": lambda obj: {**obj, "data": {"key": "***"}}}],
)
def test_13_an_object_of_which_a_part_is_stored_is_not_written_back(options: Any) -> None:
    cache = partly(**options)
    held = cache.get("secrets", "s", namespace="shop")
    held["metadata"]["labels"]["more"] = "x"
    for each in (held, dict(held)):  # A copy without the mark is compared with the server's object.
        assert type(provoked(lambda each=each: cache.blocking.live.replace(each))) is InvalidObject  # type: ignore[misc]
    view = cache.get("secrets", "s", namespace="shop", as_="view")
    assert type(provoked(lambda: cache.blocking.live.replace(view))) is InvalidObject
    for write in (cache.blocking.live.create, cache.blocking.live.ensure):
        assert type(provoked(lambda write=write: write(held))) is InvalidObject  # type: ignore[misc]
    assert cache.cluster.get(secret())["data"]["key"] == "eA=="


def test_13_a_whole_object_of_such_a_kind_is_written() -> None:
    cache = partly(drop=["data"])
    live = cache.blocking.live
    whole = live.get("secrets", "s", namespace="shop")
    whole["metadata"]["labels"]["more"] = "x"
    assert live.replace(whole)["data"]["key"] == "eA=="
    whole["data"] = {"other": "eA=="}
    assert type(provoked(lambda: live.replace(whole))) is Conflict, "it is in another version"
    whole = live.get("secrets", "s", namespace="shop")
    whole["data"] = {"other": "eA=="}
    assert live.replace(whole)["data"] == {"other": "eA=="}
    assert live.update("secrets", "s", lambda obj: {**obj, "data": {}}, namespace="shop").get("data") in (
        None,
        {},
    )
    assert live.create(secret("t"))["data"]["key"] == "eA=="
    assert type(provoked(lambda: live.replace(secret()))) is InvalidObject, "it has no version"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (faults.Refuse(404, "NotFound"), Conflict),
        (faults.Refuse(403, "Forbidden"), Forbidden),
        (faults.MalformedJSON(), Stalled),
    ],
)
def test_13_an_object_that_cannot_be_compared_is_not_written(fault: Any, error: type) -> None:
    cache = partly(drop=["data"])
    whole = cache.blocking.live.get("secrets", "s", namespace="shop")
    cache.cluster.patch(secret(), {"metadata": {"labels": {"more": "x"}}})
    cache.cluster.faults.add(fault, verb="get", resource="secrets", times=1)
    assert type(provoked(lambda: cache.blocking.live.replace(whole))) is error


# ---- Where it is called.


def test_a_write_is_awaited_on_the_operators_loop(cache: FakeCache) -> None:
    with pytest.raises(ReadError):
        cache.live.create(pod("a"))  # type: ignore[unused-coroutine]

    async def main() -> None:
        assert await cache.live.create(pod("a", app="web"))
        assert await cache.live.get("pods", "a", namespace="shop")
        with pytest.raises(ReadError):
            cache.blocking.live.create(pod("b"))

    asyncio.run(main())


# ---- Own writes.


def test_9_a_write_is_laid_over_the_reads(cache: FakeCache) -> None:
    live = cache.blocking.live
    seen: list[tuple[str, bool]] = []
    pending = cache._runtime.informer("pods").pending_writes
    add = pending.add

    def watched(write: Any, state: Any) -> None:
        seen.append((write.uid, write.record is not None))
        add(write, state)

    pending.add = watched  # type: ignore[method-assign]
    uid = live.create(pod("web-2", app="web"))["metadata"]["uid"]
    live.patch("pods", "web-2", {"metadata": {"labels": {"app": "db"}}}, namespace="shop")
    live.patch("pods", "web-2", {"metadata": {"labels": {"app": "web"}}}, namespace="shop", dry_run=True)
    live.delete("pods", "web-2", namespace="shop", grace_period=0)
    live.create(pod("web-3", app="web"), dry_run=True)
    assert seen == [(uid, True), (uid, False), (uid, False)]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"kind":"Status"}', b'{"metadata":{"uid":5}}'])
def test_an_answer_to_a_deletion_without_a_uid_is_not_laid_over(cache: FakeCache, body: bytes) -> None:
    class Odd(faults.Fault):
        """An answer without a uid."""

        def answered(self, request: Any, answer: Any) -> Any:
            return type(answer)(answer.code, body)

    cache.cluster.faults.add(Odd(), verb="delete", times=1)
    cache.blocking.live.delete("pods", "web-1", namespace="shop", grace_period=0)
    assert not cache.list_cached("pods")


def test_an_object_of_pykube_is_remembered(cache: FakeCache) -> None:
    made = PykubePod(None, cache.blocking.live.get("pods", "web-1", namespace="shop"))
    cache.remember(made)
    cache.forget(made)
    with pytest.raises(ReadError):
        cache.remember(5)
