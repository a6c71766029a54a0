"""`as_=`: in which form reads return objects. Which ones they are, and when there is an error instead, does
not depend on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import Any

import pytest

from kopf_selectcache import Cached, NotFound, OutsideFilter, ReadError
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.testing import FakeCache
from tests.cache.clients import APIObject, Pod, V1Pod, current, earlier, imported, model
from tests.cache.environment import Environment, Obj, pod, reading, with_environment
from tests.rows import each_row

EARLIER = {"kubernetes_asyncio.client.models": [earlier("V1Pod", {}, {}), earlier("V1ConfigMap", {}, {})]}
WEB, OTHER = pod("web-1", app="web"), pod("web-2", app="web")
PATH, LIST = "/api/v1/namespaces/ns/pods/db-1", "/api/v1/pods"
OWNER = {"metadata": {"uid": "o-1"}}
WEB["metadata"]["ownerReferences"] = [
    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", **OWNER["metadata"]}
]


def name_of(obj: Obj) -> str:
    name: str = obj["metadata"]["name"]
    return name


def one_of(found: list[Any]) -> Any:
    assert len(found) == 1
    return found[0]


CACHED: list[Callable[..., Any]] = [
    lambda cache, kind, **given: cache.get(kind, "web-1", namespace="ns", **given),
    lambda cache, kind, **given: one_of(cache.list(kind, **given)),
    lambda cache, kind, **given: one_of(cache.list_cached(kind, **given)),
    lambda cache, kind, **given: one_of(cache.list_cached(kind, where={"spec.nodeName": "n1"}, **given)),
    lambda cache, kind, **given: one_of(cache.list(kind, sort_by="metadata.name", **given)),
    lambda cache, kind, **given: one_of(cache.list_cached(kind, owner=OWNER, **given)),
    lambda cache, kind, **given: cache.blocking.fetch(kind, "web-1", namespace="ns", **given),
    lambda cache, kind, **given: one_of(cache.blocking.fetch_list(kind, **given)),
    lambda cache, kind, **given: cache.blocking.wait_for(
        kind, lambda obj: obj["metadata"]["name"] == "web-1", **given
    ),
]
"""Each read of an object that is held, the only one."""


def test_the_default_stands_as_it_is_for_an_absent_object() -> None:
    assert reading("").get("pods", "x", namespace="ns", default=None, as_=name_of) is None
    with pytest.raises(NotFound):
        reading("").get(V1Pod, "x", namespace="ns")


def test_the_dict_that_a_function_is_given_is_that_which_was_sorted_by_or_waited_for() -> None:
    """It is of this read alone; what has looked at it before has had the same."""

    def note(obj: Obj) -> str:
        obj["noted"] = True
        return name_of(obj)

    cache = FakeCache([WEB], {"pods": ""})
    assert cache.list_cached("pods", sort_by=note, as_=dict)[0]["noted"]
    assert cache.blocking.wait_for("pods", note, as_=dict)["noted"]
    assert "noted" not in cache.list_cached("pods", as_=dict)[0]


# ---- What can be no form.


async def later(_: Obj) -> None:
    """Nobody awaits it."""


class AsyncCall:
    async def __call__(self, _: Obj) -> None:
        """Nor this."""


@each_row(
    "as_",
    [
        "dict",
        5,
        later,
        AsyncCall(),
        lambda obj: later(obj),  # As it is written.  # noqa: PLW0108
    ],
)
@each_row("read", CACHED)
def test_an_impossible_form_is_refused_with_the_possible_ones(read: Callable[..., Any], as_: Any) -> None:
    with pytest.raises(ReadError):
        read(FakeCache([WEB], {"pods": ""}), "pods", as_=as_)


@each_row(
    "as_",
    [
        model("V1Secret"),
        model("V2Pod"),
        model("CoreV1Event"),
        model("VersionInfo"),
        type("Job", (APIObject,), {"version": "batch/v1", "endpoint": "jobs"}),
        type("Pods", (APIObject,), {"version": "v2", "endpoint": "pods"}),
    ],
)
def test_a_class_of_another_kind_or_version_is_refused(as_: Any) -> None:
    with pytest.raises(ReadError):
        reading("", WEB).get("pods", "web-1", namespace="ns", as_=as_)


@pytest.mark.parametrize("as_", [later, AsyncCall(), partial(later)])
def test_an_async_form_is_refused_also_where_there_is_no_object(as_: Any) -> None:
    with pytest.raises(ReadError):
        reading("").list_cached("pods", as_=as_)


@each_row(
    ("as_", "known"),
    [
        (earlier("V1PodList", {}, {}), EARLIER),
        (earlier("V1ObjectMeta", {}, {}), EARLIER),
        (earlier("V1ConfigMap", {}, {}), EARLIER),
        (type("CoreV1Api", (), {"__module__": "kubernetes_asyncio.client.api.core_v1_api"}), EARLIER),
        (
            type("ConfigMap", (APIObject,), {"version": "v1", "endpoint": "configmaps"}),
            {"pykube.objects": [Pod]},
        ),
        (type("HTTPClient", (), {"__module__": "pykube.http"}), {"pykube.objects": [Pod]}),
    ],
)
@each_row("read", CACHED)
def test_a_wrong_class_is_reported_with_the_right_one(
    read: Callable[..., Any], as_: Any, known: dict[str, list[type]]
) -> None:
    with imported(known), pytest.raises(ReadError):
        read(FakeCache([WEB], {"pods": ""}), "pods", as_=as_)


def test_an_object_that_a_client_cannot_read_is_reported_without_a_value() -> None:
    class V1Strict(V1Pod):  # type: ignore[misc]  # The class is given as Any.
        @classmethod
        def from_dict(cls, obj: Obj) -> Any:
            raise ValueError(f"canary: {obj}")

    with pytest.raises(
        ReadError,
        match=r"^ns/web-1 can't be read as V1Strict: the client raised ValueError.\nRead it as a dict",
    ) as info:
        reading("", WEB).get(V1Strict, "web-1", namespace="ns")
    assert "canary" not in str(info.value)
    assert info.value.__context__ is info.value.__cause__ is None


def test_the_place_of_an_error_in_a_client_is_shown_and_not_the_value() -> None:
    class ValidationError(ValueError):
        """As pydantic has it."""

        title = "V1ContainerStatus"

        def errors(self) -> list[dict[str, Any]]:
            return [{"loc": ("image", 0), "type": "missing", "input": "canary", "msg": "canary"}]

    class V1Strict(V1Pod):  # type: ignore[misc]  # The class is given as Any.
        @classmethod
        def from_dict(cls, _: Obj) -> Any:
            raise ValidationError("canary")

    with pytest.raises(
        ReadError,
        match=r"the client raised ValidationError for V1ContainerStatus: image\.0 missing\.\nRead it",
    ) as info:
        reading("", WEB).get("pods", "web-1", namespace="ns", as_=type("V1Pod", (V1Strict,), {}))
    assert "canary" not in str(info.value)


# ---- A part of an object becomes an object that says so.


@each_row(
    "projection",
    [
        Projection.of(drop=["status", "spec.containers.env"]),
        Projection.of(keep=["spec.nodeName"]),
        Projection.of(transform=partial(dict)),
    ],
)
@each_row("as_", [current("V1Pod", {}, {}), Pod])
@each_row(
    "read",
    [
        lambda cache, **given: cache.get("pods", "web-1", namespace="ns", **given),
        lambda cache, **given: cache.list("pods", labels="app=web", **given),
        lambda cache, **given: cache.list_cached("pods", **given),
        lambda cache, **given: cache.list_cached("pods", owner=OWNER, **given),
        lambda cache, **given: cache.fetch("pods", "web-1", namespace="ns", **given),
        lambda cache, **given: cache.fetch("pods", "db-1", namespace="ns", **given),
        lambda cache, **given: cache.fetch_list("pods", **given),
        lambda cache, **given: cache.fetch_list("pods", labels="app=db", **given),
        lambda cache, **given: cache.wait_for("pods", bool, **given),
    ],
)
@with_environment
async def test_13_where_a_part_is_stored_every_read_of_a_class_says_so(
    environment: Environment, read: Callable[..., Any], as_: Any, projection: Projection
) -> None:
    environment.declare("app=web", projection=projection).hold(WEB)
    environment.server.answer(PATH, pod("db-1"))
    listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "10"}}
    environment.server.answer(LIST, {**listed, "items": [pod("db-1", app="db")]})
    with imported({"kubernetes.client.models": []}):
        found = read(environment.cache(), as_=as_)
        found = await found if isawaitable(found) else found
    (one,) = found if isinstance(found, list) else [found]
    assert isinstance(one, as_)
    assert one.partial == str(projection)


@each_row("read", CACHED)
def test_where_a_part_is_stored_it_is_returned_in_any_other_form(read: Callable[..., Any]) -> None:
    cache = FakeCache([WEB], {"pods": Cached("", drop=["status"])})
    part = read(cache, "pods")
    assert "status" not in part
    assert (
        read(cache, "pods", as_="view")
        == json.loads(read(cache, "pods", as_=bytes))
        == read(cache, "pods", as_=dict)
        == part
    )


@with_environment
async def test_whole_ones_are_asked_for(environment: Environment) -> None:
    environment.declare("", projection=Projection.of(drop=["status"])).hold(WEB)
    environment.server.answer(PATH.replace("db-1", "web-1"), WEB)
    environment.server.answer(
        LIST, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "10"}, "items": [WEB]}
    )
    assert vars(await environment.cache().fetch(V1Pod, "web-1", namespace="ns", whole=True)) == WEB
    assert [vars(each) for each in await environment.cache().fetch_list(V1Pod, whole=True)] == [WEB]


# ---- Advice keeps what was asked for.


@each_row(
    "read",
    [
        lambda cache: cache.get(V1Pod, "x", namespace="ns"),
        lambda cache: cache.get("pods", "x", namespace="ns", as_=V1Pod),
        lambda cache: cache.get("pods", "x", namespace="ns", as_="view"),
        lambda cache: cache.get("pods", "x", namespace="ns", as_=name_of),
        lambda cache: cache.list(Pod),
        lambda cache: cache.list("pods", as_=bytes),
    ],
)
@with_environment
async def test_the_suggested_read_has_the_form_as_well(
    environment: Environment, read: Callable[[Cache], Any]
) -> None:
    environment.declare("app=web").hold()
    with pytest.raises(OutsideFilter):
        read(environment.cache())
