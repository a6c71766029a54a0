"""`fields=` is answered by declared indexes and by the store's own dimensions, and the answer is that of a
scan."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kopf_selectcache.cache.matcher import Obj
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.core.store.projection import ALL, Projection
from kopf_selectcache.settings.checks import indexes

from .environment import JOBS, PODS, Environment, FakeInformer, builtin, names
from .test_indexes import of

NAMES = ["a", "b", "c", "d", "e", "f", "g", "h"]
WIDGETS = Resource(
    Kind.custom(
        {
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
                "versions": [
                    {
                        "name": "v1",
                        "selectableFields": [
                            {"jsonPath": ".spec.tier"},
                            {"jsonPath": ".spec.size"},
                            {"jsonPath": ".spec.on"},
                        ],
                        "schema": {
                            "openAPIV3Schema": {
                                "properties": {
                                    "spec": {
                                        "properties": {
                                            "tier": {"type": "string"},
                                            "size": {"type": "integer"},
                                            "on": {"type": "boolean"},
                                        }
                                    }
                                }
                            }
                        },
                    }
                ],
            }
        },
        "v1",
    ),
    "v1",
)
KINDS: Mapping[str, tuple[Resource, Sequence[str]]] = {
    "pods": (
        PODS,
        [
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.hostNetwork",
            "spec.serviceAccountName",
            "status.podIP",
            "status.phase",
        ],
    ),
    "events": (
        Resource(builtin("events"), "v1"),
        ["source.component", "reportingComponent", "involvedObject.name", "reason"],
    ),
    "namespaces": (Resource(builtin("namespaces"), "v1"), ["status.phase"]),
    "secrets": (Resource(builtin("secrets"), "v1"), ["type"]),
    "jobs": (JOBS, ["status.succeeded"]),
    "widgets": (WIDGETS, ["spec.tier", "spec.size", "spec.on"]),
}
"""The paths that are indexed of each kind."""

VALUES: Sequence[Any] = [
    "n1",
    "n2",
    "Always",
    "Never",
    "default-scheduler",
    "Active",
    "Opaque",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "",
    None,
    True,
    False,
    0,
    1,
    -1,
    1.0,
    ["n1"],
    {"n1": "n1"},
]


def filled(
    resource: Resource,
    paths: Sequence[str],
    objects: Sequence[Obj],
    *,
    indexed: bool,
    projection: Projection = ALL,
) -> tuple[Environment, FakeInformer]:
    """Hold objects that have come with the values of indexes, as those of an operator do, and build the
    indexes."""
    environment = Environment()
    informer = environment.declare(resource=resource, key=resource.kind.plural, projection=projection)
    if indexed:
        declared = indexes({path.replace(".", "_"): path for path in paths})
        informer.indexes = {each.name: each for each in declared}
        informer.__dict__["reader"] = replace(Reader.of(resource, projection), indexes=declared)
        for each in declared:
            informer.state.store.declare(each)
    informer.hold(*objects)
    while informer.state.store.build(1000):
        pass
    return environment, informer


def made(
    resource: Resource, paths: Sequence[str], name: str, chance: random.Random, version: str = "5"
) -> Obj:
    """Make an object that has anything, or nothing, at the paths."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": version} | (
        {"namespace": chance.choice("xy")} if resource.kind.namespaced else {}
    )
    obj: Obj = {"apiVersion": resource.api_version, "kind": resource.kind.kind, "metadata": metadata}
    more = {"pods": ["spec.serviceAccount", "status.podIPs"]}.get(resource.kind.plural, [])
    for path in [*paths, *more]:
        if chance.random() < 0.7:
            *parents, last = path.split(".")
            parent = obj
            for key in parents:
                parent = parent.setdefault(key, {})
            parent[last] = chance.choice(VALUES)
    return obj


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("key", KINDS)
def test_a_field_is_answered_with_and_without_an_index_as_the_server_answers_it(
    key: str, own: bool, drop: bool
) -> None:
    resource, paths = KINDS[key]
    chance = random.Random(f"{key} {own} {drop}")  # Of a fixed seed: each run looks at the same.
    projection = Projection.of(drop=paths) if drop else ALL
    labels, found = sorted(resource.kind.fields), 0
    used: set[str] = set()
    for _ in range(8):
        objects = [made(resource, paths, name, chance) for name in chance.sample(NAMES, chance.randint(0, 8))]
        body = made(resource, paths, chance.choice(NAMES), chance, version="11") if own else None
        expected = [
            each for each in objects if body is None or each["metadata"]["name"] != body["metadata"]["name"]
        ] + ([body] if body else [])
        if body is not None:  # An object of the same name in another namespace is another object.
            expected += [
                each
                for each in objects
                if each["metadata"]["name"] == body["metadata"]["name"]
                and each["metadata"].get("namespace") != body["metadata"].get("namespace")
            ]
        caches = {
            way: filled(resource, paths, objects, indexed=way, projection=projection)[0].cache(own=body)
            for way in (False, True)
        }
        for _ in range(12):
            terms = {
                chance.choice(labels): str(chance.choice([*VALUES[:13], "x", "a"]))
                for _ in range(chance.randint(1, 2))
            }
            operators = {label: chance.choice(["=", "=", "==", "!="]) for label in terms}
            field = ",".join(f"{label}{operators[label]}{value}" for label, value in terms.items())
            truth = names(
                [
                    each
                    for each in expected
                    if all(
                        (resource.kind.field(label).value(each) == value) == (operators[label] != "!=")
                        for label, value in terms.items()
                    )
                ]
            )
            for cache in caches.values():
                assert names(cache.list(key, fields=field)) == truth, (field, objects, body)
            used.update(caches[True].explain(key, fields=field).by)
            found += len(truth)
    assert found, "some are found"
    assert any(each.startswith("index ") for each in used) is (key != "jobs"), (
        "a number that may be a default is looked at"
    )


def test_a_field_is_looked_up_by_the_index_of_its_path() -> None:
    pods = [of(f"p-{i}", node=f"n{i % 100}") for i in range(3000)]
    for indexed, looks_at, decodes, by in (
        (False, 3000, True, ()),
        (True, 30, False, ("index spec_nodeName",)),
    ):
        cache = filled(PODS, ["spec.nodeName"], pods, indexed=indexed)[0].cache()
        explained = cache.explain("pods", fields="spec.nodeName=n7")
        assert (explained.looks_at, explained.decodes, explained.by) == (looks_at, decodes, by)
        assert len(cache.list("pods", fields="spec.nodeName=n7")) == 30


def test_a_dropped_field_is_looked_up_and_a_transformed_one_is_compared() -> None:
    def moved(obj: Obj) -> Obj:
        obj["spec"]["nodeName"] = "elsewhere"
        return obj

    dropped, changed = (
        filled(
            PODS,
            ["spec.nodeName"],
            [of("a", node="n1"), of("b", node="n2")],
            indexed=True,
            projection=projection,
        )[0].cache()
        for projection in (Projection.of(drop=["spec"]), Projection.of(transform=moved))
    )
    for cache in (dropped, changed):
        assert names(cache.list("pods", fields="spec.nodeName=n1")) == ["a"]
        assert cache.explain("pods", fields="spec.nodeName=n1").looks_at == 1
    assert changed.list("pods", fields="spec.nodeName=n1", where={"spec.nodeName": "n1"}) == []
    assert names(changed.list("pods", fields="spec.nodeName=n1", where={"spec.nodeName": "elsewhere"})) == [
        "a"
    ]


def test_an_index_by_which_no_object_has_a_value_is_named() -> None:
    cache = filled(PODS, ["spec.nodeName"], [of("a") | {"spec": {}}], indexed=True)[0].cache()
    assert "No cached object has a value in the index 'spec_nodeName': 'spec.nodeName'." in str(
        cache.explain("pods", fields="spec.nodeName=n1")
    )
