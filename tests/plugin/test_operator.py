"""The caches of one operator: what is waited for, how they begin and end, and in which namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
from typing import Any

import click
import kopf
import pytest
from kopf._cogs.clients.auth import vault_var
from kopf._cogs.structs.credentials import Vault
from kopf._core.intents import causes

import kopf_selectcache as selectcache
from kopf_selectcache import (
    DeclarationError,
    Forbidden,
    NotSynced,
    ReadError,
    Selector,
    _kopf,
)
from kopf_selectcache.core.errors import TooLarge
from kopf_selectcache.plugin import operator as operators
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.plugin.hooks import hook
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.settings.options import settings_of
from tests.faults.server import Server, answer
from tests.kopf_operators import (
    Cluster,
    activity,
    called,
    changing,
    context,
    cycles,
    declaring,
    launched,
    names_of,
    only,
    pod,
    run,
    runtime_over,
    spawned,
    watching,
)
from tests.rows import each_row
from tests.told import told

PODS = "/api/v1/pods"
SECRETS = "/api/v1/secrets"
SHARED_SETTINGS = (
    "these settings belong to another running operator",
    "Give each operator its own settings: settings=copy.copy(settings)",
)


# ---- What is waited for.


async def test_only_the_named_kinds_are_waited_for(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("pods", registry=registry)
    @with_cache(kinds=["po"])
    async def create(cache: Any, **_: Any) -> list[str]:
        return names_of(cache)

    @kopf.on.event("pods", registry=registry)
    @with_cache(kinds=[])
    def event(cache: Any, **_: Any) -> list[str]:
        return [str(one) for one in cache.list_cached("secrets")]

    cluster = Cluster(pod())
    cluster.hold(SECRETS)
    async with launched(declaring(pods="", secrets=""), cluster):
        assert await called(only(registry._changing), changing()) == ["web-1"]
        with pytest.raises(kopf.TemporaryError) as caught:
            await called(only(registry._watching), watching())
        assert isinstance(caught.value.__cause__, NotSynced)


async def test_a_kind_that_cannot_be_cached_holds_nobody_up(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("pods", registry=registry)
    @with_cache
    def create(cache: Any, **_: Any) -> list[str]:
        found = names_of(cache)
        cache.list_cached("secrets")
        return found

    cluster = Cluster(pod())
    cluster.refused[SECRETS] = 403
    async with launched(declaring(pods="", secrets=""), cluster):
        with pytest.raises(Forbidden):
            await called(only(registry._changing), changing())


async def test_a_short_name_of_a_custom_resource_is_waited_for_once_the_cluster_knows_it(
    registry: kopf.OperatorRegistry,
) -> None:
    kopf.on.create("pods", registry=registry)(with_cache(kinds=["WebApp"])(lambda **_: "ran"))
    kopf.on.event("pods", registry=registry)(with_cache(kinds=["WebApps"])(lambda **_: "ran"))
    cluster, settings = Cluster(), declaring()
    settings_of(settings).selectors["example.com/v1/webapps"] = ""
    released = cluster.hold("/apis/example.com/v1")
    async with launched(settings, cluster):
        task = asyncio.create_task(called(only(registry._changing), changing()))
        await cycles()
        released.set()
        assert await task == "ran"
        with pytest.raises(kopf.TemporaryError):
            await called(only(registry._watching), watching())


async def test_waiting_holds_no_thread(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.create("pods", registry=registry)
    @with_cache
    def waiting(cache: Any, **_: Any) -> list[str]:
        return names_of(cache)

    settings, cluster = declaring(pods=""), Cluster(pod())
    settings.execution.max_workers = 1
    released = cluster.hold(PODS)
    async with launched(settings, cluster):
        tasks = [asyncio.create_task(called(only(registry._changing), changing())) for _ in range(3)]
        await cycles()
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(settings.execution.executor, lambda: "free") == "free"
        released.set()
        assert await asyncio.gather(*tasks) == [["web-1"]] * 3


@pytest.mark.parametrize("decorator", [kopf.daemon, functools.partial(kopf.timer, interval=1)])
async def test_a_handler_that_is_stopped_while_it_waits_does_not_run(
    decorator: Any, registry: kopf.OperatorRegistry
) -> None:
    decorator("pods", registry=registry)(with_cache(lambda **_: pytest.fail("it ran")))
    cluster = Cluster()
    cluster.hold(PODS)
    async with launched(declaring(pods=""), cluster):
        cause = spawned()
        task = asyncio.create_task(called(only(registry._spawning), cause))
        await cycles()
        cause.stopper.set()
        assert await task is None


# ---- How caches begin and end.


async def test_a_copy_of_the_settings_is_another_operator() -> None:
    settings = declaring(pods="")
    async with launched(settings, Cluster()) as operator:
        other = copy.copy(settings)
        assert operator_of(settings) is operator
        assert operator_of(other) is None
        async with launched(other, Cluster()) as second:
            assert second is not operator
        assert operator_of(settings) is operator
        assert not operator.task.done()


async def test_settings_of_a_running_operator_cannot_serve_another_loop() -> None:
    settings = declaring(pods="")
    async with launched(settings, Cluster()):

        def elsewhere() -> None:
            async def launch() -> None:
                operators.launch(settings)

            asyncio.run(launch())

        with pytest.raises(DeclarationError):
            await asyncio.to_thread(elsewhere)


# ---- Several operators with one settings object.


@pytest.mark.parametrize("shared_vault", [False, True])
async def test_a_second_operator_with_the_same_settings_is_refused_at_its_start_and_the_first_goes_on(
    *, shared_vault: bool
) -> None:
    """Whole operators of Kopf do so in tests/real/test_two_operators.py: in one loop, Kopf needs 5 s to end
    one of them."""
    settings, end = declaring(pods=""), asyncio.Event()

    async def start(cluster: Cluster, begun: asyncio.Event, end: asyncio.Event) -> None:
        startup = hook(causes.Activity.STARTUP, make_runtime=runtime_over(cluster))
        await called(startup, activity(causes.Activity.STARTUP, settings))
        begun.set()
        await end.wait()  # As Kopf's task does, which lives as long as the operator.

    settings.peering.clusterwide = True
    with context(settings):
        begun = asyncio.Event()
        first = asyncio.create_task(start(Cluster(pod("first")), begun, end))
        await begun.wait()
        running = operator_of(settings)
        assert running is not None
        with (
            contextlib.nullcontext() if shared_vault else context(settings),
            pytest.raises(DeclarationError) as caught,
        ):
            await asyncio.create_task(start(Cluster(pod("second")), asyncio.Event(), begun))
        assert (caught.value.what, caught.value.remedy) == SHARED_SETTINGS
        assert told(caught.value) == "{}. {}.".format(*SHARED_SETTINGS)
        await running.gate(None, None)
        assert operator_of(settings) is running
        assert names_of(selectcache.cache_of(settings)) == ["first"]
        end.set()
        await asyncio.wait({first, running.task})


def test_no_handler_of_a_second_operator_reads_the_cluster_of_the_first(
    registry: kopf.OperatorRegistry,
) -> None:
    """They declare nothing, and only fetch: that is no reason to begin caches when they start, and none is
    refused there."""
    kopf.on.create("pods", registry=registry)(
        with_cache(lambda cache, **_: cache.fetch("pods", "web-1", namespace="shop", default="none"))
    )

    async def main() -> None:
        settings = declaring()
        async with launched(settings, Cluster()) as first:
            assert await called(only(registry._changing), changing()) == "none"
            with context(settings):  # With a vault of its own.
                with pytest.raises(ReadError) as handler:
                    await called(only(registry._changing), changing())
                assert not isinstance(handler.value, kopf.PermanentError), (
                    "Kopf would drop the creation for good"
                )
                with pytest.raises(DeclarationError) as start:
                    operators.launch(settings)
                with pytest.raises(ReadError) as read:
                    await selectcache.cache_of(settings).fetch("pods", "web-1", namespace="shop")
                errors = handler.value, start.value, read.value
                assert {(each.what, each.remedy) for each in errors} == {SHARED_SETTINGS}
                assert (
                    await called(hook(causes.Activity.PROBE), activity(causes.Activity.PROBE, settings))
                    is None
                )
                await called(hook(causes.Activity.CLEANUP), activity(causes.Activity.CLEANUP, settings))
            assert not first.task.done(), "the cleanup of another operator has not ended it"

    run(main())


async def test_a_runtime_that_cannot_be_made_is_raised_to_readers_and_logged_once(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    kopf.on.create("pods", registry=registry)(with_cache(lambda cache, **_: names_of(cache)))
    settings = declaring(pods="")
    with context(settings):  # Not clusterwide, and not from `kopf run`.
        for _ in range(3):
            with pytest.raises(kopf.TemporaryError) as caught:
                await called(only(registry._changing), changing())
            assert isinstance(caught.value.__cause__, NotSynced), (
                "a permanent error would drop the creation for good"
            )
        operator = operator_of(settings)
        assert operator is not None
        operator.task.cancel()
        await asyncio.wait({operator.task})
        assert operator_of(settings) is None, "another one may be started with these settings"
    assert caplog.text.count("The caches can't be started.") == 1


async def test_a_report_never_fails() -> None:
    settings, cluster = declaring(pods="", secrets="a=b"), Cluster(pod())
    cluster.refused[SECRETS] = 403
    async with launched(settings, cluster) as operator:
        assert "has not logged in yet" in operator.report()["trouble"]
        assert operator.restartable() == "", "that is not known yet"
        await operator.gate(None, None)
        report = operator.report()
        assert report["pods"] == {
            "health": "synced",
            "filter": "labels=''",
            "objects": 1,
            "version": "10",
            "age": report["pods"]["age"],
        }
        assert report["secrets"]["health"] == "forbidden"
        assert "list" in report["secrets"]["trouble"] + report["secrets"]["remedy"]

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    with context(settings):
        operator = operators.launch(settings, make_runtime=broken)
        await cycles()
        assert operator.report() == {
            "trouble": "the caches can't be started: ZeroDivisionError",
            "remedy": "See the operator's log",
        }


async def test_35_no_answer_is_read_beyond_the_declared_size() -> None:
    settings = declaring(pods="")
    settings_of(settings).max_page_bytes = "16Mi"
    async with Server(lists=[answer(b"x" * (16 * 1024**2 + 1)), answer(b"x" * 16 * 1024**2)]) as server:
        with context(settings):
            vault = Vault({"login": kopf.ConnectionInfo(server=server.url)})
            vault_var.set(vault)
            fetches = operators.make_runtime(settings, namespaces=None).fetches
            with pytest.raises(TooLarge):
                await fetches.get(PODS, {})
            assert len(await fetches.get(PODS, {})) == 16 * 1024**2
            await vault.close()


async def test_declared_settings_come_before_those_of_kopf() -> None:
    settings = declaring(pods="")
    (
        settings.watching.chunk_size,
        settings.watching.inactivity_timeout,
        settings.networking.request_timeout,
    ) = (
        50,
        30,
        9,
    )
    with context(settings):
        runtime = operators.make_runtime(settings, namespaces=None)
        assert (
            runtime.settings.page_limit,
            runtime.settings.idle_timeout,
            runtime.settings.request_timeout,
        ) == (50, 30, 9)
        settings_of(settings).page_limit = settings_of(settings).request_timeout = 100
        settings.networking.request_timeout = None
        runtime = operators.make_runtime(settings, namespaces=None)
        assert (runtime.settings.page_limit, runtime.settings.request_timeout) == (100, 100)


# ---- Namespaces.


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        (["-A"], "", None),
        ([], "", None),
        (["-n", "a"], "", ("a",)),
        ([], "b", ("b",)),
        (["-n", "b", "-n", "a"], "", ("a", "b")),
        (["-n", "a"], "b", ("a", "b")),
        (["-n", "a*"], "", "-n has a pattern"),
        (["-n", "a,b"], "", "pattern"),
        (["-n", "!a"], "", "pattern"),
    ],
)
def test_namespaces_are_those_of_kopf_run(
    arguments: list[str], environment: str, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOPF_RUN_NAMESPACE", environment)
    settings = declaring(pods="", nodes="")
    declared = settings_of(settings)
    with _kopf.run_command.make_context("run", arguments).scope():
        if isinstance(expected, str):
            with pytest.raises(DeclarationError):
                operators.namespaces_of(settings, declared)
            declared.selectors["pods"] = Selector(namespaces=["a"])
            assert operators.namespaces_of(settings, declared) is None
        else:
            assert operators.namespaces_of(settings, declared) == expected


def test_embedded_operators_declare_their_namespaces_or_watch_all() -> None:
    settings = declaring(pods="", nodes="")
    declared = settings_of(settings)
    with click.Context(click.Command("theirs")).scope():
        with pytest.raises(DeclarationError):
            operators.namespaces_of(settings, declared)
        settings.peering.clusterwide = True
        assert operators.namespaces_of(settings, declared) is None


@each_row(
    ("patterns", "expected"),
    [(["b", "a"], ("a", "b")), (["a*"], None), (["a", "!b"], None), ([], None)],
)
def test_embedded_operators_watch_the_namespaces_that_kopf_is_given(
    patterns: list[str], expected: tuple[str, ...] | None
) -> None:
    settings = declaring(pods="", nodes="")
    declared = settings_of(settings)
    insights: Any = None
    _kopf.observation.namespace_observer(  # type: ignore[call-arg, unused-ignore]
        clusterwide=False, namespaces=patterns, insights=insights, settings=settings
    ).close()
    with click.Context(click.Command("theirs")).scope():
        if expected is not None:
            assert operators.namespaces_of(settings, declared) == expected
            return
        with pytest.raises(DeclarationError):
            operators.namespaces_of(settings, declared)
        declared.defaults.namespaces = ["a"]
        assert operators.namespaces_of(settings, declared) is None
