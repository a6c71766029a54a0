"""Calls that do not fit a method of the cache, which Python alone would explain by private classes and no way
out.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import Caches, SelectCacheError
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.live import Live
from kopf_selectcache.testing import FakeCache
from tests.rows import each_row
from tests.told import told

from .environment import pod

UNKNOWN = "got an unexpected keyword argument"
ALL = {name: getattr(Cache, name) for name in dir(Cache) if not name.startswith("_")}
VERBS = sorted(name for name, each in ALL.items() if callable(each))
OPEN = {"add_index", "change", "declare", "plan"}
"""They take names of indexes, or the options of `Cached`, which names them itself."""
WRITES = sorted(name for name in vars(Live) if not name.startswith("_"))


def said(call: Callable[[Any], Any]) -> str:
    """Return what a call of a cache raises, on its loop; empty if it raises nothing."""

    async def main() -> str:
        try:
            answer = call(FakeCache([pod("web-1", app="web")], {"pods": "app=web"}))
            if inspect.isawaitable(answer):
                await answer
        except (TypeError, SelectCacheError) as error:
            return told(error)
        return ""

    return asyncio.run(main())


@each_row("name", sorted({*VERBS} - OPEN))
def test_20_each_verb_names_itself_and_an_argument_that_it_does_not_have(name: str) -> None:
    text = said(lambda cache: getattr(cache, name)("pods", "web-1", nothing=1))
    assert text.startswith(f"cache.{name}() {UNKNOWN} 'nothing'. ")


@each_row("name", WRITES)
def test_20_each_write_names_itself_and_an_argument_that_it_does_not_have(name: str) -> None:
    given = ("pods", "web-1") if name in ("get", "delete", "patch", "update") else ("pods",)
    text = said(lambda cache: getattr(cache.live, name)(*given, nothing=1))
    assert text.startswith(f"cache.live.{name}() {UNKNOWN} 'nothing'. ")


@each_row("name", sorted({*VERBS} - {"snapshot", "wait_synced"}))  # They need no arguments.
def test_20_each_verb_names_itself_without_arguments(name: str) -> None:
    assert said(lambda cache: getattr(cache, name)()).startswith(f"cache.{name}()")


@each_row(
    "name", ["list", "list_cached", "count", "list_outside", "explain", "changes", "fetch_list", "live.list"]
)
@each_row("argument", ["label", "lable", "label_selector"])
def test_20_reads_of_several_objects_name_the_intended_argument(name: str, argument: str) -> None:
    def call(cache: Any) -> Any:
        of, _, verb = name.rpartition(".")
        return getattr(cache.live if of else cache, verb)("pods", **{argument: "app=web"})

    assert said(call) == f"cache.{name}() {UNKNOWN} '{argument}'. Did you mean labels=?"


@each_row(
    ("call", "way"),
    [
        (lambda cache: cache.list("pods", ns="shop"), "Did you mean namespace=?"),
        (lambda cache: cache.list("pods", when=len), "[obj for obj in cache.list(...) if ...]"),
        (lambda cache: cache.list("pods", annotations={"a": "b"}), "where={('metadata', 'annotations',"),
        (lambda cache: cache.list("pods", field="spec.nodeName", value="a"), "where={'spec.replicas':"),
        (lambda cache: cache.changes("pods", field="spec.x", new=1), "where={'spec.replicas':"),
        (lambda cache: cache.fetch_list("pods", old="a"), "where={'spec.nodeName':"),
        (lambda cache: cache.get("pods", "web-1", field="spec.x"), "cache.list(kind, labels=...)"),
        (lambda cache: cache.wait_for("pods", bool, value=1), "It takes kind, predicate, "),
        (lambda cache: cache.fetch_list("pods", owner={}), "To list the objects of an owner: cache"),
        (
            lambda cache: cache.get("pods", "web-1", labels="app=web"),
            "To select objects: cache.list(kind, labels=...)",
        ),
        (
            lambda cache: cache.live.get("pods", "a", labels="b"),
            "To select objects: cache.live.list(kind, labels=...)",
        ),
        (lambda cache: cache.get("pods", "web-1", namspace="ns"), "Did you mean namespace=?"),
        (lambda cache: cache.get("pods", "web-1", "ns", None), "namespace='ns') Check"),
        (lambda cache: cache.changes("pods", left=True), "Look at `change.cause`"),
        (lambda cache: cache.list("pods", "shop"), "Write: cache.list('pods', namespace='shop')"),
        (lambda cache: cache.list("pods", "a=b"), "Write: cache.list('pods', labels='a=b')"),
        (lambda cache: cache.list(b"pods", "a"), "It takes kind, as_=, namespace=, labels=, "),
        (lambda cache: cache.list("pods", 5), "It takes kind, as_=, namespace=, labels=, "),
        (lambda cache: cache.declare("v1/jobs", labels="a=b"), "Write: cache.declare('v1/jobs', 'a=b')"),
        (lambda cache: cache.plan("pods", name="a"), "Write: cache.plan('pods', Selector(names=...))"),
        (lambda cache: cache.plan("pods", "app=web", nothing=1), "It takes kind, filter, "),
        (lambda cache: cache.list("pods", method="x"), "It takes kind, as_=, namespace=, labels=, "),
        (lambda cache: cache.snapshot(kinds=["pods"]), "It takes *kinds"),
        (lambda cache: cache.live.patch("pods", "web-1", namespace="ns", body={}), "Did you mean changes=?"),
        (
            lambda cache: cache.live.patch("pods", "web-1", {}, namespace="ns", dryrun=True),
            "Did you mean dry_run=?",
        ),
    ],
)
def test_20_a_call_that_does_not_fit_names_the_way_out(call: Callable[[Any], Any], way: str) -> None:
    text = said(call)
    assert way in text


def test_20_a_snapshot_says_that_its_with_is_not_async() -> None:
    async def enter(cache: Any) -> None:
        async with cache.snapshot("pods"):
            pass

    assert said(enter).endswith("Write: with cache.snapshot('pods', 'configmaps') as now")


def test_20_a_second_cache_says_that_its_with_is_async() -> None:
    caches: Any = Caches({"pods": "app=web"})
    with pytest.raises(TypeError) as info, caches:
        pass
    assert str(info.value).endswith("Write: async with Caches(...) as cache")


@each_row("name", ["get", "exists", "list", "list_cached", "count", "list_outside"])
def test_reads_that_answer_at_once_are_not_wrapped(name: str) -> None:
    assert inspect.unwrap(ALL[name]) is ALL[name], "a wrapper takes a tenth of the time of a read"


def test_20_an_unknown_read_names_reads_that_exist() -> None:
    cache = FakeCache()
    with pytest.raises(AttributeError) as raised:
        cache.query  # type: ignore[attr-defined]  # noqa: B018  # It raises.
    (way,) = raised.value.__notes__
    assert way == "To read: get, list, list_cached, count, info, fetch, fetch_list"
    assert all(hasattr(cache, name) for name in way.removeprefix("To read: ").split(", "))


@each_row("use", [lambda cache: cache["pods"], list, lambda cache: "pods" in cache])
def test_20_a_cache_that_is_used_as_a_dict_names_its_reads(use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="a cache isn't a dict") as raised:
        use(FakeCache())
    assert "cache.get(kind, name, namespace=...)" in "".join(raised.value.__notes__)


def test_20_a_write_that_is_given_an_object_says_to_name_it() -> None:
    cache = FakeCache([pod("web-1", app="web")], {"pods": "app=web"})
    with pytest.raises(TypeError, match="an object instead of a kind and a name") as caught:
        cache.blocking.live.patch(pod("web-1"), "web-1", {})  # type: ignore[call-overload]
    assert caught.value.__notes__[0].startswith("Name the object: cache.live.patch(")
