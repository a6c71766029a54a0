"""What kubectl reads of OpenAPI before it writes."""

import json
from typing import Any

import pytest

from kopf_selectcache.testing.api.kubectl import openapi
from kopf_selectcache.testing.api.status import Problem

from .world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.define("b.io", "xs", "Xx", "v1", namespaced=False)
    return world


def told(world: World, path: str) -> dict[str, Any]:
    found = openapi.answer(path, "application/json", world.kinds)
    assert found is not None
    body: dict[str, Any] = json.loads(found.body)
    return body


def test_each_version_of_a_group_has_a_document(world: World) -> None:
    paths = told(world, "/openapi/v3")["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/b.io/v1"} <= set(paths)
    for path in paths:
        assert told(world, paths[path]["serverRelativeURL"])["paths"], path


def test_each_kind_can_be_patched_and_validated(world: World) -> None:
    patched = {
        tuple(path["patch"]["x-kubernetes-group-version-kind"].values()): {
            one["name"] for one in path["patch"]["parameters"]
        }
        for document in told(world, "/openapi/v3")["paths"].values()
        for path in told(world, document["serverRelativeURL"])["paths"].values()
    }
    assert patched.keys() == {(served.group, served.version, served.kind) for served in world.kinds}
    assert all("fieldValidation" in names for names in patched.values())


def test_built_in_kinds_are_patched_by_what_kubectl_knows_of_them(world: World) -> None:
    path = told(world, "/openapi/v3/api/v1")["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    assert list(path["patch"]["requestBody"]["content"]) == ["application/merge-patch+json"]


def test_version_2_is_empty(world: World) -> None:
    assert told(world, "/openapi/v2")["definitions"] == {}
    found = openapi.answer(
        "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", world.kinds
    )
    assert found is not None
    assert (found.body, found.content_type) == (
        b"\n\x032.0",
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    )
    with pytest.raises(Problem) as caught:
        openapi.answer("/openapi/v2", "text/html", world.kinds)
    assert caught.value.code == 406


def test_other_paths_are_none_of_this(world: World) -> None:
    for path in ("/openapi", "/openapi/v3/apis/nix/v1", "/openapi/v3/api/v2", "/openapi/v9", "/version"):
        assert openapi.answer(path, "*/*", world.kinds) is None, path
