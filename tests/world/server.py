"""A Kubernetes API in front of a history. Nothing happens by itself: the world answers each request, and has
each stream send its next line. Knows no clock, no sockets and no cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .history import START, History, Key, Labels, State, parse

KINDS = {"pods": "Pod", "namespaces": "Namespace"}
METADATA = ("meta.k8s.io/v1", "PartialObjectMetadata")
FILLING = "x" * 40_000
"""What makes an object big."""
MOST_OF_A_PAGE = 2
"""Objects of a page, so that lists have several."""


class Refusal(Exception):
    """The server's answer to a request that it does not execute."""

    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(code, reason, message)
        self.code, self.reason, self.message = code, reason, message


class Lost(Exception):
    """The connection broke before an answer came. `arrived` is False if the request never reached it."""

    def __init__(self, *, arrived: bool) -> None:
        super().__init__(arrived)
        self.arrived = arrived


@dataclass(eq=False)
class Request:
    """A request that waits for its answer."""

    verb: str
    path: str
    query: Mapping[str, str]
    reply: Callable[[Any], object]
    """Takes an answer: bytes, a Stream, or an error."""
    body: Mapping[str, Any] = field(default_factory=dict)
    metadata_only: bool = False
    caller: str = ""
    answer: Any = None
    """The answer, once the server has executed it."""
    number: int = 0

    @property
    def place(self) -> tuple[str, Key]:
        """The plural of the kind, the namespace and the name; empty where the path has none."""
        parts = self.path.removeprefix("/api/v1").strip("/").split("/")
        namespace = parts[1] if parts[0] == "namespaces" and len(parts) > 2 else ""
        parts = parts[2:] if namespace else parts
        return parts[0], (namespace, parts[1] if len(parts) > 1 else "")

    def selects(self, key: Key, state: State | None) -> bool:
        if state is None or (self.place[0] == "namespaces") != (not key[0]):
            return False
        fields = {"metadata.name": key[1], "metadata.namespace": key[0]}
        return (
            self.place[1][0] in ("", key[0])
            and parse(self.query.get("labelSelector", ""))(dict(state.labels))
            and parse(self.query.get("fieldSelector", ""))(fields)
        )

    def __str__(self) -> str:
        words = {name: value for name, value in self.query.items() if name != "allowWatchBookmarks"}
        kind = " (metadata)" if self.metadata_only else ""
        return f"#{self.number} {self.verb} {self.path} {words or ''}{kind}"


@dataclass(eq=False)
class Stream:
    """An open watch. It delivers at its own pace: `cursor` is the version up to which it has sent."""

    request: Request
    cursor: int
    history: History
    send: Callable[[bytes | Exception | None], object] = lambda _: None
    """Takes a chunk, an error, or None for the end."""
    last: bytes = b""
    initial: list[tuple[Key, State]] = field(default_factory=list)
    """The objects that it begins with, still to be sent."""
    is_initial: bool = False
    is_open: bool = True
    opened: int = 0
    """The version of the server when it was opened."""
    is_vague: bool = False
    """True if deletions have the version of the deleted object, as those of some servers."""

    def __post_init__(self) -> None:
        self.opened = self.history.version

    @property
    def is_of_namespaces(self) -> bool:
        return self.request.place == ("namespaces", ("", ""))

    @property
    def has_caught_up(self) -> bool:
        """True once it has sent all that happened before it was opened. From then on it is live."""
        return not self.is_initial and self.cursor >= self.opened

    def pending(self) -> tuple[int, bytes] | None:
        """Return the next event and its version; None if there is none."""
        short = self.request.metadata_only
        for write in self.history.writes[max(0, self.cursor - START) :]:
            was = self.request.selects(write.key, write.before)
            if self.request.selects(write.key, write.after):
                return write.version, _event(
                    "MODIFIED" if was else "ADDED", write.key, write.after, metadata_only=short
                )
            if was:
                version = None if self.is_vague and write.after is None else write.version
                return write.version, _event("DELETED", write.key, write.before, version, metadata_only=short)
        return None

    def advance(self) -> str:
        """Send the next line: an event, or a bookmark if there is none; return what it was."""
        if self.initial:
            key, state = self.initial.pop(0)
            self._send(_event("ADDED", key, state, metadata_only=self.request.metadata_only))
            return f"initial {'/'.join(key)}"
        if self.is_initial:
            self.is_initial = False
            return self.bookmark(notes={"k8s.io/initial-events-end": "true"})
        if (found := self.pending()) is None:
            if self.cursor > self.history.version:
                return "nothing, since the server was restored"
            self.cursor = self.history.version
            return self.bookmark()
        self.cursor, line = found
        self._send(line)
        return f"event of version {self.cursor}"

    def bookmark(self, notes: Mapping[str, str] | None = None) -> str:
        metadata = {"resourceVersion": str(self.cursor), "annotations": notes or {}}
        kind = KINDS[self.request.place[0]]
        version = "v1"
        if self.request.metadata_only:
            version, kind = METADATA
        self.send(
            _line({"type": "BOOKMARK", "object": {"apiVersion": version, "kind": kind, "metadata": metadata}})
        )
        return f"bookmark of version {self.cursor}"

    def replay(self) -> None:
        """Send the last event again."""
        if self.last:
            self.send(self.last)

    def end(self, how: str) -> None:
        """End it: cleanly, by a reset, in the midst of a line, with a damaged line, or as expired."""
        self.is_open = False
        match how:
            case "expired":
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                self.send(_line({"type": "ERROR", "object": status}))
            case "torn":
                self.send((self.last or b'{"type"')[:20])
            case "damaged":
                self.send(b'{"type": "MODIFIED", "object": {{{}\n')
            case "reset":
                return void(self.send(Lost(arrived=True)))
        self.send(None)
        return None

    def _send(self, line: bytes) -> None:
        self.last = line
        self.send(line)

    def __str__(self) -> str:
        return f"stream {self.request} at {self.cursor}"


def void(_: object) -> None:
    """Return nothing."""


@dataclass
class Server:
    """The API: what waits for an answer, what is open, and what it answers."""

    history: History = field(default_factory=History)
    compacted: int = 0
    """Older versions are expired."""
    requests: list[Request] = field(default_factory=list)
    arriving: list[Request] = field(default_factory=list)
    """The requests that have come since `arrive`: in which order is chance."""
    streams: list[Stream] = field(default_factory=list)
    numbers: int = 0
    is_vague: bool = False
    is_served: bool = True
    """False while nobody serves pods."""

    def ask(self, verb: str, path: str, query: Mapping[str, str], reply: Any, **more: Any) -> Request:
        request = Request(verb, path, dict(query), reply, **more)
        self.arriving.append(request)
        return request

    def arrive(self) -> None:
        """Let what was asked together arrive in an order that is always the same."""
        for request in sorted(self.arriving, key=lambda each: (each.path, str(each.query), each.verb)):
            self.numbers += 1
            request.number = self.numbers
            self.requests.append(request)
        self.arriving.clear()

    def execute(self, request: Request, version: int | None = None) -> None:
        """Execute a request, as of an older version if it allows that; its answer waits."""
        try:
            request.answer = self._answer(request, version)
        except Refusal as refusal:
            request.answer = refusal

    def reply(self, request: Request, answer: Any = None) -> None:
        """Give the answer, or another one, such as an error."""
        if request in self.requests:
            self.requests.remove(request)
        answer = request.answer if answer is None else answer
        if isinstance(answer, Stream):
            answer.is_vague = self.is_vague
            self.streams.append(answer)
        request.reply(answer)

    def restore(self, version: int) -> None:
        """Return to the state of a version; nobody gets an answer, or is told."""
        self.arrive()
        for request in [*self.requests]:
            self.reply(request, Lost(arrived=request.answer is not None))
        for stream in [*self.streams]:
            stream.end("reset")
        self.history.restore(version)
        self.compacted = version

    def forget(self, request: Request) -> None:
        """The client waits for it no longer."""
        for waiting in (self.requests, self.arriving):
            if request in waiting:
                waiting.remove(request)

    def close(self, stream: Stream) -> None:
        stream.is_open = False
        if stream in self.streams:
            self.streams.remove(stream)

    # ---- Answers.

    def _answer(self, request: Request, version: int | None) -> Any:
        plural, (namespace, name) = request.place
        if request.path.startswith("/apis/authorization"):
            return _line({**request.body, "status": {"allowed": True}})
        if request.path == "/api/v1":
            listed = [
                {"name": each, "singularName": kind.lower(), "kind": kind, "namespaced": each == "pods"}
                for each, kind in KINDS.items()
                if self.is_served or each != "pods"
            ]
            return _line({"kind": "APIResourceList", "groupVersion": "v1", "resources": listed})
        if plural not in KINDS or not (self.is_served or plural == "namespaces"):
            raise Refusal(404, "", "404 page not found")
        match request.verb:
            case "watch":
                return self._watch(request)
            case "get" if name:
                state = self.history.now((namespace, name))
                if state is None:
                    raise Refusal(404, "NotFound", f'{plural} "{name}" not found')
                return _line(as_json((namespace, name), state, metadata_only=request.metadata_only))
            case "get":
                return self._list(request, version)
        return self._write(request, namespace, name or request.body["metadata"]["name"])

    def _watch(self, request: Request) -> Stream:
        asked = request.query.get("resourceVersion", "")
        is_initial = "sendInitialEvents" in request.query
        if is_initial or not asked:
            stream = Stream(request, self.history.version, self.history, is_initial=is_initial)
            now = ((key, self.history.now(key)) for key in sorted(self.history.states))
            stream.initial = [(key, state) for key, state in now if state and request.selects(key, state)]
            return stream
        if int(asked) < self.compacted:
            raise Refusal(410, "Expired", "too old resource version")
        return Stream(request, int(asked), self.history)

    def _list(self, request: Request, version: int | None) -> bytes:
        query, offset, least = request.query, 0, self.history.version
        asked = int(query.get("resourceVersion") or -1)
        if token := query.get("continue"):
            least, offset = map(int, token.split(":"))
            version = least
        elif query.get("resourceVersionMatch") == "Exact":
            version = least = asked
        elif asked >= 0:
            least = asked
        version = self.history.version if version is None else max(version, least)
        if max(version, asked) > self.history.version:
            raise Refusal(504, "Timeout", "Too large resource version")
        if version < self.compacted:
            raise Refusal(410, "Expired", "too old resource version")
        found = [
            (key, state)
            for key in sorted(self.history.states)
            if (state := self.history.at(key, version)) and request.selects(key, state)
        ]
        end = offset + MOST_OF_A_PAGE if "limit" in query else len(found)
        rest = f"{version}:{end}" if end < len(found) else ""
        kind = "PartialObjectMetadata" if request.metadata_only else KINDS[request.place[0]]
        items = [as_json(*each, metadata_only=request.metadata_only) for each in found[offset:end]]
        return _line(
            {
                "apiVersion": "meta.k8s.io/v1" if request.metadata_only else "v1",
                "kind": f"{kind}List",
                "metadata": {"resourceVersion": str(version), "continue": rest},
                "items": items,
            }
        )

    def _write(self, request: Request, namespace: str, name: str) -> bytes:
        key, body = (namespace, name), request.body
        before = self.history.now(key)
        if (request.verb == "post") != (before is None):
            raise Refusal(409, "AlreadyExists") if before else Refusal(404, "NotFound", f'"{name}" not found')
        if self.history.now(("", namespace)) is None:
            raise Refusal(404, "NotFound", f'namespaces "{namespace}" not found')
        metadata = body.get("metadata") or body.get("preconditions") or {}
        version, uid = metadata.get("resourceVersion"), metadata.get("uid")
        if before and (version not in (None, "", str(before.version)) or uid not in (None, "", before.uid)):
            raise Refusal(409, "Conflict", "the object has been modified")
        if request.verb == "delete":
            self.history.write(key, None, writer=request.caller)
            details = {"name": name, "kind": "pods", "uid": before.uid if before else ""}
            return _line({"kind": "Status", "status": "Success", "details": details})
        given: dict[str, str | None] = metadata.get("labels") or {}
        value = (body.get("spec") or {}).get("value")
        if request.verb == "patch" and before:
            given = {**dict(before.labels), **given}
            value = before.value if value is None else value
        labels = as_labels({label: text for label, text in given.items() if text is not None})
        form = before.form if request.verb == "patch" and before else ""
        self.history.write(key, labels, value or 0, writer=request.caller, form=form)
        after = self.history.now(key)
        assert after is not None, "it was written"
        return _line(as_json(key, after))


def as_labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def as_json(
    key: Key, state: State, *, version: int | None = None, metadata_only: bool = False
) -> dict[str, Any]:
    """Return an object as servers write it."""
    metadata = {
        **({"namespace": key[0]} if key[0] else {}),
        "name": key[1],
        "uid": state.uid,
        "resourceVersion": str(version or state.version),
        "labels": dict(state.labels),
    }
    if metadata_only:
        return {"apiVersion": METADATA[0], "kind": METADATA[1], "metadata": metadata}
    kind = "Pod" if key[0] else "Namespace"
    spec: dict[str, Any] = {"value": state.value}
    if state.form == "big":
        spec["filling"] = FILLING
    if state.form == "broken":
        spec["broken"] = _BROKEN
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def _event(
    type_: str, key: Key, state: State | None, version: int | None = None, *, metadata_only: bool = False
) -> bytes:
    assert state is not None, "an event has an object"
    obj = as_json(key, state, version=version, metadata_only=metadata_only)
    return _line({"type": type_, "object": obj})


_BROKEN = "in its place are bytes that are not UTF-8"


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode().replace(f'"{_BROKEN}"'.encode(), b'{"\xff":1}') + b"\n"
