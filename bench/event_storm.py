"""Measure how much a storm of Events disturbs an operator: how late a timer of its loop is, quiet and in the
storm, and the CPU of one `record`.

`python -m bench.event_storm` records 100,000 Events in a minute, about 200 objects, with the embedded API
server in a process of its own, and prints a table. Compare ratios: the times belong to one machine at one
moment.

On two shared processors, 609 writes were made at the limit of 10 a second, one `record` with all that came of
it took 63 µs of CPU, and the timer was late by 2.8 ms (p99; 0.6 ms when quiet).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import kopf

import kopf_selectcache as selectcache
from bench.embedded import Server, embedded

OBJECTS = 200
PER_SECOND = 100_000 / 60
SECONDS = 60.0
WRITES = 10.0
PAUSE = 0.01
"""Seconds between the records of a handler that has many to make, and between the looks of the timer."""


@dataclass(frozen=True)
class Part:
    """One part of a run."""

    name: str
    late: Sequence[float]
    """Seconds by which each look of the timer was late."""
    cpu: float
    """CPU seconds per second, of the whole process."""
    recorded: int = 0
    record: float = 0.0
    """CPU seconds of one call of `record`, and of all that comes of it."""
    written: int = 0
    joined: int = 0
    """Those that were joined with others, or only counted."""
    waiting: int = 0

    def quantile(self, share: float) -> float:
        return sorted(self.late)[int(share * (len(self.late) - 1))]


async def measured(recorder: selectcache.Recorder | None, seconds: float) -> tuple[list[float], float, int]:
    """Record for some seconds, at the pace of the storm; return how late the timer was, the CPU, and the
    number of calls.
    """
    late, calls = list[float](), 0
    began, cpu = time.monotonic(), time.process_time()
    while (now := time.monotonic()) < began + seconds:
        if recorder is not None:
            for number in range(calls, int((now - began) * PER_SECOND)):
                about = {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"web-{number % OBJECTS}", "namespace": "default"},
                }
                recorder.record(about, "Warning", "Failed", f"Try {number} has failed.")
                calls = number + 1
        due = time.monotonic() + PAUSE
        await asyncio.sleep(PAUSE)
        late.append(max(0.0, time.monotonic() - due))
    return late, time.process_time() - cpu, calls


async def run(server: Server, seconds: float, *, writes_per_second: float = WRITES) -> list[Part]:
    """Measure the parts, one after the other, in one process."""
    login = kopf.ConnectionInfo(server=server.url, token=server.token, ca_path=str(server.ca_file))
    async with selectcache.Caches({"v1/pods": selectcache.EVERYTHING}, login=login) as cache:
        await cache.wait_synced()
        late, quiet, _ = await measured(None, seconds / 3)
        parts = [Part("quiet", late, quiet / (seconds / 3))]
        recorder = selectcache.Recorder("bench", cache, writes_per_second=writes_per_second)
        late, cpu, calls = await measured(recorder, seconds)
        stats = recorder.stats()
        each = (cpu - quiet * 3) / max(1, calls)
        written, joined = stats.created + stats.patched, stats.spam + stats.coalesced + stats.overflow
        parts.append(Part("storm", late, cpu / seconds, calls, each, written, joined, stats.waiting))
    return parts


def table(parts: Sequence[Part]) -> str:
    """Return the table, as Markdown."""
    head = ("", "timer late, p50", "p99", "longest", "CPU", "recorded", "CPU of one", "writes", "joined")
    rows: list[tuple[str, ...]] = [(*head, "waiting"), ("---",) * 10]
    for part in parts:
        late = (f"{1e3 * part.quantile(share):.2f} ms" for share in (0.5, 0.99, 1.0))
        counts = (f"{each:,}" for each in (part.written, part.joined, part.waiting))
        cpu, each = f"{100 * part.cpu:.1f} %", f"{1e6 * part.record:.0f} µs"
        rows.append((part.name, *late, cpu, f"{part.recorded:,}", each, *counts))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.event_storm", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the storm (default: %(default)s)")
    options = parser.parse_args(arguments)
    with embedded() as server:
        print(table(asyncio.run(run(server, options.seconds))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
