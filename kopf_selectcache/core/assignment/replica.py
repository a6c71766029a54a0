"""A replica among others: what it knows, what can happen to it, what it wants done, and what it may do now.

`core.assignment.machine` has the rules. Times are seconds of a local clock that goes on during suspend; two
clocks are never compared.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import TypeAlias

from msgspec import Struct

from .records import Assignment, AssignmentRead, Lease, LeaseRead, replica_of
from .rendezvous import RANGES

NEVER = -inf


class Timing(Struct, frozen=True):
    """Durations in seconds."""

    lease: float = 40.0
    """A Lease that has not changed for so long belongs to a dead replica."""
    renew: float = 10.0
    """How often a replica renews its Lease."""
    margin: float = 15.0
    """A replica stops that long before others may declare it dead."""
    write: float = 5.0
    """The longest that a write of a handler may take. Who takes the range of a dead replica waits so long."""
    retry: float = 2.0
    """The pause after a request that failed."""


class Options(Struct, frozen=True):
    """The options of a replica."""

    name: str
    """The name of the pod."""
    nonce: str
    """A text that no other process has."""
    by: str = "namespace"
    hash: str = "mixed-fnv1a-64"
    ranges: int = RANGES
    warm_at_once: int = 8
    """How many ranges it prepares to take from living replicas at a time."""
    timing: Timing = Timing()


# ---- Inputs. Each comes with the time of the local clock.


class Tick(Struct, frozen=True):
    """Time has passed: see `due`."""


class LeaseSeen(Struct, frozen=True):
    """The watch brought a Lease."""

    read: LeaseRead


class LeasesListed(Struct, frozen=True):
    """The answer to `ListLeases`: all Leases, from a consistent list that began after the effect."""

    request: int
    reads: tuple[LeaseRead, ...]


class AssignmentSeen(Struct, frozen=True):
    """The watch brought the assignment, or a consistent read did: the answer to the request of a number."""

    read: AssignmentRead
    request: int = 0


class Outcome(StrEnum):
    """The outcome of a request. *No answer* is not *no*."""

    YES = "yes"
    REFUSED = "refused"
    """The server said that it did nothing: a conflict, not found, invalid, forbidden."""
    NO_ANSWER = "no answer"
    """Nobody knows whether it was done, or will be."""


class Answered(Struct, frozen=True):
    """The answer to a request; with the version and uid of the new object if it was done."""

    request: int
    outcome: Outcome
    version: str = ""
    uid: str = ""


class Term(Struct, frozen=True):
    """One ownership of a range. Handlers keep the term in which they started."""

    nonce: str
    epoch: int


class Warmed(Struct, frozen=True):
    """The keys of a range are listed and watched: the answer to `Warm`."""

    range: int
    ticket: int


class CaughtUp(Struct, frozen=True):
    """The caches have what the last owners of some ranges have written: the answer to `CatchUp`."""

    ranges: tuple[tuple[int, Term], ...]


class Drained(Struct, frozen=True):
    """No handler of the range runs: the answer to `Drain`."""

    range: int
    term: Term
    is_clean: bool = True
    """False if the last write of a handler may still arrive, since it was cancelled."""


class Resign(Struct, frozen=True):
    """Free everything and end."""


Input: TypeAlias = (
    Tick | LeaseSeen | LeasesListed | AssignmentSeen | Answered | Warmed | CaughtUp | Drained | Resign
)


# ---- Effects: what the caller must do, in order.


class SwapLease(Struct, frozen=True):
    """Replace a Lease as of its version and uid by another content, or create it if it has no uid."""

    request: int
    read: LeaseRead


class DeleteLease(Struct, frozen=True):
    """Delete a Lease as of its version and uid: nobody needs it."""

    request: int
    read: LeaseRead


class SwapAssignment(Struct, frozen=True):
    """Replace the assignment as of a version and uid, or create it if there is no uid."""

    request: int
    version: str
    uid: str
    assignment: Assignment


class ListLeases(Struct, frozen=True):
    """Send a consistent list of all Leases of the group."""

    request: int


class ReadAssignment(Struct, frozen=True):
    """Send a consistent read of the assignment."""

    request: int


class Warm(Struct, frozen=True):
    """List and watch the keys of a range, without acting."""

    range: int
    ticket: int


class Cool(Struct, frozen=True):
    """Drop the keys of a range."""

    range: int
    ticket: int


class CatchUp(Struct, frozen=True):
    """Wait until the caches have all that the server has now: the last owner of the range has written it."""

    range: int
    term: Term


class StartRange(Struct, frozen=True):
    """Act for a range: replay all of its keys."""

    range: int
    term: Term


class Drain(Struct, frozen=True):
    """Give no new work for a range. Its handlers may finish, and write, until the caller cancels them."""

    range: int
    term: Term


class Stop(Struct, frozen=True):
    """Cancel what runs for a range at once. Its writes are refused."""

    range: int
    term: Term
    why: str


class Left(Struct, frozen=True):
    """All is freed: the process may end."""


class Decline(Struct, frozen=True):
    """Don't run: living replicas divide the work in another way."""

    why: str


Effect: TypeAlias = (
    SwapLease
    | DeleteLease
    | SwapAssignment
    | ListLeases
    | ReadAssignment
    | Warm
    | Cool
    | CatchUp
    | StartRange
    | Drain
    | Stop
    | Left
    | Decline
)


# ---- What a replica knows.


class Phase(StrEnum):
    """Where a replica is in its life."""

    JOINING = "joining"
    """It has no Lease, owns nothing, and tries to get one."""
    MEMBER = "member"
    LEFT = "left"
    REFUSED = "refused"


class Stage(StrEnum):
    """The use of a range that the replica owns."""

    WAITING = "waiting"
    """It isn't warm yet, or writes of its last owner may still arrive."""
    CATCHING_UP = "catching up"
    """The caches may lack the last of them: a handler would create again what the last owner has created."""
    ACTING = "acting"
    DRAINING = "draining"
    DRAINED = "drained"
    """Nothing happens any more; the assignment is asked to free it."""


class Hold(Struct, frozen=True):
    """A range that this replica owns."""

    range: int
    term: Term
    since: float
    is_clean: bool
    """True if no write of an earlier owner can arrive any more; once it is drained, none of this one."""
    stage: Stage = Stage.WAITING


class Warmth(Struct, frozen=True):
    """A range whose keys are listed and watched."""

    range: int
    ticket: int
    is_warm: bool = False


class Other(Struct, frozen=True):
    """Another replica."""

    read: LeaseRead
    since: float
    """When its Lease was last seen to change."""
    has_renewed: bool = False
    """True if its Lease was seen to change."""
    last: Lease = Lease()
    """The contents of its Lease when it could last be read."""


class LeaseRequest(Struct, frozen=True):
    number: int
    sent_at: float
    read: LeaseRead
    buries: frozenset[str] = frozenset()
    """The identities that are dead once it is done."""


class LeaseListing(Struct, frozen=True):
    """A list of all Leases that is under way, and what was known when it began."""

    number: int
    sent_at: float
    mine: str
    """The version of this replica's own Lease."""
    nonce: str
    owners: frozenset[str]


class SwapRequest(Struct, frozen=True):
    number: int
    assignment: Assignment


class Reading(Struct, frozen=True):
    number: int
    version: str
    """The version of the assignment that was known when the read began."""


class Clear(Struct, frozen=True):
    """Nobody acts by another assignment than that of the nonce, since `at`."""

    nonce: str
    at: float


class State(Struct):
    """Everything that a replica knows. `step` returns a changed copy."""

    options: Options
    now: float
    phase: Phase = Phase.JOINING
    is_leaving: bool = False
    life: int = 1
    """It counts how often the replica began anew."""
    numbers: int = 0
    """The number of the last request."""

    mine: LeaseRead | None = None
    """Its own Lease; None before the first list."""
    mine_since: float = NEVER
    renewed_at: float = NEVER
    """When the last renewal that succeeded was sent."""
    renewal: LeaseRequest | None = None
    renew_after: float = NEVER

    met_at: float = NEVER
    """When all Leases were first listed in this life."""
    others: tuple[Other, ...] = ()
    gone: frozenset[str] = frozenset()
    """Identities that own ranges, and never act again."""
    burial: LeaseRequest | None = None
    bury_after: float = NEVER
    listing: LeaseListing | None = None
    list_after: float = NEVER
    wants_list: bool = False

    seen: AssignmentRead | None = None
    """The assignment; None before it was first read."""
    swap: SwapRequest | None = None
    swap_after: float = NEVER
    mark_after: float = NEVER
    reading: Reading | None = None
    read_after: float = NEVER
    wants_read: bool = False
    listed: str = ""
    """The nonce for which all Leases have been listed."""
    clear: Clear | None = None
    taken: frozenset[tuple[int, int, bool]] = frozenset()
    """Range, epoch and cleanness of each take that was asked for in this life, by this assignment."""

    holds: tuple[Hold, ...] = ()
    warmths: tuple[Warmth, ...] = ()
    refusal: str = ""


def begin(options: Options, at: float) -> State:
    """Return the state of a replica that has just been started."""
    return State(options, at)


# ---- Questions.


def identity_of(state: State) -> str:
    """Return the identity under which the replica acts now. A new life has a new one."""
    return f"{state.options.name}/{state.options.nonce}-{state.life}"


def deadline_of(state: State) -> float:
    """Return the time at which the replica stops unless it renews its Lease before."""
    timing = state.options.timing
    return state.renewed_at + timing.lease - timing.margin


def assignment_of(state: State) -> Assignment | None:
    """Return the assignment, if there is one that can be used."""
    return state.seen.assignment if state.seen is not None else None


def time_left(state: State, range_: int, term: Term, at: float) -> float:
    """Return the seconds after which a write on behalf of a key must be over; 0.0 if it must not be sent.

    `term` is the one in which the handler started.
    """
    if state.phase is not Phase.MEMBER:
        return 0.0
    for hold in state.holds:
        if hold.range == range_:
            is_acting = hold.term == term and hold.stage in (Stage.ACTING, Stage.DRAINING)
            return max(0.0, deadline_of(state) - at) if is_acting else 0.0
    return 0.0


def starts_at(state: State, hold: Hold) -> float:
    """Return when the replica may begin to act on a range that it owns."""
    if state.clear is None:
        return inf
    since = max(hold.since, state.clear.at)
    return since if hold.is_clean else since + state.options.timing.write


def due(state: State) -> float:
    """Return when the next Tick is needed."""
    if state.phase in (Phase.LEFT, Phase.REFUSED):
        return inf
    timing = state.options.timing
    times = [inf]
    if state.wants_list and state.listing is None:
        times.append(state.list_after)
    if state.wants_read and state.reading is None:
        times.append(state.read_after)
    if state.phase is Phase.JOINING:
        if state.renewal is None and state.mine is not None:
            times += [
                each for each in (state.renew_after, state.mine_since + timing.lease) if each > state.now
            ]
    else:
        times.append(deadline_of(state))
        if state.renewal is None:
            times.append(max(state.renew_after, state.renewed_at + timing.renew))
        times += [
            each
            for each in (state.renew_after, state.swap_after, state.bury_after, state.mark_after)
            if each > state.now
        ]
        times += [each for other in state.others if (each := other.since + timing.lease) > state.now]
        times += [
            each
            for hold in state.holds
            if hold.stage is Stage.WAITING and (each := starts_at(state, hold)) > state.now
        ]
    return min(times)


WORKS = "it works"
"""The condition of a replica that does its part."""


class Status(Struct, frozen=True):
    """The state of a replica for people."""

    condition: str
    """A short clause."""
    identity: str
    deadline: float
    members: tuple[str, ...]
    """The names of the replicas that are alive, as far as this one knows."""
    nonce: str
    shares: tuple[tuple[str, int], ...]
    """Owner and epoch of each range."""
    unowned: tuple[int, ...]
    """The ranges that nobody acts on, as far as this replica knows."""
    acting: tuple[int, ...]
    """The ranges that this replica acts on."""


def status(state: State, at: float) -> Status:
    """Return what there is to tell about a replica."""
    assignment = assignment_of(state)
    shares = assignment.shares if assignment is not None else ()
    mine = identity_of(state)
    acting = tuple(hold.range for hold in state.holds if time_left(state, hold.range, hold.term, at) > 0.0)
    alive = {mine} if state.phase is Phase.MEMBER else set[str]()
    alive |= {
        other.last.holder
        for other in state.others
        if other.last.holder and at - other.since < state.options.timing.lease
    }
    lease = state.mine.lease if state.mine is not None else None
    if lease is not None and is_of_another(state) and at - state.mine_since < state.options.timing.lease:
        alive.add(lease.holder)
    unowned = tuple(
        range_
        for range_, share in enumerate(shares or [None] * state.options.ranges)
        if share is None or share.owner not in alive or (share.owner == mine and range_ not in acting)
    )
    return Status(
        _condition_of(state, at),
        mine,
        deadline_of(state),
        tuple(sorted(map(replica_of, alive))),
        assignment.nonce if assignment is not None else "",
        tuple((share.owner, share.epoch) for share in shares),
        unowned,
        acting,
    )


def _condition_of(state: State, at: float) -> str:
    if state.refusal:
        return state.refusal
    if state.phase is Phase.LEFT:
        return "it has left"
    if state.phase is Phase.JOINING:
        lease = state.mine.lease if state.mine is not None else None
        if lease is not None and is_of_another(state):
            return (
                f"another process, {lease.holder}, holds the Lease of this name: two pods have the same name,"
                f" or one was killed, and its Lease ends after {state.options.timing.lease:g} s"
            )
        if state.mine is not None and state.mine.uid and lease is None:
            return f"somebody has edited its Lease, which ends after {state.options.timing.lease:g} s"
        return "it has no Lease yet"
    if at >= deadline_of(state):
        return "it has not renewed its Lease in time"
    if state.seen is None:
        return "it hasn't read the assignment yet"
    if state.seen.broken:
        return f"the assignment can't be used: {state.seen.broken}"
    if state.seen.assignment is None:
        return "there is no assignment"
    if state.clear is None:
        return "others may still act by an earlier assignment"
    return "it frees its ranges" if state.is_leaving else WORKS


def is_of_another(state: State) -> bool:
    """Return True if another process of this name holds the Lease."""
    lease = state.mine.lease if state.mine is not None else None
    return lease is not None and bool(lease.holder) and not is_own(state, lease.holder)


def is_own(state: State, identity: str) -> bool:
    """Return True for the identities of all lives of this process."""
    return identity.rpartition("-")[0] == f"{state.options.name}/{state.options.nonce}"
