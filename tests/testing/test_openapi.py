"""The parts of OpenAPI that kubectl reads before it writes."""

import json
from typing import Any

import pytest

from kopf_selectcache.testing.api.kubectl import openapi
from kopf_selectcache.testing.api.status import Problem

from .environment import Environment


@pytest.fixture
def environment() -> Environment:
    environment = Environment()
    environment.define("b.io", "xs", "Xx", "v1", namespaced=False)
    return environment


def told(environment: Environment, path: str) -> dict[str, Any]:
    found = openapi.answer(path, "application/json", environment.kinds)
    assert found is not None
    body: dict[str, Any] = json.loads(found.body)
    return body


def test_each_version_of_a_group_has_a_document(environment: Environment) -> None:
    paths = told(environment, "/openapi/v3")["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/b.io/v1"} <= set(paths)
    for path in paths:
        assert told(environment, paths[path]["serverRelativeURL"])["paths"], path


def test_each_kind_can_be_patched_and_validated(environment: Environment) -> None:
    patched = {
        tuple(path["patch"]["x-kubernetes-group-version-kind"].values()): {
            one["name"] for one in path["patch"]["parameters"]
        }
        for document in told(environment, "/openapi/v3")["paths"].values()
        for path in told(environment, document["serverRelativeURL"])["paths"].values()
    }
    assert patched.keys() == {(served.group, served.version, served.kind) for served in environment.kinds}
    assert all("fieldValidation" in names for names in patched.values())


def test_kubectl_patches_built_in_kinds_by_its_own_knowledge_of_them(environment: Environment) -> None:
    path = told(environment, "/openapi/v3/api/v1")["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    assert list(path["patch"]["requestBody"]["content"]) == ["application/merge-patch+json"]


def test_version_2_is_empty(environment: Environment) -> None:
    assert told(environment, "/openapi/v2")["definitions"] == {}
    found = openapi.answer(
        "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", environment.kinds
    )
    assert found is not None
    assert (found.body, found.content_type) == (
        b"\n\x032.0",
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    )
    with pytest.raises(Problem) as caught:
        openapi.answer("/openapi/v2", "text/html", environment.kinds)
    assert caught.value.code == 406


def test_other_paths_are_none_of_this(environment: Environment) -> None:
    for path in ("/openapi", "/openapi/v3/apis/nix/v1", "/openapi/v3/api/v2", "/openapi/v9", "/version"):
        assert openapi.answer(path, "*/*", environment.kinds) is None, path
