"""Explore: visits every world of a scope, those with the fewest moves first."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from .canonical import key_of
from .world import RIGHT, Broken, Rules, Scope, World, beginning, moves


class Explored(NamedTuple):
    """The outcome of one exploration."""

    scope: Scope
    states: int
    is_complete: bool
    broken: str = ""
    story: tuple[str, ...] = ()
    """The shortest series of moves that leads there."""

    def __str__(self) -> str:
        extent = "all" if self.is_complete else "the first"
        if not self.broken:
            return f"{self.scope.name}: {extent} {self.states:,} states, 0 wrong"
        lines = [
            f"{self.scope.name}: after {self.states:,} states",
            *joined(self.story),
            f"WRONG: {self.broken}",
        ]
        return "\n  ".join(lines)


def joined(story: tuple[str, ...]) -> list[str]:
    """Return the moves with ticks counted."""
    lines: list[str] = []
    ticks = 0
    for move in (*story, ""):
        if move == "a tick":
            ticks += 1
            continue
        if ticks:
            lines.append(f"{ticks} tick{'s' * (ticks > 1)}")
        ticks = 0
        lines.append(move)
    return lines[:-1]


def explore(scope: Scope, rules: Rules = RIGHT, *, most: int = 0, says: str = "") -> Explored:
    """Visit the worlds of a scope until one is wrong, or until `most` were visited.

    With `says`, until the judge's sentence has this part: what is wrong in another way is left."""
    parents: dict[int, tuple[int, str]] = {}
    try:
        first = beginning(rules, scope)
    except Broken as broken:
        return Explored(scope, 0, False, str(broken), scope.story)
    level: list[tuple[int, World]] = [(key_of(scope, first), first)]
    parents[level[0][0]] = (0, "")
    while level:
        following: list[tuple[int, World]] = []
        for before, world in level:
            for label, move in moves(rules, scope, world):
                try:
                    after = move()
                except Broken as broken:
                    if says not in str(broken):
                        continue
                    return Explored(scope, len(parents), False, str(broken), _story(parents, before, label))
                key = key_of(scope, after)
                if key not in parents:
                    parents[key] = (before, label)
                    following.append((key, after))
            if most and len(parents) > most:
                return Explored(scope, len(parents), False)
        level = following
    return Explored(scope, len(parents), True)


def _story(parents: dict[int, tuple[int, str]], key: int, last: str) -> tuple[str, ...]:
    labels = [last]
    while parents[key][0]:
        key, label = parents[key]
        labels.append(label)
    return tuple(reversed(labels))


def wander(scope: Scope, seed: int, steps: int, rules: Rules = RIGHT) -> str:
    """Play one long story at random. Return what is wrong, with the story; empty if nothing is."""
    random = Random(seed)
    world = beginning(rules, scope)
    story: list[str] = []
    try:
        for _ in range(steps):
            choices = list(moves(rules, scope, world))
            label, move = choices[0] if random.random() < 0.5 else random.choice(choices)
            story.append(label)
            world = move()
    except Broken as broken:
        return "\n  ".join([*joined(tuple(story)), f"WRONG: {broken}"])
    return ""
