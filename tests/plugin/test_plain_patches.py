"""Patches and return values of handlers: objects and views of a cache become plain JSON for Kopf."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import InvalidObject, _kopf
from kopf_selectcache.cache.formats.given import plain
from kopf_selectcache.plugin.calls import make_plain
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.testing import FakeCache
from tests.faults.environment import run, until
from tests.kopf_operators import (
    Cluster,
    called,
    changing,
    declaring,
    indexing,
    launched,
    only,
    spawned,
    watching,
)
from tests.kopf_operators import pod as listed
from tests.plugin.reconciling import APPS, app, config, operated, serving

WEB = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "shop"},
    "spec": {"containers": [{"name": "main"}]},
}
KINDS: dict[str, tuple[Callable[..., Any], str, Callable[[], Any]]] = {
    "event": (kopf.on.event, "_watching", watching),
    "create": (kopf.on.create, "_changing", changing),
    "timer": (functools.partial(kopf.timer, interval=1), "_spawning", spawned),
    "daemon": (kopf.daemon, "_spawning", spawned),
}


class Color(StrEnum):
    RED = "red"


@pytest.fixture
def cache() -> FakeCache:
    return FakeCache([WEB], {"pods": selectcache.EVERYTHING})


def sent(value: Any) -> Any:
    """Return a value as a server would get it from Kopf, or the error of a value that cannot be sent."""
    try:
        return json.loads(json.dumps(value))
    except TypeError as error:
        return str(error)


# ---- What becomes of values.


@pytest.mark.parametrize(
    "read",
    [
        lambda cache: list(cache.list("pods")),
        lambda cache: cache.list("pods"),
        lambda cache: cache.list("pods", as_="view"),
        lambda cache: tuple(cache.list("pods", as_="view")),
    ],
)
def test_20_results_of_reads_become_plain_json(read: Callable[[Any], Any], cache: FakeCache) -> None:
    made = plain("it", {"pods": read(cache)})
    assert json.loads(json.dumps(made))["pods"][0]["spec"] == WEB["spec"]


def test_20_parts_of_views_and_enums_become_plain_json(cache: FakeCache) -> None:
    view = cache.get("pods", "web-1", namespace="shop", as_="view")
    made = plain(
        "it",
        {
            "spec": view.spec,
            "meta": view.metadata,
            "a": view["spec"]["containers"],
            "color": Color.RED,
            80: 1.5,
        },
    )
    assert json.loads(json.dumps(made["spec"])) == WEB["spec"]
    assert (made["meta"]["name"], made["a"], made["color"], made["80"]) == (
        "web-1",
        [{"name": "main"}],
        "red",
        1.5,
    )
    assert [type(each) for each in made.values()] == [dict, dict, list, str, float]


def test_a_plain_copy_shares_nothing_with_its_source() -> None:
    source: dict[str, Any] = {"a": {"b": [1]}}
    plain("it", source)["a"]["b"].append(2)
    assert source == {"a": {"b": [1]}}


def _circular() -> Any:
    value: dict[str, Any] = {}
    value["a"] = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"pods": [{"x": {1}}]}, "it: pods[0].x is a set, which JSON does not have"),
        ({"a": object()}, "it: a is an object, which JSON does not have"),
        ({"a": {(1, 2): 3}}, "it: a has a tuple as a key, which JSON does not have"),
        ([0, float("nan")], "it: [1] is infinite or NaN, which JSON does not have"),
        (frozenset(), "it: the value is a frozenset, which JSON does not have"),
        (_circular(), "it: the value is nested too deeply"),
        ({"a": "\ud800"}, "it: the value has a text that can't be sent: UnicodeEncodeError"),
    ],
)
def test_20_a_value_that_cannot_be_json_is_an_error_with_its_path_and_type(value: Any, text: str) -> None:
    with pytest.raises(InvalidObject) as raised:
        plain("it", value)
    assert raised.value.what == text


@pytest.mark.parametrize("at", ["return", "status", "live"])
def test_20_a_call_that_is_not_awaited_is_named_with_its_path(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    @kopf.timer("example.com", "v1", "webapps", interval=0.01, registry=registry)
    @with_cache
    async def follow(cache: Any, patch: kopf.Patch, name: str, namespace: str, **_: Any) -> Any:
        found = cache.fetch("v1/configmaps", "a", namespace=namespace)
        if at == "live":
            await cache.live.patch(APPS, name, {"status": found}, namespace=namespace, subresource="status")
        if at == "status":
            patch.status["x"] = found
        return found if at == "return" else None

    about = {
        "return": "the returned value: the value",
        "status": "the patch: status.x",
        "live": "cache.live.patch(): status",
    }
    said = f"{about[at]} is a call that was not awaited. Write await before the call"

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await until(lambda: f"{about[at]} is a" in caplog.text)

    run(main())
    assert said in caplog.text


# ---- Handlers of Kopf.


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failure", [None, kopf.TemporaryError("later")], ids=["succeeds", "fails"])
async def test_20_objects_in_the_patch_of_a_handler_become_plain_json(
    kind: str, is_async: bool, failure: Exception | None, registry: kopf.OperatorRegistry
) -> None:
    """Kopf applies the patch of a failed call, too."""
    decorator, part, cause = KINDS[kind]

    def handle(cache: Any, patch: kopf.Patch, **_: Any) -> Any:
        patch.status["pods"] = cache.list_cached("pods", as_="view")
        patch.fns.append(lambda obj: obj.__setitem__("spec", {"pods": cache.list_cached("pods")}))
        if failure is not None:
            raise failure
        return {"found": cache.list_cached("pods")}

    async def handle_async(cache: Any, patch: kopf.Patch, **_: Any) -> Any:
        return handle(cache, patch)

    decorator("pods", registry=registry)(with_cache(handle_async if is_async else handle))
    async with launched(declaring(pods=""), Cluster(listed("web-1"))):
        pods, given = [listed("web-1")], cause()
        handler = only(getattr(registry, part))
        if failure is None:
            assert sent(await called(handler, given)) == {"found": pods}
        else:
            with pytest.raises(kopf.TemporaryError):
                await called(handler, given)
        assert sent(given.patch) == {"status": {"pods": pods}}
        given.patch.clear()
        await _call_anyway(handler, given)
        obj: dict[str, Any] = {}
        given.patch.fns[0](obj)
        assert sent(obj) == {"spec": {"pods": pods}}
        assert len(given.patch.fns) == 1


async def _call_anyway(handler: Any, cause: Any) -> None:
    try:
        await called(handler, cause)
    except kopf.TemporaryError:
        return


async def test_20_objects_in_the_patch_of_a_sub_handler_become_plain_json(
    registry: kopf.OperatorRegistry,
) -> None:
    @kopf.on.create("pods", registry=registry)
    @with_cache
    def parent(**_: Any) -> None:
        @kopf.subhandler(id="child")
        @with_cache
        def child(cache: Any, patch: kopf.Patch, **_: Any) -> None:
            patch.status["pods"] = cache.list_cached("pods")

    async with launched(declaring(pods=""), Cluster(listed("web-1"))):
        cause = changing()
        await called(only(registry._changing), cause)
        assert sent(dict(cause.patch.status)) == {"pods": [listed("web-1")]}


async def test_an_index_function_may_return_anything(registry: kopf.OperatorRegistry) -> None:
    kopf.index("pods", registry=registry)(with_cache(lambda **_: {"a": {1, 2}}))
    async with launched(declaring(pods=""), Cluster(listed("web-1"))):
        assert await called(only(registry._indexing), indexing()) == {"a": {1, 2}}


def test_20_a_patch_keeps_the_members_beside_one_that_cannot_be_written() -> None:
    patch = kopf.Patch({"spec": {"a": 1, "b": {2}}, "data": {3}, "immutable": True})
    error = make_plain(patch)
    assert error is not None
    assert error.what == "the patch: spec.b is a set, which JSON does not have"
    assert dict(patch) == {"spec": {"a": 1}, "data": {}, "immutable": True}
    assert make_plain(patch) is None


async def test_20_a_timer_goes_on_after_a_patch_with_objects(
    registry: kopf.OperatorRegistry,
) -> None:
    seen: list[int] = []

    @kopf.timer("example.com", "v1", "webapps", interval=0.01, registry=registry)
    @with_cache
    async def count(cache: Any, patch: kopf.Patch, retry: int, **_: Any) -> None:
        seen.append(retry)
        patch.spec["configs"] = cache.list_cached("configmaps")

    async with serving(app(), config("c", a="1")) as cluster, operated(registry, cluster):
        await until(lambda: len(seen) > 2)
        assert cluster.get(app())["spec"]["configs"][0]["data"] == {"a": "1"}


@pytest.mark.parametrize("fails", [False, True])
async def test_20_a_timer_goes_on_after_a_patch_that_cannot_be_written(
    fails: bool, registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the path and the type, also if the handler itself has failed."""
    seen: list[int] = []

    @kopf.timer("example.com", "v1", "webapps", interval=0.01, backoff=0.01, registry=registry)
    @with_cache
    def count(patch: kopf.Patch, **_: Any) -> None:
        seen.append(1)
        patch.spec["names"] = [{"x": {"a"}}]
        patch.spec["size"] = len(seen)
        if fails:
            raise kopf.TemporaryError("later", delay=0.01)

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: len(seen) > 2)
        assert cluster.get(app())["spec"].keys() == {"size"}
    assert "spec.names[0].x is a set, which JSON does not have" in caplog.text
    assert ("A part of the patch is not applied: the patch: spec.names[0].x is a set" in caplog.text) is fails


async def test_20_a_timer_goes_on_after_a_function_of_its_patch_that_leaves_a_set(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    def name(obj: Any) -> None:
        obj["spec"] = {"names": {"a"}}

    @kopf.timer("example.com", "v1", "webapps", interval=0.01, registry=registry)
    @with_cache
    def count(patch: kopf.Patch, **_: Any) -> None:
        seen.append(1)
        patch.fns.append(name)

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: len(seen) > 2 or "Traceback" in caplog.text)
        assert cluster.get(app())["spec"] == {}
    assert (
        "A part of the patch is not applied: name() of patch.fns: spec.names is a set, which JSON does not"
        " have" in caplog.text
    )


def test_20_a_function_of_a_patch_that_leaves_a_set_leaves_the_object_as_it_was() -> None:
    patch = kopf.Patch(fns=[lambda obj: obj["spec"].update(a={1}, b=2)])
    assert make_plain(patch) is None
    obj: Any = {"spec": {"a": 0}}
    patch.fns[0](obj)
    assert obj == {"spec": {"a": 0}}


# ---- Reconcilers.


def test_20_objects_in_the_patch_of_a_reconciler_become_plain_json(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """The error of another value names the patch, and no call that the handler has not made."""
    calls: list[str] = []

    def annotate(obj: Any, cache: selectcache.Cache) -> None:
        obj["metadata"]["annotations"] = cache.get("configmaps", "c", namespace="shop", as_="view")["data"]

    @selectcache.reconcile(APPS, registry=registry, backoff=0.01)
    async def follow(cache: selectcache.Cache, patch: kopf.Patch, **_: Any) -> None:
        calls.append("")
        patch.spec["configs"] = cache.list_cached("configmaps")
        patch.fns.append(lambda obj: annotate(obj, cache))
        if len(calls) == 1:
            patch.spec["names"] = {"a"}

    async def main() -> None:
        async with serving(app(), config("c", a="1")) as cluster, operated(registry, cluster):
            await until(lambda: cluster.get(app())["spec"].get("configs"))
            await until(lambda: cluster.get(app())["metadata"].get("annotations") == {"a": "1"})
            await until(lambda: len(calls) > 1)
            assert cluster.get(app())["spec"].keys() == {"configs"}

    run(main())
    assert "the patch: spec.names is a set, which JSON does not have" in caplog.text
    assert "cache.live.patch()" not in caplog.text


def test_the_patch_of_a_reconciler_is_as_kopfs_own() -> None:
    body = _kopf.Body({"metadata": {"name": "web-1"}, "spec": {"a": 1}})
    theirs, ours = kopf.Patch(body=body), _kopf.Patch(body)
    assert vars(ours).keys() == {"_original", "_fns"}
    assert vars(theirs).keys() == {*vars(ours), "_meta", "_spec", "_status"}
    for patch in (theirs, ours):
        assert not patch
        patch.meta.labels["x"] = "1"
        patch.metadata.annotations["y"] = "2"
        patch.spec["a"], patch.status["b"] = 2, 3
        patch.fns.append(lambda obj: obj["spec"].update(c=4))
    assert (
        ours
        == theirs
        == {
            "metadata": {"labels": {"x": "1"}, "annotations": {"y": "2"}},
            "spec": {"a": 2},
            "status": {"b": 3},
        }
    )
    assert ours.as_json_patch() == theirs.as_json_patch() != []
    assert (ours.spec["a"], ours.meta.labels["x"], repr(ours)[:6]) == (2, "1", "Patch(")
