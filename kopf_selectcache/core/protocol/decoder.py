"""Decodes the bytes of lists and watches into pages, events and refusals. Of an object, only the metadata is
decoded.

No server is trusted: bytes that do not have the promised shape raise `Garbled`, and nothing is guessed. An
object is stored as the received bytes. Dropped parts (`core.store.projection`) are cut out of them without
decoding the rest.

An object that cannot be decoded does not affect other objects: its page or line, and its metadata, are
scanned instead (`core.json_text`), and it is stored as an `UnreadableRecord`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from kopf_selectcache.core.errors import (
    BadIndex,
    BadTransform,
    Garbled,
    Undecodable,
    Unindexed,
    Untransformed,
)
from kopf_selectcache.core.json_text import (
    SURELY_DECODED,
    Listed,
    Outline,
    Unscannable,
    decode_exactly,
    decoded,
    decoded_again,
    identity,
    outline,
)
from kopf_selectcache.core.selection.field_values import Extractor
from kopf_selectcache.core.selection.grammar import EVERYTHING, LabelRequirement, Sent, Unselected
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.index_spec import Indexed, Values, with_values
from kopf_selectcache.core.store.packing import Packing, bare
from kopf_selectcache.core.store.projection import ALL, METADATA_ONLY, Projection, parts_of
from kopf_selectcache.core.store.record import (
    OutsideRecord,
    PartialRecord,
    Record,
    UnreadableRecord,
    compact_json,
)

from ._decoding import (
    FAILURES,
    MOST_TOKEN,
    MOST_VERSION,
    ListOrStatus,
    Mark,
    Metadata,
    Object,
    SharedMetadata,
    UsualMetadata,
    UsualObject,
    UsualPartial,
    can_be_named,
    decode_as,
    labels_alone,
    line_of,
    named,
    reason_of,
    refusal_of,
    split_list,
    too_long,
    without_managed,
)
from .messages import END_OF_INITIAL_EVENTS, Bookmark, Event, Message, Page, Refusal


class _Failed(NamedTuple):
    """A failed attempt to decode the stored part of an object. It is not repeated on the same stack."""

    kept: bytes
    error: Exception


PARTIAL_KIND, PARTIAL_VERSION = "PartialObjectMetadata", "meta.k8s.io/v1"
"""The kind and the API version of metadata without the rest of its object. Its own kind is not in it."""


def read_refusal(code: int, data: bytes, *, retry_after: float | None = None) -> Refusal:
    """Decode an answer that is no success. An API server sends a Status; a proxy may send any body.

    `retry_after` has the seconds of the header, which take precedence over those of the Status.
    """
    try:
        refusal = refusal_of(decode_as(data, ListOrStatus, "a Status"))
    except Garbled:
        refusal = Refusal(code)
    return replace(
        refusal, code=code, retry_after=refusal.retry_after if retry_after is None else retry_after
    )


_decode_usual = msgspec.json.Decoder(UsualObject).decode
_decode_partial = msgspec.json.Decoder(UsualPartial).decode

_SAYS_NO_KIND = b'{"metadata":{'
"""How the items of most lists begin."""

_PARTIAL_START = f'{{"kind":"{PARTIAL_KIND}","apiVersion":"{PARTIAL_VERSION}",'.encode() + _SAYS_NO_KIND[1:]


_EVENTS: tuple[tuple[Literal["ADDED", "MODIFIED", "DELETED"], bytes], ...] = (
    ("MODIFIED", b'{"type":"MODIFIED","object":'),
    ("ADDED", b'{"type":"ADDED","object":'),
    ("DELETED", b'{"type":"DELETED","object":'),
)

SLICE_BYTES = 64 * 1024
"""The number of bytes of an answer or a busy watch after which the decoder yields to other tasks."""

OBJECT_COST_BYTES = 4 * 1024
"""The number of bytes that each object counts in addition to its own, because each has a fixed cost."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Decoder of the lists and watch events of one kind in one API version."""

    api_version: str
    kind: str
    projection: Projection = ALL
    fields: Mapping[str, Extractor] = field(default_factory=dict)
    """Extractors of the field labels that the projection drops, applied before it."""
    accepts: Callable[[tuple[str, str]], bool] | None = None
    """A predicate of namespace and name: nothing is stored of other objects. None means all."""
    packing: Packing | None = None
    """The compression of the records, which packs them later; None if they are never packed."""
    indexes: tuple[Indexed, ...] = ()
    """The declared indexes whose values are extracted from each object."""
    sent: Sent = EVERYTHING
    """The selectors of the request. An object that they do not select makes the answer invalid."""
    is_outside: bool = False
    """True if only the identity of objects is stored: they are outside of the filter of a split cache."""
    _shared: SharedMetadata = field(init=False, repr=False, compare=False)
    _part: str = field(init=False, repr=False, compare=False)
    """The projection as it is declared; empty if it stores whole objects."""
    _keeps_managed: bool = field(init=False, repr=False, compare=False)
    _is_metadata: bool = field(init=False, repr=False, compare=False)
    """True if objects are received as metadata, which is stored as a whole."""
    _starts: tuple[bytes, ...] = field(init=False, repr=False, compare=False)
    """The usual first bytes of objects, up to their metadata: with kind and API version, or without both."""
    _head: bytes = field(init=False, repr=False, compare=False)
    """The first bytes of stored objects, up to their metadata, if others are received."""
    _received: tuple[str, str] = field(init=False, repr=False, compare=False)
    """The kind and the API version of objects in the usual form."""

    def __post_init__(self) -> None:
        kind, version = (
            b'"%s":%s,' % (key, msgspec.json.encode(said))
            for key, said in ((b"kind", self.kind), (b"apiVersion", self.api_version))
        )
        object.__setattr__(self, "_part", self.projection.part if self.projection.partial else "")
        # Go writes the members of structs in the order of declaration, those of maps in alphabetical order.
        object.__setattr__(self, "_shared", SharedMetadata(self.sent))
        starts = tuple(b"{" + said + _SAYS_NO_KIND[1:] for said in (kind + version, b"", version + kind))
        object.__setattr__(self, "_keeps_managed", self.projection.keeps_managed)
        is_metadata = self.projection == METADATA_ONLY
        object.__setattr__(self, "_is_metadata", is_metadata)
        object.__setattr__(self, "_starts", (_PARTIAL_START,) if is_metadata else starts)
        object.__setattr__(self, "_head", starts[0])
        received = (PARTIAL_KIND, PARTIAL_VERSION) if is_metadata else (self.kind, self.api_version)
        object.__setattr__(self, "_received", received)

    @classmethod
    def of(
        cls,
        resource: Resource,
        projection: Projection,
        *,
        accepts: Callable[[tuple[str, str]], bool] | None = None,
        packing: Packing | None = None,
        indexes: Iterable[Indexed] = (),
        sent: Sent = EVERYTHING,
        is_outside: bool = False,
    ) -> Reader:
        """Return the reader of a resource with this projection."""
        fields = resource.kind.fields.items() if projection.partial else ()
        return cls(
            resource.api_version,
            resource.kind.kind,
            projection,
            {label: each.value for label, each in fields if not all(map(projection.exact, each.value.paths))},
            accepts,
            packing,
            tuple(indexes),
            sent=sent.restricted(projection.has_field),
            is_outside=is_outside,
        )

    def page(self, data: bytes) -> Page | Refusal:
        """Read the answer to a list: a page of it, or the Status that some servers send instead, even with
        code 200.
        """
        *_, answer = self.slices(data)
        assert answer is not None, "the last slice is the answer"
        return answer

    def slices(self, data: bytes) -> Iterator[Page | Refusal | None]:
        """Decode the answer to a list in slices: yield None after each slice, and the answer at the end."""
        if (parts := split_list(data, self._starts)) is not None:
            try:
                answer = decode_as(parts.envelope, ListOrStatus, "a list")
                if answer.items == []:
                    yield from self._sliced(answer, parts.items, len(data))
                    return
            except (Untransformed, Unselected):
                raise
            except Garbled:
                pass  # It may be valid, but written in another way.
        try:
            answer = decode_as(data, ListOrStatus, "a list")
        except Undecodable as error:
            undecodable = error
        else:
            if answer.kind == "Status":
                yield refusal_of(answer)
                return
            items, answer.items = answer.items or [], None
            items.reverse()
            yield from self._sliced(
                answer, (items.pop() for _ in range(len(items))), len(data)
            )  # The memory of each item is freed once it is decoded.
            return
        yield from self._scanned(data, undecodable)

    def _scanned(self, data: bytes, undecodable: Undecodable) -> Iterator[Page | None]:
        """Decode a list that is undecodable as a whole, item by item."""
        listed, taken = Listed(data), 0
        with suppress(Unscannable):
            for end in listed.scan():
                if end - taken >= SLICE_BYTES:
                    yield None
                    taken = end
            answer = decode_as(listed.envelope, ListOrStatus, "a list")
            if answer.items is None:  # The key may come a second time, with an escape.
                yield from self._sliced(answer, listed.items, len(data))
                return
        raise undecodable

    def _sliced(
        self, answer: ListOrStatus, items: Iterator[bytes | msgspec.Raw], length: int
    ) -> Iterator[Page | None]:
        usual = answer.kind == f"{self.kind}List" or (
            self.projection.metadata_only
            and (answer.kind, answer.api_version) == (f"{PARTIAL_KIND}List", PARTIAL_VERSION)
        )
        # The definition of a custom resource may give the list another name. The items of such lists have
        # their kind, and their group has a dot. An empty list of another kind must be refused, because it
        # would empty the cache.
        unusual = (
            "." in self.api_version
            and answer.kind.endswith("List")
            and answer.api_version == self.api_version
        )
        if not usual and not unusual:
            raise Garbled(f"a {answer.kind[:100]!r} came instead of a {self.kind}List")
        if answer.metadata is None or not answer.metadata.version:
            raise Garbled(f"a {self.kind}List came without a resourceVersion")
        if len(answer.metadata.version) > MOST_VERSION:
            raise too_long(f"a {self.kind}List")
        if len(answer.metadata.token) > MOST_TOKEN:
            raise Garbled(
                f"a {self.kind}List came with a continue token of more than {MOST_TOKEN:,} characters"
            )
        records, size = list[Record](), 0
        for item in items:
            if size >= SLICE_BYTES:
                yield None
                size = 0
            try:
                records.append(self.record(item, kindless=usual))
            except (Untransformed, Unselected):
                raise
            except Garbled as garbled:
                problem = Garbled(f"{garbled} (item {len(records)} of the page)")
                break
            size += OBJECT_COST_BYTES + len(memoryview(item))
        else:
            problem = None
        if problem is not None:
            raise problem  # As above.
        yield Page(answer.metadata.version, answer.metadata.token, tuple(records), length)

    def line(self, data: bytes) -> Message:
        """Read one line of a watch."""
        usual: Record | _Failed | None = None
        if data.endswith(b"}"):
            for type_, start in _EVENTS:
                # If the bytes between are an object, this decodes the line without a full parse.
                if data.startswith(start):
                    usual = self._usual(data[len(start) : -1], kindless=False, leaves=type_ == "DELETED")
                    if isinstance(usual, Record):
                        return Event(type_, usual)
                    break
        line, found = line_of(data)
        if line.type == "" and (refusal := self.rest(data)) is not None:
            return refusal
        match line.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                obj, leaves = bytes(line.object), line.type == "DELETED"
                if usual is None:
                    usual = self._usual(obj, kindless=False, leaves=leaves)
                return Event(
                    line.type,
                    (
                        usual
                        if isinstance(usual, Record)
                        else self._checked(obj, kindless=False, leaves=leaves, failed=usual, outlined=found)
                    ),
                )
            case "BOOKMARK":
                mark = decode_as(line.object, Mark, "a bookmark")
                self._require_kind(
                    mark
                )  # A version of another kind may be far ahead: it would suppress all later events.
                marked = mark.metadata
                if not marked.version:
                    raise Garbled("a bookmark came without a resourceVersion")
                if len(marked.version) > MOST_VERSION:
                    raise too_long("a bookmark")
                return Bookmark(
                    marked.version, complete=(marked.annotations or {}).get(END_OF_INITIAL_EVENTS) == "true"
                )
            case "ERROR":
                return refusal_of(decode_as(line.object, ListOrStatus, "a Status"))
            case other:
                raise Garbled(f"an event of the unknown type {other[:100]!r} came")

    def rest(self, data: bytes) -> Refusal | None:
        """Decode the bytes after the last newline of a watch that has ended: some servers answer a watch with
        a Status only.

        Other bytes are an incomplete line, and are ignored.
        """
        try:
            answer = decode_as(data, ListOrStatus, "a Status")
        except Garbled:
            return None
        return refusal_of(answer) if answer.kind == "Status" else None

    def record(self, data: bytes | msgspec.Raw, *, kindless: bool = True, leaves: bool = False) -> Record:
        """Decode an object. It must have the kind, because some proxies answer with Tables; in lists it may
        be `kindless`.

        Raise Unselected if the selectors of the request do not select it, unless it `leaves`.
        """
        data = bytes(data)
        usual = self._usual(data, kindless=kindless, leaves=leaves)
        return (
            usual
            if isinstance(usual, Record)
            else self._checked(data, kindless=kindless, leaves=leaves, failed=usual)
        )

    def _usual(self, data: bytes, *, kindless: bool, leaves: bool) -> Record | _Failed | None:
        """Decode an object in the usual form of servers, if all that is received is stored. If None is
        returned, it may be valid or not.

        Only the metadata is decoded. Of the rest, the decoder proves that it is JSON, which takes a third of
        the time; it does not look at the encoding of texts. So readers can decode all of the object.
        """
        if (self._part and not self._is_metadata) or self.accepts is not None or self._keeps_managed:
            return None
        for start in self._starts:  # It is used below. A generator would cost a call for each.
            if data.startswith(start):
                break
        else:
            return None
        says_no_kind = start == _SAYS_NO_KIND
        if says_no_kind and not kindless:
            return None
        kept = without_managed(data, len(start) - 1)
        if kept is None:
            return None
        try:
            found = _decode_partial(kept) if self._is_metadata else _decode_usual(kept)
            if not kept.isascii():
                kept.decode()
        except msgspec.ValidationError:
            return None  # Metadata of another shape; or more than metadata, which must be cut off.
        except FAILURES as error:
            return _Failed(kept, error)
        metadata = found.metadata
        if (
            metadata is None
            or metadata.managed is not UNSET
            or (found.kind, found.api_version) != (("", "") if says_no_kind else self._received)
        ):
            return None
        if (
            not metadata.name
            or not metadata.version
            or not metadata.uid
            or len(metadata.version) > MOST_VERSION
            or not can_be_named(metadata.namespace, metadata.name)
        ):
            return None
        if says_no_kind:
            kept = self._head[: -len(start) + 1] + kept[1:]
        elif self._is_metadata:
            kept = self._head + kept[len(start) :]
        try:
            labels = self._shared.labels(metadata.labels)
            owners = self._shared.owners(metadata.owners)
        except FAILURES:
            return None
        if isinstance(labels, LabelRequirement):
            labels = self._outside(metadata, labels, leaves=leaves)
        is_asked = bool(self.sent.terms) and not leaves
        if is_asked or len(kept) > SURELY_DECODED:
            try:
                obj = decoded(kept)
            except FAILURES as error:  # It is too deep for an empty stack.
                return _Failed(kept, error)
            if is_asked and (term := self.sent.failing_term(obj)) is not None:
                raise Unselected(
                    metadata.namespace, metadata.name, metadata.uid, metadata.version, term, labels
                )
        try:
            return self._made(metadata, labels, owners, kept)
        except Undecodable:  # The function of an index recurses too deeply.
            return None

    def _outside(
        self,
        metadata: Metadata | UsualMetadata,
        failed: LabelRequirement,
        *,
        leaves: bool,
    ) -> dict[str, str]:
        """Return the labels of an object that the selector does not select, if it `leaves`; else raise
        Unselected.
        """
        labels = labels_alone(metadata.labels)
        if not leaves:
            raise Unselected(
                metadata.namespace, metadata.name, metadata.uid, metadata.version, failed, labels
            )
        return labels

    def _checked(
        self,
        data: bytes,
        *,
        kindless: bool,
        leaves: bool,
        failed: _Failed | None = None,
        outlined: Outline | None = None,
    ) -> Record:
        """Read any object; raise Garbled if it is invalid. It is scanned once at most: `outlined` is the
        result of a scan of its line.
        """
        found, outlined = self._found(data, outlined)
        metadata = found.metadata
        self._require_kind(found, kindless=kindless)
        if metadata is None or not metadata.name or not metadata.version or not metadata.uid:
            raise Garbled(
                f"an object of kind {self.kind}{named(metadata)} came without a name, uid or resourceVersion"
            )
        if not can_be_named(metadata.namespace, metadata.name):
            raise Garbled(
                f"an object of kind {self.kind}{named(metadata)} came with a name or namespace that no"
                " request can have"
            )
        if self.accepts is not None and not self.accepts((metadata.namespace, metadata.name)):
            return Record(metadata.namespace, metadata.name, metadata.uid, metadata.version, {}, (), b"")
        labels, owners = self._labels_and_owners(metadata)
        if isinstance(labels, LabelRequirement):
            labels = self._outside(metadata, labels, leaves=leaves)
        try:
            kept, fields, parts = self._stored_part(data, found, outlined)
            obj = self._decoded(kept, metadata, failed)
            if self.sent.terms and not leaves:
                lost = msgspec.json.decode(fields, type=dict[str, str]) if fields else {}
                if (term := self.sent.failing_term(obj, lost)) is not None:
                    raise Unselected(
                        metadata.namespace, metadata.name, metadata.uid, metadata.version, term, labels
                    )
            return self._made(
                metadata,
                labels,
                owners,
                kept,
                fields,
                whole=parts if self._part or self._keeps_managed else None,
            )
        except Undecodable as undecodable:
            why = undecodable.why
        if not leaves and (term := self.sent.failing_key(metadata.namespace, metadata.name)) is not None:
            raise Unselected(metadata.namespace, metadata.name, metadata.uid, metadata.version, term, labels)
        if self.is_outside:
            return self._outsider(metadata, labels, owners)
        return UnreadableRecord(
            intern(metadata.namespace),
            metadata.name,
            metadata.uid,
            metadata.version,
            labels,
            owners,
            b"",
            why=why,
        )

    def _found(self, data: bytes, outlined: Outline | None) -> tuple[Object, Outline | None]:
        """Decode the kind and the metadata of an object. Return its outline as well if it was scanned."""
        what = f"an object of kind {self.kind}"
        if outlined is None:
            try:
                return self._bounded(decode_as(data, Object, what)), None
            except Undecodable:
                pass  # `suppress` takes longer, and this code runs for each object.
        with suppress(Unscannable):
            outlined = outlined or outline(data, "metadata")
            return self._bounded(decode_as(identity(outlined), Object, what)), outlined
        return self._bounded(decode_as(data, Object, what)), outlined  # It raises the decoder's error.

    def _bounded(self, found: Object) -> Object:
        """Return the object; raise Garbled if its version is too long."""
        if found.metadata is not None and len(found.metadata.version) > MOST_VERSION:
            raise too_long(f"an object of kind {self.kind}{named(found.metadata)}")
        return found

    def _require_kind(self, found: Object | Mark, *, kindless: bool = False) -> None:
        if self._is_metadata_of_one(found):
            return
        if found.kind != self.kind and (found.kind or not kindless):
            raise Garbled(f"an object of kind {found.kind[:100]!r} came instead of {self.kind}")
        if found.api_version not in ("", self.api_version):
            raise Garbled(f"an object of {found.api_version[:100]!r} came instead of {self.api_version}")

    def _is_metadata_of_one(self, found: Object | Mark) -> bool:
        """Return True for an object without all but its metadata, if that was requested."""
        is_partial = (found.kind, found.api_version) == (PARTIAL_KIND, PARTIAL_VERSION)
        return is_partial and self.projection.metadata_only

    def _labels_and_owners(
        self, metadata: Metadata
    ) -> tuple[dict[str, str] | LabelRequirement, tuple[str, ...]]:
        try:
            return self._shared.labels(metadata.labels), self._shared.owners(metadata.owners)
        except FAILURES as error:
            why = str(error)
        raise Garbled(
            f"an object of kind {self.kind}{named(metadata)} has labels or owners that are not what the API"
            f" promises: {why}"
        )

    def _made(
        self,
        metadata: Metadata | UsualMetadata,
        labels: dict[str, str],
        owners: tuple[str, ...],
        kept: bytes,
        fields: bytes = b"",
        *,
        whole: Mapping[str, msgspec.Raw] | None = None,
    ) -> Record:
        if self.is_outside:
            return self._outsider(metadata, labels, owners)
        if self.indexes:
            fields = with_values(fields, self._by_indexes(metadata, kept, whole))
        record = (
            intern(metadata.namespace),
            metadata.name,
            metadata.uid,
            metadata.version,
            labels,
            owners,
            kept if self.packing is None else bare(kept),  # Packed later, with others of its group.
            fields,
            self.packing,
        )
        return PartialRecord(*record, part=self._part) if self._part else Record(*record)

    def _outsider(
        self, metadata: Metadata | UsualMetadata, labels: dict[str, str], owners: tuple[str, ...]
    ) -> Record:
        """Return the identity of an object outside of the filter."""
        namespace, name = intern(metadata.namespace), metadata.name
        return OutsideRecord(namespace, name, metadata.uid, metadata.version, labels, owners, b"")

    def _by_indexes(
        self, metadata: Metadata | UsualMetadata, kept: bytes, whole: Mapping[str, msgspec.Raw] | None
    ) -> dict[str, Values]:
        """Compute the values of declared indexes. Each function receives its own copy of the object.

        Lists, watches and handlers have the object in several forms, but its values must be equal. The copy
        therefore has its kind, and no `managedFields`. `whole` has its members as received, if more than
        `managedFields` is dropped.
        """
        try:
            came = kept if whole is None else msgspec.json.encode(ALL.cut(self._members(whole)))
            key = metadata.namespace, metadata.name
            return {
                each.stored_as: each.come(key, decoded(kept) if each.late else decoded(came, decode_exactly))
                for each in self.indexes
            }
        except FAILURES as error:
            problem: Garbled = self._undecodable(metadata, error)
        except BadIndex as bad:
            problem = Unindexed(f"{self.kind}{named(metadata)} can't be indexed: {bad}")
        raise problem  # As below.

    def _stored_part(
        self, data: bytes, found: Object, outlined: Outline | None
    ) -> tuple[bytes, bytes, Mapping[str, msgspec.Raw] | None]:
        """Return the stored part of an object with its kind, the values of field labels that this part lacks,
        and its members.

        An object that is stored as a whole is copied without decoding, and its members are None.
        """
        untouched = not self._part and (self._keeps_managed or b'"managedFields"' not in data)
        if untouched and found.kind and found.api_version:
            return data, b"", None
        try:
            parts = (
                parts_of(data)
                if outlined is None
                else {key: msgspec.Raw(part) for key, part in outlined.members.items()}
            )
            # The fields of an object of which only metadata has come are known to the server alone.
            has_fields = bool(self.fields) and not self._is_metadata_of_one(found)
            values = self._values(parts) if has_fields else b""
            if self.projection.metadata_only:  # Indexes must not depend on what has come besides.
                parts = {"metadata": parts["metadata"]}
            all_of_it = self._members(parts)
            kept = compact_json(all_of_it if untouched else self.projection.cut(all_of_it))
            if self.projection.transform is not None:
                kept = self.projection.transformed(kept)
        except FAILURES as error:
            problem: Garbled = self._undecodable(found.metadata, error)
        except BadTransform as bad:
            problem = Untransformed(f"the transform of {self.kind}{named(found.metadata)} {bad}")
        else:
            return kept, values, parts
        raise problem  # Outside of `except`, its context is not the error, which may have the object.

    def _decoded(self, kept: bytes, metadata: Metadata, failed: _Failed | None) -> Any:
        try:
            if failed is None:
                return decoded(kept)
            if isinstance(failed.error, RecursionError):
                return decoded_again(kept)
            if failed.kept == kept:
                raise failed.error
            return decoded(kept)
        except FAILURES as error:
            problem = self._undecodable(metadata, error)
        raise problem  # As above.

    def _undecodable(self, metadata: Metadata | UsualMetadata | None, error: Exception) -> Undecodable:
        return Undecodable(
            f"an object of kind {self.kind}{named(metadata)} is not what the API promises: {error}",
            reason_of(error),
        )

    def _members(self, parts: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
        """Return the members of an object in the order of API servers, so that lists and watches give equal
        bytes.
        """
        said = {"kind": self.kind, "apiVersion": self.api_version, "metadata": parts["metadata"]}
        return {**said, **parts, **said}

    def _values(self, parts: Mapping[str, msgspec.Raw]) -> bytes:
        """Return the values of the field labels, decoding only the members that have them."""
        looked_at = {path[0] for extractor in self.fields.values() for path in extractor.paths}
        obj = {key: decoded(part) for key, part in parts.items() if key in looked_at}
        return compact_json({label: extractor(obj) for label, extractor in self.fields.items()})
