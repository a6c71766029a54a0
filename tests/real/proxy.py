"""A proxy in front of an API server, for the faults that a real server cannot be made to have. Passes on all
else."""

import asyncio
import gc
import json
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from tests.apiserver.client import Client
from tests.faults.environment import connections_closed

Condition = Callable[[web.Request], bool]


def status(code: int, reason: str) -> dict[str, Any]:
    """What an API server says when it refuses."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": reason,
    }


@dataclass
class Fault:
    """Refuses the first requests that meet a condition."""

    condition: Condition
    code: int
    times: int = 1
    hits: int = 0
    retry_after: str | None = None


@dataclass
class Loss:
    """Breaks the connections of the first requests that meet a condition: before the server receives the
    request, or after it has answered."""

    condition: Condition
    is_answered: bool
    times: int = 1
    hits: int = 0


@dataclass
class Proxy:
    """Listens on a free port, without TLS, as a thread of its own; ends with the `with` block."""

    upstream: Client
    faults: list[Fault] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    passed: list[tuple[str, str]] = field(default_factory=list)
    """The method and the path of each request that was passed on."""
    timeout_seconds: int = 0
    """After how many seconds the server ends each watch, by a parameter of its request; if 0, when it
    likes."""
    url: str = ""
    ignored: frozenset[str] = frozenset()
    """These parameters of requests do not reach the server."""
    held: Condition | None = None
    holds_answers: bool = False
    waiting: int = 0
    """How many requests, or answers, are held."""
    received: list[bytes] = field(default_factory=list)
    """The chunks of all answers, as the server has sent them."""

    def __enter__(self) -> Self:
        started = threading.Event()
        self._released = asyncio.Event()
        self._streams: list[tuple[web.Request, web.StreamResponse]] = []
        self._answers: list[tuple[web.Request, asyncio.Task[None]]] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(started)), name="proxy")
        self._thread.start()
        started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        # What is left of connections is told here, and not in a test that has nothing to do with it.
        gc.collect()

    def hold(self, condition: Condition, *, answers: bool = False) -> None:
        """Keep all requests that meet the condition, or the answers to them, and pass them on when they are
        released."""
        self.holds_answers, self.held = answers, condition

    def release(self) -> None:
        self.held = None
        # What is held from now on is not released by this, however late the thread comes to it.
        released, self._released = self._released, asyncio.Event()
        self._loop.call_soon_threadsafe(released.set)

    def say_in_streams(self, condition: Condition, event: dict[str, Any]) -> int:
        """Write an event into every open watch that meets the condition; give how many there were."""

        async def say() -> int:
            said = 0
            for request, response in list(self._streams):
                if condition(request):
                    with suppress(ConnectionError):  # The client may have closed it just now.
                        await response.write(json.dumps(event).encode() + b"\n")
                        said += 1
            return said

        return asyncio.run_coroutine_threadsafe(say(), self._loop).result(timeout=60)

    def watches(self, condition: Condition) -> int:
        """Give how many open watches meet the condition."""
        return sum("watch" in request.query and condition(request) for request, _ in list(self._answers))

    def end_streams(self, condition: Condition) -> int:
        """End every open watch that meets the condition, as a server does after a while; give how many there
        were."""

        async def end() -> int:
            ended = [
                answer for request, answer in self._answers if "watch" in request.query and condition(request)
            ]
            for answer in ended:
                answer.cancel()
            return len(ended)

        return asyncio.run_coroutine_threadsafe(end(), self._loop).result(timeout=60)

    async def _run(self, started: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        # One session for all requests, which closes all of their connections.
        connector = aiohttp.TCPConnector(ssl=_trusting(self.upstream), limit=0)
        forever = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=forever
        ) as self._session:
            started.set()
            await self._over.wait()
            await (
                runner.cleanup()
            )  # Before the session is closed: a handler must not open a connection after that.
        await connections_closed()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        for fault in self.faults:
            if fault.hits < fault.times and fault.condition(request):
                fault.hits += 1
                headers = {"Retry-After": fault.retry_after} if fault.retry_after is not None else None
                return web.json_response(
                    status(fault.code, "Expired" if fault.code == 410 else "Fault"),
                    status=fault.code,
                    headers=headers,
                )
        loss = next(
            (each for each in self.losses if each.hits < each.times and each.condition(request)), None
        )
        body = await request.read() or None
        if loss is not None:
            loss.hits += 1
            if not loss.is_answered:
                return _broken(request)
        if not self.holds_answers:
            await self._wait(request)
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        target = (
            request.rel_url.without_query_params(*self.ignored).raw_path_qs
            if self.ignored
            else request.path_qs
        )
        ends = (
            f"&timeoutSeconds={self.timeout_seconds}"
            if self.timeout_seconds and "watch" in request.query
            else ""
        )
        self.passed.append((request.method, request.path))
        async with self._session.request(
            request.method,
            self.upstream.url + target + ends,
            headers=headers,
            data=body,
            skip_auto_headers=("Accept-Encoding",),
        ) as answer:
            if self.holds_answers:
                await self._wait(request)
            if loss is not None:
                await answer.read()
                return _broken(request)
            # What is compressed, as long lists are, is passed on as it is.
            told = {
                name: answer.headers[name]
                for name in ("Content-Type", "Content-Encoding")
                if name in answer.headers
            }
            response = web.StreamResponse(status=answer.status, headers=told)
            stream = (request, response)
            try:
                await response.prepare(request)
                self._streams.append(stream)
                passing = asyncio.create_task(self._pass(answer, response))
                self._answers.append((request, passing))
                try:
                    await asyncio.wait({passing})
                finally:
                    self._answers.remove((request, passing))
                    if not passing.done() or passing.cancelled():
                        passing.cancel()
                        answer.close()  # The rest must not be taken for the answer to another request.
                if not passing.cancelled():
                    passing.result()
            except (ConnectionError, aiohttp.ClientError):
                # The operator has gone, and with it whoever would read the rest; or the server, in the middle
                # of its answer.
                response.force_close()
                for transport in (request.transport, answer.connection and answer.connection.transport):
                    if transport is not None:
                        transport.abort()
            finally:
                if stream in self._streams:
                    self._streams.remove(stream)
            return response

    async def _wait(self, request: web.Request) -> None:
        released, held = self._released, self.held  # In this order: `release` may come in between.
        if held is not None and held(request):
            self.waiting += 1
            await released.wait()

    async def _pass(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        async for chunk in answer.content.iter_any():
            self.received.append(chunk)
            await response.write(chunk)


def _broken(request: web.Request) -> web.StreamResponse:
    """Break the connection of a request."""
    assert request.transport is not None, "the client has gone"
    request.transport.abort()
    response = web.Response()
    response.force_close()
    return response


def _trusting(client: Client) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(client.ca_file))
