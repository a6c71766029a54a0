"""Attacks by refusals, by connections that lead nowhere, and by the clock."""

from __future__ import annotations

import asyncio

from .attack import Attack, Attacks
from .objects import CANARY, status
from .server import Connection, Exchange

REFUSALS = Attacks()


@REFUSALS(
    "storm of 401",
    "list",
    "watch",
    held="unauthorized",
    fresh="unauthorized",
    reason="does not accept the operator's credentials",
)
async def unauthorized(talk: Exchange) -> None:
    """401 for each request; each login gives equal credentials"""
    await talk.answer(status(401, "Unauthorized"), code=401)


@REFUSALS("401 now and then", "list", "watch", held="synced", fresh="synced")
async def unauthorized_sometimes(talk: Exchange) -> None:
    """401 for each second request"""
    if talk.number % 2:
        await talk.honest()
    else:
        await talk.answer(status(401, "Unauthorized"), code=401)


@REFUSALS("403", "list", "watch", held="forbidden", fresh="forbidden", reason="does not have permission")
async def forbidden(talk: Exchange) -> None:
    """403 with a hostile message"""
    await talk.answer(status(403, "Forbidden", "\x1b[2J\r\nforged" + "x" * 100_000), code=403)


@REFUSALS("404", "list", "watch", held="missing", fresh="missing", reason="does not serve")
async def not_found(talk: Exchange) -> None:
    """404 for a kind that discovery names"""
    await talk.answer(status(404, "NotFound"), code=404)


@REFUSALS("400", held="rejected", fresh="rejected", reason="refuses the filter")
async def bad_request(talk: Exchange) -> None:
    """400 for each list"""
    await talk.answer(status(400, "BadRequest"), code=400)


@REFUSALS("500", "list", "watch", reason="server answers 500")
async def internal_error(talk: Exchange) -> None:
    """500 for each request"""
    await talk.answer(status(500, "InternalError"), code=500)


@REFUSALS("HTML with 503", "list", "watch", reason="server answers 503")
async def bad_gateway(talk: Exchange) -> None:
    """503 with the HTML of a proxy"""
    await talk.answer(f"<html>\n{CANARY}</html>".encode(), code=503, headers={"Content-Type": "text/html"})


@REFUSALS("endless error", "list", "watch", reason="server answers 500")
async def endless_error(talk: Exchange) -> None:
    """500 with a body without an end, 1 MiB every 0.1 s"""
    await talk.write(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await talk.chunk(b"x" * 1024 * 1024)
        await asyncio.sleep(0.1)


@REFUSALS("Retry-After: strange", "list", "watch", reason="server answers 429")
async def strange_waits(talk: Exchange) -> None:
    """429 with a Retry-After of NaN, inf, -1, 1e999, a fraction, and dates of the past, in turn"""
    wait = [
        "nan",
        "inf",
        "-1",
        "1e999",
        "0.001",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "9" * 5_000,
        "0x10",
        "\u0665",
    ][talk.number % 9]
    await talk.answer(
        status(429, "TooManyRequests", details={"retryAfterSeconds": 0}),
        code=429,
        headers={"Retry-After": wait.encode().decode("latin-1"), "Date": "Wed, 21 Oct 2026 07:28:00 GMT"},
    )


@REFUSALS("Retry-After: huge", "list", "watch", reason="server answers 429", patience=700.0)
async def huge_wait(talk: Exchange) -> None:
    """429 with a Retry-After of a million seconds, of which 600 count"""
    await talk.answer(status(429, "TooManyRequests"), code=429, headers={"Retry-After": "1000000"})


@REFUSALS("Retry-After: far date", "list", "watch", reason="server answers 503", patience=700.0)
async def far_date(talk: Exchange) -> None:
    """503 with a Retry-After of the year 9999"""
    await talk.answer(
        status(503, "ServiceUnavailable"),
        code=503,
        headers={"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"},
    )


# ---- Connections.


async def _close(connection: Connection) -> None:
    del connection


async def _reset(connection: Connection) -> None:
    connection.reset()


async def _keep_silent(connection: Connection) -> None:
    await connection.reader.read()


async def _present_another_authority(connection: Connection) -> None:
    assert connection.tls is not None, "the server has certificates"
    await connection.writer.start_tls(connection.tls.other)
    await connection.reader.read()


async def _write_garbage(connection: Connection) -> None:
    connection.writer.write(b"\x16\x03\x03\xff\xff" + b"evil" * 100)
    await connection.reader.read()


async def _speak_plainly(connection: Connection) -> None:
    connection.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    await connection.reader.read()


async def _drip_handshake(connection: Connection) -> None:
    connection.writer.write(b"\x16\x03\x03\x40\x00")
    while True:
        connection.writer.write(b"x")
        await connection.writer.drain()
        await asyncio.sleep(1.0)


UNREACHABLE = 3 * 242
"""Three lists and watches meet an attack on connections."""

CONNECTIONS = (
    Attack(
        "connections closed",
        "Each connection is closed at once",
        connect=_close,
        fresh="stale",
        most=UNREACHABLE,
        reason="broke off",
    ),
    Attack(
        "connections reset",
        "Each connection is reset at once",
        connect=_reset,
        fresh="stale",
        most=UNREACHABLE,  # The client may still be connecting: what it says depends on that.
    ),
    Attack(
        "connections without an answer",
        "Each connection is accepted, and nothing comes",
        connect=_keep_silent,
        fresh="stale",
        most=UNREACHABLE,
    ),
    Attack(
        "TLS: wrong authority",
        "A certificate of an authority that is not trusted",
        connect=_present_another_authority,
        fresh="stale",
        tls=True,
        most=UNREACHABLE,
        reason="no safe connection",
    ),
    Attack(
        "TLS: garbage",
        "Bytes that are no TLS",
        connect=_write_garbage,
        fresh="stale",
        tls=True,
        most=UNREACHABLE,
    ),
    Attack(
        "TLS: plain HTTP",
        "HTTP without TLS",
        connect=_speak_plainly,
        fresh="stale",
        tls=True,
        most=UNREACHABLE,
    ),
    Attack(
        "TLS: endless handshake",
        "A handshake of one byte per second",
        connect=_drip_handshake,
        fresh="stale",
        tls=True,
        most=UNREACHABLE,
    ),
)

CLOCKS = (
    Attack(
        "clock: an hour forward",
        "The clock of the operator jumps an hour forward",
        held="synced",
        fresh="synced",
        jump=3600.0,
    ),
    Attack(
        "clock: an hour back",
        "The clock of the operator jumps an hour back",
        held="synced",
        fresh="synced",
        jump=-3600.0,
    ),
)
