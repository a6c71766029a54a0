"""Reads about a cache: its coverage, indexes and memory, and the work of a request. They return no object."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from sys import getsizeof

from kopf_selectcache._errors import DeclarationError, NotKept, ReadError, awaited_call, call_of
from kopf_selectcache.core.errors import NO_VALUE, BadField
from kopf_selectcache.core.protocol.messages import written
from kopf_selectcache.core.redact import clipped, counted, shown
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.claims import OwnWrites
from kopf_selectcache.core.store.index_spec import Failing, Indexed
from kopf_selectcache.core.store.indexes import in_words
from kopf_selectcache.core.store.packing import weights_of
from kopf_selectcache.core.store.projection import Keys, Projection, as_written
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Readable
from kopf_selectcache.informer.background import IndexFailed
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.selector import AnyOf, Selector, Verdict
from kopf_selectcache.selectors.signatures import miscalled, near, no_attribute
from kopf_selectcache.settings.checks import indexes as declared_indexes
from kopf_selectcache.settings.namespaces import Origin
from kopf_selectcache.settings.planner import questions

from ._checks import require_stored
from .blocking import AWAITED, LIVE
from .errors import OutsideFilter, Reason, index_error, not_stored_error, unknown_field_error
from .matcher import Compared
from .request import Request, as_read_error
from .snapshots import Snapshot, match_of, outside_of


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of `cache.explain`; `str` gives a few lines of text."""

    verdict: Verdict
    """The comparison of the request with the filter; true if the filter covers it."""
    looks_at: int
    """The number of stored objects that are compared with the rest of the request."""
    decodes: bool
    """True if candidates must be decoded, because no index answers `fields=` or `where=`."""
    asks: tuple[str, ...]
    """The requests that `fetch_list` would send if the cache cannot answer."""
    partial: str = ""
    """The declared projection, such as `drop=['data']`; empty for whole objects."""

    by: tuple[str, ...] = ()
    """The indexes that find the candidates, the first one most of them; empty if all are candidates."""
    indexes: str = ""
    """The index that such a read would cause to be built; empty if none would help."""
    nowhere: tuple[str, ...] = ()
    """The declared indexes that the request uses, and by which no stored object has a value."""
    lacks: str = ""
    """The reason for which the read would always raise NotKept; empty if it would not."""
    version: str = ""
    """The version of the stored objects: that of the last event or bookmark of each watch, the oldest one."""
    age: float = 0.0
    """The seconds since the server last confirmed them."""
    laid_over: int = 0
    """The number of objects newer than the watch has reported: own writes, and the handler's object."""
    divided: str = ""
    """The reason for which each replica caches its own namespaces only; empty if each caches all."""
    elsewhere: str = ""
    """The sentence that names the replica which handles a requested namespace; empty if this one does."""
    is_split: bool = False
    """True if `cache.list_outside` has the labels and owners of the objects outside of the filter."""

    def __str__(self) -> str:
        how = " and decodes those that fit so far" if self.decodes else ""
        found = [each for each in self.by if each not in ("names", "namespace")]
        which = f" that it finds by its {' and '.join(map(in_words, found))}," if found else ""
        lines = [
            f"{self.elsewhere}." if self.elsewhere else str(self.verdict),
            f"The cache looks at {counted(self.looks_at, 'cached object')}{which}{how}".rstrip(",") + ".",
        ]
        if self.indexes:
            lines.append(f"The first such read builds an index of {self.indexes} for the next ones.")
        lines += [f"No cached object has a value in the index {each}." for each in self.nowhere]
        if self.laid_over:
            lines.append(
                f"It shows {counted(self.laid_over, 'object')} newer than the watch has reported: your own"
                " writes, and the object of the handler."
            )
        if self.lacks:
            lines.append(f"A read raises NotKept: {self.lacks}.")
        if self.partial:
            lines.append(
                f"It only stores a part of each object, {self.partial}. Don't write a part back as a whole"
                " object."
            )
        if self.divided:
            lines.append(f"Each replica caches its own namespaces: {self.divided}.")
        if not self.verdict:
            if self.is_split:
                lines.append("cache.list_outside shows the labels and owners of objects outside the filter.")
            lines += [f"fetch_list asks the server: GET {path}." for path in self.asks]
        lines.append(f"The cache is at version {self.version}, confirmed {self.age:.1f} s ago.")
        return "\n".join(lines)


_logger = logging.getLogger("kopf_selectcache")

_FIRST = ("get", "list", "list_cached", "count", "info", "fetch", "fetch_list")
"""The reads that an error names."""

_CACHES_IN_REPR, _FILTER_CHARACTERS_IN_REPR = 10, 80


def no_container(what: str) -> TypeError:
    """Return the error of a cache that is used as if it were a dict of its kinds."""
    return miscalled(
        f"{what} doesn't work: a cache isn't a dict",
        remedy=(
            "For one object: cache.get(kind, name, namespace=...), or cache.exists(...)\n"
            "For several: cache.list(kind)\n"
            "For the kinds that are declared at the start: settings.selectcache.selectors"
        ),
    )


def no_such_read(cache: object, name: str) -> AttributeError:
    """Return the error of a read that a cache does not have."""
    what, remedy = f"a cache has no {name!r}", _suggest(cache, name, "cache.")
    if name == "blocking":  # This is a cache for threads, as below.
        remedy = "Call its methods directly, such as cache.fetch(...): they wait in this thread"
    elif name == "changes":
        remedy = "In sync code, use a handler: @selectcache.on.change(kind)"
    elif name in LIVE:
        removal = "\nTo stop caching a kind: cache.undeclare(...)" if name == "delete" else ""
        remedy = f"To write objects: cache.live.{name}(...){removal}"
    return no_attribute(what, remedy=remedy)


def no_such_write(name: str) -> AttributeError:
    """Return the error of a write that `cache.live` does not have."""
    verb, _, part = name.partition("_")
    if part in ("status", "scale") and verb in ("patch", "replace", "update"):
        remedy = f"Write: cache.live.{verb}(..., subresource={part!r})"
    elif meant := near(name, LIVE):
        remedy = f"Did you mean {meant}?"
    else:
        remedy = f"It has {', '.join(sorted(LIVE))}"
    return no_attribute(f"cache.live has no {name!r}", remedy=remedy)


def no_such_pinned_read(snapshot: object, name: str, of: type) -> AttributeError:
    """Return the error of a read that `cache.snapshot` does not have. `of` is the class of the cache."""
    if name in AWAITED or name in LIVE:
        remedy = f"Write: {call_of(name if name in AWAITED else f'live.{name}')}"
    elif name == "live":
        remedy = f"Write: {awaited_call('live').removeprefix('await ')}"
    elif hasattr(of, name):
        remedy = f"Write: cache.{name}{'' if isinstance(getattr(of, name), property) else '(...)'}"
    else:
        remedy = _suggest(snapshot, name)
    return no_attribute(f"a snapshot has no {name!r}", remedy=remedy)


def _suggest(of: object, name: str, prefix: str = "") -> str:
    reads = [each for each in dir(of) if not each.startswith("_")]
    meant = near(name, reads)
    return (
        f"Did you mean {prefix}{meant}?"
        if meant
        else f"To read: {', '.join(each for each in _FIRST if each in reads)}"
    )


def describe(of: type, runtime: Runtime) -> str:
    """Return `repr(cache)`: its caches, with their filters and states."""
    name = next(each.__name__ for each in of.__mro__ if not each.__name__.startswith("_"))
    try:
        informers = list(runtime.informers.values())
    except ReadError as error:  # The operator has not started yet, or has ended.
        return f"<{name}: {clipped(error.what, _FILTER_CHARACTERS_IN_REPR)}>"
    caches = [
        f"{informer}: {clipped(informer.state.filter, _FILTER_CHARACTERS_IN_REPR)}{_options_of(informer)}"
        f" ({informer.state.health})"
        for informer in informers[:_CACHES_IN_REPR]
    ]
    more = [f"{len(informers) - _CACHES_IN_REPR:,} more"] if len(informers) > _CACHES_IN_REPR else []
    return f"<{name} {'; '.join([*caches, *more]) or 'of no kinds'}>"


def _options_of(informer: Informer) -> str:
    """Return the options of a cache that do not store whole objects, or not those of the filter alone."""
    options = [
        "metadata_only=True" if informer.state.projection.metadata_only else "",
        f"outside={informer.declared.outside!r}" if informer.declared.outside else "",
    ]
    return "".join(f", {each}" for each in options if each)


def explain(
    request: Request, snapshot: Snapshot, *, age: Callable[[], float | None], divided: str
) -> Explanation:
    """Return if the filter covers a request, and the work of answering it."""
    compared = snapshot.comparisons.of(request.region())
    lacks = ""
    try:
        require_stored(request, snapshot.resource, snapshot.projection)
    except NotKept as error:
        lacks = error.line
    try:
        match = match_of(request, snapshot, compared)
    except BadField as problem:
        raise unknown_field_error(request, problem.label, snapshot.projection) from None
    chosen, pairs = snapshot.laid_over(match.lookup, asking=False)
    differing = {
        record.key for pair in pairs for record in pair if record is not None and match.lookup.admits(record)
    }
    records, version = snapshot.store.records()
    return Explanation(
        verdict=compared.verdict,
        looks_at=0 if compared.is_excluded else chosen.size,
        decodes=match.left(chosen.rest).decodes,
        by=chosen.by,
        indexes=str(chosen.missing or ""),
        nowhere=tuple(
            str(index)
            for index, _ in (*match.values, *match.lookup.where)
            if _is_without_values(index, records)
        ),
        asks=tuple(written(path, query) for path, query in questions(snapshot.resource, compared.selector)),
        partial=str(snapshot.projection),
        lacks=lacks,
        version=version,
        age=age() or 0.0,
        laid_over=len(differing),
        divided="" if snapshot.resource.kind.namespaced is False else divided,
        elsewhere=_elsewhere(request, snapshot, compared),
        is_split=snapshot.plan is not None and snapshot.plan.is_split,
    )


def _elsewhere(request: Request, snapshot: Snapshot, compared: Compared) -> str:
    """Return the sentence of a read that another replica could answer; empty if none could."""
    if compared.verdict or snapshot.serving is None:
        return ""
    error = outside_of(request, compared.coverage, snapshot)
    return error.what if isinstance(error, OutsideFilter) and error.reason is Reason.SHARD else ""


def _is_without_values(index: Indexed, records: Sequence[Record]) -> bool:
    """Return True if it is known that no record has a value."""
    known = map(index.known, records)  # One that has a value ends it.
    return bool(records) and all(
        values is not None and not any(value is not None for value in values) for values in known
    )


async def add_indexes(
    informer: Informer, request: Request, snapshot: Snapshot, indexes: Mapping[str, object]
) -> None:
    """Build indexes of the cached objects, and keep them."""
    if not indexes:
        raise ReadError("cache.add_index() needs an index", remedy="Give one, such as node='spec.nodeName'")
    try:
        made = declared_indexes(indexes, late=True)
    except DeclarationError as error:
        raise as_read_error(request.verb, error) from error

    def check() -> None:
        present = informer.state
        for each in made:
            if (known := present.indexes.get(each.name)) is None:
                if each.path is not None:
                    _require_exact(request, each.path, present.projection)
            elif not known.is_like(each):
                raise _taken(request, known)

    ready = [replace(each, failing=_log_failure(snapshot.resource, each.name)) for each in made]
    try:
        await informer.swapper.indexing.add(ready, check)
    except IndexFailed as failed:
        raise index_error(request, failed) from None


def _require_exact(request: Request, path: Keys, projection: Projection) -> None:
    """Raise NotKept if the stored objects may lack the values of a path."""
    if not projection.exact(path):
        if not projection.has_field([path]):
            raise not_stored_error(request, path, projection)
        what = f"the cache of {request.kind_text} does not store {as_written(path)!r} as the server sends it"
        raise NotKept(what, remedy="Declare the index in Cached(..., index=...): it then sees whole objects")


def _taken(request: Request, known: Indexed) -> ReadError:
    remedy = "Use another name\nDefine its function once: each lambda is another function"
    return ReadError(
        f"the cache of {request.kind_text} has another index with this name: {known}", remedy=remedy
    )


def _log_failure(resource: Resource, name: str) -> Failing:
    """Return a function that logs the first object for which the function of an added index fails."""
    logged: list[str] = []

    def failing(key: tuple[str, str], why: str) -> None:
        if not logged:
            logged.append(why)
            _logger.warning(
                "The index %(index)s of %(resource)s leaves out %(object)s and other objects for which its"
                " function fails: %(why)s. Correct it: %(advice)s.",
                {
                    "resource": str(resource),
                    "object": "/".join(filter(None, key)),
                    "why": why,
                    "index": shown(name),
                    "advice": NO_VALUE,
                },
                extra={"resource": str(resource)},
            )

    return failing


# ---- `Info`: the filter of one cache, where its values come from, its state, and the memory that it
# takes.

MEASURED_OBJECTS = 500
"""Number of objects that are measured, as a sample of all."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a cache in bytes: `records`, `json` and `indexes` are estimates. `str` gives lines."""

    objects: int
    """The number of stored objects."""
    stored: int
    """The objects as they are stored."""
    values: int
    """The values beside them: those of declared indexes, and of dropped fields that selectors can use."""
    json: int
    """The objects in JSON, as reads decode them."""
    records: int
    """The names, uids and versions. Values that objects share, such as labels, are not counted."""
    unreadable: int
    """The number of objects that cannot be read: nothing of them is stored."""
    indexes: Mapping[str, int]
    """The containers of each index, by its name. An index that is being built is not included."""
    own_writes: int = 0
    """The number of own writes that the watch has not reported yet. They are not counted above."""

    def __str__(self) -> str:
        lines = [
            counted(self.objects, "object"),
            f"  {self.stored:,} bytes stored, of about {self.json:,} in JSON",
        ]
        if self.values:
            lines.append(
                f"  {self.values:,} bytes for values of declared indexes, and of fields that were"
                f" dropped{self._apiece(self.values)}"
            )
        if self.unreadable:
            lines.append(f"  {self.unreadable:,} of them can't be read")
        if self.own_writes:
            lines.append(f"  {self.own_writes:,} own writes that the watch has not reported yet")
        lines.append(f"  {self.records:,} bytes for names, uids and versions{self._apiece(self.records)}")
        for by, size in self.indexes.items():
            lines.append(f"  {size:,} bytes for the {in_words(by)}{self._apiece(size)}")
        return "\n".join(lines)

    def _apiece(self, size: int) -> str:
        return f": {size / self.objects:,.0f} an object" if self.objects else ""


def memory_of(store: Readable, own_writes: OwnWrites) -> Memory:
    """Return the memory of a store. Visits all records in the calling thread, without a lock."""
    records, _ = store.records()
    weights = store.weights()
    samples = records[:: max(1, len(records) // MEASURED_OBJECTS)]
    each = len(records) / len(samples) if samples else 0.0
    whole = weights_of(records)
    return Memory(
        objects=whole.objects,
        stored=whole.stored,
        values=whole.values,
        json=round(each * sum(len(record.data) for record in samples if record.stored)),
        records=round(each * _besides(samples)) + weights.pop(""),
        unreadable=sum(not record.stored for record in records),
        indexes=weights,
        own_writes=len(own_writes),
    )


def _besides(records: Sequence[Record]) -> int:
    """Return the bytes of the records with their names, uids and versions, including Python's overhead."""
    empty = getsizeof(b"")
    return sum(
        getsizeof(record) + empty + sum(map(getsizeof, (record.name, record.uid, record.version)))
        for record in records
    )


@dataclass(frozen=True, slots=True)
class Info:
    """The cache of one kind at a moment, from `cache.info`. `str` gives one line of text."""

    kind: str
    """The kind, as it is declared."""
    filter: Selector | AnyOf
    """The present filter. Namespaces that it chooses by a label are those that have the label now."""
    origins: tuple[Origin, ...]
    """The level that each value comes from: a namespace of the kind, the kind, or the defaults."""
    state: str
    """Its health, such as `synced`, `stale` or `forbidden`."""
    trouble: str
    """The failure; empty if there is none."""
    age: float | None
    """The seconds since the server last confirmed the objects; None before the first list."""
    version: str
    """The resourceVersion that the cache has reached; empty before the first list."""
    objects: int
    """The number of cached objects."""
    _memory: Callable[[], Memory] = field(repr=False, compare=False)

    @property
    def memory(self) -> Memory:
        """The bytes of the objects and of each index. It visits all of them: don't ask at each event."""
        return self._memory()

    @property
    def bytes(self) -> int:
        """The bytes of the objects, of what is known of each, and of the indexes."""
        memory = self.memory
        return memory.stored + memory.values + memory.records + sum(memory.indexes.values())

    def __str__(self) -> str:
        age = "" if self.age is None else f", {self.age:.0f} s old"
        trouble = f": {self.trouble}" if self.trouble else ""
        objects = counted(self.objects, "object")
        return f"{self.kind} with {clipped(self.filter)}: {objects}{age}, {self.state}{trouble}"


def info_of(informer: Informer) -> Info:
    """Return the info of an informer."""
    store, own_writes = informer.state.store, informer.state.own_writes
    records, version = store.records()
    return Info(
        str(informer),
        informer.state.filter,
        informer.declared.origins_for(informer.state.resource),
        informer.state.health.value,
        informer.state.message,
        informer.state.age(),
        version,
        len(records),
        partial(memory_of, store, own_writes),
    )
