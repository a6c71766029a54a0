"""Credentials that a server refuses are tried again, then dropped; Kopf logs in at a bounded rate, and takes
equal ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.credentials import Vault, VaultKey

from kopf_selectcache.client import transport as client_transport
from kopf_selectcache.client.reading import NoCredentials, Refused, Unreachable
from kopf_selectcache.client.transport import LATEST, SOONEST, TRIES, KopfTransport, Logins
from kopf_selectcache.core.protocol.messages import SLOW_SECONDS
from kopf_selectcache.errors import Unauthorized
from kopf_selectcache.informer.health import TOLERATED_SECONDS, Health
from kopf_selectcache.plugin.access import cache_of
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.cluster import authority
from kopf_selectcache.testing.faults import Refuse
from tests.faults.environment import Time, operating, reached, until
from tests.faults.server import PODS, Server, answer, error, held, listed, refused, streamed
from tests.faults.test_rights import logging_in
from tests.kopf_operators import declaring, pod

NO = refused(401, "Unauthorized", message="Unauthorized")
KEY = VaultKey("login")


@asynccontextmanager
async def operator_with(
    server: Server,
    renew: Callable[[kopf.ConnectionInfo], kopf.ConnectionInfo | None] = replace,
    *,
    time: Time | None = None,
    **options: Any,
) -> AsyncIterator[tuple[KopfTransport, Time, list[object]]]:
    """Make a transport, and log in whenever the vault is empty: with equal credentials, or with what `renew`
    returns."""
    info = kopf.ConnectionInfo(server=server.url, token="static", **options)
    vault, time, logins = Vault({KEY: info}), time or Time(), list[object]()

    async def log_in() -> None:
        while True:
            await vault.wait_for_emptiness()
            logins.append(given := renew(info))
            await vault.populate({} if given is None else {KEY: given})

    task = asyncio.create_task(log_in())
    try:
        yield KopfTransport(vault, clock=time.clock, sleep=time.pause, chance=lambda: 1.0), time, logins
    finally:
        task.cancel()
        await asyncio.wait({task})
        await vault.close()


async def fails(transport: KopfTransport) -> None:
    with pytest.raises(Refused) as caught:
        await transport.get(PODS, {})
    assert caught.value.refusal.code == 401


async def test_a_single_401_costs_a_try_and_no_login() -> None:
    async with (
        Server(lists=[NO, answer(b"{}")]) as server,
        operator_with(server) as (transport, time, logins),
    ):
        assert await transport.get(PODS, {}) == b"{}"
        assert (logins, time.now) == ([], 1000.5), "it waits before it tries again"
        assert len(server.headers) == 2


async def test_a_login_that_gives_equal_credentials_is_good_enough() -> None:
    async with (
        Server(lists=[*[NO] * TRIES, answer(b"{}")]) as server,
        operator_with(server) as (transport, _, logins),
    ):
        assert [*await asyncio.gather(transport.get(PODS, {}), return_exceptions=True)] == [b"{}"]
        assert len(logins) == 1


async def test_a_server_that_refuses_for_ever_costs_few_requests_and_ever_fewer_logins() -> None:
    async with Server(lists=[NO] * 999) as server, operator_with(server) as (transport, time, logins):
        await fails(transport)
        assert (len(logins), len(server.headers)) == (1, TRIES + 1)
        await fails(transport)
        assert (len(logins), len(server.headers)) == (1, TRIES + 2), "it is too early to drop them again"
        began, times = time.now, []
        while time.now < began + 3600:
            time.now += 5
            before = len(logins)
            await fails(transport)
            times += [time.now] * (len(logins) - before)
        pauses = [later - sooner for sooner, later in zip([began, *times], times, strict=False)]
        assert SOONEST - 5 <= pauses[0] <= SOONEST + 10
        assert sorted(pauses) == pauses or max(pauses) >= LATEST
        assert max(pauses) <= LATEST + 10
        assert len(times) <= 9


async def test_different_credentials_that_are_refused_as_well_are_dropped_again_after_a_few_seconds() -> None:
    numbers = iter(range(9))
    async with (
        Server(lists=[NO] * 99) as server,
        operator_with(server, lambda info: replace(info, token=f"new-{next(numbers)}")) as (
            transport,
            time,
            logins,
        ),
    ):
        await fails(transport)
        await fails(transport)
        assert len(logins) == 1
        time.now += 10
        await fails(transport)
        assert len(logins) == 2


async def test_a_request_ends_although_each_login_outlasts_the_pause_and_gives_other_credentials() -> None:
    async with Server(lists=[NO] * 99) as server:
        time = Time()
        given: list[str] = []

        def log_in_slowly(info: kopf.ConnectionInfo) -> kopf.ConnectionInfo:
            time.now += SLOW_SECONDS + 1
            given.append(f"new-{len(given)}")
            return replace(info, token=given[-1])

        async with operator_with(server, log_in_slowly, time=time) as (transport, _, _logins):
            request = asyncio.create_task(fails(transport))
            await until(lambda: request.done() or len(given) > 3)
            assert len(given) == 1
            await request


async def test_of_several_credentials_the_others_are_tried_before_a_login() -> None:
    async with Server(lists=[answer(b"{}")]) as server:
        server.token = "good"
        bad, good = (
            kopf.ConnectionInfo(server=server.url, token=token, priority=priority)
            for token, priority in (("bad", 1), ("good", 0))
        )
        vault = Vault({"bad": bad, "good": good})
        assert await KopfTransport(vault, sleep=Time().pause).get(PODS, {}) == b"{}"
        assert [headers["authorization"] for headers in server.headers] == ["Bearer bad"] * TRIES + [
            "Bearer good"
        ]
        await vault.close()


async def test_requests_that_are_refused_at_the_same_time_cost_one_login() -> None:
    async with (
        Server(lists=[NO] * 3 * 10 + [answer(b"{}")] * 10) as server,
        operator_with(server) as (transport, _, logins),
    ):
        answers = await asyncio.gather(*(transport.get(PODS, {}) for _ in range(10)), return_exceptions=True)
        assert len(logins) == 1
        assert {type(each) for each in answers} <= {bytes, Refused}
        assert b"{}" in answers


async def test_a_request_whose_credentials_another_one_drops_between_its_tries_goes_on_with_the_next() -> (
    None
):
    async with (
        Server(lists=[NO, answer(b"{}")]) as server,
        operator_with(server) as (transport, time, logins),
    ):
        vault = transport._vault

        async def drop(seconds: float) -> None:
            if not logins:
                await Logins(vault, clock=time.clock).drop(KEY, vault.select()[1].info)
            await time.pause(seconds)

        # Something happens meanwhile.
        transport._sleep = drop  # type: ignore[method-assign, unused-ignore]
        assert [*await asyncio.gather(transport.get(PODS, {}), return_exceptions=True)] == [b"{}"]
        assert len(logins) == 1


async def test_where_no_login_gives_credentials_another_one_is_tried_now_and_then() -> None:
    given: list[Any] = []

    async def has_no_credentials() -> None:
        with pytest.raises(NoCredentials):
            await transport.get(PODS, {})

    async with (
        Server(lists=[answer(b"{}")] * 9) as server,
        operator_with(server, lambda _: given.pop() if given else None) as (transport, time, logins),
    ):
        vault = transport._vault
        for outage in (0, 1000):
            time.now += outage
            await vault.invalidate(KEY, vault.select()[1].info)  # As Kopf does it.
            logins.clear()
            began = time.now
            times = list[float]()
            for _ in range(13):
                before = len(logins)
                await has_no_credentials()
                times += [time.now - began] * (len(logins) - before)
                time.now += 5
            assert times == [
                SLOW_SECONDS,
                2 * SLOW_SECONDS,
                3 * SLOW_SECONDS,
                4 * SLOW_SECONDS,
                5 * SLOW_SECONDS,
                6 * SLOW_SECONDS,
            ]
            time.now += SLOW_SECONDS
            given.append(kopf.ConnectionInfo(server=server.url, token=f"another-{outage}"))
            assert await transport.get(PODS, {}) == b"{}"


@pytest.mark.parametrize("last", [None, "static"])
async def test_credentials_stay_although_the_refused_request_is_cancelled_during_a_login(
    last: str | None,
) -> None:
    slow = asyncio.Event()
    async with Server(lists=[*[NO] * TRIES, answer(b"{}")]) as server:
        given = kopf.ConnectionInfo(server=server.url, token="static")
        vault, time = Vault({KEY: given}), Time()

        async def log_in() -> None:
            await vault.wait_for_emptiness()
            await slow.wait()
            await vault.populate({KEY: replace(given)} if last else {})

        login = asyncio.create_task(log_in())
        transport = KopfTransport(vault, clock=time.clock, sleep=time.pause)
        request = asyncio.create_task(transport.get(PODS, {}))
        await until(lambda: not vault._ready)
        request.cancel()
        await asyncio.wait({request})
        assert not vault.is_empty()
        slow.set()
        assert await transport.get(PODS, {}) == b"{}"
        await login
        await vault.close()


async def test_refused_credentials_that_equal_dropped_ones_do_not_hide_others() -> None:
    async with Server(lists=[answer(b"{}")] * 9) as server:
        bad = kopf.ConnectionInfo(server=server.url, token="bad", priority=1)
        tokens = iter(f"good-{number}" for number in range(9))

        def another() -> kopf.ConnectionInfo:
            server.token = next(tokens)
            return kopf.ConnectionInfo(server=server.url, token=server.token)

        vault, time = Vault({"bad": bad, "good": another()}), Time()

        async def log_in() -> None:
            while True:
                await vault.wait_for_emptiness()
                await vault.populate({"bad": replace(bad), "good": another()})

        login = asyncio.create_task(log_in())
        transport = KopfTransport(vault, clock=time.clock, sleep=time.pause)
        for _ in range(3):
            assert [*await asyncio.gather(transport.get(PODS, {}), return_exceptions=True)] == [b"{}"]
            server.token = "another"  # What is good expires, and the next login gives the bad ones as well.
            time.now += 20
        assert [headers["authorization"] for headers in server.headers].count("Bearer bad") == TRIES + 2
        login.cancel()
        await asyncio.wait({login})
        await vault.close()


async def test_an_outage_after_a_long_time_leads_to_logins_as_soon_as_the_first_one() -> None:
    async with (
        Server(lists=[answer(b"{}")] * 999) as server,
        operator_with(server) as (transport, time, logins),
    ):
        for _ in range(3):
            server.token = "another"
            await fails(transport)
            before = len(logins)
            time.now += SOONEST
            await fails(transport)
            assert len(logins) == before + 1
            server.token = "static"
            for _ in range(24):
                time.now += 3600
                assert await transport.get(PODS, {}) == b"{}"


async def test_credentials_that_cannot_be_used_lead_to_a_login_at_once() -> None:
    async with (
        Server(lists=[answer(b"{}")]) as server,
        operator_with(server, lambda info: replace(info, ca_data=None), ca_data="no certificate") as (
            transport,
            time,
            logins,
        ),
    ):
        assert [*await asyncio.gather(transport.get(PODS, {}), return_exceptions=True)] == [b"{}"]
        assert (len(logins), time.now) == (1, 1000.0), "another try with the same credentials is needless"


async def test_credentials_that_cannot_be_used_do_not_hide_others() -> None:
    async with Server(lists=[answer(b"{}")]) as server:
        vault = Vault(
            {
                "bad": kopf.ConnectionInfo(server=server.url, ca_path="/nowhere", priority=1),
                "good": kopf.ConnectionInfo(server=server.url),
            }
        )
        assert [*await asyncio.gather(KopfTransport(vault).get(PODS, {}), return_exceptions=True)] == [b"{}"]
        await vault.close()


async def test_a_file_that_credentials_name_may_be_written_later(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    async with (
        Server(lists=[answer(b"{}")]) as server,
        operator_with(server, ca_path=file) as (transport, _, logins),
    ):
        with pytest.raises(Unreachable, match="can't be used: FileNotFoundError"):
            await transport.get(PODS, {})
        authority(file)
        assert await transport.get(PODS, {}) == b"{}"
        assert len(logins) == 1


async def test_credentials_that_were_replaced_meanwhile_are_not_dropped() -> None:
    old, new = kopf.ConnectionInfo(server="https://old"), kopf.ConnectionInfo(server="https://new")
    vault = Vault({KEY: new})
    await Logins(vault, clock=Time().clock).drop(KEY, old)
    assert vault.select()[1].info is new


# ---- In an operator.


LISTED = listed("100", pod("a", version=90, app="web"))


async def test_a_cache_without_valid_credentials_is_unauthorized_and_follows_again_once_they_are_valid() -> (
    None
):
    valid = asyncio.Event()
    async with Server(lists=[*[NO] * 40, held(valid, LISTED)], watches=[streamed()]) as server:
        vault = Vault({KEY: kopf.ConnectionInfo(server=server.url, token="static")})
        async with (
            logging_in(vault, *[kopf.ConnectionInfo(server=server.url, token="static")] * 40),
            operating(server, vault=vault) as environment,
        ):
            await until(lambda: environment.informer.state.health is Health.UNAUTHORIZED)
            with pytest.raises(Unauthorized) as caught:
                environment.names()
            assert (caught.value.code, caught.value.transient) == (401, False)
            waits = len(environment.time.slept)
            await until(lambda: len(environment.time.slept) >= waits + 3)
            assert min(environment.time.slept[waits:]) >= 5, "there is no hurry"
            valid.set()
            await environment.synced()


async def test_a_synced_cache_is_unauthorized_only_after_a_while() -> None:
    over = asyncio.Event()
    async with Server(lists=[LISTED], watches=[streamed(over, error(500)), *[NO] * 99]) as server:
        vault = Vault({KEY: kopf.ConnectionInfo(server=server.url, token="static")})
        async with (
            logging_in(vault, *[kopf.ConnectionInfo(server=server.url, token="static")] * 40),
            operating(server, vault=vault) as environment,
        ):
            await environment.synced()
            began = environment.time.now
            over.set()
            await until(lambda: "'s credentials" in environment.informer.state.message)
            assert environment.informer.state.health in (Health.SYNCED, Health.STALE)
            assert len(environment.names()) == 1
            await until(lambda: environment.informer.state.health is Health.UNAUTHORIZED)
            assert environment.time.now - began >= TOLERATED_SECONDS


async def test_a_cache_without_any_credentials_is_unauthorized() -> None:
    async with Server(lists=[LISTED]) as server:
        vault = Vault({KEY: kopf.ConnectionInfo(server=server.url)})
        async with logging_in(vault, *[None] * 99, kopf.ConnectionInfo(server=server.url, token="new")):
            await vault.invalidate(KEY, vault.select()[1].info)
            async with operating(server, vault=vault) as environment:
                await until(lambda: environment.informer.state.health is Health.UNAUTHORIZED)
                with pytest.raises(Unauthorized) as caught:
                    environment.names()
                assert (caught.value.code, caught.value.transient) == (None, True)
                with pytest.raises(Unauthorized):
                    await environment.cache.fetch("pods", "a", namespace="shop")
                await environment.synced()


@pytest.mark.parametrize("times", [1, TRIES])
async def test_an_operator_with_a_static_token_lives_on_after_401s_that_only_its_cache_receives(
    times: int,
) -> None:
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        registry, settings, stop = (
            kopf.OperatorRegistry(),
            declaring(**{"v1/secrets": "app=web"}),
            asyncio.Event(),
        )
        logins: list[kopf.ConnectionInfo] = []

        @kopf.on.login(registry=registry)
        def log_in(**_: Any) -> kopf.ConnectionInfo:
            logins.append(kopf.ConnectionInfo(server=cluster.url, token=cluster.token))
            return logins[-1]

        kopf.on.event("configmaps", registry=registry)(lambda **_: None)
        cluster.faults.add(Refuse(401), verb="list", resource="secrets", times=times)
        operator = asyncio.create_task(
            kopf.operator(
                registry=registry, settings=settings, clusterwide=True, standalone=True, stop_flag=stop
            )
        )
        cache = cache_of(settings)
        await cache.wait_synced()
        assert len(logins) == (1 if times < TRIES else 2)
        assert cache.list_cached("secrets") == []
        cluster.faults.add(Refuse(401), verb="get", resource="secrets", times=1)
        assert await cache.fetch("secrets", "absent", namespace="default", default=None) is None
        assert not operator.done()
        stop.set()
        await operator


async def test_a_login_that_never_returns_is_a_failure_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a plugin that hangs. The cache was `syncing`, and nothing was wrong with it."""
    monkeypatch.setattr(client_transport, "TIMEOUT_FACTOR", 0.005)
    async with (
        Server(lists=[NO] * 99) as server,
        operating(
            server,
            vault=Vault({KEY: kopf.ConnectionInfo(server=server.url)}),
            request_timeout=60,
            sync_timeout=1,
        ) as environment,
    ):
        # On a busy machine, the request may take too long before it is refused.
        assert await reached(
            lambda: "the operator's login takes too long" in environment.informer.state.message
        )
        await until(lambda: environment.informer.state.health is Health.STALLED)
