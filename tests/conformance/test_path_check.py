"""Paths of `keep=` that no object of a kind can have: the server publishes which fields there are, and the
log names each other one."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache import Cached, Selector
from tests.real.inprocess import operating, run, until

from .places import SPECS, Place, fresh_group, once_ready

KNOWN = {
    "pods": (
        "metadata.annotations.any",
        "metadata.managedFields",
        "spec.nodeName",
        "spec.containers.env.valueFrom.secretKeyRef.name",
        "spec.containers.resources.limits.memory",
        "spec.nodeSelector.zone",
        "status.hostIPs.ip",
        "status.conditions.type",
    ),
    "secrets": ("data.password", "stringData.password", "immutable"),
    "deployments": ("spec.template.metadata.annotations.any", "status.availableReplicas"),
    "events": ("involvedObject.fieldPath", "series.count"),
}
UNKNOWN = {
    "pods": {
        "spec.nodeNam": "spec.nodeName",
        "specs.nodeName": "spec.nodeName",
        "spec.containers.imag": "spec.containers.image",
        "metadata.annotation": "metadata.annotations",
        "spec.containers.env.vlaue": "spec.containers.env.value",
        "nothing.like.it": "",
    },
    "secrets": {"dta": "data"},
    "deployments": {"spec.template.specs": "spec.template.spec"},
    "events": {"involvedObjects": "involvedObject"},
}


def warned(place: Place, key: str, paths: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of a cache that keeps these paths, after its first list."""
    declared = Cached(Selector("app=web"), keep=[*paths, "metadata.nothing"])

    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.getMessage().startswith("keep= of ")]

    async def main() -> None:
        async with operating(place.api, place.namespace, {key: declared}):
            await until(lines, "the log names a path")

    run(main())
    return lines()


@pytest.mark.parametrize("kind", KNOWN)
def test_20_the_log_names_each_keep_path_that_no_object_can_have(
    place: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In one warning, and each with the likely path. Fields that are only absent are not named."""
    specs: dict[str, Any] = {
        "secrets": {},
        "events": {"involvedObject": {"kind": "Pod", "name": "a", "namespace": place.namespace}},
    }
    body = specs.get(kind, {"spec": SPECS[kind][0]} if kind in SPECS else {})
    place.of(kind).create("a", labels={"app": "web"}, **body)
    unknown = UNKNOWN[kind]
    (line,) = warned(place, kind, (*KNOWN[kind], *unknown), caplog)
    for path, meant in unknown.items():
        assert (f"'{path}' (did you mean '{meant}'?)" if meant else f"'{path}',") in line
    named = line.removesuffix(" don't have that field. Correct the path.")
    assert named.count("'") == 2 * len(
        [*unknown, *filter(None, unknown.values()), "metadata.nothing", "the key"]
    )


@pytest.mark.needs("definitions of custom resources")
def test_20_the_schema_of_a_custom_resource_decides_about_its_paths(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    group = fresh_group()
    things = place.of("things", prefix=f"/apis/{group}/v1", kind="Thing")
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer"},
                    "free": free | {"properties": {"a": {"type": "string"}}},
                    "map": {
                        "type": "object",
                        "additionalProperties": {"type": "object", "properties": {"b": free}},
                    },
                    "list": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"c": {"type": "string"}}},
                    },
                },
            },
        },
    }
    place.api.create_crd(group, "v1", "Thing", "things", schema=schema)
    once_ready(lambda: things.create("a", labels={"app": "web"}, spec={}))
    known = ("spec.size", "spec.list.c", "metadata.annotations.x")
    unknown = ("spec.siz", "spec.map.any.x", "spec.list.d", "status")
    left_open = ("spec.free.x", "spec.map.any.b.x")
    mistakes, careful = warned(place, f"{group}/v1/things", (*known, *unknown, *left_open), caplog)
    assert "'spec.siz' (did you mean 'spec.size'?)" in mistakes
    assert "none of 1 things" in careful
    for path in known[1:]:
        assert f"'{path}'" not in mistakes + careful
    for path in unknown:
        assert f"'{path}'" in mistakes
        assert f"'{path}'" not in careful
    for path in left_open:
        assert f"'{path}'" not in mistakes
        assert f"'{path}'" in careful
