"""Every write of `cache.live`, and its errors, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from kopf_selectcache import (
    AlreadyExists,
    Conflict,
    HiddenByFilter,
    Invalid,
    Key,
    NotFound,
    OutcomeUnknown,
    ServerError,
)
from kopf_selectcache.types import Live
from tests.real.inprocess import Operator, operating
from tests.real.proxy import Loss, Proxy

from .places import Place

Obj = dict[str, Any]
FILTER = {"configmaps": "app=web"}
WRITES = ("POST", "PUT", "PATCH", "DELETE")


@asynccontextmanager
async def operated(place: Place, **options: Any) -> AsyncIterator[Operator]:
    async with operating(place.api, place.namespace, FILTER, **options) as operator:
        yield operator


def config(place: Place, name: str = "a", **data: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": place.namespace, "labels": {"app": "web"}},
        "data": data or {"key": "1"},
    }


def deployment(place: Place) -> Obj:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": place.namespace},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }


# ---- Writes.


async def test_objects_are_created_changed_and_deleted(place: Place) -> None:
    async with operated(place) as operator:
        live, namespace = operator.cache.live, place.namespace
        made = await live.create(config(place))
        assert made == await live.get("configmaps", "a", namespace=namespace)
        generated = {**config(place), "metadata": {"generateName": "b-", "namespace": namespace}}
        assert (await live.create(generated))["metadata"]["name"].startswith("b-")
        made["data"]["key"] = "2"
        replaced = await live.replace(made)
        assert replaced["data"] == {"key": "2"}
        patched = await live.patch("configmaps", "a", {"data": {"more": "3"}}, namespace=namespace)
        assert patched["data"] == {"key": "2", "more": "3"}
        tested = [
            {
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": patched["metadata"]["resourceVersion"],
            },
            {"op": "remove", "path": "/data/more"},
        ]
        patched = await live.patch("configmaps", "a", tested, namespace=namespace, type="json")
        assert patched["data"] == {"key": "2"}
        updated = await live.update(
            "configmaps", "a", lambda obj: obj["data"].update(key="4"), namespace=namespace
        )
        assert updated["data"] == {"key": "4"}
        again = await live.update("configmaps", "a", lambda _: None, namespace=namespace)
        assert again == updated
        found = [
            each["metadata"]["name"]
            for each in await live.list("configmaps", namespace=namespace, labels="app=web")
        ]
        assert found == ["a"]
        await live.delete("configmaps", "a", namespace=namespace, uid=made["metadata"]["uid"])
        assert await live.get("configmaps", "a", namespace=namespace, default=None) is None


async def test_9_each_of_fifty_writes_is_read_at_once(place: Place) -> None:
    async with operated(place) as operator:
        cache, namespace = operator.cache, place.namespace
        for number in range(50):
            name = f"a{number}"
            made = await cache.live.create(config(place, name))
            made["metadata"].pop("managedFields", None)  # Caches do not keep them.
            assert cache.get("configmaps", name, namespace=namespace) == made
            assert await cache.fetch("configmaps", name, namespace=namespace, default=None) == made
            assert cache.count("configmaps", namespace=namespace, labels="app=web") == number + 1
        await cache.live.patch(
            "configmaps", "a0", {"metadata": {"labels": {"app": "db"}}}, namespace=namespace
        )
        await cache.live.delete("configmaps", "a1", namespace=namespace)
        names = {key.name for key in cache.list_cached("configmaps").keys()}  # It is no dict.  # noqa: SIM118
        assert names == {f"a{number}" for number in range(2, 50)}
        assert await cache.is_deleted("configmaps", "a1", namespace=namespace)
        assert not await cache.is_deleted("configmaps", "a0", namespace=namespace)


async def test_a_list_is_merged_by_its_keys_and_subresources_are_patched(place: Place) -> None:
    async with operated(place) as operator:
        live, namespace = operator.cache.live, place.namespace
        await live.create(deployment(place))
        more = {"spec": {"template": {"spec": {"containers": [{"name": "more", "image": "none"}]}}}}
        patched = await live.patch("deployments", "a", more, namespace=namespace, type="strategic")
        containers = patched["spec"]["template"]["spec"]["containers"]
        assert sorted(each["name"] for each in containers) == ["main", "more"]
        status = {"status": {"observedGeneration": 7}}
        patched = await live.patch("deployments", "a", status, namespace=namespace, subresource="status")
        assert patched["status"]["observedGeneration"] == 7
        scale = await live.patch(
            "deployments", "a", {"spec": {"replicas": 3}}, namespace=namespace, subresource="scale"
        )
        assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 3)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_20_an_apply_of_a_field_that_the_kind_lacks_is_refused_with_its_name(
    place: Place, *, dry_run: bool
) -> None:
    async with operated(place) as operator:
        live, made = operator.cache.live, deployment(place)
        await live.apply(made)
        made["spec"]["replica"] = 2
        with pytest.raises(Invalid) as raised:
            await live.apply(made, dry_run=dry_run)
        assert raised.value.code == 500
        assert not raised.value.transient
        assert [each.field for each in raised.value.causes] == ["spec.replica"]
        with pytest.raises(Invalid) as mistyped:
            await live.apply({**config(place), "data": ["x"]}, dry_run=dry_run)
        assert "expected map" in str(mistyped.value)


async def test_a_hidden_object_is_named_and_adopted(place: Place) -> None:
    async with operated(place) as operator:
        live = operator.cache.live
        theirs = config(place, wine="9")
        del theirs["metadata"]["labels"]
        await live.create(theirs)
        with pytest.raises(HiddenByFilter) as raised:
            await live.ensure(config(place))
        assert raised.value.lacks == ("app=web",)
        owner = {"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "u", "controller": True}
        ours = config(place)
        ours["metadata"]["ownerReferences"] = [owner]
        adopted = await live.ensure(ours, adopt=True)
        assert (adopted["metadata"]["labels"], adopted["data"]) == ({"app": "web"}, {"wine": "9"})
        assert [each["uid"] for each in adopted["metadata"]["ownerReferences"]] == ["u"]
        assert await live.ensure(config(place)) == adopted
        with pytest.raises(AlreadyExists):
            await live.ensure(config(place), adopt=True)


# ---- Errors.


async def test_refusals_have_the_servers_status(place: Place) -> None:
    async with operated(place) as operator:
        live, namespace = operator.cache.live, place.namespace
        made = await live.create(config(place))
        with pytest.raises(AlreadyExists):
            await live.create(config(place))
        with pytest.raises(NotFound):
            await live.patch("configmaps", "b", {}, namespace=namespace)
        with pytest.raises(NotFound):
            await live.delete("configmaps", "b", namespace=namespace)
        with pytest.raises(NotFound):
            await live.create({**made, "metadata": {"name": "a", "namespace": f"{namespace}-none"}})
        await live.patch("configmaps", "a", {"data": {"key": "2"}}, namespace=namespace)
        with pytest.raises(Conflict):
            await live.replace(made)
        old = {"resourceVersion": made["metadata"]["resourceVersion"]}
        with pytest.raises(Conflict):
            await live.patch("configmaps", "a", {"metadata": old, "data": {"x": "y"}}, namespace=namespace)
        with pytest.raises(Invalid):
            await live.patch(
                "configmaps", "a", {"metadata": {"uid": "other"}, "data": {"x": "y"}}, namespace=namespace
            )
        with pytest.raises(Conflict):
            await live.delete("configmaps", "a", namespace=namespace, uid="other")
        with pytest.raises(Conflict):
            await live.delete(
                "configmaps", "a", namespace=namespace, version=made["metadata"]["resourceVersion"]
            )
        with pytest.raises(Invalid) as raised:
            await live.create(config(place, "A_b"))
        assert raised.value.code == 422
        assert [each.field for each in raised.value.causes] == ["metadata.name"]
        with pytest.raises(ServerError) as bad:
            await live.create({**config(place, "c"), "data": 5})
        assert bad.value.code == 400


# ---- Lost answers.

Act = Callable[[Live, Obj], Awaitable[Any]]


def named(obj: Obj) -> tuple[str, Key]:
    return "configmaps", Key.of(obj)


def fresh(obj: Obj, **metadata: Any) -> Obj:
    """Return another object like this one, which can be created."""
    return {**obj, "metadata": {"name": "new", "namespace": obj["metadata"]["namespace"], **metadata}}


def config_of(obj: Obj, **parts: Any) -> Obj:
    """Return the fields by which an object is applied: its identity, and these parts."""
    metadata = {key: obj["metadata"][key] for key in ("name", "namespace", "labels")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **parts}


def unversioned(obj: Obj) -> Obj:
    return {**obj, "data": {"key": "2"}, "metadata": {**obj["metadata"], "resourceVersion": None}}


def with_test(obj: Obj) -> list[Obj]:
    version = obj["metadata"]["resourceVersion"]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "replace", "path": "/data/key", "value": "2"},
    ]


CHANGE = {"data": {"key": "2"}}
LOST: dict[str, tuple[Act, bool, bool]] = {
    "create": (lambda live, obj: live.create(fresh(obj)), True, False),
    "create without a name": (
        lambda live, obj: live.create(fresh(obj, name=None, generateName="new-")),
        False,
        False,
    ),
    "ensure": (lambda live, obj: live.ensure(fresh(obj, labels={"app": "web"})), True, True),
    "replace with a version": (lambda live, obj: live.replace({**obj, **CHANGE}), True, False),
    "replace": (lambda live, obj: live.replace(unversioned(obj)), False, True),
    "merge": (lambda live, obj: live.patch(*named(obj), CHANGE), True, True),
    "strategic": (lambda live, obj: live.patch(*named(obj), CHANGE, type="strategic"), True, True),
    "json": (lambda live, obj: live.patch(*named(obj), with_test(obj)[1:], type="json"), False, False),
    "json with a test": (lambda live, obj: live.patch(*named(obj), with_test(obj), type="json"), True, False),
    "update": (lambda live, obj: live.update(*named(obj), lambda found: found.update(CHANGE)), True, True),
    "apply": (lambda live, obj: live.apply(fresh(obj), field_manager="us"), True, True),
    "forced apply": (
        lambda live, obj: live.apply(config_of(obj, **CHANGE), field_manager="us", force=True),
        True,
        True,
    ),
    "delete of a uid": (lambda live, obj: live.delete(*named(obj), uid=obj["metadata"]["uid"]), True, True),
    "delete": (lambda live, obj: live.delete(*named(obj)), False, True),
}
"""Each kind of write; and if it is done where the request is lost, and where the answer is lost."""


PACE = 0.2
"""So long, in seconds, is a second in which callers wait."""


class Patient:
    """`cache.live` whose writes have a minute by the clock on the wall."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def __getattr__(self, verb: str) -> Any:
        return partial(getattr(self._live, verb), timeout=60 / PACE)


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("write", LOST)
async def test_a_lost_answer_is_settled_or_the_outcome_is_unknown(
    place: Place, write: str, *, is_answered: bool
) -> None:
    act, if_dropped, if_executed = LOST[write]
    with Proxy(place.api) as proxy:
        proxy.losses.append(Loss(lambda request: request.method in WRITES, is_answered))
        async with operated(place, url=proxy.url, pace=PACE) as operator:
            obj = await asyncio.to_thread(make, place)
            live: Any = Patient(operator.cache.live)
            done = await settled(act(live, obj))
            assert done is (if_executed if is_answered else if_dropped)
            writes = [each for each in proxy.passed if each[0] in WRITES]
            items = (await asyncio.to_thread(place.of("configmaps").listed))["items"]
            require_effect(items, write, len(writes), done=done, is_answered=is_answered)


def make(place: Place) -> Obj:
    """Create the object that is written to; not through the proxy."""
    obj: Obj = place.api.request("POST", place.of("configmaps").path(), body=config(place))
    return obj


async def settled(write: Awaitable[Any]) -> bool:
    """Return whether the write is done; False if its outcome is unknown."""
    try:
        await write
    except OutcomeUnknown:
        return False
    return True


def require_effect(items: list[Obj], write: str, sent: int, *, done: bool, is_answered: bool) -> None:
    """Require that what is done is so, and that nothing was done twice."""
    by_name = {each["metadata"]["name"]: each for each in items if "new" in each["metadata"]["name"]}
    old = next((each for each in items if each["metadata"]["name"] == "a"), None)
    if write.startswith(("create", "ensure", "apply")):
        assert len(by_name) == (1 if done or is_answered else 0)
    elif write.startswith("delete"):
        assert (old is None) is (done or is_answered)
    else:
        assert old is not None
        assert old["data"]["key"] == ("2" if done or is_answered else "1")
    if not done:
        assert sent == (1 if is_answered else 0) or write in ("json with a test", "replace with a version")
    assert sent <= 2
