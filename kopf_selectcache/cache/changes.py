"""Changes of cached objects, for handlers and background tasks, and the wait for the end of an object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress

from kopf_selectcache._errors import ConflictingSelectors, NotDeclared, ReadError, require
from kopf_selectcache.core.errors import BadField
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.change_queue import ChangeQueue, Narrowing, key_of
from kopf_selectcache.core.store.record import Record, compact_json
from kopf_selectcache.core.store.store import Change as StoreChange
from kopf_selectcache.core.store.store import ChangeCause
from kopf_selectcache.informer.environment import sleep_until
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.selectors.selector import of_unknown_namespaces

from ._labelled import serving_of
from .blocking import Waits, end_with
from .errors import OutsideFilter, unknown_field
from .formats.lazy_list import Objects
from .formats.views import BodyView
from .matcher import Match
from .request import Request, misdeclared
from .snapshots import (
    Access,
    Counted,
    Snapshot,
    compare,
    comparisons_of,
    informer_of,
    lasting_match,
    require_declared,
    require_overlap,
    require_readable,
)
from .waits import wait_until_as_new

BUFFER = 1000
"""The objects with pending changes of one iterator. A slower reader gets the present state instead."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two requests for an object that no watch reports."""


class Change:
    """A change of a cached object. The objects are views, as those of `as_='view'`.

    async for change in cache.changes('jobs', labels='app=web'):
        if change.new is None:
            print(change.name, change.cause, change.old['status'])
    """

    __slots__ = (
        "_change",
        "_resource",
        "_views",
        "cause",
        "filter_changed",
        "initial",
        "known_by",
        "objects",
    )

    def __init__(
        self,
        change: StoreChange | None,
        resource: Resource,
        cause: ChangeCause,
        objects: Sequence[BodyView] = (),
    ) -> None:
        self._change = change
        self._resource = resource
        self._views: dict[Record, BodyView] = {}
        self.cause = cause
        """`entered`, `updated`, `resync`, `left`, `deleted`, or `resumed`."""
        self.filter_changed = change is not None and change.by_filter
        """True if it entered or left because the filter of the cache was changed, and not the object."""
        self.initial = change is not None and change.initial
        """True if it entered because it was there when its subscriber began to follow the kind."""
        self.known_by = None if change is None else change.known_by
        """From what it is known that the object is `deleted`, or has `left` and exists; else None.

        `'filter by name'`: the filter selects by name and namespace alone. `'metadata'`: a split cache has
        all others. `'confirmed'`: by a request, or by another object of the name. `'cache'`: the cache has
        it, and it does not match what was asked for any more."""
        self.objects = objects
        """With `resumed`: all present objects that match. Otherwise empty."""

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def namespace(self) -> str | None:
        """The namespace; None for a cluster-scoped object."""
        return self._record.namespace or None

    @property
    def uid(self) -> str:
        return self._record.uid

    @property
    def old(self) -> BodyView | None:
        """The object before; None if it enters, or if it could not be read."""
        record = None if self._change is None else self._change.before
        return None if record is None or not record.stored else self._view(record)

    @property
    def new(self) -> BodyView | None:
        """The object now; None if it has departed."""
        record = None if self._change is None else self._change.after
        return None if record is None else self._view(record)

    @property
    def body(self) -> BodyView:
        """The object as it was last known. If only its metadata is known, it has no other part."""
        return self._view(self._record)

    @property
    def _record(self) -> Record:
        if self._change is None:
            raise ReadError(
                "a change with the cause 'resumed' is about several objects", remedy="Read its `objects`"
            )
        record = self._change.after or self._change.before
        assert record is not None, "a change has an object"
        return record

    def _view(self, record: Record) -> BodyView:
        view = self._views.get(record)
        if view is None:
            view = self._views[record] = BodyView(record if record.stored else self._metadata_of(record))
        return view

    def _metadata_of(self, record: Record) -> bytes:
        metadata = {
            "name": record.name,
            "namespace": record.namespace,
            "uid": record.uid,
            "resourceVersion": record.version,
            "labels": record.labels,
        }
        return compact_json(
            {
                "apiVersion": self._resource.api_version,
                "kind": self._resource.kind.kind,
                "metadata": {name: value for name, value in metadata.items() if value},
            }
        )

    def __repr__(self) -> str:
        """Return the identity of the object without its contents."""
        if self.cause is ChangeCause.RESUMED:
            return f"<Change: {self._resource} resumed with {len(self.objects)} objects>"
        return (
            f"<Change: {self._resource} {'/'.join(filter(None, (self.namespace, self.name)))} {self.cause}>"
        )


class Subscription:
    """The pending changes of one subscriber, of the objects that it wants. Used on the loop only."""

    def __init__(
        self,
        informer: Informer,
        request: Request | None,
        *,
        initial: bool = True,
        by_filter: bool = False,
        causes: Collection[ChangeCause] = frozenset(ChangeCause),
        buffer: int | None = None,
    ) -> None:
        self.queue = ChangeQueue(causes=causes)
        self.news = asyncio.Event()
        """Set whenever there may be a change to take."""
        self.error: ReadError | None = None
        """The first error of the comparison with an object; it does not match then."""
        self.failing = ""
        """The namespace and name of that object."""
        self.must_resume = False
        """True if there were too many changes: all of them are dropped until `resume`."""
        self._informer = informer
        self._request = request  # None for all objects.
        self._filter, self._projection = informer.filter, informer.projection
        self._match = None if request is None else match_for(informer, request)
        self._buffer = self._limit = float("inf") if buffer is None else buffer
        self._narrowing = Narrowing(self.queue, self._matches)
        self._wants_initial = initial
        self._is_start = not (by_filter or informer.is_complete)
        """True until the first lists are complete: until then, objects that enter were there before."""
        self._end = informer.subscribe(self._add, self._complete)
        if initial:
            present = informer.store.records()[0]
            for record in present:
                # With `by_filter` they are wanted only since the filter has changed.
                change = StoreChange(None, record, ChangeCause.ENTERED, by_filter, initial=not by_filter)
                self._narrowing.add(change)
            self._limit += len(self.queue)  # A reader is not slow because there are many objects.
            self.news.set()

    def close(self) -> None:
        self._end()

    def _matches(self, record: Record) -> bool:
        match = self._match
        if match is None:
            return True
        try:
            if not record.stored:
                return bool(match.unreadable([record]))  # type: ignore[list-item]  # It is one, or has no object.
            return any(True for _ in match.chosen([record]))
        except ReadError as error:
            if self.error is None:
                self.error, self.failing = error, printable_name(record.namespace, record.name)
            self.news.set()
            return False

    def _add(self, change: StoreChange | None) -> None:
        informer = self._informer
        has_changed = self._filter is not informer.filter or self._projection is not informer.projection
        if self._request is not None and has_changed:
            self._compare_again(self._request)
        if change is None:
            self.news.set()  # The reader looks at the filter again.
        if change is None or self.must_resume:
            return
        if self._is_start and change.cause is ChangeCause.ENTERED and not self._is_refused:
            if not self._wants_initial:
                return
            change = StoreChange(None, change.after, change.cause, change.by_filter, initial=True)
        pending = len(self.queue)
        if not pending:
            self._limit = self._buffer
        self._narrowing.add(change)
        if change.cause is ChangeCause.RESYNC:
            self._limit += len(self.queue) - pending  # A reader is not slow because all objects come again.
        self._limit_pending()

    def _compare_again(self, request: Request) -> None:
        """Look if objects can still be compared, since what is cached has changed."""
        self._filter, self._projection = self._informer.filter, self._informer.projection
        try:
            self._match = match_for(self._informer, request, must_overlap=False)
        except ReadError as error:
            self.error, self.failing = error, ""

    @property
    def _is_refused(self) -> bool:
        """True if a list may never be complete, because the server refuses it."""
        errors = [condition.error() for condition in self._informer.state.stream_conditions]
        return any(error is not None and not error.transient for error in errors)

    def _complete(self, departure_of: Callable[[Record], StoreChange]) -> None:
        self._is_start = False
        self.queue.complete(departure_of)
        self._limit_pending()

    def _limit_pending(self) -> None:
        if len(self.queue) > self._limit or (self.queue.lost and self._limit < float("inf")):
            self.must_resume = True
            self.queue.clear()
            self._narrowing.clear()
        self.news.set()

    @property
    def can_resume(self) -> bool:
        """True if there are all present objects. In the middle of a restart there are none, or some."""
        return self.must_resume and self._informer.is_complete

    def resume(self) -> Sequence[BodyView]:
        """Return all present objects, after which changes are queued again."""
        self.must_resume = False
        present = [record for record in self._informer.store.records()[0] if record.stored]
        return Objects([record for record in present if self._matches(record)], BodyView)


def match_for(informer: Informer, request: Request, *, must_overlap: bool = True) -> Match | None:
    """Return the predicate of the objects whose changes are wanted, under any filter, None for all; raise
    OutsideFilter if it is known that none can be cached at present.
    """
    state = informer.state
    serving = serving_of(informer, state)
    snapshot = Snapshot(comparisons_of(state), informer.store, informer.own_writes, serving=serving)
    compared = compare(request, snapshot)
    if must_overlap and of_unknown_namespaces(state.filter) is None:
        require_overlap(request, compared, snapshot, lasts=True)
    try:
        compared.selector.require_satisfiable(kind=snapshot.comparisons.kind)
        match = lasting_match(request, snapshot, compared)
    except ConflictingSelectors as error:
        raise misdeclared("changes", error) from None
    except BadField as problem:
        raise unknown_field(request, problem.label, snapshot.projection) from None
    return None if match == Match() else match


def changes(
    access: Access, request: Request, *, initial: bool, waits: Waits | None = None
) -> AsyncIterator[Change]:
    """Return an iterator of the changes of the requested objects."""
    require(isinstance(initial, bool), ReadError, "cache.changes()", "initial", initial, "True or False")
    return follow(access, request, initial=initial, waits=waits)


async def follow(
    access: Access, request: Request, *, initial: bool, buffer: int = BUFFER, waits: Waits | None = None
) -> AsyncIterator[Change]:
    """Yield each change of the requested objects until the operator ends, or the daemon that reads is
    stopped.
    """
    with end_with(() if waits is None else waits.stops) as ending:
        access.runtime.ending.include(ending)
        informer = None
        try:
            informer = await ending.limit(_settled_informer(access, request))
        except ReadError:
            if not ending.reached:
                raise
        if informer is None:
            return
        with Counted(informer, request):
            require_readable(informer, request)
            comparisons = comparisons_of(informer.state)
            subscription = Subscription(informer, request, initial=initial, buffer=buffer)
        try:
            while True:
                with suppress(ReadError):
                    ending.check()
                    await ending.limit(informer.ending.limit(subscription.news.wait()))
                if ending.reached:
                    return
                require_declared(informer, request)
                subscription.news.clear()
                if subscription.error is not None:
                    raise subscription.error
                resource = informer.resource
                assert resource is not None, "it has been read"
                outside: OutsideFilter | None = None
                if comparisons is not (comparisons := comparisons_of(informer.state)):
                    try:
                        with Counted(informer, request):
                            match_for(informer, request)
                    except OutsideFilter as error:
                        outside = error  # The departures come first.
                if subscription.can_resume:
                    yield Change(None, resource, ChangeCause.RESUMED, subscription.resume())
                for change in subscription.queue.drain():
                    if ending.reached:
                        return
                    yield Change(change, resource, change.cause)
                if outside is not None:
                    raise outside
                if subscription.can_resume:
                    subscription.news.set()
        finally:
            subscription.close()


async def _settled_informer(access: Access, request: Request) -> Informer:
    await access.runtime.wait_started(request.verb)
    informer = informer_of(access.runtime, request)
    await informer.wait_until_settled(request.selector)
    await wait_until_as_new(informer, request)
    return informer


async def wait_deleted(
    access: Access, request: Request, is_gone: Callable[[Request], Awaitable[bool]]
) -> None:
    """Wait until an object does not exist any more. The watch shows when a cached object departs; one that is
    not cached is looked for on the server again and again.
    """
    retries = access.runtime.retries
    key = request.namespace or "", request.name or ""
    informer = _informer_if_any(access, request)
    departed = asyncio.Event()

    def see(change: StoreChange | None) -> None:
        if change is not None and change.after is None and key_of(change) == key:
            departed.set()

    end = informer.subscribe(see) if informer is not None else (lambda: None)
    limit = asyncio.timeout(request.timeout)
    try:
        async with limit:
            pause = FIRST_PAUSE
            while True:
                departed.clear()
                if await retries.run(lambda: is_gone(request), float("inf")):
                    return
                if informer is not None and informer.ending.reached:
                    informer = None  # It was removed: the server is asked from now on.
                if informer is not None and informer.store.get(*key)[0] is not None:
                    pause = FIRST_PAUSE
                    with suppress(NotDeclared):
                        await informer.ending.limit(departed.wait())
                else:
                    await sleep_until(departed, retries.sleep(pause * (0.5 + retries.chance())))
                    pause = min(LONGEST_PAUSE, 2 * pause)
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(
            f"{request.subject} still exists. Wait longer with timeout=, or raise kopf.TemporaryError to"
            " check again later."
        ) from None
    finally:
        end()


def _informer_if_any(access: Access, request: Request) -> Informer | None:
    with suppress(ReadError):
        return informer_of(access.runtime, request)
    return None
