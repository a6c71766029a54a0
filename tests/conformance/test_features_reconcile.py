"""The features of tests/FEATURES.md about sources, queues and reconcilers, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.credentials import Vault

import kopf_selectcache as selectcache
from kopf_selectcache import Caches, DeclarationError, sources
from kopf_selectcache.plugin.hooks import checked
from kopf_selectcache.reactions.predicates import labels_changed
from kopf_selectcache.settings.options import settings_of
from tests.faults.environment import connections_closed
from tests.real.inprocess import credentials, until
from tests.real.inprocess import run as run_alone

from .places import Place
from .test_features import synced

FILTERS = ("v1/configmaps", "v1/secrets")


@pytest.fixture
def configs(place: Place) -> Place:
    return place.of("configmaps")


def run(main: Coroutine[Any, Any, None]) -> None:
    async def closing() -> None:
        await main
        await connections_closed()

    run_alone(closing())


@asynccontextmanager
async def operated(
    place: Place, registry: kopf.OperatorRegistry, *kinds: str
) -> AsyncIterator[asyncio.Task[None]]:
    """Run an operator that caches what has the label `app` in the namespace."""
    settings, stop = kopf.OperatorSettings(), asyncio.Event()
    settings.posting.enabled, settings.scanning.disabled = False, True
    settings.queueing.exit_timeout = 0.1
    settings_of(settings).selectors.update(dict.fromkeys(kinds or FILTERS, "app"))
    vault = Vault({"login": credentials(place.api)})
    task = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=settings,
            vault=vault,
            namespaces=[place.namespace],
            standalone=True,
            stop_flag=stop,
        )
    )
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait({task})


def create(place: Place, name: str, *, owner: Any = None, controller: bool = True, **data: str) -> Any:
    metadata = {}
    if owner is not None:
        reference = {"apiVersion": "v1", "kind": owner["kind"], "controller": controller}
        reference |= {part: owner["metadata"][part] for part in ("name", "uid")}
        metadata = {"ownerReferences": [reference]}
    return place.create(name, labels={"app": name}, metadata=metadata, data=data)


def test_c1_e4_workers_start_after_their_sources_and_stop_before_the_caches(
    place: Place, configs: Place, registry: kopf.OperatorRegistry
) -> None:
    steps: list[str] = []

    class Slow(sources.SyncingSource):
        async def follow(self, deliveries: Any) -> None:
            steps.append("started")

        async def wait_synced(self, timeout: float | None = None) -> None:  # As that of the base class.  # noqa: ASYNC109
            await until(lambda: "other" in steps, "the other handler is called")
            steps.append("synced")

        async def unfollow(self) -> None:
            steps.append("stopped")

    @selectcache.reconcile("configmaps", watches=[Slow], registry=registry)
    async def wait(cache: selectcache.Cache, **_: Any) -> None:
        steps.append("called")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append(f"ended with {len(cache.list_cached('secrets'))}")

    @selectcache.reconcile("secrets", registry=registry)
    async def other(**_: Any) -> None:
        steps.append("other")

    async def main() -> None:
        create(configs, "web")
        create(place, "web")
        async with operated(place, registry):
            await until(lambda: "called" in steps, "the handler is called")
        expected = ["started", "other", "synced", "called", "ended with 1", "stopped"]
        assert sorted(steps[:2]) == sorted(expected[:2])
        assert steps[2:] == expected[2:]

    run(main())


def test_c2_c6_c8_a_reconciler_is_called_for_its_objects_and_those_that_belong_to_them(
    place: Place, configs: Place, registry: kopf.OperatorRegistry
) -> None:
    calls: list[tuple[str, int]] = []

    def to_app(found: Any) -> list[selectcache.Key]:
        return [selectcache.Key(found["metadata"]["labels"]["app"], namespace=place.namespace)]

    @selectcache.reconcile(
        "configmaps",
        owns=[selectcache.Watch("secrets", controller=False)],
        watches=[
            selectcache.Watch(
                "secrets",
                map=lambda found: [
                    selectcache.Key(found["metadata"]["labels"]["app"], namespace=place.namespace)
                ],
            )
        ],
        registry=registry,
    )
    async def count(name: str, body: Any, cache: selectcache.Cache, patch: kopf.Patch, **_: Any) -> None:
        calls.append((name, len(cache.list_cached("secrets", owner=body))))
        patch.metadata.annotations["owned"] = str(calls[-1][1])

    async def main() -> None:
        web = create(configs, "web")
        async with operated(place, registry):
            await until(lambda: calls == [("web", 0)], "it is called at the start")
            create(place, "one", owner=web, controller=False)
            await until(lambda: len(calls) == 2, "it is called for the owner")
            place.create("mapped", labels={"app": "web"})
            await until(lambda: len(calls) == 3, "it is called for the result of the function")
            place.delete("one")
            await until(lambda: len(calls) == 4, "it is called for a departure")
            create(configs, "db")
            await until(lambda: len(calls) == 5, "it is called for a new object")
        assert calls == [("web", 0), ("web", 1), ("web", 1), ("web", 0), ("db", 0)]
        assert configs.get("web")["metadata"]["annotations"] == {"owned": "0"}

    run(main())


def test_c3_c5_a_source_has_the_cache_or_the_informer_that_it_is_given(
    place: Place, configs: Place, registry: kopf.OperatorRegistry
) -> None:
    calls: list[str] = []
    second = Caches({"v1/secrets": "app=other"}, login=credentials(place.api), namespaces=[place.namespace])
    given: list[selectcache.Cache] = []

    def to_web(_: Any) -> list[selectcache.Key]:
        return [selectcache.Key("web", namespace=place.namespace)]

    @selectcache.reconcile(
        "configmaps",
        watches=[
            selectcache.Watch("secrets", cache=lambda: given[0], map=to_web),
            lambda: sources.Informer(next(iter(second.informers)), map=to_web),
        ],
        registry=registry,
    )
    async def follow(causes: Any, **_: Any) -> None:
        calls.extend(f"{each.source} {each.obj.name}" for each in causes)

    async def main() -> None:
        create(configs, "web")
        async with second as cache:
            given.append(cache)
            await synced(cache)
            async with operated(place, registry, "v1/configmaps"):
                await until(lambda: "configmaps web" in calls, "it is called at the start")
                create(place, "hidden")
                create(place, "other")
                await until(lambda: calls.count("secrets other") == 2, "it is called by both sources")
        assert "secrets hidden" not in calls

    run(main())


def test_c4_a_channel_has_several_reconcilers_called(configs: Place, registry: kopf.OperatorRegistry) -> None:
    calls: list[str] = []
    pushes = sources.Channel("pushes")

    def follow(id_: str) -> None:
        @selectcache.reconcile(
            "configmaps",
            watches=[
                selectcache.Watch(
                    pushes, map=lambda push: [selectcache.Key(push["app"], namespace=configs.namespace)]
                )
            ],
            id=id_,
            registry=registry,
        )
        async def note(name: str, causes: Any, **_: Any) -> None:
            calls.append(f"{id_}: {causes[-1].event} {name}")

    async def main() -> None:
        follow("one")
        follow("other")
        create(configs, "web")
        async with operated(configs, registry):
            await until(lambda: len(calls) == 2, "both are called at the start")
            await pushes.send({"app": "web"})
            await until(lambda: len(calls) == 4, "both are called for the event")
        assert sorted(calls[2:]) == ["one: sent web", "other: sent web"]

    run(main())


def test_c7_predicates_drop_changes(configs: Place, registry: kopf.OperatorRegistry) -> None:
    calls: list[tuple[str, str | None]] = []

    @selectcache.reconcile(
        selectcache.Watch("configmaps", predicates=[labels_changed]),
        predicates=[lambda _, new: new is not None],
        registry=registry,
    )
    async def note(body: Any, **_: Any) -> None:
        calls.append((body["data"]["a"], body.metadata.labels.get("tier")))

    async def main() -> None:
        create(configs, "web", a="1")
        async with operated(configs, registry):
            await until(lambda: len(calls) == 1, "it is called at the start")
            configs.patch("web", {"data": {"a": "2"}})
            create(configs, "later", a="3")
            await until(lambda: ("3", None) in calls, "it is called for a later change")
            configs.label("web", tier="gold")
            await until(lambda: ("2", "gold") in calls, "it is called for the label")
        assert calls == [("1", None), ("3", None), ("2", "gold")]

    run(main())


def test_c9_a_key_runs_once_at_a_time_and_again_after_failures(
    configs: Place, registry: kopf.OperatorRegistry
) -> None:
    calls: list[int] = []
    held_up = asyncio.Event()

    @selectcache.reconcile("configmaps", backoff=0.01, registry=registry)
    async def note(retry: int, body: Any, **_: Any) -> None:
        calls.append(retry)
        await held_up.wait()
        if body["data"]["a"] != "3" or retry < 2:
            raise RuntimeError("not yet")

    async def main() -> None:
        create(configs, "web", a="1")
        async with operated(configs, registry) as operator:
            await until(lambda: len(calls) == 1, "it is called at the start")
            for value in "23":
                configs.patch("web", {"data": {"a": value}})
            assert not operator.done()
            assert calls == [0]
            held_up.set()
            await until(lambda: len(calls) >= 3, "it is called again")
        assert calls[:3] == [0, 1, 2]

    run(main())


def test_e5_a_kind_without_a_cache_is_an_error_at_the_start(
    configs: Place, registry: kopf.OperatorRegistry
) -> None:
    selectcache.reconcile("configmaps", owns=["secrets"], registry=registry)(lambda **_: None)
    settings = kopf.OperatorSettings()
    settings_of(settings).selectors["v1/configmaps"] = selectcache.Selector(namespaces=[configs.namespace])
    with pytest.raises(DeclarationError, match=r"settings\.selectcache\.selectors\['v1/secrets'\] = "):
        checked(settings, registry)
