"""How the patches of reconcilers are sent: which requests, with what, and which of them are noted as own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.plugin.patches import OwnPatches
from kopf_selectcache.testing import faults
from tests.faults.environment import until
from tests.plugin.reconciling import APPS, app, operated, serving


def count(obj: Any) -> None:
    obj.setdefault("status", {})["count"] = 1


def spoil(obj: Any) -> None:
    obj["status"] = {"count": "no number"}


def label(obj: Any) -> None:
    obj["metadata"].setdefault("labels", {})["seen"] = "yes"


@pytest.mark.parametrize(
    ("functions", "fields", "subresources"),
    [
        ([label], {}, [""]),
        ([count], {}, ["status"]),
        ([label, count], {}, ["", "status"]),
        ([label], {"count": 1}, ["status", ""]),
    ],
)
async def test_each_part_of_a_patch_is_one_request(
    registry: kopf.OperatorRegistry,
    functions: list[Callable[[Any], None]],
    fields: dict[str, int],
    subresources: list[str],
) -> None:
    @selectcache.reconcile(APPS, registry=registry)
    async def follow(patch: kopf.Patch, **_: Any) -> None:
        patch.fns.extend(functions)
        if fields:
            patch.status.update(fields)

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: len(cluster.requests.where(verb="patch")) == len(subresources))
        sent = [each.path.partition("/webapps/web")[2] for each in cluster.requests.where(verb="patch")]
        assert [each.removeprefix("/") for each in sent] == subresources
        found = cluster.get(app())
        assert (found["metadata"].get("labels", {}).get("seen") == "yes") is (label in functions)
        assert (found.get("status") == {"count": 1}) is ("status" in subresources)


async def test_a_function_whose_result_the_server_refuses_is_an_error(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no conflict, which would be repeated in silence."""
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry)
    async def follow(name: str, patch: kopf.Patch, **_: Any) -> None:
        calls.append(name)
        if len(calls) == 1:
            patch.fns.append(spoil)

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: len(calls) == 2)
    assert "A patch was not applied: a patch of Reconciler " in caplog.text


async def test_functions_have_the_whole_object_where_the_cache_has_a_part(
    registry: kopf.OperatorRegistry,
) -> None:
    seen: list[Any] = []

    @selectcache.reconcile(APPS, registry=registry)
    async def follow(patch: kopf.Patch, **_: Any) -> None:
        def note(obj: Any) -> None:
            seen.append(obj["spec"])
            count(obj)

        patch.fns.append(note)

    filters = {APPS: selectcache.Cached(selectcache.EVERYTHING, drop=["spec"])}
    web = app() | {"spec": {"size": 3}}
    async with serving(web) as cluster, operated(registry, cluster, filters=filters):
        await until(lambda: cluster.get(web).get("status") == {"count": 1})
        assert cluster.get(web)["spec"] == {"size": 3}
    assert seen[0] == {"size": 3}


async def test_the_patches_of_an_object_that_departs_meanwhile_are_forgotten(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[OwnPatches] = []
    init = OwnPatches.__init__

    def record(self: OwnPatches, *args: Any) -> None:
        init(self, *args)
        made.append(self)

    monkeypatch.setattr(OwnPatches, "__init__", record)

    @selectcache.reconcile(APPS, registry=registry)
    async def finish(patch: kopf.Patch, **_: Any) -> None:
        patch.metadata.labels["app"] = "done"
        patch.fns.append(count)

    names = [f"web-{number}" for number in range(10)]
    async with (
        serving(*(app(name, app="web") for name in names)) as cluster,
        operated(registry, cluster, filters={APPS: "app=web"}),
    ):
        await until(lambda: all("status" in cluster.get(app(name)) for name in names))
        await until(lambda: not made[0]._records)  # Otherwise they would stay for ever.


@pytest.mark.parametrize(
    ("part", "changes"),
    [("status", {"count": 1}), ("metadata", {"labels": {"a": "b"}})],
    ids=["status", "labels"],
)
async def test_20_a_refused_patch_is_named_with_its_reconciler_and_repeated_with_backoff(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture, part: str, changes: Any
) -> None:
    """The line is the only one of its attempt, and without the object that the server quotes."""
    calls: list[None] = []
    said = f"{part}: Invalid value: {{'password': 'canary'}}: it is too long"
    cause = {"field": f"{part}.x", "reason": "FieldValueInvalid", "message": said}
    refuse = faults.Refuse(422, "Invalid", said, details={"causes": [cause]})

    @selectcache.reconcile(APPS, registry=registry, id="follow")
    async def follow(patch: kopf.Patch, **_: Any) -> None:
        calls.append(None)
        patch[part] = changes

    async with serving(app("a")) as cluster:
        cluster.faults.add(refuse, verb="patch", times=2)
        async with operated(registry, cluster):
            await until(lambda: len(calls) > 2)
            await until(lambda: len(cluster.requests.where(verb="patch")) > 2)
    lines = [each for each in caplog.records if each.levelname == "ERROR"]
    about = (
        "A patch was not applied: a patch of Reconciler 'follow' for webapps.example.com shop/a: the server"
        f" refuses the object: {part}.x ({part}: Invalid value: …). Correct these fields. The reconciler"
        " is called again"
    )
    assert [each.getMessage().rpartition(" in ")[0] for each in lines] == [about] * 2
    assert [each.exc_info for each in lines] == [None, None]
    first, second = (cast("dict[str, float]", each.args)["seconds"] for each in lines)
    assert 0.25 <= first <= 0.5 <= second <= 1.0
    assert "canary" not in caplog.text


async def test_20_a_refused_patch_of_a_call_that_has_failed_waits_for_the_call(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    @selectcache.reconcile(APPS, registry=registry, id="follow")
    async def follow(patch: kopf.Patch, **_: Any) -> None:
        patch.status["count"] = "many"
        raise kopf.TemporaryError("not yet", delay=600)

    async with serving(app("a")) as cluster, operated(registry, cluster):
        await until(lambda: "not applied" in caplog.text)
    assert "is called again in 600 s" in caplog.text
