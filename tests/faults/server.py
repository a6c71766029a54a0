"""An API server that answers as scripted, down to the bytes: what comes to the nth list or watch of a path is
data.

It knows nothing of objects, selectors or versions, and remembers every request. Where a script ends, a list
is never answered, and a watch is opened and says nothing: so each scenario comes to rest."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit

Obj: TypeAlias = dict[str, Any]
Part: TypeAlias = bytes | asyncio.Event
"""What is sent next, or what is waited for before the next is sent."""

PODS = "/api/v1/pods"
SECRETS = "/api/v1/secrets"


class Then(Enum):
    """What follows an answer on its connection."""

    NEXT = "the next request"
    CLOSE = "its end"
    RESET = "a reset"
    SILENCE = "nothing, for ever"


@dataclass(frozen=True)
class Answer:
    """An answer as it goes over the wire."""

    parts: tuple[Part, ...]
    then: Then = Then.NEXT


SILENCE = Answer((), Then.SILENCE)


# ---- Answers.


def answer(body: Obj | bytes, *, code: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {code} Said", f"Content-Length: {len(data)}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return Answer(("\r\n".join(lines).encode() + b"\r\n\r\n" + data,))


def listed(version: str, *objects: Obj, then: str = "", kind: str = "PodList") -> Answer:
    return answer(
        {
            "kind": kind,
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version, "continue": then},
            "items": list(objects),
        }
    )


def status(code: int, reason: str = "", *, message: str = "", **others: Any) -> Obj:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message or reason,
        **others,
    }


def refused(
    code: int, reason: str = "", *, message: str = "", retry_after: str = "", token: str = ""
) -> Answer:
    body = status(code, reason, message=message) | {"metadata": {"continue": token}}
    return answer(body, code=code, headers={"Retry-After": retry_after} if retry_after else {})


def streamed(*parts: Part, then: Then = Then.SILENCE) -> Answer:
    """Return a watch that says this much. By default it stays open, and goes on saying nothing."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    return Answer((head, *(chunk(part) if isinstance(part, bytes) else part for part in parts)), then)


def ended(*parts: Part) -> Answer:
    """Return a watch that says this much, and ends as it should."""
    stream = streamed(*parts)
    return Answer((*stream.parts, b"0\r\n\r\n"))


def held(gate: asyncio.Event, answer: Answer) -> Answer:
    """Return an answer that comes when the gate is opened."""
    return Answer((gate, *answer.parts), answer.then)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# ---- What they speak of.


def pod(name: str, version: str, *, uid: str = "", **labels: str) -> Obj:
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": uid or f"uid-{name}",
        "resourceVersion": version,
        "labels": {"app": "web"} | labels,
    }
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}


def event(type_: str, object_: Obj) -> bytes:
    return json.dumps({"type": type_, "object": object_}).encode() + b"\n"


def bookmark(version: str, *, end: bool = False) -> bytes:
    notes = {"annotations": {"k8s.io/initial-events-end": "true"}} if end else {}
    return event(
        "BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version, **notes}}
    )


def error(code: int, reason: str = "", **others: Any) -> bytes:
    return event("ERROR", status(code, reason, **others))


# ---- The server.


@dataclass
class Script:
    """The answers to the lists and watches of one path, in turn; and what was asked."""

    lists: list[Answer] = field(default_factory=list)
    watches: list[Answer] = field(default_factory=list)
    listed: list[Mapping[str, str]] = field(default_factory=list)
    """The query of each list so far."""
    watched: list[Mapping[str, str]] = field(default_factory=list)
    """The query of each watch so far."""

    def next(self, query: Mapping[str, str]) -> Answer:
        answers, asked = (self.watches, self.watched) if "watch" in query else (self.lists, self.listed)
        asked.append(query)
        if len(asked) <= len(answers):
            return answers[len(asked) - 1]
        return streamed() if "watch" in query else SILENCE


CORE = [
    {"name": name, "singularName": kind.lower(), "kind": kind, "namespaced": True}
    for name, kind in (("pods", "Pod"), ("secrets", "Secret"))
]


class Server:
    """Listens on a free port of this machine; ends with the `async with` block, whatever is still open."""

    def __init__(
        self,
        *,
        lists: list[Answer] | None = None,
        watches: list[Answer] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.pods = Script(lists or [], watches or [])
        self.scripts: dict[str, Script] = {
            PODS: self.pods,
            "/api/v1": Script([answer({"kind": "APIResourceList", "resources": CORE})] * 100),
        }
        self.headers: list[Mapping[str, str]] = []
        """Of all requests, by lower-case name."""
        self.requests: list[tuple[str, str, bytes]] = []
        """The method, path and body of all requests."""
        self.token: str | None = None
        """The one that is accepted; None accepts everybody."""
        self.open = 0
        """How many connections there are."""
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        return frozenset(self._tasks)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.url = (
            f"{'https' if self._tls else 'http'}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        )
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._server.close()
        for _ in range(10):  # Connections that were accepted just now get their tasks.
            await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start(self._serve(reader, writer))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer((await reader.readuntil(b"\r\n\r\n")).decode(), reader, writer):
                    pass
        finally:
            self.open -= 1
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, request: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return whether another one may follow."""
        first, *others = request.strip().split("\r\n")
        target = urlsplit(first.split()[1])
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in others)
        }
        self.headers.append(headers)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((first.split()[0], target.path, body))
        given = self._chosen(target.path, dict(parse_qsl(target.query)), headers)
        # Whoever waits for a request that nobody wants any more would wait for ever.
        gone = self._start(_gone(reader)) if given.then is Then.SILENCE else None
        for part in given.parts:
            if isinstance(part, bytes):
                writer.write(part)
                await writer.drain()
            else:
                await part.wait()
        if gone is not None:
            await gone
        if given.then is Then.RESET:
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            writer.transport.abort()
        return given.then is Then.NEXT

    def _chosen(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            return refused(401, "Unauthorized")
        script = self.scripts.get(path)
        return script.next(query) if script is not None else refused(404, "NotFound")


async def _gone(reader: asyncio.StreamReader) -> None:
    """Wait until the client has closed its connection."""
    with suppress(ConnectionError):
        await reader.read(1)
