"""Objects of which only a part is stored say so, and are not written back."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kopf_selectcache import Cached, InvalidObject, Selector
from kopf_selectcache.errors import NotKept
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import BodyView, PartialObject
from tests.rows import each_row

Obj = dict[str, Any]
SELECTED = "app=web"
OPTIONS: list[Any] = [
    {"metadata_only": True},
    {"keep": ["metadata"]},
    {"drop": ["spec"]},
    {"transform": lambda obj: {key: obj[key] for key in ("apiVersion", "kind", "metadata")}},
]


def pod(name: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]},
    }


def cache_of(filter_: Any = SELECTED, **options: Any) -> FakeCache:
    return FakeCache([pod("web-1")], {"v1/pods": Cached(filter_, **options)})


READS: list[Callable[[FakeCache], Any]] = [
    lambda cache: cache.get("pods", "web-1", namespace="shop"),
    lambda cache: cache.get("pods", "web-1", namespace="shop", max_age=60),
    lambda cache: cache.get("pods", "web-1", namespace="shop", as_="view"),
    lambda cache: cache.list("pods", labels=SELECTED)[0],
    lambda cache: next(iter(cache.list_cached("pods"))),
    lambda cache: cache.list_cached("pods", where={"metadata.name": "web-1"}, as_=lambda obj: obj)[0],
    lambda cache: cache.list("pods", labels=SELECTED, sort_by="metadata.name")[0],
    lambda cache: cache.list_cached("pods", as_="view")[0],
    lambda cache: cache.list_cached("pods", as_=lambda obj: obj)[0],
    lambda cache: cache.blocking.fetch("pods", "web-1", namespace="shop"),
    lambda cache: cache.blocking.fetch_list("pods")[0],
    lambda cache: cache.blocking.wait_for("pods", lambda _: True),
    lambda cache: asyncio.run(first_change(cache)),
]


def part_of(found: object) -> str:
    return getattr(found, "partial", "")


async def first_change(cache: FakeCache) -> Any:
    return (await anext(cache.changes("pods"))).new


@each_row("read", READS)
def test_13_every_read_of_a_part_says_so(read: Callable[[FakeCache], Any]) -> None:
    for options in OPTIONS:
        cache = cache_of(**options)
        found = read(cache)
        assert part_of(found) == cache.explain("pods").partial != ""
        assert isinstance(found, (PartialObject, BodyView))
        with pytest.raises(NotKept):
            found["spec"]
        assert "spec" not in found
        if "transform" in options:
            assert found.get("spec") is None, "nobody knows what the function leaves out"
            continue
        with pytest.raises(NotKept):
            found.get("spec")


def test_a_whole_object_is_a_plain_dict_or_a_view_without_a_part() -> None:
    for options in ({}, {"drop": ["metadata.managedFields"]}):
        cache = cache_of(**options)
        assert type(cache.get("pods", "web-1", namespace="shop")) is dict
        assert type(cache.list_cached("pods")[0]) is dict
        assert cache.get("pods", "web-1", namespace="shop", as_="view").partial == ""
        with pytest.raises(KeyError):
            cache.get("pods", "web-1", namespace="shop", as_="view")["other"]
    cache = cache_of(drop=["spec"])
    assert type(cache.blocking.fetch("pods", "web-1", namespace="shop", whole=True)) is dict
    assert type(cache.blocking.live.get("pods", "web-1", namespace="shop")) is dict


def test_13_a_part_is_equal_to_a_plain_dict_and_is_written_as_one() -> None:
    found = cache_of(drop=["spec"]).get("pods", "web-1", namespace="shop")
    plain = dict(found)
    assert type(plain) is dict
    assert found == plain
    assert json.loads(json.dumps(found)) == msgspec.json.decode(msgspec.json.encode(found)) == plain
    assert repr(found) == repr(plain)


@each_row(
    "made",
    [
        copy.copy,
        copy.deepcopy,
        lambda found: pickle.loads(pickle.dumps(found)),
        lambda found: found.copy(),
        lambda found: found | {"spec": {}},
        lambda found: {"spec": {}} | found,
    ],
)
def test_13_an_object_made_of_a_part_is_partial_as_well(made: Callable[[Any], Any]) -> None:
    found = cache_of(drop=["spec"]).get("pods", "web-1", namespace="shop")
    other = made(found)
    assert (type(other), part_of(other)) == (PartialObject, "drop=['spec']")
    assert other is not found
    other.pop("spec", None)
    assert other == found


def test_a_copied_view_is_partial_as_well_and_a_wrong_operand_is_refused() -> None:
    view = cache_of(drop=["spec"]).get("pods", "web-1", namespace="shop", as_="view")
    assert pickle.loads(pickle.dumps(view)).partial == "drop=['spec']"
    with pytest.raises(NotKept):
        view.spec["nodeName"]
    for read in (lambda: view.spec.get("nodeName"), lambda: dict(view.spec), lambda: len(view.spec)):
        with pytest.raises(NotKept):
            read()
    found: Any = cache_of(drop=["spec"]).get("pods", "web-1", namespace="shop")
    with pytest.raises(TypeError):
        found | 5
    with pytest.raises(TypeError):
        5 | found


NESTED: list[Any] = [
    {"keep": ["spec.nodeName", "spec.containers.name", "status", "other"]},
    {"drop": ["spec.hostNetwork", "spec.containers.image", "data"]},
]


@pytest.mark.parametrize("as_", [None, "view"])
@each_row("options", NESTED)
def test_13_a_member_of_which_a_part_is_stored_says_so(options: Any, as_: Any) -> None:
    cache = cache_of(Selector(SELECTED), **options)
    found: Any = cache.get("pods", "web-1", namespace="shop", as_=as_)
    spec, container = found["spec"], found["spec"]["containers"][0]
    for part, key in ((spec, "hostNetwork"), (container, "image"), (found, "data")):
        assert part_of(part) == cache.explain("pods").partial
        with pytest.raises(NotKept):
            part[key]
        with pytest.raises(NotKept):
            part.get(key, False)
    assert (spec["nodeName"], spec.get("nodeName"), container.get("name")) == ("n1", "n1", "main")
    for absent in (found, found["metadata"]):
        assert absent.get("other") is None, "it is stored, and the object has none"
    with pytest.raises(KeyError) as raised:
        found["other"]
    assert not isinstance(raised.value, NotKept)
    if as_ is not None:
        with pytest.raises(NotKept):
            found.spec.get("hostNetwork", False)
        assert (found.spec.get("nodeName"), found.spec["nodeName"]) == ("n1", "n1")
        assert (found.status.get("phase"), found.status.get("message", "none")) == ("Pending", "none")
        assert sorted(found.spec) == ["containers", "nodeName"]
        assert len(found.spec) == 2


@pytest.mark.parametrize("as_", [None, "view"])
def test_13_a_member_that_no_object_lost_is_only_missing(as_: Any) -> None:
    found: Any = cache_of(drop=["spec.hostNetwork"]).get("pods", "web-1", namespace="shop", as_=as_)
    with pytest.raises(KeyError) as raised:
        found["spec"]["priority"]
    assert not isinstance(raised.value, NotKept)
    assert found["spec"].get("priority", 0) == 0


def test_13_a_stored_member_that_an_object_does_not_have_is_empty_in_its_view() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"}}
    cache = FakeCache([config], {"v1/configmaps": Cached("", keep=["data", "status"])})
    view = cache.get("configmaps", "c", namespace="shop", as_="view")
    assert (dict(view.status), len(view.status), view.status.get("phase", "none")) == ({}, 0, "none")
    with pytest.raises(NotKept):
        len(view.spec)


def test_13_a_path_into_a_text_marks_nothing() -> None:
    metadata = {"name": "c", "namespace": "shop"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "text", "b": "x"}}
    given: list[Any] = [{"drop": ["data.a.c"]}, {"keep": ["data.a.c", "data.b"]}]
    for options in given:
        cache = FakeCache([config], {"v1/configmaps": Cached("", **options)})
        data = cache.get("configmaps", "c", namespace="shop")["data"]
        assert data == ({"a": "text", "b": "x"} if "drop" in options else {"b": "x"})
        assert data.get("a") == ("text" if "drop" in options else None)


@each_row("options", NESTED)
def test_13_a_copy_of_such_a_member_is_a_plain_dict_or_says_so(options: Any) -> None:
    cache = cache_of(Selector(SELECTED), **options)
    found = cache.get("pods", "web-1", namespace="shop")
    for other in (copy.deepcopy(found), found.copy(), found | {"kind": "Pod"}):
        with pytest.raises(NotKept):
            other["spec"].get("hostNetwork")
    assert json.loads(json.dumps(found)) == found
    for plain in (pickle.loads(pickle.dumps(found)), dict(found)):
        assert plain == found
        assert plain.get("data") is None, "it is not known any more"
    view = cache.get("pods", "web-1", namespace="shop", as_="view")
    assert copy.deepcopy(view).partial == view.partial
    with pytest.raises(NotKept):
        copy.deepcopy(view).get("data")
    copied = copy.deepcopy(view["spec"])
    assert (type(copied), type(copied["containers"]), type(copied["containers"][0])) == (dict, list, dict)
    with pytest.raises(NotKept):
        copy.deepcopy(found["spec"])["hostNetwork"]
    assert pickle.loads(pickle.dumps(view)).get("data") is None
    assert pickle.loads(pickle.dumps(found["spec"])) == found["spec"]


@each_row(
    "write",
    [
        lambda cache, obj: cache.blocking.live.replace(obj),
        lambda cache, obj: cache.blocking.live.apply(obj),
        lambda cache, obj: cache.blocking.live.create(obj),
        lambda cache, obj: cache.blocking.live.ensure(obj),
        lambda cache, obj: cache.blocking.live.update("pods", "web-1", lambda _: obj, namespace="shop"),
    ],
)
def test_13_no_write_of_a_whole_object_takes_a_part(write: Callable[[FakeCache, Any], object]) -> None:
    cache = cache_of(drop=["spec"])
    found = cache.get("pods", "web-1", namespace="shop")
    metadata = {key: value for key, value in found["metadata"].items() if key in ("name", "namespace")}
    stripped = copy.deepcopy(found) | {"metadata": metadata}
    for obj in (found, stripped, cache.get("pods", "web-1", namespace="shop", as_="view")):
        with pytest.raises(InvalidObject, match="only a part of the object is stored, drop="):
            write(cache, obj)
    assert cache.cluster.get(pod("web-1"))["spec"]["nodeName"] == "n1"


def test_a_subresource_of_a_part_is_written_if_it_is_stored() -> None:
    cache = cache_of(Selector(SELECTED), keep=["status"])
    found = cache.get("pods", "web-1", namespace="shop")
    found["status"]["message"] = "ready"
    made = cache.blocking.live.replace(found, subresource="status")
    assert made["status"]["message"] == "ready"
    assert "spec" in made
