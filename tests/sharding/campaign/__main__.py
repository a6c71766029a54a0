"""Kill replicas, stop them, restart servers under them, and judge what they wrote: `make campaign-shards`.

Two operators on a real API server take turns: a plain one of Kopf, and one of reconcilers. Each piece has a
server of its own. Its result is a line of a file: run the command again, and it goes on after the last one.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from .play import Played, play, quantiles

OPERATORS = ("plain", "reconcilers")
MOST_WRONG = 10
"""The number of findings that are printed of a piece; the file has all."""
RESULTS = Path("build/campaign.jsonl")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make campaign-shards ARGS=...", description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="replicas that are killed in all (500)")
    parser.add_argument("--piece", type=int, default=25, help="kills of one piece (25)")
    parser.add_argument("--lease", type=float, default=4.0, help="seconds of a Lease; the default is 40 (4)")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"the file of the results ({RESULTS})")
    parser.add_argument("--operator", choices=OPERATORS, help="only this operator; by default both, in turn")
    parser.add_argument("--keep", type=Path, help="keep the logs in this folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Replicas and servers are ended as well.
    done = read(options.results, options.lease)
    while (killed := sum(each.faults["SIGKILL"] for each in done)) < options.kills:
        number = len(done)
        operator = options.operator or OPERATORS[number % len(OPERATORS)]
        began = time.monotonic()
        print(f"piece {number + 1}: {operator}, after {killed} of {options.kills} kills", flush=True)
        kills = min(options.piece, options.kills - killed)
        keep = None if options.keep is None else options.keep / str(number + 1)
        played = play(operator, number, kills=kills, lease=options.lease, tell=tell(began), keep=keep)
        options.results.parent.mkdir(parents=True, exist_ok=True)
        with options.results.open("a") as file:
            file.write(json.dumps(vars(played)) + "\n")
        done.append(played)
        for each in played.wrong[:MOST_WRONG]:
            print(f"  WRONG: {each}")
    print(report(done))
    return 1 if any(each.wrong for each in done) else 0


def tell(began: float) -> Callable[[str], None]:
    def say(text: str) -> None:
        print(f"  {time.monotonic() - began:6.0f} s  {text}", flush=True)

    return say


def read(path: Path, lease: float) -> list[Played]:
    """Return the results of earlier pieces with this Lease."""
    if not path.exists():
        return []
    found = [Played(**json.loads(line)) for line in path.read_text().splitlines()]
    for each in found:
        each.faults = Counter(each.faults)
    return [each for each in found if each.lease == lease]


def report(done: list[Played]) -> str:
    """Return the figures of all pieces."""
    lines = []
    for operator in OPERATORS:
        pieces = [each for each in done if each.operator == operator]
        faults = sum((each.faults for each in pieces), Counter[str]())
        lines.append(
            f"{operator}: {len(pieces)} pieces, {sum(each.writes for each in pieces)} writes,"
            f" {', '.join(f'{count} {name}' for name, count in faults.most_common())},"
            f" {sum(len(each.wrong) for each in pieces)} wrong"
        )
        lines += [f"  ended by itself: {each}" for piece in pieces for each in piece.ended]
        for fault in faults:
            seconds = [second for each in pieces for second in each.seconds.get(fault, ())]
            lines.append(f"  all ranges have an owner after {fault}: {quantiles(seconds)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
