"""A kind that refuses credentials which other kinds accept: it costs few logins, which close connections of
the whole operator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import LATEST, TRIES, TRUSTED_SECONDS, KopfTransport
from tests.client.test_credentials import NO, operator_with
from tests.faults.server import PODS, Script, Server, answer

METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"


async def refuses(transport: KopfTransport, path: str = METRICS) -> None:
    with pytest.raises(Refused):
        await transport.get(path, {})


async def test_a_kind_that_alone_refuses_credentials_costs_one_login_while_other_kinds_accept_them() -> None:
    async with (
        Server(lists=[answer(b"{}")] * 999) as server,
        operator_with(server) as (transport, time, logins),
    ):
        server.scripts[METRICS] = Script([NO] * 999)
        server.scripts[METRICS + "/web-1"] = Script([NO] * 999)
        for _ in range(180):
            time.now += 10
            await refuses(transport)
            await refuses(transport, METRICS + "/web-1")
            await transport.get(PODS, {})
        assert len(logins) == 1
        assert len(server.scripts[METRICS].listed) == 180 + TRIES, "one try each time, except for the first"


async def test_credentials_that_expire_for_all_kinds_are_replaced_although_one_always_refused_them() -> None:
    given = ["static", "newer"]
    async with (
        Server(lists=[answer(b"{}")] * 999) as server,
        operator_with(
            server, lambda info: replace(info, token=given.pop(0) if len(given) > 1 else given[0])
        ) as (transport, time, logins),
    ):
        server.scripts[METRICS] = Script([NO] * 999)
        await refuses(transport)
        assert await transport.get(PODS, {}) == b"{}"
        time.now += LATEST
        server.token = "newer"
        await refuses(transport)
        assert len(logins) == 1
        assert await transport.get(PODS, {}) == b"{}"
        assert len(logins) == 2


async def test_a_kind_that_has_accepted_credentials_and_now_refuses_them_leads_to_a_login() -> None:
    async with (
        Server(lists=[answer(b"{}")] * 999) as server,
        operator_with(server) as (transport, time, logins),
    ):
        server.scripts[METRICS] = Script([*[NO] * TRIES, answer(b"{}"), *[NO] * 999])
        assert await transport.get(METRICS, {}) == b"{}"
        assert await transport.get(PODS, {}) == b"{}"
        time.now += LATEST
        await refuses(transport)
        assert len(logins) == 2


async def test_a_kind_that_refuses_credentials_without_another_answer_for_an_hour_leads_to_a_login() -> None:
    async with Server(lists=[answer(b"{}")]) as server, operator_with(server) as (transport, time, logins):
        server.scripts[METRICS] = Script([NO] * 999)
        await refuses(transport)
        assert await transport.get(PODS, {}) == b"{}"
        for after, expected in ((TRUSTED_SECONDS - 1, 1), (1, 2)):
            time.now += after
            await refuses(transport)
            assert len(logins) == expected
