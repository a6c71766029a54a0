"""Plays the attacks to caches in processes of their own, on real time, and prints a table: `python -m
tests.hostile [WORD...]`.

Words choose the attacks whose names have one of them. All of them take about a quarter of an hour. The table
has the states of the two attacked caches (one held its objects before the attack, one had none), the most
requests for one of them in any minute, the memory that the process takes at most on top of what it took
before, and the longest block of its event loop, in CPU time."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from .attack import Attack
from .attacks import ATTACKS
from .playing import play
from .process import Died, started
from .server import Server
from .table import DOCUMENT, HEAD, Row, states, written
from .tls import Authorities

AT_ONCE = 10
"""Attacks that are played at the same time: most of them are waits."""
MOST_PATIENCE = 120.0
"""Seconds to wait for a recovery; the tests wait longer, on virtual time."""
LONGEST_BLOCK = 1.0
"""Seconds of CPU for which an attack may block the loop."""


async def measure(attack: Attack) -> tuple[Row, list[str]]:
    """Play one attack; return its row, and what does not hold."""
    with tempfile.TemporaryDirectory() as folder:
        authorities = Authorities(Path(folder)) if attack.tls else None
        server = Server(tls=authorities, host=attack.host)
        async with server:
            server.prepare(attack.play, attack.verbs, keep=attack.keep)
            async with started(
                server.url, str(authorities.ca_file) if authorities is not None else None
            ) as process:
                try:
                    outcome = await play(attack, server, process, most_patience=MOST_PATIENCE)
                except Died as died:
                    return Row("died", server.most_in_a_minute(), process.peak, process.block), [str(died)]
    complaints = outcome.complaints(attack)
    if process.peak > attack.memory:
        complaints.append(f"the process took {process.peak:.0f} MB more, and {attack.memory} are allowed")
    if process.block > LONGEST_BLOCK:
        complaints.append(f"the loop was blocked for {process.block:.1f} s of CPU")
    seen = [outcome.states[kind] for kind in ("pods", "secrets")]
    return Row(" / ".join(dict.fromkeys(seen)), outcome.requests, process.peak, process.block), complaints


async def measure_all(attacks: list[Attack]) -> tuple[dict[str, Row], list[str]]:
    rows: dict[str, Row] = {}
    failures: list[str] = []
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(attack: Attack) -> None:
        async with turns:
            rows[attack.name], complaints = await measure(attack)
        failures.extend(f"{attack.name}: {complaint}" for complaint in complaints)
        print(
            f"{len(rows)} of {len(attacks)}: {attack.name}: {'; '.join(complaints)[:500] or 'as it must be'}",
            file=sys.stderr,
            flush=True,
        )

    async with asyncio.TaskGroup() as group:
        for attack in attacks:
            group.create_task(one(attack))
    return rows, failures


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", help="parts of the names of attacks; without any, all are played")
    parser.add_argument("--write", action="store_true", help="write the rows into bench/FAULTS.md")
    given = parser.parse_args()
    chosen = [
        attack for attack in ATTACKS if not given.words or any(word in attack.name for word in given.words)
    ]
    if not chosen:
        parser.error(f"no attack has such a name; there are: {', '.join(attack.name for attack in ATTACKS)}")
    rows, failures = asyncio.run(measure_all(chosen))
    print(HEAD)
    for attack in chosen:
        print(rows[attack.name].shown(attack))
    if given.write:
        measured = [
            attack
            for attack in ATTACKS
            if rows.get(attack.name) is not None and rows[attack.name].states == states(attack)
        ]
        DOCUMENT.write_text(
            written(
                DOCUMENT.read_text(encoding="utf-8"),
                ATTACKS,
                {attack.name: rows[attack.name] for attack in measured},
            ),
            encoding="utf-8",
        )
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
