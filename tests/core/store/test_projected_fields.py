"""The values of field labels are known, whatever is dropped: of all of them, with all that can be done to
their paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.selection.kinds import BUILT_IN, Kind, Resource
from kopf_selectcache.core.store.projection import ALL, Keys, Projection
from kopf_selectcache.core.store.record import Record
from tests.rows import each_row

from .test_projection import METADATA, dump, recorded


def sample(kind: Kind) -> dict[str, Any]:
    """Make an object with something at each path that a field label of the kind looks at."""
    obj: dict[str, Any] = {"kind": kind.kind, "apiVersion": api_version(kind), "metadata": dict(METADATA)}
    if not kind.namespaced:
        del obj["metadata"]["namespace"]
    for each in kind.fields.values():
        for path in each.value.paths:
            if path[0] != "metadata":
                inner = obj
                for key in path[:-1]:
                    inner = inner.setdefault(key, {})
                inner[path[-1]] = something(path[-1])
    return obj


def something(key: str) -> Any:
    return {
        "podIPs": [{"ip": "10.0.0.2"}],
        "hostNetwork": True,
        "unschedulable": True,
        "replicas": 3,
        "succeeded": 3,
    }.get(key, f"some-{key.lower()}")


def api_version(kind: Kind) -> str:
    return f"{kind.group}/{kind.versions[0]}" if kind.group else kind.versions[0]


def projections_of(path: Keys) -> Mapping[str, Projection]:
    """Everything that can be done to a path."""
    # One line is clearer than a function here.
    wiped: Callable[[Any], Any] = lambda obj: {key: obj[key] for key in ("kind", "apiVersion", "metadata")}  # noqa: E731
    return {
        "nothing": ALL,
        "kept": Projection.of(keep=[path]),
        "its parent kept": Projection.of(keep=[path[:1]]),
        "dropped": Projection.of(drop=[path]),
        "its parent dropped": Projection.of(drop=[path[:1]]),
        "its child dropped": Projection.of(drop=[(*path, "ip")]),
        "another kept": Projection.of(keep=["another"]),
        "another dropped": Projection.of(drop=["another"]),
        "kept, its child dropped": Projection.of(keep=[path], drop=[(*path, "ip")]),
        "wiped": Projection.of(transform=wiped),
    }


WITH_FIELDS = [
    kind
    for kind in BUILT_IN
    if any(path[0] != "metadata" for each in kind.fields.values() for path in each.value.paths)
]
CASES = [
    (kind, path, what)
    for kind in WITH_FIELDS
    for path in sorted(
        {path for each in kind.fields.values() for path in each.value.paths if path[0] != "metadata"}
    )
    for what in projections_of(path)
]


def values_of(record: Record, kind: Kind) -> dict[str, str]:
    return kind.values(record.decode()) | record.lost()


@pytest.mark.no_cover
@each_row(
    ("kind", "path", "what"),
    CASES,
    ids=lambda each: ".".join(each) if isinstance(each, tuple) else getattr(each, "plural", each),
)
def test_the_values_of_field_labels_are_those_of_the_object_as_it_came(
    kind: Kind, path: Keys, what: str
) -> None:
    obj = sample(kind)
    reader = Reader.of(Resource(kind, kind.versions[0]), projections_of(path)[what])
    for each in (obj, {key: obj[key] for key in ("kind", "apiVersion", "metadata")}):
        assert values_of(reader.record(dump(each)), kind) == kind.values(each)


@each_row("kind", WITH_FIELDS, ids=lambda kind: kind.plural)
def test_nothing_but_its_paths_makes_a_difference_to_a_field_label(kind: Kind) -> None:
    obj = sample(kind)
    for label, each in kind.fields.items():
        reader = Reader(api_version(kind), kind.kind, Projection.of(keep=each.value.paths))
        assert each.value(reader.record(dump(obj)).decode()) == each.value(obj), label
        if each.value.paths and each.value.paths[0][0] != "metadata":
            gone = (
                Reader(api_version(kind), kind.kind, Projection.of(drop=each.value.paths))
                .record(dump(obj))
                .decode()
            )
            assert each.value(gone) != each.value(obj), f"{label}: it looks elsewhere as well"


def test_the_selectable_fields_of_custom_resources_are_known_as_well() -> None:
    schema = {
        "properties": {"spec": {"properties": {"size": {"type": "integer"}, "color": {"type": "string"}}}}
    }
    shops = Kind.custom(
        {
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Shop", "plural": "shops"},
                "versions": [
                    {
                        "name": "v1",
                        "schema": {"openAPIV3Schema": schema},
                        "selectableFields": [{"jsonPath": ".spec.size"}, {"jsonPath": ".spec.color"}],
                    }
                ],
            }
        },
        "v1",
    )
    obj = {
        "kind": "Shop",
        "apiVersion": "example.com/v1",
        "metadata": METADATA,
        "spec": {"size": 3, "color": "red"},
    }
    record = Reader.of(Resource(shops, "v1"), Projection.of(drop=["spec.size"])).record(dump(obj))
    assert record.lost() == {"spec.size": "3"}
    assert values_of(record, shops) == shops.values(obj)


def test_a_kind_of_which_no_field_is_dropped_holds_no_values_of_them() -> None:
    assert recorded(ALL).fields == recorded(Projection.of(drop=["status.conditions"])).fields == b""
    assert recorded(ALL).lost() == {}
