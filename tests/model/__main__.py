"""Explores the model: `python -m tests.model [WORD...] [--large] [--mistakes]`.

Prints the scopes, how many states each has, and after how many moves each mistake is found. With words, only
scopes and mistakes whose names have one of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .explore import explore
from .mistakes import MISTAKES, with_mistake
from .scopes import LARGE, SMALL, rule_of, scope_of


def is_meant(name: str, words: Sequence[str]) -> bool:
    return not words or any(word in name for word in words)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of the names of scopes and mistakes")
    parser.add_argument("--large", action="store_true", help="explore the large scopes as well")
    parser.add_argument("--mistakes", action="store_true", help="print the story of each mistake")
    given = parser.parse_args()
    states = wrong = 0
    for scope in [*SMALL, *(LARGE if given.large else ())]:
        if is_meant(scope.name, given.words):
            explored = explore(rule_of(scope), scope)
            print(explored, flush=True)
            states, wrong = states + explored.states, wrong + bool(explored.broken)
    print(f"{states:,} states, {wrong} scopes with something wrong\n")
    missed = 0
    for mistake in MISTAKES:
        if is_meant(mistake.name, given.words):
            explored = explore(with_mistake(mistake), scope_of(mistake.scope), says=mistake.says)
            missed += not explored.broken
            outcome = f"found after {len(explored.story)} moves" if explored.broken else "NOT FOUND"
            print(f"{mistake.name}: {outcome}", flush=True)
            if given.mistakes and explored.broken:
                print(f"  {explored}\n")
    print(f"{missed} mistakes are not found")
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
