"""Calls of admission webhooks over HTTPS, with the words of Go's client for calls that fail."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import aiohttp

from ._watch_streams import Later
from .api.admission import Steps, WebhookCall
from .api.webhook_answers import WebhookAnswer

T = TypeVar("T")

_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, */*",
    "User-Agent": "kube-apiserver-admission",
}
LARGEST = 3 * 1024 * 1024  # Bytes of a response, as for the real server.


class WebhookClient:
    """Calls webhooks in the loop of the server. Each call has a connection of its own."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._calls: set[asyncio.Task[WebhookAnswer]] = set()
        self._sockets: set[socket.socket] = set()

    async def close(self) -> None:
        """End all calls, and wait until their connections are closed."""
        calls = tuple(self._calls)
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        # aiohttp has no event for the end of its connections.
        while any(connection.fileno() != -1 for connection in self._sockets):  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def complete(self, steps: Steps[T]) -> T:
        """Do work that yields calls of webhooks. Without any, it is done before this suspends."""
        try:
            calls = next(steps)
            while True:
                calls = steps.send(await self.call(calls))
        except StopIteration as end:
            result: T = end.value
            return result

    async def call(self, calls: Sequence[WebhookCall]) -> list[WebhookAnswer]:
        """Call webhooks at the same time."""
        return await asyncio.gather(*map(self._call, calls))

    async def _call(self, call: WebhookCall) -> WebhookAnswer:
        task = asyncio.get_running_loop().create_task(self._post(call))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

        def expire() -> None:
            task.cancel()

        timer = self._later(call.timeout, expire)
        try:
            await asyncio.wait({task})
        finally:
            timer.cancel()
            task.cancel()
        return WebhookAnswer(failure="context deadline exceeded") if task.cancelled() else task.result()

    async def _post(self, call: WebhookCall) -> WebhookAnswer:
        sockets: list[socket.socket] = []

        def connect(address: tuple[Any, ...]) -> socket.socket:
            sockets.append(socket.socket(*address[:3]))
            self._sockets.add(sockets[-1])
            return sockets[-1]

        try:
            connector = aiohttp.TCPConnector(
                ssl=_trusting(call.bundle), force_close=True, socket_factory=connect
            )
            async with (
                aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout()) as session,
                session.post(call.url, data=call.body, headers=_HEADERS, allow_redirects=False) as response,
            ):
                body = await response.content.read(LARGEST)
                while not response.content.at_eof():
                    body += await response.content.read(LARGEST)
                    if len(body) > LARGEST:
                        return WebhookAnswer(failure="http: request body too large")
                return WebhookAnswer(response.status, body, response.headers.get("Content-Type", ""))
        except (aiohttp.ClientError, OSError) as error:
            return WebhookAnswer(failure=_describe(error))
        except asyncio.CancelledError:
            # Otherwise TLS waits for the webhook to close the connection as well.
            for connection in sockets:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            raise
        finally:
            self._sockets = {connection for connection in self._sockets if connection.fileno() != -1}


def _trusting(bundle: bytes | None) -> ssl.SSLContext:
    if bundle is None:
        return ssl.create_default_context()
    context = ssl.create_default_context(cadata=bundle.decode(errors="replace"))
    # As Go: any certificate of the bundle is trusted, also one that signs nothing.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _describe(error: Exception) -> str:
    cause = error.certificate_error if isinstance(error, aiohttp.ClientConnectorCertificateError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        unknown = cause.verify_code in (18, 19, 20, 21)  # OpenSSL's codes of a missing or foreign authority.
        why = "certificate signed by unknown authority" if unknown else cause.verify_message
        return f"tls: failed to verify certificate: x509: {why}"
    if isinstance(error, aiohttp.ClientConnectorError):
        why = "connection refused" if error.errno == errno.ECONNREFUSED else error.strerror or str(error)
        return f"dial tcp {error.host}:{error.port}: connect: {why}"
    return "EOF" if isinstance(error, aiohttp.ServerDisconnectedError) else str(error) or type(error).__name__
