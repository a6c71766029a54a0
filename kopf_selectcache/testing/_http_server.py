"""The HTTP shell of the API: a port, connections, requests and responses, and faults of connections.

It has no semantics of its own: the API makes the responses.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from ._watch_streams import (
    BLOCK,
    MAX_BODY,
    MAX_HEAD,
    Later,
    Stream,
    accepts_gzip,
    break_off,
    raw_request,
    read_request,
    zipped,
)
from .api.admission import Steps, WebhookAnswer, WebhookCall
from .api.request import Answer, Request
from .api.server import Api
from .api.status import Problem
from .api.watching import Watch
from .faults.fault import End
from .faults.injector import BrokenFault, Faults, Planned
from .request_log import Asked, Match, Requests

logger = logging.getLogger(__name__)

GZIP_FROM = 128 * 1024  # As the real server: smaller responses are not compressed.
SHORTEST_WATCH = 1800.0  # Seconds: as the real server, which spreads the ends of watches over the same time.
SERVER_ERROR = "Internal error occurred: the embedded API server has a bug; its log has more"


class Web:
    """Serve an API on one port. Everything runs in the loop that listens."""

    def __init__(
        self,
        api: Api,
        faults: Faults,
        requests: Requests,
        *,
        later: Later,
        spread: Callable[[], float],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._api = api
        self._faults = faults
        self._requests = requests
        self._later = later
        self._spread = spread
        self._tls = tls
        self.webhooks = WebhookClient(later)
        self._streams: set[Stream] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._loop = asyncio.get_running_loop()
        self._http = web.Server(
            self._handle,
            request_factory=raw_request,
            handler_cancellation=True,
            access_log=None,
            lingering_time=0,
            max_line_size=MAX_HEAD,
            max_field_size=MAX_HEAD,
        )

    # ---- Ports and connections.

    def listen(self, listener: socket.socket) -> None:
        """Serve the connections of a bound socket; it is closed here."""
        listener.setblocking(False)
        listener.listen(256)
        self._listener = listener
        self._loop.add_reader(listener, self._accept, listener)

    def stop_listening(self) -> None:
        """Refuse connections from now on, and break the open ones."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for task in self._connecting:
            task.cancel()
        for connection in self._http.connections:
            if connection.transport is not None:
                connection.transport.abort()

    async def close(self) -> None:
        """Stop listening, and wait until every connection is closed."""
        self.stop_listening()
        # aiohttp has no event for the end of its connections.
        while self._http.connections or self._connecting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await self.webhooks.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # The client has gone again.
        connection.setblocking(False)
        task = self._loop.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(lambda _: self._connected(task, connection))

    async def _connect(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(self._http, connection, ssl=self._tls)

    def _connected(self, task: asyncio.Task[None], connection: socket.socket) -> None:
        self._connecting.discard(task)
        # A connection that ends before its task began, or a client without TLS, or
        # without trust.
        if task.cancelled() or isinstance(task.exception(), OSError):
            connection.close()

    # ---- Watches.

    def streams(self, match: Match) -> list[Stream]:
        """Return the open watches whose requests match."""
        return [stream for stream in self._streams if match.matches(stream.asked)]

    # ---- Requests.

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._handled(raw)
        except ConnectionError:
            pass  # The client has gone in the middle of its response, as clients may.
        except BrokenFault:
            logger.exception("A watch is broken off")
            break_off(raw, b"", End.CLOSE)
        return web.Response()  # Nobody receives it.

    async def _handled(self, raw: web.BaseRequest) -> web.StreamResponse:
        try:
            request = await read_request(raw)
        except web.HTTPRequestEntityTooLarge:
            problem = Problem(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY}")
            return web.Response(
                status=413, body=Answer.of(problem.status()).body, content_type="application/json"
            )
        asked = Asked.of(request, self._user_of(request))
        self._requests.add(asked)
        try:
            planned = self._faults.meeting(asked, request)
        except BrokenFault as broken:
            logger.exception(
                "The embedded API server can't answer %(method)s %(path)s",
                {"method": request.method, "path": request.path},
            )
            return await self._respond(
                raw, Answer.of(Problem(500, "InternalError", str(broken)).status(), code=500), [], asked
            )
        answer = await self._answer(request, planned)
        if isinstance(answer, Watch):
            return await self._follow(raw, answer, planned, asked)
        for plan in planned:
            answer = plan.fault.answered(request, answer)
            plan.hits.add(asked)
        await self._delay(planned)
        return await self._respond(raw, answer, planned, asked)

    def _user_of(self, request: Request) -> str:
        if "impersonate-user" in request.headers:
            return request.headers["impersonate-user"]
        try:
            return self._api.users.authenticate(request.headers).name
        except Problem:
            return ""

    async def _answer(self, request: Request, planned: list[Planned]) -> Answer | Watch:
        seen: int | None = None
        for plan in planned:
            instead = plan.fault.instead(request)
            if instead is not None:
                return instead
            request = plan.fault.asked(request)
            if plan.fault.seen is not None:
                seen = plan.fault.seen if seen is None else min(seen, plan.fault.seen)
        try:
            return await self.webhooks.complete(self._api.answering(request, seen=seen))
        except Exception:
            logger.exception(
                "The embedded API server can't answer %(method)s %(path)s",
                {"method": request.method, "path": request.path},
            )
            return Answer.of(Problem(500, "InternalError", SERVER_ERROR).status(), code=500)

    async def _follow(
        self, raw: web.BaseRequest, watch: Watch, planned: list[Planned], asked: Asked
    ) -> web.StreamResponse:
        def opened() -> None:
            self._streams.add(stream)
            self._requests.answer(asked, 200)

        stream = Stream(watch, asked, planned)
        try:
            await self._delay(planned)
            lasts = SHORTEST_WATCH * (1 + self._spread()) if watch.timeout is None else watch.timeout
            return await stream.write_to(raw, later=self._later, lasts=lasts, opened=opened)
        finally:
            self._streams.discard(stream)
            stream.close()

    async def _respond(
        self, raw: web.BaseRequest, answer: Answer, planned: list[Planned], asked: Asked
    ) -> web.StreamResponse:
        """Write a whole response, or the part of it that faults allow."""
        headers = {
            "Content-Type": answer.content_type,
            "Cache-Control": "no-cache, private",
            **answer.headers,
        }
        body = answer.body
        if len(body) >= GZIP_FROM and accepts_gzip(raw):
            headers["Content-Encoding"] = "gzip"
            body = await zipped(body)
        for plan in planned:
            part, end = plan.fault.written(body)
            if end is not End.END and not plan.released:
                return await self._interrupted(raw, answer.code, headers, body, part, end, plan)
        self._requests.answer(asked, answer.code)
        if len(body) <= BLOCK:
            return web.Response(status=answer.code, headers=headers, body=body)
        response = web.StreamResponse(status=answer.code, headers=headers)
        response.content_length = len(body)
        await response.prepare(raw)
        # In one piece, it would be copied three times: by aiohttp, by TLS and by the socket.
        for start in range(0, len(body), BLOCK):
            await response.write(body[start : start + BLOCK])
            await asyncio.sleep(0)  # Between the pieces, the end of the connection is noticed.
        return response

    async def _interrupted(
        self,
        raw: web.BaseRequest,
        code: int,
        headers: dict[str, str],
        body: bytes,
        part: bytes | None,
        end: End,
        plan: Planned,
    ) -> web.StreamResponse:
        """Write a part of a response; then break the connection, or write the rest once the fault is
        released.
        """
        response = web.StreamResponse(status=code, headers=headers)
        response.content_length = len(body)
        if part is not None:
            await response.prepare(raw)
            await response.write(part)
        if end is not End.SILENCE:
            break_off(raw, b"", end)
            return response
        released = asyncio.Event()
        forget = plan.on_release(released.set)
        try:
            await released.wait()
        finally:
            forget()
        await response.prepare(raw)
        await response.write(body[len(part or b"") :])
        return response

    async def _delay(self, planned: list[Planned]) -> None:
        for plan in planned:
            if plan.fault.delay:
                over = asyncio.Event()
                self._later(plan.fault.delay, over.set)
                await over.wait()


# ---- Calls of admission webhooks over HTTPS, with the words of Go's client for calls that fail.

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
