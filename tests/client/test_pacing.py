"""Events of a busy watch are read together. Over real sockets; the clock and the delay are the tests'."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from kopf_selectcache.client.reading import (
    BUSY_EVENTS_PER_SECOND,
    LARGE_CHUNK_BYTES,
    RATE_WINDOW_SECONDS,
    WatchPace,
    paced,
)
from tests.client.connections import connected, login
from tests.faults.environment import until
from tests.faults.server import PODS, Part, Server, chunk, streamed

EVENT = b'{"type":"ADDED"}\n'
MANY = EVENT * int(BUSY_EVENTS_PER_SECOND * RATE_WINDOW_SECONDS)
DELAY = 0.25


@asynccontextmanager
async def answered(*parts: Part) -> AsyncIterator[tuple[aiohttp.ClientResponse, Any]]:
    """Open a watch; return the response, and the socket that it comes from."""
    async with (
        Server(watches=[streamed(*parts)]) as server,
        aiohttp.ClientSession() as session,
        session.get(server.url + PODS, params={"watch": "true"}) as response,
    ):
        assert response.connection is not None
        assert response.connection.transport is not None
        yield response, response.connection.transport.get_extra_info("socket")


def unread(open_: Any) -> int:
    """Return the number of bytes that the kernel holds."""
    held: int = struct.unpack("i", fcntl.ioctl(open_.fileno(), termios.FIONREAD, b"\0\0\0\0"))[0]
    return held


class Delays:
    """A sleep that lasts until `done` is set."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.begun = asyncio.Event()
        self.done = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.begun.set()
        await self.done.wait()


async def test_events_of_a_busy_watch_stay_in_the_kernel_for_the_delay_and_are_read_together() -> None:
    gates = [asyncio.Event() for _ in range(3)]
    later = [part for gate in gates for part in (gate, EVENT)]
    delays = Delays()
    async with (
        answered(MANY, *later) as (response, open_),
        aclosing(paced(response, delay=DELAY, clock=lambda: 1.0, sleep=delays.sleep)) as chunks,
    ):
        assert await anext(chunks) == MANY
        following = asyncio.ensure_future(anext(chunks))
        await delays.begun.wait()
        try:
            for number, gate in enumerate(gates, start=1):
                gate.set()
                came = number * len(chunk(EVENT))
                await until(lambda: unread(open_) >= came or response.content.total_bytes > len(MANY))  # noqa: B023  # It is awaited here.
                assert unread(open_) == came
            assert not following.done()
        finally:
            delays.done.set()
            together = await following
        assert together == 3 * EVENT
        assert delays.seconds == [DELAY]


async def test_a_watch_with_few_events_is_never_delayed() -> None:
    times = iter(range(1, 100))
    gates = [asyncio.Event() for _ in range(8)]
    delays = Delays()
    delays.done.set()
    async with (
        answered(*(part for gate in gates for part in (gate, 2 * EVENT))) as (response, _),
        aclosing(
            paced(response, delay=DELAY, clock=lambda: next(times) * RATE_WINDOW_SECONDS, sleep=delays.sleep)
        ) as chunks,
    ):
        for gate in gates:
            gate.set()
            assert await anext(chunks) == 2 * EVENT
        assert delays.seconds == []


async def test_without_a_delay_each_event_is_read_as_it_comes() -> None:
    gate = asyncio.Event()
    delays = Delays()
    async with (
        answered(MANY, gate, EVENT) as (response, _),
        aclosing(paced(response, delay=0.0, clock=lambda: 1.0, sleep=delays.sleep)) as chunks,
    ):
        assert await anext(chunks) == MANY
        gate.set()
        assert await anext(chunks) == EVENT
        assert delays.seconds == []


@pytest.mark.parametrize("system", [("Darwin", "23.4.0"), ("Linux", "4.14.336"), ("Linux", "unknown")])
async def test_a_watch_is_not_delayed_whose_reader_might_not_be_woken(system: tuple[str, str]) -> None:
    gate, delays = asyncio.Event(), Delays()
    async with (
        Server(watches=[streamed(MANY, gate, EVENT)]) as server,
        connected(
            login(server), batch_delay=DELAY, clock=lambda: 1.0, sleep=delays.sleep, system=system
        ) as transport,
        transport.watch(PODS, {"watch": "true"}) as chunks,
    ):
        following = aiter(chunks)
        assert await anext(following) == MANY
        gate.set()
        later = asyncio.ensure_future(anext(following))
        await until(lambda: later.done() or delays.seconds)
        delays.done.set()
        assert (await later, delays.seconds) == (EVENT, [])


def test_a_server_that_sends_faster_than_its_events_are_read_is_not_slowed_down() -> None:
    assert WatchPace().is_busy(MANY, 1.0)
    assert not WatchPace().is_busy(b" " * LARGE_CHUNK_BYTES + MANY, 1.0)


async def test_the_delay_changes_one_option_of_the_socket_and_its_end_restores_that() -> None:
    """A watch may be ended meanwhile. The kernel must not enlarge its buffer for good."""
    delays = Delays()
    async with (
        answered(MANY) as (response, open_),
        aclosing(paced(response, delay=DELAY, clock=lambda: 1.0, sleep=delays.sleep)) as chunks,
    ):
        await anext(chunks)
        before = open_.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        following = asyncio.ensure_future(anext(chunks))
        await delays.begun.wait()
        assert open_.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) > len(MANY)
        assert open_.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before
        following.cancel()
        await asyncio.wait([following])
        assert open_.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


async def test_a_transport_has_the_delay_of_the_settings() -> None:
    delays = Delays()
    async with (
        Server(watches=[streamed(MANY)]) as server,
        connected(login(server), batch_delay=DELAY, clock=lambda: 1.0, sleep=delays.sleep) as transport,
        transport.watch(PODS, {"watch": "true"}) as chunks,
    ):
        assert await anext(aiter(chunks)) == MANY
        following = asyncio.ensure_future(anext(aiter(chunks)))
        await delays.begun.wait()
        assert delays.seconds == [DELAY]
        following.cancel()
        await asyncio.wait([following])
