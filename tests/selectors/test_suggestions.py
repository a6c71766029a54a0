"""Filters and reads that would be answered with nothing, for ever and without a word: refused, or told of
once in the log."""

from __future__ import annotations

import logging
from typing import Any

import kopf
import pytest

from kopf_selectcache import LabelSelector, NotKept, ReadError, Selector
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.settings.declaration import Selectors
from tests.cache.world import PODS, World, pod, reading, run

WEB = pod("web-1", app="web")

NOWHERE: list[tuple[Any, Any, str]] = [
    (".status.phase", "x", "begin with the first. Write 'status.phase'"),
    ("$.status.phase", "x", "Write 'status.phase'"),
    ("{.status.phase}", "x", "Write 'status.phase'"),
    ("spec.containers[0].name", "x", "not into lists. Look into the lists yourself"),
    ("spec.containers[*].name", None, "not into lists"),
    (
        "metadata.labels.app.kubernetes.io/name",
        "x",
        "Write it as a tuple: ('metadata', 'labels', 'app.kubernetes.io/name')",
    ),
    ("metadata.annotations.example.com/x", "x", "('metadata', 'annotations', 'example.com/x')"),
    ("spec..priority", 5, "one of its keys is empty. Write 'spec.priority'"),
    (("spec", "", "a.b"), 5, "Write ('spec', 'a.b')"),
    ("", 1, "it has no key. Write keys with dots between them, such as 'spec.nodeName'"),
    ((), 1, "cache.list('pods', ...): where={(): ...} leads nowhere: it has no key"),
    (
        "Status.phase",
        "x",
        (
            "it begins with a capital, and keys of objects do not. Write 'status.phase'; or, if the key is"
            " written so, a tuple: ('Status', 'phase')"
        ),
    ),
    ("labels.app", "x", "pods have it in their metadata. Write 'metadata.labels.app'"),
    ("metadata.nme", "x", "metadata has no 'nme'. Did you mean 'metadata.name'?"),
    (("metadata", "creationTime"), "x", "Did you mean 'metadata.creationTimestamp'?"),
    (
        "status.phase",
        ["Running", "Pending"],
        "there is one value at a path. Compare yourself: [each for each in ... if ... in (...)]",
    ),
    ("status.phase", "!=Running", "without operators. Write field='status.phase!=Running'"),
    ("status.phase", "==Running", "Write field='status.phase=Running'"),
    ("status.phase", Selector("a"), "selects nothing. Write label=... or field=..."),
    ("metadata.labels", LabelSelector.parse("a"), "Write label=..."),
    ("spec.x", ("a", "b"), "objects hold what JSON has"),
    ("spec.x", {"a", "b"}, "objects hold what JSON has"),
    ("spec.x", kopf.PRESENT, "objects hold what JSON has"),
    ("spec.x", str.isdigit, "Compare yourself: [each for each in ... if ...]"),
]


# ---- Into lists: only the objects tell.

LISTED = {**WEB, "spec": {"containers": [{"name": "c", "image": "i"}], "tags": ["a"]}}
IMAGE: dict[Any, Any] = {"spec.containers.image": "i"}


@pytest.mark.parametrize(
    "read",
    [
        lambda cache: cache.list("pods", where=IMAGE),
        lambda cache: cache.held(
            "pods", label="app", where={"metadata.name": "web-1", "spec.containers.0.image": "i"}, limit=3
        ),
        lambda cache: cache.count("pods", where={"spec.containers.image": None}),
        lambda cache: cache.list("pods", sort_by="spec.containers.name"),
    ],
)
def test_a_path_that_leads_into_a_list_of_an_object_is_refused(read: Any) -> None:
    with pytest.raises(ReadError):
        read(reading("", LISTED))


@pytest.mark.parametrize("path", ["spec", "spec.containers", ("metadata", "labels")])
def test_what_has_no_order_is_not_sorted_by(path: Any) -> None:
    with pytest.raises(ReadError):
        reading("", LISTED).list("pods", sort_by=path)


def test_values_of_several_types_are_sorted_numbers_first() -> None:
    values = ["b", 10, None, "a", 2.5, True]
    cache = reading(
        "",
        *({**pod(f"p-{number}", app="web"), "spec": {"value": value}} for number, value in enumerate(values)),
    )
    assert [each["spec"]["value"] for each in cache.list("pods", sort_by="spec.value")] == [
        True,
        2.5,
        10,
        "a",
        "b",
        None,
    ]


def test_a_path_that_leads_into_a_list_of_what_is_fetched_is_refused() -> None:
    async def main(world: World) -> None:
        world.resources["pods"] = PODS
        world.server.answer(
            "/api/v1/pods",
            {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [LISTED]},
        )
        with pytest.raises(
            ReadError,
        ):
            await world.cache().fetch_list("pods", where=IMAGE)

    run(main)


def test_a_path_that_was_dropped_out_of_a_list_is_refused_when_it_is_kept_again() -> None:
    """The advice of NotKept leads to objects in which the path still leads nowhere: that is said, rather than
    nothing found."""
    with pytest.raises(NotKept):
        reading("", LISTED, projection=Projection.of(drop=["spec.containers.image"])).held(
            "pods", where=IMAGE
        )
    with pytest.raises(ReadError):
        reading("", LISTED).held("pods", where=IMAGE)


def test_a_list_that_is_compared_as_a_whole_is_no_way_into_it() -> None:
    cache = reading("", LISTED)
    assert cache.held("pods", where={"spec.tags": ["a"]}) == [LISTED]
    assert cache.held("pods", where={"spec.tags": None, "spec.nothing.at.all": None}) == []


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
def test_what_may_be_right_is_compared_as_it_is(
    path: Any, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    spec = {"tags": ["a"], "map": {"a": 1}, "a[0]": "x", "constraint": ">=1.2", "equal": "==1"}
    obj = {**pod("x", **{"team/x": "y"}), "spec": spec}
    assert reading("", obj).list("pods", where={path: value}) == [obj]
    assert not caplog.records


def test_a_label_that_is_named_like_a_field_is_a_label(caplog: pytest.LogCaptureFixture) -> None:
    odd = pod("odd", **{"status.phase": "x", "app": "web", "type": "y", "app.kubernetes.io/name": "z"})
    cache = reading("", odd)
    assert cache.list("pods", label="type=y,app.kubernetes.io/name=z,app=web") == [odd]
    assert not caplog.records
    assert cache.list("pods", label="status.phase=x") == [odd]


@pytest.mark.parametrize(
    ("key", "label", "words"),
    [
        (
            "v1/pods",
            "spec.nodeName=node01",
            (
                "The filter of v1/pods: spec.nodeName=node01 asks for a label of this name, and it looks like"
                " a field"
            ),
        ),
        ("v1/pods", "metadata.name=web", "If that is meant, write Selector(names=['web'])"),
        ("v1/pods", "metadata.name!=web", "If that is meant, write Selector(field='metadata.name!=web')"),
        ("example.com/v1/webapps", "spec.mode=enforce", "write Selector(field='spec.mode=enforce')"),
    ],
)
def test_a_field_declared_as_a_label_is_told_of(
    key: str, label: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kopf_selectcache"):
        Selectors()[key] = label
    assert words in caplog.text
    caplog.clear()
    Selectors()[key] = "app.kubernetes.io/name=web,type=x"
    assert not caplog.records
