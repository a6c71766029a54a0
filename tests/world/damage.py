"""What broken servers, and proxies in front of them, make of an answer or a stream. Each is a step of a
world: `spoil 0 cut` answers a list, `mumble 1 table` sends a line, `refuse 0 429` refuses a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .history import START, State, Write
from .server import KINDS, METADATA, Refusal, Request, Server, Stream, as_json

REASONS = {
    "403": "Forbidden",
    "410": "Expired",
    "429": "TooManyRequests",
    "500": "InternalError",
    "503": "ServiceUnavailable",
    "504": "Timeout",
}
"""The refusals that a server may take back at any time."""
ERRORS = ("410", "429", "500", "503", "504")
"""Those with which a stream may end."""
STATUS = {"kind": "Status", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410}

PAGES = ("cut", "table", "status", "stale", "empty", "again", "circle", "other", "whole")
"""What becomes of a list: half of it, a table, a status that says 200, an older state than was asked for, a
page without items, the same page again, the first page again, a page of now, or all pages in one."""
NONSENSE = ("unknown", "bare", "table", "unversioned", "foreign")
LINES = (*NONSENSE, "early", "unmarked", "shuffled", "outdated", "recreated")
"""What a stream sends or does: an event of an unknown type, without metadata, of a table, a bookmark without
a version, with one of another sort, one before its initial state is complete, no bookmark at the end of that,
or its objects in another order; a deletion with the version of the object, or an object that was created
again as one that was changed."""


def spoiled(server: Server, request: Request, how: str) -> bytes | Refusal | None:
    """Return a damaged answer to a list; None if it cannot be damaged like this."""
    token = request.query.get("continue", "")
    if request.verb != "get" or request.place[1][1] or request.path == "/api/v1":
        return None
    if how in ("again", "circle", "other") and not token:
        return None
    if how == "stale" and (token or request.query.get("resourceVersionMatch") != "NotOlderThan"):
        return None
    asked = Request(request.verb, request.path, request.query, request.reply)
    asked.metadata_only = request.metadata_only
    match how:
        case "whole":
            asked.query = {name: value for name, value in request.query.items() if name != "limit"}
        case "stale":
            asked.query = {**request.query, "resourceVersion": "0"}
        case "other":
            asked.query = {**request.query, "continue": f"{server.history.version}:{token.split(':')[1]}"}
    server.execute(asked, max(server.compacted, server.history.version - 3) if how == "stale" else None)
    if isinstance(asked.answer, Refusal):
        return asked.answer
    try:
        page: dict[str, Any] = json.loads(asked.answer)
    except UnicodeDecodeError:  # It has a broken object.
        return None
    match how:
        case "cut":
            return bytes(asked.answer[: len(asked.answer) // 2])
        case "table":
            version, metadata = "meta.k8s.io/v1", page["metadata"]
            page = {"kind": "Table", "apiVersion": version, "metadata": metadata, "rows": []}
        case "status":
            page = STATUS
        case "empty":
            page["metadata"]["continue"] = f"{page['metadata']['resourceVersion']}:0"
            page["items"] = []
        case "again":
            page["metadata"]["continue"] = token
        case "circle":
            page["metadata"]["continue"] = f"{token.split(':')[0]}:0"
    return json.dumps(page).encode()


def mumble(stream: Stream, how: str) -> str | None:
    """Let a stream send what it should not; return None if it cannot."""
    if (how in ("early", "unmarked", "shuffled")) != stream.is_initial:
        return None
    if how == "unmarked":
        while stream.initial:
            stream.advance()
        stream.is_initial = False
    elif how == "shuffled":
        stream.initial.reverse()
    elif how == "early":
        stream.bookmark()
    elif how not in NONSENSE:
        return how if _misreport(stream, how) else None
    else:
        stream.send(json.dumps(_line(stream, how)).encode() + b"\n")
    return how


def upcoming(stream: Stream) -> list[tuple[Write, bool]]:
    """Return the writes that a stream has still to send, and whether it selects the object then."""
    return [
        (write, stream.request.selects(write.key, write.after))
        for write in stream.history.writes[max(0, stream.cursor - START) :]
        if any(stream.request.selects(write.key, each) for each in (write.before, write.after))
    ]


def _misreport(stream: Stream, how: str) -> bool:
    """Let a stream report what it has next, a deletion, in another way."""
    writes = upcoming(stream)
    if not writes or writes[0][1] or any(write.form == "broken" for write in _states(writes[0][0])):
        return False
    (write, _), short = writes[0], stream.request.metadata_only
    assert write.before is not None, "it was selected"
    type_, state = "DELETED", write.before
    if how == "recreated":
        if len(writes) == 1 or writes[1][0].key != write.key or writes[1][0].after is None:
            return False
        write, type_, state = writes[1][0], "MODIFIED", writes[1][0].after
    stream.cursor = write.version
    line = {"type": type_, "object": as_json(write.key, state, metadata_only=short)}
    stream.send(json.dumps(line).encode() + b"\n")
    return True


def _states(write: Write) -> list[State]:
    return [state for state in (write.before, write.after) if state is not None]


def _line(stream: Stream, how: str) -> dict[str, Any]:
    version, kind = METADATA if stream.request.metadata_only else ("v1", KINDS[stream.request.place[0]])
    empty: dict[str, Any] = {"apiVersion": version, "kind": kind}
    lines: dict[str, Callable[[], dict[str, Any]]] = {
        "unknown": lambda: {"type": "SYNCED", "object": {}},
        "bare": lambda: {"type": "ADDED", "object": empty},
        "table": lambda: {"type": "ADDED", "object": {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}},
        "unversioned": lambda: {"type": "BOOKMARK", "object": {**empty, "metadata": {"resourceVersion": ""}}},
        "foreign": lambda: {
            "type": "BOOKMARK",
            "object": {**empty, "metadata": {"resourceVersion": f"x{stream.cursor}"}},
        },
    }
    return lines[how]()


def fail(stream: Stream, code: str) -> None:
    """End a stream with an error."""
    details = {"retryAfterSeconds": 3} if code == "429" else {}
    status = {"kind": "Status", "code": int(code), "reason": REASONS[code], "details": details}
    stream.send(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
    stream.end("clean")
