"""Bytes of the list/watch API -> pages, events and refusals. Reads an object's metadata; leaves the rest as bytes.

Nothing that a server sends is trusted: what is not of the promised shape is a `Garbled` problem, never a guess. An
object stays the bytes that it came as, except for what is dropped (`core.projection`): that is cut out without decoding the rest.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Literal, TypeAlias, TypeVar

import msgspec

from .fields import Extractor
from .problems import BadTransform, Garbled, Untransformed
from .projection import ALL, Projection
from .record import Record
from .resources import Resource
from .sharing import Sharing

END_OF_INITIAL_EVENTS = "k8s.io/initial-events-end"
"""The annotation of the one bookmark after which a WatchList's initial state is complete."""

MAX_LINE = 16 * 1024 * 1024
"""The longest line of a watch, in bytes. etcd takes objects of 1.5 MiB; some aggregated servers ten times that."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. More follow if there is a `token`, whether or not this one has items."""

    version: str
    token: str
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """An object was added or modified, or has left: deleted, or no longer selected."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    record: Record


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The server has sent all there is up to this version; `complete` says that the initial state was part of it."""

    version: str
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server said no: as the answer to a request, or in the middle of a stream."""

    code: int
    reason: str = ""
    message: str = ""
    retry_after: float | None = None
    token: str = ""
    """With a 410 for an expired continue token: where an inconsistent list could go on."""


Message: TypeAlias = Event | Bookmark | Refusal


_NULL = msgspec.Raw(b"null")


class _Owner(msgspec.Struct, gc=False):
    uid: str = ""


class _Metadata(msgspec.Struct, gc=False, rename={"version": "resourceVersion", "owners": "ownerReferences"}):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = ""
    labels: msgspec.Raw = _NULL
    owners: msgspec.Raw = _NULL


class _Object(msgspec.Struct, rename={"api_version": "apiVersion"}):
    api_version: str = ""
    kind: str = ""
    metadata: _Metadata | None = None


class _Marked(msgspec.Struct, rename={"version": "resourceVersion"}):
    version: str = ""
    annotations: dict[str, str] | None = None


class _Mark(msgspec.Struct):
    metadata: _Marked


class _AnswerMetadata(msgspec.Struct, rename={"version": "resourceVersion", "token": "continue"}):
    version: str = ""
    token: str = ""


class _Details(msgspec.Struct, rename={"retry_after": "retryAfterSeconds"}):
    retry_after: float | None = None


class _Answer(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """A list or a Status: the same request may be answered by either."""

    api_version: str = ""
    kind: str = ""
    metadata: _AnswerMetadata | None = None
    items: list[msgspec.Raw] | None = None
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class _Line(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


MOST_SAID = 1000
"""How many characters of what a server says are taken in: people read them, in logs, errors and the probe."""

_START = 64 * 1024
"""So much of an endless line is searched for the object's name."""

_Shape = TypeVar("_Shape")


def _decode(data: bytes | msgspec.Raw, shape: type[_Shape], what: str) -> _Shape:
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # The decoder's words name a place and a type, never a value: it may be a Secret's.
        why = str(error)
    # Raised out here, it does not carry the decoder's error along, which may hold all of the data.
    raise Garbled(f"{what} is not what the API promises: {why}")


def read_refusal(code: int, data: bytes, *, retry_after: str | None = None) -> Refusal:
    """Read an answer that is no success. Its body is a Status from an API server, and anything from a proxy."""
    try:
        refusal = _refusal(_decode(data, _Answer, "a Status"))
    except Garbled:
        refusal = Refusal(code)
    seconds = float(retry_after) if retry_after is not None and retry_after.isdecimal() else refusal.retry_after
    return replace(refusal, code=code, retry_after=seconds)


def _refusal(answer: _Answer) -> Refusal:
    return Refusal(
        answer.code, _said(answer.reason), _said(answer.message),
        answer.details.retry_after if answer.details is not None else None,
        answer.metadata.token if answer.metadata is not None else "",
    )


def _said(text: str) -> str:
    """Return what a server says as one line, of which there is an end."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text[:2 * MOST_SAID]).split())
    return line if len(line) <= MOST_SAID and len(text) <= 2 * MOST_SAID else f"{line[:MOST_SAID]}…"


_LABELS = msgspec.json.Decoder(dict[str, str] | None)
_OWNERS = msgspec.json.Decoder(list[_Owner] | None)


def _labels(text: bytes) -> dict[str, str]:
    return _LABELS.decode(text) or {}


def _owners(text: bytes) -> tuple[str, ...]:
    return tuple(owner.uid for owner in _OWNERS.decode(text) or ())


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads what a server sends about one kind, in the version in which it is asked for."""

    api_version: str
    kind: str
    projection: Projection = ALL
    fields: Mapping[str, Extractor] = field(default_factory=dict)
    """The field labels whose values the projection would lose: they are read off the object as it came."""
    wanted: Callable[[tuple[str, str]], bool] | None = None
    """Which objects will be taken in, by namespace and name: of others, nothing is kept. None means all."""
    _labels: Sharing[dict[str, str]] = field(default_factory=lambda: Sharing(_labels), init=False, repr=False, compare=False)
    _owners: Sharing[tuple[str, ...]] = field(default_factory=lambda: Sharing(_owners), init=False, repr=False, compare=False)

    @classmethod
    def of(cls, resource: Resource, projection: Projection, *, wanted: Callable[[tuple[str, str]], bool] | None = None) -> Reader:
        """Return the reader of a resource of which this much is kept."""
        return cls(resource.api_version, resource.kind.kind, projection, {
            label: each.value for label, each in resource.kind.fields.items() if not all(map(projection.exact, each.value.paths))}, wanted)

    def page(self, data: bytes) -> Page | Refusal:
        """Read the answer to a list: a page of it, or the Status that some servers send instead, even with code 200."""
        answer = _decode(data, _Answer, "a list")
        if answer.kind == "Status":
            return _refusal(answer)
        usual = answer.kind == f"{self.kind}List"
        # The definition of a custom resource may name its list otherwise. The items of such lists do name their kind,
        # and their group has a dot; an empty list of another kind must not be taken for one that says there is nothing.
        unusual = "." in self.api_version and answer.kind.endswith("List") and answer.api_version == self.api_version
        if not usual and not unusual:
            raise Garbled(f"a {answer.kind[:100]!r} came instead of a {self.kind}List")
        if answer.metadata is None or not answer.metadata.version:
            raise Garbled(f"a {self.kind}List came without a resourceVersion")
        records = tuple(self.record(item, kindless=usual) for item in answer.items or ())
        return Page(answer.metadata.version, answer.metadata.token, records)

    def line(self, data: bytes) -> Message:
        """Read one line of a watch."""
        line = _decode(data, _Line, "a line of a watch")
        if line.type == "" and (refusal := self.rest(data)) is not None:
            return refusal
        match line.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                return Event(line.type, self.record(line.object))
            case "BOOKMARK":
                marked = _decode(line.object, _Mark, "a bookmark").metadata
                if not marked.version:
                    raise Garbled("a bookmark came without a resourceVersion")
                return Bookmark(marked.version, complete=(marked.annotations or {}).get(END_OF_INITIAL_EVENTS) == "true")
            case "ERROR":
                return _refusal(_decode(line.object, _Answer, "a Status"))
            case other:
                raise Garbled(f"an event of the unknown type {other[:100]!r} came")

    def rest(self, data: bytes) -> Refusal | None:
        """Read what came after the last newline of a watch that has ended: some servers answer a watch with a Status alone.

        Anything else is the half of a line, and nothing.
        """
        try:
            answer = _decode(data, _Answer, "a Status")
        except Garbled:
            return None
        return _refusal(answer) if answer.kind == "Status" else None

    def record(self, data: bytes | msgspec.Raw, *, kindless: bool = True) -> Record:
        """Read an object. It must be of the kind, since some proxies answer with Tables; in lists it may be `kindless`."""
        found = _decode(data, _Object, f"an object of kind {self.kind}")
        metadata = found.metadata
        if found.kind != self.kind and (found.kind or not kindless):
            raise Garbled(f"an object of kind {found.kind[:100]!r} came instead of {self.kind}")
        if found.api_version not in ("", self.api_version):
            raise Garbled(f"an object of {found.api_version[:100]!r} came instead of {self.api_version}")
        if metadata is None or not metadata.name or not metadata.version or not metadata.uid:
            raise Garbled(f"an object of kind {self.kind}{_named(metadata)} came without a name, uid or resourceVersion")
        if self.wanted is not None and not self.wanted((metadata.namespace, metadata.name)):
            return Record(metadata.namespace, metadata.name, metadata.uid, metadata.version, {}, (), b"")
        labels, owners = self._shared(metadata)
        kept, fields = self._kept(bytes(data), found)
        # The decoder looks only at what it is asked for; readers ask for all of it.
        if not _is_text(kept) or not _has_sane_numbers(kept):
            raise Garbled(f"an object of kind {self.kind}{_named(metadata)} came that is no UTF-8, or has numbers beyond all bounds")
        return Record(
            intern(metadata.namespace), metadata.name, metadata.uid, metadata.version, labels, owners, kept, fields)

    def _shared(self, metadata: _Metadata) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return what many objects have in common: the labels, and the uids of the owners."""
        try:
            return self._labels.of(bytes(metadata.labels)), self._owners.of(bytes(metadata.owners))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            why = str(error)
        raise Garbled(f"an object of kind {self.kind}{_named(metadata)} has labels or owners that are not what the API promises: {why}")

    def _kept(self, data: bytes, found: _Object) -> tuple[bytes, bytes]:
        """Return what is kept of an object, which says what it is, and the field labels' values that are not to be found in that.

        What is kept as a whole is copied unread.
        """
        untouched = not self.projection.partial and b'"managedFields"' not in data
        if untouched and found.kind and found.api_version:
            return data, b""
        try:
            parts = _OBJECT.decode(data)
            # The order in which the server itself writes them, so that an object is the same bytes in lists and in watches.
            said = {"kind": self.kind, "apiVersion": self.api_version, "metadata": parts["metadata"]}
            members = {**said, **parts, **said}
            kept = msgspec.json.encode(members if untouched else self.projection.cut(members))
            if self.projection.transform is not None:
                kept = self.projection.transformed(kept)
            return kept, self._values(parts) if self.fields else b""
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem = Garbled(f"an object of kind {self.kind}{_named(found.metadata)} is not what the API promises: {error}")
        except BadTransform as bad:
            problem = Untransformed(f"the transform of {self.kind}{_named(found.metadata)} {bad}")
        raise problem   # Out here it does not carry the error along, which may hold the object.

    def _values(self, parts: Mapping[str, msgspec.Raw]) -> bytes:
        """Read the field labels' values off those parts of an object in which they are."""
        looked_at = {path[0] for extractor in self.fields.values() for path in extractor.paths}
        obj = {key: msgspec.json.decode(part) for key, part in parts.items() if key in looked_at}
        return msgspec.json.encode({label: extractor(obj) for label, extractor in self.fields.items()})


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _named(metadata: _Metadata | None) -> str:
    """Say which object it is: whoever has to find what is wrong with it needs its name."""
    if metadata is None or not metadata.name:
        return ""
    within = f"{metadata.namespace[:63]}/" if metadata.namespace else ""
    return f", {within}{metadata.name[:253]},"


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_AS_IF = bytes.maketrans(b"123456789E", b"000000000e")
_ENORMOUS = (b"0e000", b"0e+000", b"0" * 200)
"""What every number too large for a float looks like with zeros for its digits. Little else does: mostly hexadecimal."""


def _has_sane_numbers(data: bytes) -> bool:
    seen = data.translate(_AS_IF)
    if any(enormous in seen for enormous in _ENORMOUS):
        try:
            msgspec.json.decode(data)
        except msgspec.DecodeError:
            return False
    return True


class Lines:
    """Splits the chunks of a stream into lines. What follows the last newline is kept back: half a line is no event."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def rest(self) -> bytes:
        """What has come since the last newline."""
        return b"".join(self._parts)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that this chunk completes; raise Garbled once an unfinished one is too long."""
        *complete, rest = chunk.split(b"\n")
        for end in complete:
            line = b"".join((*self._parts, end))
            self._parts, self._size = [], 0
            if line.strip():
                yield line
        self._size += len(rest)
        if self._size > self._limit:
            name = _name_in(b"".join((*self._parts, rest))[:_START])
            raise Garbled(f"a line of a watch is longer than {self._limit:,} bytes{f'; the object is {name!r}' if name else ''}")
        self._parts.append(rest)


def _name_in(start: bytes) -> str:
    """Find the object's name in the start of a line. Any other value must not be told, be its key `name` or not."""
    # Without escaped quotes, every other piece is what stands in quotes.
    pieces = start.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    path: list[bytes] = []
    key = b""
    for marks, text in zip(pieces[::2], pieces[1:-1:2], strict=False):
        for mark in marks.decode("latin-1"):
            if mark in "{[":
                path.append(key)
            elif mark in "}]":
                del path[-1:]
        if not marks.rstrip().endswith(b":"):
            key = text
        elif key == b"name" and path == [b"", b"object", b"metadata"]:
            return text[:253].decode("utf-8", "replace")
    return ""
