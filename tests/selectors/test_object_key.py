"""`Key`: the name of one object, and its namespace."""

from __future__ import annotations

import asyncio
import copy
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from kopf_selectcache import Cached, Key
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import OutsideObject
from tests.cache.environment import pod
from tests.rows import each_row
from tests.told import told

WEB = Key("web-1", namespace="shop")


def test_a_key_prints_as_kubectl_names_objects_and_its_repr_runs() -> None:
    assert [str(WEB), f"{Key('node01')}"] == ["shop/web-1", "node01"]
    assert [repr(WEB), repr(Key("node01"))] == ["Key('web-1', namespace='shop')", "Key('node01')"]
    assert eval(repr(WEB)) == WEB  # A repr of ours.  # noqa: S307


def test_keys_are_values_that_sort_by_namespace_then_name() -> None:
    keys = [Key("a", namespace="shop"), Key("z", namespace="infra"), Key("b"), Key("a", namespace="infra")]

    assert [str(each) for each in sorted(keys)] == ["b", "infra/a", "infra/z", "shop/a"]
    assert max(keys) == keys[0]
    assert {WEB: 1}[Key("web-1", namespace="shop")] == 1
    assert Key("web-1") != WEB
    assert copy.deepcopy(WEB) == pickle.loads(pickle.dumps(WEB)) == WEB
    with pytest.raises(TypeError, match="not supported"):
        sorted([WEB, ("shop", "web-1")])  # type: ignore[type-var]  # The mistake.


def test_a_key_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        WEB.name = "web-2"  # type: ignore[misc]  # The mistake.


def test_a_key_is_no_pair() -> None:
    with pytest.raises(TypeError):
        _, _ = WEB  # type: ignore[misc]  # The mistake.
    pair: object = ("shop", "web-1")
    assert pair != WEB


@each_row(
    "obj",
    [
        {"metadata": {"name": "web-1", "namespace": "shop"}},
        FakeCache([pod("web-1", namespace="shop")], {"v1/pods": ""}).get("pods", "web-1", namespace="shop"),
        FakeCache([pod("web-1", namespace="shop")], {"v1/pods": ""}).get(
            "pods", "web-1", namespace="shop", as_="view"
        ),
        SimpleNamespace(name="web-1", namespace="shop"),
        SimpleNamespace(metadata=SimpleNamespace(name="web-1", namespace="shop")),
        SimpleNamespace(metadata={"name": "web-1", "namespace": "shop"}),
        OutsideObject("shop", "web-1", "uid", "1", {}, (), ()),
        WEB,
    ],
)
def test_objects_of_all_forms_have_a_key(obj: Any) -> None:
    assert Key.of(obj) == WEB


@each_row(
    ("name", "namespace", "error", "text"),
    [
        (("shop", "web-1"), None, TypeError, "Write: Key('web-1', namespace='shop')"),
        ("web-1", ["shop"], TypeError, "Write: Key('web-1', namespace='shop')"),
        ("shop/web-1", None, ValueError, "Did you mean name='web-1', namespace='shop'?"),
        ("/web-1", None, ValueError, "No object can have the name '/web-1'."),
        ("", None, ValueError, "No object can have the name ''."),
        ("web-1", "", ValueError, "For a cluster-scoped object, write: Key('web-1')"),
    ],
)
def test_a_key_that_no_object_can_have_is_refused_with_a_remedy(
    name: Any, namespace: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        Key(name, namespace=namespace)

    assert text in told(caught.value)


def test_20_a_key_takes_its_namespace_by_keyword() -> None:
    with pytest.raises(TypeError, match=r"^A Key takes its namespace by keyword\.") as caught:
        Key("web-1", "shop")  # type: ignore[arg-type]  # The mistake.

    assert caught.value.__notes__ == ["Write: Key('web-1', namespace='shop')"]


@each_row(
    ("obj", "error"),
    [(("shop", "web-1"), TypeError), ("web-1", TypeError), ({}, ValueError), (1, ValueError)],
)
def test_a_value_without_a_name_has_no_key(obj: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"Key\.of\(\)"):
        Key.of(obj)


def test_partial_objects_and_changes_have_a_key() -> None:
    async def main() -> list[Key]:
        cache = FakeCache([pod("web-1", namespace="shop")], {"v1/pods": Cached("", metadata_only=True)})
        async for change in cache.changes("pods"):
            return [Key.of(change), Key.of(cache.get("pods", WEB)), Key.of(change.body)]
        return []

    assert asyncio.run(main()) == 3 * [WEB]
