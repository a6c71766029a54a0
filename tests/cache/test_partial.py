"""Reads of objects of which only a part is kept: what was dropped cannot be asked for, and selectors answer
as if nothing were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.selection.kinds import BUILT_IN, Kind, Resource
from kopf_selectcache.core.store.projection import Keys, Path, Projection
from kopf_selectcache.errors import NotKept
from kopf_selectcache.selectors.selector import Selector
from tests.rows import each_row

from .environment import Environment, Obj, names, pod, reading, with_environment

NO_STATUS = Projection.of(drop=["status"])
POD = pod("web-1", app="web", owner="o-1")
CUT = {key: value for key, value in POD.items() if key != "status"}
PATH, LIST = "/api/v1/namespaces/ns/pods/web-1", "/api/v1/pods"


def listed(*objects: Obj) -> Obj:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "10"}, "items": [*objects]}


# ---- What was dropped cannot be asked for.


@each_row(
    "read",
    [
        lambda cache, path: cache.list("pods", where={path: None}),
        lambda cache, path: cache.list_cached("pods", where={path: "canary"}),
        lambda cache, path: cache.count("pods", where={path: 1}),
        lambda cache, path: cache.list("pods", sort_by=path),
    ],
)
@each_row(
    ("projection", "path"),
    [
        (NO_STATUS, "status"),
        (NO_STATUS, "status.phase"),
        (NO_STATUS, ("status", "a.b/c")),
        (Projection.of(drop=["spec.containers.env", "status"]), "spec"),
        (Projection.of(keep=["spec.nodeName"]), "status.phase"),
        (Projection.of(keep=["spec.nodeName"]), ("spec", "a.b/c")),
        (Projection.of(drop=["metadata.managedFields"]), "metadata.managedFields"),
        (Projection.of(drop=["spec"]), "metadata.managedFields"),
        (Projection.of(), "metadata"),
    ],
)
@with_environment
async def test_a_path_that_is_not_stored_is_refused_with_the_remedy(
    environment: Environment, read: Callable[[Cache, Path], object], projection: Projection, path: Path
) -> None:
    environment.declare(projection=projection).hold(POD)
    with pytest.raises(NotKept):
        read(environment.cache(), path)


def test_explain_says_that_a_read_could_not_be_answered() -> None:
    """`explain` says what is missing: nobody has read yet."""
    explained = reading("", POD, projection=NO_STATUS).explain("pods", where={"status.phase": "canary"})
    assert explained.lacks
    assert explained.lacks in str(explained)
    assert explained.verdict
    assert not reading("", POD, projection=NO_STATUS).explain("pods", where={"spec.nodeName": "n1"}).lacks


def test_an_explanation_marks_partial_objects_and_no_others() -> None:
    explained = reading("", POD, projection=Projection.of(keep=["spec"], drop=["spec.nodeName"])).explain(
        "pods"
    )
    assert explained.partial == "keep=['spec'], drop=['spec.nodeName']"
    assert "Don't write a part back" in str(explained)
    assert not reading("", POD).explain("pods").partial


# ---- The server's answers are cut as what is held is, unless all of them is asked for.


@with_environment
async def test_the_server_is_asked_for_whole_objects_that_are_held_in_part(environment: Environment) -> None:
    environment.declare("", projection=NO_STATUS).hold(POD)
    environment.server.answer(PATH, POD)
    environment.server.answer(LIST, listed(POD))
    cache = environment.cache()
    assert await cache.fetch("pods", "web-1", namespace="ns", whole=True) == POD
    assert await cache.fetch_list(
        "pods", whole=True, where={"status.phase": "Running"}, sort_by="status.phase"
    ) == [POD]
    assert await cache.fetch_list("pods", whole=True) == [POD]
    assert len(environment.server.asked) == 3


# ---- The handler's own object.


def test_the_own_object_is_cut_as_others_are() -> None:
    environment = Environment()
    environment.declare("app=web", projection=NO_STATUS).hold(POD)
    newer = pod("web-1", version="20", app="web")
    cache = environment.cache(own=newer)
    assert cache.get("pods", "web-1", namespace="ns") == {
        key: value for key, value in newer.items() if key != "status"
    }


# ---- Each field label of each kind, with each projection of its path, in each form of selector: the answers are the same.  # noqa: E501


def sample(kind: Kind, value: str, path: Keys) -> Obj:
    metadata: Obj = {"name": value, "uid": value, "resourceVersion": "5"} | (
        {"namespace": "ns"} if kind.namespaced else {}
    )
    obj: Obj = {
        "kind": kind.kind,
        "apiVersion": Resource(kind, kind.versions[0]).api_version,
        "metadata": metadata,
    }
    inner = obj
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    typed: dict[str, Any] = {
        "hostNetwork": value == "one",
        "unschedulable": value == "one",
        "replicas": 1,
        "succeeded": 1,
        "podIPs": [{"ip": value}],
    }
    if value != "none":
        inner[path[-1]] = typed.get(path[-1], value)
    return obj


PROJECTIONS: dict[str, Callable[[Keys], Projection]] = {
    "whole": lambda _: Projection.of(),
    "kept": lambda path: Projection.of(keep=[path]),
    "dropped": lambda path: Projection.of(drop=[path]),
    "parent dropped": lambda path: Projection.of(drop=[path[:1]]),
    "child dropped": lambda path: Projection.of(drop=[(*path, "ip")]),
    "another kept": lambda _: Projection.of(keep=["another"]),
    "wiped": lambda path: Projection.of(
        transform=lambda obj: {key: value for key, value in obj.items() if key != path[0]}
    ),
}
LABELS = {  # One of each way to read a value; tests/core/store/test_projected_fields.py has all labels.
    "spec.nodeName",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.podIP",
    "status.successful",
}
CASES = [
    (kind, label, path, what)
    for kind in BUILT_IN
    if kind.plural in ("pods", "jobs")
    for label, field in kind.fields.items()
    if label in LABELS
    for path in field.value.paths
    for what in PROJECTIONS
]


@each_row(
    ("kind", "label", "path", "what"),
    CASES,
    ids=lambda each: ".".join(each) if isinstance(each, tuple) else getattr(each, "plural", each),
)
def test_a_selector_by_a_field_answers_as_if_nothing_were_dropped(
    kind: Kind, label: str, path: Keys, what: str
) -> None:
    resource = Resource(kind, kind.versions[0])
    objects = [sample(kind, value, path) for value in ("one", "other", "none")]
    whole = reading("", *objects, resource=resource, key=kind.plural)
    cut = reading("", *objects, resource=resource, key=kind.plural, projection=PROJECTIONS[what](path))
    values = {kind.field(label).value(obj) for obj in objects}
    for value in values | {"another"} if not values & {"true", "false", "0"} else values:
        for selector in (f"{label}={value}", f"{label}!={value}"):
            expected = names(whole.list(kind.plural, fields=selector))
            assert names(cut.list(kind.plural, fields=selector)) == expected
            assert names(cut.list_cached(kind.plural, fields=selector)) == expected
            assert cut.count(kind.plural, fields=selector) == len(expected)
            for obj in objects:
                own = obj | {"metadata": obj["metadata"] | {"resourceVersion": "20"}}
                environment = Environment()
                environment.declare(
                    Selector(fields=selector), resource, kind.plural, PROJECTIONS[what](path)
                ).hold()
                assert bool(environment.cache(own=own).list(kind.plural, fields=selector)) is (
                    obj["metadata"]["name"] in expected
                )
