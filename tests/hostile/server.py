"""A small API server that writes HTTP/1.1 by hand, so that an attack can break any byte of it. It is honest
until an attack begins.

Requests for lists and watches of the attacked kinds go to the attack. Those of other kinds, and discovery,
are always answered honestly, unless the attack is on connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from .objects import (
    CONFIGMAPS,
    KINDS,
    LISTED,
    NAMESPACE,
    PODS,
    SECRETS,
    Kind,
    Obj,
    changes,
    encoded,
    event,
    originals,
    status,
)
from .tls import Authorities

BOOKMARKS_EVERY = 3.0
MINUTE = 60.0

Headers: TypeAlias = Mapping[str, str]


class Exchange:
    """One request to an attack, with the ways to answer it. The connection is closed after it, unless the
    attack keeps connections."""

    def __init__(
        self,
        server: Server,
        kind: Kind,
        verb: str,
        query: Mapping[str, str],
        number: int,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.server, self.kind, self.verb, self.query, self.number = server, kind, verb, query, number
        self._writer = writer

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, body: object, *, code: int = 200, headers: Headers | None = None) -> None:
        """Write a complete answer, of bytes or of what becomes JSON."""
        data = body if isinstance(body, bytes) else encoded(body)
        await self.write(head(code, {"Content-Length": str(len(data)), **(headers or {})}) + data)

    async def open(self, headers: Headers | None = None) -> None:
        """Write the head of an answer in chunks."""
        await self.write(head(200, {"Transfer-Encoding": "chunked", **(headers or {})}))

    async def chunk(self, data: bytes) -> None:
        await self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """Write the end of an answer in chunks."""
        await self.write(b"0\r\n\r\n")

    async def events(self, *lines: bytes) -> None:
        """Answer a watch with these lines, and stay silent."""
        await self.open()
        await self.chunk(b"".join(lines))
        await self.stay()

    async def drip(self, *pieces: bytes, every: float = 1.0) -> None:
        """Write one piece after the other, for ever."""
        while True:
            for piece in pieces:
                await self.write(piece)
                await asyncio.sleep(every)

    async def stay(self) -> None:
        """Keep the connection open, and write nothing more."""
        await asyncio.Event().wait()

    def reset(self) -> None:
        """End the connection with RST."""
        reset(self._writer)

    def page(self, version: str = LISTED, *objects: Obj, token: str = "") -> Obj:
        return self.kind.page(version, *objects, token=token)

    def truth(self) -> Obj:
        """Return the list that an honest server returns, without a selector that it ignores."""
        return self.server.listing(self.kind, self.query)

    async def honest(self, ignore: str = "") -> None:
        """Answer as an honest server does; `ignore` names a parameter of the query that it ignores."""
        query = {key: value for key, value in self.query.items() if key != ignore}
        await self.server.answer_honestly(self, query)


Attacking: TypeAlias = Callable[[Exchange], Awaitable[None]]
Connecting: TypeAlias = Callable[["Connection"], Awaitable[None]]


class Connection:
    """One new connection to an attack on connections, before any byte of it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tls: Authorities | None
    ) -> None:
        self.reader, self.writer, self.tls = reader, writer, tls

    def reset(self) -> None:
        reset(self.writer)


@dataclass
class _Served:
    """The objects of one kind: as they are, and the changes since the first list."""

    objects: dict[str, Obj]
    changes: list[tuple[str, Obj]]
    version: str = LISTED


class Server:
    """Listens on a free port of 127.0.0.1. All times are those of its loop."""

    def __init__(self, *, tls: Authorities | None = None, host: str = "127.0.0.1") -> None:
        self.kinds = {
            kind.plural: _Served({obj["metadata"]["name"]: obj for obj in originals(kind)}, [])
            for kind in KINDS
        }
        self.requests: dict[str, list[float]] = {kind.plural: [] for kind in KINDS}
        self.lists: dict[str, int] = dict.fromkeys(self.requests, 0)
        """The number of first pages that were asked for."""
        self.connections: list[float] = []
        self.errors: list[BaseException] = []
        """Mistakes of attacks, and requests that no client should send."""
        self._tls = tls
        self._host = host
        self._attack: Attacking | None = None
        self._connect: Connecting | None = None
        self._verbs: tuple[str, ...] = ()
        self._keep = False
        self._attacked: set[str] = set()
        self._numbers: dict[tuple[str, str], int] = {}
        self._changed = asyncio.Event()
        self._expired: set[str] = set()
        self._open: dict[
            asyncio.Task[None], tuple[str, str]
        ] = {}  # By connection: the kind and verb of its request.
        self._writers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://{self._host}:{self.port}"
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._listening.close()
        await asyncio.sleep(0)
        await self._abort(set(self._open))
        await self._listening.wait_closed()

    async def _abort(self, tasks: set[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
            if (writer := self._writers.get(task)) is not None:
                writer.transport.abort()
        if tasks:
            await asyncio.wait(tasks)

    # ---- Attacks.

    def prepare(self, attack: Attacking | None, verbs: tuple[str, ...], *, keep: bool = False) -> None:
        """Attack the kind that the victim does not hold yet. With `keep`, an attacked connection has further
        requests."""
        self._attack, self._verbs, self._keep, self._attacked = (
            attack,
            verbs,
            keep,
            {SECRETS.plural} if attack is not None else set(),
        )

    async def begin(self, connect: Connecting | None = None) -> None:
        """Attack the kind that the victim holds, too; with `connect`, end all connections and attack each new
        one."""
        if self._attack is not None:
            self._attacked.add(PODS.plural)
        self._connect = connect
        if connect is not None:
            await self._abort(set(self._open))
        elif self._attack is None:
            pass
        elif "list" in self._verbs:  # The open watch ends, and only a list can follow.
            self._expired.add(PODS.plural)
            self._wake()
        else:
            await self._abort({task for task, (plural, _) in self._open.items() if plural in self._attacked})

    async def finish(self, *evil: str) -> None:
        """End the attack, change the objects, delete those of the attack, and be honest from now on."""
        self._attack, self._connect, self._attacked = None, None, set()
        self._expired = set()
        await self._abort({task for task, (plural, _) in self._open.items() if plural != CONFIGMAPS.plural})
        for kind in KINDS:
            served = self.kinds[kind.plural]
            for type_, obj in changes(kind, *evil):
                served.changes.append((type_, obj))
                served.version = obj["metadata"]["resourceVersion"]
                if type_ == "DELETED":
                    served.objects.pop(obj["metadata"]["name"], None)
                else:
                    served.objects[obj["metadata"]["name"]] = obj
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def most_in_a_minute(self) -> int:
        """Return the most requests for one attacked kind that came in any minute; connections, if those are
        attacked."""
        counted = (
            [self.connections]
            if self._connect is not None
            else [self.requests[PODS.plural], self.requests[SECRETS.plural]]
        )
        return max(map(most_in_a_minute, counted))

    # ---- HTTP.

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = "", ""
        self._writers[task] = writer
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._open[task], self._writers[task]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(asyncio.get_running_loop().time())
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if self._connect is not None:
                    await self._connect(Connection(reader, writer, self._tls))
                    return
                if self._tls is not None:
                    await writer.start_tls(self._tls.trusted)
                while await self._answered(
                    (await reader.readuntil(b"\r\n\r\n")).decode("latin-1"), reader, writer
                ):
                    pass
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    async def _answered(
        self, request: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer a request; return True if another one may follow."""
        if "\r\ncookie:" in request.lower():
            self.errors.append(AssertionError("a request has cookies"))
        target = urlsplit(request.split(" ", 2)[1])
        query = dict(parse_qsl(target.query))
        kind = next((kind for kind in KINDS if target.path == kind.path), None)
        if kind is None:
            await self._discover(target.path, writer)
            return True
        verb = "watch" if "watch" in query else "list"
        self.requests[kind.plural].append(asyncio.get_running_loop().time())
        self.lists[kind.plural] += (
            verb == "list"
            and "continue" not in query
            and "metadata.name" not in query.get("fieldSelector", "")
        )
        number = self._numbers[kind.plural, verb] = self._numbers.get((kind.plural, verb), -1) + 1
        exchange = Exchange(self, kind, verb, query, number, writer)
        task = asyncio.current_task()
        assert task is not None, "it is awaited"
        self._open[task] = kind.plural, verb
        attacked = self._attack if kind.plural in self._attacked and verb in self._verbs else None
        if attacked is None:
            await self.answer_honestly(exchange, query)
            return verb == "list"
        if self._keep:
            await attacked(exchange)
            return True
        answering, gone = asyncio.ensure_future(attacked(exchange)), asyncio.create_task(reader.read(1))
        try:  # An attack ends when its client has gone.
            await asyncio.wait([answering, gone], return_when=asyncio.FIRST_COMPLETED)
            if (
                answering.done()
                and isinstance(error := answering.exception(), Exception)
                and not isinstance(error, ConnectionError)
            ):
                self.errors.append(error)
        finally:
            for each in (answering, gone):
                each.cancel()
            await asyncio.gather(answering, gone, return_exceptions=True)
        return False

    async def _discover(self, path: str, writer: asyncio.StreamWriter) -> None:
        names = [
            {"name": kind.plural, "singularName": kind.kind.lower(), "kind": kind.kind, "namespaced": True}
            for kind in KINDS
        ]
        found = path == "/api/v1"
        body = encoded({"kind": "APIResourceList", "resources": names} if found else status(404, "NotFound"))
        writer.write(head(200 if found else 404, {"Content-Length": str(len(body))}) + body)
        await writer.drain()

    # ---- Honest answers.

    def listing(self, kind: Kind, query: Mapping[str, str]) -> Obj:
        served = self.kinds[kind.plural]
        return kind.page(
            served.version, *(obj for obj in served.objects.values() if _selected(kind, obj, query))
        )

    async def answer_honestly(self, exchange: Exchange, query: Mapping[str, str]) -> None:
        if exchange.verb == "list":
            await exchange.answer(self.listing(exchange.kind, query))
        else:
            await self._follow(exchange, query)

    async def _follow(self, exchange: Exchange, query: Mapping[str, str]) -> None:
        kind, served = exchange.kind, self.kinds[exchange.kind.plural]
        await exchange.open()
        since = query.get("resourceVersion", "")
        if not since.isdecimal() or (len(since), since) > (len(served.version), served.version):
            await exchange.chunk(event("ERROR", status(410, "Expired")))
            return
        told = int(since)
        while True:
            for type_, obj in served.changes:
                if (version := int(obj["metadata"]["resourceVersion"])) > told:
                    told = version
                    if _selected(kind, obj, query):
                        await exchange.chunk(event(type_, obj))
            if kind.plural in self._expired:
                self._expired.remove(kind.plural)
                await exchange.chunk(event("ERROR", status(410, "Expired")))
                return
            await exchange.chunk(event("BOOKMARK", kind.bookmark(served.version)))
            changed = self._changed
            with suppress(TimeoutError):
                async with asyncio.timeout(BOOKMARKS_EVERY):
                    await changed.wait()


def _selected(kind: Kind, obj: Obj, query: Mapping[str, str]) -> bool:
    """Select as an API server does, by the few terms that the victim sends."""
    metadata = obj["metadata"]
    fields = {"metadata.name": metadata["name"], "metadata.namespace": NAMESPACE, kind.field: kind.reads(obj)}
    values = {"labelSelector": metadata["labels"], "fieldSelector": fields}
    for parameter, found in values.items():
        for term in filter(None, query.get(parameter, "").split(",")):
            name, equal, value = term.partition("!=") if "!=" in term else term.partition("=")
            if (found.get(name) == value) is not (equal == "="):
                return False
    return True


def head(code: int, headers: Headers) -> bytes:
    lines = [
        f"HTTP/1.1 {code} Said",
        *(f"{name}: {value}" for name, value in {"Content-Type": "application/json", **headers}.items()),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def most_in_a_minute(times: list[float]) -> int:
    most = first = 0
    for last, time in enumerate(times):
        while times[first] <= time - MINUTE:
            first += 1
        most = max(most, last - first + 1)
    return most
