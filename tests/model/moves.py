"""Moves: all that can happen next in a world, each as its label and the world that follows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TypeVar

from .rule import NEVER, Claim, Table
from .server import History, State, Write, claim_of, next_change, now, state_of, truth_of
from .world import Budget, Request, Rule, Scope, Side, World

T = TypeVar("T")

Move = tuple[str, World]

OF_EPOCH = 1_000
"""A restored server gives the same versions again, and never the same uids."""


def beginnings(rule: Rule, scope: Scope) -> Iterator[Move]:
    """Yield the first worlds: the first object in each state, and no other one."""
    for state in [None, *_states(scope, 0, 0)]:
        history: History = (Write(0, state),)
        side = _blank(rule, scope, 0)
        if scope.begins_listed:
            for stream in range(len(side.cursors)):
                side = _listed(rule, scope, history, side, stream, Request(0))
        bounds = (0,) * len(scope.names)
        yield (
            f"begin with {_text(state)}",
            World(history, side, None, (), scope.budget, bounds, bounds),
        )


def moves(rule: Rule, scope: Scope, world: World) -> Iterator[Move]:
    """Yield all that can happen next."""
    yield from _writes(scope, world)
    yield from _answers(rule, scope, world)
    if not world.side.is_frozen:
        for label, side in _of_side(rule, scope, world, world.side):
            yield label, world._replace(side=side)
    if world.beside is not None:
        for label, side in _of_side(rule, scope, world, world.beside):
            yield f"beside: {label}", world._replace(beside=side)
    yield from _of_groups(rule, scope, world)
    deleted = _deleted(world.side.table)
    if any(each.until == NEVER for row in world.side.table.rows for each in row.deletions):
        table = rule.dated(world.side.table, now(world.history), deleted)
        yield "the newest version is read", world._replace(side=world.side._replace(table=table))
    for kind, spent in ((Budget.LIST, _lists), (Budget.PROBE, _probes), (Budget.LOSS, _losses)):
        if world.budget[kind] and not world.side.is_frozen:
            budget = _spend(world, kind)
            for label, side in spent(rule, scope, world, world.side):
                yield label, world._replace(side=side, budget=budget)
            if world.beside is not None:
                for label, side in spent(rule, scope, world, world.beside):
                    yield f"beside: {label}", world._replace(beside=side, budget=budget)


# ---- The server.


def _writes(scope: Scope, world: World) -> Iterator[Move]:
    history = world.history
    version = now(history) + 1
    if version > scope.writes:
        return
    if scope.has_ticks:
        yield f"{version}: another object", world._replace(history=(*history, Write(-1, None)))
    for name in range(len(scope.names)):
        before, _ = state_of(history, name, version - 1)
        epoch = scope.restores - world.budget[Budget.RESTORE]
        uid = before.uid if before is not None else version + OF_EPOCH * epoch
        states: list[State | None] = _states(scope, name, uid)
        for state in states if before is None else [None, *states]:
            written = world._replace(history=(*history, Write(name, state)))
            label = f"{version}: {_named(scope, name)}{_text(state)}"
            yield label, written
            if world.budget[Budget.OWN]:
                answers, budget = (*world.answers, version), _spend(world, Budget.OWN)
                yield f"{label}, an own write", written._replace(answers=answers, budget=budget)


def _states(scope: Scope, name: int, uid: int) -> list[State | None]:
    """Return the states that an object may be written in."""
    streams = scope.names[name]
    selections = scope.selections or tuple(
        frozenset(each) for size in range(len(streams) + 1) for each in combinations(streams, size)
    )
    found: list[State | None] = [State(each, uid) for each in selections if each <= {*streams}]
    if scope.has_unreadable:
        found += [State(each, uid, False) for each in selections if each and each <= {*streams}]
    return found


def _answers(rule: Rule, scope: Scope, world: World) -> Iterator[Move]:
    for answer in world.answers:
        name, state = world.history[answer]
        after = world._replace(answers=tuple(each for each in world.answers if each != answer))
        label = f"the answer to write {answer} arrives"
        if state is not None and scope.misread and not state.selected - scope.misread:
            yield f"{label}, and nobody knows if it is selected", after
            continue
        written = _with(world.written, name, max(world.written[name], answer))
        for how, note in (
            (label, _written),
            *([(f"{label} not", _looked_up)] if scope.loses_answers else ()),
        ):
            side = note(rule, scope, world, world.side, answer)
            beside = world.beside and note(rule, scope, world, world.beside, answer)
            yield how, after._replace(side=side, beside=beside, written=written)


def _written(rule: Rule, scope: Scope, world: World, side: Side, version: int) -> Side:
    name, state = world.history[version]
    if state is not None:
        streams = [each for each in scope.streams_of[side.filter] if each in state.selected]
        claim = Claim(version, state.uid, streams != [scope.outer], state.is_readable)
        return side._replace(table=rule.answered(side.table, name, version, claim if streams else None))
    before, _ = state_of(world.history, name, version - 1)
    assert before is not None, "only what is there is deleted"
    if not rule.knows(side.table, name, before.uid):
        return _looked_up(rule, scope, world, side, version)
    return side._replace(table=rule.deleted(side.table, name, before.uid))


def _looked_up(rule: Rule, scope: Scope, world: World, side: Side, version: int) -> Side:
    """List the name of an object that was written at this version."""
    name, _ = world.history[version]
    history, streams = world.history, scope.streams_of[side.filter]
    found = truth_of(history, name, now(history), streams, scope.outer)
    version = now(history) if found is None else found.version
    return side._replace(table=rule.answered(side.table, name, version, found))


# ---- The streams.


def _of_side(rule: Rule, scope: Scope, world: World, side: Side) -> Iterator[tuple[str, Side]]:
    history, streams = world.history, scope.streams_of[side.filter]
    for at, stream in enumerate(streams):
        cursor, request, probe = side.cursors[at], side.lists[at], side.probes[at]
        if request is None and (cursor == NEVER or at in side.table.missed):
            yield from _list(rule, scope, world, side, at)
        if request is not None:
            label = f"{_letter(stream)} has listed, as of {request.version}"
            yield label, _listed(rule, scope, history, side, at, request)
        if probe != NEVER:
            objects = _objects(scope, history, stream, probe)
            table, is_over = rule.probed(side.table, at, probe, objects)
            if is_over:
                label = f"{_letter(stream)} has the listed metadata, as of {probe}"
                compared = probe if at in side.lost else NEVER
                yield (
                    label,
                    side._replace(
                        table=table,
                        probes=_with(side.probes, at, NEVER),
                        compared=_with(side.compared, at, max(compared, side.compared[at])),
                    ),
                )
        if cursor == NEVER:
            continue
        change = next_change(history, stream, cursor)
        if change is not None:
            cursors = _with(side.cursors, at, change.version)
            if change.has_it:
                claim = Claim(change.version, change.uid, stream != scope.outer, change.is_readable)
                table = rule.put(side.table, at, change.name, claim)
                verb = "has"
            else:
                version = change.before if scope.deletes_with_old_version else change.version
                last = Claim(version, change.uid, stream != scope.outer, change.is_readable)
                table = rule.leave(side.table, at, change.name, last)
                verb = "loses"
            name = _named(scope, change.name) or "it "
            label = f"{_letter(stream)} {verb} {name}at {change.version}"
            yield label, side._replace(table=table, cursors=cursors)
        end = (change.version if change is not None else now(history) + 1) - 1
        if end > cursor:
            table = rule.progress(side.table, at, end)
            label = f"{_letter(stream)} is at {end}"
            yield label, side._replace(table=table, cursors=_with(side.cursors, at, end))


def _lists(rule: Rule, scope: Scope, world: World, side: Side) -> Iterator[tuple[str, Side]]:
    for at, cursor in enumerate(side.cursors):
        if NEVER < cursor < now(world.history):
            yield from _list(rule, scope, world, side, at)


def _list(rule: Rule, scope: Scope, world: World, side: Side, at: int) -> Iterator[tuple[str, Side]]:
    """Begin a list, which ends the watch."""
    stream = scope.streams_of[side.filter][at]
    request = Request(now(world.history), _deleted(side.table))
    if scope.are_lists_slow:
        cursors, lists = _with(side.cursors, at, NEVER), _with(side.lists, at, request)
        yield f"{_letter(stream)} begins a list", side._replace(cursors=cursors, lists=lists)
    else:
        label = f"{_letter(stream)} lists at {request.version}"
        yield label, _listed(rule, scope, world.history, side, at, request)


def _listed(rule: Rule, scope: Scope, history: History, side: Side, at: int, request: Request) -> Side:
    objects = _objects(scope, history, scope.streams_of[side.filter][at], request.version)
    table = rule.listed(side.table, at, request.version, objects)
    return side._replace(
        table=rule.dated(table, request.version, request.deleted),
        cursors=_with(side.cursors, at, request.version),
        lists=_with(side.lists, at, None),
        compared=_with(side.compared, at, NEVER),
        lost=side.lost - {at},
        doubted=request.version if at in side.lost else side.doubted,
    )


def _probes(rule: Rule, scope: Scope, world: World, side: Side) -> Iterator[tuple[str, Side]]:
    for at, stream in enumerate(scope.streams_of[side.filter]):
        position = side.table.streams[at].position
        if side.probes[at] != NEVER or position == NEVER:
            continue
        target: int = rule.target(side.table)
        for version in [target] if scope.targets_only else range(position + 1, now(world.history) + 1):
            if version > position:
                probes = _with(side.probes, at, version)
                yield f"{_letter(stream)} is probed at {version}", side._replace(probes=probes)


def _losses(_: Rule, scope: Scope, world: World, side: Side) -> Iterator[tuple[str, Side]]:
    for at, stream in enumerate(scope.streams_of[side.filter]):
        cursor = side.cursors[at]
        if cursor != NEVER and (change := next_change(world.history, stream, cursor)) is not None:
            cursors = _with(side.cursors, at, change.version)
            label = f"the event of {_letter(stream)} at {change.version} is lost"
            yield label, side._replace(cursors=cursors, lost=side.lost | {at})


def _objects(scope: Scope, history: History, stream: int, version: int) -> list[Claim | None]:
    names = range(len(scope.names))
    return [claim_of(history, name, version, stream, scope.outer) for name in names]


def _deleted(table: Table) -> frozenset[int]:
    return frozenset(each.uid for row in table.rows for each in row.deletions)


# ---- Groups that begin, and that take the place of others.


def _blank(rule: Rule, scope: Scope, filter_: int) -> Side:
    streams = scope.streams_of[filter_]
    names = [tuple(at for at, each in enumerate(streams) if each in holders) for holders in scope.names]
    never, nothing = (NEVER,) * len(streams), (None,) * len(streams)
    return Side(filter_, rule.empty(len(streams), names), never, nothing, never, never)


def _of_groups(rule: Rule, scope: Scope, world: World) -> Iterator[Move]:
    side, beside, budget = world.side, world.beside, world.budget
    if budget[Budget.RESTORE] and side.table.version > NEVER:
        yield from _restores(rule, scope, world)
    if beside is not None:
        nothing = (0,) * len(scope.names)
        if side.is_frozen and beside.table.version > NEVER:
            yield "the group has begun again", world._replace(side=beside, beside=None, seen=nothing)
        elif not side.is_frozen and rule.may_replace(beside.table, side.table):
            yield "the filter changes", world._replace(side=beside, beside=None)
        return
    if budget[Budget.EVICTION] and side.table.version > NEVER:
        blank = _blank(rule, scope, side.filter)._replace(table=rule.restarted(side.table))
        yield "the group is evicted", world._replace(side=blank, budget=_spend(world, Budget.EVICTION))
    if budget[Budget.CHANGE]:
        blank = _blank(rule, scope, 1 - side.filter)
        yield "another filter is declared", world._replace(beside=blank, budget=_spend(world, Budget.CHANGE))


def _restores(rule: Rule, scope: Scope, world: World) -> Iterator[Move]:
    """Restore the server. If the filter is changing, the next filter begins again."""
    begun = world.beside or world.side
    beside = _blank(rule, scope, begun.filter)._replace(table=rule.restarted(begun.table))
    old = _blank(rule, scope, world.side.filter)
    side = old._replace(table=rule.frozen(world.side.table), is_frozen=True)
    for version in range(now(world.history)):
        yield (
            f"the server is restored to {version}",
            world._replace(
                history=world.history[: version + 1],
                side=side,
                beside=beside,
                answers=(),
                budget=_spend(world, Budget.RESTORE),
                written=(0,) * len(scope.names),
            ),
        )


# ---- Words and tuples.


def _spend(world: World, kind: Budget) -> tuple[int, ...]:
    return _with(world.budget, kind, world.budget[kind] - 1)


def _named(scope: Scope, name: int) -> str:
    return f"object {name} " if len(scope.names) > 1 else ""


def _text(state: State | None) -> str:
    if state is None:
        return "deleted or absent"
    streams = "".join(_letter(each) for each in sorted(state.selected)) or "no stream"
    return f"in {streams}" + ("" if state.is_readable else ", unreadable")


def _letter(stream: int) -> str:
    return "ABCDEF"[stream]


def _with(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    return (*items[:at], item, *items[at + 1 :])
