"""Strategic merge patches: lists are merged by a key, in the order that the real server finds."""

from typing import Any

import pytest

from kopf_selectcache.testing.api.status import Problem
from kopf_selectcache.testing.api.strategic import merged


def containers(*names: str) -> dict[str, Any]:
    return {"containers": [{"name": name, "image": name.upper()} for name in names]}


def order(obj: dict[str, Any]) -> str:
    return "".join(item["name"] for item in obj["containers"])


def test_an_item_is_changed_where_it_stands() -> None:
    result = merged(containers("a", "b", "c"), {"containers": [{"name": "b", "image": "X"}]})
    assert result["containers"] == [
        {"name": "a", "image": "A"},
        {"name": "b", "image": "X"},
        {"name": "c", "image": "C"},
    ]


def test_a_new_item_comes_first() -> None:
    assert order(merged(containers("a", "b"), {"containers": [{"name": "z"}]})) == "zab"


def test_an_item_can_be_removed() -> None:
    patch = {"containers": [{"name": "a", "$patch": "delete"}, {"name": "none", "$patch": "delete"}]}
    assert order(merged(containers("a", "b"), patch)) == "b"


def test_a_list_can_be_replaced() -> None:
    patch = {"containers": [{"$patch": "replace"}, {"name": "z", "image": None}]}
    assert merged(containers("a"), patch) == {"containers": [{"name": "z"}]}


def test_the_patch_can_set_the_order_and_others_stay_behind_their_predecessors() -> None:
    patch = {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
        "containers": [{"name": "c", "image": "X"}],
    }
    assert order(merged(containers("a", "b", "c"), patch)) == "bca"


def test_ports_of_containers_and_services_are_distinguished_by_their_own_fields() -> None:
    pod = {"containers": [{"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 81}]}]}
    changed = merged(pod, {"containers": [{"name": "a", "ports": [{"containerPort": 81, "name": "x"}]}]})
    assert changed["containers"][0]["ports"] == [{"containerPort": 80}, {"containerPort": 81, "name": "x"}]
    service = {"spec": {"ports": [{"port": 80}, {"port": 81}]}}
    changed = merged(service, {"spec": {"ports": [{"port": 81, "name": "x"}]}})
    assert changed["spec"]["ports"] == [{"port": 80}, {"port": 81, "name": "x"}]


def test_a_list_without_a_key_is_replaced() -> None:
    assert merged({"tolerations": [{"key": "x"}]}, {"tolerations": [{"key": "y"}]}) == {
        "tolerations": [{"key": "y"}]
    }


def test_finalizers_are_a_set_and_can_be_taken_out() -> None:
    result = merged({"finalizers": ["c", "d"]}, {"finalizers": ["e", "d"]})
    assert sorted(result["finalizers"]) == ["c", "d", "e"]
    assert merged({"finalizers": ["c", "d"]}, {"$deleteFromPrimitiveList/finalizers": ["c"]}) == {
        "finalizers": ["d"]
    }
    assert merged({"finalizers": ["c", "d"]}, {"$setElementOrder/finalizers": ["d", "c"]}) == {
        "finalizers": ["d", "c"]
    }


def test_retained_keys_are_all_that_stays() -> None:
    patch = {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}
    assert merged({"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}}, patch) == {
        "strategy": {"type": "Recreate"}
    }


def test_objects_are_merged_replaced_or_removed() -> None:
    obj = {"labels": {"a": "b"}}
    assert merged(obj, {"labels": {"c": "d"}}) == {"labels": {"a": "b", "c": "d"}}
    assert merged(obj, {"labels": {"a": None}}) == {"labels": {}}
    assert merged(obj, {"labels": {"$patch": "replace", "c": "d"}}) == {"labels": {"c": "d"}}
    assert merged(obj, {"labels": {"$patch": "delete"}}) == {}
    assert obj == {"labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"containers": [{"image": "k"}]}, "map: map[image:k] does not contain declared merge key: name"),
        ({"$patch": "frob"}, "unknown patch type: frob in map: map[$patch:frob]"),
    ],
)
def test_a_patch_that_cannot_be_applied_is_an_internal_error_as_in_the_real_server(
    patch: dict[str, Any], message: str
) -> None:
    with pytest.raises(Problem) as caught:
        merged(containers("a"), patch)
    assert (caught.value.code, caught.value.message) == (500, message)
