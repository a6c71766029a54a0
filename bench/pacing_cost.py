"""Measure `settings.selectcache.batch_delay`: how late a change is stored with and without it, and the CPU of
an event, at several numbers of events a second, over TLS.

`python -m bench.pacing_cost` runs a cache as a process of its own for each measurement, with and without
the delay by turns, and prints a table; `--write` puts it into bench/NOTES.md. The times belong to one
machine; compare the two columns of a row.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kopf
from kopf._cogs.structs.credentials import Vault

from bench.checkout import SERVED
from bench.data import VERSION, encoded
from bench.datasets import DEFAULT, dataset
from bench.synthetic import Synthetic
from kopf_selectcache import EVERYTHING
from kopf_selectcache.client.reading import BATCH_SECONDS
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.testing.cluster import authority

RATES = (100, 300, 1000, 5000)
"""Events a second."""

PODS = 100
SECONDS = 5.0
TURNS = 3
PAGE = Path(__file__).parent / "NOTES.md"
BLOCK = re.compile(r"(?<=<!-- pacing -->\n).*?(?=<!-- pacing ends -->)", re.DOTALL)
"""The table in the page. Those of `bench.report` have other marks."""


@dataclass(frozen=True)
class Run:
    """One measurement."""

    cpu: float
    """CPU seconds of an event."""
    late: Sequence[float]
    """Seconds from the write of each change until it is stored."""

    def quantile(self, share: float) -> float:
        return sorted(self.late)[int(share * (len(self.late) - 1))]


# ---- The cache, in a process of its own.


async def follow(url: str, ca_file: str, delay: float, last: int) -> None:
    """Follow the pods of a server until the last version; print when the list is complete, then the CPU
    seconds and the time at which each change was stored.
    """
    settings = SelectCacheSettings(audit_interval=0)
    settings.selectors["v1/pods"] = EVERYTHING
    vault = Vault({"login": kopf.ConnectionInfo(server=url, ca_path=ca_file)})
    transport = KopfTransport(vault, request_timeout=60.0, batch_delay=delay)
    runtime = Runtime(
        settings, transport, namespaces=None, chance=lambda: 0.5, logger=logging.getLogger("bench")
    )
    informer, stored, done = runtime.informer("pods"), list[float](), asyncio.Event()

    def note(change: Any) -> None:
        stored.append(time.monotonic())
        if change is not None and change.after is not None and change.after.version == str(last):
            done.set()

    task = asyncio.create_task(runtime.run())
    await informer.wait_until_settled()
    informer.subscribe(note)
    stored.clear()
    print(json.dumps("ready"), flush=True)
    began = time.process_time()
    await done.wait()
    print(json.dumps({"cpu": time.process_time() - began, "stored": stored}), flush=True)
    task.cancel()
    await asyncio.wait({task})
    await vault.close()


# ---- All of them, by turns.


def measured(rate: int, delay: float, seconds: float, pods: Sequence[bytes]) -> Run:
    """Measure one cache at one number of events a second."""
    rounds = math.ceil(rate * seconds / len(pods))
    answers = {path: encoded(answer) for path, answer in SERVED.items()}
    with tempfile.TemporaryDirectory() as folder:
        ca_file = Path(folder) / "ca.crt"
        tls = authority(ca_file)
        last = int(VERSION) + rounds * len(pods)
        with Synthetic(pods, rounds=rounds, answers=answers, pace=rate, tls=tls) as server:
            command = [sys.executable, "-m", "bench.pacing_cost", "--follow", server.url, str(ca_file)]
            process = subprocess.Popen(  # The command is our own.  # noqa: S603
                [*command, str(delay), str(last)], stdout=subprocess.PIPE, text=True
            )
            with process:
                try:
                    assert process.stdout is not None, "it is a pipe"
                    process.stdout.readline()
                    server.begin()
                    found = json.loads(process.stdout.readline())
                finally:
                    process.kill()
            events = rounds * len(pods)
            stored = found["stored"][-events:]
            late = [at - sent for sent, at in zip(server.sent, stored, strict=True)]
            return Run(found["cpu"] / events, late)


def compared(
    rates: Sequence[int], seconds: float, turns: int, pods: Sequence[bytes], delay: float = BATCH_SECONDS
) -> dict[int, tuple[list[Run], list[Run]]]:
    """Measure each number of events a second without and with the delay, by turns."""
    found: dict[int, tuple[list[Run], list[Run]]] = {rate: ([], []) for rate in rates}
    for _ in range(turns):
        for rate, runs in found.items():
            for each, some in zip((0.0, delay), runs, strict=True):
                some.append(measured(rate, each, seconds, pods))
    return found


def table(found: dict[int, tuple[list[Run], list[Run]]]) -> str:
    """Return the table, as Markdown: medians of the turns."""
    head = (
        "events a second|stored after: p50|p99|with the delay: p50|p99|CPU of an event|with the delay|ratio"
    )
    lines = [f"| {head.replace('|', ' | ')} |", f"|{'---:|' * 8}"]
    for rate, runs in found.items():
        late = [
            f"{1e3 * statistics.median(run.quantile(share) for run in some):.1f} ms"
            for some in runs
            for share in (0.5, 0.99)
        ]
        plain, paced = (statistics.median(run.cpu for run in some) for some in runs)
        ratio = statistics.median(one.cpu / other.cpu for other, one in zip(*runs, strict=True))
        cells = (f"{rate:,}", *late, f"{1e6 * plain:.0f} µs", f"{1e6 * paced:.0f} µs", f"{ratio:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write(text: str, file: Path = PAGE) -> None:
    """Put the table into the page."""
    page = file.read_text(encoding="utf-8")
    file.write_text(BLOCK.sub(lambda _: f"{text}\n", page), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pacing_cost", description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, help="events a second")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one measurement")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--write", action="store_true", help="put the table into bench/NOTES.md")
    parser.add_argument("--follow", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.follow:
        url, ca_file, delay, last = options.follow
        asyncio.run(follow(url, ca_file, float(delay), int(last)))
        return 0
    text = table(
        compared(options.rates, options.seconds, options.turns, dataset(DEFAULT, seed=1).many(PODS)[:])
    )
    print(text)
    if options.write:
        write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
