"""The options of `python -m bench`. It measures nothing."""

from __future__ import annotations

import argparse
import math
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from bench.datasets import DEFAULT, SETS
from bench.roster import PEERS

STEPS = {
    "empty": "memory of an operator with nothing to hold, without us and with us",
    "round": "cost to hold, read and follow pods of a real API server",
    "burst": "CPU of a change, from a synthetic server that sends them as fast as they are read",
    "late": "lateness of the event loop at a pace of changes",
    "index": "time until handlers run, against @kopf.index",
    "million": "a million pods of a synthetic server, held and read by ours",
}
"""The parts of a run."""
ONCE = ("empty", "late", "index", "million")
"""These run with the first set of objects only: the set hardly matters, or they take long."""
QUICK_STEPS = ("empty", "round", "burst")
OWN_STEPS = ("empty", "round", "burst", "late")
"""The steps of a run with numbers of objects of its own."""
OBJECTS: dict[str, tuple[int, ...]] = {
    "round": (20_000, 100_000),
    "index": (4_000, 8_000),
    "million": (1_000_000,),
}
QUICK_OBJECTS = (1_000, 3_000)
SECONDS, MEGABYTES = 180, 12_000
"""The limits of a peer."""
MORE_SECONDS, MORE_MEGABYTES = 1_800, 16_000
"""The limits with a million objects."""
RESULTS = Path("bench.json")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m bench",
        description=(
            "Compare our cache with its peers, in one run, on the same objects of one real API server."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=(
            "It needs Linux, and Go for the API server. kube-rs needs Rust, fabric8 Java and Maven: a peer"
            " that cannot be built is left out by name.\nBoth sets of objects take 45 minutes, with --quick"
            " six. Every figure is in the results as soon as it is measured; after an interruption, --resume"
            " measures the rest.\n\nsteps:\n"
        )
        + "\n".join(f"  {name:28} {words}" for name, words in STEPS.items())
        + "\n\npeers:\n"
        + "\n".join(f"  {peer.name:28} {peer.words}" for peer in PEERS),
    )
    made.add_argument(
        "--quick", action="store_true", help="few pods, and only the peers that targets name: some minutes"
    )
    made.add_argument("--peers", type=names, metavar="A,B", help="these and ours, instead of all")
    made.add_argument(
        "--data",
        type=among(SETS, "set"),
        default=[DEFAULT],
        metavar="A,B",
        help=f"the sets of objects, of {', '.join(SETS)} (default: {DEFAULT})",
    )
    made.add_argument("--only", type=among(STEPS, "step"), metavar="A,B", help="these steps, instead of all")
    made.add_argument(
        "--objects",
        type=counts,
        metavar="N,M",
        help="how many pods, one round for each number; only their steps, unless --only has others",
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
        help=f"what a peer may take for any one thing (default: {SECONDS}; a million: {MORE_SECONDS:,})",
    )
    made.add_argument(
        "--megabytes",
        type=positive(float),
        help=f"what a peer may hold (default: {MEGABYTES:,}; a million: {MORE_MEGABYTES:,})",
    )
    made.add_argument(
        "--clients",
        type=program,
        metavar="PYTHON",
        help="the Python that has the official client (default: this one)",
    )
    made.add_argument(
        "--json",
        type=writable,
        metavar="FILE",
        default=RESULTS,
        help="the file of all results (default: %(default)s)",
    )
    made.add_argument(
        "--resume", action="store_true", help="measure only what the file of results does not have"
    )
    made.add_argument(
        "--report",
        type=writable,
        metavar="FILE",
        help="write a page in Markdown, with the pictures beside it",
    )
    made.add_argument(
        "--publish",
        action="store_true",
        help="write bench/results.json, bench/RESULTS.md, its pictures, and the tables of other pages",
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


def names(text: str) -> list[str]:
    """Read names between commas.

    >>> names('a, b,a')
    ['a', 'b']
    """
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def among(known: Iterable[str], what: str) -> Callable[[str], list[str]]:
    """Return a reader of some of these names."""
    all_names = list(known)

    def some(text: str) -> list[str]:
        found = names(text)
        if unknown := [name for name in found if name not in all_names]:
            raise argparse.ArgumentTypeError(
                f"there is no {what} {unknown[0]!r}, only {', '.join(all_names)}"
            )
        return found

    return some


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
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers, such as 1000,20000") from None
    if found[0] < 100:
        raise argparse.ArgumentTypeError(
            "100 at least of each, as there are 20 namespaces and 50 apps; commas are between numbers, so"
            " write 1000 or 1_000, not 1,000"
        )
    return found


def steps(options: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """Return the steps of a run, each with its numbers of objects."""
    chosen = options.only or (
        QUICK_STEPS if options.quick else OWN_STEPS if options.objects else tuple(STEPS)
    )
    found = {}
    for step in STEPS:
        if step in chosen:
            own = options.objects and (step == "round" or (step in OBJECTS and len(chosen) == 1))
            found[step] = (
                tuple(options.objects)
                if own
                else QUICK_OBJECTS
                if options.quick and step == "round"
                else OBJECTS.get(step, ())
            )
    return found
