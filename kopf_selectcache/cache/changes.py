"""Changes of cached objects, for handlers and background tasks, and the reads that wait: until all kinds are
synced, until an object is as it should be, and until it is gone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from inspect import isawaitable
from typing import Any

import msgspec

from kopf_selectcache._errors import ConflictingSelectors, NotDeclared, ReadError, Stale, require
from kopf_selectcache.core.errors import BadField
from kopf_selectcache.core.redact import clipped, printable_name, shown_by_type
from kopf_selectcache.core.store.changes import Change, ChangeCause, Narrowing, PendingChanges
from kopf_selectcache.core.store.record import Keep, ObjectKey, Record
from kopf_selectcache.informer.environment import sleep_until
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.selector import of_unknown_namespaces
from kopf_selectcache.selectors.signatures import is_async

from ._outside import serving_of
from .blocking import ThreadWaits, end_with
from .errors import OutsideFilter, behind_error, unknown_field_error
from .formats.views import BodyView, Objects, Views
from .freshness import HandledObject, event_of, wait, wait_until_fresh
from .matcher import Match, Obj
from .request import Request, as_read_error, replace
from .snapshots import (
    Access,
    Counted,
    Snapshot,
    compare,
    comparisons_of,
    find,
    informer_of,
    is_as_of,
    lasting_match,
    region_of,
    require_declared,
    require_overlap,
    require_readable,
)

MAX_PENDING_CHANGES = 1000
"""The objects with pending changes of one iterator. A slower reader gets the present state instead."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Seconds between two requests for an object that no watch reports."""


class Resumed(Change, frozen=True, gc=False):
    """The present state, for a reader that was too slow for the changes."""

    objects: Sequence[BodyView] = ()

    @property
    def record(self) -> Record:
        raise ReadError(
            "a change with the cause 'resumed' is about several objects", remedy="Read its `objects`"
        )

    def __repr__(self) -> str:
        return f"<Change: {self.views} resumed with {len(self.objects)} objects>"


class Subscription:
    """Passes each change of the objects that one subscriber wants on. Used on the loop only."""

    def __init__(
        self,
        informer: Informer,
        request: Request | None,
        pass_on: Callable[[Change], object],
        *,
        initial: bool = True,
        filter_changed: bool = False,
        look: Callable[[], object] = lambda: None,
        keep: Keep = lambda _: True,
    ) -> None:
        """`look` is called when there is an error, what is cached has changed, or all lists are complete.
        `keep` returns what the subscriber needs of an object that is evicted (`informer.subscribers`).
        """
        self.error: ReadError | None = None
        """The first error of the comparison with an object; it does not match then."""
        self.failing = ""
        """The namespace and name of that object."""
        self._informer = informer
        self._request = request  # None for all objects.
        self._look = look
        self._filter, self._projection = informer.state.filter, informer.state.projection
        self._match = None if request is None else match_for(informer, request)
        self._pass_on, self._narrowing = pass_on, Narrowing(pass_on, self._matches, keep)
        self._wants_initial = initial
        self._is_start = not (filter_changed or informer.is_complete)
        """True until the first lists are complete: until then, objects that enter were there before."""
        self._end = informer.subscribe(self._add, self._complete, self._narrowing.keep)
        if initial:
            for record in informer.state.store.records()[0]:
                # With `filter_changed` they are wanted only since the filter has changed.
                change = Change(None, record, ChangeCause.ENTERED, filter_changed, initial=not filter_changed)
                self._narrowing.add(change)
            look()

    def close(self) -> None:
        self._end()

    def replay(self, has: Callable[[ObjectKey], bool]) -> None:
        """Pass the present objects of some keys on, as if the subscriber had begun now."""
        for record in self._informer.state.store.records()[0]:
            if has(record.key):
                self._narrowing.add(Change(None, record, ChangeCause.ENTERED, initial=True))

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
            self._look()
            return False

    def _add(self, change: Change | None) -> None:
        state = self._informer.state
        if self._request is not None and (
            self._filter is not state.filter or self._projection is not state.projection
        ):
            self._compare_again(self._request)
        if change is None:
            self._look()
            return
        if self._is_start and change.cause is ChangeCause.ENTERED and not self._is_refused:
            if not self._wants_initial:
                return
            change = Change(None, change.after, change.cause, change.filter_changed, initial=True)
        before, after = change.before, change.after
        if self._match is None and (after is None or after.stored) and (before is None or before.stored):
            self._pass_on(change)  # Narrowing changes nothing.
        else:
            self._narrowing.add(change)

    def _compare_again(self, request: Request) -> None:
        """Look if objects can still be compared, since what is cached has changed."""
        self._filter, self._projection = self._informer.state.filter, self._informer.state.projection
        try:
            self._match = match_for(self._informer, request, must_overlap=False)
        except ReadError as error:
            self.error, self.failing = error, ""
            self._look()

    @property
    def _is_refused(self) -> bool:
        """True if a list may never be complete, because the server refuses it."""
        errors = [condition.error() for condition in self._informer.state.stream_conditions]
        return any(error is not None and not error.transient for error in errors)

    def _complete(self) -> None:
        self._is_start = False
        self._look()

    def present(self) -> list[Record]:
        """Return the wanted objects that can be read, for a subscriber that starts again."""
        self._narrowing.clear()
        records = [record for record in self._informer.state.store.records()[0] if record.stored]
        return [record for record in records if self._matches(record)]


class BufferedChanges:
    """The pending changes of one reader; the present objects instead of more than `size` changes."""

    def __init__(self, informer: Informer, request: Request | None, *, initial: bool, size: int) -> None:
        self.news = asyncio.Event()
        """Set whenever there may be a change to take."""
        self.must_resume = False
        """True if there were too many changes: all of them are dropped until `resume`."""
        self.pending = PendingChanges()
        self._informer = informer
        self._size = self._most = size
        self.subscription = Subscription(informer, request, self.add, initial=initial, look=self.news.set)

    def add(self, change: Change) -> None:
        """Join a change with those that wait."""
        if self.must_resume:
            return
        count = len(self.pending)
        if not count:
            self._most = self._size
        self.pending.add(change)
        if change.initial or change.cause is ChangeCause.RESYNC:
            self._most += len(self.pending) - count  # A reader is not slow because there are many objects.
        if len(self.pending) > self._most or self.pending.lost:
            self.must_resume = True
            self.pending.clear()
        self.news.set()

    @property
    def can_resume(self) -> bool:
        """True if there are all present objects. In the middle of a restart there are none, or some."""
        return self.must_resume and self._informer.is_complete

    def resume(self) -> Sequence[BodyView]:
        """Return all present objects, after which changes are queued again."""
        self.must_resume = False
        return Objects(self.subscription.present(), BodyView)


def match_for(informer: Informer, request: Request, *, must_overlap: bool = True) -> Match | None:
    """Return the predicate of the objects whose changes are wanted; raise OutsideFilter if none can be."""
    state = informer.state
    serving = serving_of(informer, state)
    snapshot = Snapshot(
        comparisons_of(state), informer.state.store, informer.state.own_writes, serving=serving
    )
    compared = compare(request, snapshot)
    if must_overlap and of_unknown_namespaces(state.filter) is None:
        require_overlap(request, compared, snapshot, lasts=True)
    try:
        compared.selector.require_satisfiable(kind=snapshot.comparisons.kind)
        match = lasting_match(request, snapshot, compared)
    except ConflictingSelectors as error:
        raise as_read_error("changes", error) from None
    except BadField as problem:
        raise unknown_field_error(request, problem.label, snapshot.projection) from None
    return None if match == Match() else match


async def follow(
    access: Access,
    request: Request,
    *,
    initial: bool,
    buffer: int = MAX_PENDING_CHANGES,
    waits: ThreadWaits | None = None,
) -> AsyncIterator[Change]:
    """Yield each change of the requested objects until the operator ends, or the daemon is stopped."""
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
            waiting = BufferedChanges(informer, request, initial=initial, size=buffer)
        try:
            while True:
                with suppress(ReadError):
                    ending.check()
                    await ending.limit(informer.ending.limit(waiting.news.wait()))
                if ending.reached:
                    return
                require_declared(informer, request)
                waiting.news.clear()
                if waiting.subscription.error is not None:
                    raise waiting.subscription.error
                resource = informer.state.resource
                assert resource is not None, "it has been read"
                outside: OutsideFilter | None = None
                if comparisons is not (comparisons := comparisons_of(informer.state)):
                    try:
                        with Counted(informer, request):
                            match_for(informer, request)
                    except OutsideFilter as error:
                        outside = error  # The departures come first.
                if waiting.can_resume:
                    present = waiting.resume()
                    yield Resumed(None, None, ChangeCause.RESUMED, views=Views(resource), objects=present)
                for change in waiting.pending.drain():
                    if ending.reached:
                        return
                    yield msgspec.structs.replace(change, views=Views(resource))
                if outside is not None:
                    raise outside
                if waiting.can_resume:
                    waiting.news.set()
        finally:
            waiting.subscription.close()


async def _settled_informer(access: Access, request: Request) -> Informer:
    await access.runtime.wait_started(request.verb)
    informer = informer_of(access.runtime, request)
    await informer.wait_until_settled(request.selector)
    await wait_until_as_new(informer, request)
    return informer


async def wait_deleted(
    access: Access, request: Request, is_gone: Callable[[Request], Awaitable[bool]]
) -> None:
    """Wait until an object does not exist. Of one that is not cached, the server is asked again and again."""
    retries = access.runtime.retries
    key = request.namespace or "", request.name or ""
    informer: Informer | None = None
    with suppress(ReadError):
        informer = informer_of(access.runtime, request)
    departed = asyncio.Event()

    def see(change: Change | None) -> None:
        if change is None or (change.after is None and change.key == key):
            departed.set()

    end = informer.subscribe(see) if informer is not None else (lambda: None)
    limit = asyncio.timeout(request.timeout)
    try:
        async with limit:
            pause = FIRST_PAUSE_SECONDS
            while True:
                departed.clear()
                if await retries.run(lambda: is_gone(request), float("inf")):
                    return
                if informer is not None and informer.ending.reached:
                    informer = None  # It was removed: the server is asked from now on.
                if informer is not None and informer.state.store.get(*key)[0] is not None:
                    pause = FIRST_PAUSE_SECONDS
                    with suppress(NotDeclared):
                        await informer.ending.limit(departed.wait())
                else:
                    await sleep_until(departed, retries.sleep(pause * (0.5 + retries.chance())))
                    pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(
            f"{request.subject} still exists. Wait longer with timeout=, or raise kopf.TemporaryError to"
            " check again later."
        ) from None
    finally:
        end()


# ---- Reads that wait: until all kinds are synced, and until an object is as it should be. They poll
# nothing.


async def wait_synced(runtime: Runtime, request: Request, at_least: Mapping[str, Any] | None) -> None:
    """Wait until each declared kind is synced, that of the body as new as the body; raise why one is not."""
    timeout = runtime.settings.sync_timeout if request.timeout is None else request.timeout
    event = None if at_least is None else _event_of(at_least)
    try:
        async with asyncio.timeout(timeout):
            await runtime.wait_started(request.verb)
            for informer in runtime.informers.values():
                with suppress(NotDeclared):  # It was removed: the others count.
                    await informer.wait_until_settled()
            if at_least is not None and event is not None:
                informers = _informers_of_kind(runtime, event)
                await wait_until_fresh(informers, at_least, patient=True, ending=runtime.ending)
    except TimeoutError:
        if event is not None and all(informer.state.version for informer in runtime.informers.values()):
            raise Stale(
                f"the cache has not reached version {event.version} of {event} after {timeout:g} s",
                remedy="Wait longer: timeout=...\nTo read later: raise kopf.TemporaryError",
            ) from None
        # Which of them it was, and why, is raised below.
    for informer in runtime.informers.values():
        require_readable(informer, request, after=timeout)


def _event_of(at_least: object) -> HandledObject:
    """Return the object that a cache must be as new as; raise ReadError if it is none."""
    if not isinstance(at_least, Mapping) or not isinstance(at_least.get("metadata"), Mapping):
        raise ReadError(f"at_least= is {shown_by_type(at_least)}", remedy="Give the body of an object")
    event = event_of(at_least)
    if event is None or not event.kind:
        lacking = "metadata.resourceVersion" if event is None else "kind"
        raise ReadError(
            f"the body in at_least= has no {lacking}", remedy="Give a body that came from Kopf or the server"
        )
    return event


def _informers_of_kind(runtime: Runtime, event: HandledObject) -> list[Informer]:
    """Return the informers of the kind of an object; raise ReadError if it is known that there is none."""
    informers, wanted = list(runtime.informers.values()), (event.group, event.kind)
    resources = [informer.state.resource for informer in informers]
    found = [
        informer
        for informer, resource in zip(informers, resources, strict=True)
        if resource is not None and (resource.kind.group, resource.kind.kind) == wanted
    ]
    if not found and None not in resources:
        raise ReadError(
            f"no cache is declared for {event.kind}, the kind of at_least=",
            remedy="Declare one\nLeave at_least= out",
        )
    return found


MOST_COUNTED = 1_000
"""Limit of the names that a wait remembers. There may be new objects as long as it waits."""


class Seen:
    """Counts the objects that a wait has looked at, for the text of its TimeoutError."""

    def __init__(self, timeout: float | None) -> None:
        self.names: set[ObjectKey] = set()
        self._most = 0 if timeout is None else MOST_COUNTED + 1
        self._departed: dict[ObjectKey, str] = {}
        """The cause of each departure, and how we know it."""

    def add(self, name: ObjectKey) -> None:
        if len(self.names) < self._most:
            self.names.add(name)

    def follow(self, change: Change) -> None:
        """Note that an object of these has departed, or is there again."""
        key = change.key
        if change.after is not None:
            self._departed.pop(key, None)
        elif key in self.names:
            known_by = f" (known by {change.known_by})" if change.known_by else ""
            self._departed[key] = f"{change.cause}{known_by}"

    @property
    def departures(self) -> str:
        """A clause about the objects that have departed; empty if all are there."""
        counts = Counter(self._departed.values())
        texts = ", ".join(f"{count} {text}" for text, count in counts.items())
        return f"; departed since: {texts}" if texts else ""

    def __str__(self) -> str:
        count = len(self.names)
        return str(count) if count <= MOST_COUNTED else f"more than {MOST_COUNTED:,}"


async def wait_for(access: Access, request: Request, predicate: Callable[[Obj], object]) -> Any:
    """Wait until a cached object that is requested satisfies the predicate, and return it as it was then."""
    wanted = "a function of an object"
    require(callable(predicate), ReadError, "cache.wait_for()", "the predicate", predicate, wanted)
    if is_async(predicate):
        raise _async_predicate(predicate)
    informer = informer_of(access.runtime, request)
    seen = Seen(request.timeout)
    waiting, asked = asyncio.timeout(request.timeout), request
    with Counted(informer, request):
        try:
            async with waiting:
                await informer.wait_until_settled(request.selector)
                await wait_until_as_new(informer, request)
                request = replace(request, at_least=None)  # From now on it is.
                with _changes_of(informer, seen) as changes:
                    while True:  # Again when the filter has changed.
                        snapshot = access.open(informer, request)
                        compared = compare(request, snapshot)
                        require_overlap(request, compared, snapshot, lasts=True)
                        left, records, *_ = find(request, snapshot, compared)
                        candidates = left.pairs(records)
                        match = lasting_match(request, snapshot, compared)
                        del records  # A long wait must not keep the objects that are held now.
                        while True:
                            for record, obj in candidates:
                                seen.add(record.key)
                                if _satisfies(predicate, obj):
                                    return obj if request.form is None else request.form.make(record, obj)
                            change = await informer.ending.limit(changes.get())
                            require_readable(informer, request)
                            if change is None and comparisons_of(informer.state) is not snapshot.comparisons:
                                break
                            after = change.after if change is not None else None
                            newest = snapshot.newest(after) if after is not None else None
                            is_readable = newest is not None and newest.stored
                            candidates = match.pairs([newest] if newest is not None and is_readable else [])
        except TimeoutError:
            if not waiting.expired():
                raise  # It is the predicate's own.
        require_readable(informer, request, after=request.timeout)
        if request.at_least is not None:
            raise behind_error(request, informer.state.version)
        name = _name_of(predicate)
        raise TimeoutError(
            f"none of {seen} {asked.subject} in the cache satisfied {name}{seen.departures}. The filter is"
            f" {clipped(informer.state.filter, 500)}. Wait longer with timeout=, or raise"
            " kopf.TemporaryError to check again later."
        )


async def wait_until_as_new(informer: Informer, request: Request) -> None:
    """Wait until the cache is as new as the version of a request; raise if it can't be read."""
    at_least = request.at_least
    while at_least is not None and not is_as_of(informer, request, at_least):
        require_readable(informer, request)
        await informer.ending.limit(wait(informer, at_least, region_of(request)))


def _satisfies(predicate: Callable[[Obj], object], obj: Obj) -> bool:
    """Return if the object satisfies the predicate. A coroutine would be true: it is refused."""
    answer = predicate(obj)
    if isawaitable(answer):
        if isinstance(answer, Coroutine):
            answer.close()
        raise _async_predicate(predicate)
    return bool(answer)


def _async_predicate(predicate: object) -> ReadError:
    return ReadError(
        f"cache.wait_for(): the predicate {_name_of(predicate)} is async, and can't be awaited",
        remedy="Give a plain function of an object",
    )


def _name_of(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__)).rpartition(".")[2]


@contextmanager
def _changes_of(informer: Informer, seen: Seen) -> Iterator[asyncio.Queue[Change | None]]:
    """Queue the objects that enter or are updated, and None when reads must raise or the filter changes."""
    changes: asyncio.Queue[Change | None] = asyncio.Queue()

    def queue(change: Change | None) -> None:
        # A departure leaves nothing to look at, and its record must not be kept in memory.
        if change is None or change.after is not None:
            changes.put_nowait(change)
        if change is not None:
            seen.follow(change)

    unsubscribes = informer.subscribe(queue), informer.pending_writes.subscribe(queue)
    try:
        yield changes
    finally:
        for unsubscribe in unsubscribes:
            unsubscribe()
