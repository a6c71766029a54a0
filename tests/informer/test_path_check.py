"""The one warning of a cache of paths in `keep=` at which no object can have a value."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

import pytest

from kopf_selectcache import Cached
from tests.faults.environment import operating, run, until
from tests.faults.server import Answer, Script, Server, answer, error, listed, pod, refused, streamed

OPENAPI = "/openapi/v3/api/v1"
SCHEMA: dict[str, Any] = {
    "components": {
        "schemas": {
            "Pod": {
                "properties": {
                    "spec": {"properties": {"nodeName": {}, "hostname": {}}},
                    "metadata": {"properties": {"annotations": {}}},
                },
                "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}],
            }
        }
    }
}
TYPO = (
    "keep= of settings.selectcache.selectors['pods'] names 'spec.nodeNam' (did you mean 'spec.nodeName'?),"
    " but pods don't have that field. Correct the path."
)


def full(name: str, version: str = "90", **spec: str) -> Mapping[str, Any]:
    return pod(name, version) | {"spec": {"hostname": "a", **spec}}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.getMessage().startswith("keep= of ")]


def warned(
    caplog: pytest.LogCaptureFixture,
    *objects: Mapping[str, Any],
    keep: Cached,
    schema: Answer | None = None,
    lasts: int = 1,
) -> list[str]:
    """Return the warnings of a cache of these objects, once there are so many."""

    async def main() -> None:
        async with Server(lists=[listed("100", *map(dict, objects))]) as server:
            script = server.scripts[OPENAPI] = Script([schema] if schema is not None else [])
            async with operating(server, selectors={"pods": keep}) as environment:
                await environment.watched(1)
                await environment.synced()
                await until(lambda: len(script.listed) == len(script.lists) and len(lines(caplog)) == lasts)
        assert len(script.listed) == len(script.lists)

    run(main())
    return lines(caplog)


@pytest.mark.parametrize("count", [1, 2, 32])
def test_20_a_keep_path_that_no_object_can_have_is_named_once_after_the_first_list(
    caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Fields that objects can have, and have not, are not named."""
    objects = [full(f"a-{number}") for number in range(count)]
    keep = ["spec.nodeNam", "spec.nodeName", "metadata.annotations.x", "metadata.labels.x", "spec.hostname"]
    assert warned(caplog, *objects, keep=Cached("app=web", keep=keep), schema=answer(SCHEMA)) == [TYPO]


@pytest.mark.parametrize(
    ("objects", "options"),
    [
        ([], {"keep": ["spec.nodeNam"]}),
        ([full("a", nodeNam="x")], {"keep": ["spec.nodeNam"]}),
        ([full("a")], {"keep": ["metadata.labels.x", "metadata.ownerReferences"]}),
        ([full("a")], {"keep": ["spec.nodeNam"], "transform": lambda obj: obj}),
        ([full("a")], {"drop": ["spec.nodeNam"]}),
    ],
)
def test_20_the_server_is_asked_only_about_paths_without_a_value(
    caplog: pytest.LogCaptureFixture, objects: list[Mapping[str, Any]], options: dict[str, Any]
) -> None:
    assert warned(caplog, *objects, keep=Cached("app=web", **options), lasts=0) == []


def test_20_a_server_without_schemas_makes_a_careful_warning(caplog: pytest.LogCaptureFixture) -> None:
    keep = Cached("app=web", keep=["spec.nodeNam", "spec.hostname", "metadata.labels.x"])
    (line,) = warned(caplog, full("a"), full("b"), keep=keep, schema=refused(404, "NotFound"))
    assert line == (
        "keep= of settings.selectcache.selectors['pods'] names 'spec.nodeNam', but none of 2 pods has a"
        " value there. Check the spelling: the server doesn't publish their fields."
    )


def test_20_a_schema_that_leaves_fields_open_makes_a_careful_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema = copy.deepcopy(SCHEMA)
    schema["components"]["schemas"]["Pod"]["properties"]["spec"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    keep = Cached("app=web", keep=["spec.nodeNam", "spec.hostname"])
    (line,) = warned(caplog, full("a"), full("b"), keep=keep, schema=answer(schema))
    assert "names 'spec.nodeNam', but none of 2 pods has a value there" in line


def test_20_a_server_that_fails_makes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    keep = Cached("app=web", keep=["spec.nodeNam"])
    assert warned(caplog, full("a"), keep=keep, schema=refused(503), lasts=0) == []


async def test_20_a_relist_and_another_filter_warn_of_nothing_again(caplog: pytest.LogCaptureFixture) -> None:
    watches = [streamed(error(410, "Expired"))]
    lists = [listed(version, dict(full("a", version))) for version in ("100", "200", "300", "400")]
    async with Server(lists=lists, watches=watches) as server:
        server.scripts[OPENAPI] = Script([answer(SCHEMA)] * 3)
        typo = Cached("app=web", keep=["spec.nodeNam"])
        async with operating(server, selectors={"pods": typo}) as environment:
            await environment.listed(2)
            await environment.watched(2)
            await environment.synced()
            await until(lambda: lines(caplog))
            await environment.cache.declare("pods", "app", replace=True)
            await environment.cache.declare("pods", "app=web", keep=["spec.hostnam"], replace=True)
            await until(lambda: len(lines(caplog)) >= 2)
    assert lines(caplog) == [
        TYPO,
        TYPO.replace("settings.selectcache.selectors['pods']", "cache.declare('pods', ...)").replace(
            "nodeNam", "hostnam"
        ),
    ]


async def test_a_look_at_paths_ends_with_the_caches() -> None:
    declared = Cached("app=web", keep=["spec.nodeNam"])
    async with Server() as server, operating(server, selectors={"pods": declared}) as environment:
        await environment.listed(1)
    assert not [each for each in asyncio.all_tasks() if "its paths" in each.get_name()]
