"""Namespaces by label: follows the namespaces that have a label, and has the filters changed that choose
namespaces by it.

One internal informer for each label selector is shared by all kinds. When its set changes, two things happen
to each kind that uses it:

1. In the same step of the loop, reads lose the namespaces that have lost the label (`hide`). Their streams
   and objects are still there, so this waits for nothing.
2. The filter is changed to the new set (`filter_change`): streams of other namespaces are kept, and
   namespaces that have gained the label are served once they are synced. One change is under way at a time;
   it takes the newest set, so a burst of namespaces takes few changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from kopf_selectcache._errors import NotSynced, SelectCacheError, StateError, Superseded
from kopf_selectcache.client import fetcher
from kopf_selectcache.client.fetcher import Client
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.protocol.messages import delay
from kopf_selectcache.core.selection.kinds import BUILT_IN, Resource
from kopf_selectcache.core.store.record import rank_of
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector, labels_of_namespaces
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.declaration import Cached

from .background import IndexFailed
from .environment import Environment, sleep_until
from .health import Condition
from .state import CacheDivision, Derived, Followed, InformerState, Present, Undivided

MOST_ASKED = 100
"""Maximum of namespaces that the server is asked for one by one."""

JOINED_PAUSE_SECONDS = 10.0
"""Seconds between two changes of a filter whose namespaces share one list and watch: each change lists all of
its objects again."""


_NAMESPACES = Resource(next(kind for kind in BUILT_IN if kind.kind == "Namespace"), "v1")


class Follower(Protocol):
    """The internal informer of namespaces."""

    state: InformerState

    def subscribe(
        self, listener: Callable[[object], None], completed: Callable[[], None]
    ) -> Callable[[], None]:
        """Call the listener with each change, and the other function when a list is complete."""

    async def wait_until_settled(self) -> None:
        """Wait until it is synced or has failed."""


class Labelled:
    """The namespaces that have one label, as long as somebody uses them."""

    def __init__(self, label: LabelSelector, informer: Follower) -> None:
        self.label = label
        self.informer = informer
        self.users = 0
        self.looks: dict[object, Callable[[], None]] = {}
        """Called, by user, whenever the namespaces may have changed."""
        informer.subscribe(self._note, self._note)

    def _note(self, _: object = None) -> None:
        for look in tuple(self.looks.values()):
            look()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.informer.state.conditions

    @property
    def is_known(self) -> bool:
        """True if it is known which namespaces have the label, or have had it at the last list."""
        return self.informer.state.store.version != ""

    def unreadable(self) -> tuple[StateError | None, str, str] | None:
        """Return the error that reads must raise, a message and a remedy; None if reads may be answered."""
        part = self.informer.state.part()
        if part.error is None and part.store.version:
            return None
        which = f"have {self.label}" if self.label.requirements else "there are"
        message = part.message or f"it is not known yet which namespaces {which}"
        return part.error, message, part.remedy

    def age(self) -> float | None:
        return self.informer.state.age()

    def present(self) -> Present:
        """Return the namespaces and the version as of which that is true. Any thread may call it."""
        records, version = self.informer.state.store.records()
        return Present(frozenset(record.name for record in records), version)


class NamespacesByLabel:
    """The followed label selectors of one operator."""

    def __init__(
        self, start: Callable[[LabelSelector], Follower], end: Callable[[Follower], asyncio.Task[None] | None]
    ) -> None:
        self._start = start  # Starts the informer of the namespaces with a label.
        self._end = end  # Ends it; returns its task, which ends soon.
        self._labelled: dict[LabelSelector, Labelled] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def labelled(self) -> Collection[Labelled]:
        return self._labelled.values()

    def of(self, labels: Iterable[LabelSelector]) -> tuple[Labelled, ...]:
        """Return what somebody follows already."""
        return tuple(self._labelled[label] for label in labels)

    def sets(self, declared: Branches) -> dict[LabelSelector, Collection[str]]:
        """Return the namespaces of each label of a filter, which somebody follows already."""
        return {each.label: each.present().names for each in self.of(labels_of_namespaces(declared))}

    def use(self, label: LabelSelector) -> Labelled:
        """Follow the namespaces with a label until `release`."""
        found = self._labelled.get(label)
        if found is None:
            found = self._labelled[label] = Labelled(label, self._start(label))
        found.users += 1
        return found

    def release(self, label: LabelSelector) -> None:
        """End a use. The last one ends the informer."""
        found = self._labelled[label]
        found.users -= 1
        if not found.users:
            del self._labelled[label]
            if (task := self._end(found.informer)) is not None:
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

    def unknown(self, labels: Iterable[LabelSelector], timeout: float | None) -> SelectCacheError | None:
        """Return why it is not known after the timeout which namespaces have these labels; None if it is, or
        if nobody follows them.
        """
        for each in self.of(label for label in labels if label in self._labelled):
            if (unreadable := each.unreadable()) is not None:
                error, message, remedy = unreadable
                waited = "" if timeout is None else f"not after {timeout:g} s: "
                return error or NotSynced(waited + message, remedy=remedy or "Wait longer: timeout=...")
        return None

    async def wait_ended(self) -> None:
        """Wait until all informers have ended that nobody uses any more."""
        if self._ending:
            await asyncio.wait({*self._ending})

    @asynccontextmanager
    async def known(self, declared: Branches, *, timeout: float | None) -> AsyncIterator[None]:  # noqa: ASYNC109  # Its end names a reason.
        """Use the label selectors of a filter, once it is known which namespaces have them; raise why that is
        not known.
        """
        labels = labels_of_namespaces(declared)
        used = [self.use(label) for label in labels]
        try:
            try:
                async with asyncio.timeout(timeout):
                    for each in used:
                        await each.informer.wait_until_settled()
            except TimeoutError:
                pass  # The reason is raised below.
            if (error := self.unknown(labels, timeout)) is not None:
                raise error
            yield
        finally:
            for label in labels:
                self.release(label)
            await self.wait_ended()


@dataclass(frozen=True, slots=True)
class Failing:
    """A namespace that has the label, and cannot be synced."""

    error: NotSynced | StateError
    failures: int
    until: float
    """The time of the next try."""


class Changeable(Protocol):
    """The part of `FilterChange` that follows the namespaces."""

    unsynced: frozenset[str]

    @property
    def is_idle(self) -> bool:
        """True if no change is under way."""

    async def change(self, declared: Cached, *, timeout: float) -> None:  # noqa: ASYNC109  # As that of `FilterChange`.
        """Replace the filter."""


class Chooser(Protocol):
    """The parts of an informer that its namespaces concern."""

    state: InformerState
    declared: Cached

    @property
    def filter_change(self) -> Changeable:
        """The changes of the filter."""

    moved: asyncio.Event

    def wake_readers(self) -> None:
        """Have waiting reads look again."""


class ChosenNamespaces:
    """The namespaces that one informer serves because of their labels."""

    def __init__(
        self,
        informer: Chooser,
        followed: NamespacesByLabel,
        *,
        environment: Environment,
        watched: Collection[str] | None,
        changed: Callable[[], None],
    ) -> None:
        self._informer = informer
        self._followed = followed
        self.division: CacheDivision = Undivided()
        """Which of its namespaces this replica caches, if they are divided."""
        self._environment = environment
        self.watched = watched
        self._changed = changed  # Called whenever the filter has another set.
        self._used: tuple[LabelSelector, ...] = ()
        self.failing: Mapping[str, Failing] = {}
        self._again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_running = False
        """True while a task changes the filter whenever `is_outdated` says that it must be."""

    def use(self, declared: Branches) -> None:
        """Follow the labels of this filter from now on, and no others."""
        labels, former = labels_of_namespaces(declared), self._used
        for label in labels:
            if label not in former:
                self._followed.use(label).looks[self] = self.look
        self._used = labels
        for label in former:
            if label not in labels:
                self._release(label)

    def _release(self, label: LabelSelector) -> None:
        (found,) = [each for each in self._followed.labelled if each.label == label]
        del found.looks[self]
        self._followed.release(label)

    def error_of(self, name: str) -> NotSynced | StateError | None:
        """Return why a namespace cannot be synced; None if it may be. Any thread may call it."""
        failing = self.failing.get(name)
        return None if failing is None else failing.error

    def end(self) -> None:
        """Follow nothing any more."""
        self.use(_NO_LABELS)

    def start(self) -> None:
        """Have a task change the filter from now on, whenever it must be."""
        self._is_running = True

    async def stop(self) -> None:
        """End the task that changes the filter."""
        self._is_running = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def of(self, labels: Iterable[LabelSelector]) -> tuple[Labelled, ...]:
        """Return the namespaces of label selectors that are followed."""
        return self._followed.of(labels)

    def unknown(self, declared: Cached, timeout: float) -> SelectCacheError | None:
        """Return why it is not known which namespaces have the labels of a declaration; None if it is."""
        return self._followed.unknown(declared.namespace_labels, timeout)

    async def wait_known(self) -> None:
        """Wait until it is known which namespaces have the labels of the declaration. A change may replace it
        meanwhile.
        """
        while not all(each.is_known for each in self.of(self._informer.declared.namespace_labels)):
            self._again.clear()
            await self._again.wait()

    def divide(self, division: CacheDivision, why: str) -> None:
        """Have replicas divide its namespaces, or not. Call it before it runs."""
        informer = self._informer
        self.division, informer.declared = division, informer.declared.replaced(divided=why)
        self.use(informer.declared.chosen_filter)
        informer.state = replace(informer.state, followed=self.of(informer.declared.namespace_labels))

    def sets(self, declared: Cached) -> dict[LabelSelector, Collection[str]]:
        """Return the namespaces of each label, without those that cannot be synced, and those of other
        replicas.
        """
        return {
            each.label: self._own(each, declared) - self.failing.keys()
            for each in self.of(declared.namespace_labels)
        }

    def _own(self, followed: Followed, declared: Cached) -> frozenset[str]:
        """Return the namespaces that have a label, and that this replica caches."""
        names = followed.present().names
        return frozenset(filter(self.division.serves, names)) if declared.divided else names

    def are_served(self, has: Callable[[str], bool]) -> bool:
        """Return True if all namespaces for which a function returns True are served; or if it is known why
        they can't be: reads raise that.
        """
        informer, state = self._informer, self._informer.state
        kind = None if state.resource is None else state.resource.kind
        if not informer.declared.divided or (kind is not None and kind.namespaced is False):
            return True
        is_known = all(each.is_known for each in self.of(informer.declared.namespace_labels))
        if not is_known or state.is_resolving or state.plan is None:
            return is_known and state.part().error is not None
        sets = self.sets(informer.declared)
        are_planned = all(
            {*filter(has, self._chosen(planned, sets))}.issubset(planned.namespaces or ())
            for planned in state.plan.filter.branches
            if planned.namespace_label is not None
        )
        return are_planned and state.unsettled(None) is None

    def version(self, labels: Iterable[LabelSelector]) -> str:
        """Return the version as of which their namespaces are known; empty if there are no labels."""
        return max((each.present().version for each in self.of(labels)), key=rank_of, default="")

    def hide(self, state: InformerState) -> InformerState:
        """Return a state that serves only namespaces that have their label still."""
        if not state.followed or state.plan is None:
            return state
        declared = self._informer.declared
        present = {each.label: self._own(each, declared) for each in state.followed if each.is_known}
        branches, lost = list[Selector](), set[str]()
        for planned in state.plan.filter.branches:
            branch, label = planned, planned.namespace_label
            if label is not None and label in present:
                chosen = {*(planned.namespaces or ())}
                branch = planned.in_namespaces(present[label] & chosen)
                lost |= chosen - present[label]
            branches.append(branch)
        filter_: Selector | AnyOf = branches[0] if len(branches) == 1 else AnyOf(branches)
        if filter_ == state.filter:
            return state
        return replace(state, filter=filter_, lost=frozenset(lost), derived=Derived())

    def look(self) -> None:
        """Note that the namespaces may have changed. Call it on the operator's loop."""
        informer = self._informer
        hidden = self.hide(informer.state)
        if hidden is not informer.state:
            informer.state = hidden
            informer.wake_readers()
            self._changed()
        self._again.set()
        informer.moved.set()
        is_idle = self._task is None or self._task.done()
        if self._is_running and is_idle and (self.failing or self.is_outdated):
            self._task = asyncio.create_task(
                self._follow(), name=f"selectcache: {informer}, namespaces by label"
            )

    @property
    def is_outdated(self) -> bool:
        """True if the filter must be changed to other namespaces."""
        state, declared = self._informer.state, self._informer.declared
        if state.is_resolving or state.plan is None or not state.followed:
            return False
        if not all(each.is_known for each in state.followed):
            return False
        sets = self.sets(declared)
        return any(
            planned.namespace_label is not None
            and {*(planned.namespaces or ())} != {*self._chosen(planned, sets)}
            for planned in state.plan.filter.branches
        )

    def _chosen(self, planned: Selector, sets: Mapping[LabelSelector, Collection[str]]) -> Iterable[str]:
        """Return the namespaces of a branch: those that the operator watches and its fields allow."""
        assert planned.namespace_label is not None, "it has no label"
        excluded = {
            term.value for term in planned.terms if term.label == "metadata.namespace" and not term.equal
        }
        return (
            name
            for name in sets.get(planned.namespace_label, ())
            if (self.watched is None or name in self.watched) and name not in excluded
        )

    async def _follow(self) -> None:
        """Change the filter until it has the present namespaces."""
        environment, informer, failures = self._environment, self._informer, 0
        while self.failing or self.is_outdated:
            self._again.clear()
            now = environment.clock()
            if not informer.filter_change.is_idle:
                return  # `look` is called at the end of that change.
            if self.is_outdated:
                failures = await self._change(failures)
                continue
            wait = min(each.until for each in self.failing.values()) - now
            await sleep_until(self._again, environment.sleep(max(wait, 0.0)))
            self._retry()

    def _retry(self) -> None:
        """Forget failures that are due, and those of namespaces that have lost the label."""
        now, present = self._environment.clock(), set[str]()
        for each in self.of(self._informer.declared.namespace_labels):
            present |= self._own(each, self._informer.declared)
        self.failing = {
            name: each for name, each in self.failing.items() if each.until > now and name in present
        }

    async def _change(self, failures: int) -> int:
        """Change the filter once; return the number of failures in a row."""
        environment, informer = self._environment, self._informer
        try:
            await informer.filter_change.change(informer.declared, timeout=environment.settings.sync_timeout)
        except Superseded:
            return 0  # The newer change has taken the present set.
        except (SelectCacheError, IndexFailed) as error:
            # A present namespace stays, with its objects: its own stream reports its failure.
            present = informer.state.plan.labelled if informer.state.plan is not None else frozenset()
            names = informer.filter_change.unsynced - present
            if isinstance(error, (NotSynced, StateError)) and names:
                until = environment.clock() + delay(failures, environment.chance(), slow=True)
                self.failing = {
                    **self.failing,
                    **{name: Failing(error, failures + 1, until) for name in names},
                }
            else:
                await environment.sleep(delay(failures, environment.chance(), slow=True))
            return failures + 1
        finally:
            informer.wake_readers()
            self._changed()
        plan = informer.state.plan
        if plan is not None and any(len(each.selector.namespaces or ()) > 1 for each in plan.streams):
            await environment.sleep(JOINED_PAUSE_SECONDS * (0.5 + environment.chance()))
        return 0


_NO_LABELS = Selector()


def unfollowed() -> NamespacesByLabel:
    """Return what an informer has that chooses no namespaces by label."""
    nothing: dict[LabelSelector, Follower] = {}
    no_task: dict[Follower, asyncio.Task[None]] = {}
    return NamespacesByLabel(nothing.__getitem__, no_task.get)


# ---- Namespaces that do not exist.


async def exists(client: Client, namespace: str) -> bool:
    """Ask whether a namespace exists, with the permission that Kopf needs: to list namespaces. Raise Refused,
    Unreachable or Garbled.
    """
    return await fetcher.exists(client, _NAMESPACES, None, namespace)


async def absent(is_there: Callable[[str], Awaitable[bool]], named: Mapping[str, str]) -> str:
    """Return the namespaces that do not exist, each with the place that names it; an empty text if all exist,
    or if namespaces may not be listed. Raise what `is_there` raises.
    """
    try:
        found = [
            f"{name!r} (named by {place})"
            for name, place in islice(named.items(), MOST_ASKED)
            if not await is_there(name)
        ]
    except Refused as error:
        if error.refusal.code == 403:
            return ""
        raise
    return ", ".join(found)


def named_by(filter_: Branches, place: str) -> dict[str, str]:
    """Return the namespaces that a filter names, each with the place of the filter."""
    return {name: place for branch in filter_.branches for name in branch.namespaces or ()}


class AbsentNamespaces:
    """Warns of the namespaces that do not exist, once of each."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._asked = set[str]()

    async def look(self, named: Mapping[str, str]) -> None:
        """Warn of those that do not exist among the namespaces that are not known yet."""
        new = {name: place for name, place in named.items() if name not in self._asked}
        self._asked.update(islice(new, MOST_ASKED))
        if found := await absent(self._is_there, new):
            self._environment.logger.warning(
                "Namespaces that do not exist: %(namespaces)s. Nothing is cached there until you create"
                " them.",
                {"namespaces": found},
            )

    async def _is_there(self, namespace: str) -> bool:
        environment = self._environment
        return await environment.answer_to(lambda: exists(environment.transport, namespace))
