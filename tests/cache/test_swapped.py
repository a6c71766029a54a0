"""Names that were probably meant otherwise: the name and the namespace swapped, and copied placeholders."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import Cached, Key, LabelSelector, OutsideFilter, ReadError, Selector
from kopf_selectcache.errors import NotFound
from kopf_selectcache.testing import FakeCache
from tests.cache.environment import pod
from tests.rows import each_row

MEANT = "Did you mean name='web-1', namespace='shop'?"
TENANT = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"tenant": "yes"}}}
FILTERS = {
    "everything": "",
    "a label": "app=web",
    "a namespace": Selector(namespaces=["shop"]),
    "namespaces by label": Selector(namespaces=LabelSelector.parse("tenant=yes")),
    "a split cache": Cached("app=web", outside="metadata"),
}


def cached(filter_: Any = "") -> FakeCache:
    return FakeCache([pod("web-1", "shop", app="web"), TENANT], {"v1/pods": filter_})


@each_row("filter_", FILTERS)
def test_20_a_name_and_a_namespace_that_are_swapped_are_reported(filter_: str) -> None:
    cache = cached(FILTERS[filter_])
    assert cache.get("pods", "web-1", namespace="shop")
    for name, namespace in (("shop", "web-1"), (Key("shop", namespace="web-1"), None)):
        with pytest.raises((NotFound, OutsideFilter)) as caught:
            cache.get("pods", name, namespace=namespace)
        assert pickle.loads(pickle.dumps(caught.value)).__notes__[0] == MEANT


def test_20_only_an_object_that_is_cached_is_proposed() -> None:
    with pytest.raises(NotFound) as caught:
        cached().get("pods", "web-2", namespace="shop")
    assert caught.value.__notes__ == ["If it may not exist, give a default"]
    with pytest.raises(OutsideFilter) as hidden:
        cached("app=web").exists("pods", "shop", namespace="web-1")
    assert hidden.value.__notes__[0] == MEANT


COPIED: dict[str, Callable[..., Any]] = {
    "get": lambda cache, **given: cache.get("pods", "web-1", **given),
    "get with a default": lambda cache, **given: cache.get("pods", "web-1", default=None, **given),
    "get by a key": lambda cache, **given: cache.get("pods", Key("web-1", **given)),
    "exists": lambda cache, **given: cache.exists("pods", "web-1", **given),
    "fetch": lambda cache, **given: cache.blocking.fetch("pods", "web-1", **given),
    "is_deleted": lambda cache, **given: cache.blocking.is_deleted("pods", "web-1", **given),
    "why": lambda cache, **given: cache.blocking.why("pods", "web-1", **given),
    "live.get": lambda cache, **given: cache.blocking.live.get("pods", "web-1", **given),
    "list": lambda cache, **given: cache.list("pods", **given),
}


@each_row("call", COPIED)
def test_20_each_read_refuses_a_text_that_can_be_no_namespace(call: str) -> None:
    for namespace in ("<namespace>", "...", "Shop"):
        for filter_ in ("", "app=web"):
            with pytest.raises(ReadError) as caught:
                COPIED[call](cached(filter_), namespace=namespace)
            assert f"(): namespace= has {namespace!r}, which can't be the name of a namespace" in str(
                caught.value
            )
