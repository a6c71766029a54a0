"""Compare whole operators whose handler is called for each pod: Kopf alone, Kopf with a cache and two
watches, Kopf fed from the cache by one watch, and a manager of controller-runtime.

`python -m bench.whole_operator` runs them by turns, each as a process of its own, on the same server with the
same pods, and prints a table with the ratios to plain Kopf. Compare ratios: the times belong to one machine
at one moment.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import version
from pathlib import Path

from bench.building import RECIPES, LeftOut, built
from bench.comparison import written
from bench.data import ROUND, encoded, round_of
from bench.datasets import SETS
from bench.running import Cap, Over, Running
from bench.synthetic import Synthetic, discovery
from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.client import Client

PLAIN, TWO, ONE, GO = "plain Kopf", "two watches", "one watch", "controller-runtime"
READING = "one watch, the handler reads the cache"
COMMANDS: Mapping[str, str] = {PLAIN: "plain", TWO: "two", ONE: "one", READING: "reading"}
INDEXING: Mapping[str, str] = {PLAIN: "index-plain", ONE: "index-one"}
DOCUMENT = Path(__file__).parent / "FAULTS.md"
TABLE = "<!-- begin: whole operators, by python -m bench.whole_operator -->"
SIZES, SMALL_SIZES, INDEX_SIZES = (4_000, 20_000), (12_000,), (1_000, 4_000)
QUICK_SIZES, QUICK_SMALL_SIZES, QUICK_INDEX_SIZES = (400,), (400,), (100,)
PACE = 200.0
"""Changes per second."""
CHANGES = 2_000
CAP = Cap(seconds=900, megabytes=8_000)
SEED = 1
INDEX = "@kopf.index"
HANDLER = "@kopf.on.event"
SMALL = "@kopf.on.event, 3 KB"
SMALL_BYTES = 3_000
"""The size of objects as small as most ConfigMaps are."""
TARGETS: Mapping[str, tuple[str, float]] = {
    "requests": (TWO, 0.5),
    "megabytes": (TWO, 0.5),
    "cpu": (PLAIN, 1.05),
    "event": (PLAIN, 1.0),
    "rest": (TWO, 1.0),
}
"""Of one watch: each figure, the operator that it is compared with, and the largest allowed ratio."""


@dataclass(frozen=True)
class Figures:
    """What one operator has taken."""

    requests: float
    """Lists and watches of pods."""
    megabytes: float
    """Of pods, received until all handlers have run."""
    cpu: float
    """Seconds, until the handler has run for each pod."""
    event: float = 0.0
    """CPU of an event, in microseconds, at the pace."""
    rest: float = 0.0
    """Memory at rest, in MB."""
    peak: float = 0.0
    """Memory at its peak, in MB."""


HEAD = (
    "requests",
    "MB received",
    "CPU until all have run, s",
    "CPU of an event, µs",
    "memory, MB",
    "peak, MB",
)
WORDS = dict(zip((each.name for each in fields(Figures)), HEAD, strict=True))


def play(peer: Running, synthetic: Synthetic, pods: int, changes: int) -> Figures:
    """Start an operator, wait until its handler has run for all pods, and change some of them."""
    peer.answer()
    before = peer.usage().cpu
    peer.ask(do="start")
    peer.ask(do="handled", pods=pods, round="")
    synced, received = peer.usage().cpu - before, synthetic.bytes
    peer.ask(do="rest")
    event = 0.0
    if changes:
        before = peer.usage().cpu
        synthetic.begin()
        peer.ask(do="handled", pods=changes, changed=changes, round=round_of(1))
        event = 1e6 * (peer.usage().cpu - before) / changes
        peer.ask(do="rest")
    usage = peer.usage()
    return Figures(
        requests=synthetic.requests.total(),  # Its watch is there by now.
        megabytes=received / 1e6,
        cpu=synced,
        event=event,
        rest=usage.resident / 1e6,
        peak=usage.peak / 1e6,
    )


def measure(
    server: Client,
    pods: Sequence[bytes],
    commands: Mapping[str, Sequence[str]],
    *,
    repeats: int,
    changes: int,
    say: str = "",
) -> dict[str, list[Figures | str]]:
    """Return the figures of each turn, by operator; a text where one did not finish."""
    answers = discovery(server)
    found: dict[str, list[Figures | str]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            with (
                tempfile.TemporaryDirectory() as folder,
                Synthetic(pods, rounds=1, answers=answers, pace=PACE, first_changes=changes) as synthetic,
            ):
                kubeconfig = synthetic.kubeconfig(Path(folder) / "kubeconfig")
                env = {"KUBECONFIG": str(kubeconfig)}
                with Running(command, env=env, cap=CAP, log=Path(folder) / "log") as peer:
                    try:
                        figures: Figures | str = play(peer, synthetic, len(pods), changes)
                    except Over as over:
                        figures = str(over)
            print(f"{say}{len(pods):,} pods, {name}: {figures}", file=sys.stderr, flush=True)
            found[name].append(figures)
    return found


def commands_of(modes: Mapping[str, str], *, go: bool) -> dict[str, list[str]]:
    """Return the command of each operator; Go is left out, with the reason, if it cannot be built."""
    commands = {name: [sys.executable, "-m", "bench.peers.operator", mode] for name, mode in modes.items()}
    if go:
        try:
            commands[GO] = [str(built(RECIPES["go_reconciler"], say=partial(print, file=sys.stderr))), "pods"]
        except LeftOut as reason:
            print(f"{GO} is left out: {reason}", file=sys.stderr)
    return commands


def report(tables: Mapping[tuple[str, int], Mapping[str, Sequence[Figures | str]]]) -> str:
    """Return the table, in Markdown: medians, and their ratios to plain Kopf."""
    lines = [f"| handlers | pods | | {' | '.join(HEAD)} |", f"| --- | ---: | --- |{' ---: |' * len(HEAD)}"]
    for (handlers, pods), contenders in tables.items():
        base = median_of(contenders[PLAIN])
        for name, turns in contenders.items():
            found = median_of(turns)
            start = f"| {handlers} | {pods:,} | {name} |"
            if isinstance(found, str):
                lines.append(f"{start} {found} |{' |' * (len(HEAD) - 1)}")
                continue
            cells = [
                _cell(getattr(found, each.name), None if isinstance(base, str) else getattr(base, each.name))
                for each in fields(Figures)
            ]
            lines.append(f"{start} {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(tables: Mapping[tuple[str, int], Mapping[str, Sequence[Figures | str]]]) -> str:
    """Return a line for each target: the ratio of one watch to what it is compared with."""
    lines = ["| target | of | allowed | measured |", "| --- | --- | ---: | --- |"]
    for figure, (other, allowed) in TARGETS.items():
        ratios = []
        for contenders in tables.values():
            ours, theirs = median_of(contenders[ONE]), median_of(contenders.get(other, ["not measured"]))
            if not isinstance(ours, str) and not isinstance(theirs, str) and getattr(theirs, figure):
                ratios.append(f"{getattr(ours, figure) / getattr(theirs, figure):.2f}x")
        lines.append(f"| {WORDS[figure]} | {other} | {allowed:.2f}x | {', '.join(ratios)} |")
    return "\n".join(lines)


def machine() -> str:
    """Say on what it was measured."""
    said = ", ".join(f"{name} {version(name)}" for name in ("kopf_selectcache", "kopf"))
    return (
        f"Measured with {said}, on Python {platform.python_version()}. Other programs used the"
        f" {os.cpu_count()} processors as well."
    )


def median_of(turns: Sequence[Figures | str]) -> Figures | str:
    finished = [each for each in turns if isinstance(each, Figures)]
    if not finished:
        return str(turns[0])
    return Figures(
        *(statistics.median(getattr(one, each.name) for one in finished) for each in fields(Figures))
    )


def _cell(value: float, base: float | None) -> str:
    if not value:
        return ""
    text = f"{value:,.0f}" if value >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{text} ({value / base:.2f}x)" if base else text


def small(pod: bytes) -> bytes:
    """Return an object with the metadata of a pod and as much text as makes it small."""
    whole = json.loads(pod)
    made = {name: whole[name] for name in ("apiVersion", "kind", "metadata")}
    made["metadata"].pop("managedFields", None)
    made["metadata"]["annotations"] = {ROUND: made["metadata"]["annotations"][ROUND]}
    text = json.dumps([whole["spec"], whole["status"]]).replace('"', "'")
    room = SMALL_BYTES - len(encoded(made | {"data": {"text": ""}}))
    return encoded(made | {"data": {"text": text[:room]}})


def run(
    server: Client,
    sizes: Sequence[int],
    small_sizes: Sequence[int],
    index_sizes: Sequence[int],
    *,
    repeats: int,
    changes: int,
) -> dict[tuple[str, int], dict[str, list[Figures | str]]]:
    """Return all figures, by kind of handler and number of pods."""
    pods = SETS["grouped"](seed=SEED).many(max((*sizes, *small_sizes, *index_sizes)))[:]
    tables = {}
    for size in sizes:
        tables[HANDLER, size] = measure(
            server,
            pods[:size],
            commands_of(COMMANDS, go=True),
            repeats=repeats,
            changes=min(changes, size),
        )
    for size in small_sizes:
        tables[SMALL, size] = measure(
            server,
            list(map(small, pods[:size])),
            commands_of({name: COMMANDS[name] for name in (PLAIN, TWO, ONE)}, go=False),
            repeats=repeats,
            changes=min(changes, size),
            say="small, ",
        )
    for size in index_sizes:
        tables[INDEX, size] = measure(
            server, pods[:size], commands_of(INDEXING, go=False), repeats=1, changes=0, say="index, "
        )
    return tables


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.whole_operator", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few pods and changes; no page is written")
    parser.add_argument("--repeats", type=int, default=3, help="turns (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--small-sizes", type=int, nargs="*", default=SMALL_SIZES)
    parser.add_argument("--index-sizes", type=int, nargs="*", default=INDEX_SIZES)
    given = parser.parse_args()
    sizes = (given.sizes, given.small_sizes, given.index_sizes)
    if given.quick:
        sizes = (QUICK_SIZES, QUICK_SMALL_SIZES, QUICK_INDEX_SIZES)
    with EmbeddedCluster().in_thread() as cluster:
        client = Client(cluster.url, ca_file=cluster.ca_file, token=cluster.token)
        tables = run(client, *sizes, repeats=1 if given.quick else given.repeats, changes=CHANGES)
    made = f"{machine()}\n\n{report(tables)}\n\n{verdict(tables)}\n"
    print(made)
    if sizes == (SIZES, SMALL_SIZES, INDEX_SIZES):
        DOCUMENT.write_text(written(DOCUMENT.read_text(), TABLE, made))


if __name__ == "__main__":
    main()
