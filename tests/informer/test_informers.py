"""How each cache is doing, and what is told of it: to readers, in the log, and to who waits. Faults are in
tests/faults/."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from kopf_selectcache import Forbidden, NotSynced, Selector
from kopf_selectcache.errors import Missing, Rejected
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.reflector import HEALTHY_WATCH_SECONDS
from tests.faults.environment import operating, until
from tests.faults.server import (
    PODS,
    Answer,
    Script,
    Server,
    Then,
    answer,
    error,
    held,
    listed,
    pod,
    refused,
    streamed,
)

LISTED = listed("100", pod("a", "90"))
EXAMPLE = "/apis/example.com"
WEBAPPS = {"name": "webapps", "singularName": "webapp", "kind": "WebApp"}


def serving(
    server: Server, *versions: str, namespaced: bool = True, fields: tuple[str, ...] = ()
) -> dict[str, Script]:
    """Let the server have webapps in these versions, the first of which is preferred; return the script of
    each."""
    paths = "/namespaces/shop/webapps" if namespaced else "/webapps"
    found = {version: Script([listed("100", kind="WebAppList")]) for version in versions}
    all_of_them = [{"version": version} for version in versions]
    server.scripts[EXAMPLE] = Script(
        [answer({"versions": all_of_them, "preferredVersion": next(iter(all_of_them), None)})] * 9
    )
    for version, script in found.items():
        server.scripts[f"{EXAMPLE}/{version}"] = Script(
            [answer({"resources": [WEBAPPS | {"namespaced": namespaced}]})] * 9
        )
        server.scripts[f"{EXAMPLE}/{version}{paths}"] = script
    if fields:
        selectable = [
            {"name": version, "selectableFields": [{"jsonPath": path} for path in fields]}
            for version in versions
        ]
        spec = {
            "group": "example.com",
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": selectable,
            "names": {"plural": "webapps", "kind": "WebApp", "singular": "webapp"},
        }
        server.scripts["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/webapps.example.com"] = (
            Script([answer({"spec": spec})] * 9)
        )
    return found


WEB: dict[str, str | Selector] = {"webapps.example.com": Selector(namespaces=["shop"])}


# ---- Syncing, and synced.


async def test_until_its_first_complete_list_a_cache_is_not_read_and_waiting_fails() -> None:
    go = asyncio.Event()
    async with Server(lists=[held(go, LISTED)]) as server, operating(server) as environment:
        await environment.listed(1)
        assert environment.informer.state.health is Health.SYNCING
        assert environment.informer.state.age() is None
        with pytest.raises(NotSynced):
            await environment.cache.wait_synced(timeout=0.02)
        go.set()
        await environment.cache.wait_synced()
        await environment.synced()
        assert environment.names() == ["a@90"]
        assert environment.informer.state.age() == 0.0


@pytest.mark.parametrize("then", [Then.NEXT, Then.CLOSE, Then.RESET])
async def test_a_watch_that_ends_after_a_good_while_is_no_failure(
    then: Then, told: Callable[[], list[str]]
) -> None:
    over = asyncio.Event()
    watches = [Answer((*streamed(over).parts, *([b"0\r\n\r\n"] if then is Then.NEXT else [])), then)]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await environment.synced()
        told()
        environment.time.now += HEALTHY_WATCH_SECONDS + 1
        over.set()
        await environment.watched(2)
        await environment.synced()
        assert told() == []
        assert environment.time.slept == ([] if then is Then.NEXT else [0.5])


# ---- Forbidden.


async def test_an_operator_that_may_not_discover_kinds_retries_and_raises_forbidden() -> None:
    async with Server(lists=[LISTED]) as server:
        server.scripts["/api/v1"].lists[0] = refused(403, "Forbidden", message='cannot get path "/api/v1"')
        async with operating(server) as environment:
            await until(lambda: environment.informer.state.is_synced)
            assert environment.time.slept == [10.0]
            server.scripts["/api/v1"] = Script([refused(403, "Forbidden", message="no")])
        async with operating(server) as environment:
            await until(lambda: environment.informer.state.message)
            with pytest.raises(Forbidden):
                await environment.cache.wait_synced()


# ---- Missing.


async def test_a_kind_that_is_not_served_is_looked_for_slowly_and_logged_once(
    told: Callable[[], list[str]],
) -> None:
    async with Server() as server:
        serving(server)
        async with operating(server, selectors=WEB) as environment:
            informer = environment.runtime.informer("webapps.example.com")
            await until(lambda: len(environment.time.slept) >= 3)
            assert environment.time.slept[:3] == [10.0] * 3
            with pytest.raises(Missing):
                environment.cache.list_cached("webapps.example.com")
            serving(server, "v1")
            await until(lambda: informer.state.is_synced)
            assert [line.split(":")[0] for line in told()] == ["WARNING", "INFO"]


async def test_a_kind_that_is_not_served_and_likely_a_typo_has_a_suggestion() -> None:
    async with Server() as server:
        server.scripts = {
            "/api/v1": Script([answer({"resources": []})] * 9),
            "/apis": Script([answer({"groups": []})] * 9),
        }
        async with operating(server, selectors={"podz": "app=web"}) as environment:
            (informer,) = environment.runtime.informers.values()
            await until(lambda: informer.state.health is Health.MISSING)
            assert informer.state.remedy.startswith("Did you mean 'pods'?\nInstall its definition")


async def test_a_version_that_is_served_no_more_is_replaced_and_the_kind_is_missing_meanwhile() -> None:
    gone = asyncio.Event()
    async with Server() as server:
        old = serving(server, "v1beta1")["v1beta1"]
        old.watches[:] = [streamed(gone, error(410)), refused(404)]
        old.lists += [refused(404, "NotFound")]
        async with operating(server, selectors=WEB) as environment:
            informer = environment.runtime.informer("webapps.example.com")
            await until(lambda: informer.state.is_synced)
            new = serving(server, "v1")["v1"]
            gone.set()
            await until(lambda: informer.state.health is Health.MISSING)
            await until(lambda: informer.state.is_synced)
            assert informer.state.resource is not None
            assert informer.state.resource.version == "v1"
            assert new.listed == [{"limit": "500"}], "what the old version was at means nothing here"
            assert environment.time.slept == [0.5, 10.0]


# ---- Rejected.


@pytest.mark.parametrize("code", [400, 422])
async def test_a_filter_that_the_server_refuses_is_quoted(code: int) -> None:
    async with (
        Server(lists=[refused(code, "Invalid", message="unable to parse")]) as server,
        operating(server) as environment,
    ):
        await environment.listed(2)
        assert environment.time.slept == [10.0]
        with pytest.raises(Rejected):
            await environment.cache.wait_synced()


async def test_a_kind_that_cannot_be_watched_is_rejected() -> None:
    async with (
        Server(lists=[LISTED], watches=[refused(405, "MethodNotAllowed")]) as server,
        operating(server) as environment,
    ):
        await environment.watched(2)
        await until(lambda: environment.informer.counts.failures["405"])
    async with Server(lists=[refused(405)]) as server, operating(server) as environment:
        await environment.listed(2)
        with pytest.raises(Rejected):
            environment.names()


async def test_a_field_that_selects_no_custom_object_is_rejected_once_the_definition_is_known() -> None:
    async with Server() as server:
        serving(server, "v1", fields=(".spec.tier",))
        selector = Selector(fields="spec.color=red", namespaces=["shop"])
        async with operating(server, selectors={"webapps.example.com": selector}) as environment:
            with pytest.raises(Rejected):
                await environment.cache.wait_synced()
            await until(lambda: environment.time.slept)
            assert environment.time.slept[0] == 10.0


async def test_namespaces_of_a_kind_that_has_none_are_rejected() -> None:
    async with Server() as server:
        serving(server, "v1", namespaced=False)
        async with operating(server, selectors=WEB) as environment:
            with pytest.raises(Rejected):
                await environment.cache.wait_synced()


# ---- What is asked for.


@pytest.mark.parametrize(
    ("selector", "path", "query"),
    [
        (Selector(), PODS, {}),
        (Selector("app in (web,db),!old"), PODS, {"labelSelector": "app in (db,web),!old"}),
        (
            Selector(fields="spec.nodeName=n1", names=["a"], namespaces=["shop"]),
            "/api/v1/namespaces/shop/pods",
            {"fieldSelector": "spec.nodeName=n1,metadata.name=a"},
        ),
    ],
)
async def test_the_filter_is_the_servers_work(
    selector: Selector, path: str, query: Mapping[str, str]
) -> None:
    async with Server() as server:
        server.scripts[path] = Script([listed("100")])
        async with operating(server, selectors={"pods": selector}, page_limit=7):
            await until(lambda: server.scripts[path].watched)
            assert server.scripts[path].listed == [{"limit": "7", **query}]
            assert server.scripts[path].watched == [
                {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "100", **query}
            ]


async def test_a_key_is_resolved_only_once() -> None:
    async with Server(lists=[LISTED]) as server, operating(server) as environment:
        await environment.synced()
        before = len(server.headers)
        assert await environment.runtime.resolve("secrets") is await environment.runtime.resolve("secrets")
        assert len(server.headers) == before + 1
