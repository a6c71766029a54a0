"""An API server in memory, as a transport: ConfigMaps with a history, lists in pages, watches that the test
delays, ends and refuses, writes, and requests that take time. It draws nothing by chance, and has no sockets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import JSON
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.grammar import parse_labels

Key = tuple[str, str]
Labels = Mapping[str, str]
PLURAL = "configmaps"
FILLING = "x" * 40_000
"""It makes objects so large that a limit of 64Ki holds one of them."""
REQUEST_TIMEOUT = 60.0
"""Seconds after which a silent request ends."""


class Written(NamedTuple):
    """One object after one write."""

    version: int
    key: Key
    uid: str
    labels: Labels | None
    """None if it does not exist."""

    def obj(self, *, version: int = 0, whole: bool = True) -> dict[str, Any]:
        """Return the object, or its metadata."""
        metadata = {
            "namespace": self.key[0],
            "name": self.key[1],
            "uid": self.uid,
            "resourceVersion": str(version or self.version),
            "labels": self.labels or {},
        }
        kind = ("v1", "ConfigMap") if whole else ("meta.k8s.io/v1", "PartialObjectMetadata")
        obj: dict[str, Any] = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata}
        return obj | {"data": {"written": str(self.version), "filling": FILLING}} if whole else obj


NOTHING = Written(0, ("", ""), "", None)


@dataclass
class Asked:
    """A request for objects."""

    verb: str
    namespace: str
    query: Mapping[str, str]

    @property
    def selector(self) -> str:
        return self.query.get("labelSelector", "")

    def selects(self, written: Written) -> bool:
        if written.labels is None or self.namespace not in ("", written.key[0]):
            return False
        name = self.query.get("fieldSelector", "").removeprefix("metadata.name=")
        labels = written.labels
        return name in ("", written.key[1]) and all(
            each.matches(labels) for each in parse_labels(self.selector)
        )


@dataclass(eq=False)
class Fault:
    """A failure of some requests."""

    what: int | str
    """A code to refuse with, `lost` for a broken connection, `silent`, or `held` until it is released."""
    where: Callable[[Asked], bool]
    times: int = 1_000_000
    released: asyncio.Event = field(default_factory=asyncio.Event)
    hits: int = 0


@dataclass(eq=False)
class Watch:
    """One open watch."""

    asked: Asked
    cursor: int
    """The version up to which it has sent."""
    chunks: deque[bytes] = field(default_factory=deque)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    is_held: bool = False
    """True while it sends nothing."""
    ended: str = ""
    """How it has ended: `end` or `lost`."""

    def send(self, type_: str, obj: Mapping[str, Any]) -> None:
        self.chunks.append(msgspec.json.encode({"type": type_, "object": obj}) + b"\n")
        self.moved.set()

    def bookmark(self, *, is_initial: bool = False) -> None:
        notes = {"annotations": {"k8s.io/initial-events-end": "true"}} if is_initial else {}
        metadata = {"resourceVersion": str(self.cursor), **notes}
        self.send("BOOKMARK", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    def end(self, how: str) -> None:
        self.ended = how
        self.moved.set()

    async def lines(self) -> AsyncIterator[bytes]:
        while True:
            while self.chunks:
                yield self.chunks.popleft()
            if self.ended == "lost":
                raise Unreachable("the connection was lost")
            if self.ended:
                return
            self.moved.clear()
            await self.moved.wait()


class ModelServer:
    """The server, and what happens to requests."""

    def __init__(self) -> None:
        self.version = 100
        self.compacted = 0
        """Older versions can be neither listed nor watched."""
        self.history: dict[Key, list[Written]] = {}
        self.log: list[tuple[Written, Written]] = []
        self.faults: list[Fault] = []
        self.watches: list[Watch] = []
        """The open ones."""
        self.latency = 0.0
        """Seconds that each request takes."""
        self.is_served = True
        """False while the cluster does not serve the kind."""
        self.held: set[str] = set()
        """The label selectors whose watches send nothing."""
        self.asked: list[Asked] = []
        self.own: dict[Key, int] = {}
        """For each object, the index of the state that the last own write has led to."""
        self._uids = 0

    # ---- What it has.

    def at(self, key: Key, version: int) -> Written:
        written = [each for each in self.history.get(key, ()) if each.version <= version]
        return written[-1] if written else NOTHING

    def now(self, key: Key) -> Written:
        return self.history[key][-1] if key in self.history else NOTHING

    def write(self, key: Key, labels: Labels | None) -> Written | None:
        """Create, change or delete an object; return None if there is nothing to delete."""
        before = self.now(key)
        if before.labels is None and labels is None:
            return None
        self.version += 1
        uid = before.uid
        if before.labels is None:
            self._uids += 1
            uid = f"uid-{self._uids}"
        after = Written(self.version, key, uid, labels)
        self.history.setdefault(key, [NOTHING]).append(after)
        self.log.append((before, after))
        for watch in self.watches:
            self.advance(watch)
        return after

    def expire(self) -> None:
        """Compact all versions but the newest."""
        self.compacted = self.version

    # ---- Watches.

    def advance(self, watch: Watch) -> None:
        """Send all that has been written since."""
        if watch.asked.selector in self.held or watch.is_held or watch.ended:
            return
        for before, after in self.log:
            if after.version <= watch.cursor:
                continue
            was, is_ = watch.asked.selects(before), watch.asked.selects(after)
            if is_:
                watch.send("MODIFIED" if was else "ADDED", after.obj())
            elif was:
                watch.send("DELETED", before.obj(version=after.version))
        watch.cursor = self.version

    def release(self) -> None:
        """Let all watches go on."""
        self.held.clear()
        for watch in self.watches:
            watch.is_held = False
            self.advance(watch)

    def bookmark(self) -> None:
        """Send a bookmark to all watches that have sent everything."""
        for watch in self.watches:
            self.advance(watch)
            if watch.cursor == self.version:
                watch.bookmark()

    # ---- The transport.

    async def get(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        accept: str = JSON,
        most: int | None = None,  # The signature of Transport.
    ) -> bytes:
        await self._arrive()
        if path == "/api/v1":
            kind = {"name": PLURAL, "singularName": "configmap", "kind": "ConfigMap", "namespaced": True}
            return msgspec.json.encode({"resources": [kind] if self.is_served else []})
        namespace, name = _place(path)
        asked = Asked("get" if name else "list", namespace, query)
        await self._fail(asked)
        whole = "PartialObjectMetadata" not in accept
        if name:
            found = self.now((namespace, name))
            if found.labels is None:
                raise Refused(Refusal(404, "NotFound", f'configmaps "{name}" not found'))
            return msgspec.json.encode(found.obj(whole=whole))
        return msgspec.json.encode(self._page(asked, whole=whole))

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], **_: object
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        await self._arrive()
        asked = Asked("watch", _place(path)[0], query)
        await self._fail(asked)
        is_initial = "sendInitialEvents" in query
        cursor = self.version if is_initial else int(query["resourceVersion"])
        if cursor < self.compacted:
            raise Refused(Refusal(410, "Expired"))
        watch = Watch(asked, cursor)
        if is_initial:
            for key in sorted(self.history):
                if asked.selects(found := self.now(key)):
                    watch.send("ADDED", found.obj())
            watch.bookmark(is_initial=True)
        self.watches.append(watch)
        self.advance(watch)
        try:
            yield watch.lines()
        finally:
            self.watches.remove(watch)

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        content_type: str = JSON,
        warned: object = None,  # The signature of WritingTransport.
    ) -> bytes:
        await self._arrive()
        if path.startswith("/apis/authorization"):
            review: dict[str, Any] = msgspec.json.decode(body)
            return msgspec.json.encode(review | {"status": {"allowed": True}})
        given = msgspec.json.decode(body) if body else {}
        namespace, name = _place(path)
        name = name or given["metadata"]["name"]
        await self._fail(Asked(method.lower(), namespace, query))
        before = self.now((namespace, name))
        if (method == "POST") != (before.labels is None):
            code, reason = (409, "AlreadyExists") if method == "POST" else (404, "NotFound")
            raise Refused(Refusal(code, reason))
        if method == "DELETE":
            self.write((namespace, name), None)
            self._note((namespace, name))
            details = {"name": name, "kind": PLURAL, "uid": before.uid}
            return msgspec.json.encode({"kind": "Status", "status": "Success", "details": details})
        labels = {**(before.labels or {}), **given["metadata"].get("labels", {})}
        written = self.write(
            (namespace, name), {label: value for label, value in labels.items() if value is not None}
        )
        assert written is not None, "there is an object"
        self._note((namespace, name))
        return msgspec.json.encode(written.obj())

    def _note(self, key: Key) -> None:
        self.own[key] = len(self.history[key]) - 1

    async def _arrive(self) -> None:
        await asyncio.sleep(self.latency)

    async def _fail(self, asked: Asked) -> None:
        self.asked.append(asked)
        if not self.is_served:
            raise Refused(Refusal(404, "", "404 page not found"))
        fault = next((each for each in self.faults if each.times > 0 and each.where(asked)), None)
        if fault is None:
            return
        fault.times, fault.hits = fault.times - 1, fault.hits + 1
        match fault.what:
            case int(code):
                raise Refused(Refusal(code, "Expired" if code == 410 else ""))
            case "held":
                await fault.released.wait()
            case "silent":
                await asyncio.sleep(REQUEST_TIMEOUT)
                raise Unreachable("the server was silent")
            case _:
                raise Unreachable("the connection was lost")

    def _page(self, asked: Asked, *, whole: bool) -> dict[str, Any]:
        query, offset, version = asked.query, 0, self.version
        if token := query.get("continue", ""):
            version, offset = map(int, token.split(":"))
        elif query.get("resourceVersionMatch") == "Exact":
            version = int(query["resourceVersion"])
        if max(version, int(query.get("resourceVersion", 0))) > self.version:
            raise Refused(Refusal(504, "Timeout", "Too large resource version"))
        if version < self.compacted:
            raise Refused(Refusal(410, "Expired"))
        selected = [each for key in sorted(self.history) if asked.selects(each := self.at(key, version))]
        end = offset + int(query.get("limit", 1000))
        rest = f"{version}:{end}" if end < len(selected) else ""
        kind = ("v1", "ConfigMapList") if whole else ("meta.k8s.io/v1", "PartialObjectMetadataList")
        return {
            "apiVersion": kind[0],
            "kind": kind[1],
            "metadata": {"resourceVersion": str(version), "continue": rest},
            "items": [each.obj(whole=whole) for each in selected[offset:end]],
        }


def _place(path: str) -> Key:
    """Return the namespace and the name of a path."""
    parts = path.removeprefix("/api/v1/").split("/")
    namespace = parts.pop(1) if parts[0] == "namespaces" else ""
    if namespace:
        parts.pop(0)
    return namespace, parts[1] if len(parts) > 1 else ""
