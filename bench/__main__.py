"""Compare our cache with its peers, in one run, on the same objects of one real API server: `python -m bench
--quick`.

Compare ratios, not figures: figures belong to one machine at one moment.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from bench.building import LeftOut
from bench.data import SAMPLED, Data, compression, described, encoded
from bench.datasets import DEFAULT, SETS, dataset
from bench.filling import fill, prepare
from bench.histogram import histograms
from bench.measuring import PACE, Plan, Result, Rounds, Sample, burst, held, late, measured, middle
from bench.picture import drawing, svg
from bench.png import missing, png
from bench.roster import AGAIN, OURS, PEERS, Peer, Unknown, chosen, command, rounds
from bench.running import Cap
from bench.synthetic import Synthetic, discovery
from bench.table import DID_NOT_FINISH, tables
from bench.targets import growth, judged
from kopf_selectcache.cli._progress import Progress
from tests.apiserver.server import ApiServer

SEED = 1
BURST = 1_000
"""The number of pods that change in a burst."""
QUICK_OBJECTS, OBJECTS, MILLION = "2000", "1000,20000,100000", "1000,10000,100000,1000000"
SECONDS, MEGABYTES = 180, 8_000
"""The limits of a peer."""
MORE_SECONDS, MORE_MEGABYTES = 1_800, 16_000
"""The limits with a million objects."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m bench",
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=(
            "It needs Linux, and Go for the API server. kube-rs needs Rust, fabric8 Java and Maven: a peer"
            " that cannot be built is left out by name.\nAll of it takes half an hour, --quick some"
            " minutes.\n\npeers:\n"
        )
        + "\n".join(f"  {peer.name:28} {peer.words}" for peer in PEERS),
    )
    made.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_OBJECTS} pods, controller-runtime and the official informer",
    )
    made.add_argument("--peers", metavar="A,B", help="these and ours, instead of all")
    made.add_argument(
        "--data",
        type=sets,
        default=[DEFAULT],
        metavar="A,B",
        help=f"the sets of objects, of {', '.join(SETS)} (default: {DEFAULT})",
    )
    made.add_argument(
        "--million",
        action="store_true",
        help="a run of its own: up to a million pods of a synthetic server, held and read by ours",
    )
    made.add_argument(
        "--objects",
        metavar="N,M",
        help=(
            f"how many pods, one round for each number (default: {OBJECTS}, and 4000 for the peers that"
            f" cannot do more; with --quick {QUICK_OBJECTS}, with --million {MILLION})"
        ),
    )
    made.add_argument(
        "--repeats",
        type=positive(int),
        default=1,
        help="how often each is measured, in turn; medians are shown (default: %(default)s)",
    )
    made.add_argument(
        "--seconds",
        type=positive(float),
        help=f"what a peer may take for any one thing (default: {SECONDS}, with --million {MORE_SECONDS})",
    )
    made.add_argument(
        "--megabytes",
        type=positive(float),
        help=f"what a peer may hold (default: {MEGABYTES:,}, with --million {MORE_MEGABYTES:,})",
    )
    made.add_argument(
        "--clients",
        type=program,
        metavar="PYTHON",
        help="the Python that has the official client (default: this one)",
    )
    made.add_argument("--json", type=writable, metavar="FILE", help="write all figures")
    made.add_argument(
        "--report",
        type=writable,
        metavar="FILE",
        help="write a page in Markdown, with the pictures beside it",
    )
    made.add_argument(
        "--picture",
        type=writable,
        metavar="FILE",
        help="write a picture of memory and sync: this file as SVG, and beside it one as PNG",
    )
    return made


def positive(kind: type[int | float]) -> Callable[[str], float]:
    """Return a reader of numbers above 0."""

    def number(text: str) -> float:
        with suppress(ValueError):
            if 0 < (found := kind(text)) < math.inf:
                return found
        raise argparse.ArgumentTypeError(f"{text!r} is no {'whole ' if kind is int else ''}number above 0")

    return number


def sets(text: str) -> list[str]:
    """Read the names of sets of objects.

    >>> sets('unrelated,grouped')
    ['unrelated', 'grouped']
    """
    names = list(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in SETS]:
        raise argparse.ArgumentTypeError(f"there is no set {unknown[0]!r}, only {', '.join(SETS)}")
    return names


def program(text: str) -> Path:
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(f"there is no program {text}")
    return Path(text)


def writable(text: str) -> Path:
    """Return the path to write to at the end."""
    file = Path(text)
    if (
        not file.parent.is_dir()
        or file.is_dir()
        or not os.access(file if file.exists() else file.parent, os.W_OK)
    ):
        raise argparse.ArgumentTypeError(f"{text} cannot be written")
    return file


def counts(text: str) -> list[int]:
    """Read numbers of objects: at least one for each label value and namespace.

    >>> counts('20_000,1000')
    [1000, 20000]
    """
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ValueError(f"--objects: {text!r} is no list of numbers, such as 1000,20000") from None
    if found[0] < 100:
        raise ValueError(
            "--objects: 100 at least of each, as there are 20 namespaces and 50 apps; commas are between"
            " numbers, so write 1000 or 1_000, not 1,000"
        )
    return found


class Bench:
    """One set of objects: a server with them, and the peers one after the other."""

    def __init__(
        self,
        server: ApiServer,
        data: Data,
        options: argparse.Namespace,
        folder: Path,
        *,
        results: list[Result],
        about: Mapping[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self._server = server
        self._data = data
        self._options = options
        self._folder = folder
        self._about = about
        self._say = say
        self._rounds = Rounds(server, data)
        self._cap = Cap(
            options.seconds or (MORE_SECONDS if options.million else SECONDS),
            options.megabytes or (MORE_MEGABYTES if options.million else MEGABYTES),
        )
        self._kubeconfig = server.kubeconfig(folder / "kubeconfig")
        self._results = results
        self._samples: dict[int, Sample] = {}
        self._to_do = self._done = 0
        self.left_out: dict[str, str] = {}

    def run(self, who: Mapping[int, Sequence[Peer]]) -> None:
        """Measure the peers with these numbers of objects, the smallest first."""
        peers = list(dict.fromkeys(peer for some in who.values() for peer in some))
        commands = self._commands(peers)
        self._to_do = self._options.repeats * sum(
            1 + sum(peer.name in commands for peer in some) for some in who.values()
        )
        prepare(self._server)
        plan = Plan.of(quick=self._options.quick)
        without = replace(plan, relist=False)
        all_pods = map(encoded, self._data.pods(max(who)))
        there = 0
        for objects, some in who.items():
            began = time.monotonic()
            with Progress("writing pods", objects - there, file=sys.stderr, clock=time.monotonic) as progress:
                there = fill(
                    self._server,
                    islice(all_pods, objects - there),
                    place_of=self._data.place_of,
                    begin=there,
                    step=progress.step,
                )
            self._say(f"{objects:,} pods are served, {time.monotonic() - began:.0f} s later")
            # The first change of a pod changes its size, so it happens before the measurement.
            self._rounds.write_all(range(min(plan.changes + 1, objects)), self._rounds.next())
            for _ in range(self._options.repeats):
                for peer in some:
                    if peer.name in commands:
                        self._measure(
                            peer.name,
                            commands[peer.name],
                            objects,
                            plan if objects <= peer.relists else without,
                        )
                self._measure(AGAIN, commands[OURS], objects, without)
        self._stream([peer for peer in peers if peer.name in commands and peer.whole], commands, plan)

    def _measure(self, name: str, each: Sequence[str], objects: int, plan: Plan) -> None:
        self._add(
            measured, name, each, objects=objects, plan=plan, kubeconfig=self._kubeconfig, rounds=self._rounds
        )

    def hold(self, peers: Sequence[Peer], sizes: Sequence[int]) -> None:
        """Let the peers store and read objects of a synthetic server: a real one would need more memory than
        they do.
        """
        commands = self._commands(peers)
        self._to_do = len(sizes) * len(commands)
        answers, plan = discovery(self._server), Plan.of(quick=True)
        self._server.stop()
        for objects in sizes:
            many = self._data.many(objects)
            began = time.monotonic()
            some = many[: min(objects, SAMPLED)]
            self._say(
                f"{objects:,} pods, each made when it is read, in"
                f" {1e6 * (time.monotonic() - began) / len(some):.0f} µs: {compression(some)}"
            )
            with Synthetic(many, rounds=0, answers=answers) as synthetic:
                kubeconfig = synthetic.kubeconfig(self._folder / "synthetic")
                for name, each in commands.items():
                    self._add(held, name, each, objects=objects, plan=plan, kubeconfig=kubeconfig)

    def _stream(self, peers: Sequence[Peer], commands: Mapping[str, Sequence[str]], plan: Plan) -> None:
        """Add the burst and the lateness of the event loop to the results with the fewest objects."""
        answers, made = discovery(self._server), self._data.many(BURST)[:]
        first = {result.peer: result for result in reversed(self._results) if result.data == self._data.name}
        for peer in peers:
            if (result := first.get(peer.name)) is None:  # The peer was left out.
                continue
            began = time.monotonic()
            with Synthetic(made, rounds=plan.rounds, answers=answers) as synthetic:
                burst(
                    result,
                    commands[peer.name],
                    synthetic,
                    cap=self._cap,
                    kubeconfig=synthetic.kubeconfig(self._folder / "synthetic"),
                    log=self._folder / "log",
                )
            how = "measured" if "burst cpu" in result.figures else result.over
            self._say(
                f"a burst of {BURST * plan.rounds:,} changes, {peer.name}: {how}"
                f" ({time.monotonic() - began:.0f} s)"
            )
            if peer.loops:
                began = time.monotonic()
                with Synthetic(
                    made, rounds=math.ceil(PACE * plan.late / BURST), answers=answers, pace=PACE
                ) as synthetic:
                    late(
                        result,
                        commands[peer.name],
                        synthetic,
                        seconds=plan.late,
                        cap=self._cap,
                        kubeconfig=synthetic.kubeconfig(self._folder / "synthetic"),
                        log=self._folder / "log",
                    )
                how = "measured" if result.late else result.over
                self._say(
                    f"its event loop at {PACE:,} changes a second, {peer.name}: {how}"
                    f" ({time.monotonic() - began:.0f} s)"
                )
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

    def _add(
        self, how: Callable[..., Result], name: str, each: Sequence[str], *, objects: int, **more: Any
    ) -> None:
        began = time.monotonic()
        self._done += 1
        sample = self._samples.get(objects) or self._samples.setdefault(
            objects, Sample.of(self._data, objects)
        )
        result = how(
            name,
            each,
            data=self._data.name,
            objects=objects,
            sample=sample,
            cap=self._cap,
            log=self._folder / "log",
            **more,
        )
        self._results.append(result)
        self._keep()
        told = f"{DID_NOT_FINISH}, {result.over}" if result.over else "measured"
        spent = "".join(f", {what} {seconds:.0f}" for what, seconds in result.spent.items())
        self._say(
            f"[{self._done} of {self._to_do}] {objects:,} {self._data.name} pods, {name}: {told}"
            f" ({time.monotonic() - began:.0f} s{spent})"
        )

    def _keep(self) -> None:
        """Write the results so far, so that an interrupted run does not lose them."""
        if self._options.json is not None:
            self._options.json.write_text(
                json.dumps(
                    {
                        **self._about,
                        "left out": self.left_out,
                        "results": [asdict(result) for result in self._results],
                    },
                    indent=1,
                )
                + "\n"
            )


def about() -> dict[str, Any]:
    """Describe the machine and the time."""
    return {
        "seed": SEED,
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load": [round(load, 1) for load in os.getloadavg()],
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def parts(results: Sequence[Result], *, markdown: bool) -> Iterator[str]:
    """Yield the tables of each set of objects."""
    for name in dict.fromkeys(result.data for result in results):
        some = [result for result in results if result.data == name]
        yield f"{'## ' if markdown else ''}{name.capitalize()} pods"
        yield judged(some, markdown=markdown)
        yield growth(some, markdown=markdown)
        yield tables(some, markdown=markdown)
        yield histograms(some, markdown=markdown)


def page(head: str, results: Sequence[Result], left_out: Mapping[str, str], pictures: Sequence[str]) -> str:
    """Return the report, in Markdown."""
    left = "".join(f"- {name} is left out: {why}\n" for name, why in left_out.items())
    shown = "\n".join(f"![memory and sync against the number of objects]({name})" for name in pictures)
    return (
        "# Beside its peers\n\nWritten by `make bench ARGS='--report docs/bench.md'`. In brackets is the"
        " multiple of our figure. Ours is measured twice, first and last: the difference shows the noise of"
        f" the run.\n\n{head}\n\n{left}\n{shown}\n\n"
        + "\n\n".join(part for part in parts(results, markdown=True) if part)
        + "\n"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser()
    options = made.parse_args(arguments)
    try:
        peers = chosen(options.peers or (OURS if options.million else None), quick=options.quick)
        sizes = counts(
            options.objects or (MILLION if options.million else QUICK_OBJECTS if options.quick else OBJECTS)
        )
    except (Unknown, ValueError) as error:
        made.error(str(error))

    if sys.platform != "linux":
        made.error("the bench reads /proc, which only Linux has: run it there")
    picture = options.picture or (options.report.with_suffix(".svg") if options.report is not None else None)
    if picture is not None and (why := missing()):
        made.error(why)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    where = about()
    sets_of_objects = [dataset(name, seed=SEED) for name in options.data]
    head = (
        f"{where['processors']} processors, {where['machine']}, {where['memory'] / 1e9:.0f} GB; Python"
        f" {where['python']}; load {where['load'][0]} at the start. The same objects for all, from seed"
        f" {SEED}:\n\n" + "\n".join(described(data, SAMPLED) for data in sets_of_objects)
    )
    print(f"{head}\n", flush=True)
    raw: list[Result] = []
    left_out: dict[str, str] = {}
    with suppress(KeyboardInterrupt):  # Report what has been measured so far.
        for data in sets_of_objects:
            with tempfile.TemporaryDirectory() as folder, ApiServer() as server:
                bench = Bench(server, data, options, Path(folder), results=raw, about=where, say=say)
                bench.left_out = left_out
                if options.million:
                    bench.hold(peers, sizes)
                elif options.objects or options.quick:
                    bench.run(
                        {
                            size: [peer for peer in peers if size <= peer.most or options.peers]
                            for size in sizes
                        }
                    )
                else:
                    bench.run(rounds(peers, sizes))
    results = middle(raw)
    if not results:
        sys.exit("nothing was measured")
    print("\n\n".join(part for part in parts(results, markdown=False) if part))
    for name, why in left_out.items():
        print(f"{name} is left out: {why}")
    if picture is not None:
        names = []
        for name in options.data:
            drawn = drawing([result for result in results if result.data == name])
            file = picture if len(options.data) == 1 else picture.with_stem(f"{picture.stem}-{name}")
            file.write_text(svg(drawn))
            file.with_suffix(".png").write_bytes(png(drawn))
            names.append(file.name)
        if options.report is not None:
            options.report.write_text(page(head, results, left_out, names))


if __name__ == "__main__":
    # A signal, such as that of timeout(1), also ends in a report, and no peer stays behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
