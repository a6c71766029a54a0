"""World: replicas, a server, the requests and answers between them, and what an adversary may do to them.

The replicas are the product's own state machines. Time goes by in ticks. Between two ticks all that can go on
goes on, in a fixed order; the adversary changes that by blocking parts for as long as it likes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from kopf_selectcache.core.assignment import machine, replica
from kopf_selectcache.core.assignment.records import AssignmentRead, LeaseRead, Share, replica_of
from kopf_selectcache.core.assignment.replica import (
    Answered,
    AssignmentSeen,
    CatchUp,
    CaughtUp,
    Cool,
    Decline,
    DeleteLease,
    Drain,
    Drained,
    Effect,
    Input,
    LeaseSeen,
    LeasesListed,
    Left,
    ListLeases,
    Options,
    Outcome,
    Phase,
    ReadAssignment,
    Resign,
    StartRange,
    State,
    Stop,
    SwapAssignment,
    SwapLease,
    Term,
    Tick,
    Timing,
    Warm,
    Warmed,
)

Rules: TypeAlias = SimpleNamespace
"""`step`, `begin` and `time_left`: those of the product, or with a mistake."""

RIGHT: Rules = SimpleNamespace(step=machine.step, begin=replica.begin, time_left=replica.time_left)
MOST_ON_THE_WAY = 3
"""The most requests, and answers, of a replica on their way. Earlier ones get lost."""


NAMES = "abcdefgh"


SHORT = Timing(lease=5, renew=2, margin=2, write=1, retry=1)
"""Durations in ticks."""


class Broken(Exception):
    """What must not happen."""


class Part(StrEnum):
    """What the adversary can block, for one replica."""

    PROCESS = "process"
    """The process is stopped."""
    REQUESTS = "requests"
    """Its requests do not reach the server."""
    ANSWERS = "answers"
    """The answers do not reach it."""
    WATCH = "watch"
    """Its watches bring nothing."""
    LEASES = "leases"
    """Its watch of Leases brings nothing."""
    WORK = "work"
    """Its caches do not get warm, and its handlers do not end."""
    SERVER = "server"
    """The API server is stopped: for all replicas."""


class Fault(StrEnum):
    """What the adversary can do at once."""

    CRASH = "crash"
    LEAVE = "leave"
    SLOW = "slow"
    """Its clock stands still for a tick."""
    FAST = "fast"
    """Its clock goes twice as fast for a tick."""
    DELETE = "delete the assignment"
    EDIT = "edit the assignment"
    DELETE_LEASE = "delete its Lease"
    EDIT_LEASE = "edit its Lease"
    PUT_BACK = "put the first assignment back"
    LATE = "acknowledge an earlier term"
    CANCEL = "cancel its handlers"
    """Those of the ranges that it drains."""


@dataclass(frozen=True)
class Scope:
    """What can happen in one exploration."""

    name: str
    replicas: int = 2
    ranges: int = 1
    faults: int = 1
    """How many times the adversary may do something."""
    parts: tuple[Part, ...] = ()
    at: str = NAMES
    """The replicas that faults happen to."""
    kinds: tuple[Fault, ...] = ()
    is_cold: bool = False
    """True if the exploration begins before any replica has joined."""
    late: int = 0
    """How many replicas are started only when the adversary likes."""
    timing: Timing = SHORT
    client_patience: int = 2
    """The ticks after which a client gives a request up. It may be done later all the same."""
    offsets: tuple[int, ...] = ()
    """How far each clock is ahead at the beginning."""
    warm_at_once: int = 0
    """How many ranges a replica may prepare at a time to take from others that live; 0 for all."""
    story: tuple[str, ...] = ()
    """What has happened before: moves, and numbers of ticks."""

    @property
    def patience(self) -> int:
        """Return the ticks after the last fault within which all ranges are served."""
        return int(self.timing.lease + self.timing.write + 2 * self.timing.retry)


class Item(NamedTuple):
    """A request on its way."""

    effect: Effect
    is_orphan: bool = False
    """True if the process that sent it is dead."""


class Thread(NamedTuple):
    """A handler in a thread."""

    range: int
    term: Term
    is_over: bool = False
    """True if the replica has lost the range since."""


class Node(NamedTuple):
    """A replica and all that is on its way from and to it."""

    state: State | None
    starts: int = 0
    offset: int = 0
    requests: tuple[Item, ...] = ()
    answers: tuple[Input, ...] = ()
    waiting: tuple[tuple[int, int], ...] = ()
    """Number and age of each request that the client waits for."""
    leases: tuple[str, ...] = ()
    """The version of each Lease that its watch has brought."""
    assignment: str = ""
    work: tuple[Effect, ...] = ()
    """What it has been asked to do."""
    ends: tuple[Drain, ...] = ()
    """The ranges whose handlers have ended."""
    threads: tuple[Thread, ...] = ()
    """The newest handler of each range: one that nobody can cancel, and that never ends."""


class World(NamedTuple):
    """All that is known of one moment."""

    time: int
    version: int
    leases: tuple[LeaseRead, ...]
    assignment: AssignmentRead
    nodes: tuple[Node, ...]
    blocks: frozenset[tuple[int, Part]]
    hot: tuple[tuple[int, ...], ...]
    """For each range and replica, the ticks in which its last write may arrive."""
    faults: int
    unread: frozenset[tuple[int, int]] = frozenset()
    """The ranges and replicas whose last write lies in a stopped server, which has not read it."""
    unserved: int = 0
    """The ticks since the last fault in which a range was not served."""


def name_of(node: int) -> str:
    return NAMES[node]


def beginning(rules: Rules, scope: Scope) -> World:
    names = [name_of(each) for each in range(scope.replicas)]
    offsets = scope.offsets or (0,) * scope.replicas
    world = World(
        time=0,
        version=1,
        leases=tuple(LeaseRead(name, "1") for name in names),
        assignment=AssignmentRead("1"),
        nodes=tuple(Node(None, offset=each, leases=("",) * len(names)) for each in offsets),
        blocks=frozenset(),
        hot=((0,) * len(names),) * scope.ranges,
        faults=scope.faults,
    )
    for each in range(scope.replicas - scope.late):
        world = start(rules, scope, world, each)
    world = settled(rules, scope, world)
    for _ in range(0 if scope.is_cold else 3 * int(scope.timing.lease)):
        world = tick(rules, scope, world)
    free = dataclasses.replace(scope, parts=tuple(Part), kinds=tuple(Fault), at=NAMES)
    world = world._replace(faults=len(scope.story))
    for label in scope.story:
        for _ in range(int(label) if label.isdecimal() else 1):
            world = dict(moves(rules, free, world))["a tick" if label.isdecimal() else label]()
    return world._replace(faults=scope.faults)


def moves(rules: Rules, scope: Scope, world: World) -> Iterator[tuple[str, Callable[[], World]]]:
    """Yield what can happen: time goes by, or the adversary does something."""
    yield "a tick", partial(tick, rules, scope, world)
    for block in sorted(world.blocks):
        yield f"{name_of(block[0])}: {block[1]} goes on", partial(_goes_on, rules, scope, world, block)
    for each, node in enumerate(world.nodes):
        if node.state is None or node.state.phase is Phase.LEFT:
            yield f"{name_of(each)} starts", partial(_started, rules, scope, world, each)
    if not world.faults:
        return
    spent = world._replace(faults=world.faults - 1, unserved=0)
    for each, node in enumerate(world.nodes):
        is_running = node.state is not None and node.state.phase is not Phase.LEFT
        if name_of(each) not in scope.at:
            continue
        for part in scope.parts if is_running else ():
            if (each, part) not in world.blocks and (part is not Part.SERVER or not each):
                yield f"{name_of(each)}: {part} blocked", partial(_blocked, rules, scope, spent, (each, part))
        for kind in scope.kinds:
            is_of_all = kind in (Fault.DELETE, Fault.EDIT, Fault.PUT_BACK)
            is_of_lease = kind in (Fault.DELETE_LEASE, Fault.EDIT_LEASE)
            if is_of_lease or (not each if is_of_all else is_running):
                yield f"{name_of(each)}: {kind}", partial(_struck, rules, scope, spent, each, kind)


def _started(rules: Rules, scope: Scope, world: World, each: int) -> World:
    return settled(rules, scope, start(rules, scope, world, each))


def _goes_on(rules: Rules, scope: Scope, world: World, block: tuple[int, Part]) -> World:
    unread = frozenset[tuple[int, int]]() if block[1] is Part.SERVER else world.unread
    return settled(rules, scope, world._replace(blocks=world.blocks - {block}, unread=unread))


def _blocked(rules: Rules, scope: Scope, world: World, block: tuple[int, Part]) -> World:
    return _judged(rules, scope, world._replace(blocks=world.blocks | {block}))


def _struck(rules: Rules, scope: Scope, world: World, each: int, kind: Fault) -> World:
    return settled(rules, scope, strike(rules, world, each, kind))


def start(rules: Rules, scope: Scope, world: World, each: int) -> World:
    node = world.nodes[each]
    options = Options(
        name_of(each),
        f"{name_of(each)}{node.starts}",  # No two processes have the same.
        ranges=scope.ranges,
        timing=scope.timing,
        warm_at_once=scope.warm_at_once or scope.ranges,
    )
    state = rules.begin(options, float(world.time + node.offset))
    fresh = Node(state, node.starts + 1, node.offset, node.requests, leases=("",) * len(world.leases))
    return give(rules, _with(world, each, fresh), each, Tick())


def strike(rules: Rules, world: World, each: int, kind: Fault) -> World:
    """Do something to a replica, or to what it relies on."""
    node, lease, seen = world.nodes[each], world.leases[each], world.assignment
    version = str(world.version + 1)
    match kind:
        case Fault.CRASH:
            blocks = frozenset(block for block in world.blocks if block[0] != each or block[1] is Part.SERVER)
            requests = tuple(item._replace(is_orphan=True) for item in node.requests)
            gone = Node(None, node.starts, node.offset, requests, leases=("",) * len(world.leases))
            return _with(world, each, gone)._replace(blocks=blocks)
        case Fault.LEAVE:
            return give(rules, world, each, Resign())
        case Fault.SLOW:
            return _with(world, each, node._replace(offset=node.offset - 1))
        case Fault.FAST:
            return _with(world, each, node._replace(offset=node.offset + 1))
        case Fault.DELETE | Fault.EDIT if seen.uid:
            broken = replace(seen, version=version, assignment=None, broken="edited")
            after = AssignmentRead(version) if kind is Fault.DELETE else broken
            return world._replace(assignment=after, version=world.version + 1)
        case Fault.PUT_BACK if seen.assignment is not None:
            free = (Share(is_clean=True),) * len(seen.assignment.shares)
            first = replace(seen.assignment, serial=1, shares=free)
            after = AssignmentRead(version, seen.uid, first)
            return world._replace(assignment=after, version=world.version + 1)
        case Fault.LATE:
            for thread in node.threads:
                if thread.is_over:
                    world = give(rules, world, each, Drained(thread.range, thread.term))
        case Fault.CANCEL:
            drains = tuple(each for each in (*node.work, *node.ends) if isinstance(each, Drain))
            kept = tuple(each for each in node.work if not isinstance(each, Drain))
            world = _with(world, each, node._replace(work=kept, ends=()))
            for drain in drains:
                world = give(rules, world, each, Drained(drain.range, drain.term, is_clean=False))
        case Fault.DELETE_LEASE | Fault.EDIT_LEASE if lease.uid:
            uid = "" if kind is Fault.DELETE_LEASE else lease.uid
            return _with_lease(world, each, LeaseRead(lease.name, version, uid))
    return world


def tick(rules: Rules, scope: Scope, world: World) -> World:
    """Let time go by."""
    # What a stopped server has read before ends in time all the same: its clock goes on.
    hot = tuple(
        tuple(max(0, left - ((range_, each) not in world.unread)) for each, left in enumerate(row))
        for range_, row in enumerate(world.hot)
    )
    nodes = tuple(
        node._replace(
            waiting=tuple((number, age + 1) for number, age in node.waiting),
        )
        for node in world.nodes
    )
    world = world._replace(time=world.time + 1, hot=hot, nodes=nodes)
    for each in range(len(nodes)):
        if _runs(world, each):
            world = give(rules, world, each, Tick())
    world = settled(rules, scope, world)
    is_quiet = not world.blocks and any(_is_at_work(node) for node in world.nodes)
    is_served = all(_is_served(rules, world, range_) for range_ in range(scope.ranges))
    unserved = world.unserved + 1 if is_quiet and not is_served else 0
    if unserved > scope.patience:
        raise Broken(f"a range is not served {unserved} ticks after the last fault")
    return world._replace(unserved=unserved)


def settled(rules: Rules, scope: Scope, world: World) -> World:
    """Let everything go on that is not blocked, until nothing is left; then judge."""
    for _ in range(200):
        before = world = _judged(rules, scope, world)
        for each in range(len(world.nodes)):
            world = _serve(world, each)
            if _runs(world, each):
                world = _deliver(rules, scope, world, each)
        if world is before:
            return world
    raise Broken("the replicas never come to rest: a hot loop")


def _runs(world: World, each: int) -> bool:
    state = world.nodes[each].state
    return state is not None and state.phase is not Phase.LEFT and (each, Part.PROCESS) not in world.blocks


def _is_at_work(node: Node) -> bool:
    return node.state is not None and not node.state.is_leaving


def _deliver(rules: Rules, scope: Scope, world: World, each: int) -> World:
    """Give a replica what has come for it."""
    if (each, Part.WORK) not in world.blocks:
        world = _work(rules, world, each)
    if (each, Part.ANSWERS) not in world.blocks:
        for answer in world.nodes[each].answers:
            world = _with(world, each, world.nodes[each]._replace(answers=world.nodes[each].answers[1:]))
            world = give(rules, world, each, answer)
    node = world.nodes[each]
    if (each, Part.WATCH) not in world.blocks and (0, Part.SERVER) not in world.blocks:
        leases = tuple(lease.version for lease in world.leases)
        leases = node.leases if (each, Part.LEASES) in world.blocks else leases
        if node.leases != leases or node.assignment != world.assignment.version:
            seen = node._replace(leases=leases, assignment=world.assignment.version)
            before, world = node, _with(world, each, seen)
            for lease, known, brought in zip(world.leases, before.leases, leases, strict=True):
                if brought != known:
                    world = give(rules, world, each, LeaseSeen(lease))
            if before.assignment != world.assignment.version:
                world = give(rules, world, each, AssignmentSeen(world.assignment))
    for number, age in world.nodes[each].waiting:
        if age >= scope.client_patience:
            world = give(rules, world, each, Answered(number, Outcome.NO_ANSWER))
    return world


def _work(rules: Rules, world: World, each: int) -> World:
    node = world.nodes[each]
    for effect in node.work:
        node = world.nodes[each]
        node = node._replace(work=tuple(other for other in node.work if other is not effect))
        if isinstance(effect, Warm):
            world = give(rules, _with(world, each, node), each, Warmed(effect.range, effect.ticket))
        elif isinstance(effect, CatchUp):
            caught_up = CaughtUp(((effect.range, effect.term),))
            world = give(rules, _with(world, each, node), each, caught_up)
        elif isinstance(effect, Drain):
            world = _with(world, each, node._replace(ends=(*node.ends, effect)))
    for drain in world.nodes[each].ends:
        node = world.nodes[each]
        is_current = any(hold.term == drain.term for hold in (node.state.holds if node.state else ()))
        if not is_current or not world.hot[drain.range][each]:
            node = node._replace(ends=tuple(other for other in node.ends if other is not drain))
            world = give(rules, _with(world, each, node), each, Drained(drain.range, drain.term))
    return world


def give(rules: Rules, world: World, each: int, input_: Input) -> World:
    """Give an input to a replica, and send what it wants."""
    node = world.nodes[each]
    if node.state is None:
        return world
    if isinstance(input_, (Answered, LeasesListed, AssignmentSeen)) and input_.request:
        waiting = tuple(each for each in node.waiting if each[0] != input_.request)
        node = node._replace(waiting=waiting)
    if isinstance(input_, Drained):
        node = node._replace(threads=_without(node.threads, input_.range, input_.term))
    stepped = rules.step(node.state, input_, float(world.time + node.offset))
    node = node._replace(state=stepped.state)
    for effect in stepped.effects:
        match effect:
            case CatchUp(range_) if any(
                left for other, left in enumerate(world.hot[range_]) if other != each
            ):
                raise Broken(f"{name_of(each)} catches up on {range_} before its last write has arrived")
            case Warm() | CatchUp() | Drain():
                node = node._replace(work=(*node.work, effect))
            case Cool(_, ticket):
                kept = (
                    other for other in node.work if not (isinstance(other, Warm) and other.ticket == ticket)
                )
                node = node._replace(work=tuple(kept))
            case Stop(range_, term):
                # What was asked before may still be answered: its term tells that it is over.
                node = node._replace(threads=_without(node.threads, range_, term))
            case StartRange(range_) if not isinstance(input_, CaughtUp):
                raise Broken(f"{name_of(each)} starts range {range_} before its caches have caught up")
            case StartRange(range_, term):
                others = tuple(other for other in node.threads if other.range != range_ or other.is_over)
                node = node._replace(threads=(*others, Thread(range_, term)))
            case Left() | Decline():
                pass
            case _:
                node = node._replace(
                    requests=(*node.requests[-(MOST_ON_THE_WAY - 1) :], Item(effect)),
                    waiting=(*node.waiting, (effect.request, 0)),
                )
    _judge_warming(world, each, node)
    if stepped.state.phase is Phase.LEFT:
        requests = tuple(item._replace(is_orphan=True) for item in node.requests)
        node = Node(stepped.state, node.starts, node.offset, requests, leases=("",) * len(world.leases))
    return _with(world, each, node)


def _without(threads: tuple[Thread, ...], range_: int, term: Term) -> tuple[Thread, ...]:
    """Return the handlers after a term is over. One that is over is enough for each range."""
    ended = Thread(range_, term, is_over=True)
    kept = (each for each in threads if each.range != range_ or (each.term != term and not each.is_over))
    return (*kept, ended) if any((each.range, each.term) == (range_, term) for each in threads) else threads


def _serve(world: World, each: int) -> World:
    """Let the server do what a replica has asked for."""
    if (each, Part.REQUESTS) in world.blocks or (0, Part.SERVER) in world.blocks:
        return world
    for item in world.nodes[each].requests:
        node = world.nodes[each]
        world = _with(world, each, node._replace(requests=node.requests[1:]))
        world, answer = _done(world, item.effect)
        node = world.nodes[each]
        is_awaited = any(number == answer.request for number, _ in node.waiting)
        if is_awaited and not item.is_orphan:
            answers = (*node.answers[-(MOST_ON_THE_WAY - 1) :], answer)
            world = _with(world, each, node._replace(answers=answers))
    return world


def _done(world: World, effect: Effect) -> tuple[World, Answered | LeasesListed | AssignmentSeen]:
    match effect:
        case ListLeases(number):
            return world, LeasesListed(number, tuple(lease for lease in world.leases if lease.uid))
        case ReadAssignment(number):
            seen = world.assignment
            return world, AssignmentSeen(seen if seen.uid else AssignmentRead(), number)
        case SwapLease(number, read) | DeleteLease(number, read):
            at = NAMES.index(read.name)
            now, version = world.leases[at], str(world.version + 1)
            if (now.uid, now.version if now.uid else "") != (read.uid, read.version if read.uid else ""):
                return world, Answered(number, Outcome.REFUSED)
            uid = "" if isinstance(effect, DeleteLease) else read.uid or version
            lease = read.lease if uid else None
            world = _with_lease(world, at, LeaseRead(read.name, version, uid, lease))
            return world, Answered(number, Outcome.YES, version, uid)
        case SwapAssignment(number, version, uid, assignment):
            seen = world.assignment
            if (seen.uid, seen.version if seen.uid else "") != (uid, version if uid else ""):
                return world, Answered(number, Outcome.REFUSED)
            version = str(world.version + 1)
            seen = AssignmentRead(version, uid or version, assignment)
            world = world._replace(assignment=seen, version=world.version + 1)
            return world, Answered(number, Outcome.YES, version, seen.uid)
        case _:
            raise AssertionError(effect)


def _judged(rules: Rules, scope: Scope, world: World) -> World:
    """Judge that nobody acts on a range of somebody else, and note whose writes may still arrive."""
    hot, unread = [], world.unread
    for range_ in range(scope.ranges):
        actors = _actors(rules, world, range_)
        row = list(world.hot[range_])
        _judge_threads(rules, world, range_)
        if len(actors) > 1:
            raise Broken(f"{' and '.join(map(name_of, actors))} act on range {range_}")
        late = [each for each, left in enumerate(row) if left and each not in actors]
        if actors and late:
            raise Broken(
                f"{name_of(actors[0])} acts on range {range_}, and a write of {name_of(late[0])} arrives"
            )
        for each in actors:
            node = world.nodes[each]
            is_over = any(
                (drain.range, drain.term) == (hold.range, hold.term)
                for drain in node.ends
                for hold in (node.state.holds if node.state is not None else ())
                if hold.range == range_
            )
            if (each, Part.PROCESS) not in world.blocks and not is_over:
                left = _left(rules, world, each, range_)
                is_stopped = (0, Part.SERVER) in world.blocks
                most = scope.timing.write if is_stopped else min(scope.timing.write, left)
                row[each] = max(row[each], int(most))
                unread |= {(range_, each)} if is_stopped else set()
        hot.append(tuple(row))
    if tuple(hot) == world.hot and unread == world.unread:
        return world
    return world._replace(hot=tuple(hot), unread=unread)


def _judge_warming(world: World, each: int, node: Node) -> None:
    """Judge that few ranges of living replicas are taken at a time."""
    assignment = world.assignment.assignment
    holders = {lease.lease.holder for lease in world.leases if lease.lease is not None and lease.lease.holder}
    if assignment is None or node.state is None:
        return
    warming = [
        effect.range
        for effect in node.work
        if isinstance(effect, Warm)
        and (owner := assignment.shares[effect.range].owner) in holders
        and replica_of(owner) != name_of(each)
    ]
    if len(warming) > node.state.options.warm_at_once:
        raise Broken(f"{name_of(each)} prepares {len(warming)} ranges at once")


def _judge_threads(rules: Rules, world: World, range_: int) -> None:
    """Judge that no write of a handler is sent after its replica has lost the range."""
    for each, node in enumerate(world.nodes):
        at = float(world.time + node.offset)
        for thread in node.threads:
            is_late = thread.is_over and thread.range == range_ and node.state is not None
            if is_late and rules.time_left(node.state, range_, thread.term, at) > 0:
                raise Broken(f"a handler of {name_of(each)} from an earlier term writes in range {range_}")


def _left(rules: Rules, world: World, each: int, range_: int) -> float:
    node = world.nodes[each]
    if node.state is None:
        return 0.0
    at = float(world.time + node.offset)
    return max(
        (
            rules.time_left(node.state, range_, hold.term, at)
            for hold in node.state.holds
            if hold.range == range_
        ),
        default=0.0,
    )


def _actors(rules: Rules, world: World, range_: int) -> list[int]:
    return [each for each in range(len(world.nodes)) if _left(rules, world, each, range_) > 0]


def _is_served(rules: Rules, world: World, range_: int) -> bool:
    """Return True if somebody acts on a range, and has replayed its keys."""
    return any(
        thread.range == range_ and not thread.is_over
        for each in _actors(rules, world, range_)
        for thread in world.nodes[each].threads
    )


def _with(world: World, each: int, node: Node) -> World:
    if node is world.nodes[each]:
        return world
    return world._replace(nodes=(*world.nodes[:each], node, *world.nodes[each + 1 :]))


def _with_lease(world: World, each: int, lease: LeaseRead) -> World:
    leases = (*world.leases[:each], lease, *world.leases[each + 1 :])
    return world._replace(leases=leases, version=world.version + 1)
