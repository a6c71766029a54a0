"""Explores the model: `python -m tests.assignment [WORD...] [--large] [--most N] [--mistakes]`.

Prints the scopes, how many states each has, and after how many moves each mistake is found. With words, only
scopes and mistakes whose names have one of them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from .explore import explore
from .mistakes import MISTAKES, with_mistake
from .scopes import LARGE, SMALL, scope_of


def is_meant(name: str, words: Sequence[str]) -> bool:
    return not words or any(word in name for word in words)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.assignment", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of the names of scopes and mistakes")
    parser.add_argument("--large", action="store_true", help="explore the large scopes as well")
    parser.add_argument("--most", type=int, default=0, help="the most states of each scope")
    parser.add_argument("--mistakes", action="store_true", help="print the story of each mistake")
    given = parser.parse_args()
    states = wrong = missed = 0
    for scope in [*SMALL, *(LARGE if given.large else ())]:
        if is_meant(scope.name, given.words):
            before = time.process_time()
            explored = explore(scope, most=given.most)
            print(f"{explored} ({time.process_time() - before:.1f} s)", flush=True)
            states, wrong = states + explored.states, wrong + bool(explored.broken)
    print(f"{states:,} states, {wrong} scopes with something wrong\n")
    for mistake in MISTAKES:
        if is_meant(mistake.name, given.words):
            explored = explore(scope_of(mistake.scope), with_mistake(mistake), says=mistake.says)
            missed += not explored.broken
            outcome = f"found after {len(explored.story)} moves" if explored.broken else "NOT FOUND"
            print(f"{mistake.name}: {outcome}" + f" ({mistake.seen_at})" * bool(mistake.seen_at), flush=True)
            if given.mistakes and explored.broken:
                print(f"  {explored}\n")
    print(f"{missed} mistakes are not found")
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
