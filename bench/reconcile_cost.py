"""Compare the calls of a reconciler, the time until the last states are reconciled, and the CPU:
`selectcache.reconcile`, and a controller of controller-runtime.

`python -m bench.reconcile_cost` runs them by turns, each as a process of its own, for the same scripts of
changes of the same objects of one real API server (needs Go): ConfigMaps, each of which owns a pod.
Compare ratios: the times belong to one machine at one moment.

On two processors with CPython 3.11, a reconciler took 1.4 to 2.6 times the CPU of controller-runtime 0.25.2,
and 3 times as much for the first list; up to 3.2 times on a busy machine. It was called as often, and half as
often where it wrote to its own object. Both had reconciled the last states within 0.4 s of the last change.
Kopf's log line "succeeded" is a quarter of what a call takes: `kopf run --quiet` saves it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeAlias

from bench.building import RECIPES, LeftOut, built
from bench.peers.reconciler import LABEL, NUMBER, WRITTEN, value_of
from bench.running import Cap, Over, Running
from tests.apiserver.client import Client
from tests.apiserver.server import ApiServer

OURS, GO = "selectcache.reconcile", "controller-runtime"
NAMESPACE, PREFIX = "default", "app-"
WRITERS = 8
LIMIT = 10
"""Calls at the same time."""
CAP = Cap(seconds=300, megabytes=4_000)
QUIET = 1.0
"""Seconds without a call, after which a script has ended."""
LOOK = 0.05
SEED = 1
LEAST = 0.1
"""Seconds: less has no ratio."""

Change: TypeAlias = tuple[str, int, int]
"""A name, 0 for the ConfigMap or 1 for its pod, and the new number."""


@dataclass(frozen=True)
class Script:
    """Changes, and what the reconciler does meanwhile."""

    name: str
    changes: int
    burst: int = 0
    """The number of changes that are written as fast as possible; then all states are awaited."""
    of_burst: int = 0
    """The number of ConfigMaps that change in a burst."""
    pace: float = 0.0
    """Changes per second, if there are no bursts."""
    takes: float = 0.0
    """Seconds of a call."""
    writes: bool = False
    """True if the reconciler writes what it has seen."""


START = "start"
KEYS, QUICK_KEYS = 1_000, 20
SCRIPTS = (
    Script("steady", 4_000, pace=200),
    Script("bursts", 10_000, burst=1_000, of_burst=50),
    Script("bursts, slow calls", 5_000, burst=1_000, of_burst=50, takes=0.1),
    Script("own patches", 1_000, pace=100, writes=True),
)
QUICK = tuple(replace(each, changes=60, burst=min(each.burst, 30), of_burst=5) for each in SCRIPTS)


@dataclass(frozen=True)
class Figures:
    """What one contender has done for one script."""

    changes: int
    runs: int
    converged: float
    """Seconds from the last change, of each burst, until all states were reconciled: the longest."""
    cpu: float
    """Seconds of CPU of its process."""


class Objects:
    """The ConfigMaps and their pods, on the server."""

    def __init__(self, server: Client, keys: int, *, seed: int = SEED) -> None:
        self._server = server
        self._chance = Random(seed)  # The same each time.  # noqa: S311
        self._change = 0
        self.names = [f"{PREFIX}{number}" for number in range(keys)]
        self.states = {name: [0, 0] for name in self.names}
        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(self._create, self.names))

    def _create(self, name: str) -> None:
        at = f"/api/v1/namespaces/{NAMESPACE}"
        metadata = {"name": name, "labels": {LABEL: "yes", NUMBER: "0"}}
        made = self._server.request(
            "POST", f"{at}/configmaps", body={"metadata": metadata, "data": {"image": "none"}}
        )
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": name,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        self._server.request(
            "POST",
            f"{at}/pods",
            body={
                "metadata": {**metadata, "ownerReferences": [owner]},
                "spec": {"containers": [{"name": "main", "image": "none"}]},
            },
        )

    def plan(self, count: int, names: Sequence[str]) -> list[Change]:
        """Return changes by chance of these ConfigMaps and their pods."""
        found = []
        for _ in range(count):
            self._change += 1
            name, which = self._chance.choice(names), self._chance.randrange(2)
            self.states[name][which] = self._change
            found.append((name, which, self._change))
        return found

    def choose(self, count: int) -> list[str]:
        return self._chance.sample(self.names, min(count, len(self.names)))

    def write(self, changes: Sequence[Change]) -> None:
        """Write these changes as fast as possible, those of one object in their order."""
        shares = [
            [each for each in changes if int(each[0].removeprefix(PREFIX)) % WRITERS == one]
            for one in range(WRITERS)
        ]
        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(self._write_share, shares))

    def write_paced(self, changes: Sequence[Change], pace: float) -> None:
        """Write these changes, at most `pace` per second."""
        begun = time.monotonic()
        for number, each in enumerate(changes):
            time.sleep(max(0.0, begun + number / pace - time.monotonic()))
            self._write_share([each])

    def _write_share(self, changes: Sequence[Change]) -> None:
        for name, which, number in changes:
            kind = ("configmaps", "pods")[which]
            self._server.request(
                "PATCH",
                f"/api/v1/namespaces/{NAMESPACE}/{kind}/{name}",
                body={"metadata": {"labels": {NUMBER: str(number)}}},
            )

    def are_written(self, names: set[str]) -> bool:
        """Return True if each of these ConfigMaps has its state in the annotation."""
        found = self._server.request(
            "GET",
            f"/api/v1/namespaces/{NAMESPACE}/configmaps",
            query={"labelSelector": f"{LABEL}=yes", "resourceVersion": "0"},
        )["items"]
        written = {each["metadata"]["name"]: each["metadata"].get("annotations", {}) for each in found}
        return all(written[name].get(WRITTEN) == value_of(self.states[name]) for name in names)


def begin(peer: Running, objects: Objects) -> Figures:
    """Start a contender; it reconciles all objects."""
    peer.answer()
    before, begun = peer.usage().cpu, time.time()
    peer.ask(do="start", limit=LIMIT)
    took = peer.ask(do="until", states=objects.states)["at"] - begun
    runs = _settle(peer)
    return Figures(0, runs, took, peer.usage().cpu - before)


def play(peer: Running, objects: Objects, script: Script) -> Figures:
    """Play a script to a contender that has reconciled all states."""
    peer.ask(do="handle", takes=script.takes, writes=script.writes)
    before, runs = peer.usage().cpu, peer.ask(do="runs")["runs"]
    longest = 0.0
    for changes in _parts(objects, script):
        if script.burst:
            objects.write(changes)
        else:
            objects.write_paced(changes, script.pace)
        longest = max(longest, _converge(peer, objects, {name for name, *_ in changes}, script))
    runs = _settle(peer) - runs
    return Figures(script.changes, runs, longest, peer.usage().cpu - before)


def _parts(objects: Objects, script: Script) -> Iterator[list[Change]]:
    if not script.burst:
        yield objects.plan(script.changes, objects.names)
        return
    for _ in range(script.changes // script.burst):
        yield objects.plan(script.burst, objects.choose(script.of_burst))


def _converge(peer: Running, objects: Objects, names: set[str], script: Script) -> float:
    """Return the seconds from now until the last states are reconciled."""
    now = time.time()
    at: float = peer.ask(do="until", states={name: objects.states[name] for name in names})["at"]
    if script.writes:
        while not objects.are_written(names):
            if time.time() - now > CAP.seconds:
                raise Over("not all states are written")
            time.sleep(LOOK)
            at = time.time()
    return max(0.0, at - now)


def _settle(peer: Running) -> int:
    """Return the number of calls, once there are no more for a while."""
    found, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET:
        time.sleep(LOOK)
        runs: int = peer.ask(do="runs")["runs"]
        if runs != found:
            found, since = runs, time.monotonic()
    return found


# ---- All of them, in turns.


def measure(
    server: Client, keys: int, scripts: Sequence[Script], repeats: int
) -> dict[str, dict[str, list[Figures]]]:
    """Return the figures of each turn, by script and contender."""
    commands = commands_of()
    found: dict[str, dict[str, list[Figures]]] = {
        name: {each: [] for each in commands} for name in (START, *(each.name for each in scripts))
    }
    objects = Objects(server, keys)
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = server.kubeconfig(Path(folder) / "kubeconfig")
        for _ in range(repeats):
            for contender, command in commands.items():
                with Running(
                    command, env={"KUBECONFIG": str(kubeconfig)}, cap=CAP, log=Path(folder) / "log"
                ) as peer:
                    _note(found, START, contender, begin(peer, objects))
                    for script in scripts:
                        _note(found, script.name, contender, play(peer, objects, script))
    return found


def _note(
    found: Mapping[str, Mapping[str, list[Figures]]], script: str, contender: str, figures: Figures
) -> None:
    found[script][contender].append(figures)
    print(f"{script}, {contender}: {figures}", file=sys.stderr, flush=True)


def commands_of() -> dict[str, list[str]]:
    """Return the command of each contender; one that cannot be built is left out, with the reason."""
    commands = {OURS: [sys.executable, "-m", "bench.peers.reconciler"]}
    try:
        commands[GO] = [str(built(RECIPES["go_reconciler"], say=partial(print, file=sys.stderr)))]
    except LeftOut as reason:
        print(f"{GO} is left out: {reason}", file=sys.stderr)
    return commands


def report(figures: Mapping[str, Mapping[str, Sequence[Figures]]]) -> str:
    """Return the table, in Markdown: medians, and the ratio of each to ours."""
    lines = [
        "| script | changes | | calls | until all states are reconciled, s | CPU, s |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for script, contenders in figures.items():
        ours: list[float] = []
        for name, turns in contenders.items():
            found = [
                statistics.median(getattr(each, part) for each in turns)
                for part in ("runs", "converged", "cpu")
            ]
            shown = [f"{found[0]:,.0f}", f"{found[1]:.2f}", f"{found[2]:.2f}"]
            if ours:
                shown = [
                    f"{text} ({value / mine:.2f}x)" if mine >= LEAST else text
                    for text, value, mine in zip(shown, found, ours, strict=True)
                ]
            ours = ours or found
            count = f"{turns[0].changes:,}" if turns[0].changes else ""
            lines.append(f"| {script} | {count} | {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.reconcile_cost", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few objects and changes, to see that it works")
    parser.add_argument("--repeats", type=int, default=3, help="turns (default: %(default)s)")
    given = parser.parse_args()
    keys, scripts = (QUICK_KEYS, QUICK) if given.quick else (KEYS, SCRIPTS)
    with ApiServer() as server:
        print(report(measure(server, keys, scripts, given.repeats)))


if __name__ == "__main__":
    main()
