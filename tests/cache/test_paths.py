"""Paths of reads: those that lead to nothing in any object, or into a list, are refused."""

from __future__ import annotations

from typing import Any

import kopf
import pytest

from kopf_selectcache import LabelSelector, ReadError, Selector
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.errors import NotKept
from tests.cache.environment import PODS, Environment, pod, reading, with_environment
from tests.rows import each_row

WEB = pod("web-1", app="web")

NOWHERE: list[tuple[Any, Any]] = [
    (".status.phase", "x"),
    ("$.status.phase", "x"),
    ("{.status.phase}", "x"),
    ("spec.containers[0].name", "x"),
    ("spec.containers[*].name", None),
    ("metadata.labels.app.kubernetes.io/name", "x"),
    ("metadata.annotations.example.com/x", "x"),
    ("spec..priority", 5),
    (("spec", "", "a.b"), 5),
    ("", 1),
    ((), 1),
    ("status.phase", Selector("a")),
    ("metadata.labels", LabelSelector.parse("a")),
    ("spec.x", ("a", "b")),
    ("spec.x", {"a", "b"}),
    ("spec.x", kopf.PRESENT),
    ("spec.x", str.isdigit),
]


@each_row(("path", "value"), NOWHERE)
def test_a_where_that_can_never_be_right_is_refused(path: Any, value: Any) -> None:
    with pytest.raises(ReadError):
        reading("", WEB).list("pods", where={path: value})


# ---- Into lists: only the objects tell.

LISTED = {**WEB, "spec": {"containers": [{"name": "c", "image": "i"}], "tags": ["a"]}}
IMAGE: dict[Any, Any] = {"spec.containers.image": "i"}


@pytest.mark.parametrize("path", ["spec", "spec.containers", ("metadata", "labels")])
def test_a_path_without_an_order_is_not_sorted_by(path: Any) -> None:
    with pytest.raises(ReadError):
        reading("", LISTED).list("pods", sort_by=path)


@with_environment
async def test_a_path_that_leads_into_a_list_of_a_fetched_object_is_refused(environment: Environment) -> None:
    environment.resources["pods"] = PODS
    environment.server.answer(
        "/api/v1/pods",
        {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [LISTED]},
    )
    with pytest.raises(ReadError):
        await environment.cache().fetch_list("pods", where=IMAGE)


def test_a_path_dropped_out_of_a_list_is_refused_when_it_is_stored_again() -> None:
    """The advice of NotKept leads to objects in which the path still leads nowhere: that is said, rather than
    nothing found."""
    with pytest.raises(NotKept):
        reading("", LISTED, projection=Projection.of(drop=["spec.containers.image"])).list_cached(
            "pods", where=IMAGE
        )
    with pytest.raises(ReadError):
        reading("", LISTED).list_cached("pods", where=IMAGE)


def test_a_list_that_is_compared_as_a_whole_is_no_way_into_it() -> None:
    cache = reading("", LISTED)
    assert cache.list_cached("pods", where={"spec.tags": ["a"]}) == [LISTED]
    assert cache.list_cached("pods", where={"spec.tags": None, "spec.nothing.at.all": None}) == []


@pytest.mark.parametrize("path", ["-metadata.name", ".metadata.name", "spec..x"])
def test_a_path_that_can_never_sort_is_refused(path: str) -> None:
    with pytest.raises(ReadError):
        reading("", WEB).list_cached("pods", sort_by=path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.tags", ["a"]),
        ("spec.map", {"a": 1}),
        ("metadata.labels.team/x", "y"),
        (("spec", "a[0]"), "x"),
        ("spec.constraint", ">=1.2"),
    ],
)
def test_a_plausible_value_is_compared_as_it_is(
    path: Any, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    spec = {"tags": ["a"], "map": {"a": 1}, "a[0]": "x", "constraint": ">=1.2", "equal": "==1"}
    obj = {**pod("x", **{"team/x": "y"}), "spec": spec}
    assert reading("", obj).list("pods", where={path: value}) == [obj]
    assert not caplog.records
