"""Our cache beside its peers, in one run, on the same objects of one real API server: `python -m bench --quick`.

No figure stands alone: what is to be read off are the ratios, since the figures are those of one machine at one moment.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from bench.building import LeftOut
from bench.data import SAMPLED, Data, described, encoded
from bench.filling import fill, prepare
from bench.measuring import Plan, Result, Rounds, burst, measured, middle
from bench.picture import drawn
from bench.roster import AGAIN, OURS, PEERS, Peer, Unknown, chosen, command
from bench.running import Cap
from bench.synthetic import Synthetic, discovery, pods
from bench.table import DID_NOT_FINISH, tables
from bench.targets import growth, judged
from kopf_selectcache.cli.progress import Progress
from tests.apiserver.server import ApiServer

SEED = 1
BURST = 1_000
"""So many pods change in a burst."""
QUICK_OBJECTS, OBJECTS = "2000", "1000,20000,100000"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m bench", description=(__doc__ or "").partition("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="peers:\n" + "\n".join(f"  {peer.name:28} {peer.words}" for peer in PEERS))
    made.add_argument("--quick", action="store_true", help=f"{QUICK_OBJECTS} pods, controller-runtime and the official informer")
    made.add_argument("--peers", metavar="A,B", help="these and ours, instead of all")
    made.add_argument("--objects", metavar="N,M", help=f"how many pods, one round for each number (default: {OBJECTS}; with --quick {QUICK_OBJECTS})")
    made.add_argument("--repeats", type=int, default=1, help="how often each is measured, in turn; medians are shown (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=180, help="what a peer may take for any one thing (default: %(default)g)")
    made.add_argument("--megabytes", type=float, default=8_000, help="what a peer may hold (default: %(default)g)")
    made.add_argument("--clients", type=Path, metavar="PYTHON", help="the Python that has the official client (default: this one)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    made.add_argument("--report", type=Path, metavar="FILE", help="write a page in Markdown, with the picture beside it")
    made.add_argument("--picture", type=Path, metavar="FILE", help="write a picture of memory and sync, SVG")
    return made


def counts(text: str) -> list[int]:
    """Read numbers of objects: a label's value must be there, and so must each namespace.

    >>> counts('20000,1000')
    [1000, 20000]
    """
    found = sorted({int(part) for part in text.replace("_", "").split(",")})
    if found[0] < 100:
        raise ValueError("--objects: 100 at least, as there are 20 namespaces and 50 apps")
    return found


class Bench:
    """One run: a server, its objects, and one peer after the other."""

    def __init__(self, server: ApiServer, options: argparse.Namespace, folder: Path, *, about: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self._server = server
        self._options = options
        self._folder = folder
        self._about = about
        self._say = say
        self._rounds = Rounds(server)
        self._cap = Cap(options.seconds, options.megabytes)
        self._kubeconfig = server.kubeconfig(folder / "kubeconfig")
        self._results: list[Result] = []
        self.left_out: dict[str, str] = {}

    @property
    def results(self) -> list[Result]:
        return middle(self._results)

    def run(self, peers: Sequence[Peer], sizes: Sequence[int]) -> None:
        commands = self._commands(peers)
        prepare(self._server)
        plan = Plan.of(quick=self._options.quick)
        all_pods = map(encoded, Data(seed=SEED).pods(sizes[-1]))
        there = 0
        for objects in sizes:
            began = time.monotonic()
            with Progress("writing pods", objects - there, file=sys.stderr, clock=time.monotonic) as progress:
                there = fill(self._server, islice(all_pods, objects - there), begin=there, step=progress.step)
            self._say(f"{objects:,} pods are served, {time.monotonic() - began:.0f} s later")
            # What the first change of a pod does to its size, it has done before anybody looks.
            self._rounds.write_all(range(min(plan.changes + 1, objects)), self._rounds.next())
            for _ in range(self._options.repeats):
                for peer in peers:
                    if peer.name in commands and (objects <= peer.most or self._options.peers):
                        own = plan if peer.relists else replace(plan, relist=False)
                        self._measure(peer.name, commands[peer.name], objects=objects, plan=own)
                self._measure(AGAIN, commands[OURS], objects=objects, plan=plan)
        self._burst([(peer.name, commands[peer.name]) for peer in peers if peer.name in commands and peer.whole], plan)

    def _burst(self, peers: Sequence[tuple[str, Sequence[str]]], plan: Plan) -> None:
        """Add to the results with the fewest objects how fast each takes in changes."""
        answers, made = discovery(self._server), pods(BURST, seed=SEED)
        first = {result.peer: result for result in reversed(self._results)}
        for name, each in peers:
            with Synthetic(made, rounds=plan.rounds, answers=answers) as synthetic:
                burst(first[name], each, synthetic, cap=self._cap, kubeconfig=synthetic.kubeconfig(self._folder / "synthetic"), log=self._folder / "log")
            self._say(f"a burst of {BURST * plan.rounds:,} changes, {name}: {'measured' if 'burst cpu' in first[name].figures else first[name].over}")
        self._keep()

    def _commands(self, peers: Sequence[Peer]) -> dict[str, Sequence[str]]:
        found = {}
        for peer in peers:
            try:
                found[peer.name] = command(peer, clients=self._options.clients, say=self._say)
            except LeftOut as why:
                self.left_out[peer.name] = str(why)
                self._say(f"{peer.name} is left out: {why}")
        return found

    def _measure(self, name: str, each: Sequence[str], *, objects: int, plan: Plan) -> None:
        began = time.monotonic()
        result = measured(
            name, each, objects=objects, rounds=self._rounds, plan=plan, cap=self._cap, kubeconfig=self._kubeconfig, log=self._folder / "log")
        self._results.append(result)
        self._keep()
        how = f"{DID_NOT_FINISH}, {result.over}" if result.over else "measured"
        self._say(f"{objects:,} pods, {name}: {how} ({time.monotonic() - began:.0f} s)")

    def _keep(self) -> None:
        """Write what there is: it is not lost with a run that is ended."""
        if self._options.json is not None:
            self._options.json.write_text(json.dumps(
                {**self._about, "left out": self.left_out, "results": [asdict(result) for result in self._results]}, indent=1) + "\n")


def about() -> dict[str, Any]:
    """Say where and when this is measured."""
    return {
        "seed": SEED, "processors": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version(),
        "load": [round(load, 1) for load in os.getloadavg()], "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def page(head: str, bench: Bench, picture: str) -> str:
    """Return the report, in Markdown."""
    left_out = "".join(f"- {name} is left out: {why}\n" for name, why in bench.left_out.items())
    parts = (judged(bench.results, markdown=True), growth(bench.results, markdown=True), tables(bench.results, markdown=True))
    return (
        "# Beside its peers\n\nWritten by `make bench ARGS='--report docs/bench.md'`. In brackets is how many times ours a figure is. "
        f"Ours is measured twice, first and last: how far the two are apart is how noisy the run was.\n\n{head}\n\n{left_out}\n"
        f"![memory and sync against the number of objects]({picture})\n\n"
        + "\n\n".join(part for part in parts if part) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser()
    options = made.parse_args(arguments)
    try:
        peers = chosen(options.peers, quick=options.quick)
        sizes = counts(options.objects or (QUICK_OBJECTS if options.quick else OBJECTS))
    except (Unknown, ValueError) as error:
        made.error(str(error))

    if sys.platform != "linux":
        made.error("what a process takes is read from /proc, which only Linux has: run it there")

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    where = about()
    head = (
        f"{where['processors']} processors, {where['machine']}, {where['memory'] / 1e9:.0f} GB; Python {where['python']}; "
        f"load {where['load'][0]} at the start. The same objects for all, from seed {SEED}:\n\n{described(Data(seed=SEED), SAMPLED)}")
    print(f"{head}\n", flush=True)
    with tempfile.TemporaryDirectory() as folder, ApiServer() as server:
        bench = Bench(server, options, Path(folder), about=where, say=say)
        with suppress(KeyboardInterrupt):   # What has been measured by then is told.
            bench.run(peers, sizes)
    if not bench.results:
        sys.exit("nothing was measured")
    print("\n\n".join(part for part in (tables(bench.results), growth(bench.results), judged(bench.results)) if part))
    for name, why in bench.left_out.items():
        print(f"{name} is left out: {why}")
    picture = options.picture or (options.report.with_suffix(".svg") if options.report is not None else None)
    if picture is not None:
        picture.write_text(drawn(bench.results))
        if options.report is not None:
            options.report.write_text(page(head, bench, picture.name))


if __name__ == "__main__":
    main()
