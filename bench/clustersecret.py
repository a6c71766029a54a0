"""Compare an operator that copies Secrets with the same in plain Kopf: `python -m bench.clustersecret`.

The script of tests/ports is played to both: to the operator of examples/10-copied-secrets, and to
tests/ports/plain.py. That has the official client, so run it by the environment of `make test-clients`. One
after the other, each is a process of its own beside an embedded API server of its own, which has many
namespaces, and Secrets that have nothing to do with it. Requests, CPU and memory are measured while the
script plays its changes, without its faults. Then the operator is restarted with nothing to do, and at last
the faults are played.
Without `--quick` the table is written into bench/FAULTS.md.

Compare ratios: times and sizes belong to one machine at one moment.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from bench.comparison import DOCUMENT, written
from bench.running import Usage, usage_of
from kopf_selectcache.testing import Asked, EmbeddedCluster
from tests.ports.script import CHANGES, FAULTS, Player, Stage
from tests.ports.world import EXAMPLE, USER, EmbeddedWorld, source_text

TABLE = "<!-- begin: copied secrets, by python -m bench.clustersecret -->"
PLAIN, OURS = "plain Kopf", "kopf_selectcache"
FILES = {
    PLAIN: Path(__file__).parent.parent / "tests" / "ports" / "plain.py",
    OURS: EXAMPLE / "example.py",
}
VERBS = ("list", "watch", "get", "create", "update", "patch", "delete")
BYTES = 4_000
"""Of the data of a Secret that has nothing to do with the operator."""
FIRM = 1.0
"""The seconds for which the copies must stay right."""
QUIET = 3.0
"""The seconds without a request after which a restart is over."""
MEGABYTE = 1e6
ACCEPTED, AFTER_CHANGES = "- writes that the server accepts", "wrong copies after changes and restarts"
"""Rows of the table."""


@dataclass(frozen=True)
class Size:
    namespaces: int
    secrets: int
    """Those that have nothing to do with the operator."""
    patience: float
    """Seconds until a copy that is not right is wrong."""


FULL, QUICK = Size(100, 1_000, 30), Size(5, 20, 8)


@dataclass
class Figures:
    requests: Counter[str] = field(default_factory=Counter)
    """By verb."""
    cpu: float = 0.0
    peak: int = 0
    """Bytes."""
    restart: Counter[str] = field(default_factory=Counter)
    """The requests of a restart with nothing to do."""
    changed: int = 0
    """The writes that the server has accepted."""
    wrong: dict[str, int] = field(default_factory=dict)
    """The number of wrong copies after each stage."""
    ended: int = 0
    """How often the process has ended by itself."""


class Measured(Player):
    """An operator whose CPU and memory are added up, over its restarts."""

    pause = 0.3
    cpu = 0.0
    peak = 0

    def stop(self) -> None:
        if self.operator is not None and not self.operator.ended:
            usage: Usage = usage_of(self.operator.process.pid)
            self.cpu, self.peak = self.cpu + usage.cpu, max(self.peak, usage.peak)
        super().stop()


class Counted:
    """The requests of the operator that are answered, so far."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.requests: Counter[str] = Counter()
        self.changed = 0
        self.watched: set[str] = set()
        """The paths of its watches."""
        self._before: set[str] = set()
        self.last = time.monotonic()
        cluster.requests.subscribe(self._count)

    def _count(self, asked: Asked) -> None:
        if asked.user == USER:
            self.requests[asked.verb] += 1
            if asked.verb == "watch":
                self.watched.add(asked.path)
            self.changed += asked.method != "GET" and asked.code < 300
            if asked.code < 400:  # A name that is taken is tried again all the time.
                self.last = time.monotonic()

    def begin(self) -> None:
        """Count from now on."""
        self.requests.clear()
        self.changed = 0
        self._before, self.watched = self.watched, set()

    def settle(self) -> None:
        """Wait until the operator watches what it has watched before, and makes no requests for a while."""
        while not self.watched >= self._before or time.monotonic() - self.last < QUIET:
            time.sleep(QUIET / 10)


def measure(
    text: str, size: Size, changes: Sequence[Stage] = CHANGES, faults: Sequence[Stage] = FAULTS
) -> Figures:
    """Play the script to an operator."""
    figures = Figures()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedCluster().in_thread() as cluster,
        Measured(world := EmbeddedWorld(cluster), text, Path(folder)) as player,
    ):
        fill(cluster, size)
        counted = Counted(cluster)
        for stage in changes:
            figures.wrong[stage.words] = _played(player, stage, size)
        figures.requests = Counter(counted.requests)
        player.stop()
        counted.begin()
        player.start()
        counted.settle()
        figures.restart, figures.changed = Counter(counted.requests), counted.changed
        player.stop()
        figures.cpu, figures.peak = player.cpu, player.peak
        player.start()
        player.wrong(patience=size.patience)
        for stage in faults:
            if wrong := _played(player, stage, size):
                player.stop()  # The next stage begins with right copies.
                player.start()
                player.wrong(patience=size.patience)
            figures.wrong[stage.words] = wrong
        figures.ended = player.ended
        world.api.close()
    return figures


def _played(player: Player, stage: Stage, size: Size) -> int:
    stage.play(player)
    wrong = player.wrong(patience=size.patience, firm=FIRM)
    print(f"{stage.words}: {len(wrong)} wrong", *wrong[:3], sep="\n  ", file=sys.stderr, flush=True)
    return len(wrong)


def fill(cluster: EmbeddedCluster, size: Size) -> None:
    """Create namespaces, and Secrets that have nothing to do with the operator."""
    names = [f"space-{number}" for number in range(size.namespaces)]
    for name in names:
        cluster.namespace(name)
    for number in range(size.secrets):
        metadata = {"name": f"release-{number}", "namespace": names[number % len(names)]}
        data = {"release": "eHh4" * (BYTES // 4)}
        cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


def report(figures: Mapping[str, Figures], size: Size) -> str:
    """Return the table, in Markdown."""
    plain, ours = figures[PLAIN], figures[OURS]
    lines = [f"| | {PLAIN} | {OURS} | ratio |", "| --- | ---: | ---: | ---: |"]

    def row(words: str, first: float, second: float, form: str = ",.0f") -> None:
        ratio = f"{first / second:.1f}" if second else ""
        lines.append(f"| {words} | {first:{form}} | {second:{form}} | {ratio} |")

    row("requests", plain.requests.total(), ours.requests.total())
    for verb in VERBS:
        row(f"- {verb}", plain.requests[verb], ours.requests[verb])
    row("requests of a restart with nothing to do", plain.restart.total(), ours.restart.total())
    row(ACCEPTED, plain.changed, ours.changed)
    row("CPU, s", plain.cpu, ours.cpu, ",.1f")
    row("memory, the peak, MB", plain.peak / MEGABYTE, ours.peak / MEGABYTE)
    row("lines of the operator", lines_of(PLAIN), lines_of(OURS))
    row(AFTER_CHANGES, changes_wrong(plain), changes_wrong(ours))
    for stage in FAULTS:
        row(f"wrong copies: {stage.words}", plain.wrong[stage.words], ours.wrong[stage.words])
    row("the process ended", plain.ended, ours.ended)
    return f"{machine(size)}\n\n" + "".join(f"{line}\n" for line in lines)


def lines_of(name: str) -> int:
    return len(FILES[name].read_text().splitlines())


def changes_wrong(figures: Figures) -> int:
    return sum(figures.wrong[stage.words] for stage in CHANGES)


def machine(size: Size) -> str:
    """Say on what it was measured."""
    said = ", ".join(f"{name} {version(name)}" for name in ("kopf_selectcache", "kopf", "kubernetes"))
    return (
        f"Measured with {said}, on Python {platform.python_version()}, with {size.namespaces}"
        f" namespaces and {size.secrets:,} other Secrets of {BYTES // 1_000} KB. Other programs used the"
        f" {os.cpu_count()} processors as well."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.clustersecret", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few objects; no page is written")
    given = parser.parse_args(arguments)
    size = QUICK if given.quick else FULL
    os.nice(5)
    figures = {name: measure(source_text(file), size) for name, file in FILES.items()}
    made = report(figures, size)
    print(made)
    if not given.quick:
        DOCUMENT.write_text(written(DOCUMENT.read_text(), TABLE, made))


if __name__ == "__main__":
    main()
