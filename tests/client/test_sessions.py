"""The sessions of credentials: which one a request uses, when they close, their authorities and proxies."""

from __future__ import annotations

import asyncio
import base64
import ssl
from dataclasses import dataclass
from typing import Any

import aiohttp
import kopf
import pytest
import trustme
from kopf._cogs.structs.credentials import AiohttpSession, KubeContext, Vault

from kopf_selectcache.client.reading import Unreachable
from kopf_selectcache.client.transport import KopfTransport
from tests.client.connections import ask, connected, login
from tests.faults.environment import Time, until
from tests.faults.server import PODS, Server, answer, streamed
from tests.faults.test_rights import logging_in
from tests.rows import each_row

CANARY = b"canary-7f3a"


# ---- Credentials.


async def test_credentials_of_an_unknown_type_are_named() -> None:
    @dataclass(frozen=True)
    class Exotic(KubeContext):
        pass

    vault = Vault({"login": Exotic(server="http://127.0.0.1:9")})
    async with logging_in(vault, None):
        with pytest.raises(Unreachable, match="unknown type, Exotic"):
            await KopfTransport(vault).get(PODS, {})


async def test_a_session_of_the_user_is_used_and_not_closed() -> None:
    async with (
        Server(lists=[answer(b"{}")]) as server,
        aiohttp.ClientSession(headers={"X-Mine": "yes"}) as session,
    ):
        async with connected(AiohttpSession(aiohttp_session=session, server=server.url + "/")) as transport:
            assert await transport.get(PODS, {}) == b"{}"
            assert server.headers[0]["x-mine"] == "yes"
        assert not session.closed


async def test_a_session_that_the_user_has_closed_costs_a_login() -> None:
    async with Server(lists=[answer(b"{}")]) as server, aiohttp.ClientSession() as session:
        vault = Vault({"login": AiohttpSession(aiohttp_session=session, server=server.url)})
        await session.close()
        async with logging_in(vault, login(server)):
            time = Time()
            assert await KopfTransport(vault, sleep=time.pause).get(PODS, {}) == b"{}"
            assert time.now == Time().now, "another try in the closed session is needless"
        await vault.close()


async def test_a_session_that_is_closed_and_no_login_replaces_is_unreachable() -> None:
    async with Server() as server, aiohttp.ClientSession() as session:
        vault = Vault({"login": AiohttpSession(aiohttp_session=session, server=server.url)})
        await session.close()
        async with logging_in(vault, None, None):
            for verb in ("get", "watch"):
                with pytest.raises(Unreachable, match="the session of the login was closed"):
                    await ask(KopfTransport(vault, sleep=Time().pause), verb)


UNUSABLE: dict[str, dict[str, Any]] = {
    "no base64": {"ca_data": "canary"},
    "no certificate": {"ca_data": base64.b64encode(CANARY).decode()},
    "no such file": {"ca_path": "/nowhere/canary"},
}


@each_row("verb", ["get", "watch"])
@each_row("unusable", UNUSABLE)
async def test_credentials_that_cannot_be_used_are_reported_without_being_quoted(
    unusable: str, verb: str
) -> None:
    async with Server() as server:
        vault = Vault({"login": login(server, **UNUSABLE[unusable])})
        transport = KopfTransport(vault)
        async with logging_in(vault, None):
            for _ in range(2):
                with pytest.raises(
                    Unreachable, match=r"the credentials of the login can't be used: [A-Z][A-Za-z]+$"
                ) as caught:
                    await ask(transport, verb)
                assert caught.value.__cause__ is None
                assert caught.value.__context__ is None, "nor in a traceback"


async def test_a_token_that_no_header_can_have_is_unreachable_and_not_quoted() -> None:
    async with Server() as server, connected(login(server, token="canary\nX-Evil: yes")) as transport:
        with pytest.raises(Unreachable, match=r"^the request can't be sent \(ValueError\)$"):
            await transport.get(PODS, {})
        assert server.headers == []


async def test_a_proxy_that_refuses_is_reported_without_its_password() -> None:
    async with Server(lists=[]) as proxy:
        given = kopf.ConnectionInfo(
            server="https://kubernetes.invalid", proxy_url=proxy.url.replace("//", "//user:canary@")
        )
        async with connected(given) as transport:
            with pytest.raises(Unreachable) as caught:
                await transport.get(PODS, {})
            assert str(caught.value) == "the proxy refuses (ClientHttpProxyError)"


async def test_one_session_serves_all_requests_and_is_closed_with_the_vault() -> None:
    async with Server(lists=[answer(b"{}")] * 3) as server:
        async with connected(login(server)) as transport:
            for _ in range(3):
                await transport.get(PODS, {})
            assert server.open == 1
        await until(lambda: server.open == 0)


async def test_a_session_is_not_closed_under_a_request_but_after_it() -> None:
    gate = asyncio.Event()
    async with Server(watches=[streamed(gate, b"late")]) as server:
        vault = Vault({"login": login(server)})
        async with KopfTransport(vault).watch(PODS, {"watch": "true"}) as chunks:
            await vault.close()
            gate.set()
            assert await anext(chunks) == b"late"
        await until(lambda: server.open == 0)


# ---- On the way.


def authority(host: str = "127.0.0.1") -> tuple[trustme.CA, ssl.SSLContext]:
    ca, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(host).configure_cert(context)
    return ca, context


async def test_the_server_is_known_by_the_authority_of_the_credentials() -> None:
    ca, context = authority()
    trusted = base64.b64encode(ca.cert_pem.bytes()).decode()
    async with (
        Server(lists=[answer(b"{}")], tls=context) as server,
        connected(login(server, ca_data=trusted)) as transport,
    ):
        assert await transport.get(PODS, {}) == b"{}"


async def test_a_server_that_no_known_authority_speaks_for_gets_no_request() -> None:
    _, context = authority()
    stranger = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    async with Server(tls=context) as server:
        vault = Vault({"login": login(server, ca_data=stranger)})
        async with logging_in(vault, None):
            with pytest.raises(Unreachable, match=r"^no safe connection can be made .*[Cc]ertificate"):
                await KopfTransport(vault, sleep=Time().pause).get(PODS, {})
        await vault.close()
        assert server.headers == []


async def test_requests_take_the_proxy_of_the_credentials() -> None:
    async with Server(lists=[answer(b"{}")]) as proxy:
        given = kopf.ConnectionInfo(server="http://kubernetes.invalid", proxy_url=proxy.url)
        async with connected(given) as transport:
            assert await transport.get(PODS, {}) == b"{}"
        assert proxy.headers[0]["host"] == "kubernetes.invalid"
