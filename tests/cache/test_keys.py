"""Keys in place of names, and `namespace=` by keyword alone, in every read and write of one object."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import Cache, Key
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import Live, PinnedReads
from tests.cache.environment import node, pod
from tests.rows import each_row
from tests.told import told

WEB, ABSENT = Key("web-1", namespace="shop"), Key("web-9", namespace="shop")
CHANGED, MADE = "changes={...}", "function=function"
CHANGES = {"metadata": {"labels": {"seen": "yes"}}}


def label(obj: dict[str, Any]) -> None:
    obj["metadata"]["labels"] = {"seen": "yes"}


def get_pinned(cache: FakeCache, name: Any, **given: Any) -> Any:
    with cache.snapshot("pods", "nodes") as now:
        return now.get("pods", name, **given)


READS: dict[str, Callable[..., Any]] = {
    "get": lambda cache, name, **given: cache.get("pods", name, **given),
    "get, a view": lambda cache, name, **given: cache.get("pods", name, as_="view", **given),
    "get, of a snapshot": get_pinned,
    "exists": lambda cache, name, **given: cache.exists("pods", name, **given),
    "fetch": lambda cache, name, **given: cache.blocking.fetch("pods", name, **given),
    "is_deleted": lambda cache, name, **given: cache.blocking.is_deleted("pods", name, **given),
    "why": lambda cache, name, **given: cache.blocking.why("pods", name, **given).standing,
    "live.get": lambda cache, name, **given: cache.blocking.live.get("pods", name, **given),
}
WRITES: dict[str, Callable[..., Any]] = {
    "live.patch": lambda cache, name, **given: cache.blocking.live.patch("pods", name, CHANGES, **given),
    "live.update": lambda cache, name, **given: cache.blocking.live.update("pods", name, label, **given),
    "live.delete": lambda cache, name, **given: cache.blocking.live.delete(
        "pods", name, grace_period=0, **given
    ),
}
WAITS: dict[str, Callable[..., Any]] = {
    "wait_deleted": lambda cache, name, **given: cache.blocking.wait_deleted("pods", name, **given)
}
CALLS = {**READS, **WRITES, **WAITS}


def cached() -> FakeCache:
    return FakeCache([pod("web-1", "shop"), node("n1")], {"v1/pods": "", "v1/nodes": ""})


@each_row("call", CALLS)
def test_a_key_with_a_namespace_beside_it_is_refused_with_the_correct_call(call: str) -> None:
    with pytest.raises(TypeError) as caught:
        CALLS[call](cached(), WEB, namespace="shop")

    verb = call.partition(",")[0]
    assert str(caught.value).startswith(f"cache.{verb}()")
    assert f"Write: cache.{verb}('pods', Key('web-1', namespace='shop')" in told(caught.value)


@each_row("call", CALLS)
def test_a_pair_is_refused_with_the_correct_call(call: str) -> None:
    with pytest.raises(TypeError) as caught:
        CALLS[call](cached(), ("shop", "web-1"))

    verb, text = (
        call.partition(",")[0],
        told(caught.value).replace(f", {CHANGED}", "").replace(f", {MADE}", ""),
    )
    call = f"Write: cache.{verb}('pods', name='web-1', namespace='shop')"
    assert text.endswith(f"{call} Check which of the two is the namespace")


@each_row("pair", [("shop", "web-1", "pods"), ("", "web-1"), (1, 2), ()])
def test_an_argument_that_is_no_pair_either_is_refused_without_values(pair: object) -> None:
    with pytest.raises(TypeError) as caught:
        cached().get("pods", pair)  # type: ignore[call-overload]  # The mistake.
    assert "Write: cache.get('pods', name, namespace=namespace)" in told(caught.value)


@each_row("call", CALLS)
def test_a_key_without_a_namespace_is_refused_for_a_namespaced_kind(call: str) -> None:
    with pytest.raises(ValueError, match="pods are namespaced, and the key web-1 has no namespace"):
        CALLS[call](cached(), Key("web-1"))


@each_row(
    "call",
    [
        lambda cache, key: cache.get("nodes", key),
        lambda cache, key: cache.exists("nodes", key),
        lambda cache, key: cache.blocking.fetch("nodes", key),
        lambda cache, key: cache.blocking.why("nodes", key),
        lambda cache, key: cache.blocking.live.get("nodes", key),
        lambda cache, key: cache.blocking.live.patch("nodes", key, CHANGES),
        lambda cache, key: cache.blocking.live.delete("nodes", key),
    ],
)
def test_a_key_with_a_namespace_is_refused_for_a_cluster_scoped_kind(call: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="nodes are cluster-scoped, and the key shop/n1 has a namespace"):
        call(cached(), Key("n1", namespace="shop"))


@each_row(
    ("verb", "args", "given", "text"),
    [
        ("get", ("web-1", "shop"), {}, "cache.get('pods', name='web-1', namespace='shop')"),
        ("get", ("a", "b"), {"default": None}, "cache.get('pods', name='a', namespace='b', default=None)"),
        ("fetch", ("a", "b"), {"default": 5}, "cache.fetch('pods', name='a', namespace='b', default=...)"),
        ("get", ("web-1", 5), {}, "cache.get('pods', 'web-1', namespace=namespace)"),
        ("get", (WEB, "shop"), {}, "cache.get('pods', Key('web-1', namespace='shop'))"),
        ("exists", ("a", "b"), {}, "cache.exists('pods', name='a', namespace='b')"),
        ("fetch", ("a", "b"), {}, "cache.fetch('pods', name='a', namespace='b')"),
        ("is_deleted", ("a", "b"), {}, "cache.is_deleted('pods', name='a', namespace='b')"),
        ("wait_deleted", ("a", "b"), {}, "cache.wait_deleted('pods', name='a', namespace='b')"),
        ("why", ("a", "b"), {}, "cache.why('pods', name='a', namespace='b')"),
        ("live.get", ("a", "b"), {}, "cache.live.get('pods', name='a', namespace='b')"),
        ("live.delete", ("a", "b"), {}, "cache.live.delete('pods', name='a', namespace='b')"),
        ("live.patch", ("a", "b", {}), {}, f"cache.live.patch('pods', name='a', {CHANGED}, namespace='b')"),
        (
            "live.patch",
            ("a", "b"),
            {"changes": {}},
            f"cache.live.patch('pods', name='a', {CHANGED}, namespace='b')",
        ),
        ("live.update", ("a", "b", dict), {}, f"cache.live.update('pods', name='a', {MADE}, namespace='b')"),
    ],
)
def test_a_positional_namespace_is_refused_with_the_call_to_write(
    verb: str, args: tuple[Any, ...], given: dict[str, Any], text: str
) -> None:
    async def main() -> None:
        method: Any = cached()
        for name in verb.split("."):
            method = getattr(method, name)
        await method("pods", *args, **given)

    with pytest.raises(TypeError) as caught:
        asyncio.run(main())

    check = " Check which of the two is the namespace." if "name='" in text else ""
    assert f". Write: {text}{check}" in f"{told(caught.value)}."


@each_row("call", CALLS)
def test_a_name_with_a_slash_is_refused_with_the_likely_arguments(call: str) -> None:
    with pytest.raises(Exception, match=r"Did you mean name='web-1', namespace='shop'\?"):
        CALLS[call](cached(), "shop/web-1")


def test_each_namespace_is_given_by_keyword() -> None:
    positional = {
        f"{owner.__name__}.{name}"
        for owner in (Cache, Live, PinnedReads)
        for name, method in inspect.getmembers(owner, callable)
        if not name.startswith("_")
        for parameter in inspect.signature(method).parameters.values()
        if parameter.name == "namespace" and parameter.kind is not parameter.KEYWORD_ONLY
    }
    assert positional == set()
