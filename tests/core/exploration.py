"""Visits every state that a small system can be in, breadth first, and holds each to the invariants. Nothing
is drawn by lot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .guarantees import Violation
from .small import Action, Rules, System


@dataclass
class Explored:
    """What an exploration has come to."""

    rules: Rules
    states: int = 0
    """How many distinct states were visited."""
    steps: int = 0
    """How many times something happened."""
    depth: int = 0
    """How many steps deep all states were visited."""
    widths: list[int] = field(default_factory=list)
    """How many states are first met at each depth."""

    def __str__(self) -> str:
        rules = self.rules
        start = (
            "both branches watching"
            if rules.synced
            else "nothing listed" + (", initial streams" if rules.streaming else "")
        )
        return (
            f"{rules.objects} objects, 2 branches, {rules.faults} faults, {start}: {self.states:,} states,"
            f" {self.steps:,} steps, all to a depth of {self.depth}"
            f" ({', '.join(f'{width:,}' for width in self.widths)})"
        )


def explore(rules: Rules, *, states: int) -> Explored:
    """Visit at most `states` states. Raise Violation, which holds the steps that lead to it."""
    explored = Explored(rules)
    met = {hash(System(rules).frozen())}
    frontier: list[tuple[Action, ...]] = [()]
    while frontier:
        deeper: list[tuple[Action, ...]] = []
        for path in frontier:
            if explored.states >= states:
                return explored
            system = _after(path, rules)
            actions = system.actions()
            for action in actions:
                child = system.copy()
                _do(child, action, path)
                explored.steps += 1
                key = hash(child.frozen())
                if key in met:
                    continue
                met.add(key)
                explored.states += 1
                deeper.append((*path, action))
                _do(child, None, (*path, action))
        frontier = deeper
        explored.depth += 1
        explored.widths.append(len(deeper))
    return explored


def _after(path: Iterable[Action], rules: Rules) -> System:
    system = System(rules)
    for action in path:
        system.do(action)
    return system


def _do(system: System, action: Action | None, path: tuple[Action, ...]) -> None:
    """Let something happen; or nothing more, so that what is shown must come to be what there is."""
    try:
        if action is not None:
            system.do(action)
        else:
            system.settle()
    except Violation as violation:
        story = "\n".join(
            f"  {each.what} {each.who} {each.how}"
            for each in (*path, *([action] if action is not None else []))
        )
        raise Violation(violation.invariant, f"{violation}, after\n{story}") from violation
