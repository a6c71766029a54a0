"""Fields that a kind does not have: the server drops them, and the log of whoever wrote them names each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kopf_selectcache import Live
from tests.real.inprocess import operating, run

from .places import POD, SPECS, Place, fresh_group, once_ready

Write = Callable[[Live, Place], Any]


def status(patch: Any, **options: Any) -> Write:
    return lambda live, place: live.patch(
        "namespaces", place.namespace, None, patch, subresource="status", **options
    )


def created(api_version: str, kind: str, **body: Any) -> Write:
    return lambda live, place: live.create(
        {
            "apiVersion": api_version,
            "kind": kind,
            **body,
            "metadata": {"name": "a", "namespace": place.namespace, **body.get("metadata", {})},
        }
    )


CONTAINER = POD["spec"]["containers"][0]
CONDITION = {"type": "example.com/a", "status": "True"}
DROPPED: dict[str, tuple[Write, set[str]]] = {
    "status": (status({"status": {"nope": 1}}), {"status.nope"}),
    "status and conditions": (
        status({"status": {"nope": {"deep": 1}, "conditions": [{**CONDITION, "zz": 1}]}}),
        {"status.nope", "status.conditions[0].zz"},
    ),
    "JSON patch": (status([{"op": "add", "path": "/status/nope", "value": 1}], type="json"), {"status.nope"}),
    "strategic patch": (status({"status": {"nope": 1}}, type="strategic"), {"status.nope"}),
    "dry run": (status({"status": {"nope": 1}}, dry_run=True), {"status.nope"}),
    "update": (
        lambda live, place: live.update(
            "namespaces",
            place.namespace,
            None,
            lambda obj: obj["status"].update(nope=1),
            subresource="status",
        ),
        {"status.nope"},
    ),
    "metadata": (
        created("v1", "ConfigMap", metadata={"lables": {"app": "web"}}, dta={}),
        {"metadata.lables", "dta"},
    ),
    "containers": (
        created(
            "v1",
            "Pod",
            spec={"containers": [{**CONTAINER, "imgae": "x", "env": [{"name": "A", "vlaue": "b"}]}]},
        ),
        {"spec.containers[0].imgae", "spec.containers[0].env[0].vlaue"},
    ),
    "a template": (
        created(
            "apps/v1",
            "Deployment",
            spec={
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}, "x": 1},
                    "spec": {**POD["spec"], "nodeNam": "n"},
                },
            },
        ),
        {"spec.template.metadata.x", "spec.template.spec.nodeNam"},
    ),
}
KEPT: dict[str, Write] = {
    "a null": status({"status": {"nope": None}}),
    "an empty list": lambda live, place: live.patch(
        "namespaces", place.namespace, None, {"metadata": {"finalizers": [], "labels": {}}}
    ),
    "known fields": status({"status": {"conditions": [CONDITION]}}),
    "a status that the main resource ignores": lambda live, place: live.patch(
        "namespaces", place.namespace, None, {"status": {"conditions": []}}
    ),
    "quantities and defaults": created(
        "v1",
        "Pod",
        spec={"containers": [{**CONTAINER, "resources": {"limits": {"cpu": "1000m", "a.b/c": "2"}}}]},
    ),
    "free keys": created("v1", "Secret", stringData={"nope": "x"}, metadata={"annotations": {"a/b.c": "x"}}),
    "values of any type": created("apps/v1", "ControllerRevision", data={"some": [{"thing": 1}]}, revision=1),
    "a service": created(
        "v1", "Service", spec={"ports": [{"port": 80, "targetPort": "http"}], "selector": {"x": "y"}}
    ),
    "a job": created("batch/v1", "Job", spec=SPECS["jobs"][0]),
}


def dropped(caplog: pytest.LogCaptureFixture) -> set[str]:
    said = "The server has dropped "
    return {
        each.getMessage().removeprefix(said).partition(" from ")[0]
        for each in caplog.records
        if each.getMessage().startswith(said)
    }


def written(place: Place, write: Write) -> Any:
    made: list[Any] = []

    async def main() -> None:
        async with operating(place.api, place.namespace, {"configmaps": "app=web"}) as operator:
            made.append(await write(operator.cache.live, place))

    run(main())
    return made[0]


@pytest.mark.parametrize("what", DROPPED)
def test_20_the_log_names_each_field_that_the_server_has_dropped(
    place: Place, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    write, fields = DROPPED[what]
    made = written(place, write)
    assert dropped(caplog) == fields
    assert "nope" not in made.get("status", {})
    for name in ("imgae", "lables", "nodeNam", "zz"):
        assert f"'{name}'" not in str(made)


@pytest.mark.parametrize("what", KEPT)
def test_20_no_log_names_a_field_that_the_kind_has(
    place: Place, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    written(place, KEPT[what])
    assert dropped(caplog) == set()


def _patch(key: str, name: str, namespace: str, patch: Any, live: Live, _: Place, **options: Any) -> Any:
    return live.patch(key, name, namespace, patch, **options)


@pytest.mark.needs("definitions of custom resources")
def test_20_the_log_names_what_the_schema_of_a_custom_resource_lacks(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """The main resource ignores its status, but for fields that there are not."""
    group = fresh_group()
    things = place.of("things", prefix=f"/apis/{group}/v1", kind="Thing")
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "integer", "default": 3}}},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
    place.api.create_crd(group, "v1", "Thing", "things", status=True, schema=schema)
    once_ready(lambda: things.create("a", spec={}))
    key, at = f"{group}/v1/things", ("a", place.namespace)
    patches: list[tuple[Any, str, set[str]]] = [
        ({"status": {"phase": "on"}}, "status", set()),
        ({"status": {"phas": "on"}}, "status", {"status.phas"}),
        ({"spec": {"b": 1}, "status": {"nope": 1}}, "", {"spec.b", "status.nope"}),
        ([{"op": "add", "path": "/spec/c", "value": 1}], "", {"spec.c"}),
        ({"metadata": {"lables": {}}}, "", {"metadata.lables"}),
        ({"status": {"phas": None}}, "status", set()),
    ]
    for patch, subresource, fields in patches:
        options: Any = {"subresource": subresource, "type": "json" if isinstance(patch, list) else "merge"}
        caplog.clear()
        made = written(place, partial(_patch, key, *at, patch, **options))
        assert dropped(caplog) == fields
        assert (made["spec"], made["status"]) == ({"a": 3}, {"phase": "on"}), patch
