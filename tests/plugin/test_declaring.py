"""Kinds that are declared and removed while an operator runs, and its handlers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError, LabelSelector, NotSynced, Selector, _kopf
from kopf_selectcache.settings.options import settings_of
from tests.faults.environment import until
from tests.informer.test_namespaces_by_label import namespace
from tests.kopf_operators import Cluster, cycles, declaring, launched
from tests.plugin.test_change_handlers import operating
from tests.rows import each_row
from tests.secrets import labelled, secret


@pytest.mark.parametrize("declared", [{}, {"configmaps": ""}], ids=["nothing", "another kind"])
async def test_a_handler_of_changes_begins_when_its_kind_is_declared(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture, declared: dict[str, str]
) -> None:
    seen: list[str] = []
    caches: list[selectcache.Cache] = []

    @selectcache.on.change("secrets", registry=registry)
    async def follow(name: str, cause: str, **_: Any) -> None:
        seen.append(f"{name} {cause}")

    def configure(settings: kopf.OperatorSettings) -> None:
        selectors = settings_of(settings).selectors
        del selectors["v1/secrets"]
        selectors.update(declared)
        if declared:
            caches.append(selectcache.cache_of(settings))
        else:
            kopf.on.event("namespaces", registry=registry)(selectcache.with_cache(take))

    async def take(cache: selectcache.Cache, **_: Any) -> None:
        caches[:] = [cache]

    objects = secret("a", app="web"), secret("b", app="db")
    async with operating(registry, *objects, configure=configure) as cluster:
        await until(lambda: caches)
        (cache,) = caches
        await until(lambda: "is not called" in caplog.text)
        await cache.declare("v1/secrets", "app=web")
        await until(lambda: seen == ["a entered"])
        cluster.patch(secret("b"), labelled(app="web"))
        await until(lambda: seen == ["a entered", "b entered"])
        await cache.undeclare("secrets")
        cluster.delete(secret("a"))
        await cycles()
        await cache.declare("secrets", "app=web")
        await until(lambda: seen == ["a entered", "b entered", "b entered"])


async def test_a_handler_of_changes_begins_when_its_namespace_gains_the_label(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="kopf_selectcache")
    seen: list[str] = []

    @selectcache.on.change("secrets", registry=registry, namespace="shop")
    async def follow(name: str, cause: str, **_: Any) -> None:
        seen.append(f"{name} {cause}")

    tenants = Selector("app=web", namespaces=LabelSelector.parse("tenant=yes"))
    async with operating(registry, secret("a", app="web"), filter_=tenants) as cluster:
        await until(lambda: "is not called" in caplog.text)
        cluster.patch(namespace("shop"), labelled(tenant="yes"))
        await until(lambda: seen == ["a entered"])
        assert "ERROR" not in caplog.text


async def test_a_handler_of_changes_ends_when_it_cannot_compare_objects_any_more(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    caches: list[selectcache.Cache] = []

    @selectcache.on.change("secrets", registry=registry, where={"metadata.annotations.a": "b"})
    async def follow(name: str, cause: str, **_: Any) -> None:
        seen.append(f"{name} {cause}")

    def configure(settings: kopf.OperatorSettings) -> None:
        caches.append(selectcache.cache_of(settings))

    annotated = secret("a", app="web")
    annotated["metadata"]["annotations"] = {"a": "b"}
    async with operating(registry, annotated, configure=configure):
        (cache,) = caches
        await until(lambda: seen == ["a entered"])
        await cache.declare("secrets", "app=web", drop=["metadata.annotations"], replace=True)
        await until(lambda: "is not called" in caplog.text)
        await cache.declare("secrets", "app=web", drop=[], replace=True)
        await until(lambda: seen == ["a entered", "a entered"])


async def test_calls_that_run_when_a_kind_is_removed_go_on_and_others_end(
    registry: kopf.OperatorRegistry,
) -> None:
    seen: list[str] = []
    caches: list[selectcache.Cache] = []
    goes_on = asyncio.Event()

    @selectcache.on.change("secrets", registry=registry)
    async def follow(name: str, **_: Any) -> None:
        seen.append(f"{name} begun")
        if name == "b":
            raise kopf.TemporaryError("later", delay=1000)
        if name == "a":
            await goes_on.wait()
        seen.append(f"{name} done")

    def configure(settings: kopf.OperatorSettings) -> None:
        settings.queueing.worker_limit = 1
        caches.append(selectcache.cache_of(settings))

    async with operating(registry, secret("b", app="web"), configure=configure) as cluster:
        (cache,) = caches
        await until(lambda: seen == ["b begun"])
        cluster.create(secret("a", app="web"))
        await until(lambda: seen == ["b begun", "a begun"])
        cluster.create(secret("c", app="web"))
        await until(lambda: len(cache.list_cached("secrets")) == 3)
        await cycles()
        await cache.undeclare("secrets")
        await cycles()
        goes_on.set()
        await until(lambda: seen == ["b begun", "a begun", "a done"])
        await cycles()
        await cache.declare("secrets", Selector(names=["c"]))
        await until(lambda: seen[3:] == ["c begun", "c done"])


async def test_a_task_can_declare_before_the_operator_has_started() -> None:
    settings = declaring()
    cache = selectcache.cache_of(settings)
    with pytest.raises(NotSynced):
        await cache.declare("secrets", "app=web", timeout=0)
    declaring_ = asyncio.create_task(cache.declare("secrets", ""))
    await cycles()
    async with launched(settings, Cluster()):
        await declaring_
        assert cache.list("secrets") == []
        with pytest.raises(DeclarationError):
            await cache.declare("secrets", "app=web")
        await cache.undeclare("secrets")


@each_row(
    ("change", "line"),
    [
        (
            lambda selectors: selectors.__setitem__("v1/pods", "app=db"),
            "await cache.declare('v1/pods', ..., replace=True)",
        ),
        (lambda selectors: selectors.__setitem__("nodes", ""), "await cache.declare('nodes', ...)"),
        (lambda selectors: selectors.update(nodes=""), "await cache.declare('nodes', ...)"),
        (lambda selectors: selectors.__delitem__("pods"), "await cache.undeclare('v1/pods')"),
        (lambda selectors: selectors.clear(), "await cache.undeclare('v1/pods')"),
    ],
)
async def test_settings_that_are_changed_too_late_name_the_line_to_write(
    change: Callable[[Any], object], line: str
) -> None:
    settings = kopf.OperatorSettings()
    selectors = settings_of(settings).selectors
    selectors["v1/pods"] = "app=web"
    async with launched(settings, Cluster()) as operator:
        await operator.logged_in()
        with pytest.raises(DeclarationError) as caught:
            change(selectors)
        assert caught.value.remedy.endswith(line)


async def test_a_later_kind_has_the_namespaces_of_the_operator() -> None:
    settings = kopf.OperatorSettings()
    settings_of(settings).selectors["pods"] = Selector(namespaces=["shop"])
    with _kopf.run_command.make_context("run", ["-n", "shop"]).scope():
        async with launched(settings, Cluster()) as operator:
            await operator.logged_in()
            cache = selectcache.Cache(operator.runtime)
            await cache.declare("secrets", "")
            assert cache.info("secrets").filter == Selector("", namespaces=["shop"])


async def test_handlers_do_not_wait_for_a_kind_of_the_start_that_is_removed() -> None:
    cluster = Cluster()
    cluster.hold("/api/v1/pods")
    async with launched(declaring(pods="", nodes=""), cluster) as operator:
        waiting = asyncio.create_task(operator.gate(None, None))
        await cycles()
        assert not waiting.done()
        await selectcache.Cache(operator.runtime).undeclare("pods")
        await waiting
