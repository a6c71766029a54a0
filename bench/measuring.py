"""Measure one peer on a cluster with the objects: the cost to store, read and follow them.

Every peer is measured in the same way and order.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from bench.data import APP, ROUND, Data, round_of
from bench.datasets import DEFAULT
from bench.peers.asking import LEFT_OUT, percentiles
from bench.running import Cap, Over, OverTime, Running
from bench.synthetic import Synthetic
from tests.apiserver.server import ApiServer

ROUND_STEP = "round"
"""The part of a run that measures everything, on a real server."""
WRITERS = 8
AT_LEAST = "sync, at least"
"""The figure of a peer that did not sync in time."""
FEW = 8
"""The most connections of a peer at rest. Kopf opens one for each API group when it starts. Each takes
0.25 MB for TLS, and is closed after 15 idle seconds."""
REST = 25.0
"""The seconds until a peer with more connections is at rest. Its memory is measured then."""
SENTINEL = 0
"""The number of the pod that is written last. After it, all earlier writes have arrived."""


@dataclass(frozen=True)
class Plan:
    """The amount of work for each peer."""

    gets: int
    lists: int
    changes: int
    writes: int
    relist: bool
    rounds: int
    """The number of changes of each pod in a burst."""
    reading: float
    """The seconds for reads of one form: slow ones are repeated less often."""
    late: float
    """The seconds in which the lateness of the event loop is measured, with changes and without."""

    @classmethod
    def of(cls, *, quick: bool) -> Plan:
        return (
            cls(gets=1_000, lists=20, changes=200, writes=50, relist=False, rounds=3, reading=0.3, late=5)
            if quick
            else cls(
                gets=5_000, lists=50, changes=600, writes=200, relist=True, rounds=10, reading=1, late=20
            )
        )

    def with_relist(self, *, relist: bool) -> Self:
        return replace(self, relist=relist)


@dataclass(frozen=True)
class Sample:
    """The pods that are read, of this number: see `bench.peers.asking`."""

    keys: Sequence[tuple[str, str]]
    namespace: str
    label: tuple[str, str]

    @classmethod
    def of(cls, data: Data, objects: int) -> Self:
        keys = [data.place_of(number) for number in range(0, objects, max(1, objects // 1_000))]
        return cls(keys, data.typical_namespace(objects), (APP, data.typical_app(objects)))


@dataclass
class Result:
    """The measurements of one peer with one number of objects."""

    peer: str
    objects: int
    figures: dict[str, float] = field(default_factory=dict)
    over: str | None = None
    """The reason why it did not finish."""
    late: dict[str, list[int]] = field(default_factory=dict)
    """The lateness of wakes of its event loop, without changes and with them: see `asking`."""
    spent: dict[str, float] = field(default_factory=dict)
    """The seconds of each measurement."""
    data: str = DEFAULT
    """The name of the set of objects."""
    step: str = ROUND_STEP
    """The part of the run that measured it."""

    @contextmanager
    def spending(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.spent[what] = time.monotonic() - began


def middle(results: Iterable[Result]) -> list[Result]:
    """Return one result for each peer, number and set of objects: the median of each figure. A peer that
    failed to finish once did not finish.
    """
    found: dict[tuple[str, int, str], list[Result]] = {}
    for result in results:
        found.setdefault((result.peer, result.objects, result.data), []).append(result)
    return [
        Result(
            peer,
            objects,
            {
                key: statistics.median(each.figures[key] for each in same if key in each.figures)
                for key in dict.fromkeys(key for each in same for key in each.figures)
            },
            next((each.over for each in same if each.over), None),
            next((each.late for each in same if each.late), {}),
            data=data,
            step=same[0].step,
        )
        for (peer, objects, data), same in found.items()
    ]


READS = (
    ("get", ""),
    ("get", "view"),
    ("get", "typed"),
    ("namespace", ""),
    ("namespace", "view"),
    ("label", ""),
    ("label", "kept"),
    ("label", "view"),
    ("label", "typed"),
    ("label", "keys"),
    ("indexed", ""),
    ("indexed", "view"),
)
FEW_READS = tuple((do, form) for do, form in READS if do in ("get", "label"))
"""The peers that are measured with a million objects as well."""
TICK = 0.002
"""The seconds between two wakes of the event loop."""
PACE = 2_000
"""The number of changes per second meanwhile."""
SETTLED = 2.0
"""Seconds after a sync in which the loop is still busy with the start."""


def read_name(do: str, form: str) -> str:
    return f"{do} {form}".strip()


class Rounds:
    """Write to pods, each time another value, so that a peer can be checked."""

    def __init__(self, server: ApiServer, data: Data) -> None:
        self._server = server
        self._data = data
        self._round = 0

    def next(self) -> str:
        self._round += 1
        return round_of(self._round)

    def write(self, number: int, value: str) -> float:
        """Change this pod; return the time of the server's answer."""
        namespace, name = self._data.place_of(number)
        self._server.request(
            "PATCH",
            f"/api/v1/namespaces/{namespace}/pods/{name}",
            body={"metadata": {"annotations": {ROUND: value}}},
        )
        return time.time()

    def expire(self) -> None:
        """Expire all versions so far, so that every client must list again."""
        self._server.expire()

    def await_all(self, *, every: float) -> Mapping[str, Any]:
        """Write the sentinel, and return a wait for it."""
        value = self.next()
        self.write(SENTINEL, value)
        return self.sentinel(value, every=every)

    def sentinel(self, value: str, *, every: float) -> Mapping[str, Any]:
        """Return a wait for this value of the sentinel."""
        return {"keys": [self._data.place_of(SENTINEL)], "annotation": (ROUND, value), "every": every}

    def write_all(self, numbers: Sequence[int], value: str) -> None:
        with ThreadPoolExecutor(WRITERS) as threads:
            for written in [threads.submit(self.write, number, value) for number in numbers]:
                written.result()


def measured(
    name: str,
    command: Sequence[str],
    *,
    data: str,
    objects: int,
    sample: Sample,
    rounds: Rounds,
    plan: Plan,
    cap: Cap,
    kubeconfig: Path,
    log: Path,
) -> Result:
    """Measure everything."""
    result = Result(name, objects, data=data)
    try:
        with Running(command, env={"KUBECONFIG": str(kubeconfig)}, cap=cap, log=log) as peer:
            with result.spending("holding"):
                empty = _hold(peer, result)
            with result.spending("reading"):
                _read(peer, result, READS, plan, sample)
            with result.spending("following"):
                _follow(peer, result.figures, objects=objects, rounds=rounds, plan=plan)
            if plan.relist:
                with result.spending("relisting"):
                    _relist(peer, result.figures, empty=empty, rounds=rounds)
    except Over as over:
        result.over = str(over)
    return result


def held(
    name: str,
    command: Sequence[str],
    *,
    data: str,
    objects: int,
    sample: Sample,
    plan: Plan,
    cap: Cap,
    kubeconfig: Path,
    log: Path,
) -> Result:
    """Measure the cost to store and read them; they do not change."""
    result = Result(name, objects, data=data)
    try:
        with Running(command, env={"KUBECONFIG": str(kubeconfig)}, cap=cap, log=log) as peer:
            with result.spending("holding"):
                _hold(peer, result)
            with result.spending("reading"):
                _read(peer, result, FEW_READS, plan, sample)
    except Over as over:
        result.over = str(over)
    return result


def started(
    name: str, command: Sequence[str], *, data: str, objects: int, cap: Cap, kubeconfig: Path, log: Path
) -> Result:
    """Measure only the sync. For a peer that takes longer than the cap, the cap is a lower bound."""
    result = Result(name, objects, data=data)
    try:
        with Running(command, env={"KUBECONFIG": str(kubeconfig)}, cap=cap, log=log) as peer:
            _hold(peer, result)
    except OverTime as over:
        result.over = str(over)
        result.figures[AT_LEAST] = cap.seconds
    except Over as over:
        result.over = str(over)
    return result


def empty(
    name: str, command: Sequence[str], *, data: str, objects: int, cap: Cap, kubeconfig: Path, log: Path
) -> Result:
    """Measure the memory of an operator once its first handler has run."""
    result = Result(name, objects, data=data)
    try:
        with Running(command, env={"KUBECONFIG": str(kubeconfig)}, cap=cap, log=log) as operator:
            operator.answer()
            result.figures["process"] = operator.usage().resident
    except Over as over:
        result.over = str(over)
    return result


def _hold(peer: Running, result: Result) -> int:
    """Sync the peer; return its size before."""
    peer.answer()
    figures, objects = result.figures, result.objects
    empty = peer.usage()
    peer.forget_peak()
    figures["empty"] = empty.resident
    answer = peer.ask(do="sync")
    synced = peer.usage()
    if received := peer.received():  # Unknown for a peer that keeps no connection open.
        figures["received"] = received
    if answer["objects"] != objects:
        raise Over(f"it holds {answer['objects']:,} objects of {objects:,}")
    figures["sync"] = answer["seconds"]
    figures["sync cpu"] = synced.cpu - empty.cpu
    figures["peak"] = max(0, synced.peak - empty.resident)
    if peer.connections() > FEW:
        time.sleep(REST)
    peer.ask(do="collect")
    figures["memory"] = max(0, peer.usage().resident - empty.resident)
    figures["per object"] = figures["memory"] / objects
    return empty.resident


def _read(
    peer: Running, result: Result, reads: Iterable[tuple[str, str]], plan: Plan, sample: Sample
) -> None:
    for do, form in reads:
        times = plan.gets if do == "get" else plan.lists
        found = peer.ask(do=do, form=form, times=times, seconds=plan.reading, **asdict(sample))
        if LEFT_OUT not in found:
            result.figures[read_name(do, form)] = found["p50"]
            result.figures[f"{read_name(do, form)} p99"] = found["p99"]


def _follow(peer: Running, figures: dict[str, float], *, objects: int, rounds: Rounds, plan: Plan) -> None:
    # The rest of the start is no cost of an event.
    peer.ask(do="until", **rounds.await_all(every=0.05))
    before, value = peer.usage(), rounds.next()
    numbers = [1 + number % (objects - 1) for number in range(plan.changes)]
    rounds.write_all(numbers, value)
    peer.ask(do="until", **rounds.await_all(every=0.05))
    figures["event cpu"] = 1e6 * (peer.usage().cpu - before.cpu) / (len(numbers) + 1)
    lags, behind = [], []
    for _ in range(plan.writes):
        value = rounds.next()
        peer.tell(do="until", **rounds.sentinel(value, every=0.0005))
        began = time.time()
        written = rounds.write(SENTINEL, value)
        seen = peer.answer()["at"]
        lags.append(1e3 * (seen - began))
        behind.append(1e3 * (seen - written))
    for name, values in (("lag", lags), ("behind", behind)):
        found = percentiles(values)
        figures[name], figures[f"{name} p99"] = found["p50"], found["p99"]


def _relist(peer: Running, figures: dict[str, float], *, empty: int, rounds: Rounds) -> None:
    peer.ask(do="collect")
    peer.forget_peak()
    rounds.expire()
    began = time.monotonic()
    peer.ask(do="until", **rounds.await_all(every=0.05))
    figures["relist"] = time.monotonic() - began
    figures["relist peak"] = max(0, peer.usage().peak - empty)


def burst(
    name: str,
    command: Sequence[str],
    *,
    data: str,
    objects: int,
    synthetic: Synthetic,
    cap: Cap,
    kubeconfig: Path,
    log: Path,
) -> Result:
    """Let the peer receive changes as fast as it can: their number per second, and the CPU of each."""
    result = Result(name, objects, data=data)
    try:
        with Running(command, env={"KUBECONFIG": str(kubeconfig)}, cap=cap, log=log) as peer:
            peer.answer()
            peer.ask(do="sync")
            before, began = peer.usage(), time.monotonic()
            synthetic.begin()
            peer.ask(do="until", **_the_last(synthetic))
            events = len(synthetic.pods) * synthetic.rounds
            result.figures["burst"] = events / (time.monotonic() - began)
            result.figures["burst cpu"] = 1e6 * (peer.usage().cpu - before.cpu) / events
    except Over as over:
        result.over = f"a burst: {over}"
    return result


def late(
    name: str,
    command: Sequence[str],
    *,
    data: str,
    objects: int,
    synthetic: Synthetic,
    seconds: float,
    cap: Cap,
    kubeconfig: Path,
    log: Path,
) -> Result:
    """Measure the lateness of its event loop with and without changes, and the difference."""
    result = Result(name, objects, data=data)
    figures = result.figures
    try:
        with Running(command, env={"KUBECONFIG": str(kubeconfig)}, cap=cap, log=log) as peer:
            peer.answer()
            peer.ask(do="sync")
            if LEFT_OUT in peer.ask(do="late", every=TICK, seconds=SETTLED):
                return result
            idle = peer.ask(do="late", every=TICK, seconds=seconds)
            before = peer.usage()
            synthetic.begin()
            busy = peer.ask(do="late", every=TICK, seconds=seconds)
            figures["late cpu"] = (peer.usage().cpu - before.cpu) / seconds
            result.late = {"nothing changes": idle["counts"], f"{PACE:,} changes a second": busy["counts"]}
            for key in ("p50", "p99", "max"):
                figures[f"idle {key}"], figures[f"late {key}"] = idle[key], busy[key]
                figures[f"added {key}"] = max(0.0, busy[key] - idle[key])
            began = time.monotonic()
            peer.ask(do="until", **_the_last(synthetic))
            figures["caught up"] = time.monotonic() - began
    except Over as over:
        result.over = f"{PACE:,} changes a second: {over}"
    return result


def _the_last(synthetic: Synthetic) -> Mapping[str, Any]:
    """Return a wait for the last change that it sends."""
    return {
        "keys": [synthetic.place],
        "annotation": (ROUND, synthetic.last),
        "every": 0.02,
    }
