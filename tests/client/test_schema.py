"""The schema of a kind, as servers publish it: which paths its objects can have."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.informer.checks import Schema, UnknownKey, schema_of
from tests.cache.environment import PODS, Server
from tests.rows import each_row

PATH = "/openapi/v3/api/v1"
META = {"$ref": "#/components/schemas/Meta"}
SCHEMAS: dict[str, Any] = {
    "Meta": {"type": "object", "properties": {"name": {"type": "string"}}},
    "Spec": {
        "type": "object",
        "properties": {
            "many": {"type": "array", "items": {"allOf": [META], "default": {}}},
            "lists": {"type": "array", "items": {"type": "array", "items": META}},
            "map": {"type": "object", "additionalProperties": META},
            "any": {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
            "free": {"type": "object", "properties": {"a": {}}, "x-kubernetes-preserve-unknown-fields": True},
            "whole": {"type": "object", "properties": {"a": {}}, "x-kubernetes-embedded-resource": True},
            "closed": {"type": "object", "properties": {"a": {}}},
            "gone": {"$ref": "#/components/schemas/Gone"},
            "endless": {"$ref": "#/components/schemas/Endless"},
        },
    },
    "Endless": {"$ref": "#/components/schemas/Endless"},
    "Other": {"x-kubernetes-group-version-kind": [{"group": "", "version": "v2", "kind": "Pod"}]},
    "Pod": {
        "properties": {
            "metadata": {"description": "x", "allOf": [META]},
            "spec": {"$ref": "#/components/schemas/Spec"},
        },
        "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}],
    },
}


def asked(answer: Any, resource: Resource = PODS, path: str = PATH) -> Schema | None:
    server = Server()
    server.answer(path, answer)
    return asyncio.run(schema_of(server, resource))


@each_row(
    "path",
    [
        "metadata.name",
        "metadata",
        "spec.many.name",
        "spec.lists.name",
        "spec.map.any.name",
        "spec.any.b",
        "spec.free.a",
        "spec.closed.a.of.no.known.type",
        "spec.gone.a",
        "spec.endless.a",
    ],
)
def test_20_a_path_that_may_be_there_is_known(path: str) -> None:
    schema = asked({"components": {"schemas": SCHEMAS}})
    assert schema is not None
    assert schema.unknown(tuple(path.split("."))) is None


@each_row(
    ("path", "depth", "names"),
    [
        ("specs.many", 0, ("metadata", "spec")),
        ("metadata.nam", 1, ("name",)),
        ("spec.many.nam.x", 2, ("name",)),
        ("spec.lists.nam", 2, ("name",)),
        ("spec.map.any.nam", 3, ("name",)),
        ("spec.closed.b", 2, ("a",)),
        ("spec.free.b.c", 2, ()),
        ("spec.whole.b", 2, ()),
    ],
)
def test_20_the_first_key_that_cannot_be_there_or_is_left_open_is_found(
    path: str, depth: int, names: tuple[str, ...]
) -> None:
    schema = asked({"components": {"schemas": SCHEMAS}})
    assert schema is not None
    assert schema.unknown(tuple(path.split("."))) == UnknownKey(depth, names)


def test_kinds_of_groups_have_documents_of_their_own() -> None:
    of = [{"group": "example.com", "version": "v1", "kind": "Thing"}]
    schemas = {"Thing": {"properties": {"spec": {}}, "x-kubernetes-group-version-kind": of}}
    resource = Resource(Kind.unknown("example.com", "Thing", "things"), "v1")
    schema = asked({"components": {"schemas": schemas}}, resource, "/openapi/v3/apis/example.com/v1")
    assert schema is not None
    assert schema.unknown(("status",)) == UnknownKey(0, ("spec",))


@each_row(
    "answer",
    [Refusal(404, "NotFound"), Refusal(403, "Forbidden"), Refusal(406), {"components": {"schemas": {}}}],
)
def test_a_server_need_not_publish_schemas(answer: Any) -> None:
    assert asked(answer) is None


@each_row(
    ("answer", "error"),
    [
        (Refusal(503, "ServiceUnavailable"), Refused),
        (Unreachable("no answer"), Unreachable),
        ({"components": []}, Garbled),
        ({}, Garbled),
    ],
)
def test_failures_are_raised(answer: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        asked(answer)


@each_row("spec", [b'"\xff"', b'{"maximum": 1e999}'])
def test_8_a_type_that_cannot_be_decoded_is_reported_when_a_path_leads_through_it(spec: bytes) -> None:
    types = {name: msgspec.Raw(json.dumps(each).encode()) for name, each in SCHEMAS.items()}
    schema = Schema(types | {"Spec": msgspec.Raw(spec)}, "Pod")
    assert schema.unknown(("metadata", "name")) is None
    caught: Exception | None = None
    try:
        schema.unknown(("spec", "many"))
    except Exception as error:  # The decoder has several.  # noqa: BLE001
        caught = error
    assert isinstance(caught, Garbled)
    assert str(caught).startswith("Spec is not what the API promises")
