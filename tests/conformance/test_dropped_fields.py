"""Fields that a kind does not have: the server drops them, and the log of whoever wrote them names each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from kopf_selectcache.cache.dropped_fields import DroppedFields
from kopf_selectcache.types import Live
from tests.real.inprocess import operating

from .places import POD, SPECS, Place, fresh_group, fresh_place, once_ready

Write = Callable[[Live, Place], Any]


def status(patch: Any, **options: Any) -> Write:
    return lambda live, place: live.patch(
        "namespaces", place.namespace, patch, subresource="status", **options
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
        "namespaces", place.namespace, {"metadata": {"finalizers": [], "labels": {}}}
    ),
    "known fields": status({"status": {"conditions": [CONDITION]}}),
    "a status that the main resource ignores": lambda live, place: live.patch(
        "namespaces", place.namespace, {"status": {"conditions": []}}
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


LABELS = {"metadata": {"labels": {"a": "b"}}}


def _set_status(obj: Any) -> None:
    obj["status"]["phase"] = "Failed"


def _updated(change: Callable[[Any], Any], **options: Any) -> Write:
    return lambda live, place: live.update("pods", "a", change, namespace=place.namespace, **options)


def _patched(patch: Any, **options: Any) -> Write:
    return lambda live, place: live.patch("pods", "a", patch, namespace=place.namespace, **options)


def _replaced(change: Callable[[Any], Any], **options: Any) -> Write:
    async def write(live: Live, place: Place) -> Any:
        found = await live.get("pods", "a", namespace=place.namespace)
        change(found)
        return await live.replace(found, **options)

    return write


WITHOUT = (
    "The server ignored the status in {by}: the status of pods is a subresource. To write it, give"
    " subresource='status'."
)
WITH = (
    "The server ignored {part} in {by}: subresource='status' only writes the status of pods. To write"
    " {part}, leave subresource= out."
)
PATCH, UPDATE, REPLACE = (f"cache.live.{verb}()" for verb in ("patch", "update", "replace"))
IGNORED: dict[str, tuple[Write, set[str]]] = {
    "patch": (_patched({**LABELS, "status": {"message": "x"}}), {WITHOUT.format(by=PATCH)}),
    "a removed part": (_patched({"status": {"phase": None}}), {WITHOUT.format(by=PATCH)}),
    "strategic patch": (
        _patched({"status": {"message": "x"}}, type="strategic"),
        {WITHOUT.format(by=PATCH)},
    ),
    "an added element": (
        _patched([{"op": "add", "path": "/status/message", "value": "x"}], type="json"),
        {WITHOUT.format(by=PATCH)},
    ),
    "a removal by a JSON patch": (
        _patched([{"op": "remove", "path": "/status/phase"}], type="json"),
        {WITHOUT.format(by=PATCH)},
    ),
    "update": (_updated(_set_status), {WITHOUT.format(by=UPDATE)}),
    "replace": (_replaced(_set_status), {WITHOUT.format(by=REPLACE)}),
    "dry run": (_patched({"status": {"message": "x"}}, dry_run=True), {WITHOUT.format(by=PATCH)}),
    "spec": (
        _patched({"spec": {"priority": 7}, "status": {"message": "x"}}, subresource="status"),
        {WITH.format(part="spec", by=PATCH)},
    ),
    "an update of the spec": (
        _updated(lambda obj: obj["spec"].update(nodeName="n"), subresource="status"),
        {WITH.format(part="spec", by=UPDATE)},
    ),
    "a spec by a JSON patch": (
        _patched([{"op": "add", "path": "/spec/nodeName", "value": "n"}], type="json", subresource="status"),
        {WITH.format(part="spec", by=PATCH)},
    ),
}
WRITTEN: dict[str, Write] = {
    "labels": _patched(LABELS),
    "the status": _patched({"status": {"message": "x"}}, subresource="status"),
    "a whole object": _replaced(lambda obj: obj["metadata"].update(labels={"a": "c"})),
    "a whole object by its status": _replaced(_set_status, subresource="status"),
    "an update": _updated(lambda obj: obj["metadata"].update(labels={"a": "d"})),
    "an update of the status": _updated(_set_status, subresource="status"),
    "a status that is there": _patched({**LABELS, "status": {"phase": "Pending", "message": None}}),
    "a test": _patched(
        [
            {"op": "test", "path": "/status/phase", "value": "Pending"},
            {"op": "add", "path": "/status/phase", "value": "Pending"},
            {"op": "add", "path": "/metadata/labels", "value": {"a": "e"}},
        ],
        type="json",
    ),
    "another kind": lambda live, place: live.patch(
        "configmaps", "a", {"data": {"a": "b"}}, namespace=place.namespace
    ),
}


def ignored(caplog: pytest.LogCaptureFixture) -> set[str]:
    return {text for each in caplog.records if "server ignored" in (text := each.getMessage())}


def dropped(caplog: pytest.LogCaptureFixture) -> set[str]:
    said = "The server dropped "
    return {
        each.getMessage().removeprefix(said).partition(" from ")[0]
        for each in caplog.records
        if each.getMessage().startswith(said)
    }


async def test_20_the_log_names_a_part_that_the_path_of_a_write_does_not_write(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async for what, there, live in each_in_a_place(place, IGNORED, caplog):
        write, said = IGNORED[what]
        there.of("pods").create("a", spec=POD["spec"])
        await write(live, there)
        assert ignored(caplog) == said, what


async def test_20_no_log_names_a_part_that_the_answer_of_a_write_has(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async for what, there, live in each_in_a_place(place, WRITTEN, caplog):
        there.of("pods").create("a", spec=POD["spec"])
        there.of("configmaps").create("a")
        await WRITTEN[what](live, there)
        assert not ignored(caplog), what


async def each_in_a_place(
    place: Place, table: Iterable[str], caplog: pytest.LogCaptureFixture
) -> AsyncIterator[tuple[str, Place, Live]]:
    """Give each name of the table, a namespace for it, and the `live` of one operator for all."""
    async with operating(place.api, place.namespace, {"configmaps": "app=web"}) as operator:
        for what in table:
            with fresh_place(place.api) as there:
                caplog.clear()
                operator.runtime.extensions.get(DroppedFields)._warned.clear()  # Each is logged once.
                yield what, there, operator.cache.live


async def test_20_the_log_names_each_field_that_the_server_has_dropped(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async for what, there, live in each_in_a_place(place, DROPPED, caplog):
        write, fields = DROPPED[what]
        made = await write(live, there)
        assert dropped(caplog) == fields, what
        assert "nope" not in made.get("status", {}), what
        assert not {name for name in ("imgae", "lables", "nodeNam", "zz") if f"'{name}'" in str(made)}, what


async def test_20_no_log_names_a_field_that_the_kind_has(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async for what, there, live in each_in_a_place(place, KEPT, caplog):
        await KEPT[what](live, there)
        assert not dropped(caplog), what


@pytest.mark.needs("definitions of custom resources")
async def test_20_the_log_names_fields_that_the_schema_of_a_custom_resource_lacks(
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
    patches: list[tuple[Any, str, set[str]]] = [
        ({"status": {"phase": "on"}}, "status", set()),
        ({"status": {"phas": "on"}}, "status", {"status.phas"}),
        ({"spec": {"b": 1}, "status": {"nope": 1}}, "", {"spec.b", "status.nope"}),
        ([{"op": "add", "path": "/spec/c", "value": 1}], "", {"spec.c"}),
        ({"metadata": {"lables": {}}}, "", {"metadata.lables"}),
        ({"status": {"phas": None}}, "status", set()),
    ]
    async with operating(place.api, place.namespace, {"configmaps": "app=web"}) as operator:
        for patch, subresource, fields in patches:
            options: Any = {
                "subresource": subresource,
                "type": "json" if isinstance(patch, list) else "merge",
                "namespace": place.namespace,
            }
            caplog.clear()
            made = await operator.cache.live.patch(f"{group}/v1/things", "a", patch, **options)
            assert dropped(caplog) == fields
            assert (made["spec"], made["status"]) == ({"a": 3}, {"phase": "on"}), patch
