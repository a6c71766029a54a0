"""Waits until the cache of a kind is as new as the event that called a handler. Answers no read.

Kopf's watch and the watches of the cache are independent. A handler that lists the siblings of its object must not find
the state of before the event that called it, since no later event may call it again. With `v` the resourceVersion of the
body:

1. A stream that selects the object, or holds its uid, delivers that event as well: the handler waits until the stream
   has progressed to `v`. A stream that stays where it is for a while is listed anew.
2. A stream that does not select the object may never have an event to wait for. It is as new as `v` if its open watch
   has caught up. Otherwise one metadata list for each opening, which all handlers share, is compared with what the
   stream holds, and the differences are awaited.
3. An object that left one stream of several, and may be in another one, is awaited until that is confirmed.

Nothing is waited for in a cache that cannot be kept: its reads raise why. A restore of the server ends the wait, since
versions of before and after cannot be compared.
"""
from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from .core.backoff import delay
from .core.branches import Key
from .core.paging import Paging
from .core.problems import Garbled, printable
from .core.projection import ALL
from .core.record import Record, is_newer, is_number, is_older
from .core.resources import Resource
from .core.wire import Reader
from .errors import Stale
from .feed import Feed
from .fetching import Shared
from .health import Health
from .listwatch import Listwatch
from .matching import selects
from .metadata import pages_of_metadata
from .queries import not_older_than
from .transport import Refused, Unreachable

TICK = 5.0
"""Seconds until a wait is logged, and between two looks at a stream that does not move."""

QUIET_TICKS = 3
"""Ticks in a row in which a stream stays at one version while it is waited for, until it is listed anew."""


class Event:
    """The object that a handler was called with, at its version."""

    def __init__(self, body: Mapping[str, Any], version: str) -> None:
        metadata = body["metadata"]
        self.key: Key = (metadata.get("namespace") or "", metadata.get("name") or "")
        self.uid: str = metadata.get("uid") or ""
        self.kind: str = body.get("kind") or ""
        self.version = version
        self._body = body
        self._record: Record | None = None   # Made of the body when a stream needs it.

    @property
    def group(self) -> str:
        """The API group of its kind; empty for the core."""
        api_version: str = self._body.get("apiVersion") or ""
        return api_version.rpartition("/")[0]

    def __str__(self) -> str:
        return printable("/".join(filter(None, self.key)), 500)

    def is_delivered_by(self, listwatch: Listwatch, resource: Resource) -> bool:
        """Return True if the stream delivers this event: it selects the object, or still holds it."""
        if not listwatch.branch.keys.have(self.key):
            return False
        held = listwatch.branch.view.held(self.key)
        if held is not None and held.uid == self.uid:
            return True
        if self._record is None:
            # Handler and cache may be of two versions of the kind. Metadata is the same in both.
            body = {**self._body, "apiVersion": resource.api_version, "kind": resource.kind.kind}
            try:
                self._record = Reader.of(resource, ALL).record(msgspec.json.encode(body))
            except Garbled:
                return False   # The body was made by hand.
        return bool(selects(listwatch.filter, self._record, resource))


def event_of(body: Mapping[str, Any]) -> Event | None:
    """Return the event of a body; None if that has no version, as one that was made by hand."""
    version = (body.get("metadata") or {}).get("resourceVersion")
    return Event(body, version) if isinstance(version, str) and version else None


async def wait_until_fresh(feed: Feed, event: Event, *, patient: bool) -> None:
    """Wait until all streams of the feed are as new as the event.

    Raise Stale if one of them has not followed the server for a while; if `patient`, wait until it follows.
    """
    wait = _Wait(feed, event, patient=patient)
    if not wait.is_needed():
        return   # As a rule: to wait costs a task.
    logging = asyncio.create_task(wait.log())
    try:
        while not await wait.look_at_all():
            await feed.settled()   # The streams were replaced.
    finally:
        logging.cancel()


class _Wait:
    """One handler that waits for one kind."""

    def __init__(self, feed: Feed, event: Event, *, patient: bool) -> None:
        self._feed = feed
        self._event = event
        self._patient = patient
        self._world = feed.world

    def is_needed(self) -> bool:
        """Return True if a stream is not known to be as new as the event."""
        return any(
            not self._has_reached(listwatch) and (not listwatch.has_caught_up or self._event.is_delivered_by(listwatch, listwatch.resource))
            for listwatch in self._feed.listwatches) or self._has_unconfirmed()

    async def log(self) -> None:
        """Log the wait, if it takes long."""
        await self._world.sleep(TICK)
        self._world.logger.info(
            "A handler of %s (%s) waits until their cache has reached version %s.", self._event, self._feed, printable(self._event.version, 50))

    async def look_at_all(self) -> bool:
        """Wait for each stream in turn. Return False if the feed has replaced its streams meanwhile."""
        feed, event = self._feed, self._event
        listwatches = feed.listwatches
        for listwatch in listwatches:
            if self._has_reached(listwatch):
                continue
            if event.is_delivered_by(listwatch, listwatch.resource):
                await self._reach(listwatch)
            else:
                await self._compare(listwatch)
        while feed.listwatches is listwatches and self._has_unconfirmed():
            await _tick(feed.awaited.wait(event.version), feed)
        return feed.listwatches is listwatches

    def _has_unconfirmed(self) -> bool:
        return self._feed.parted and self._feed.has_unconfirmed(self._event.version, besides=self._event.key)

    def _has_reached(self, listwatch: Listwatch) -> bool:
        event = self._event
        if not is_newer(event.version, listwatch.version):
            return True
        if is_number(event.version):
            return False
        held = listwatch.branch.view.held(event.key)
        return held is not None and (held.uid, held.version) == (event.uid, event.version)

    def _must_wait(self, listwatch: Listwatch) -> bool:
        """Return False if the stream cannot be kept, or is replaced. Raise Stale if it may take too long for this handler."""
        condition = self._feed.condition_of(listwatch)
        if listwatch not in self._feed.listwatches or condition.error() is not None:
            return False
        if condition.health is Health.STALE and not self._patient:
            raise Stale(
                f"the cache of {self._feed} is at version {listwatch.version}, and {self._event} at {self._event.version}: {condition.trouble}",
                remedy="Wait until the cache follows the server again")
        return True

    async def _reach(self, listwatch: Listwatch) -> None:
        """Wait until the stream has progressed to the event."""
        quiet, epoch = 0, listwatch.epoch
        relisted: int | None = None
        while self._must_wait(listwatch):
            version = listwatch.version
            has_ticked = await _tick(listwatch.awaited.wait(self._event.version), self._feed)
            if self._has_reached(listwatch) or listwatch.epoch != epoch:
                return
            if relisted is not None and listwatch.commits > relisted:
                return   # The newest list is older than the event, which must be of another epoch then.
            quiet = quiet + 1 if has_ticked and listwatch.version == version else 0
            if quiet >= QUIET_TICKS and listwatch.relist("behind"):
                relisted = listwatch.commits

    async def _compare(self, listwatch: Listwatch) -> None:
        """Wait until the stream holds what the server had at the event, as far as that can be known."""
        failures = 0
        while not self._has_reached(listwatch) and not listwatch.has_caught_up and self._must_wait(listwatch):
            if not listwatch.is_open:
                await _tick(listwatch.awaited.wait(self._event.version), self._feed)
                continue
            if listwatch.comparison is None or listwatch.comparison.given_up:
                listwatch.comparison = Shared(_compared(self._feed, listwatch, self._event.version))
            try:
                await listwatch.comparison.result()
            except (Refused, Unreachable, Garbled) as error:
                at_least = error.refusal.retry_after if isinstance(error, Refused) else None
                await self._world.sleep(delay(failures, self._world.chance(), at_least=at_least or 0.0))
                failures += 1


async def _tick(future: asyncio.Future[None], feed: Feed) -> bool:
    """Wait for the future, for one tick at most. Return True if the tick is over."""
    sleep = asyncio.ensure_future(feed.world.sleep(TICK))
    try:
        await asyncio.wait({future, sleep}, return_when=asyncio.FIRST_COMPLETED)
        return not future.done()
    finally:
        sleep.cancel()


async def _compared(feed: Feed, listwatch: Listwatch, version: str) -> None:
    """Compare the open watch with a list of the server, and wait for what it lacks; raise Refused, Unreachable or Garbled."""
    opening, commits, quiet = listwatch.opening, listwatch.commits, 0
    listed, as_of = await _list(feed, listwatch, version)
    while listwatch.is_open and listwatch.opening == opening and listwatch.commits == commits:
        if not _lacks(listwatch, listed, as_of):
            listwatch.mark_compared(opening)
            return
        moved = asyncio.ensure_future(feed.moved())
        try:
            quiet = quiet + 1 if await _tick(moved, feed) else 0
        finally:
            moved.cancel()
        if quiet >= QUIET_TICKS:
            listwatch.relist("behind")   # The server does not deliver what it lists.


async def _list(feed: Feed, listwatch: Listwatch, version: str) -> tuple[Mapping[Key, Record], str]:
    """Return the metadata of all that the stream should hold, and as of which version that is."""
    world, stream, resource = feed.world, listwatch.stream, listwatch.resource
    listed: dict[Key, Record] = {}
    paging = Paging(
        {**stream.query(), "limit": str(world.settings.page_limit)}, first=not_older_than(version) if is_number(version) else None)
    async for records in pages_of_metadata(world.transport, resource, stream.path(resource), paging):
        listed |= {record.key: record for record in stream.within(records)}
    return listed, paging.version


def _lacks(listwatch: Listwatch, listed: Mapping[Key, Record], as_of: str) -> bool:
    """Return True if the server had something at that version which the stream has not delivered yet."""
    if not is_newer(as_of, listwatch.version):
        return False
    held = {record.key: record for record in listwatch.branch.view.records()[0]}
    for key, record in listed.items():
        found = held.pop(key, None)
        if is_newer(record.version, listwatch.version) and (
                found is None or found.uid != record.uid or is_older(found.version, record.version)):
            return True
    return any(not is_newer(record.version, as_of) for record in held.values())
