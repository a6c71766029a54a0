"""Requests over real sockets, with the credentials of a real vault: what comes back, what is refused, what
breaks off."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import zlib
from typing import Any

import aiohttp
import kopf
import pytest
from kopf._cogs.structs.credentials import AiohttpSession

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import TooLarge
from kopf_selectcache.core.protocol.messages import Refusal
from tests.client.connections import ask, connected, login
from tests.faults.environment import hurry, nothing_left, until
from tests.faults.server import (
    PODS,
    SILENCE,
    Answer,
    Script,
    Server,
    Then,
    answer,
    chunk,
    refused,
    status,
    streamed,
)
from tests.rows import each_row

CANARY = b"canary-7f3a"


# ---- Answers.


async def test_an_answer_is_returned_whole_as_bytes_and_asked_for_with_the_operators_credentials() -> None:
    async with (
        Server(lists=[answer(b'{"a":1}')]) as server,
        connected(login(server, token="secret")) as transport,
    ):
        assert (
            await transport.get(PODS, {"limit": "5", "labelSelector": "app in (web,db),x=1&2"}) == b'{"a":1}'
        )
        assert server.pods.listed == [{"limit": "5", "labelSelector": "app in (web,db),x=1&2"}]
        (headers,) = server.headers
        assert headers["authorization"] == "Bearer secret"
        assert headers["accept"] == "application/json"
        assert headers["user-agent"] == "kopf-selectcache"


DROPPING = "application/json;drop=metadata.managedFields"


async def test_8_a_server_that_refuses_to_drop_managed_fields_is_asked_once_and_then_without() -> None:
    refusal = refused(406, "NotAcceptable")
    async with (
        Server(lists=[refusal, answer(b"{}"), answer(b"{}")], watches=[streamed(b"{}\n")]) as server,
        connected(login(server)) as transport,
    ):
        assert await transport.get(PODS, {}, accept=DROPPING) == b"{}"
        assert await transport.get(PODS, {"limit": "1"}, accept=DROPPING) == b"{}"
        async with transport.watch(PODS, {"watch": "true"}, accept=DROPPING) as chunks:
            assert await anext(chunks) == b"{}\n"
        assert [each["accept"] for each in server.headers] == [DROPPING, *["application/json"] * 3]


async def test_8_a_watch_that_may_not_drop_managed_fields_is_opened_without() -> None:
    refusal = refused(406, "NotAcceptable")
    async with (
        Server(watches=[refusal, streamed(b"{}\n")]) as server,
        connected(login(server)) as transport,
        transport.watch(PODS, {"watch": "true"}, accept=DROPPING) as chunks,
    ):
        assert await anext(chunks) == b"{}\n"
        assert [each["accept"] for each in server.headers] == [DROPPING, "application/json"]


async def test_other_groups_are_still_asked_to_drop_managed_fields() -> None:
    jobs = "/apis/batch/v1/jobs"
    async with Server(lists=[refused(406), answer(b"{}")]) as server, connected(login(server)) as transport:
        server.scripts[jobs] = Script(lists=[answer(b"{}")])
        await transport.get(PODS, {}, accept=DROPPING)
        await transport.get(jobs, {}, accept=DROPPING)
        assert server.headers[-1]["accept"] == DROPPING


async def test_a_406_of_another_cause_is_an_error_after_one_more_request() -> None:
    async with (
        Server(lists=[refused(406), refused(406), refused(406)]) as server,
        connected(login(server)) as transport,
    ):
        for count in (2, 3):
            with pytest.raises(Refused):
                await transport.get(PODS, {}, accept=DROPPING)
            assert len(server.headers) == count


async def test_a_question_is_posted_as_another_user_where_that_is_asked_for() -> None:
    async with Server(lists=[answer(b"{}"), answer(b"{}")]) as server, connected(login(server)) as transport:
        assert await transport.ask(PODS, b"[1]") == await transport.ask(PODS, b"[1]", impersonate="web")
        assert [each.get("impersonate-user") for each in server.headers] == [None, "web"]
        assert {each["content-length"] for each in server.headers} == {"3"}


async def test_lists_are_requested_uncompressed_with_gzip_false() -> None:
    async with Server(lists=[answer(b"{}")]) as server, connected(login(server), gzip=False) as transport:
        assert await transport.get(PODS, {}) == b"{}"
        assert server.headers[0]["accept-encoding"] == "identity"


async def test_lists_may_be_compressed_and_watches_never() -> None:
    zipped = answer(gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})
    async with Server(lists=[zipped]) as server, connected(login(server)) as transport:
        assert await transport.get(PODS, {}) == b"{}"
        async with transport.watch(PODS, {"watch": "true"}):
            assert "gzip" in server.headers[0]["accept-encoding"]
            assert server.headers[1]["accept-encoding"] == "identity"


# ---- Answers that are too large.


def zeros(size: int) -> bytes:
    """Return `size` bytes, compressed to a thousandth."""
    return gzip.compress(bytes(size))


async def turns_while(task: asyncio.Task[Any]) -> int:
    """Return how many turns the loop has had when the task is done."""
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_35_a_compressed_answer_is_decompressed_piece_by_piece_and_the_loop_runs_in_between(
    encoding: str, *, own: bool
) -> None:
    """Also in a session that a login handler gives, with defaults of its own."""
    size = 20_000_000
    body = zeros(size) if encoding == "gzip" else zlib.compress(bytes(size))
    async with (
        Server(lists=[answer(body, headers={"Content-Encoding": encoding})]) as server,
        aiohttp.ClientSession(auto_decompress=False, read_bufsize=2**30) as session,
        connected(
            AiohttpSession(aiohttp_session=session, server=server.url) if own else login(server)
        ) as transport,
    ):
        task = asyncio.create_task(transport.get(PODS, {}))
        turns = await turns_while(task)
        assert task.exception() is None
        assert len(task.result()) == size
        assert turns >= size // 1_000_000


@pytest.mark.parametrize(
    ("most", "read"), [(None, 2_000_000), (1_000_000, 1_000_000), (4_000_000, 2_000_000)]
)
async def test_35_a_compressed_answer_is_read_as_far_as_its_limit(
    most: int | None, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decompressed = 0
    made = zlib.decompressobj

    class Counting:
        """Counts the bytes that are decompressed."""

        def __init__(self, bits: int) -> None:
            self._inflater = made(bits)

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal decompressed
            piece = self._inflater.decompress(data, most)
            decompressed += len(piece)
            return piece

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inflater, name)

    monkeypatch.setattr("kopf_selectcache.client.reading.zlib.decompressobj", Counting)
    bomb = answer(zeros(8_000_000), headers={"Content-Encoding": "gzip"})
    async with Server(lists=[bomb]) as server, connected(login(server), max_bytes=2_000_000) as transport:
        with pytest.raises(
            TooLarge,
            match=(rf"^an answer has more than {read:,} bytes \(settings[.]selectcache[.]max_page_bytes\)$"),
        ):
            await transport.get(PODS, {}, most=most)
        assert read < decompressed <= read + 2_000_000


@pytest.mark.parametrize("body", [b"no gzip", zeros(1_000_000)[:-9]], ids=["none", "cut off"])
async def test_35_an_answer_that_cannot_be_decompressed_is_a_failure_of_its_request(body: bytes) -> None:
    spoiled = answer(body, headers={"Content-Encoding": "gzip"})
    async with Server(lists=[spoiled]) as server, connected(login(server)) as transport:
        with pytest.raises(Unreachable, match="the connection broke off"):
            await transport.get(PODS, {})


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 3 * 256 * 1024])
async def test_35_a_compressed_answer_is_read_to_its_last_byte(size: int) -> None:
    """Also one that ends where a piece does."""
    packed = answer(zeros(size), headers={"Content-Encoding": "gzip"})
    async with Server(lists=[packed]) as server, connected(login(server)) as transport:
        assert await transport.get(PODS, {}) == bytes(size)


async def test_35_an_answer_that_goes_on_and_on_is_read_as_far_as_its_limit() -> None:
    piece, head = chunk(b"x" * 100_000), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with (
        Server(lists=[Answer((head, *[piece] * 500, b"0\r\n\r\n"))]) as server,
        connected(login(server), max_bytes=10_000_000) as transport,
    ):
        with pytest.raises(TooLarge):
            await transport.get(PODS, {})
        await until(lambda: not server.open)


async def test_a_watch_gives_chunks_as_they_come_until_it_ends() -> None:
    gate = asyncio.Event()
    stream = streamed(b"one", gate, b"two")
    over = Answer((*stream.parts, b"0\r\n\r\n"))
    async with (
        Server(watches=[over]) as server,
        connected(login(server)) as transport,
        transport.watch(PODS, {"watch": "true"}) as chunks,
    ):
        assert await anext(chunks) == b"one"
        gate.set()
        assert [chunk async for chunk in chunks] == [b"two"]


@pytest.mark.parametrize("verb", ["get", "watch"])
async def test_a_refusal_has_the_details_from_the_server(verb: str) -> None:
    no = refused(429, "TooManyRequests", message="come back later", retry_after="7")
    async with Server(lists=[no], watches=[no]) as server, connected(login(server)) as transport:
        with pytest.raises(Refused) as caught:
            await ask(transport, verb)
        assert caught.value.refusal == Refusal(429, "TooManyRequests", "come back later", 7.0)


TEN, FORTY = "Wed, 21 Oct 2026 07:28:10 GMT", "Wed, 21 Oct 2026 07:28:40 GMT"


@each_row(
    ("header", "date", "seconds"),
    [
        ("7", "", 7.0),
        ("1.5", "", 1.5),
        ("0", "", 0.0),
        (FORTY, TEN, 30.0),
        (TEN, FORTY, 0.0),
        (FORTY, "", None),
        (FORTY, "today", None),
        (FORTY, "Wed, 21 Oct 2026 07:28:10 -0000", None),
        ("soon", TEN, None),
        ("-1", TEN, None),
        ("1.2.3", TEN, None),
        ("\u00b2", TEN, None),
        ("inf", TEN, None),
        ("9" * 999, TEN, None),
        ("", TEN, None),
    ],
)
async def test_retry_after_may_be_a_fraction_or_a_date(header: str, date: str, seconds: float | None) -> None:
    no = answer(
        b"",
        code=503,
        headers={"Retry-After": header.encode().decode("latin-1")} | ({"Date": date} if date else {}),
    )
    async with Server(lists=[no]) as server, connected(login(server)) as transport:
        with pytest.raises(Refused) as caught:
            await transport.get(PODS, {})
        assert caught.value.refusal == Refusal(503, retry_after=seconds)


@each_row("verb", ["get", "watch"])
@each_row("code", [202, 203, 206, 226])
async def test_a_status_that_no_list_or_watch_has_is_refused_although_it_is_below_300(
    code: int, verb: str
) -> None:
    """A proxy may answer with a part, or with what it has transformed; the body looks like a list."""
    odd = answer(
        b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[]}', code=code
    )
    async with Server(lists=[odd], watches=[odd]) as server, connected(login(server)) as transport:
        with pytest.raises(Refused) as caught:
            await ask(transport, verb)
        assert caught.value.refusal.code == code


async def test_a_cookie_of_the_server_is_not_sent_back() -> None:
    async with Server(lists=[answer(b"{}", headers={"Set-Cookie": "evil=1"})] * 2) as server:
        by_name = kopf.ConnectionInfo(
            server=server.url.replace("127.0.0.1", "localhost")
        )  # No client takes cookies of addresses.
        async with connected(by_name) as transport:
            for _ in range(2):
                assert await transport.get(PODS, {}) == b"{}"
        assert [headers.get("cookie") for headers in server.headers] == [None, None]


async def test_a_refusal_may_come_in_pieces() -> None:
    (whole,) = answer(status(410, "Expired"), code=410).parts
    assert isinstance(whole, bytes)
    gate = asyncio.Event()
    async with (
        Server(lists=[Answer((whole[:-20], gate, whole[-20:]))]) as server,
        connected(login(server)) as transport,
    ):
        asked = asyncio.create_task(transport.get(PODS, {}))
        await until(lambda: server.pods.listed)
        for _ in range(20):  # It reads what there is.
            await asyncio.sleep(0)
        gate.set()
        with pytest.raises(Refused) as caught:
            await asked
        assert caught.value.refusal == Refusal(410, "Expired", "Expired")


async def test_of_a_refusal_without_end_enough_is_read() -> None:
    head = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 999999999\r\n\r\n"
    async with (
        Server(lists=[Answer((head, b"x" * 2_000_000), Then.SILENCE)]) as server,
        connected(login(server)) as transport,
    ):
        asked = asyncio.create_task(transport.get(PODS, {}))
        done, _ = await asyncio.wait({asked}, timeout=60)
        assert done, "it reads on"
        with pytest.raises(Refused) as caught:
            await asked
        assert caught.value.refusal == Refusal(502)


async def test_a_refusal_whose_body_breaks_off_is_one_still() -> None:
    (whole,) = answer(status(503), code=503).parts
    assert isinstance(whole, bytes)
    async with (
        Server(lists=[Answer((whole[:-20],), Then.CLOSE)]) as server,
        connected(login(server)) as transport,
    ):
        with pytest.raises(Refused) as caught:
            await transport.get(PODS, {})
        assert caught.value.refusal == Refusal(503)


@each_row("code", [301, 302, 307, 308])
async def test_redirects_are_not_followed_since_the_token_would_be_taken_along(code: int) -> None:
    async with (
        Server(lists=[answer(b"{}")]) as elsewhere,
        Server() as server,
        connected(login(server, token="secret")) as transport,
    ):
        server.pods.lists += [answer(b"", code=code, headers={"Location": f"{elsewhere.url}{PODS}"})]
        with pytest.raises(Refused) as caught:
            await transport.get(PODS, {})
        assert caught.value.refusal.code == code
        assert elsewhere.headers == []


# ---- What breaks off.


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BROKEN: dict[str, Answer] = {
    "no answer": Answer((), Then.CLOSE),
    "half a head": Answer((LENGTH[:20],), Then.CLOSE),
    "half a body": Answer((LENGTH, CANARY), Then.CLOSE),
    "half a chunk": Answer((CHUNKED, b"ff\r\n", CANARY), Then.CLOSE),
    "a reset": Answer((LENGTH, CANARY), Then.RESET),
    "a bad chunk": Answer((CHUNKED, CANARY + b"\r\n\r\n"), Then.CLOSE),
    "no HTTP": Answer((CANARY + b"\r\n\r\n",), Then.CLOSE),
    "no gzip": Answer((LENGTH.replace(b"100", b"11\r\nContent-Encoding: gzip"), CANARY), Then.CLOSE),
}


UNREADABLE = ("no HTTP", "a bad chunk")


@each_row("verb", ["get", "watch"])
@each_row("broken", BROKEN)
async def test_an_answer_that_breaks_off_is_unreachable_and_nothing_of_it_is_shown(
    broken: str, verb: str
) -> None:
    async with (
        Server(lists=[BROKEN[broken]] * 2, watches=[BROKEN[broken]] * 2) as server,
        connected(login(server)) as transport,
    ):
        with pytest.raises(Unreachable) as caught:
            await ask(transport, verb)
        what = "the answer can't be read" if broken in UNREADABLE else "the connection broke off"
        assert re.fullmatch(what + r" \([A-Z][A-Za-z]+\)", str(caught.value)), (
            "in words, and nothing of what came"
        )


async def test_where_nobody_listens_the_address_is_shown() -> None:
    async with Server() as server:
        pass
    async with connected(login(server)) as transport:
        with pytest.raises(
            Unreachable, match=r"^can't connect to the server .*Cannot connect to host 127[.]0[.]0[.]1"
        ):
            await transport.get(PODS, {})


def test_an_answer_that_takes_too_long_is_given_up_and_a_watch_may_take_as_long_as_it_likes() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with (
            Server(
                lists=[SILENCE, Answer((LENGTH,), Then.SILENCE)], watches=[streamed(gate, b"late")]
            ) as server,
            connected(login(server), request_timeout=0.02) as transport,
            transport.watch(PODS, {"watch": "true"}) as chunks,
        ):
            for _ in range(2):
                with pytest.raises(Unreachable):
                    await transport.get(PODS, {})
            gate.set()
            assert await anext(chunks) == b"late"

    hurry(main())


async def test_a_server_that_does_not_even_accept_a_connection_is_given_up() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        given = kopf.ConnectionInfo(server=f"http://127.0.0.1:{full.getsockname()[1]}")
        async with connected(given, connect_timeout=0.02) as transport:
            with pytest.raises(Unreachable):
                await transport.get(PODS, {})
            with pytest.raises(Unreachable):
                await ask(transport, "watch")


async def test_to_leave_a_watch_in_the_middle_ends_its_connection() -> None:
    async with Server(watches=[streamed(b"one")]) as server, connected(login(server)) as transport:
        before = asyncio.all_tasks()
        async with transport.watch(PODS, {"watch": "true"}) as chunks:
            assert await anext(chunks) == b"one"
            assert server.open == 1
        await until(lambda: server.open == 0)
        await nothing_left(before, server)


async def test_an_error_of_the_reader_of_a_watch_is_not_taken_for_one_of_the_server() -> None:
    async with Server() as server, connected(login(server)) as transport:
        own = TimeoutError()
        with pytest.raises(TimeoutError) as caught:
            async with transport.watch(PODS, {"watch": "true"}):
                raise own
        assert caught.value is own
