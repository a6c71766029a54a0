"""Explore: visits every world of a scope, those with the fewest moves first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from .judge import Broken, judged
from .moves import beginnings, moves
from .server import History
from .world import Rule, Scope, Side, World

Order = tuple[int, ...]


class Explored(NamedTuple):
    """The outcome of one exploration."""

    scope: Scope
    states: int
    broken: str = ""
    """What readers were told; empty if nothing wrong was found."""
    story: tuple[str, ...] = ()
    """The shortest series of moves that leads there."""

    def __str__(self) -> str:
        if not self.broken:
            return f"{self.scope.name}: {self.states:,} states, 0 wrong"
        lines = [f"{self.scope.name}: after {self.states:,} states", *self.story, f"WRONG: {self.broken}"]
        return "\n  ".join(lines)


def explore(rule: Rule, scope: Scope, most: int = 0, *, says: str = "") -> Explored:
    """Visit the worlds of a scope until one is wrong, or until `most` were visited.

    With `says`, until the judge's sentence has this part: worlds that are wrong in another way are left."""
    orders = symmetries(scope)
    parents: dict[int, int] = {}
    """The hash of each world, and of the one before it: worlds themselves would not fit into memory."""
    met: set[int] = set()
    """The hashes of all worlds before they were judged: most are reached in several ways."""
    level: list[World] = []
    for _, world in beginnings(rule, scope):
        try:
            first = _canonical(judged(rule, scope, world), orders)
        except Broken as broken:
            if says in str(broken):
                return Explored(scope, len(parents), str(broken))
            continue
        if hash(first) not in parents:
            parents[hash(first)] = 0
            level.append(first)
    while level:
        following: list[World] = []
        for world in level:
            before = hash(world)
            for _, after in moves(rule, scope, world):
                if hash(after) in met:
                    continue
                met.add(hash(after))
                try:
                    found = judged(rule, scope, after)
                except Broken as broken:
                    if says not in str(broken):
                        continue
                    path = _path(parents, before)
                    return Explored(scope, len(parents), *_story(rule, scope, orders, path, says))
                if orders and found.history is not world.history:
                    found = _canonical(found, orders)
                key = hash(found)
                if key not in parents:
                    parents[key] = before
                    following.append(found)
            if most and len(parents) > most:
                return Explored(scope, len(parents))
        level = following
    return Explored(scope, len(parents))


def _path(parents: dict[int, int], last: int) -> list[int]:
    path = [last]
    while parents[path[-1]]:
        path.append(parents[path[-1]])
    return path[::-1]


def _story(
    rule: Rule, scope: Scope, orders: Sequence[Order], path: list[int], says: str
) -> tuple[str, tuple[str, ...]]:
    """Return what is wrong after a path, and the labels of its moves. The streams keep their names."""
    choices = [(label, world) for label, world in beginnings(rule, scope)]
    labels, last = list[str](), ("", "")
    for key in path:
        label, world = next(
            each
            for each in choices
            if key in {hash(each[1]), *(hash(_reordered(each[1], order)) for order in orders)}
        )
        labels.append(label)
        choices = []
        for label, after in moves(rule, scope, world):
            try:
                choices.append((label, judged(rule, scope, after)))
            except Broken as broken:
                if says in str(broken):
                    last = str(broken), label
    return last[0], (*labels, last[1])


# ---- Symmetry: worlds that differ in the order of equal streams are one.


def symmetries(scope: Scope) -> tuple[Order, ...]:
    """Return the orders of the streams that change nothing about what can happen."""
    if len(scope.streams_of) > 1 or scope.selections:
        return ()
    kept = [{scope.outer}, {*scope.misread}, *({*holders} for holders in scope.names)]
    return tuple(
        order
        for order in permutations(range(scope.streams))
        if all(each == {order[at] if at >= 0 else at for at in each} for each in kept)
    )[1:]


def _canonical(world: World, orders: Sequence[Order]) -> World:
    order = _order_of(world.history, tuple(orders))
    return world if order is None else _reordered(world, order)


@lru_cache(maxsize=100_000)
def _order_of(history: History, orders: tuple[Order, ...]) -> Order | None:
    """Return the order in which the history is the smallest one; None if it is that already."""
    best, found = _sort_key(history, None), None
    for order in orders:
        key = _sort_key(history, order)
        if key < best:
            best, found = key, order
    return found


def _sort_key(history: History, order: Order | None) -> list[list[int]]:
    return [
        sorted(each if order is None else order[each] for each in write.state.selected)
        if write.state is not None
        else [-1]
        for write in history
    ]


def _reordered(world: World, order: Order) -> World:
    """Return the same world with its streams in another order."""
    history = tuple(
        write
        if write.state is None
        else write._replace(
            state=write.state._replace(selected=frozenset(order[each] for each in write.state.selected))
        )
        for write in world.history
    )
    return world._replace(
        history=history,
        side=_reordered_side(world.side, order),
        beside=world.beside and _reordered_side(world.beside, order),
    )


def _reordered_side(side: Side, order: Order) -> Side:
    back = sorted(range(len(order)), key=order.__getitem__)
    table = side.table
    rows = tuple(
        row._replace(
            streams=tuple(sorted(order[each] for each in row.streams)),
            claims=tuple(row.claims[each] for each in back),
        )
        for row in table.rows
    )
    return side._replace(
        table=table._replace(
            streams=tuple(table.streams[each] for each in back),
            rows=rows,
            missed=frozenset(order[each] for each in table.missed),
        ),
        cursors=tuple(side.cursors[each] for each in back),
        lists=tuple(side.lists[each] for each in back),
        probes=tuple(side.probes[each] for each in back),
        compared=tuple(side.compared[each] for each in back),
        lost=frozenset(order[each] for each in side.lost),
    )
