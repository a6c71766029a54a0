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

from .test_projection import METADATA, dump


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
