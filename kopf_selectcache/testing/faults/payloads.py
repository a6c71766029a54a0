"""Faults of the contents of responses and events: broken JSON, wrong types, missing or oversized parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kopf_selectcache.testing.api.request import Answer, Request

from .fault import (
    Fault,
    Filter,
    Piece,
    WatchFault,
    continue_token,
    dumped,
    each_line,
    line_of,
    parsed,
    texts_of,
)

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
