"""StreamWriter: runs the protocol machine of one stream, applies its effects to the substore, and returns
the next command. No I/O.

The reflector executes the commands against a server; the fake informer of the test kit executes them at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from kopf_selectcache.client.transport import NoCredentials, Refused, Unreachable
from kopf_selectcache.core.errors import Garbled, TooLarge, Untransformed
from kopf_selectcache.core.protocol.machine import (
    Abandon,
    Begin,
    Commit,
    Filling,
    Idle,
    Input,
    Known,
    Leave,
    List,
    Lost,
    Progress,
    Put,
    Silent,
    State,
    Wait,
    Watch,
    Watching,
    step,
)
from kopf_selectcache.core.protocol.messages import Bookmark, Event, Refusal
from kopf_selectcache.core.protocol.query import asks_for_newest
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.selection.sent import Unselected
from kopf_selectcache.core.store.store import Change
from kopf_selectcache.core.store.substore import Branch
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.selector import Branches
from kopf_selectcache.settings.planner import Stream

from ._awaited_versions import AwaitedVersions
from ._checked_reader import Uncertain
from ._messages import Subject
from .causes import reason
from .health import Condition
from .log import context_of_stream
from .metrics import Counts

Command: TypeAlias = List | Watch | Wait


class StreamWriter:
    """The protocol state of one stream, and the substore that it writes to."""

    def __init__(
        self,
        stream: Stream,
        resource: Resource,
        union: Union,
        branch: Branch,
        *,
        new_condition: Callable[[Subject], Condition],
        clock: Callable[[], float],
        counts: Counts,
        logger: logging.Logger,
        notify: Callable[[Sequence[Change]], None],
    ) -> None:
        self.union = union
        self.branch = branch
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
        self.reason = "first"
        """The reason of the next list, a label of metrics."""
        self.is_ordered = False
        """True if a list was ordered: a failure meanwhile is not its reason."""
        self._clock = clock
        self._counts = counts
        self._logger = logger
        self._notify = notify

    def __str__(self) -> str:
        return str(self.resource)

    @property
    def kind(self) -> Kind:
        return self.resource.kind

    @property
    def version(self) -> str:
        return self.branch.version

    def held(self) -> int:
        """Return the number of stored objects."""
        return len(self.branch.view.records()[0])

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
        command: Command | None = None
        changes: list[Change] = []
        union, branch = self.union, self.branch
        for effect in stepped.effects:
            match effect:  # The most frequent ones come first.
                case Put(record):
                    changes += union.put(branch, record)
                case Progress(version):
                    self.heard = self._clock()
                    changes += union.progress(branch, version)
                case List() | Watch() | Wait():
                    command = effect
                case Leave(record):
                    was_held = branch.view.held(record.key) is not None
                    changes += union.leave(branch, record)
                    self.has_moved |= was_held and branch.view.held(record.key) is None
                case Begin():
                    union.begin(branch)
                    self.lists += 1
                    self.is_consistent = not self.shares_list and any(map(asks_for_newest, stepped.effects))
                case Abandon():
                    union.abandon(branch)
                case Commit(version, restored):
                    changes += self._commit(version, restored=restored)
                case _:  # Report.
                    self.report(effect.failure)
        if isinstance(input_, Bookmark) and isinstance(after, Watching) and input_.version == branch.version:
            self.heard = self._clock()
            # An initial state may come from a server that lags.
            self.is_confirmed = self.is_consistent or not input_.complete
        if stepped.effects:
            self._notify(changes)
        if self.awaited:
            if self.has_committed:
                self.awaited.wake()
            else:
                self.awaited.reach(branch.version)
        return command

    def _commit(self, version: str, *, restored: bool) -> list[Change]:
        if self.branch.version:
            self._counts.relists[self.reason] += 1
        self.commits += 1
        self.newest_list = self.lists if self.is_consistent else self.newest_list
        self.heard = self._clock()
        self.has_committed = True
        changes = self.union.commit(self.branch, version, restored=restored)
        if restored:
            self._logger.warning(
                "The server of %(resource)s went back to an older state; its cache started anew.",
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
            why = reason(failure)
            if not self.is_ordered:
                self.reason = why
            self._counts.failures[why] += 1
        self.condition.fail(failure, verb=self.verb)

    def age(self) -> float | None:
        """Return the seconds since the server last confirmed the substore; None before the first complete
        list.
        """
        return None if self.heard is None or not self.branch.version else self._clock() - self.heard

    def forget(self) -> None:
        """Drop the stored objects, and wake all who wait. Only the garbage collector may find this writer."""
        self.union = Union([self.branch.keys])
        (self.branch,) = self.union.branches
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
