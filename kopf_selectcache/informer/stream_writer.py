"""StreamWriter: runs the protocol machine of one stream, applies its effects to the substore, and returns
the next command. No I/O. `CheckedReader` reads the stream's pages and events before.

The reflector executes the commands against a server; the fake informer of the test kit executes them at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import TypeAlias

from kopf_selectcache.client.reading import NoCredentials, Refused, Unreachable, decode_in_slices
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.errors import Garbled, MetricReason, ReasonLabel, TooLarge, Untransformed
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.machine import (
    Abandon,
    Begin,
    Commit,
    Effect,
    Filling,
    Idle,
    Input,
    Jump,
    Known,
    Leave,
    List,
    Lost,
    Progress,
    Put,
    Report,
    Silent,
    State,
    Wait,
    Waiting,
    Watch,
    Watching,
    step,
)
from kopf_selectcache.core.protocol.messages import Bookmark, Event, Message, Page, Refusal, delay
from kopf_selectcache.core.selection.grammar import EVERYTHING, FieldTerm, Sent, Unselected
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.selector import Branches
from kopf_selectcache.settings.planner import Stream

from .environment import Environment
from .health import Condition, Subject, reason_of
from .log import context_of_stream
from .metrics import Counts
from .reach import AwaitedVersions

Command: TypeAlias = List | Watch | Wait


class StreamWriter:
    """The protocol state of one stream, and the substore that it writes to."""

    def __init__(
        self,
        stream: Stream,
        resource: Resource,
        union: Union,
        substore: Substore,
        *,
        new_condition: Callable[[Subject], Condition],
        clock: Callable[[], float],
        counts: Counts,
        logger: logging.Logger,
        notify: Callable[[Sequence[Change]], None],
    ) -> None:
        self.union = union
        self.substore = substore
        self.resource = resource
        self.filter: Branches = stream.selector
        self.condition = new_condition(self)
        self.state: State = Idle(Known())
        self.awaited = AwaitedVersions()
        """Futures that wait for this stream to reach a version."""
        self.heard: float | None = None
        """The time at which the server last confirmed the substore."""
        self.commits = 0
        """The number of complete lists."""
        self.lists = 0
        """The number of lists that have begun."""
        self.newest_list = 0
        """The number of the last consistent list that is complete. It shows what the server had after it
        began."""
        self.is_consistent = False
        """True if the last list that began is a consistent one."""
        self.shares_list = False
        """True if the next list may be as of the version that other streams were listed at."""
        self.has_committed = False
        """True if the last input has completed a list."""
        self.has_moved = False
        """True if the last input shows that the stream is alive: it moved the stream forward, confirmed its
        version, or removed a stored object. Events and bookmarks of the past can also come from a proxy, or
        from a server that does not follow the cluster any more."""
        self.is_confirmed = False
        """True if the last input is a bookmark of the version of the substore."""
        self.verb = "list"
        """The verb of the request under way."""
        self.reason: ReasonLabel | None = None
        """The reason for which a list is due; None if none is due, or after an error of this package. A
        failure of that list does not change it."""
        self.share: Callable[[Record], Record] | None = None
        """Returns the same object as another union holds it, while the filter changes to that of this one."""
        self._writes_added = 0  # The number of own writes that were added when the list began.
        self._clock = clock
        self._counts = counts
        self._logger = logger
        self.notify = notify
        """Called with the changes of each input."""
        self.failed: Callable[[StreamWriter, ReasonLabel], None] | None = None
        """Called after each failure that is no usual end of a watch."""

    def __str__(self) -> str:
        return str(self.resource)

    @property
    def kind(self) -> Kind:
        return self.resource.kind

    @property
    def version(self) -> str:
        return self.substore.version

    def held(self) -> int:
        """Return the number of stored objects."""
        return len(self.substore.view.records()[0])

    def take(self, input_: Input) -> Command | None:
        """Apply an input of the protocol; return the command that the next inputs come from, or None if the
        present command goes on.
        """
        before = self.state
        stepped = step(before, input_)
        self.state = after = stepped.state
        self.has_committed = self.is_confirmed = False
        if isinstance(after, Watching) and isinstance(before, Watching):
            self.has_moved = after.version != before.version
            if isinstance(input_, Bookmark):
                self.has_moved = self.has_moved or input_.version == after.version
        else:
            # During an initial state, the versions of bookmarks have no meaning.
            self.has_moved = not (isinstance(after, Filling) and isinstance(before, Filling)) or isinstance(
                input_, Event
            )
        with self.union.own_writes.lock:  # Readers see the effects of one input and its own writes together.
            command, changes = self._apply(stepped.effects)
        substore = self.substore
        if (
            isinstance(input_, Bookmark)
            and isinstance(after, Watching)
            and input_.version == substore.version
        ):
            self.heard = self._clock()
            # An initial state may come from a server that lags.
            self.is_confirmed = self.is_consistent or not input_.complete
        if stepped.effects:
            self.notify(changes)
        if self.awaited:
            if self.has_committed:
                self.awaited.wake()
            else:
                self.awaited.reach(substore.version)
        return command

    def _apply(self, effects: Sequence[Effect]) -> tuple[Command | None, list[Change]]:
        """Apply the effects to the substore; return the command among them, and the changes."""
        command: Command | None = None
        changes: list[Change] = []
        union, substore = self.union, self.substore
        for effect in effects:
            # The most frequent ones come first. Patterns take twice as long.
            if type(effect) is Put:
                record = effect.record if self.share is None else self.share(effect.record)
                changes += union.put(substore, record)
                continue
            if type(effect) is Progress:
                self.heard = self._clock()
                changes += union.progress(substore, effect.version)
                continue
            match effect:
                case List() | Watch() | Wait():
                    command = effect
                case Leave(record):
                    was_held = substore.view.held(record.key) is not None
                    changes += union.leave(substore, record)
                    self.has_moved |= was_held and substore.view.held(record.key) is None
                case Begin():
                    union.begin(substore)
                    self.lists += 1
                    self._writes_added = union.own_writes.added
                    self.is_consistent = not self.shares_list and any(
                        isinstance(each, (List, Watch)) and each.asks_for_newest for each in effects
                    )
                case Abandon():
                    union.abandon(substore)
                case Jump(version):
                    self.heard = self._clock()
                    changes += union.jump(substore, version)
                case Commit(version, restored):
                    changes += self._commit(version, restored=restored)
                case Report(failure):
                    self.report(failure)
        return command, changes

    def _commit(self, version: str, *, restored: bool) -> list[Change]:
        if self.substore.version:
            self._counts.relists[self.reason or MetricReason.RESTART] += 1
        self.reason = None
        self.commits += 1
        self.newest_list = self.lists if self.is_consistent else self.newest_list
        self.heard = self._clock()
        self.has_committed = True
        writes_added = self._writes_added if self.is_consistent else 0
        changes = self.union.commit(self.substore, version, restored=restored, writes_added=writes_added)
        if restored:
            self._logger.warning(
                "The server of %(resource)s went back to an older state, so its cache is listed again.",
                {"resource": str(self)},
                extra=context_of_stream(self.condition),
            )
        return changes

    def report(self, failure: Refusal | Lost | Silent | None) -> None:
        """Report a failure to the condition of the stream, or None if the server accepts its requests."""
        if failure is None:
            self.condition.well()
            return
        if not isinstance(failure, Lost) or not failure.paced:
            reason = reason_of(failure)
            if not isinstance(self.state, Watching) and not (
                isinstance(self.state, Waiting) and self.state.resume
            ):
                self.note_reason(reason)
            self._counts.failures[reason] += 1
        self.condition.fail(failure, verb=self.verb)
        if self.failed is not None and self.condition.failure is failure:
            self.failed(self, reason_of(failure))

    def note_reason(self, reason: ReasonLabel) -> None:
        """Note the reason of the list that is due, unless it was due before."""
        self.reason = self.reason or reason

    def age(self) -> float | None:
        """Return the seconds since the server last confirmed the substore; None before the first complete
        list.
        """
        return None if self.heard is None or not self.substore.version else self._clock() - self.heard

    def follow(
        self,
        union: Union,
        substore: Substore,
        notify: Callable[[Sequence[Change]], None],
    ) -> None:
        """Write to a substore of another union from now on, which has taken over the present one."""
        self.union, self.substore, self.notify = union, substore, notify
        self._writes_added = 0  # Own writes are numbered anew.

    def forget(self) -> None:
        """Drop the stored objects, and wake all who wait. Only the garbage collector may find this writer."""
        self.union = Union([self.substore.keys])
        (self.substore,) = self.union.substores
        self.awaited.wake()


def failure_of(error: Exception) -> Refusal | Lost:
    """Return the input of the protocol for an exception of a request."""
    match error:
        case Refused():
            return error.refusal
        case Untransformed():
            return Lost(
                str(error), garbled=True, transform=True, argument=error.argument, besides=error.besides
            )
        case Unselected():
            return Lost(str(error), outside=True)
        case Garbled():
            wait = error.wait if isinstance(error, Uncertain) else 0.0
            return Lost(str(error), garbled=True, too_large=isinstance(error, TooLarge), at_least=wait)
        case _:
            assert isinstance(error, Unreachable), f"no request fails with {error!r}"
            return Lost(str(error), unauthorized=isinstance(error, NoCredentials))


# ---- Reads the pages and events of one stream. Confirms with the server that an object is outside of a
# field selector before that counts.


class Judgement(Enum):
    """The result for one object."""

    OUTSIDE = auto()
    """The selector does not select it: the server ignores the selector, or part of it."""
    MISREAD = auto()
    """The server selects it; our table of fields reads another value."""
    UNCERTAIN = auto()
    """It is gone, or has changed meanwhile."""


async def judge(transport: Transport, resource: Resource, unselected: Unselected) -> Judgement:
    """Ask the server about the object, unless its labels decide; raise Refused, Unreachable or Garbled."""
    term = unselected.term
    if term is None:
        return Judgement.OUTSIDE
    page = await _page(transport, resource, unselected, replace(term, equal=not term.equal), EVERYTHING)
    if page.records:
        return (
            Judgement.OUTSIDE
            if any(_is_proof(record, unselected) for record in page.records)
            else Judgement.UNCERTAIN
        )
    try:
        await _page(transport, resource, unselected, term, Sent.of(resource.kind, (), [term]))
    except Unselected as again:
        # The server returns it under the term, and not under the opposite, and we still read another value.
        return Judgement.MISREAD if again.uid == unselected.uid else Judgement.UNCERTAIN
    return Judgement.UNCERTAIN


def _is_proof(record: Record, unselected: Unselected) -> bool:
    """Return True if an object that comes under the opposite term is another one, which was not asked for, or
    has not changed.
    """
    is_other = (record.namespace, record.name) != (unselected.namespace, unselected.name)
    return is_other or (record.uid, record.version) == (unselected.uid, unselected.version)


async def _page(
    transport: Transport, resource: Resource, about: Unselected, term: FieldTerm, sent: Sent
) -> Page:
    name = FieldTerm("metadata.name", about.name)
    query = {"fieldSelector": f"{name},{term}", "limit": "1"}
    page = Reader.of(resource, ALL, sent=sent).page(
        await transport.get(resource.path(about.namespace or None), query)
    )
    if not isinstance(page, Page):
        raise Refused(page)
    return page


FORGOTTEN_SECONDS = 600.0
"""Seconds without an uncertain judgement after which the wait is reset to the shortest."""


class Uncertain(Garbled):
    """The server does not show whether an object is outside of the selector. The next request must wait."""

    def __init__(self, reason: str, *, wait: float) -> None:
        super().__init__(reason)
        self.wait = wait
        """Seconds to wait before the next request."""


class CheckedReader:
    """The reader of one stream. A misread field is not compared any more."""

    def __init__(self, reader: Reader, resource: Resource, *, environment: Environment) -> None:
        self.reader = reader
        """Raises Unselected for an object that seems to be outside of the selector."""
        self.has_misread = False
        """True if a field was misread: an object does not show if the stream selects it."""
        self._resource = resource
        self._environment = environment
        # The number of uncertain judgements in a row, each at most `FORGOTTEN_SECONDS` after the last.
        self._uncertain = 0
        self._last = 0.0  # The time of the last one.

    def index(self, indexes: tuple[Indexed, ...]) -> None:
        """Read the values of these indexes from now on."""
        if indexes or self.reader.indexes:
            self.reader = replace(self.reader, indexes=indexes)

    async def page(self, data: bytes) -> Page | Refusal:
        """Read the answer to a list, slice by slice; raise Unselected or Garbled."""
        while True:
            try:
                return await decode_in_slices(self.reader, data)
            except Unselected as unselected:
                await self._confirm(unselected)

    async def line_again(self, line: bytes, unselected: Unselected) -> Message:
        """Read a line with an object that seems to be outside of the selector; raise Unselected if it is, or
        Garbled.
        """
        while True:
            await self._confirm(unselected)
            try:
                return self.reader.line(line)
            except Unselected as another:  # By another field.
                unselected = another

    async def _confirm(self, unselected: Unselected) -> None:
        """Return if the server shows that we misread the field; else raise Unselected, or Uncertain."""
        judgement = await judge(self._environment.transport, self._resource, unselected)
        if judgement is Judgement.OUTSIDE:
            raise unselected
        if judgement is Judgement.UNCERTAIN:
            raise Uncertain(
                f"{unselected}; the object has changed since, and it is not certain", wait=self._next_wait()
            )
        term = unselected.term
        assert term is not None, "a label needs no judgement"
        self.reader = replace(self.reader, sent=self.reader.sent.without(term.label))
        self.has_misread = True
        self._environment.logger.warning(
            "The server selects %(resource)s by %(field)s otherwise than kopf_selectcache reads it off them:"
            " %(object)s, and the server confirms that it does. What it selects by %(field)s is taken as it"
            " comes. Please report it.",
            {"resource": str(self._resource), "field": term.label, "object": str(unselected)},
            extra={"resource": str(self._resource)},
        )

    def _next_wait(self) -> float:
        """Return the seconds to wait after an uncertain judgement. They double each time; good events between
        two do not reset them.
        """
        now = self._environment.clock()
        self._uncertain = self._uncertain + 1 if now - self._last <= FORGOTTEN_SECONDS else 1
        self._last = now
        return delay(self._uncertain - 1, self._environment.chance())
