"""Plays worlds again, or searches for one that fails: `python -m tests.world SEED... [--worlds
N] [--shrink]`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from time import monotonic

from .corpus import written
from .explore import of_seed
from .shrink import shrunk


def _silent(_: str) -> None:
    pass


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, help="the worlds to play; they print what happens")
    parser.add_argument(
        "--worlds", type=int, default=0, metavar="N", help="play N worlds from the first seed on, or 0"
    )
    parser.add_argument("--shrink", action="store_true", help="print the fewest steps that still fail")
    given = parser.parse_args()
    failed: Counter[str] = Counter()
    seeds = given.seeds
    if given.worlds:
        first = given.seeds[0] if given.seeds else 0
        seeds = list(range(first, first + given.worlds))
    began, compared = monotonic(), 0
    for number, seed in enumerate(seeds, 1):
        run = of_seed(seed, note=_silent if given.worlds or given.shrink else print)
        compared += run.compared
        if run.lie is not None:
            failed[str(run.lie).split(":")[0]] += 1
            print(f"\rseed {seed}: {str(run.lie)[:400]}")
            if given.shrink:
                small = shrunk(run)
                print(f"# {len(small.lines)} steps: {small.lie}")
                print(written(small, "UNSOLVED "))
        if given.worlds:
            spent = monotonic() - began
            print(
                f"\r{number} of {len(seeds)} worlds, {compared:,} reads, {sum(failed.values())} fail"
                f" {dict(failed)}, {spent:.0f} s",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
