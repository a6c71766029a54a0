"""`Caches`: caches beside those of an operator, with declarations and a login of their own."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import kopf
import pytest
from kopf._cogs.clients.auth import vault_var
from kopf._cogs.structs.credentials import Vault
from prometheus_client import CollectorRegistry, generate_latest

import kopf_selectcache as selectcache
from kopf_selectcache import (
    Caches,
    DeclarationError,
    LabelSelector,
    NotDeclared,
    NotSynced,
    OutsideFilter,
    ReadError,
    Recorder,
    SelectCacheSettings,
    Selector,
)
from kopf_selectcache._kopf import settings_var
from kopf_selectcache.errors import Unauthorized
from kopf_selectcache.informer.environment import Ending
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.plugin.caches import _LoginTask
from kopf_selectcache.testing import EmbeddedCluster
from tests.faults.environment import nothing_left, until
from tests.kopf_operators import Cluster, operating, pod
from tests.plugin.test_probe import free_endpoint, probe
from tests.rows import each_row
from tests.secrets import secret


@pytest.fixture
def other() -> Iterator[EmbeddedCluster]:
    """Another cluster than that of the operator."""
    with EmbeddedCluster(tls=False).in_thread() as running:
        running.namespace("shop")
        running.namespace("blog")
        running.create(
            secret("web-1", app="web"), secret("db-1", app="db"), secret("web-2", "blog", app="web")
        )
        yield running


def credentials(cluster: EmbeddedCluster, token: str | None = None) -> kopf.ConnectionInfo:
    return kopf.ConnectionInfo(server=cluster.url, token=token or cluster.token)


WEB = {"v1/secrets": "app=web"}


class TestReads:
    async def test_they_have_the_verdicts_of_their_own_filter(self, other: EmbeddedCluster) -> None:
        before = asyncio.all_tasks()
        async with Caches(WEB, login=credentials(other)) as cache:
            await cache.wait_synced()
            assert cache.count("secrets", labels="app=web") == 2
            with pytest.raises(OutsideFilter):
                cache.get("secrets", "db-1", namespace="shop")
            with pytest.raises(NotDeclared) as caught:
                cache.get("pods", "web-1", namespace="shop")
            assert "Caches({..., 'pods': 'app=web'})" in caught.value.remedy
            assert "settings.selectcache" not in caught.value.line
            other.create(secret("web-3", app="web"))
            await cache.wait_for("secrets", lambda one: one["metadata"]["name"] == "web-3")
            assert await asyncio.to_thread(cache.exists, "secrets", "web-3", namespace="shop")
            await cache.declare("configmaps", "")
            assert cache.list("configmaps") == []
        await nothing_left(before)

    async def test_options_that_are_not_assigned_are_those_of_kopf(self, other: EmbeddedCluster) -> None:
        """As of the operator in whose code they start."""
        kopfs, settings = kopf.OperatorSettings(), SelectCacheSettings()
        kopfs.watching.chunk_size, kopfs.watching.inactivity_timeout = 50, 30
        kopfs.networking.request_timeout, kopfs.networking.connect_timeout = 9, 3
        settings.page_limit = 500  # Assigned, although it is the default.
        settings_var.set(kopfs)
        for given, page_limit in ((None, 50), (settings, 500)):
            async with (ours := Caches(WEB, settings=given, login=credentials(other))) as cache:
                await cache.wait_synced()
                runtime: Any = ours._runtime
                assert runtime.settings.page_limit == page_limit
                assert (runtime.settings.idle_timeout, runtime.settings.request_timeout) == (30, 9)
                assert runtime.transport._request_timeout == 9
                assert runtime.transport._connect_timeout == 3
                with pytest.raises(DeclarationError):
                    ours.selectors["v1/pods"] = ""  # The declarations in use are these.
        lists = [each for each in other.requests if each.verb == "list"]
        assert [each.query["limit"] for each in lists if "limit" in each.query] == ["50", "500"]

    async def test_settings_may_be_those_of_several_caches(self, other: EmbeddedCluster) -> None:
        settings = SelectCacheSettings()
        settings.selectors["v1/configmaps"] = ""
        settings.defaults.labels = "app=web"
        web = Caches({"v1/secrets": Selector()}, settings=settings, login=credentials(other))
        db = Caches({"v1/secrets": "app=db"}, settings=settings, login=credentials(other))
        assert {*settings.selectors} == {"v1/configmaps"}
        async with web as one, db as two:
            with pytest.raises(NotSynced):
                one.count("secrets", labels="app=web")
            await one.wait_synced()
            await two.wait_synced()
            assert one.count("secrets", labels="app=web") == 2
            assert two.count("secrets", labels="app=db") == 1
            settings.defaults.labels = "app=db"  # They run with copies.
            made = await two.live.create(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": "db-2", "namespace": "shop", "labels": {"app": "db"}},
                }
            )
            assert two.get("secrets", "db-2", namespace="shop")["metadata"]["uid"] == made["metadata"]["uid"]

    async def test_reads_and_waits_end_with_the_caches(self, other: EmbeddedCluster) -> None:
        ours = Caches(WEB, login=credentials(other))
        async with ours as cache:
            await cache.wait_synced()
            assert [informer.key for informer in ours.informers] == ["v1/secrets"]
            waiting = asyncio.create_task(cache.wait_for("secrets", lambda _: False))
            thread = asyncio.create_task(
                asyncio.to_thread(cache.blocking.wait_for, "secrets", lambda _: False)
            )
            await asyncio.sleep(0)
        for each in (waiting, thread):
            with pytest.raises(ReadError):
                await each
        with pytest.raises(ReadError, match="these caches have been stopped"):
            cache.get("secrets", "web-1", namespace="shop")
        with pytest.raises(ReadError, match="these caches have been stopped"):
            await cache.wait_synced()  # Without a warning of Python: see `filterwarnings`.
        assert not ours.informers
        await ours.stop()  # It does nothing.
        async with ours as again:  # They can be entered again.
            await again.wait_synced()
            assert again.count("secrets", labels="app=web") == 2

    async def test_a_read_that_a_thread_begins_just_at_the_end_raises(
        self, other: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The loop may never run again, so the thread must not wait for it."""

        errors = list[str]()
        ours = Caches(WEB, login=credentials(other))
        cache = await ours.start()
        await ours.stop()

        def read() -> None:
            with pytest.raises(ReadError) as caught:
                cache.blocking.wait_synced()
            errors.append(caught.value.what)

        monkeypatch.setattr(Ending, "check", lambda _: None)  # The thread did that before the end.
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        thread.join(60)  # The loop does not run meanwhile.
        assert errors == ["this wait was ended, because the caches end"]

    async def test_events_that_wait_are_written_at_the_end(self, other: EmbeddedCluster) -> None:
        async with Caches(WEB, login=credentials(other)) as cache:
            await cache.wait_synced()
            recorder = Recorder("hub", cache)
            for name in ("web-1", "web-2"):
                recorder.record(secret(name), "Normal", "Copied", "It was copied.")
        posted = [each for each in other.requests if each.verb == "create" and each.resource == "events"]
        assert len(posted) == 2

    async def test_a_bug_ends_the_reads_and_is_logged(
        self, other: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def fail(_: Any) -> None:
            raise RuntimeError

        monkeypatch.setattr(Runtime, "run", fail)
        async with Caches(WEB, login=credentials(other)) as cache:
            with pytest.raises(ReadError):
                await cache.wait_synced()
        assert [record.exc_info for record in caplog.records if record.levelno == logging.ERROR]


class TestStart:
    """A login may take long, and anything may happen meanwhile."""

    @staticmethod
    def slow(other: EmbeddedCluster) -> tuple[Caches, asyncio.Event, asyncio.Event]:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def log_in(**_: Any) -> kopf.ConnectionInfo:
            begun.set()
            await may_end.wait()
            return credentials(other)

        return Caches(WEB, login=log_in), begun, may_end

    async def test_stop_ends_a_start(self, other: EmbeddedCluster) -> None:
        before = asyncio.all_tasks()
        ours, begun, may_end = self.slow(other)
        start = asyncio.create_task(ours.start())
        await begun.wait()
        await asyncio.gather(ours.stop(), ours.stop())
        with pytest.raises(ReadError, match=r"stop\(\) was called"):
            await start
        await nothing_left(before)
        may_end.set()
        async with ours as cache:
            await cache.wait_synced()

    async def test_stop_ends_a_start_that_is_about_to_return(self, other: EmbeddedCluster) -> None:
        before = asyncio.all_tasks()
        ours = Caches(WEB, login=credentials(other))
        start = asyncio.create_task(ours.start())
        while not ours.informers:  # Stopped in just that cycle.  # noqa: ASYNC110
            await asyncio.sleep(0)
        await ours.stop()
        with pytest.raises(ReadError, match=r"stop\(\) was called"):
            await start
        await nothing_left(before)

    async def test_a_start_that_is_cancelled_leaves_nothing(self, other: EmbeddedCluster) -> None:
        before = asyncio.all_tasks()
        ours, begun, may_end = self.slow(other)
        start = asyncio.create_task(ours.start())
        await begun.wait()
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await nothing_left(before)
        may_end.set()
        async with ours as cache:
            await cache.wait_synced()

    async def test_one_of_two_starts_at_a_time_succeeds(self, other: EmbeddedCluster) -> None:
        ours, begun, may_end = self.slow(other)
        start = asyncio.create_task(ours.start())
        await begun.wait()
        with pytest.raises(DeclarationError, match="started already"):
            await ours.start()
        may_end.set()
        await (await start).wait_synced()
        await ours.stop()


class TestBesideAnOperator:
    async def test_without_a_login_they_take_that_of_the_operator(self, other: EmbeddedCluster) -> None:
        """It has none yet when a startup handler enters them."""
        vault = Vault()
        vault_var.set(vault)
        async with Caches(WEB) as cache:
            waiting = asyncio.create_task(cache.wait_synced())
            await asyncio.sleep(0)
            await vault.populate({"login": credentials(other)})
            await waiting
            assert cache.count("secrets", labels="app=web") == 2
        assert not vault.is_empty()
        await vault.close()

    async def test_without_either_login_they_cannot_begin(self) -> None:
        with pytest.raises(DeclarationError, match="login="):
            await Caches(WEB).start()


class TestMessages:
    """They name the arguments of `Caches`, and not the settings of an operator."""

    @pytest.mark.parametrize("name", [None, "hub"])
    async def test_a_refused_login(
        self, other: EmbeddedCluster, caplog: pytest.LogCaptureFixture, name: str | None
    ) -> None:
        async with Caches(WEB, login=credentials(other, "wrong"), name=name) as cache:
            with pytest.raises(Unauthorized, match=r"does not accept Caches\(\)'s credentials") as caught:
                await cache.wait_synced()
            assert "Correct login= of Caches()" in caught.value.remedy
        names = {each.name for each in caplog.records if "'s credentials" in each.getMessage()}
        assert names == {"kopf_selectcache.caches.hub" if name else "kopf_selectcache.caches"}


class TestNames:
    """Caches with a name are in the metrics and the probe of the operator in whose code they start."""

    @pytest.mark.parametrize("declares", [True, False])
    async def test_the_metrics_and_the_probe_have_them(
        self, other: EmbeddedCluster, *, declares: bool
    ) -> None:
        registry, given = kopf.OperatorRegistry(), list[kopf.OperatorSettings]()
        endpoint, prometheus = free_endpoint(), CollectorRegistry()
        hub = Caches(WEB, login=credentials(other), name="hub")
        unnamed = Caches(WEB, login=credentials(other))

        @kopf.on.startup(registry=registry)
        async def begin(settings: kopf.OperatorSettings, **_: Any) -> None:
            if declares:
                selectcache.settings_of(settings).selectors["pods"] = ""
            prometheus.register(selectcache.collector(settings))
            await (await hub.start()).wait_synced()
            await (await unnamed.start()).wait_synced()
            given.append(settings)

        def lines() -> list[str]:
            text = generate_latest(prometheus).decode().splitlines()
            return [line for line in text if line.startswith("kopf_selectcache_objects{")]

        async with operating(registry, Cluster(pod()), logs_in=True, liveness_endpoint=endpoint):
            await until(lambda: given)
            ours = 'group="",resource="secrets",version="v1"} 2.0'
            expected = [f'kopf_selectcache_objects{{cache="hub",{ours}']
            if declares:
                pods = 'cache="",group="",resource="pods",version="v1"} 1.0'
                expected.insert(0, f"kopf_selectcache_objects{{{pods}")
            await until(lambda: lines() == expected)
            code, report = await probe(endpoint)
            assert code == 200
            assert {*report} == {"hub: v1/secrets", *(["pods"] if declares else [])}
            assert report["hub: v1/secrets"]["objects"] == 2
            await hub.stop()
            await unnamed.stop()
            assert len(lines()) == declares
            assert 'cache="' not in "".join(lines())

    async def test_the_probe_fails_by_their_own_settings(self, other: EmbeddedCluster) -> None:
        registry, endpoint = kopf.OperatorRegistry(), free_endpoint()
        reader = other.user("reader", [])
        settings = SelectCacheSettings(failing_probe=True)
        hub = Caches(WEB, login=credentials(other, reader), name="hub", settings=settings)

        @kopf.on.startup(registry=registry)
        async def begin(settings: kopf.OperatorSettings, **_: Any) -> None:
            selectcache.settings_of(settings).selectors["pods"] = ""
            with suppress(ReadError):
                await (await hub.start()).wait_synced()

        async with operating(registry, Cluster(pod()), logs_in=True, liveness_endpoint=endpoint):
            while (await probe(endpoint))[0] != 500:
                pass
            await hub.stop()

    async def test_a_name_is_used_once_in_an_operator(self, other: EmbeddedCluster) -> None:
        settings_var.set(kopf.OperatorSettings())
        async with Caches(WEB, login=credentials(other), name="hub"):
            with pytest.raises(DeclarationError, match="hub"):
                await Caches(WEB, login=credentials(other), name="hub").start()
            async with Caches(WEB, login=credentials(other), name="other"):
                settings_var.set(kopf.OperatorSettings())
                async with Caches(WEB, login=credentials(other), name="hub"):
                    pass


class TestLogin:
    @pytest.mark.parametrize("is_async", [True, False])
    async def test_it_is_called_again_when_its_credentials_are_refused(
        self, other: EmbeddedCluster, *, is_async: bool
    ) -> None:
        tokens = [
            other.user(
                "reader", [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch", "get"]}]
            )
            for _ in range(2)
        ]
        given: list[Any] = []

        def log_in(*, logger: logging.Logger, settings: kopf.OperatorSettings, **_: Any) -> Any:
            given.append((logger, settings))
            return credentials(other, tokens[len(given) - 1])

        async def log_in_async(**options: Any) -> Any:
            return log_in(**options)

        async with Caches(WEB, login=log_in_async if is_async else log_in) as cache:
            await cache.wait_synced()
            other.revoke(tokens[0])
            assert await cache.fetch("secrets", "db-1", namespace="shop")
        assert len(given) == 2
        assert isinstance(given[0][1], kopf.OperatorSettings)

    @pytest.mark.parametrize(
        "login",
        [lambda **_: None, lambda **_: "token", lambda **_: 1 / 0],
        ids=["nothing", "a text", "an error"],
    )
    async def test_one_that_fails_at_the_start_is_raised(self, login: Any) -> None:
        before = asyncio.all_tasks()
        ours = Caches(WEB, login=login)
        with pytest.raises(kopf.LoginError):
            await ours.start()
        assert not ours.informers
        await nothing_left(before)

    @pytest.mark.parametrize("is_async", [True, False])
    async def test_its_error_has_the_place_and_no_text_of_another(self, *, is_async: bool) -> None:
        def log_in(**_: Any) -> Any:
            raise RuntimeError("the password is hunter2")

        async def log_in_async(**_: Any) -> Any:
            log_in()

        with pytest.raises(kopf.LoginError, match=r"RuntimeError at test_caches\.py:\d+$") as caught:
            await Caches(WEB, login=log_in_async if is_async else log_in).start()
        # As Kopf logs it, with its cause and its context.
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))

    async def test_an_async_login_that_hangs_fails(self) -> None:
        async def log_in(**_: Any) -> Any:
            await asyncio.Event().wait()

        with pytest.raises(kopf.LoginError):
            await _LoginTask(log_in, Vault(), timeout=0).log_in()

    async def test_a_sync_login_that_hangs_takes_one_thread_of_its_own(self) -> None:
        """The threads of the loop stay free, and its credentials are taken once it returns."""
        may_end, threads = threading.Event(), list[threading.Thread]()

        def log_in(**_: Any) -> kopf.ConnectionInfo:
            threads.append(threading.current_thread())
            may_end.wait()
            return kopf.ConnectionInfo(server="http://127.0.0.1:1")

        vault = Vault()
        login = _LoginTask(log_in, vault, timeout=0)
        for _ in range(3):
            with pytest.raises(kopf.LoginError):
                await login.log_in()
        may_end.set()
        (thread,) = threads
        assert thread.daemon
        assert thread.name == "selectcache: login"
        thread.join()
        login._timeout = 10.0
        await login.log_in()
        assert len(threads) == 1
        assert not vault.is_empty()
        await login.log_in()
        assert len(threads) == 2

    async def test_equal_credentials_are_new_ones_each_time(self) -> None:
        """A late refusal of the former ones does not hit them."""
        vault, info = Vault(), kopf.ConnectionInfo(server="http://127.0.0.1:1")
        login = _LoginTask(info, vault)
        await login.log_in()
        ((key, first),) = [each async for each in vault]
        await login.log_in()
        ((_, second),) = [each async for each in vault]
        assert second is not first
        await vault.invalidate(key, first)
        assert not vault.is_empty()

    async def test_a_later_one_that_fails_is_repeated(self, caplog: pytest.LogCaptureFixture) -> None:
        outcomes: list[Any] = [None, None, kopf.ConnectionInfo(server="http://127.0.0.1:1")]
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        vault = Vault()
        login = _LoginTask(lambda **_: outcomes.pop(0), vault, sleep=sleep, chance=lambda: 1.0)
        task = asyncio.create_task(login.run())
        await vault.wait_for_readiness()
        assert not vault.is_empty()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert slept == [0.5, 1.0]
        assert len({record.msg for record in caplog.records if record.levelno == logging.WARNING}) == 1


class TestMistakes:
    @each_row(
        ("arguments", "options"),
        [
            ((["pods"],), {}),
            ((WEB,), {"login": "token"}),
            ((WEB,), {"settings": kopf.OperatorSettings()}),
            ((WEB,), {"namespaces": "shop"}),
            ((WEB,), {"name": "The hub"}),
            ((WEB,), {"namespaces": LabelSelector.parse("tenant=yes")}),
            ((WEB,), {"name": 1}),
            ((WEB,), {"selector": ""}),
            (({"v1/pods": "app in web"},), {}),
        ],
    )
    def test_they_are_found_at_once(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        with pytest.raises(DeclarationError):
            Caches(*arguments, **options)
