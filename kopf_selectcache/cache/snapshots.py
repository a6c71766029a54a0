"""Snapshots: opens the state of one kind that one read looks at, and answers the request from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import itemgetter
from threading import get_ident
from typing import Any, NamedTuple, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from kopf_selectcache._errors import DeclarationError, NotDeclared, NotSynced, ReadError, Stalled, own_loop
from kopf_selectcache.core.errors import BadField, Untransformed
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.selection.regions import Answer
from kopf_selectcache.core.store.claims import OwnWrites
from kopf_selectcache.core.store.indexes import Lookup, Selection
from kopf_selectcache.core.store.packing import RAW
from kopf_selectcache.core.store.projection import Projection, at
from kopf_selectcache.core.store.record import (
    ObjectKey,
    OutsideRecord,
    PartialRecord,
    Record,
    UnreadableRecord,
    is_newer,
    is_older,
)
from kopf_selectcache.core.store.store import Readable
from kopf_selectcache.informer.environment import Unanswered
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.state import InformerState, Serving
from kopf_selectcache.selectors.kind_keys import checked_key, key_of
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.selectors.selecting import selects
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.settings.planner import Plan

from ._checks import index_values, require_namespace, require_place, require_stored
from ._outside import outside_labelled, require_inside, serving_of, shown_outside, swap_hint
from ._overlay import Own, Pair, is_of, laid_over, latest_of, own_of
from .errors import (
    Hint,
    NotFound,
    OutsideFilter,
    Unreadable,
    behind_error,
    for_request,
    no_answer_error,
    no_hint,
    not_declared_error,
    not_synced_error,
    not_whole_error,
    request_error,
    stale_error,
    unknown_field_error,
)
from .formats.partial import object_of
from .formats.views import BodyView, Objects
from .freshness import AT_LEAST_SECONDS, is_as_new, require_comparable, wait
from .matcher import Compared, Comparisons, Coverage, Match, key_for
from .request import AtLeast, Request, Requests, as_read_error

_T = TypeVar("_T")

_NAME = ("metadata", "name")


class Snapshot(Struct, frozen=True, eq=False):
    """The state of one kind for one read. Each call of a method reads one generation."""

    comparisons: Comparisons
    store: Readable
    own_writes: OwnWrites
    """The own writes that the streams have not reported yet."""
    body: Mapping[str, Any] | None = None
    """The body that the handler was called with, of any kind."""
    deleted: bool = False
    """True if the handler was called with a deletion: no selector may match the labels of the body."""
    serving: Serving | None = None
    """The namespaces that the filter chooses by label; None if it chooses none."""
    plan: Plan | None = None
    """The plan of the streams."""

    @property
    def resource(self) -> Resource:
        return self.comparisons.resource

    @property
    def projection(self) -> Projection:
        """The stored part of each object, the handler's own as well."""
        return self.comparisons.projection

    def get(self, namespace: str, name: str) -> tuple[Record | None, str]:
        """Return the object, or None if it is absent, and the version as of which that is true."""
        found, version = self._get(namespace, name)
        if isinstance(found, OutsideRecord) or (found is not None and self.is_lost(found)):
            return None, version
        return found, version

    def locate(self, namespace: str, name: str) -> tuple[Record | None, str]:
        """Return the object of a split cache, inside or outside the filter, and the version."""
        key = namespace, name
        own = self._own(self.store.version) if self._own_key() == key else None
        with self.own_writes.lock:
            held, version = self.store.locate(namespace, name)
            return self._located(key, held, version, own)[:2]

    def _located(
        self, key: ObjectKey, held: Record | None, version: str, own: Own | None
    ) -> tuple[Record | None, str, bool]:
        """Return the object of a key of a split cache, the version, and if the object is outside."""
        found, as_of = self._newest(key, held, version, own)
        if found is None:
            return shown_outside(held, version, self.own_writes.get(key), own), as_of, True
        return found, as_of, isinstance(found, OutsideRecord) or self.is_lost(found)

    def sides(self) -> tuple[dict[ObjectKey, Record], dict[ObjectKey, Record]]:
        """Return the objects inside and outside of the filter of a split cache, of one generation."""
        sides = dict[ObjectKey, Record](), dict[ObjectKey, Record]()
        key = self._own_key()
        own = self._own(self.store.version) if key is not None else None
        with self.own_writes.lock:
            records, version = self.store.all_records()
            known = (*self.own_writes.writes, *self.own_writes.resting)
            present: dict[ObjectKey, Record | None] = dict.fromkeys(known)
            if key is not None and own is not None:
                present[key] = None
            for record in records:
                if record.key in present:
                    present[record.key] = record
                else:
                    sides[isinstance(record, OutsideRecord) or self.is_lost(record)][record.key] = record
            for each, held in present.items():
                found, _, is_outside = self._located(each, held, version, own if each == key else None)
                if found is not None:
                    sides[is_outside][each] = found
        return sides

    def _get(self, namespace: str, name: str) -> tuple[Record | None, str]:
        key = namespace, name
        own = self._own(self.store.version) if self.body is not None and self._own_key() == key else None
        if own is None and not self.own_writes.writes:
            return self.store.get(namespace, name)
        with self.own_writes.lock:
            held, version = self.store.locate(namespace, name)  # It may be outside since the write.
            return self._newest(key, held, version, own)

    def chosen(self, lookup: Lookup, *, asking: bool = True) -> Selection:
        """Return the candidates for a lookup, as of one generation."""
        if self.body is None and not self.own_writes.writes:
            chosen = self.store.chosen(lookup, asking=asking)
        else:
            chosen, _ = self.laid_over(lookup, asking=asking)
        chosen = self.store.checked(chosen)
        if self.serving is None or not self.serving.lost:
            return chosen
        return chosen._replace(
            records=[each for each in chosen.records if not self.is_lost(each)],
            unreadable=tuple(each for each in chosen.unreadable if not self.is_lost(each)),
        )

    def is_lost(self, record: Record) -> bool:
        """Return True if its namespace has lost the label: its objects are held until their streams end."""
        if self.serving is None or record.namespace not in self.serving.lost:
            return False
        return selects(self.comparisons.filter, record, self.resource, self.projection) is False

    def laid_over(self, lookup: Lookup, *, asking: bool = True) -> tuple[Selection, list[Pair]]:
        """Return the candidates for a lookup, and each stored object for which they have another one."""
        key, pairs = self._own_key(), list[Pair]()
        own = self._own(self.store.version) if key is not None else None
        if not self.own_writes.writes:
            chosen = self.store.chosen(lookup, key, asking=asking)
            if key is not None:
                pairs = [(chosen.beside, self._newest(key, chosen.beside, chosen.version, own)[0])]
        else:
            with self.own_writes.lock:
                chosen = self.store.chosen(lookup, key, asking=asking)
                keys = {write.key for write in self.own_writes} | ({key} if key is not None else set())
                for each in keys:
                    held, _ = self.store.locate(*each)  # It may be outside since the write.
                    newest, _ = self._newest(each, held, chosen.version, own if each == key else None)
                    pairs.append((_inside(held), _inside(newest)))
        pairs = [(held, shown) for held, shown in pairs if held is not shown]
        return (laid_over(chosen, lookup, pairs) if pairs else chosen), pairs

    def newest(self, held: Record) -> Record | None:
        """Return an object of the stream, or a newer one of the handler or of the own writes."""
        own = self._own(held.version) if self._own_key() == held.key else None
        with self.own_writes.lock:
            return self._newest(held.key, held, held.version, own)[0]

    def _newest(
        self, key: tuple[str, str], held: Record | None, version: str, own: Own | None
    ) -> tuple[Record | None, str]:
        """Return the newest object of a key, own or stored, and the version as of which that is true."""
        write = self.own_writes.get(key)
        if own is not None and not is_older(version, own.version):
            own = None  # The store has moved on since it was read.
        found, since = held, version
        if write is not None and own is not None and is_older(write.version, own.version):
            found = own.instead_of(write.instead_of(held, version))
            since = own.version
        else:
            if own is not None:
                found, since = own.instead_of(held), own.version
            if write is not None:
                found, since = write.instead_of(found, version), write.version
        if found is held:
            return held, version
        return found, found.version if found is not None else since or version

    def _own_key(self) -> tuple[str, str] | None:
        """Return the namespace and name of the handler's own object, or None if it has none of this kind."""
        if self.body is None or not is_of(self.body, self.resource):
            return None
        metadata = self.body.get("metadata") or {}
        return metadata.get("namespace") or "", metadata.get("name") or ""

    def _own(self, version: str) -> Own | None:
        """Return the handler's own object if it is newer than this version. Don't lock the own writes."""
        assert self.body is not None, "its key is that of the body"
        within = self.comparisons
        return own_of(
            self.body,
            within.resource,
            within.filter,
            deleted=self.deleted,
            version=version,
            projection=within.projection,
            indexes=tuple(within.indexes.values()),
        )


# ---- Opening.


def _inside(record: Record | None) -> Record | None:
    return None if isinstance(record, OutsideRecord) else record


def informer_of(runtime: Runtime, request: Request) -> Informer:
    """Return the informer of the requested kind; raise NotDeclared, or NotSynced while it is unknown."""
    try:
        key = key_of(request.kind)
        try:
            return runtime.informer(key)
        except (NotDeclared, NotSynced):
            checked_key(key)
            raise
    except NotDeclared as error:
        raise not_declared_error(error, request) from None
    except NotSynced as error:
        raise for_request(error) from None
    except DeclarationError as error:
        raise as_read_error(request.verb, error) from error


def open_snapshot(
    informer: Informer, request: Request, own: Mapping[str, Any] | None, *, deleted: bool
) -> Snapshot:
    """Return a snapshot for this handler; raise NotSynced, StateError or Stale if it cannot be read."""
    state = informer.state
    store: Readable | None = None if state.has_several_streams else state.ready
    if store is None:
        store = require_readable(informer, request)
    if request.max_age is not None:
        age = informer.state.age(region_of(request))
        if informer.state is state and (age is None or age > request.max_age):
            raise stale_error(request, age)
    is_behind = request.at_least is not None and not is_as_of(informer, request, request.at_least)
    if informer.state is not state:  # The loop's thread has replaced it meanwhile.
        return open_snapshot(informer, request, own, deleted=deleted)
    comparisons: Comparisons = state.derived.value or comparisons_of(state)
    serving = serving_of(informer, state) if state.followed else None
    if own is not None:
        own, deleted = latest_of(own, state, deleted=deleted)
    snapshot = Snapshot(comparisons, store, state.own_writes, own, deleted, serving, state.plan)
    if is_behind:
        require_shown(request, snapshot, comparable=state.union.has_one_epoch)
    return snapshot


def is_as_of(informer: Informer, request: Request, at_least: AtLeast) -> bool:
    """Return True if the streams of a request are as new as a version; raise ReadError without an order."""
    require_comparable(informer, at_least)
    return is_as_new(informer, at_least, region_of(request))


def require_shown(request: Request, snapshot: Snapshot, *, comparable: bool, pinned: bool = False) -> None:
    """Raise Stale unless the requested object itself is shown as new as the version, as own writes are."""
    assert request.at_least is not None, "only such requests can be behind"
    if request.name is not None and comparable:
        shown, _ = snapshot.get(request.namespace or "", request.name)
        if shown is not None and not is_newer(request.at_least.version, shown.version):
            return
    raise behind_error(request, snapshot.store.version, pinned=pinned)


def comparisons_of(state: InformerState) -> Comparisons:
    """Return the comparisons of requests with the filter of an informer whose resource is known."""
    if state.derived.value is not None:
        known: Comparisons = state.derived.value
        return known
    assert state.resource is not None, "the kind is synced, and its resource is not known"
    derived = Comparisons(state.resource, state.filter, state.projection, state.indexes)
    state.derived.value = derived
    return derived


def require_declared(informer: Informer, request: Request) -> None:
    """Raise NotDeclared if the kind was removed since the read has found its informer."""
    if informer.ending.reached:
        raise not_declared_error(informer.ending.error(), request)


def require_readable(informer: Informer, request: Request, *, after: float | None = None) -> Readable:
    """Return the store that a request needs; raise why it can't be read (`after` as many seconds)."""
    require_declared(informer, request)
    part = informer.state.part(region_of(request) if informer.state.has_several_streams else None)
    if part.error is not None:
        raise for_request(part.error, informer.state.filter)
    if informer.state.resource is None or not part.store.version:
        error = not_synced_error(informer.key, part.message, part.remedy, after=after)
        raise for_request(error, informer.state.filter)
    return part.store


def region_of(request: Request) -> Selector | None:
    """Return the selector of the requested objects; None for all, and for a name that no object can have."""
    if request.name is None:
        return request.selector
    try:
        return request.region()
    except DeclarationError:
        return None


class Counted:
    """Counts a read with its outcome, and turns errors of other layers into errors of the read."""

    __slots__ = ("_informer", "_request")

    def __init__(self, informer: Informer, request: Request) -> None:
        self._informer = informer
        self._request = request

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self._informer.counts.reads_by_thread[get_ident(), self._request.verb, "served"] += 1
        else:
            _count_error(self._informer, self._request, error)


def _count_error(informer: Informer, request: Request, error: BaseException) -> None:
    """Count a read that fails; raise the error of the read if it is one of another layer."""
    if isinstance(error, (ReadError, TimeoutError, asyncio.CancelledError)):
        outcome = type(error).__name__
    else:
        outcomes = {DeclarationError: ReadError, Untransformed: Stalled}
        outcome = next((to.__name__ for of, to in outcomes.items() if isinstance(error, of)), "failed")
    informer.counts.reads_by_thread[get_ident(), request.verb, outcome] += 1
    if isinstance(error, DeclarationError):
        raise as_read_error(request.verb, error) from error
    if isinstance(error, Untransformed):
        raise request_error(request, error) from None


class Access:
    """Opens snapshots for requests, and answers them: for one handler. `requests` builds them.

    `own` is the body that the handler was called with, `deleted` is True if it was called with a deletion.
    `run` runs a coroutine on the operator's loop, and waits for it in a thread.
    """

    def __init__(
        self,
        runtime: Runtime,
        own: Mapping[str, Any] | None,
        run: Callable[[Callable[[], Coroutine[Any, Any, None]], asyncio.AbstractEventLoop], None],
        *,
        deleted: bool,
    ) -> None:
        self.runtime = runtime
        self._run = run
        self._own = own
        self._deleted = deleted
        self.requests = runtime.memo.of(Requests)
        self._own_name: tuple[object] | None = None  # Found at the first read.

    def read(self, request: Request, answer: Callable[[Request, Snapshot], _T]) -> _T:
        """Return the answer from a snapshot of the kind, and count the read with its outcome."""
        informer = self.runtime.names.quick.get(request.kind) if type(request.kind) is str else None
        if informer is None:
            informer = informer_of(self.runtime, request)
        if request.at_least is not None and own_loop() is None and self.runtime.loop.is_running():
            self._run(lambda: self.wait(request), self.runtime.loop)
        try:  # As `Counted`, in fewer calls.
            found = answer(request, self.open(informer, request))
        except BaseException as error:
            _count_error(informer, request, error)
            raise
        informer.counts.reads_by_thread[get_ident(), request.verb, "served"] += 1
        return found

    def open(self, informer: Informer, request: Request) -> Snapshot:
        return open_snapshot(informer, request, self._own, deleted=self._deleted)

    async def wait(self, request: Request) -> None:
        """Wait until the cache is as new as the version of a request, for a few seconds at most."""
        if request.at_least is None:
            return
        with suppress(NotDeclared, NotSynced):  # The read raises it, or asks the server.
            informer = informer_of(self.runtime, request)
            seconds = AT_LEAST_SECONDS if request.timeout is None else min(AT_LEAST_SECONDS, request.timeout)
            if not is_as_of(informer, request, request.at_least):
                await wait(informer, request.at_least, region_of(request), seconds)

    async def work(
        self, request: Request, work: Callable[[Informer, Request, Snapshot], Coroutine[Any, Any, _T]]
    ) -> _T:
        """Await some work on the cache of a kind, and count it; raise NotDeclared if the kind is removed."""
        informer = informer_of(self.runtime, request)
        with Counted(informer, request):
            return await informer.ending.limit(work(informer, request, self.open(informer, request)))

    async def retry(self, request: Request, attempt: Callable[[Request], Awaitable[_T]]) -> _T:
        """Return the answer; with a timeout, retry transient failures until it ends."""
        if request.timeout is None:
            return await attempt(request)
        try:
            return await self.runtime.retries.run(lambda: attempt(request), request.timeout)
        except Unanswered:
            raise no_answer_error(request) from None

    def get_fast(
        self,
        verb: str,
        kind: object,
        name: object,
        namespace: object,
        make: Callable[[Record], _T],
        *,
        lossless: bool = False,
    ) -> _T | None:
        """Return the object in its form if it is held and needs no checks; else None, for the complete read.

        Most reads are of this kind. A held object needs no comparison with the filter. The handler's own
        object is excluded, because the body may be newer. With `lossless`, objects must be stored as a whole.
        """
        own = self._own_name
        if own is None:
            own = self._own_name = (at(self._own, _NAME) if self._own is not None else None,)
        if type(name) is Key and namespace is None:
            namespace, name = name.namespace, name.name
        if type(kind) is not str or type(name) is not str or name == own[0]:
            return None
        if namespace is None:
            namespace = ""
        elif type(namespace) is not str or not namespace:
            return None
        informer = self.runtime.names.quick.get(kind)
        if informer is None:
            return None
        state = informer.state
        if (
            state.own_writes.writes
            or (store := state.ready) is None
            or (lossless and state.projection.partial)
            or state.lost
        ):
            return None
        record = store.peek(namespace, name)
        if record is None or not record.stored:
            return None
        try:
            if make is Record.decode:
                if record.__class__ is PartialRecord:
                    make = cast("Any", object_of)
                elif record.packing is not None and record.stored[0] != RAW and store.often_read is not None:
                    make = cast("Any", store.often_read.decode)
            answer = make(record)
        except Exception:  # It may be anything of a struct; the other way raises and counts it.  # noqa: BLE001
            return None
        informer.counts.reads_by_thread[get_ident(), verb, "served"] += 1
        return answer


# ---- Answers.


def get_record(request: Request, snapshot: Snapshot) -> Record:
    """Return the record of one object; raise NotFound if it is absent, OutsideFilter if it may exist."""
    comparisons, namespace, name = snapshot.comparisons, request.namespace or "", request.name or ""
    if comparisons.resource.kind.namespaced is not bool(namespace):
        require_place(request, comparisons.resource)
    record, version = snapshot.get(namespace, name)
    if record is not None:
        return record
    require_namespace(request)
    coverage = comparisons.of_object(namespace, name)
    plan = snapshot.plan
    hint = partial(swap_hint, snapshot.get, namespace, name)
    if plan is not None and plan.is_split and plan.proves(namespace):
        return require_inside(request, coverage, comparisons, *snapshot.locate(namespace, name), hint)
    if coverage.answer is Answer.YES:
        raise NotFound(request, version, hint=hint)
    raise outside_of(request, coverage, snapshot, hint)


def get_object(request: Request, snapshot: Snapshot) -> Any:
    """Return one object in its form; raise the errors of `get_record`, and Unreadable."""
    if request.form is not None:
        require_stored(request, snapshot.resource, snapshot.projection)
    record = get_record(request, snapshot)
    if request.whole and snapshot.projection.partial:
        raise not_whole_error(request, snapshot.projection)
    if isinstance(record, UnreadableRecord):
        raise Unreadable(request, [record])
    return object_of(record) if request.form is None else request.form.make(record, None)


def list_objects(request: Request, snapshot: Snapshot) -> Sequence[Any]:
    """Return all requested objects; raise OutsideFilter if some of them may not be cached."""
    return form_objects(request, *_find_all(request, snapshot))


def list_held(request: Request, snapshot: Snapshot) -> Sequence[Any]:
    """Return the cached objects that are requested; raise OutsideFilter if none can ever be cached."""
    compared = compare(request, snapshot)
    require_overlap(request, compared, snapshot)
    return form_objects(request, *find(request, snapshot, compared))


def count_objects(request: Request, snapshot: Snapshot) -> int:
    """Return the number of requested objects; raise OutsideFilter if some of them may not be cached."""
    found = _find_all(request, snapshot)
    return found.match.count(found.records)


def _find_all(request: Request, snapshot: Snapshot) -> Candidates:
    compared = compare(request, snapshot)
    if not compared.is_covered:
        raise outside_of(request, compared.coverage, snapshot)
    found = find(request, snapshot, compared)
    if found.unreadable:
        raise Unreadable(request, found.unreadable)
    return found


def compare(request: Request, snapshot: Snapshot) -> Compared:
    """Return the comparison of the request with the filter; raise ReadError if its options do not fit."""
    if not request.is_plain:
        require_stored(request, snapshot.resource, snapshot.projection)
        if request.whole and snapshot.projection.partial:
            raise not_whole_error(request, snapshot.projection)
    assert request.selector is not None, "a read of several objects has a selector"
    is_elsewhere = request.at_owner and snapshot.resource.kind.namespaced is False
    selector = request.selector.in_namespaces(None) if is_elsewhere else request.selector
    return snapshot.comparisons.of(selector)


def require_overlap(request: Request, compared: Compared, snapshot: Snapshot, *, lasts: bool = False) -> None:
    """Raise OutsideFilter if none of the objects can ever be cached. One that `lasts` may wait for some."""
    if lasts and snapshot.serving is not None and compared.selector.namespaces is None:
        return
    if compared.is_excluded:
        error = outside_of(request, compared.coverage, snapshot)
        if compared.selector.namespaces is not None or getattr(error, "reason", "") != "shard":
            raise error  # Of all namespaces, this replica may have none at present.


class Candidates(NamedTuple):
    """The candidates of a request, as of one generation."""

    match: Match
    """The predicate that they have still to meet."""
    records: Sequence[Record]
    unreadable: Sequence[UnreadableRecord]
    """The unreadable objects that may meet it."""
    version: str
    """The version of the generation."""


def find(request: Request, snapshot: Snapshot, compared: Compared) -> Candidates:
    """Return the candidates of a request."""
    try:
        if request.where is None and request.index is None and request.uid is None:
            return _look_up(compared.match, compared.lookup, snapshot)
        match = match_of(request, snapshot, compared)
        lookup = match.lookup
        if lookup == compared.lookup:
            lookup = compared.lookup  # The store repeats its answers to one and the same lookup.
    except BadField as problem:
        raise unknown_field_error(request, problem.label, snapshot.projection) from None
    return _look_up(match, lookup, snapshot)


def match_of(request: Request, snapshot: Snapshot, compared: Compared) -> Match:
    """Return the predicate of a request; raise BadField for a field that only the server knows."""
    match = compared.match
    if request.where is not None or request.index is not None:
        values = () if request.index is None else index_values(request, snapshot.comparisons.indexes)
        match = snapshot.comparisons.match(compared.selector, request.where, values)
    controller = request.uid if request.controller else None
    return match if request.uid is None else replace(match, owner=request.uid, controller=controller)


def lasting_match(request: Request, snapshot: Snapshot, compared: Compared) -> Match:
    """Return the predicate of a request that goes on under any filter; raise BadField."""
    try:
        return snapshot.comparisons.match(compared.selector, request.where, under=Selector())
    except BadField:
        return match_of(request, snapshot, compared)


def _look_up(match: Match, lookup: Lookup, snapshot: Snapshot) -> Candidates:
    chosen = snapshot.chosen(lookup)
    unreadable = match.unreadable(chosen.unreadable) if chosen.unreadable else ()
    left = match if chosen.rest == lookup else match.left(chosen.rest)
    return Candidates(left, chosen.records, unreadable, chosen.version)


def form_objects(
    request: Request,
    match: Match,
    records: Sequence[Record],
    unreadable: Sequence[Record] = (),
    version: str = "",
) -> Sequence[Any]:
    """Return the records that match in the requested form: sorted as dicts, then cut, then made. Dicts and
    views are made when they are reached.

    `unreadable` are those that may match as well, and are left out. `version` is the one as of which the
    answer is true.
    """
    form, limit = request.form, request.limit
    if form is None or form.given == "view":
        make = object_of if form is None else BodyView
        if request.sort_by is None:
            return Objects(match.first(records, limit), make, unreadable, version)
        key = key_for(request.sort_by)
        # The objects are dropped once they are sorted: many at once are what lazy lists avoid.
        keyed = sorted(((key(obj), record) for record, obj in match.pairs(records)), key=itemgetter(0))
        return Objects([record for _, record in keyed[:limit]], make, unreadable, version)
    if request.sort_by is None:
        return [form.make(record, obj) for record, obj in islice(match.records(records), limit)]
    by = key_for(request.sort_by)
    pairs = sorted(match.pairs(records), key=lambda pair: by(pair[1]))
    return [form.make(record, obj) for record, obj in pairs[:limit]]


def outside_of(request: Request, coverage: Coverage, snapshot: Snapshot, hint: Hint = no_hint) -> ReadError:
    """Return the error of a read that the filter does not cover; raise ReadError for an unknown index."""
    if request.index:
        index_values(request, snapshot.comparisons.indexes)  # The ways out would repeat its name.
    if snapshot.serving is None:
        return OutsideFilter(request, coverage, hint=hint)
    return outside_labelled(request, coverage, snapshot.comparisons, snapshot.serving, hint)
