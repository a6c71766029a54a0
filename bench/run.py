"""One set of objects: a server with them, and the peers one after the other, step by step.

Every result is written to a file as soon as it is measured. A peer that fails is a result with the reason,
and a step that fails leaves the others alone: a run takes long, and its results must survive a failure.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from bench.data import SAMPLED, Data, compression, encoded
from bench.filling import await_idle, fill, prepare
from bench.measuring import (
    PACE,
    ROUND_STEP,
    Plan,
    Result,
    Rounds,
    Sample,
    burst,
    empty,
    held,
    late,
    measured,
    started,
)
from bench.options import MEGABYTES, MORE_MEGABYTES, MORE_SECONDS, ONCE, SECONDS
from bench.roster import AGAIN, INDEX, KOPF_ALONE, OURS, RELISTED, Peer, rounds
from bench.running import Cap, cpu_of
from bench.synthetic import Synthetic, discovery
from bench.table import DID_NOT_FINISH
from bench.targets import INDEX_LIMITS
from kopf_selectcache.cli.output import Progress
from tests.apiserver.server import ApiServer

BURST = 1_000
"""The number of pods that change in a burst."""
EMPTY_TURNS = 3
"""How often the memory of an empty operator is measured: the process differs by some hundred KB each time."""
EMPTY = {KOPF_ALONE: "bench/peers/empty_alone.py", OURS: "bench/peers/empty_cached.py"}
"""The operators with nothing to hold."""
MARGIN = 1.05
"""`@kopf.index` is ended once it has taken longer than the target says by this factor."""
INDEX_SECONDS = 700
"""The longest time that `@kopf.index` may take: a sixth of a whole run."""

Commands = Mapping[str, Sequence[str]]


class Results:
    """All results of a run, in a file. A run that goes on takes those that are there."""

    def __init__(self, file: Path, about: Mapping[str, Any], *, resume: bool) -> None:
        self._file = file
        self._about = about
        self.left_out: dict[str, str] = {}
        self.all: list[Result] = []
        if resume and file.exists():
            self._about, self.all, _ = read_results(file)
        self._before = Counter(map(key_of, self.all))

    def has(self, result: Result) -> bool:
        """Tell whether a result of this peer was there before; each is only told once."""
        if self._before[key_of(result)]:
            self._before[key_of(result)] -= 1
            return True
        return False

    def add(self, result: Result) -> None:
        self.all.append(result)
        self.write()

    def write(self) -> None:
        """Replace the file as a whole, so that it is complete whenever the run ends."""
        partial = self._file.with_suffix(".partial")
        text = json.dumps(
            {
                **self._about,
                "left out": self.left_out,
                "results": [asdict(result) for result in self.all],
            },
            indent=1,
        )
        partial.write_text(text + "\n")
        partial.replace(self._file)

    @property
    def about(self) -> Mapping[str, Any]:
        return self._about


def read_results(file: Path) -> tuple[dict[str, Any], list[Result], dict[str, str]]:
    """Return what was written about the machine, the results, and the peers that were left out."""
    found = json.loads(file.read_text())
    return found, [Result(**each) for each in found.pop("results")], found.pop("left out")


def key_of(result: Result) -> tuple[str, str, int, str]:
    return result.data, result.step, result.objects, result.peer


class Bench:
    """The steps of one set of objects."""

    def __init__(
        self,
        server: ApiServer,
        data: Data,
        options: argparse.Namespace,
        folder: Path,
        *,
        commands: Commands,
        results: Results,
        say: Callable[[str], None],
    ) -> None:
        self._server = server
        self._data = data
        self._options = options
        self._folder = folder
        self._commands = commands
        self._results = results
        self._say = say
        self._plan = Plan.of(quick=options.quick)
        self._rounds = Rounds(server, data)
        self._cap = Cap(options.seconds or SECONDS, options.megabytes or MEGABYTES)
        self._kubeconfig = server.kubeconfig(folder / "kubeconfig")
        self._samples: dict[int, Sample] = {}
        self._pods: Iterator[bytes] = iter(())
        self._there = 0

    def run(self, steps: Mapping[str, Sequence[int]], peers: Sequence[Peer], *, first: bool) -> None:
        """Run these steps, each with its numbers of objects; some only with the first set of objects."""
        prepare(self._server)
        self._answers = discovery(self._server)
        chosen = {step: sizes for step, sizes in steps.items() if first or step not in ONCE}
        there = [peer for peer in peers if peer.name in self._commands]
        works: dict[str, Callable[[Sequence[int]], None]] = {
            "empty": lambda _: self._empty(),
            "index": lambda sizes: self._index(sizes, there),
            ROUND_STEP: lambda sizes: self._round(sizes, there, first=first),
            "burst": lambda _: self._burst([peer for peer in there if first or peer.bursts]),
            "late": lambda _: self._late(there),
            "million": self._million,
        }
        # Real servers with few objects come first, so that all are filled once; a million comes when the
        # server is gone, as both would need too much memory.
        sizes = {*chosen.get("index", ()), *chosen.get(ROUND_STEP, ())}
        self._pods = map(encoded, self._data.pods(max(sizes, default=0)))
        for step, work in works.items():
            if step in chosen:
                try:
                    work(chosen[step])
                except Exception as error:  # The other steps have nothing to do with it.  # noqa: BLE001
                    self._say(f"{step} of {self._data.name} pods failed: {type(error).__name__}: {error}")

    # ---- Steps.

    def _empty(self) -> None:
        """Measure operators with nothing to hold, by turns."""
        for _ in range(EMPTY_TURNS):
            for name, program in EMPTY.items():
                command = [sys.executable, "-m", "kopf", "run", "--standalone", "-A", program]
                self._add("empty", empty, name, 0, command=command, kubeconfig=self._kubeconfig)

    def _index(self, sizes: Sequence[int], peers: Sequence[Peer]) -> None:
        """Measure the time until handlers run, ours and that of `@kopf.index`, which is ended once it has
        taken so much longer that the target is met.
        """
        if not any(peer.name == INDEX for peer in peers):
            return
        for objects in sizes:
            took: list[float] = []
            for name, command in ((OURS, OURS), (AGAIN, OURS), (INDEX, INDEX)):
                cap = self._cap
                if name == INDEX and took:
                    longest = MARGIN * max(took) / INDEX_LIMITS.get(objects, 1 / 100)
                    cap = Cap(min(INDEX_SECONDS, max(longest, cap.seconds)), cap.megabytes)
                found = self._add(
                    "index",
                    started,
                    name,
                    objects,
                    command=self._commands[command],
                    cap=cap,
                    kubeconfig=self._kubeconfig,
                    filled=True,
                )
                took += [found.figures["sync"]] if name != INDEX and "sync" in found.figures else []

    def _round(self, sizes: Sequence[int], peers: Sequence[Peer], *, first: bool) -> None:
        """Measure all peers with each number of objects; ours again at the end."""
        plain = not (self._options.objects or self._options.quick)
        who = (
            dict.fromkeys(sizes, tuple(peers))
            if self._options.peers
            else rounds(peers, sizes, all_of=min(sizes) if first and plain else 0)
        )
        for objects, some in who.items():
            relists = self._plan.relist and objects <= RELISTED
            turn = [(peer.name, peer.name, peer.relists and relists) for peer in some]
            for _ in range(self._options.repeats):
                for name, command, relist in [*turn, (AGAIN, OURS, False)]:
                    self._add(
                        ROUND_STEP,
                        measured,
                        name,
                        objects,
                        command=self._commands[command],
                        plan=self._plan.with_relist(relist=relist),
                        kubeconfig=self._kubeconfig,
                        rounds=self._rounds,
                        sample=True,
                        filled=True,
                    )

    def _burst(self, peers: Sequence[Peer]) -> None:
        pods = self._data.many(BURST)[:]
        for peer in peers:
            if peer.whole:
                with Synthetic(pods, rounds=self._plan.rounds, answers=self._answers) as synthetic:
                    self._stream("burst", burst, peer, synthetic)

    def _late(self, peers: Sequence[Peer]) -> None:
        pods, turns = self._data.many(BURST)[:], math.ceil(PACE * self._plan.late / BURST)
        for peer in peers:
            if peer.loops:
                with Synthetic(pods, rounds=turns, answers=self._answers, pace=PACE) as synthetic:
                    self._stream("late", late, peer, synthetic, seconds=self._plan.late)

    def _stream(
        self, step: str, how: Callable[..., Result], peer: Peer, synthetic: Synthetic, **more: Any
    ) -> None:
        self._add(
            step,
            how,
            peer.name,
            BURST,
            command=self._commands[peer.name],
            kubeconfig=synthetic.kubeconfig(self._folder / "synthetic"),
            synthetic=synthetic,
            **more,
        )

    def _million(self, sizes: Sequence[int]) -> None:
        """Let ours store and read objects of a synthetic server: a real one would need more memory."""
        self._server.stop()
        cap = Cap(self._options.seconds or MORE_SECONDS, self._options.megabytes or MORE_MEGABYTES)
        for objects in sizes:
            many = self._data.many(objects)
            began = time.monotonic()
            some = many[: min(objects, SAMPLED)]
            self._say(
                f"{objects:,} pods, each made when it is read, in"
                f" {1e6 * (time.monotonic() - began) / len(some):.0f} µs: {compression(some)}"
            )
            with Synthetic(many, rounds=0, answers=self._answers) as synthetic:
                self._add(
                    "million",
                    held,
                    OURS,
                    objects,
                    command=self._commands[OURS],
                    plan=Plan.of(quick=True),
                    kubeconfig=synthetic.kubeconfig(self._folder / "synthetic"),
                    cap=cap,
                    sample=True,
                )

    # ---- One measurement.

    def _add(
        self,
        step: str,
        how: Callable[..., Result],
        name: str,
        objects: int,
        *,
        command: Sequence[str],
        cap: Cap | None = None,
        filled: bool = False,
        sample: bool = False,
        **more: Any,
    ) -> Result:
        """Measure a peer, unless a former run did; return the result."""
        result = Result(name, objects, data=self._data.name, step=step)
        if self._results.has(result):
            return next(each for each in self._results.all if key_of(each) == key_of(result))
        if filled:
            self._fill(objects)
        if sample:
            more["sample"] = self._sample(objects)
        began = time.monotonic()
        try:
            result = how(
                name,
                command,
                data=self._data.name,
                objects=objects,
                cap=cap or self._cap,
                log=self._folder / "log",
                **more,
            )
        except Exception as error:  # A row of the table says so.  # noqa: BLE001
            result.over = f"it could not be measured: {type(error).__name__}: {error}"[:400]
        result.step = step
        self._results.add(result)
        outcome = f"{DID_NOT_FINISH}, {result.over}" if result.over else "measured"
        spent = "".join(f", {what} {seconds:.0f}" for what, seconds in result.spent.items())
        self._say(
            f"{len(self._results.all):3} {step}, {objects:,} {self._data.name} pods, {name}: {outcome}"
            f" ({time.monotonic() - began:.0f} s{spent})"
        )
        return result

    def _sample(self, objects: int) -> Sample:
        if objects not in self._samples:
            self._samples[objects] = Sample.of(self._data, objects)
        return self._samples[objects]

    def _fill(self, objects: int) -> None:
        """Write pods until there are as many."""
        if objects <= self._there:
            return
        began, before = time.monotonic(), self._there
        with Progress("writing pods", objects - before, file=sys.stderr, clock=time.monotonic) as progress:
            self._there = fill(
                self._server,
                islice(self._pods, objects - before),
                place_of=self._data.place_of,
                begin=before,
                step=progress.step,
            )
        self._say(f"{objects:,} {self._data.name} pods are served, {time.monotonic() - began:.0f} s later")
        # The first change of a pod changes its size, so it happens before the measurement.
        self._rounds.write_all(range(before, min(self._plan.changes + 1, objects)), self._rounds.next())
        processes = [pid for each in (self._server.apiserver, self._server.etcd) if (pid := each.pid)]
        if not await_idle(lambda: sum(map(cpu_of, processes)), sleep=time.sleep):
            self._say("the API server is still busy with them: the first peers wait longer for it")
