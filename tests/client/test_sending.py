"""Writes over real sockets: each is sent once, and a failure says if the server may have received it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import aiohttp
import kopf
import pytest
from kopf._cogs.structs.credentials import AiohttpSession, KubeContext, Vault

from kopf_selectcache.client.reading import NoCredentials, Refused, Unreachable
from kopf_selectcache.client.transport import KopfTransport, _OneShot
from kopf_selectcache.core.errors import TooLarge
from kopf_selectcache.core.protocol.messages import FieldCause
from tests.client.connections import connected, login
from tests.faults.environment import Time, hurry, until
from tests.faults.server import PODS, SILENCE, Answer, Server, Then, answer, refused, status
from tests.rows import each_row

METHODS = ("POST", "PUT", "PATCH", "DELETE")
BODY = b'{"a":1}'
MERGE = "application/merge-patch+json"


@each_row("method", METHODS)
async def test_a_write_is_sent_with_its_body_its_type_and_the_operators_credentials(method: str) -> None:
    async with (
        Server(lists=[answer(b'{"b":2}', code=201)]) as server,
        connected(login(server, token="secret")) as transport,
    ):
        assert await transport.send(method, PODS, {"dryRun": "All"}, BODY, MERGE) == b'{"b":2}'
        assert server.requests == [(method, PODS, BODY)]
        assert server.pods.listed == [{"dryRun": "All"}]
        (headers,) = server.headers
        assert headers["authorization"] == "Bearer secret"
        assert headers["content-type"] == MERGE
        assert headers["user-agent"] == "kopf-selectcache"


async def test_a_deletion_may_be_accepted_and_a_read_may_not() -> None:
    async with Server(lists=[answer(b"{}", code=202)] * 2) as server, connected(login(server)) as transport:
        assert await transport.send("DELETE", PODS, {}, BODY) == b"{}"
        with pytest.raises(Refused):
            await transport.get(PODS, {})


async def test_a_refusal_has_the_causes_field_by_field() -> None:
    causes = [{"field": "spec.x", "reason": "FieldValueInvalid", "message": "too\nlong"}]
    said = status(422, "Invalid", details={"causes": causes})
    odd = status(422, "Invalid", details={"causes": {"field": 5}})
    async with (
        Server(lists=[answer(said, code=422), answer(odd, code=422)]) as server,
        connected(login(server)) as transport,
    ):
        with pytest.raises(Refused) as first:
            await transport.send("POST", PODS, {}, BODY)
        assert first.value.refusal.causes == (FieldCause("spec.x", "FieldValueInvalid", "too long"),)
        with pytest.raises(Refused) as second:
            await transport.send("POST", PODS, {}, BODY)
        assert (second.value.refusal.reason, second.value.refusal.causes) == ("Invalid", ())


# ---- Not repeated.


@each_row("own", [False, True])
@each_row("then", [Then.CLOSE, Then.RESET])
@each_row("method", METHODS)
async def test_a_write_whose_reused_connection_breaks_is_not_repeated(
    method: str, then: Then, *, own: bool
) -> None:
    """aiohttp repeats PUT and DELETE by itself: the server may have executed the first request. So does a
    session that a login handler gives.
    """
    broken = Answer((), then)
    async with (
        Server(lists=[answer(b"{}"), broken, answer(b"{}")]) as server,
        aiohttp.ClientSession() as session,
        connected(
            AiohttpSession(aiohttp_session=session, server=server.url) if own else login(server)
        ) as transport,
    ):
        await transport.get(PODS, {})  # The connection stays open for the write.
        with pytest.raises(Unreachable) as raised:
            await transport.send(method, PODS, {}, BODY)
        assert raised.value.may_have_arrived
        assert [each[0] for each in server.requests] == ["GET", method]
        assert len(server.requests) == 2


async def test_a_body_is_written_once() -> None:
    written = []

    class Writer:
        async def write(self, data: bytes) -> None:
            written.append(data)

    body = _OneShot(BODY)
    assert (body.size, body.decode()) == (len(BODY), BODY.decode())
    await body.write(Writer())  # type: ignore[arg-type]
    with pytest.raises(aiohttp.ClientConnectionError):
        await body.write(Writer())  # type: ignore[arg-type]
    assert written == [BODY]


async def test_a_write_that_the_server_does_not_accept_the_credentials_of_is_sent_again() -> None:
    time = Time()
    async with (
        Server(lists=[refused(401), answer(b"{}")]) as server,
        connected(login(server), clock=time.clock, sleep=time.pause) as transport,
    ):
        assert await transport.send("POST", PODS, {}, BODY) == b"{}"
        assert server.requests == [("POST", PODS, BODY)] * 2


async def test_redirects_of_writes_are_not_followed() -> None:
    elsewhere = answer(b"{}", code=307, headers={"Location": "/elsewhere"})
    async with Server(lists=[elsewhere]) as server, connected(login(server)) as transport:
        with pytest.raises(Refused) as raised:
            await transport.send("POST", PODS, {}, BODY)
        assert raised.value.refusal.code == 307
        assert len(server.requests) == 1


async def test_an_answer_to_a_write_has_a_limit() -> None:
    async with (
        Server(lists=[answer(b"x" * 2_000)]) as server,
        connected(login(server), max_bytes=1_000) as transport,
    ):
        with pytest.raises(TooLarge):
            await transport.send("POST", PODS, {}, BODY)


# ---- Whether a write may have arrived.


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


ELSEWHERE: dict[str, Callable[[], KubeContext]] = {
    "nobody listens": lambda: kopf.ConnectionInfo(server=f"http://127.0.0.1:{closed_port()}"),
    "the proxy is down": lambda: kopf.ConnectionInfo(
        server="http://127.0.0.1:1", proxy_url=f"http://127.0.0.1:{closed_port()}"
    ),
    "the address makes no sense": lambda: kopf.ConnectionInfo(server="http://[::1"),
}


@pytest.mark.parametrize("why", ELSEWHERE)
async def test_a_write_that_was_never_sent_has_not_arrived(why: str) -> None:
    async with connected(ELSEWHERE[why]()) as transport:
        with pytest.raises(Unreachable) as raised:
            await transport.send("POST", PODS, {}, BODY)
        assert not raised.value.may_have_arrived


def test_a_write_without_safe_connection_or_in_a_closed_session_has_not_arrived() -> None:
    async def main() -> None:
        async with Server() as server, aiohttp.ClientSession() as session:
            await session.close()
            for info in (
                kopf.ConnectionInfo(server=server.url.replace("http:", "https:")),
                AiohttpSession(aiohttp_session=session, server=server.url),
            ):
                time = Time()
                options: dict[str, Any] = {"request_timeout": 0.05, "clock": time.clock, "sleep": time.pause}
                async with connected(info, **options) as transport:
                    with pytest.raises(Unreachable) as raised:
                        await transport.send("POST", PODS, {}, BODY)
                    assert not raised.value.may_have_arrived

    hurry(main())


async def test_a_write_without_credentials_has_not_arrived() -> None:
    async with Server(lists=[refused(401)] * 9) as server:
        time = Time()
        vault = Vault()
        transport = KopfTransport(vault, clock=time.clock, sleep=time.pause)

        async def never() -> None:
            await vault.populate({})

        login = asyncio.create_task(never())
        with pytest.raises(NoCredentials) as raised:
            await transport.send("POST", PODS, {}, BODY)
        assert not raised.value.may_have_arrived
        assert not server.requests
        await login
        await vault.close()


@each_row(
    "broken",
    [
        Answer((), Then.CLOSE),
        Answer((), Then.RESET),
        Answer((b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",), Then.CLOSE),
        Answer((b"no HTTP\r\n\r\n",), Then.CLOSE),
        SILENCE,
    ],
)
def test_a_write_whose_answer_breaks_off_or_is_late_may_have_arrived(broken: Answer) -> None:
    async def main() -> None:
        async with (
            Server(lists=[broken]) as server,
            connected(login(server), request_timeout=0.2) as transport,
        ):
            with pytest.raises(Unreachable) as raised:
                await transport.send("POST", PODS, {}, BODY)
            assert raised.value.may_have_arrived
            assert len(server.requests) == 1

    hurry(main())


def test_a_write_that_waits_for_a_login_has_not_arrived() -> None:
    """The server has refused the credentials, so that it has not executed the write."""

    async def main() -> None:
        async with Server(lists=[refused(401)] * 9) as server:
            time = Time()
            vault = Vault({"login": login(server)})
            transport = KopfTransport(vault, request_timeout=0.05, clock=time.clock, sleep=time.pause)
            sending = asyncio.create_task(transport.send("POST", PODS, {}, BODY))
            await until(sending.done)
            with pytest.raises(Unreachable) as raised:
                await sending
            assert not raised.value.may_have_arrived
            assert len(server.requests) >= 1
            await vault.close()

    hurry(main())
