"""Kopf's finalizer on the objects of reconcilers, and which filters a finalizer of their own allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError, Key, LabelSelector, Selector
from kopf_selectcache.errors import ReadError
from kopf_selectcache.plugin.hooks import checked
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.api.status import Problem
from kopf_selectcache.testing.faults import Silence
from tests.faults.environment import until
from tests.plugin.finalizing import Meanwhile
from tests.plugin.reconciling import APPS, CRD, app, operated, serving
from tests.plugin.virtual import Times

DONE, KOPFS = "example.com/done", "kopf.zalando.org/KopfFinalizerMarker"
OTHER = "example.com/other"
LONG = 100.0


def with_finalizers(*finalizers: str, name: str = "web") -> dict[str, Any]:
    obj = app(name)
    obj["metadata"]["finalizers"] = list(finalizers)
    return obj


def finalizers(cluster: EmbeddedCluster, name: str = "web") -> list[str] | None:
    """Return the finalizers of an object; None if it does not exist."""
    with suppress(Problem):
        found: list[str] = cluster.get(app(name))["metadata"].get("finalizers", [])
        return found
    return None


# ---- Leftovers.


async def test_20_kopfs_finalizer_that_nobody_takes_off_is_named_once_for_a_kind(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry)
    @selectcache.reconcile(APPS, registry=registry, id="second")
    async def follow(name: str, **_: Any) -> None:
        calls.append(name)

    objects = [with_finalizers(KOPFS, name=name) for name in ("a", "b")]
    async with serving(*objects) as cluster, operated(registry, cluster):
        await times.until(lambda: len(calls) == 4, within=10)
        await asyncio.sleep(LONG)
        assert finalizers(cluster, "a") == [KOPFS]
        assert not cluster.requests.where(verb="patch")
    warnings = [each.getMessage() for each in caplog.records if KOPFS in each.getMessage()]
    assert len(warnings) == 1
    assert warnings[0].startswith("webapps.example.com shop/")
    assert "finalizer=True runs a cleanup with deleting=True, finalizer=False removes it" in warnings[0]


@pytest.mark.parametrize("handler", ["kopf", "True", "its name"])
async def test_20_kopfs_finalizer_that_somebody_takes_off_is_not_named(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture, handler: str
) -> None:
    calls: list[str] = []
    if handler == "kopf":
        kopf.on.event("example.com", "v1", "webapps", registry=registry)(lambda **_: None)
    else:
        given = True if handler == "True" else KOPFS
        selectcache.reconcile(APPS, registry=registry, id="cleaning", finalizer=given)(_nothing)

    @selectcache.reconcile(APPS, registry=registry)
    async def follow(name: str, **_: Any) -> None:
        calls.append(name)

    async with serving(with_finalizers(KOPFS)) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        await asyncio.sleep(LONG)
    assert "can't be deleted" not in caplog.text


async def _nothing(**_: Any) -> None:
    pass


async def test_20_beside_a_finalizer_of_ones_own_the_command_is_named(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    selectcache.reconcile(APPS, registry=registry, finalizer=DONE)(_nothing)
    async with serving(with_finalizers(KOPFS)) as cluster, operated(registry, cluster):
        await times.until(lambda: finalizers(cluster) == [KOPFS, DONE], within=10)
    assert "run: selectcache finalizers remove webapps.example.com --all" in caplog.text


# ---- Moving a kind over.


async def test_18_true_is_the_finalizer_of_kopf(registry: kopf.OperatorRegistry, times: Times) -> None:
    calls: list[bool] = []

    @selectcache.reconcile(APPS, registry=registry, finalizer=True)
    async def follow(deleting: bool, **_: Any) -> None:
        calls.append(deleting)

    objects = [with_finalizers(KOPFS), app("new")]
    async with serving(*objects) as cluster, operated(registry, cluster):
        await times.until(lambda: len(calls) == 2, within=10)
        assert finalizers(cluster, "new") == [KOPFS]
        cluster.delete(app())
        await times.until(lambda: finalizers(cluster) is None, within=10)
    assert calls == [False, False, True]


async def test_18_false_takes_the_finalizer_of_kopf_off_before_the_call(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    calls: list[tuple[str, list[str]]] = []

    @selectcache.reconcile(APPS, registry=registry, finalizer=False)
    async def follow(name: str, meta: Any, **_: Any) -> None:
        calls.append((name, list(meta.get("finalizers", []))))

    objects = [with_finalizers(OTHER, KOPFS), with_finalizers(KOPFS, name="terminating")]
    async with serving(*objects) as cluster:
        cluster.delete(app("terminating"))
        async with operated(registry, cluster):
            await times.until(lambda: calls and finalizers(cluster, "terminating") is None, within=10)
            await asyncio.sleep(LONG)
            assert finalizers(cluster) == [OTHER]
            assert len(cluster.requests.where(verb="patch")) == 2
    assert calls == [("web", [OTHER])]


async def test_18_false_meets_an_object_that_has_changed(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    """The patch is of a version: a finalizer that has moved in the list is not mixed up with another."""
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry, finalizer=False)
    async def follow(name: str, **_: Any) -> None:
        calls.append(name)

    async with serving(with_finalizers(KOPFS)) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        cluster.patch(app(), {"metadata": {"finalizers": [KOPFS, OTHER]}})
        await times.until(lambda: finalizers(cluster) == [OTHER], within=10)


HANDLERS: dict[str, Callable[..., Any]] = {
    "event": kopf.on.event,
    "create": kopf.on.create,
    "index": kopf.index,
    "daemon": kopf.daemon,
    "timer": lambda *args, **given: kopf.timer(*args, interval=9, **given),
}


@pytest.mark.parametrize("finalizer", [True, KOPFS])
@pytest.mark.parametrize("handler", HANDLERS)
def test_18_kopfs_finalizer_beside_kopfs_handlers_is_an_error_at_the_start(
    registry: kopf.OperatorRegistry, handler: str, finalizer: Any
) -> None:
    HANDLERS[handler]("example.com", "v1", "webapps", registry=registry, id="theirs")(_nothing)
    selectcache.reconcile(APPS, registry=registry, finalizer=finalizer)(_nothing)
    with pytest.raises(DeclarationError, match=r"at their first event, because it has .*'theirs'"):
        checked(declared(selectcache.EVERYTHING), registry)


def declared(filter_: Any, key: str = APPS) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.clusterwide = True
    settings_of(settings).selectors[key] = filter_
    return settings


def test_18_handlers_of_other_kinds_are_no_error(registry: kopf.OperatorRegistry) -> None:
    kopf.on.event("example.com", "v1", "gadgets", registry=registry)(_nothing)
    selectcache.reconcile(APPS, registry=registry, finalizer=True)(_nothing)
    assert checked(declared(selectcache.EVERYTHING), registry)


@pytest.mark.parametrize(("handler", "is_wrong"), [("event", False), ("daemon", True)])
def test_18_false_is_an_error_only_where_kopf_puts_its_finalizer_on(
    registry: kopf.OperatorRegistry, handler: str, is_wrong: bool
) -> None:
    HANDLERS[handler]("example.com", "v1", "webapps", registry=registry, id="theirs")(_nothing)
    selectcache.reconcile(APPS, registry=registry, finalizer=False)(_nothing)
    if is_wrong:
        with pytest.raises(DeclarationError, match=r"Kopf adds its own finalizer to .*'theirs'"):
            checked(declared(selectcache.EVERYTHING), registry)
    else:
        checked(declared(selectcache.EVERYTHING), registry)


async def test_18_a_handler_by_another_name_of_the_kind_is_found_in_the_cluster(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    kopf.on.event("example.com", "v1", "WebApp", registry=registry, id="theirs")(_nothing)
    selectcache.reconcile(APPS, registry=registry, finalizer=True)(_nothing)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: "does not run: " in caplog.text, within=10)
    assert "at their first event, because it has" in caplog.text


def test_18_true_and_false_for_one_kind_are_an_error(registry: kopf.OperatorRegistry) -> None:
    selectcache.reconcile(APPS, registry=registry, finalizer=True, id="a")(_nothing)
    selectcache.reconcile(APPS, registry=registry, finalizer=False, id="b")(_nothing)
    with pytest.raises(DeclarationError, match=r"'a' has finalizer=True .* 'b' has finalizer=False"):
        checked(declared(selectcache.EVERYTHING), registry)


@pytest.mark.parametrize("taken", [True, KOPFS])
def test_18_kopfs_finalizer_is_not_taken_over_and_off_beside_one_of_ones_own(
    registry: kopf.OperatorRegistry, taken: Any
) -> None:
    for name, finalizer in {"a": DONE, "b": taken, "c": False}.items():
        selectcache.reconcile(APPS, registry=registry, finalizer=finalizer, id=name)(_nothing)
    with pytest.raises(DeclarationError, match=r"'b' has finalizer=.* 'c' has finalizer=False"):
        checked(declared(selectcache.EVERYTHING), registry)


# ---- Filters.

LEAVABLE: dict[str, tuple[Any, str]] = {
    "labels": ("app=web", "would fail app=web"),
    "one of two": ([Selector("app=web"), Selector(namespaces=["shop"])], "would fail app=web"),
    "namespaces by label": (
        Selector(namespaces=LabelSelector.parse("tenant=yes")),
        "a namespace may lose the label tenant=yes",
    ),
}
LASTING: dict[str, Any] = {
    "everything": selectcache.EVERYTHING,
    "namespaces": Selector(namespaces=["shop", "blog"]),
    "names": Selector(names=["web"], namespaces=["shop"]),
    "name as a field": Selector(fields="metadata.name=web"),
    "complementary labels": ["app", "!app"],
}


@pytest.mark.parametrize("name", LEAVABLE)
def test_18_a_filter_that_an_object_can_leave_is_an_error_with_the_object(
    registry: kopf.OperatorRegistry, name: str
) -> None:
    filter_, text = LEAVABLE[name]
    selectcache.reconcile(APPS, registry=registry, finalizer=DONE)(_nothing)
    with pytest.raises(DeclarationError, match="objects could leave the filter") as raised:
        checked(declared(filter_), registry)
    assert text in str(raised.value)


def test_18_a_field_can_be_left_as_well(registry: kopf.OperatorRegistry) -> None:
    selectcache.reconcile("pods", registry=registry, finalizer=DONE)(_nothing)
    with pytest.raises(DeclarationError, match=r"would fail spec.nodeName=n1"):
        checked(declared(Selector(fields="spec.nodeName=n1"), "v1/pods"), registry)


@pytest.mark.parametrize("name", LASTING)
def test_18_a_filter_that_no_object_can_leave_is_fine(registry: kopf.OperatorRegistry, name: str) -> None:
    selectcache.reconcile(APPS, registry=registry, finalizer=DONE)(_nothing)
    try:
        checked(declared(LASTING[name]), registry)
    except DeclarationError as error:
        raise AssertionError("no object can leave it") from error


def test_18_false_takes_any_filter(registry: kopf.OperatorRegistry) -> None:
    selectcache.reconcile(APPS, registry=registry, finalizer=False)(_nothing)
    assert checked(declared("app=web"), registry)


async def test_18_a_cache_is_neither_narrowed_nor_removed_while_its_objects_have_the_finalizer(
    registry: kopf.OperatorRegistry,
) -> None:
    selectcache.reconcile(APPS, registry=registry, finalizer=DONE)(_nothing)
    async with serving(app("a"), app("b")) as cluster:
        cluster.namespace("blog")
        async with operated(registry, cluster) as settings:
            cache = selectcache.cache_of(settings)
            await cache.wait_synced()
            await until(
                lambda: (
                    [each["metadata"].get("finalizers") for each in cache.list_cached(APPS)] == [[DONE]] * 2
                )
            )
            with pytest.raises(ReadError, match="can't be removed: 2 objects such as shop/a would keep"):
                await cache.undeclare(APPS)
            with pytest.raises(ReadError, match="can't be narrowed: shop/b would keep the finalizer"):
                await cache.declare(APPS, Selector(names=["a"]), replace=True)
            with pytest.raises(DeclarationError, match="objects could leave the filter"):
                await cache.declare(APPS, "app=web", replace=True)
            with pytest.raises(DeclarationError, match=r"does not store metadata\.finalizers"):
                await cache.declare(APPS, selectcache.EVERYTHING, keep=["spec"], replace=True)
            await cache.declare(APPS, Selector(namespaces=["shop"]), replace=True)
            cluster.delete(app("b"))
            await until(lambda: len(cache.list_cached(APPS)) == 1)
            await cache.declare(APPS, Selector(names=["a"]), replace=True)
            cluster.delete(app("a"))
            await until(lambda: not cache.list_cached(APPS))
            await cache.undeclare(APPS)
            await cache.undeclare("v1/configmaps")  # No finalizer is on these.
            await cache.declare("v1/configmaps", "app=web")
            with pytest.raises(DeclarationError, match="objects could leave the filter"):
                await cache.declare(APPS, "app=web")
            await cache.declare(APPS, selectcache.EVERYTHING)


async def test_18_no_finalizer_goes_on_an_object_past_which_the_filter_is_being_narrowed(
    registry: kopf.OperatorRegistry,
) -> None:
    """The check of the change cannot see it: the object comes while the new filter is listed."""
    calls: list[str] = []
    selectcache.reconcile(APPS, registry=registry, finalizer=DONE)(_nothing)

    @selectcache.reconcile(APPS, registry=registry)
    async def follow(name: str, **_: Any) -> None:
        calls.append(name)

    async with serving(app("a")) as cluster, operated(registry, cluster) as settings:
        await until(lambda: finalizers(cluster, "a") == [DONE])
        cache = selectcache.cache_of(settings)
        silence = cluster.faults.add(Silence(), verb="list", resource="webapps", times=1)
        change = asyncio.create_task(cache.declare(APPS, Selector(names=["a"]), replace=True))
        await until(lambda: len(cluster.requests.where(verb="list", resource="webapps")) == 2)
        cluster.create(app("b"))
        await until(lambda: "b" in calls)
        silence.release()
        await change
        assert [*cache.list_cached(APPS).keys()] == [Key("a", namespace="shop")]
        assert finalizers(cluster, "b") == []


async def test_18_a_filter_is_not_narrowed_past_an_object_on_which_a_finalizer_is_being_put(
    registry: kopf.OperatorRegistry,
) -> None:
    selectcache.reconcile(APPS, registry=registry, finalizer=DONE)(_nothing)
    async with serving() as cluster, operated(registry, cluster) as settings:
        cache, changes = selectcache.cache_of(settings), list[asyncio.Task[None]]()
        await cache.wait_synced()
        narrow = Meanwhile(
            lambda: changes.append(
                asyncio.create_task(cache.declare(APPS, Selector(names=["a"]), replace=True))
            )
        )
        cluster.faults.add(narrow, verb="patch", times=1)
        cluster.create(app("b"))
        await until(lambda: finalizers(cluster, "b") == [DONE])
        with pytest.raises(ReadError, match="can't be narrowed: shop/b would keep the finalizer"):
            await changes[0]


# ---- The stored part.


@pytest.mark.parametrize("options", [{"keep": ["spec"]}, {"drop": ["metadata.finalizers"]}])
@pytest.mark.parametrize("finalizer", [DONE, True, False])
def test_18_a_cache_without_finalizers_is_an_error(
    registry: kopf.OperatorRegistry, options: dict[str, Any], finalizer: Any
) -> None:
    selectcache.reconcile(APPS, registry=registry, finalizer=finalizer)(_nothing)
    with pytest.raises(DeclarationError, match=r"does not store metadata\.finalizers"):
        checked(declared(selectcache.Cached(selectcache.EVERYTHING, **options)), registry)


@pytest.mark.parametrize(
    "options", [{"keep": ["metadata.finalizers"]}, {"drop": ["spec"]}, {"metadata_only": True}]
)
async def test_18_a_cache_of_a_part_with_finalizers_works(
    registry: kopf.OperatorRegistry, times: Times, options: dict[str, Any]
) -> None:
    calls: list[bool] = []

    @selectcache.reconcile(APPS, registry=registry, finalizer=DONE)
    async def follow(deleting: bool, **_: Any) -> None:
        calls.append(deleting)

    filters = {APPS: selectcache.Cached(selectcache.EVERYTHING, **options)}
    async with serving(app()) as cluster, operated(registry, cluster, filters=filters):
        await times.until(lambda: calls == [False], within=10)
        cluster.delete(app())
        await times.until(lambda: finalizers(cluster) is None, within=10)
    assert calls == [False, True]


async def test_18_a_transform_that_changes_finalizers_is_an_error_that_names_it(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    selectcache.reconcile(APPS, registry=registry, finalizer=DONE)(_nothing)

    def bare(obj: dict[str, Any]) -> dict[str, Any]:
        obj["metadata"].pop("finalizers", None)
        return obj

    filters = {APPS: selectcache.Cached(selectcache.EVERYTHING, transform=bare)}
    async with serving(with_finalizers(OTHER)) as cluster, operated(registry, cluster, filters=filters):
        await times.until(lambda: "changed metadata.finalizers" in caplog.text, within=10)
        assert finalizers(cluster) == [OTHER]
    assert "transform=" in caplog.text


async def test_18_a_transform_that_is_not_looked_at_is_an_error(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the cluster knows that the short name means the declared kind."""
    selectcache.reconcile("wa", registry=registry, finalizer=DONE)(_nothing)
    filters = {APPS: selectcache.Cached(selectcache.EVERYTHING, transform=lambda obj: obj)}
    async with serving(with_finalizers(OTHER)) as cluster:
        cluster.patch(CRD, {"spec": {"names": {"shortNames": ["wa"]}}})
        async with operated(registry, cluster, filters=filters):
            await times.until(lambda: "does not run: " in caplog.text, within=10)
            assert finalizers(cluster) == [OTHER]
    assert "a transform= may change the finalizers of webapps.example.com" in caplog.text


async def test_18_a_transform_that_leaves_finalizers_works(
    registry: kopf.OperatorRegistry, times: Times
) -> None:
    selectcache.reconcile(APPS, registry=registry, finalizer=DONE)(_nothing)
    filters = {APPS: selectcache.Cached(selectcache.EVERYTHING, transform=lambda obj: obj | {"spec": {}})}
    async with serving(app()) as cluster, operated(registry, cluster, filters=filters):
        await times.until(lambda: finalizers(cluster) == [DONE], within=10)
