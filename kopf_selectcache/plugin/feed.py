"""Feed: the events of Kopf's own handlers of a kind, from its cache instead of a second watch.

A watcher of Kopf takes its events from a generator. This one yields the cached objects, `LISTED`, and then
each change that the stream of the cache brings, in order. It waits while the cache cannot be read, or while
Kopf pauses the operator for another one (peering), and it never raises. If the cache cannot feed the watcher
any more, Kopf's own watch takes over until it can.

After a pause, or after too many changes for a slow consumer, the present objects are compared with those that
Kopf was told of (`Knowledge`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from kopf_selectcache import _kopf
from kopf_selectcache._errors import ReadError, in_one_line
from kopf_selectcache.core.selection.kinds import KindKey, find, parse_key
from kopf_selectcache.core.store.changes import Change, ChangeCause, Fifo
from kopf_selectcache.core.store.record import EvictedRecord, ObjectKey, Record, is_newer
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.log import context_of
from kopf_selectcache.informer.state import InformerState
from kopf_selectcache.settings.options import settings_of

from .feed_safety import SecondWatch, source_of, unfit, why_not_fed
from .knowledge import Departures, Knowledge, OwnWatch, key_of
from .narrowing import handlers_of_watched
from .operator import Operator, operator_of

if TYPE_CHECKING:
    from .replicas import Gain

QUEUED_CHANGES = 10_000
"""The changes that wait for Kopf to take them. A slower consumer gets the differences instead."""

NAMING_SECONDS = 10.0
"""Seconds after which the log and the probe name a kind that holds up all handlers."""

EVENTS_PER_TURN = 50
"""The events after which other tasks get their turn."""

DECODED_AT_ONCE = 50
"""The listed objects that are decoded in succession: what unpacks an object is slow after Kopf's own work,
which displaces it from the caches of the processor.
"""

_UNFIT = (Health.REJECTED, Health.OVERSIZED)
"""The states of a cache that Kopf does not wait for: its own watch takes over."""

REMOVED = SecondWatch(
    "the cache was removed", "declare it in a startup handler, and do not remove it", is_final=True
)
"""The reason of a kind whose cache was fed from until its removal."""

BROKEN = SecondWatch(
    "the feed failed because of a bug in kopf_selectcache",
    "report the bug with the traceback in the log",
    is_final=True,
)
"""The reason of a kind whose feed failed."""

_logger = logging.getLogger("kopf_selectcache")


def feed(watcher: _kopf.Watcher) -> _kopf.Events | None:
    """Return the events of a watcher; None if Kopf's own watch has them, and other replicas handle none."""
    operator, declared = operator_of(watcher.settings), settings_of(watcher.settings)
    if operator is None or operator.is_of_another() or not (declared.one_watch or declared.sharding):
        return None
    return Feed(watcher, operator).events()


async def _informer_of(operator: Operator, resource: _kopf.Resource) -> Informer | None:
    """Return the informer of a resource, once its key is resolved; None if the kind is not declared, or Kopf
    always has its own watch.
    """
    if not settings_of(operator.settings).one_watch:
        return None
    with suppress(ReadError):
        for key, informer in operator.runtime.informers.items():
            if _may_mean(key, resource):
                informer.look_again()  # Kopf has seen that the cluster serves the kind.
                async with _named(operator, informer, resource):
                    await _resolved(informer)
                if informer.state.is_of(resource.group, resource.plural):
                    return informer
    return None


async def _resolved(informer: Informer) -> None:
    """Wait until the key of an informer is resolved, or cannot be."""
    await informer.wait_until(lambda: informer.state.resource is not None or informer.state.health in _UNFIT)


@asynccontextmanager
async def _named(operator: Operator, informer: Informer, resource: _kopf.Resource) -> AsyncIterator[None]:
    """Have the log and the probe name an informer that is waited for, if that takes long and no handler of
    the operator can be called meanwhile.
    """
    if operator.registry is None or not _kopf.has_indices(operator.registry, resource):
        yield
        return

    awaited = operator.fed.awaited
    is_named = False

    async def name() -> None:
        nonlocal is_named
        await informer.environment.sleep(NAMING_SECONDS)
        is_named = True
        awaited[informer] += 1
        why = (
            f" {in_one_line(informer.state.message, informer.state.remedy)}" if informer.state.message else ""
        )
        if awaited[informer] == 1:  # No other watcher of the kind has named it.
            _logger.warning(
                "Kopf calls no handler before the cache of %(resource)s is synced, because it is indexed."
                "%(why)s",
                {"resource": str(informer), "why": why},
                extra=context_of(informer),
            )

    naming = asyncio.create_task(name(), name=f"selectcache: wait for {informer}")
    try:
        yield
    finally:
        naming.cancel()
        if is_named:
            awaited[informer] -= 1


def _may_mean(key: KindKey, resource: _kopf.Resource) -> bool:
    """Return True if a declared key may mean a resource, as far as its text shows."""
    if (kind := find(key)) is not None:
        return (kind.group, kind.plural) == (resource.group, resource.plural)
    group, _, name = parse_key(key)
    names = {resource.plural, resource.singular, resource.kind, *resource.shortcuts}
    return group in (None, resource.group) and name in names


def _decoded(records: list[Record]) -> Iterator[tuple[Record, dict[str, Any]]]:
    """Yield objects with their bodies."""
    for start in range(0, len(records), DECODED_AT_ONCE):
        batch = records[start : start + DECODED_AT_ONCE]
        yield from zip(batch, [record.decode() for record in batch], strict=True)


class Feed:
    """The events of one watcher, from the informer of its kind."""

    def __init__(self, watcher: _kopf.Watcher, operator: Operator, *, most: int = QUEUED_CHANGES) -> None:
        self.knowledge = Knowledge()
        self._watcher = watcher
        self._operator = operator
        self._informer: Informer  # Set by `events`, and so are the departures.
        self._departures: Departures
        self._news = asyncio.Event()
        self._seen: tuple[ReferenceType[InformerState] | None, bool] = None, False
        """The state of the informer that the last decision was made about, and if objects were unreadable. A
        weak reference, since nothing is decided any more once Kopf's own watch goes on for good, and a state
        has all objects of its filter.
        """
        self._unsafe: SecondWatch | None = None
        """The last decision about a state of the informer."""
        self._queue = Fifo(most, self._news.set, self.knowledge.known.__contains__)
        self._queue.drop()  # Until the present objects are listed.
        self._must_stop = True
        """True if Kopf's own watch must take over once the queue is empty; so it is without a cache."""
        self._may_return = False
        """True if the cache may feed the watcher again, once it can."""
        self._listing: set[str] = set()
        """The uids that were fed of a list that is not fed to its end."""
        self._gained: list[Gain] = []
        """Keys that this replica handles now, and of whose objects Kopf must be told."""
        self._reading: asyncio.Timeout | None = None
        """Ends the wait for an event of Kopf's own watch."""

    async def events(self) -> _kopf.Events:
        """Yield the events of the watcher from its cache as long as that is safe, and else from Kopf's own
        watch.
        """
        await self._operator.logged_in()
        kopfs = self._operator.kopfs
        if kopfs is None and settings_of(self._watcher.settings).sharding is not None:
            await asyncio.Event().wait()  # The caches can't be started: nobody knows what other replicas do.
        with nullcontext() if kopfs is None else kopfs.feeding(self):
            with self._guarding():
                informer = await _informer_of(self._operator, self._watcher.resource)
                if informer is not None:
                    self._informer, self._must_stop = informer, False
            following = asyncio.create_task(
                self._guarded(self._follow_pauses), name="selectcache: pauses of a feed"
            )
            is_over = False
            try:
                while not is_over:
                    for events in (self._from_cache(), self._from_kopf()):
                        async with aclosing(events):
                            async for event in events:
                                yield event
                    is_over = self._must_stop
            finally:
                following.cancel()

    async def _from_cache(self) -> _kopf.Events:
        if self._must_stop:  # There is no cache.
            return
        watcher, informer, number = self._watcher, self._informer, 0
        self._departures = Departures(informer, self._operator.runtime, self._queue.add)
        self._operator.fed.note(watcher, is_fed=True)
        tasks = [
            asyncio.create_task(self._guarded(work), name=f"selectcache: feed of {informer}")
            for work in (self._follow_cache, self._departures.run)
        ]
        end = informer.subscribe(self._add, self._news.set, self._keep)
        try:
            with self._guarding():
                while await self._can_list():
                    for event in chain(self._listed(), self._queued()):
                        if event is None:
                            await self._wait()
                        else:
                            yield event
                            number += 1
                            if not number % EVENTS_PER_TURN:
                                await asyncio.sleep(0)
                        if self._queue.is_full or self._watcher.paused.is_on():
                            break  # The present objects must be looked at before the next event.
        finally:
            end()
            for task in tasks:
                task.cancel()
            self._queue.clear()
            self._operator.fed.note(watcher, is_fed=False)

    async def _from_kopf(self) -> _kopf.Events:
        """Yield the events of Kopf's own watch, until the cache can feed the watcher again. The watch is
        opened again for the objects that this replica is to handle now.
        """
        while True:
            took_over, number = self._own_watch(), len(self._gained)
            async with (
                aclosing(self._watcher.watch()) as own,
                aclosing(self._until_gained(own)) as events,
            ):
                async for event in events:
                    if not (self._can_return(took_over) and self._is_ahead(event)):
                        for each in took_over.take(event):
                            self._note_gained(each)
                            yield each
                        if event is _kopf.LISTED:
                            self._end_gained(number)
                            number = 0
                        if not self._can_return(took_over):
                            continue
                    self._must_stop = False
                    return
            if not self._gained:
                return

    def _own_watch(self) -> OwnWatch:
        return OwnWatch(
            self.knowledge,
            may_return=self._may_return,
            began=self._now(),
            departed=self._departed,
            handles=None if self._operator.kopfs is None else self._handles,
            has_gained=self._has_gained,
        )

    async def _until_gained(self, own: _kopf.Events) -> _kopf.Events:
        """Yield the events of Kopf's own watch, until there are objects that this replica is to handle now;
        but to the end of its first list at least.
        """
        is_listing = True
        while is_listing or not self._gained:
            reading = asyncio.timeout(None)
            try:
                async with reading:
                    self._reading = None if is_listing else reading
                    event = await anext(own)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not reading.expired():
                    raise
                return
            finally:
                self._reading = None
            if is_listing or not self._gained:  # What is listed again shows the rest.
                is_listing = is_listing and event is not _kopf.LISTED
                yield event

    def _is_ahead(self, event: Any) -> bool:
        """Return True if the cache is yet to bring an event of Kopf's own watch. On a busy kind with a small
        filter, it would never be as new as each event that Kopf was told of.
        """
        if event is _kopf.LISTED or event["type"] == "BOOKMARK":
            return False
        return is_newer(event["object"]["metadata"].get("resourceVersion", ""), self._informer.state.version)

    def _can_return(self, own: OwnWatch) -> bool:
        """Return True if the cache can feed the watcher again, and is as new as Kopf's own watch."""
        knowledge = self.knowledge
        if not own.may_end or not knowledge.is_listed or knowledge.was_paused or self._watcher.paused.is_on():
            return False
        state = self._informer.state
        if not self._informer.is_current or state.union.unconfirmed or is_newer(own.version, state.version):
            return False
        held = (state.store.get(each.namespace, each.name)[0] for each in own.gone)
        is_back = any(now and now.uid == each.uid for now, each in zip(held, own.gone, strict=True))
        return not is_back and self._why_unfit() is None

    @contextmanager
    def _guarding(self) -> Iterator[None]:
        """Let Kopf's own watch take over from work of the feed that fails."""
        try:
            yield
        except Exception:
            _logger.exception(
                "The feed of Kopf's handlers of %(resource)s failed because of a bug in kopf_selectcache.",
                {"resource": str(self._watcher.resource)},
            )
            self._give_up(BROKEN)
            self._news.set()

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        with self._guarding():
            await work()

    # ---- Other replicas (`_kopf_sharding.Fed`).

    @property
    def is_indexed(self) -> bool:
        registry = self._operator.registry
        return registry is not None and _kopf.has_indices(registry, self._watcher.resource)

    def replay(self, gain: Gain) -> None:
        self._gained.append(gain)
        self._news.set()
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time())

    def forget(self, has: Callable[[ObjectKey], bool]) -> list[Record]:
        known = self.knowledge.known
        forgotten = [record for record in known.values() if has((record.namespace, record.name))]
        for record in forgotten:
            del known[record.uid]
        return forgotten

    def _handles(self, key: ObjectKey) -> bool:
        """Return True if this replica handles a key."""
        return self._operator.kopfs is None or self._operator.kopfs.shards.handles(key)

    def _has_gained(self, key: ObjectKey) -> bool:
        """Return True if this replica handles a key that another one has handled before."""
        return any(gain.has(key) for gain in self._gained)

    def _note_gained(self, event: Any) -> None:
        """Note that Kopf is told of an object, as if a list had it."""
        if self._gained and event is not _kopf.LISTED and event["type"] is None:
            key, uid = key_of(event["object"])
            for gain in self._gained:
                if gain.has(key):
                    gain.add(self, uid)

    def _end_gained(self, number: int) -> None:
        """Note that Kopf was told of all objects of the first gained keys."""
        for gain in self._gained[:number]:
            gain.drop(self)
        del self._gained[:number]

    # ---- Waiting.

    @property
    def _is_known(self) -> bool:
        """True if the present objects are known. A feed begins with a store that is current: that of a kind
        which the cluster has stopped to serve has objects that are gone.
        """
        return self._informer.is_complete if self.knowledge.is_listed else self._informer.is_current

    async def _follow_cache(self) -> None:
        """Have the feed begin once the store is current: a list without changes is no news else. Have it end
        with the cache.
        """
        informer = self._informer
        try:
            while not self.knowledge.is_listed:
                await informer.wait_until(lambda: informer.is_current)
                self._news.set()
                await informer.wait_until(lambda: self.knowledge.is_listed or not informer.is_current)
            await informer.ending.limit(asyncio.Event().wait())
        except ReadError:
            self._give_up(REMOVED)
            self._news.set()

    async def _follow_pauses(self) -> None:
        paused = self._watcher.paused
        while True:
            await paused.wait_for(True)
            self.knowledge.pauses += 1
            self._pause()
            self._news.set()
            await paused.wait_for(False)
            self._news.set()

    def _pause(self) -> None:
        self.knowledge.pause(self._now())
        self._listing.clear()
        self._queue.drop()

    async def _wait(self) -> None:
        """Wait for news."""
        await self._news.wait()
        self._news.clear()

    async def _can_list(self) -> bool:
        """Wait until the present objects are known, and Kopf wants them; return False if Kopf's own watch
        must take over.
        """
        while not self._must_stop:
            self._decide()
            if self._watcher.paused.is_on():
                self._pause()
                await self._wait()
            elif self._is_known:
                break
            else:
                naming = _named(self._operator, self._informer, self._watcher.resource)
                async with nullcontext() if self.knowledge.is_listed else naming:
                    while not (self._must_stop or self._is_known or self._watcher.paused.is_on()):
                        await self._wait()
                        self._decide()
        return not self._must_stop

    # ---- The decision.

    def _decide(self) -> None:
        """Find out if the cache may feed the watcher as it is now."""
        if self._must_stop:
            return
        if (unsafe := self._why_unfit()) is not None:
            self._give_up(unsafe)
        elif self._informer.state.resource is not None:
            self._operator.decisions.note(self._informer, self._watcher.namespace, None)

    def _why_unfit(self) -> SecondWatch | None:
        """Return the reason why the cache may not feed the watcher as it is now; None if it may."""
        informer, watcher = self._informer, self._watcher
        if informer.state.health in _UNFIT:
            return unfit(informer.state.health)
        seen = ref(informer.state), bool(informer.state.store.unreadable)
        if seen != self._seen and (source := source_of(informer)) is not None:
            registry, resource = self._operator.registry, watcher.resource
            handlers = None if registry is None else handlers_of_watched(registry, resource)
            self._unsafe = why_not_fed(watcher.settings, handlers, resource, watcher.namespace, source)
            self._seen = seen
        return self._unsafe

    def _give_up(self, why: SecondWatch) -> None:
        """Let Kopf's own watch take over."""
        if not self._must_stop:
            self._must_stop = True
            self._may_return = not why.is_final and (self.knowledge.is_listed or why.can_pass)
            self._operator.decisions.note(self._informer, self._watcher.namespace, why)

    # ---- Changes of the cache.

    def _add(self, change: Change | None) -> None:
        after, is_changed = (
            None if change is None else change.after,
            ref(self._informer.state) != self._seen[0],
        )
        if change is None or is_changed or (after is not None and not after.stored):
            self._decide()
            self._news.set()
        if change is None or self._must_stop:
            return
        if after is not None:
            self._departures.discard(after.uid)  # It has come back, whenever Kopf takes that.
        is_watched = self._watcher.namespace in (None, change.key[0]) and self._handles(change.key)
        if is_watched and change.cause is not ChangeCause.RESYNC:
            self._queue.add(change)

    def _keep(self, record: Record) -> bool:
        """Free an object that is about to be evicted."""
        if record.uid in self.knowledge.known:
            self.knowledge.known[record.uid] = EvictedRecord.of(record)
        return True

    # ---- Events.

    def _listed(self) -> Iterator[Any]:
        """Yield the events of the present objects, with type None at the beginning and after a pause, and of
        those that have departed since Kopf was told of them.
        """
        as_listed, began = self.knowledge.was_paused or not self.knowledge.is_listed, self._now()
        departures, number = self._queue.clear(), len(self._gained)
        absent, wanted = dict(self.knowledge.known), list[Record]()
        for record in self._informer.state.store.records()[0]:
            if self._watcher.namespace not in (None, record.namespace):
                continue
            told = absent.pop(record.uid, None)
            if not self._handles((record.namespace, record.name)):
                continue
            self._departures.discard(record.uid)
            is_changed = told is None or told.version != record.version
            is_due = is_changed or (as_listed and record.uid not in self._listing)
            if record.stored and is_due:  # Of one that cannot be read, Kopf hears once it can.
                wanted.append(record)
        for record, body in _decoded(wanted):
            key, is_known = (record.namespace, record.name), record.uid in self.knowledge.known
            if not self._handles(key):
                continue
            is_gained = not is_known and self._has_gained(key)
            if is_gained or (as_listed and record.uid not in self._listing):
                if as_listed:
                    self._listing.add(record.uid)
                if self.knowledge.is_listed and not (is_known or is_gained):
                    self._begin(body)
                self.knowledge.known[record.uid] = record
                event = {"type": None, "object": body}
                self._note_gained(event)
                yield event
            else:
                yield self._put(record, body)
        if as_listed:
            self.knowledge.end_list(began)
            self._listing.clear()
            yield _kopf.LISTED
        self._end_gained(number)
        for uid, record in absent.items():
            if uid not in self.knowledge.known or not self._handles((record.namespace, record.name)):
                continue  # Another replica handles it, or has meanwhile.
            if not self._departures.is_selected(record):  # An earlier filter had it, or Kopf's own watch.
                self._forget(uid)
                continue
            departure = departures.get(uid) or self._informer.state.union.departure_of(record)
            if (event := self._event_of(departure)) is not None:
                if event["type"] == "DELETED":
                    self._marked_deleted(event["object"])
                yield event

    def _queued(self) -> Iterator[Any]:
        """Yield the events of the changes, and None while there are none."""
        while not self._gained and ((change := self._queue.take()) is not None or not self._must_stop):
            if change is None:
                yield None
            elif (event := self._event_of(change)) is not None:
                yield event

    def _event_of(self, change: Change) -> Any:
        """Return the event of a change; None if Kopf is not told of it."""
        before, after = change.before, change.after
        if not self._handles(change.key):
            return None
        if after is not None and change.cause is not ChangeCause.LEFT:
            return self._put(after, after.decode()) if after.stored else None
        assert before is not None, "it departs"
        is_known = before.uid in self.knowledge.known
        if is_known and after is not None:  # It exists, outside of the filter: no further event will come.
            body = self._body_of(after)
            self._forget(before.uid, body)
            return {"type": "MODIFIED", "object": body}
        if is_known and change.filter_changed:
            self._forget(before.uid)
        elif is_known and change.cause is ChangeCause.LEFT:
            self._departures.add(change)
        elif is_known:
            del self.knowledge.known[before.uid]
            return {"type": "DELETED", "object": self._departed(before, change.last)}
        return None

    def _put(self, record: Record, body: dict[str, Any]) -> Any:
        """Return the event of an object that is there."""
        self._departures.discard(record.uid)
        is_known = record.uid in self.knowledge.known
        self.knowledge.known[record.uid] = record
        if not is_known:
            self._begin(body)
        return {"type": "MODIFIED" if is_known else "ADDED", "object": body}

    def _begin(self, body: dict[str, Any]) -> None:
        """Have Kopf note of an object that is new to it if its own watch would have shown it in a list."""
        if (parts := _kopf.parts_of(self._watcher.settings)) is not None:
            parts.memos.begin(body["metadata"]["uid"], is_listed=self.knowledge.was_there(body))

    def _forget(self, uid: str, body: dict[str, Any] | None = None) -> None:
        """Have Kopf forget an object that exists: with the event of this body, or now."""
        self.knowledge.forget(body or self._body_of(self.knowledge.known[uid]))
        parts = _kopf.parts_of(self._watcher.settings)
        if parts is not None and body is not None:
            parts.memos.forget_with(body)
        elif parts is not None:
            parts.memos.drop(uid)

    def _departed(self, record: Record, last: Record | None = None) -> dict[str, Any]:
        """Return an object that does not exist any more: as its event has it, if there was one."""
        body = self._body_of(last or record)
        return body if last is not None else self._marked_deleted(body)

    def _marked_deleted(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body of an object whose departure Kopf hears of later. Without a time of deletion, Kopf
        would start its daemons, or not stop them.
        """
        body["metadata"].setdefault("deletionTimestamp", self._now())
        return body

    def _now(self) -> str:
        return self._operator.runtime.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _body_of(self, record: Record) -> dict[str, Any]:
        """Return an object as a dict; its metadata only, if no more is known."""
        if record.stored:
            return record.decode()
        resource = self._watcher.resource
        return {
            "apiVersion": f"{resource.group}/{resource.version}" if resource.group else resource.version,
            "kind": resource.kind,
            "metadata": {
                "name": record.name,
                **({"namespace": record.namespace} if record.namespace else {}),
                "uid": record.uid,
                "resourceVersion": record.version,
                "labels": dict(record.labels),
            },
        }
