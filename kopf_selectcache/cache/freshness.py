"""Freshness: waits until the cache of a kind is as new as the event that called a handler, or as `at_least=`.

Kopf's watch and the watches of the cache are independent connections. If a handler lists the siblings of its
object, it must see the state of the event that called it, or a newer one: perhaps no later event calls it
again. `v` is the resourceVersion of the handler's body. The handler waits until three conditions hold:

1. Each stream that selects the object, or holds its uid, has reached `v`: it delivers the same event.
2. Each other stream, which may never receive such an event, is as new as `v`. That is so if its open watch
   has caught up with the server. If that is unknown, a list of metadata shows it (`informer.reach`).
   A watch that is held at the end of a filter change has not.
3. Each leave up to `v` is confirmed.

It waits for all streams at once, and each wait ends:

- A stream that has watched for 15 s without reaching `v` is relisted. A consistent list that began after the
  wait ends it. If `v` is newer than that list, the body is from before a restore of the server.
- A stream that cannot be read is not waited for: its reads raise its error.
- While a stream does not follow the server, handlers that Kopf calls again raise Stale. All others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from typing import Any

import msgspec

from kopf_selectcache._errors import NotDeclared, ReadError, Stale
from kopf_selectcache.core.errors import Garbled, MetricReason
from kopf_selectcache.core.json_text import with_room
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.redact import clipped, printable
from kopf_selectcache.core.store.projection import ALL, at
from kopf_selectcache.core.store.record import (
    ObjectKey,
    Record,
    are_numbers,
    is_newer,
    is_number,
    is_older,
    is_reached,
    rank_of,
)
from kopf_selectcache.informer.environment import Ending
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.log import context_of
from kopf_selectcache.informer.reflector import Reflector
from kopf_selectcache.informer.state import InformerState
from kopf_selectcache.selectors.selecting import selects
from kopf_selectcache.selectors.selector import Selector

from .request import AtLeast

TICK_SECONDS = 5.0
"""Seconds until a wait is logged, and between two checks of a stream during a wait."""

RELIST_AFTER_SECONDS = 15.0
"""Seconds of a watch, open or requested, until its stream is relisted; also the maximum wait for a leave."""

LOG_INTERVAL_SECONDS = 60.0
"""Seconds between two log lines about handlers that wait for one kind."""


class HandledObject:
    """The object that a handler was called with, at its version."""

    must_be_reached = False
    """True if it isn't enough that the watch of a stream has caught up with the server."""

    def __init__(self, body: Mapping[str, Any], version: str) -> None:
        metadata = body["metadata"]
        self.key: ObjectKey = (metadata.get("namespace") or "", metadata.get("name") or "")
        self.uid: str = metadata.get("uid") or ""
        self.kind: str = body.get("kind") or ""
        self.version = version
        self._body = body
        self._record: Record | None = None  # Made of the body when a stream needs it.

    @property
    def group(self) -> str:
        """The API group of its kind; empty for the core."""
        api_version: str = self._body.get("apiVersion") or ""
        return api_version.rpartition("/")[0]

    def __str__(self) -> str:
        return printable("/".join(filter(None, self.key)), 500)

    def is_delivered_by(self, reflector: Reflector) -> bool:
        """Return True if the stream delivers this event, or may: it selects the object, or still holds it."""
        if not reflector.substore.keys.have(self.key):
            return False
        held = reflector.substore.view.held(self.key)
        if held is not None and held.uid == self.uid:
            return True
        resource = reflector.resource
        if self._record is None:
            # Handler and cache may be of two versions of the kind. Metadata is the same in both.
            body = {**self._body, "apiVersion": resource.api_version, "kind": resource.kind.kind}
            try:
                self._record = Reader.of(resource, ALL).record(with_room(partial(msgspec.json.encode, body)))
            except (Garbled, RecursionError, UnicodeEncodeError, TypeError):
                return False  # The body was made by hand, or has a lone surrogate.
        if reflector.has_misread:
            return True  # The server selects by a field otherwise than it is read off an object.
        selected = selects(reflector.filter, self._record, resource)
        return self._is_selected_by_path(reflector) if selected is None else selected

    def _is_selected_by_path(self, reflector: Reflector) -> bool:
        """Return True if the stream selects the object, as far as its fields can be told without the
        definition of its kind.

        The field labels of a custom resource are paths. If one is something else, the wait ends nevertheless,
        later.
        """
        assert self._record is not None, "it is made of the body first"
        fields = {
            term.label: _text_of(at(self._body, tuple(term.label.split("."))))
            for term in reflector.filter.terms
        }
        return reflector.filter.matches(
            name=self._record.name,
            namespace=self._record.namespace,
            labels=self._record.labels,
            fields=fields,
        )


class ServerVersion(HandledObject):
    """A version of the server. Each stream must reach it: one that has caught up may be late since."""

    must_be_reached = True

    def __init__(self, version: str) -> None:
        super().__init__({"metadata": {}}, version)

    def __str__(self) -> str:
        return "the ranges of this replica"

    def is_delivered_by(self, _: Reflector) -> bool:
        return False


def event_of(body: Mapping[str, Any]) -> HandledObject | None:
    """Return the event of a body; None if that has no version, as one that was made by hand."""
    body = copy(
        body
    )  # The body of a daemon is a view of an object that Kopf replaces: its copy stays the same.
    version = (body.get("metadata") or {}).get("resourceVersion")
    return HandledObject(body, version) if isinstance(version, str) and version else None


async def wait_until_fresh(
    informers: Collection[Informer], body: Mapping[str, Any], *, patient: bool, ending: Ending
) -> None:
    """Wait until all streams of these informers are as new as the body; raise ReadError if the operator ends
    meanwhile.

    Raise Stale if one of them has not followed the server for a while; if `patient`, wait until it follows.
    The body of a daemon or timer is Kopf's live one. If it is newer after the wait, that is waited for as
    well, for 15 s more.
    """
    event, deadline = event_of(body), None
    while event is not None:
        waits = [
            wait
            for informer in informers
            if (wait := _HandlerWait(informer, event, patient=patient)).is_needed()
        ]
        if not waits:
            return  # The usual case. A wait costs a task.
        for wait in waits:
            await _unless_removed(wait, ending)
        clock = waits[0].clock
        deadline = clock() + RELIST_AFTER_SECONDS if deadline is None else deadline
        latest = event_of(body)
        event = (
            latest if latest is not None and latest.version != event.version and clock() < deadline else None
        )


async def wait_until_reached(informers: Collection[Informer], version: str, *, ending: Ending) -> None:
    """Wait until all streams have reached a version of the server; raise ReadError if the operator ends."""
    reached = ServerVersion(version)
    waits = [_HandlerWait(informer, reached, patient=True) for informer in informers]
    await _together([_unless_removed(wait, ending) for wait in waits if wait.is_needed()])


async def _unless_removed(wait: _HandlerWait, ending: Ending) -> None:
    with suppress(NotDeclared):  # Its reads raise that.
        await ending.limit(wait.until_fresh())


@contextmanager
def _logged(informer: Informer, event: HandledObject) -> Iterator[None]:
    """Count a handler that waits, and log it if that takes long."""
    informer.waiting_handlers += 1
    log = asyncio.create_task(_log(informer, event))
    try:
        yield
    finally:
        informer.waiting_handlers -= 1
        log.cancel()


async def _log(informer: Informer, event: HandledObject) -> None:
    environment = informer.environment
    await environment.sleep(TICK_SECONDS)
    if environment.clock() >= informer.next_wait_log:
        informer.next_wait_log = environment.clock() + LOG_INTERVAL_SECONDS
        environment.logger.info(
            "Handlers wait until the cache of %(resource)s is as new as version %(version)s of %(object)s:"
            " %(handlers)d.",
            {
                "resource": str(informer),
                "version": printable(event.version, 50),
                "object": str(event),
                "handlers": informer.waiting_handlers,
            },
            extra=context_of(informer),
        )


class _HandlerWait:
    """One handler that waits for one kind."""

    def __init__(self, informer: Informer, event: HandledObject, *, patient: bool) -> None:
        self._informer = informer
        self._event = event
        self._patient = patient

    def is_needed(self) -> bool:
        """Return True if a stream is not known to be as new as the event."""
        return not all(map(self._is_fresh, self._informer.state.reflectors)) or self._has_unconfirmed()

    @property
    def clock(self) -> Callable[[], float]:
        return self._informer.environment.clock

    async def until_fresh(self) -> None:
        """Wait for all streams, also if the informer replaces them meanwhile."""
        with _logged(self._informer, self._event):
            while not await self._informer.ending.limit(self._for_all()):
                await self._informer.wait_until_settled()

    async def _for_all(self) -> bool:
        """Wait for all streams. Return False if the informer has replaced them meanwhile.

        A stream that was as new as the server while another one was waited for may have lost its watch since:
        what it had not delivered by then is still missing. It waits for no stream more than twice: for the
        event, and for a list of another stream.
        """
        reflectors, waited = self._informer.state.reflectors, list[Reflector]()
        late = [reflector for reflector in reflectors if not self._is_fresh(reflector)]
        while True:
            await _together([self._for_stream(reflector) for reflector in late])
            await self._for_confirmation()
            waited += late
            late = [each for each in reflectors if waited.count(each) < 2 and not self._is_fresh(each)]
            if not late:
                return self._informer.state.reflectors is reflectors

    def _is_fresh(self, reflector: Reflector) -> bool:
        if (self._event.uid, self._event.version) in reflector.foreign:
            return True
        version, is_by_itself = self._goal(reflector)
        is_by_itself = is_by_itself or self._event.must_be_reached
        return self._has_reached(reflector, version) or (reflector.is_live and not is_by_itself)

    def _goal(self, reflector: Reflector) -> tuple[str, bool]:
        """Return the version that the stream must have reached, and True if only its progress shows it."""
        event = self._event
        if not self._has_reached(reflector, event.version) and event.is_delivered_by(reflector):
            return event.version, True
        return reflector.goal(event.version), False

    def _has_reached(self, reflector: Reflector, version: str) -> bool:
        event = self._event
        if not is_newer(version, reflector.version):
            return True
        if is_number(version):
            return False
        held = reflector.substore.view.held(event.key)
        return held is not None and (held.uid, held.version) == (event.uid, event.version)

    async def _for_stream(self, reflector: Reflector) -> None:
        """Wait until the stream is as new as the event: by its progress, a comparison, or a new list."""
        event, comparison, awaited, lists_before = (
            self._event,
            reflector.comparison,
            reflector.awaited,
            reflector.writer.lists,
        )
        version, is_by_itself = self._goal(reflector)
        reached = awaited.wait(version)
        compared = [] if is_by_itself else [comparison.wait(version, exact=version != event.version)]
        watched_for, before = 0.0, self.clock()
        try:
            while self._may_wait(reflector):
                await self._tick(reached, *compared)
                done = [each for each in (reached, *compared) if each.done()]
                if any(each.result() for each in done) or self._has_reached(reflector, version):
                    return
                if reflector.writer.newest_list > lists_before:
                    if is_older(reflector.version, event.version):
                        reflector.note_foreign(event.uid, event.version)
                    return
                now = self.clock()
                if reflector.is_watching and not comparison.is_listing:
                    watched_for += now - before
                before = now
                if watched_for >= RELIST_AFTER_SECONDS:
                    reflector.relist(MetricReason.BEHIND)
                if reached.done():
                    reached = awaited.wait(version)  # All futures were released.
        finally:
            awaited.discard(version, reached)
            for future in compared:
                future.cancel()

    def _may_wait(self, reflector: Reflector) -> bool:
        """Return False if the stream is replaced or can't be kept; raise Stale if it does not follow."""
        condition = self._informer.state.worst((reflector,))
        if reflector not in self._informer.state.reflectors or condition.error() is not None:
            return False
        if condition.health is Health.STALE and not self._patient:
            raise self._stale(
                f"at version {reflector.version}, and {self._event} at {self._event.version}:"
                f" {condition.message}"
            )
        return True

    async def _for_confirmation(self) -> None:
        """Wait for unconfirmed leaves up to the event, for 15 s. Then the last known state is read."""
        awaited, deadline = self._informer.awaited, self.clock() + RELIST_AFTER_SECONDS
        while self._has_unconfirmed():
            if self.clock() >= deadline:  # However often the wait was interrupted.
                if self._patient:
                    return
                raise self._stale("waiting until it is known which objects have left it")
            confirmed = awaited.wait(self._event.version)
            try:
                await self._tick(confirmed)
            finally:
                awaited.discard(self._event.version, confirmed)

    def _has_unconfirmed(self) -> bool:
        return _has_unconfirmed(self._informer, self._event.version, besides=self._event.key)

    def _stale(self, what: str) -> Stale:
        return Stale(f"the cache of {self._informer} is {what}", remedy="To wait: await cache.wait_synced()")

    async def _tick(self, *futures: asyncio.Future[bool]) -> None:
        """Wait for one of the futures, for one tick at most."""
        sleep = asyncio.ensure_future(self._informer.environment.sleep(TICK_SECONDS))
        any_of: set[asyncio.Future[Any]] = {*futures, sleep}
        try:
            await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()


async def _together(waits: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Await all of them at once. The first that fails ends the others."""
    if len(waits) == 1:
        return await waits[0]
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _text_of(value: object) -> str:
    """Return the value of a field as servers write it: a text, or JSON; empty if there is none."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


# ---- `at_least=`: reads as of a version or later. Compares the versions of streams with it, and waits for
# them.

AT_LEAST_SECONDS = 5.0
"""Seconds that a read waits until its streams are as new as its `at_least=`."""

GRACE_SECONDS = 1.0
"""Seconds that a wait gives the watches before it lets them be compared with the server."""


def require_comparable(informer: Informer, at_least: AtLeast) -> None:
    """Raise ReadError if the version of the request cannot be compared with those of this kind."""
    resource, version = informer.state.resource, informer.state.store.version
    if at_least.kind and resource is not None and resource.kind.kind:
        kind = resource.kind
        if (at_least.group, at_least.kind) != (kind.group, kind.kind):
            raise ReadError(
                f"at_least= is a {clipped(at_least.kind, 100)}, and its version can't be compared with those"
                f" of {resource}",
                remedy=f"Give an object of the kind {resource}",
            )
    if version and not is_number(version):
        raise ReadError(
            f"at_least= doesn't work for {informer}: the server's versions aren't numbers, and have no order",
            remedy="Use max_age=\nTo read from the server: cache.live",
        )


def has_reached(runtime: Runtime, kind: object, version: object) -> bool:
    """Return True if a cache with one stream is known to be as new as a version: later reads are, too."""
    informer = runtime.names.quick.get(kind) if type(kind) is str else None
    store = informer.state.ready if informer is not None and not informer.state.has_several_streams else None
    return store is not None and type(version) is str and is_reached(version, store.version)


def is_as_new(informer: Informer, at_least: AtLeast, region: Selector | None) -> bool:
    """Return True if the streams of a request are known to hold all that there was at the version."""
    version, epoch = at_least.version, _epoch_of(informer)
    streams = informer.state.streams_for(region)
    return all(
        each.substore.epoch == epoch and _has_reached(each, version) for each in streams
    ) and not _has_unconfirmed(informer, version)


def has_passed(state: InformerState, key: ObjectKey, version: str) -> bool:
    """Return True if the streams that could hold an object have all that there was at the version."""
    streams = [each for each in state.reflectors if each.substore.keys.have(key)]
    return bool(streams) and all(
        each.substore.epoch == state.union.epoch and _has_reached(each, version) for each in streams
    )


def version_reached(informer: Informer) -> str:
    """Return a version that all streams have reached; empty while one is behind a list of another one."""
    version = informer.state.store.version
    streams = informer.state.streams_for()
    newest = [each.version for each in streams]
    if not newest or not are_numbers((version, *newest)):
        return version
    reached = min(newest, key=rank_of)
    if not all(_has_reached(each, reached) for each in streams):
        return ""  # What moved unseen is in no answer.
    return version if _has_unconfirmed(informer, reached) else reached


def lists_of(informer: Informer) -> tuple[str, ...]:
    """Return the version of the last list of each stream. After a restore each stream is listed again."""
    return tuple([each.substore.listed for each in informer.state.streams_for()])


def _epoch_of(informer: Informer) -> int:
    """Return the present epoch: each restore of the server begins one."""
    return max((each.substore.epoch for each in informer.state.streams_for()), default=0)


def _has_reached(reflector: Reflector, version: str) -> bool:
    return not is_newer(reflector.goal(version), reflector.version)


def _has_unconfirmed(informer: Informer, version: str, *, besides: ObjectKey = ("", "")) -> bool:
    state = informer.state
    return state.has_several_streams and state.has_unconfirmed_up_to(version, besides=besides)


async def wait(
    informer: Informer, at_least: AtLeast, region: Selector | None, seconds: float | None = None
) -> None:
    """Wait until the streams of a request are as new as the version, the time is over, or one has failed."""
    sleep = informer.environment.sleep
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if seconds is not None:
        end = asyncio.ensure_future(sleep(seconds))
    grace = asyncio.ensure_future(sleep(GRACE_SECONDS if seconds is None else min(GRACE_SECONDS, seconds)))
    try:
        with suppress(NotDeclared):  # The kind was removed: its reads raise that.
            await informer.ending.limit(_wait(informer, at_least, region, end, grace))
    finally:
        end.cancel()
        grace.cancel()


async def _wait(
    informer: Informer,
    at_least: AtLeast,
    region: Selector | None,
    end: asyncio.Future[None],
    grace: asyncio.Future[None],
) -> None:
    version = at_least.version
    while not end.done() and informer.state.part(region).error is None:
        streams, epoch = informer.state.streams_for(region), _epoch_of(informer)
        # A stream of an older epoch is not compared: it is being listed, which ends its wait.
        unlisted = [each for each in streams if each.substore.epoch < epoch]
        unreached = [
            each for each in streams if each.substore.epoch == epoch and not _has_reached(each, version)
        ]
        late = [*unlisted, *unreached]
        if not late and not _has_unconfirmed(informer, version):
            return
        goals = [(each, each.goal(version)) for each in late]
        waits = [(each.awaited, goal, each.awaited.wait(goal)) for each, goal in goals]
        if not late:
            waits.append((informer.awaited, version, informer.awaited.wait(version)))
        compared = [
            each.comparison.wait(goal, exact=goal != version)
            for each, goal in goals
            if grace.done() and each in unreached
        ]
        futures: list[asyncio.Future[Any]] = [*(each[-1] for each in waits), *compared]
        try:
            await asyncio.wait(
                [end, *futures, *([] if grace.done() else [grace])], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for awaited, goal, future in waits:
                awaited.discard(goal, future)
            for future in compared:
                future.cancel()
