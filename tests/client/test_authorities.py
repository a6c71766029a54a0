"""A server that gets a certificate of a new authority: the cache has Kopf log in again, and follows with the
new one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import kopf
import pytest
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache.client.reading import Unreachable
from kopf_selectcache.client.transport import SOONEST, TRIES, KopfTransport
from kopf_selectcache.testing.cluster import authority
from tests.faults.environment import Time, operating, until
from tests.faults.server import PODS, Answer, Server, Then, answer, error, event, listed, pod, streamed
from tests.faults.test_rights import log_in


def closing(given: Answer) -> Answer:
    """Return the answer with the end of its connection after it: the next request makes another one."""
    return replace(given, then=Then.CLOSE)


class Rotating:
    """The TLS of a server whose authority changes. Its certificate is in a file, which Kopf's logins name."""

    def __init__(self, folder: Path) -> None:
        self.ca_file = folder / "ca.crt"
        self.context = authority(self.ca_file)
        self.connections = 0
        self._folder = folder
        self._latest = self.context
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        self.connections += 1
        connection.context = self._latest

    def rotate(self) -> None:
        """Take a certificate of a new authority, whose own is not in the file yet."""
        self._latest = authority(self._folder / "next.crt")

    def publish(self) -> None:
        """Put the certificate of the new authority into the file."""
        (self._folder / "next.crt").replace(self.ca_file)


@asynccontextmanager
async def logging_in(server: Server, tls: Rotating) -> AsyncIterator[tuple[Vault, kopf.ConnectionInfo]]:
    info = kopf.ConnectionInfo(server=server.url, ca_path=str(tls.ca_file))
    vault = Vault({"login": info})
    task = asyncio.create_task(log_in(vault, info))
    try:
        yield vault, info
    finally:
        task.cancel()
        await asyncio.wait({task})
        await vault.close()


async def test_the_next_login_knows_the_new_authority_although_its_credentials_are_equal(
    tmp_path: Path,
) -> None:
    tls = Rotating(tmp_path)
    async with (
        Server(lists=[closing(answer(b"{}"))] * 2, tls=tls.context) as server,
        logging_in(server, tls) as (vault, info),
    ):
        transport = KopfTransport(vault, sleep=Time().pause)
        assert await transport.get(PODS, {}) == b"{}"
        tls.rotate()
        tls.publish()
        assert [*await asyncio.gather(transport.get(PODS, {}), return_exceptions=True)] == [b"{}"]
        assert vault.select()[1].info == info


async def test_a_connection_that_stays_unsafe_costs_few_tries_and_logins_until_the_authority_is_known(
    tmp_path: Path,
) -> None:
    tls, time = Rotating(tmp_path), Time()
    async with (
        Server(lists=[closing(answer(b"{}"))] * 2, tls=tls.context) as server,
        logging_in(server, tls) as (vault, _),
    ):
        transport = KopfTransport(vault, clock=time.clock, sleep=time.pause)
        assert await transport.get(PODS, {}) == b"{}"
        tls.rotate()
        for attempts in (TRIES + 1, 1, 1):
            before, (_, item) = tls.connections, vault.select()
            with pytest.raises(Unreachable):
                await transport.get(PODS, {})
            assert tls.connections - before == attempts
            assert (vault.select()[1] is item) is (attempts == 1)
        tls.publish()
        time.now += SOONEST
        assert await transport.get(PODS, {}) == b"{}"


async def test_22_a_cache_follows_a_server_with_a_new_authority_and_needs_no_list(tmp_path: Path) -> None:
    tls, over = Rotating(tmp_path), asyncio.Event()
    watches = [streamed(over, error(500), then=Then.CLOSE), *[streamed(event("ADDED", pod("b", "105")))] * 2]
    async with (
        Server(lists=[closing(listed("100", pod("a", "90")))], watches=watches, tls=tls.context) as server,
        logging_in(server, tls) as (vault, _),
    ):
        server.scripts["/api/v1"].lists[:] = [closing(each) for each in server.scripts["/api/v1"].lists]
        async with operating(server, vault=vault) as environment:
            await environment.synced()
            tls.rotate()
            over.set()
            await until(lambda: "no safe connection can be made" in environment.informer.state.message)
            assert environment.names() == ["a@90"]
            tls.publish()
            await environment.holds("a@90", "b@105")
            assert len(server.pods.listed) == 1
