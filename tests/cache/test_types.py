"""Type checkers and the reads: `make lint` has mypy look at this file, where each wrong line must be wrong to
it. Classes of other clients are in tests/clients/typed.py, which pyright looks at, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, assert_type

import kopf
import msgspec
import pytest

from kopf_selectcache import (
    Cache,
    Cached,
    Change,
    DeclarationError,
    InvalidObject,
    Key,
    Objects,
    ReadError,
    on,
    settings_of,
    with_cache,
)
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import BodyView

Obj = dict[str, Any]


class PodInfo:
    """A class of a user's own: called with an object, it makes one of its own."""

    def __init__(self, obj: Mapping[str, Any]) -> None:
        self.name: str = obj["metadata"]["name"]


class Wanted(msgspec.Struct):
    """The part of an object that somebody wants."""

    kind: str


def name_of(obj: Obj) -> str:
    name: str = obj["metadata"]["name"]
    return name


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = obj["metadata"].get("labels", {})
    return labels


OWNER = {"metadata": {"uid": "o-1"}}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "a",
        "namespace": "ns",
        "labels": {"app": "web"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o-1"}],
    },
}


@pytest.fixture
def cache() -> FakeCache:
    return FakeCache([POD], {"pods": ""})


def test_get(cache: FakeCache) -> None:
    found = cache.get("pods", "a", namespace="ns")
    assert_type(found, Obj)
    assert_type(cache.get("pods", "a", namespace="ns", default=None), Obj | None)
    assert_type(cache.get("pods", "a", namespace="ns", default=5, max_age=90), Obj | int)
    assert_type(cache.get(("v1", "pods"), "a", namespace="ns", as_="view"), BodyView)
    assert_type(cache.get("pods", "a", namespace="ns", as_="view", default=None), BodyView | None)
    assert_type(cache.get("pods", "a", namespace="ns", as_=bytes), bytes)
    assert_type(cache.get("pods", "a", namespace="ns", as_=bytes, default=None), bytes | None)
    assert_type(cache.get("pods", "a", namespace="ns", as_=name_of), str)
    assert_type(cache.get("pods", "a", namespace="ns", as_=labels_of, default=None), dict[str, str] | None)
    assert_type(cache.get("pods", "a", namespace="ns", as_=PodInfo), PodInfo)
    # A lambda is what is tested.
    assert_type(cache.get("pods", "a", namespace="ns", as_=lambda obj: len(obj)), int)  # noqa: PLW0108


def test_reads_of_several(cache: FakeCache) -> None:
    for read in (cache.list, cache.list_cached, cache.blocking.fetch_list):
        assert_type(read("pods", namespace="ns", labels={"app": "web"}, limit=5), Objects[Obj])
        assert_type(read("pods", as_="view"), Objects[BodyView])
        assert_type(read("pods", as_=bytes, sort_by="metadata.name"), list[bytes])
        assert_type(read("pods", as_=name_of), list[str])
        assert_type(read("pods", as_=PodInfo), list[PodInfo])
    for obj in cache.list_cached("pods"):
        assert_type(obj, Obj)
    chosen = cache.list("pods", labels={"app": ["web", "www"], "team": kopf.PRESENT, "old": kopf.ABSENT})
    assert_type(chosen, Objects[Obj])
    assert_type(
        cache.list("pods", fields={"spec.nodeName": kopf.PRESENT, "spec.hostNetwork": False}), Objects[Obj]
    )
    for keys in (cache.list("pods").keys(), cache.list_cached("pods", labels="app=web").keys()):
        assert_type(keys, list[Key])
    assert_type(cache.list("pods").keys(), list[Key])
    assert_type(cache.list("pods")[:2], Objects[Obj])
    assert_type(cache.get("pods", "a", namespace="ns", as_=Wanted), Wanted)
    assert_type(cache.list("pods", as_=Wanted), list[Wanted])
    assert_type(cache.list_cached("pods", owner=OWNER), Objects[Obj])
    assert_type(cache.list_cached("pods", owner=OWNER, as_="view"), Objects[BodyView])
    assert_type(cache.list_cached("pods", owner=OWNER, as_=name_of), list[str])


def test_mistakes_are_mistakes_to_type_checkers_as_well(cache: FakeCache) -> None:
    with pytest.raises(ReadError):
        cache.get("pods", "a", namespace="ns", as_="dict")  # type: ignore[call-overload]
    with pytest.raises(ReadError):
        cache.get("pods", "a", namespace="ns", as_=5)  # type: ignore[call-overload]
    with pytest.raises(ReadError):
        cache.list_cached("pods", as_="yaml")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        cache.list("pods", label="app=web")  # type: ignore[call-overload]
    with pytest.raises(ReadError):
        cache.get(5, "a")  # type: ignore[call-overload]
    with pytest.raises(ReadError):
        cache.list("pods", limit="5")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        cache.list_cached("pods", as_=lambda: 5)  # type: ignore[misc, arg-type]


def test_views_cannot_be_changed_to_type_checkers_either(cache: FakeCache) -> None:
    view = cache.get("pods", "a", namespace="ns", as_="view")
    with pytest.raises(TypeError):
        view["spec"] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        view.update(spec={})  # type: ignore[attr-defined]


def test_declarations_take_the_kinds_that_reads_take() -> None:
    select = settings_of(kopf.OperatorSettings()).selectors
    select["pods"] = "app=web"
    select |= {"nodes": Cached("", drop=["status"])}
    with_cache(kinds=["pods", ("batch", "v1", "jobs")])
    assert set(select) == {"pods", "nodes"}


class Model:
    """A class of another client, as far as type checkers know it."""


async def test_live(cache: FakeCache) -> None:
    live = cache.live
    assert_type(await live.get("pods", "a", namespace="ns"), Obj)
    assert_type(await live.get("pods", "x", namespace="ns", default=None, timeout=1), Obj | None)
    assert_type(await live.get("pods", "a", namespace="ns", as_="view"), BodyView)
    assert_type(await live.get("pods", "a", namespace="ns", as_=name_of), str)
    assert_type(await live.list("pods", namespace="ns"), Objects[Obj])
    assert_type(await live.list("pods", as_="view", limit=1), Objects[BodyView])
    assert_type(await live.list("pods", as_=PodInfo), list[PodInfo])
    made = await live.ensure(POD)
    assert_type(made, Obj)
    assert_type(await live.replace(made, as_="view"), BodyView)
    assert_type(await live.update("pods", "a", lambda obj: obj, namespace="ns"), Obj)
    assert_type(await live.patch("pods", "a", {}, namespace="ns", as_=name_of, dry_run=True), str)
    assert_type(await live.patch("pods", "a", [], namespace="ns", type="json"), Obj)
    with pytest.raises(InvalidObject):
        assert_type(await live.create(Model()), Model)
    with pytest.raises(InvalidObject):
        await live.patch("pods", "a", {}, namespace="ns", type="apply")  # type: ignore[call-overload]
    assert_type(await live.apply(POD), Obj)
    await live.delete("pods", "a", namespace="ns", propagation="background", timeout=5)


def test_live_in_threads(cache: FakeCache) -> None:
    live = cache.blocking.live
    assert_type(live.get("pods", "a", namespace="ns"), Obj)
    assert_type(live.get("pods", "a", namespace="ns", as_=bytes), bytes)
    assert_type(live.ensure(POD, as_=PodInfo), PodInfo)
    assert_type(live.list("pods", as_="view"), Objects[BodyView])
    live.delete("pods", "a", namespace="ns")


def test_a_decorated_handler_of_changes_keeps_its_type(registry: kopf.OperatorRegistry) -> None:
    @on.change("pods", labels="app=web", updated=False, retries=3, registry=registry)
    async def follow(cache: Cache, **_: Any) -> None:
        assert_type(cache.changes("pods"), AsyncIterator[Change])

    @on.change("pods", where={"spec.nodeName": "n1"}, registry=registry)
    def depart(name: str, **_: Any) -> int:
        return len(name)

    assert_type(depart("web-1"), int)
    assert callable(follow)


def test_wrong_arguments_of_handlers_of_changes_are_no_types(registry: kopf.OperatorRegistry) -> None:
    with pytest.raises(DeclarationError):
        on.change("pods", deleted="no", registry=registry)  # type: ignore[arg-type]
