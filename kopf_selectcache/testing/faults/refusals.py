"""Faults of responses: the server, or a proxy in front of it, refuses with the texts of real servers; or the
contents of a response or an event are broken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kopf_selectcache.testing.api.request import Answer, Request

from .fault import (
    End,
    Fault,
    Filter,
    Piece,
    WatchFault,
    continue_token,
    dumped,
    each_line,
    line_of,
    once_after,
    parsed,
    start_of,
    texts_of,
)

REASONS: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    408: "Timeout",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    503: "ServiceUnavailable",
    504: "Timeout",
}
VERSION_EXPIRED = "too old resource version: 1 (2)"
CONTINUE_EXPIRED = "The provided continue parameter is too old to display a consistent list result."
START_ANEW = "You can start a new list without the continue parameter."
GO_ON_ANYHOW = (
    "You can start a new list without the continue parameter, or use the continue token in this response to"
    " retrieve the remainder of the results. Continuing with the provided token results in an inconsistent"
    " list - objects that were created, modified, or deleted between the time the first chunk was returned"
    " and now may show up in the list."
)
TOO_MANY = b"Too many requests, please try again later.\n"
NO_WATCH_LIST = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
NO_MATCH = "resourceVersionMatch is forbidden for watch"


@dataclass(frozen=True, slots=True)
class Refuse(Fault):
    """The server refuses with this code. Omitted fields are as real servers fill them.

    So `Refuse(429)` has a plain text and a Retry-After, as priority and fairness sends it; with a reason, a
    message or details it is a Status.
    """

    code: int
    reason: str | None = None
    message: str | None = None
    retry_after: int | None = field(default=None, kw_only=True)
    """The header `Retry-After`, and `details.retryAfterSeconds`."""
    in_header: bool = field(default=True, kw_only=True)
    in_details: bool = field(default=True, kw_only=True)
    details: Mapping[str, Any] | None = field(default=None, kw_only=True)
    continuation: str = field(default="", kw_only=True)
    """A fresh continue token, in the Status of a 410."""
    http: int | None = field(default=None, kw_only=True)
    """The code in HTTP, if it differs from the Status: 200, as some servers do it."""
    body: bytes | None = field(default=None, kw_only=True)
    """The body instead of a Status: the text of a proxy, in HTML or plain."""

    def __post_init__(self) -> None:
        if isinstance(self.code, bool) or not isinstance(self.code, int) or not 300 <= self.code <= 599:
            raise ValueError(
                f"Refuse({self.code!r}) is no refusal: give the code of one, 300 to 599, such as 429; http="
                " is another on the wire"
            )

    def instead(self, request: Request) -> Answer | None:
        del request
        body, after = self.body, self.retry_after
        if self.code == 429 and (body, self.reason, self.message, self.details) == (None, None, None, None):
            body, after = TOO_MANY, 1 if after is None else after
        headers = {"Retry-After": str(after)} if after is not None and self.in_header else {}
        code = self.http if self.http is not None else self.code
        if body is not None:
            return Answer(code, body, "text/plain; charset=utf-8", headers)
        return replace(Answer.of(self.status(), code=code), headers=headers)

    def status(self) -> dict[str, Any]:
        """Return the Status of the response."""
        reason = REASONS.get(self.code, "") if self.reason is None else self.reason
        details = dict(self.details or {})
        if self.retry_after is not None and self.in_details:
            details["retryAfterSeconds"] = self.retry_after
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continuation} if self.continuation else {},
            "status": "Failure",
            "message": reason if self.message is None else self.message,
            "reason": reason,
        }
        return body | ({"details": details} if details else {}) | {"code": self.code}


@dataclass(frozen=True, slots=True)
class _Worded(Fault, ABC):
    """A refusal with a fixed text."""

    def instead(self, request: Request) -> Answer | None:
        return self.refusal().instead(request)

    @abstractmethod
    def refusal(self) -> Refuse:
        """Return the text."""


@dataclass(frozen=True, slots=True)
class Gone(_Worded):
    """410: the version is too old; at the start of a watch, or for a list. `http=200`: as a Status that looks
    like success.
    """

    http: int | None = None

    def refusal(self) -> Refuse:
        return Refuse(410, "Expired", VERSION_EXPIRED, http=self.http)


@dataclass(frozen=True, slots=True)
class ExpiredToken(Fault):
    """410 for pages after the first: the continue token is too old.

    With `fresh`, the response has a token to continue in the present state: an inconsistent list.
    """

    fresh: bool = False

    def concerns(self, request: Request) -> bool:
        return bool(request.query.get("continue"))

    def instead(self, request: Request) -> Answer | None:
        token = continue_token(-1, start_of(request.query["continue"])) if self.fresh else ""
        words = GO_ON_ANYHOW if self.fresh else START_ANEW
        return Refuse(410, "Expired", f"{CONTINUE_EXPIRED} {words}", continuation=token).instead(request)


@dataclass(frozen=True, slots=True)
class LeaderChanged(_Worded):
    """500: etcd has just elected another leader."""

    def refusal(self) -> Refuse:
        return Refuse(500, "", "etcdserver: leader changed")


@dataclass(frozen=True, slots=True)
class TooLargeVersion(_Worded):
    """504: the server has not yet seen the requested version.

    With `before_1_34`, 500: servers up to Kubernetes 1.33 answer that to lists at an exact version.
    """

    asked_version: int = 1_000_000
    current: int = 1
    before_1_34: bool = False

    def refusal(self) -> Refuse:
        if self.before_1_34:
            return Refuse(500, "", "etcdserver: mvcc: required revision is a future revision")
        message = f"Timeout: Too large resource version: {self.asked_version}, current: {self.current}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        return Refuse(504, "Timeout", message, retry_after=1, details={"causes": [cause]})


@dataclass(frozen=True, slots=True)
class BadGateway(_Worded):
    """502: a load balancer finds no server behind it. The body is HTML."""

    def refusal(self) -> Refuse:
        return Refuse(502, body=b"<html><head><title>502 Bad Gateway</title></head></html>\n")


@dataclass(frozen=True, slots=True)
class Unauthorized(_Worded):
    """401: the token is no longer valid, as after a rotation."""

    def refusal(self) -> Refuse:
        return Refuse(401, "Unauthorized", "Unauthorized")


@dataclass(frozen=True, slots=True)
class NotServed(_Worded):
    """404 in plain text: the resource does not exist, as before its definition is created, and after it has
    been deleted.
    """

    def refusal(self) -> Refuse:
        return Refuse(404, body=b"404 page not found\n")


@dataclass(frozen=True, slots=True)
class NoWatchList(Fault):
    """422: an old server, or one with the feature off, does not know sendInitialEvents."""

    before_1_27: bool = False
    """Refuse as servers do that do not know the parameter at all: they complain about
    resourceVersionMatch.
    """

    def concerns(self, request: Request) -> bool:
        return (
            "resourceVersionMatch" in request.query
            if self.before_1_27
            else "sendInitialEvents" in request.query
        )

    def instead(self, request: Request) -> Answer | None:
        name, why = (
            ("resourceVersionMatch", NO_MATCH) if self.before_1_27 else ("sendInitialEvents", NO_WATCH_LIST)
        )
        cause = {"reason": "FieldValueForbidden", "message": f"Forbidden: {why}", "field": name}
        return Refuse(
            422,
            "Invalid",
            f'ListOptions.meta.k8s.io "" is invalid: {name}: Forbidden: {why}',
            details={"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]},
        ).instead(request)


@dataclass(frozen=True, slots=True)
class ErrorEvent(WatchFault):
    """In the stream, after a number of events: an ERROR with this Status, and the end. `refusal` is any
    `Refuse`.
    """

    refusal: Refuse
    after_events: int = field(default=0, kw_only=True)

    def filter(self) -> Filter | None:
        def error_line() -> list[Piece]:
            return [line_of("ERROR", self.refusal.status()), End.END]

        return once_after(self.after_events, error_line)


# ---- Contents of responses and events: broken JSON, wrong types, missing or oversized parts.

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Spoiled(Fault, ABC):
    """Changes objects wherever they are sent: as a response, in a list, in an event."""

    names: Collection[str] | None = field(default=None, kw_only=True)
    """The names of the affected objects; None for all."""

    def __post_init__(self) -> None:
        if self.names is not None:
            object.__setattr__(self, "names", texts_of("names", self.names))  # The dataclass is frozen.

    @abstractmethod
    def spoiled(self, obj: Object) -> Object:
        """Return the object that is sent instead."""

    def spoiled_list(self, body: Object) -> Object:
        """Change the fields of the list itself."""
        return body

    def answered(self, request: Request, answer: Answer) -> Answer:
        del request
        body = parsed(answer.body) if answer.code in (200, 201) else None
        if body is None:
            return answer
        if isinstance(body.get("items"), list):
            changed = self.spoiled_list(body | {"items": [self._chosen(item) for item in body["items"]]})
        else:
            changed = self._chosen(body)
        return answer if changed == body else replace(answer, body=dumped(changed) + b"\n")

    def filter(self) -> Filter | None:
        def changed(line: bytes) -> list[Piece]:
            event = parsed(line)
            if event is None or event.get("type") not in ("ADDED", "MODIFIED", "DELETED"):
                return [line]
            obj = self._chosen(event["object"])
            return [line if obj == event["object"] else line_of(event["type"], obj)]

        return each_line(changed)

    def _chosen(self, obj: Object) -> Object:
        chosen = self.names is None or (obj.get("metadata") or {}).get("name") in self.names
        return self.spoiled(obj) if chosen else obj


@dataclass(frozen=True, slots=True)
class NoMetadata(_Spoiled):
    """Objects have no metadata."""

    def spoiled(self, obj: Object) -> Object:
        return {key: value for key, value in obj.items() if key != "metadata"}


@dataclass(frozen=True, slots=True)
class EmptyVersion(_Spoiled):
    """Objects and lists have an empty resourceVersion."""

    def spoiled(self, obj: Object) -> Object:
        return _with_metadata(obj, {"resourceVersion": ""})

    def spoiled_list(self, body: Object) -> Object:
        return _with_metadata(body, {"resourceVersion": ""})


@dataclass(frozen=True, slots=True)
class WrongKind(_Spoiled):
    """Objects, and lists of them, are of another kind."""

    kind: str = "Surprise"
    api_version: str = "example.com/v1"

    def spoiled(self, obj: Object) -> Object:
        return obj | {"kind": self.kind, "apiVersion": self.api_version}

    def spoiled_list(self, body: Object) -> Object:
        return body | {"kind": f"{self.kind}List", "apiVersion": self.api_version}


@dataclass(frozen=True, slots=True)
class BigObjects(_Spoiled):
    """Objects and the lines of their events are bigger than clients expect: 2 MiB by default."""

    size: int = 2 * 1024 * 1024

    def spoiled(self, obj: Object) -> Object:
        annotations = {**(obj["metadata"].get("annotations") or {}), "example.com/big": "x" * self.size}
        return _with_metadata(obj, {"annotations": annotations})


def nested(levels: int) -> bytes:
    """Return a JSON value of this depth."""
    return b'{"a":' * levels + b"1" + b"}" * levels


@dataclass(frozen=True, slots=True)
class Inserted(_Spoiled):
    """Objects have these bytes as the value of their key `inserted`: by default, nested too deeply for any
    decoder.

    `b"1e999"` is a number out of range.
    """

    value: bytes = nested(200_000)

    def spoiled(self, obj: Object) -> Object:
        return obj | {"inserted": _PLACE}

    def answered(self, request: Request, answer: Answer) -> Answer:
        answer = _Spoiled.answered(self, request, answer)
        return replace(answer, body=self._in_place(answer.body))

    def filter(self) -> Filter | None:
        change = _Spoiled.filter(self)
        assert change is not None, "events are changed, too"

        def inserted(pieces: list[Piece], *, released: bool) -> list[Piece]:
            return [
                self._in_place(piece) if isinstance(piece, bytes) else piece
                for piece in change(pieces, released=released)
            ]

        return inserted

    def _in_place(self, data: bytes) -> bytes:
        return data.replace(dumped(_PLACE), self.value)


_PLACE = "<here>"


@dataclass(frozen=True, slots=True)
class MalformedJSON(Fault):
    """Every response is half its JSON; of a watch, the one event after a number of others."""

    after_events: int = 0

    def answered(self, request: Request, answer: Answer) -> Answer:
        del request
        return replace(answer, body=answer.body[: len(answer.body) // 2])

    def filter(self) -> Filter | None:
        met = 0

        def broken(line: bytes) -> list[Piece]:
            nonlocal met
            met += 1
            return [line[: len(line) // 2] + b"\n"] if met == self.after_events + 1 else [line]

        return each_line(broken)


@dataclass(frozen=True, slots=True)
class UnknownEventType(WatchFault):
    """Events of an unknown type are sent instead of those of this type."""

    type: str = "SURPRISED"
    instead_of: str = "MODIFIED"

    def filter(self) -> Filter | None:
        def renamed(line: bytes) -> list[Piece]:
            event = parsed(line)
            if event is None or event.get("type") != self.instead_of:
                return [line]
            return [line_of(self.type, event["object"])]

        return each_line(renamed)


@dataclass(frozen=True, slots=True)
class TableInstead(Fault):
    """A Table is sent, as kubectl asks for it, instead of objects: of lists, objects and events."""

    def asked(self, request: Request) -> Request:
        return replace(
            request, headers={**request.headers, "accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        )


@dataclass(frozen=True, slots=True)
class EmptyPage(Fault):
    """A page has no items, and a token to continue from where the page should have begun."""

    def concerns(self, request: Request) -> bool:
        return "limit" in request.query or "continue" in request.query

    def answered(self, request: Request, answer: Answer) -> Answer:
        body = parsed(answer.body) if answer.code == 200 else None
        if body is None or "items" not in body:
            return answer
        token = request.query.get("continue") or continue_token(
            int(body["metadata"]["resourceVersion"]), "\0"
        )
        return replace(answer, body=dumped(_with_metadata(body, {"continue": token}) | {"items": []}) + b"\n")


def _with_metadata(obj: Object, changes: Mapping[str, Any]) -> Object:
    return obj | {"metadata": {**(obj.get("metadata") or {}), **changes}}
