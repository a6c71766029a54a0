"""Compare our cache with its peers, in one run, on the same objects of one real API server: `python -m bench
--quick`.

Compare ratios, not figures: figures belong to one machine at one moment.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.building import LeftOut
from bench.data import SAMPLED, described
from bench.datasets import dataset
from bench.measuring import middle
from bench.options import parser, steps
from bench.png import missing
from bench.report import RESULTS, described_run, parts, publish, write_report
from bench.roster import OURS, Peer, Unknown, chosen, command
from bench.run import Bench, Results
from tests.apiserver.server import ApiServer

SEED = 1


def about(sets: Sequence[str]) -> dict[str, Any]:
    """Describe the machine, its load, and the objects."""
    return {
        "seed": SEED,
        "objects": [described(dataset(name, seed=SEED), SAMPLED) for name in sets],
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load": [round(load, 1) for load in os.getloadavg()],
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def built(
    peers: Sequence[Peer], results: Results, *, clients: Path | None, say: Callable[[str], None]
) -> dict[str, Sequence[str]]:
    """Return the commands of the peers that can be built here."""
    found = {}
    for peer in peers:
        try:
            found[peer.name] = command(peer, clients=clients, say=say)
        except LeftOut as why:
            results.left_out[peer.name] = str(why)
            say(f"{peer.name} is left out: {why}")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser()
    options = made.parse_args(arguments)
    try:
        peers = chosen(",".join(options.peers) if options.peers else None, quick=options.quick)
    except Unknown as error:
        made.error(str(error))
    if sys.platform != "linux":
        made.error("the bench reads /proc, which only Linux has: run it there")
    if (options.report or options.publish) and (why := missing()):
        made.error(why)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    results = Results(
        RESULTS if options.publish else options.json, about(options.data), resume=options.resume
    )
    commands = built(peers, results, clients=options.clients, say=say)
    assert OURS in commands, "ours needs no toolchain"
    with suppress(KeyboardInterrupt):  # Report what has been measured so far.
        for number, name in enumerate(options.data):
            try:
                with tempfile.TemporaryDirectory() as folder, ApiServer() as server:
                    bench = Bench(
                        server,
                        dataset(name, seed=SEED),
                        options,
                        Path(folder),
                        commands=commands,
                        results=results,
                        say=say,
                    )
                    bench.run(steps(options), peers, first=number == 0)
            except Exception as error:  # The other set has a server of its own.  # noqa: BLE001
                say(f"{name} pods failed: {type(error).__name__}: {error}")
    if not results.all:
        sys.exit("nothing was measured")
    found = middle(results.all)
    print(described_run(results.about), *filter(None, parts(found, markdown=False)), sep="\n\n")
    for name, reason in results.left_out.items():
        print(f"{name} is left out: {reason}")
    if options.publish:
        publish()
    if options.report is not None:
        write_report(RESULTS if options.publish else options.json, options.report)


if __name__ == "__main__":
    # A signal, such as that of timeout(1), also ends in a report, and no peer stays behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
