"""The forms of objects: whole, metadata only, or a table, by the Accept header; on request without
`managedFields`, as KEP-5958 has it. Only tables decode objects.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from .events import shown
from .history import Stored
from .kinds import Served
from .kubectl import tables
from .selection import Page
from .shards import Shards
from .status import Problem, not_acceptable

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_META = "meta.k8s.io"
_MANAGED = "metadata.managedFields"

Conversion = Literal["", "metadata", "metadata-list", "table"]
_CONVERSIONS: Mapping[str, Conversion] = {
    "PartialObjectMetadata": "metadata",
    "PartialObjectMetadataList": "metadata-list",
    "Table": "table",
}


class _Object(msgspec.Struct):
    """The parts of an object that are known without decoding it."""

    metadata: msgspec.Raw


_Members = dict[str, msgspec.Raw]
_members = msgspec.json.Decoder(_Members).decode
_read = msgspec.json.Decoder(_Object).decode
_dump = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Form:
    """The form that the client requests."""

    conversion: Conversion = ""
    version: str = "v1"
    """The version of meta.k8s.io, if the object is converted."""
    included: str = "Metadata"
    """The objects in a table's rows: none (None), their metadata, or whole (Object)."""
    drops: bool = False
    """True if `managedFields` are left out."""


def accepted(accept: str, *, included: str = "", watch: bool = False) -> Form:
    """Return the first available form in the header; raise NotAcceptable (406) if there is none."""
    for media, parameters in _clauses(accept or "*/*"):
        if media not in ("application/json", "*/*"):
            continue  # Neither YAML nor protobuf: clients that ask for them accept JSON as well.
        word = parameters.get("as", "")
        version = parameters.get("v", "")
        drops = _MANAGED in parameters.get("drop", "").split("+")
        if not word:
            return Form(drops=drops)
        if word in _CONVERSIONS and parameters.get("g") == _META and version in ("v1", "v1beta1"):
            return Form(_CONVERSIONS[word], version, included or "Metadata", drops)
    kinds = "application/json;stream=watch" if watch else "application/json"
    raise not_acceptable(f"only the following media types are accepted: {kinds}")


def _clauses(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Iterate over the accepted forms, the preferred first."""
    read = []
    for clause in accept.split(","):
        media, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest)
        try:
            wanted = float(parameters.get("q", "1"))
        except ValueError:
            wanted = 1.0
        read.append((-wanted, media, parameters))
    for _, media, parameters in sorted(read, key=lambda each: each[0]):
        yield media, parameters


@dataclass(frozen=True, slots=True)
class View:
    """One resource in the form of one client."""

    served: Served
    form: Form
    now: Callable[[], dt.datetime]
    """The clock for ages in a table."""

    # ---- Whole responses.

    def one(self, stored: Stored) -> bytes:
        match self.form.conversion:
            case "":
                return self._whole(stored)
            case "metadata":
                return self._metadata(stored)
            case "metadata-list":
                raise self._refusal("PartialObjectMetadataList", "not a list")
            case "table":
                return self._table([stored], {"resourceVersion": str(stored.version)})

    def many(self, page: Page, *, shards: Shards | None = None) -> bytes:
        """Return a list. The selector of shards is shown only in lists of whole objects of built-in kinds."""
        meta: dict[str, Any] = {"resourceVersion": str(page.version)}
        if page.continuation:
            meta["continue"] = page.continuation
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
        if shards is not None and not self.form.conversion and not self.served.custom:
            meta["shardInfo"] = {"selector": shards.text}
        match self.form.conversion:
            case "":
                return self._list(page, meta)
            case "metadata":
                raise self._refusal("PartialObjectMetadata", "a list")
            case "metadata-list":
                head = {
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": f"{_META}/{self.form.version}",
                    "metadata": meta,
                }
                if not page.items:
                    return _dump(head | {"items": None})  # Only this form has null instead of an empty list.
                return _closed(_dump(head), b",".join(map(self._metadata, page.items)))
            case "table":
                return self._table(page.items, meta)

    # ---- Events of a watch.

    def event(self, change: str, stored: Stored, *, first: bool = False) -> bytes:
        """Return a line of a watch. The first one of a watch of tables has the definitions of the columns."""
        if self.form.conversion == "table":
            seen = self._table([stored], {"resourceVersion": str(stored.version)}, defined=first)
        else:
            seen = self.one(stored)
        return b'{"type":"%b","object":%b}\n' % (change.encode(), seen)

    def bookmark(self, version: int, *, ends_initial: bool = False, first: bool = False) -> bytes:
        """Return the line of a bookmark."""
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if ends_initial:
            meta["annotations"] = {INITIAL_EVENTS_END: "true"}
        empty = Stored(("", ""), "", version, _dump({"metadata": meta}), {}, {})
        return self.event("BOOKMARK", empty, first=first)

    # ---- Parts.

    def _whole(self, stored: Stored) -> bytes:
        return self._typed() + self._data(stored)[1:]

    def _typed(self) -> bytes:
        kind = b'"kind":"%b"' % self.served.kind.encode()
        version = b'"apiVersion":"%b"' % self.served.api_version.encode()
        return b"{%b,%b," % ((version, kind) if self.served.custom else (kind, version))

    def _data(self, stored: Stored) -> bytes:
        data = shown(stored.data) if self.served.group == "events.k8s.io" else stored.data
        if not self.form.drops or b'"managedFields"' not in data:
            return data
        members = _members(data)
        return _dump(members | {"metadata": msgspec.Raw(_unmanaged(members["metadata"]))})

    def _metadata(self, stored: Stored) -> bytes:
        metadata = _read(stored.data).metadata
        return b'{"kind":"PartialObjectMetadata","apiVersion":"%b/%b","metadata":%b}' % (
            _META.encode(),
            self.form.version.encode(),
            _unmanaged(metadata) if self.form.drops else metadata,
        )

    def _list(self, page: Page, meta: Mapping[str, Any]) -> bytes:
        kind = f"{self.served.kind}List"
        if self.served.custom:
            # Objects of custom resources, and their lists, have their kind, and sort their keys.
            start = self._typed()
            items = b",".join(start + self._data(stored)[1:] for stored in page.items)
            tail = _dump({"kind": kind, "metadata": {"continue": "", **meta}})
            return b'{"apiVersion":"%b","items":[%b],%b' % (self.served.api_version.encode(), items, tail[1:])
        head = _dump({"kind": kind, "apiVersion": self.served.api_version, "metadata": meta})
        return _closed(head, b",".join(map(self._data, page.items)))

    def _table(self, items: list[Stored], meta: Mapping[str, Any], *, defined: bool = True) -> bytes:
        head = _dump({"kind": "Table", "apiVersion": f"{_META}/{self.form.version}", "metadata": meta})
        rows = b",".join(map(self._row, items))
        definitions = _dump(tables.definitions(self.served)) if defined else b"null"
        return b'%b,"columnDefinitions":%b,"rows":[%b]}' % (head[:-1], definitions, rows)

    def _row(self, stored: Stored) -> bytes:
        data = self._data(stored)
        cells = _dump(tables.cells(self.served, msgspec.json.decode(data), now=self.now()))
        match self.form.included:
            case "None":
                held = b"null"
            case "Object":
                held = self._whole(stored)
            case _:
                held = self._metadata(stored)
        return b'{"cells":%b,"object":%b}' % (cells, held)

    def _refusal(self, wanted: str, what: str) -> Problem:
        package = "unstructured" if self.served.custom else self.served.group.partition(".")[0] or "core"
        kind = ("Unstructured" if self.served.custom else self.served.kind) + (
            "List" if what == "a list" else ""
        )
        return not_acceptable(
            f"you requested {wanted}, but the requested object is {what} (*{package}.{kind})"
        )


def _unmanaged(metadata: msgspec.Raw) -> bytes:
    """Return the metadata of an object without its `managedFields`."""
    return _dump({key: value for key, value in _members(metadata).items() if key != "managedFields"})


def _closed(head: bytes, items: bytes) -> bytes:
    return b'%b,"items":[%b]}' % (head[:-1], items)
