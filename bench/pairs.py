"""Two checkouts side by side: reads, events, lists and memory of an old and a new version, by turns, each in
a process (`bench.checkout`).

    git worktree add ../old f3a2be0
    python -m bench.pairs ../old .

Prints the median of each figure, and of the ratios of the pairs with their middle half: a busy machine slows
both halves of a pair. Needs no server: a transport in process has the lists and the watches. The large pods
have siblings; with `--data=unrelated` they have none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from bench.data import encoded
from bench.datasets import DEFAULT, SETS, dataset

TURNS = 15

OBJECTS = 500
"""The number of large pods."""

PROGRAM = Path(__file__).with_name("checkout.py")


def measure(
    checkout: str, *, data: str = DEFAULT, count: int = OBJECTS, share: float = 1.0
) -> dict[str, float]:
    """Return the figures of a checkout, with this number of large pods."""
    with TemporaryDirectory() as folder:
        objects = Path(folder) / "objects"
        objects.write_bytes(b"\n".join(map(encoded, dataset(data, seed=1).pods(count))))
        command = [
            sys.executable,
            "-P",
            str(PROGRAM),
            str(Path(checkout).resolve()),
            str(objects),
            str(share),
        ]
        done = subprocess.run(  # Both checkouts are the user's own.  # noqa: S603
            command, check=True, capture_output=True, text=True
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__)
    parser.add_argument("old", help="the folder of a checkout")
    parser.add_argument("new", help="the folder of another")
    parser.add_argument("--data", choices=sorted(SETS), default=DEFAULT)
    options = parser.parse_args(arguments)
    old, new = options.old, options.new
    pairs = []
    for turn in range(TURNS):
        # The order changes: whoever comes second finds another machine.
        first, second = (old, new) if turn % 2 else (new, old)
        measured = {first: measure(first, data=options.data)}
        measured[second] = measure(second, data=options.data)
        pairs.append((measured[old], measured[new]))
        print(f"\r{turn + 1} of {TURNS} pairs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(
        f"| {TURNS} pairs of processes | old | new | new / old | its middle half |\n|---|---:|---:|---:|---:|"
    )
    for what in pairs[0][0]:
        before, after = (median(pair[half][what] for pair in pairs) for half in (0, 1))
        low, ratio, high = quantiles((pair[1][what] / pair[0][what] for pair in pairs), n=4)
        print(f"| {what} | {before:,.2f} | {after:,.2f} | {ratio:.2f} | {low:.2f} to {high:.2f} |")


if __name__ == "__main__":
    main()
