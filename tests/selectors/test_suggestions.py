"""Filters and reads that would be answered with nothing, for ever and without a word: refused, or told of
once in the log."""

from __future__ import annotations

import logging
import re
from typing import Any

import kopf
import pytest

from kopf_selectcache import LabelSelector, NotKept, ReadError, Selector
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.selection.resource import Resource
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


@pytest.mark.parametrize(("path", "value", "words"), NOWHERE)
def test_a_where_that_can_never_be_right_is_refused(path: Any, value: Any, words: str) -> None:
    with pytest.raises(ReadError, match=re.escape(words)):
        reading("", WEB).list("pods", where={path: value})


# ---- Into lists: only the objects tell.

LISTED = {**WEB, "spec": {"containers": [{"name": "c", "image": "i"}], "tags": ["a"]}}
IMAGE: dict[Any, Any] = {"spec.containers.image": "i"}


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (
            lambda cache: cache.list("pods", where=IMAGE),
            (
                "cache.list('pods', ...): 'spec.containers.image' leads nowhere: paths lead through dicts,"
                " not into lists, and pods ns/web-1 has a list at 'spec.containers'. Look into the lists"
                " yourself: [each for each in cache.list('pods') if ...]"
            ),
        ),
        (
            lambda cache: cache.held(
                "pods", label="app", where={"metadata.name": "web-1", "spec.containers.0.image": "i"}, limit=3
            ),
            (
                "has a list at 'spec.containers'. Look into the lists yourself: [each for each in"
                " cache.held('pods', label='app', where={'metadata.name': ...}, limit=3) if ...]"
            ),
        ),
        (
            lambda cache: cache.count("pods", where={"spec.containers.image": None}),
            "Look into the lists yourself: [each for each in cache.list('pods') if ...]",
        ),
        (
            lambda cache: cache.list("pods", sort_by="spec.containers.name"),
            (
                "'spec.containers.name' leads nowhere: paths lead through dicts, not into lists, and pods"
                " ns/web-1 has a list at 'spec.containers'. Sort by a function that looks into the list:"
                " sort_by=lambda obj: ..."
            ),
        ),
    ],
)
def test_a_path_that_leads_into_a_list_of_an_object_is_refused(read: Any, words: str) -> None:
    with pytest.raises(ReadError, match=re.escape(words)):
        read(reading("", LISTED))


@pytest.mark.parametrize(
    ("path", "has"), [("spec", "dict"), ("spec.containers", "list"), (("metadata", "labels"), "dict")]
)
def test_what_has_no_order_is_not_sorted_by(path: Any, has: str) -> None:
    with pytest.raises(ReadError) as info:
        reading("", LISTED).list("pods", sort_by=path)
    assert str(info.value).endswith(
        f"sorts nothing: pods ns/web-1 has a {has} there. Sort by a value: by a longer path, or by a"
        " function, sort_by=lambda obj: ..."
    )


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
            match=(
                r"has a list at 'spec.containers'.*\[each for each in await cache.fetch_list\('pods'\) if"
                r" \.\.\.\]"
            ),
        ):
            await world.cache().fetch_list("pods", where=IMAGE)

    run(main)


def test_a_path_that_was_dropped_out_of_a_list_is_refused_when_it_is_kept_again() -> None:
    """The advice of NotKept leads to objects in which the path still leads nowhere: that is said, rather than
    nothing found."""
    with pytest.raises(NotKept, match=r"Take 'spec\.containers\.image' out of drop="):
        reading("", LISTED, projection=Projection.of(drop=["spec.containers.image"])).held(
            "pods", where=IMAGE
        )
    with pytest.raises(ReadError, match="not into lists"):
        reading("", LISTED).held("pods", where=IMAGE)


def test_a_list_that_is_compared_as_a_whole_is_no_way_into_it() -> None:
    cache = reading("", LISTED)
    assert cache.held("pods", where={"spec.tags": ["a"]}) == [LISTED]
    assert cache.held("pods", where={"spec.tags": None, "spec.nothing.at.all": None}) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "-metadata.name",
            (
                "there is no descending order. Write sort_by='metadata.name', and turn the answer round:"
                " [...][::-1]"
            ),
        ),
        ("metadata.nme", "Did you mean 'metadata.name'?"),
        (".metadata.name", "Write 'metadata.name'"),
        ("name", "sort_by='name' sorts nothing: pods have it in their metadata. Write 'metadata.name'"),
        ("spec..x", "Write 'spec.x'"),
    ],
)
def test_a_path_that_can_never_sort_is_refused(path: str, words: str) -> None:
    with pytest.raises(ReadError, match=re.escape(words)):
        reading("", WEB).held("pods", sort_by=path)


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


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (
            {"label": "status.phase=Running,app=web"},
            "it looks like a field. If that is meant, write field='status.phase=Running'",
        ),
        ({"label": "metadata.name!=n1,x"}, "write field='metadata.name!=n1'"),
        (
            {"label": "spec.volumes=a"},
            "write where={'spec.volumes': 'a'} in a read: the server cannot select pods by it",
        ),
        (
            {"where": {"spec.nodeSelector.kubernetes.io/os": "linux"}},
            "If one of the keys has dots, write a tuple",
        ),
        (
            {"where": {"status": {"phase": "Failed"}}},
            (
                "compares the whole of status with a dict. If a part of it is meant, write"
                " where={'status.phase': ...}"
            ),
        ),
        (
            {"where": {"spec.constraint": "!=1.2"}},
            "compares with a text that begins with !=, and knows no operators",
        ),
    ],
)
def test_what_can_hardly_be_meant_is_said_once_and_answered(
    read: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = reading("", WEB)
    assert cache.list("pods", **read) == cache.held("pods", **read) == []
    (message,) = [record.getMessage() for record in caplog.records]
    assert words in message


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


def test_a_field_of_a_custom_resource_has_one_value() -> None:
    crd = {
        "spec": {
            "group": "x.io",
            "scope": "Namespaced",
            "names": {"kind": "Quota", "plural": "quotas"},
            "versions": [{"name": "v1", "selectableFields": [{"jsonPath": ".spec.mode"}]}],
        }
    }
    resource = Resource(Kind.custom(crd, "v1"), "v1")
    cache = reading("", resource=resource, key="quotas")
    with pytest.raises(ReadError, match="one value at a path"):
        cache.list("quotas", where={"spec.mode": ["a", "b"]})
    assert cache.list("quotas", where={"spec.mode": "==1.2"}) == [], "it may be a version"
