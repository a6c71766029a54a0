"""Measure several replicas of one operator on a real API server: `python -m bench.replicas`.

- What one replica of two, and of four, takes beside a half, and a quarter, of what a single replica takes:
  memory, CPU and bytes, with the objects in 64 and 640 namespaces. Above 16 namespaces of one replica, its
  watches are joined into one of all namespaces: then its memory is divided, and its bytes are not.
- Requests for coordination, per minute.
- The seconds from the end of one of four replicas until all ranges are owned again, and the number of ranges
  that move while all four are replaced.

Memory, bytes and the CPU of the start are above those of a single replica in a cluster without the objects
and their namespaces. Compare ratios: the times belong to one machine at one moment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import kopf
from kopf._cogs.structs.credentials import Vault

from bench.peers.reconciler import LABEL, NUMBER
from bench.running import Cap, Over, Running
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.assignment.records import Assignment, assignment_name, read_assignment, replica_of
from kopf_selectcache.core.assignment.replica import Options
from kopf_selectcache.informer.informers import Runtime, wall
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.sharding.coordinator import Coordinator
from kopf_selectcache.sharding.replica import timing_of
from kopf_selectcache.testing.sample_objects import WORDS
from tests.apiserver.client import ApiError, Client
from tests.apiserver.server import ApiServer
from tests.faults.environment import connections_closed
from tests.sharding.environment import Acting, Log

OPERATORS = "operators"
GROUP = "bench"
COORDINATORS = (1, 3, 10)
SHAPES = (64, 640)
"""Numbers of namespaces."""
LEASE = 40.0
"""The default."""
WRITERS = 8
SEED = 1
WORDS_OF_DATA = 200
"""1.4 KB."""
CAP = Cap(seconds=300, megabytes=2_000)
LOOK = 1.0
"""Seconds between two looks at replicas."""
REST = 25.0
"""Seconds until idle connections are closed, and memory is at rest."""


@dataclass(frozen=True)
class Size:
    objects: int
    changes: int
    rest: float = REST


FULL, QUICK = Size(8_000, 4_000), Size(200, 100, rest=1.0)


class Setup(NamedTuple):
    replicas: int
    is_static: bool = False
    """True if their ranges never move: no replica has more than its own, not even at the start."""

    def __str__(self) -> str:
        return f"one of {self.replicas}{', static' if self.is_static else ''}"


SINGLE = Setup(1)
SETUPS = (SINGLE, Setup(2), Setup(4), Setup(4, is_static=True))


@dataclass(frozen=True)
class Figures:
    """What one replica has taken, or all that a single one takes."""

    objects: float
    """That it caches."""
    memory: float
    """MB, at rest."""
    connections: float
    """At rest."""
    start: float
    """Seconds of CPU until each object is handled by its replica."""
    changes: float
    """Seconds of CPU to handle changes of objects."""
    received: float
    """MB."""

    def above(self, empty: Figures) -> Figures:
        """Return what the objects and their namespaces add."""
        return replace(
            self,
            memory=self.memory - empty.memory,
            start=self.start - empty.start,
            received=self.received - empty.received,
        )


NAMES = tuple(each.name for each in fields(Figures))
HEAD: Mapping[str, str] = dict(
    zip(
        NAMES,
        (
            "cached objects",
            "memory, MB",
            "connections",
            "CPU until all are handled, s",
            "CPU of the changes, s",
            "received, MB",
        ),
        strict=True,
    )
)


# ---- The objects.


def spread(objects: int, namespaces: int) -> list[int]:
    """Return how many objects each namespace has: a few have many, as in clusters.

    >>> spread(100, 8)
    [23, 18, 14, 11, 10, 9, 8, 7]
    """
    weights = [1 / (rank + 3) for rank in range(namespaces)]
    bounds = [round(objects * sum(weights[: each + 1]) / sum(weights)) for each in range(namespaces)]
    return [end - begin for begin, end in zip([0, *bounds], bounds, strict=False)]


class Objects:
    """The ConfigMaps on the server. Each has the number of the last round of changes in a label."""

    def __init__(self, server: Client, objects: int, namespaces: int) -> None:
        self._server, self._chance = server, Random(SEED)  # The same each time.  # noqa: S311
        names = [f"{('team', 'tenant', 'pr')[each % 3]}-{each:03}" for each in range(namespaces)]
        self.round = 0
        self.keys = [
            (namespace, f"config-{number:05}")
            for namespace, count in zip(names, spread(objects, namespaces), strict=True)
            for number in range(count)
        ]
        self._each(lambda name: make_namespace(server, name), names)
        self._each(self._create, self.keys)

    def change(self, count: int) -> None:
        """Change this number of objects, each once."""
        self.round += 1
        self._each(self._change, self._chance.sample(self.keys, count))

    def _create(self, key: tuple[str, str]) -> None:
        namespace, name = key
        metadata = {"name": name, "labels": {LABEL: "yes", NUMBER: "0"}}
        text = " ".join(Random(f"{key}").choices(WORDS, k=WORDS_OF_DATA))  # It is no secret.  # noqa: S311
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._server.request("POST", path, body={"metadata": metadata, "data": {"text": text}})

    def _change(self, key: tuple[str, str]) -> None:
        path = f"/api/v1/namespaces/{key[0]}/configmaps/{key[1]}"
        self._server.request("PATCH", path, body={"metadata": {"labels": {NUMBER: str(self.round)}}})

    @staticmethod
    def _each(do: Callable[[Any], None], them: Sequence[Any]) -> None:
        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(do, them))


def make_namespace(server: Client, name: str) -> None:
    server.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})


# ---- Replicas as processes.


class Fleet:
    """The replicas of one operator."""

    def __init__(self, server: Client, folder: Path, stack: ExitStack, *, lease: float) -> None:
        self._server, self._folder, self._stack = server, folder, stack
        self._kubeconfig = server.kubeconfig(folder / "kubeconfig")
        self._lease = lease
        self.running: dict[str, Running] = {}

    def launch(self, *names: str, is_static: bool = False) -> None:
        """Load the programs of replicas."""
        for number, name in enumerate(names):
            command = [sys.executable, "-m", "bench.peers.replica"]
            sharding = {"name": GROUP, "namespace": OPERATORS, "lease": self._lease}
            env = {
                "KUBECONFIG": str(self._kubeconfig),
                "BENCH_SHARDING": json.dumps({"static": [number, len(names)]} if is_static else sharding),
                "POD_NAME": name,
            }
            log = self._folder / f"{name}.log"
            self.running[name] = self._stack.enter_context(Running(command, env=env, cap=CAP, log=log))
        for name in names:
            self.running[name].answer()

    def start(self, *names: str) -> None:
        self.launch(*names)
        for name in names:
            self.running[name].ask(do="start")

    def end(self, name: str, number: int) -> float:
        """End a replica by a signal; return the seconds until others own all of its ranges."""
        gone = {each.owner for each in self.assignment().shares if replica_of(each.owner) == name}
        begun = time.monotonic()
        self.running.pop(name).send(number)
        self._wait(lambda: not {each.owner for each in self.assignment().shares} & {*gone, ""}, LOOK / 20)
        return time.monotonic() - begun

    def settle(self, objects: int) -> None:
        """Wait until each replica has its share, and all objects are handled."""
        fewest, runs = 64 // len(self.running), -1

        def is_so() -> bool:
            nonlocal runs
            found = self.status()
            before, runs = runs, sum(each["runs"] for each in found)
            return (
                runs == before
                and sum(each["objects"] for each in found) == objects
                and sum(each["ranges"] for each in found) == 64
                and all(each["ranges"] >= fewest for each in found)
            )

        self._wait(is_so, LOOK)

    def see(self, changes: int, round_: int) -> None:
        """Wait until changes are handled."""
        self._wait(lambda: sum(each["seen"] for each in self.status(round_)) >= changes, LOOK / 4)

    def status(self, round_: int = 0) -> list[dict[str, Any]]:
        return [each.ask(do="status", round=round_) for each in self.running.values()]

    def assignment(self) -> Assignment:
        path = f"/api/v1/namespaces/{OPERATORS}/configmaps/{assignment_name(GROUP)}"
        found = read_assignment(self._server.request("GET", path)).assignment
        assert found is not None
        return found

    def moves(self) -> int:
        """Return how many times a range was taken so far."""
        return sum(each.epoch for each in self.assignment().shares)

    @staticmethod
    def _wait(condition: Callable[[], bool], look: float) -> None:
        end = time.monotonic() + CAP.seconds
        while not condition():
            if time.monotonic() > end:
                raise Over("the replicas do not settle")
            time.sleep(look)


@contextmanager
def fleet(server: Client, *, lease: float = LEASE) -> Iterator[Fleet]:
    """Run replicas. They begin without Leases and an assignment."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        yield Fleet(server, Path(folder), stack, lease=lease)
    server.request("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{OPERATORS}/leases")
    try:  # Static replicas have none.
        server.request("DELETE", f"/api/v1/namespaces/{OPERATORS}/configmaps/{assignment_name(GROUP)}")
    except ApiError as error:
        if error.status != 404:
            raise


def measure(server: Client, setup: Setup, objects: Objects | None, size: Size) -> list[Figures]:
    """Return the figures of each replica."""
    names = [f"replica-{each}" for each in range(setup.replicas)]
    with fleet(server) as found:
        found.launch(*names, is_static=setup.is_static)
        peers = list(found.running.values())
        before = [each.usage().cpu for each in peers]
        for peer in peers:
            peer.ask(do="start")
        found.settle(0 if objects is None else size.objects)
        started = [each.usage().cpu for each in peers]
        if objects is not None:
            objects.change(size.changes)
            found.see(size.changes, objects.round)
        changed = [each.usage().cpu for each in peers]
        time.sleep(size.rest)
        for peer in peers:
            peer.ask(do="collect")
        return [
            Figures(
                status["objects"],
                peer.usage().resident / 1e6,
                peer.connections(),
                cpu[1] - cpu[0],
                cpu[2] - cpu[1],
                status["received"] / 1e6,
            )
            for peer, status, cpu in zip(
                peers, found.status(), zip(before, started, changed, strict=True), strict=True
            )
        ]


def divide(
    server: Client, namespaces: int, size: Size, setups: Sequence[Setup]
) -> dict[Setup, list[Figures]]:
    """Return the figures of each replica, above those of a single one in an empty cluster."""
    (empty,) = measure(server, SINGLE, None, size)
    say(f"empty: {empty}")
    objects = Objects(server, size.objects, namespaces)
    found = {}
    for each in setups:
        found[each] = [one.above(empty) for one in measure(server, each, objects, size)]
        say(f"{namespaces} namespaces, {each}: {found[each]}")
    return found


# ---- Coordination.


async def coordinate(server: Client, replicas: int, *, seconds: float, lease: float = LEASE) -> float:
    """Return the requests per minute by which replicas that do nothing else agree."""
    log, group = Log(), f"{GROUP}-{replicas}"
    logger = logging.getLogger("bench.replicas")
    vaults, tasks, coordinators = [], [], []
    for number in range(replicas):
        info = kopf.ConnectionInfo(server=server.url, token=server.token, ca_path=str(server.ca_file))
        vault = Vault({"login": info})
        transport = KopfTransport(vault, request_timeout=60.0)
        settings = SelectCacheSettings(audit_interval=0)
        runtime = Runtime(settings, transport, namespaces=None, chance=lambda: 0.5, logger=logger)
        coordinator = Coordinator(
            Options(f"replica-{number}", "process", timing=timing_of(lease)),
            group=group,
            namespace=OPERATORS,
            transport=transport,
            clock=wall,
            sleep=asyncio.sleep,
            now=lambda: datetime.now(UTC),
            logger=logger,
        )
        coordinator.ranges = Acting(f"replica-{number}", log)
        coordinator.follow(runtime)
        vaults.append(vault)
        coordinators.append(coordinator)
        tasks += [asyncio.create_task(runtime.run()), asyncio.create_task(coordinator.run())]
    try:
        while min(len(each.status().acting) for each in coordinators) < 64 // replicas:  # noqa: ASYNC110  # Nobody wakes it.
            await asyncio.sleep(LOOK / 10)
        before = sum(each.requests for each in coordinators)
        await asyncio.sleep(seconds)
        return (sum(each.requests for each in coordinators) - before) * 60 / seconds
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for vault in vaults:
            await vault.close()
        await connections_closed()


# ---- Ends.


@dataclass(frozen=True)
class Ends:
    """What the ends of replicas take."""

    killed: list[float]
    """Seconds from SIGKILL until all ranges are owned again."""
    ended: list[float]
    """Seconds from SIGTERM until all ranges are owned again."""
    moved: int
    """How many times a range was taken while each replica was replaced by a new one."""


def end_replicas(server: Client, replicas: int, objects: int, *, repeats: int, lease: float = LEASE) -> Ends:
    """Kill and end one replica after the other, and then replace each by a new one."""
    killed: list[float] = []
    ended: list[float] = []
    names = [f"replica-{each}" for each in range(replicas)]
    with fleet(server, lease=lease) as found:
        found.start(*names)
        found.settle(objects)
        for turn in range(repeats):
            name = names[turn % replicas]
            for number, seconds in ((signal.SIGKILL, killed), (signal.SIGTERM, ended)):
                seconds.append(found.end(name, number))
                say(f"{number.name}: {seconds[-1]:.1f} s")
                found.start(name)
                found.settle(objects)
        before = found.moves()
        for name in names:  # As a Deployment does: the new pod starts first.
            found.start(f"new-{name}")
            found.settle(objects)
            found.end(name, signal.SIGTERM)
            found.settle(objects)
        return Ends(killed, ended, found.moves() - before)


# ---- The report.


def report(shapes: Mapping[int, Mapping[Setup, Sequence[Figures]]]) -> str:
    """Return the table, in Markdown: the least and the most of the replicas, beside their share of what a
    single one takes.
    """
    setups = [each for each in next(iter(shapes.values())) if each != SINGLE]
    lines = [
        f"| namespaces | | a single replica | {' | '.join(map(str, setups))} |",
        f"| ---: | --- | ---: |{' ---: |' * len(setups)}",
    ]
    for namespaces, found in shapes.items():
        (single,) = found[SINGLE]
        for name in NAMES:
            whole = getattr(single, name)
            cells = [
                _cell([getattr(one, name) for one in found[each]], whole / each.replicas) for each in setups
            ]
            lines.append(f"| {namespaces} | {HEAD[name]} | {_text(whole)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float], share: float) -> str:
    least, most = min(values), max(values)
    text = f"{_text(least)} to {_text(most)}"
    return f"{text} ({least / share:.2f}x to {most / share:.2f}x)" if share > 0 else text


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.2g}"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.replicas", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few objects, to see that it works")
    parser.add_argument("--namespaces", type=int, nargs="*", default=SHAPES)
    parser.add_argument("--no-ends", action="store_true", help="leave out coordination, and ends of replicas")
    parser.add_argument("--repeats", type=int, default=3, help="ends of replicas (default: %(default)s)")
    given = parser.parse_args()
    size, seconds, lease = (QUICK, 6.0, 4.0) if given.quick else (FULL, 60.0, LEASE)
    shapes = {}
    for namespaces in given.namespaces:
        with ApiServer() as server:
            make_namespace(server, OPERATORS)
            shapes[namespaces] = divide(server, namespaces, size, SETUPS)
    if shapes:
        print(report(shapes), flush=True)
    if given.no_ends:
        return
    with ApiServer() as server:
        make_namespace(server, OPERATORS)
        for each in COORDINATORS:
            found = asyncio.run(coordinate(server, each, seconds=seconds, lease=lease))
            print(f"{each} replicas: {found:.0f} requests per minute")
        Objects(server, size.objects, min(SHAPES))
        ends = end_replicas(server, 4, size.objects, repeats=given.repeats, lease=lease)
        print(f"With a lease of {lease:.0f} s: {ends}")


if __name__ == "__main__":
    main()
