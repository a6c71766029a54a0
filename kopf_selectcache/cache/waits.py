"""Reads that wait: until all kinds are synced, and until an object is as it should be. They poll nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import isawaitable
from typing import Any

from kopf_selectcache._errors import NotDeclared, ReadError, Stale
from kopf_selectcache.core.redact import clipped, shown_by_type
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.signatures import is_async

from ._at_least import wait
from .errors import behind
from .freshness import HandledObject, event_of, wait_until_fresh
from .matcher import Obj
from .request import Request, replace
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
    require_overlap,
    require_readable,
)


async def wait_synced(runtime: Runtime, request: Request, at_least: Mapping[str, Any] | None) -> None:
    """Wait until each declared kind is synced, and that of the body is as new as the body; raise why one is
    not.
    """
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
    if not callable(predicate):
        raise ReadError(
            f"cache.wait_for(): the predicate is {shown_by_type(predicate)}",
            remedy="Give a function of an object",
        )
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
                            candidates = match.pairs(_records_of(change, snapshot))
        except TimeoutError:
            if not waiting.expired():
                raise  # It is the predicate's own.
        require_readable(informer, request, after=request.timeout)
        if request.at_least is not None:
            raise behind(request, informer.state.version)
        name = _name_of(predicate)
        raise TimeoutError(
            f"none of {seen} {asked.subject} in the cache satisfied {name}{seen.departures}. The filter is"
            f" {clipped(informer.state.filter, 500)}. Wait longer with timeout=, or raise"
            " kopf.TemporaryError to check again later."
        )


async def wait_until_as_new(informer: Informer, request: Request) -> None:
    """Wait until the cache is as new as the version of a request, however long that takes; raise the error of
    a cache that cannot be read.
    """
    at_least = request.at_least
    while at_least is not None and not is_as_of(informer, request, at_least):
        require_readable(informer, request)
        await informer.ending.limit(wait(informer, at_least, region_of(request)))


def _records_of(change: Change | None, snapshot: Snapshot) -> list[Any]:
    newest = snapshot.newest(change.after) if change is not None and change.after is not None else None
    return [newest] if newest is not None and newest.stored else []


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
    """Queue the objects that enter or are updated meanwhile, and None when reads must raise or the filter
    has changed. Departures are counted only.
    """
    changes: asyncio.Queue[Change | None] = asyncio.Queue()

    def queue(change: Change | None) -> None:
        # A departure leaves nothing to look at, and its record must not be kept in memory.
        if change is None or change.after is not None:
            changes.put_nowait(change)
        if change is not None:
            seen.follow(change)

    unsubscribes = informer.subscribe(queue), informer.laying.subscribe(queue)
    try:
        yield changes
    finally:
        for unsubscribe in unsubscribes:
            unsubscribe()
