"""Who holds what after which fault, beside each other: `python -m bench.comparison` plays all, and writes docs/comparison.md.

Needs the environment with other clients (`make test-clients`). It measures what is held, no speed.
"""
from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from bench.faults import ROWS, Row
from bench.staging import CONTENDERS, Contender, Over, Staging
from kopf_selectcache.testing import EmbeddedCluster

DOCUMENT = Path(__file__).parent.parent / "docs" / "comparison.md"
BEGIN, END = "<!-- begin: python -m bench.comparison -->", "<!-- end -->"
AT_ONCE = 4
BOOKMARKS = 1.0
"""Seconds between two bookmarks: a minute on real servers."""


def played(row: Row, contender: Contender, *, log: bool = False) -> str:
    """Play a row to a contender, and say what comes of it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedCluster(bookmarks_every=BOOKMARKS).in_thread() as cluster,
        Staging(cluster, contender, Path(folder), patience=row.patience) as stage,
    ):
        try:
            seen = row.script(stage)
            if seen is None:
                if not stage.ended:
                    stage.create("web-last")
                seen = stage.verdict()
        except Over as over:
            seen = str(over)
        if log:
            print(stage.log, file=sys.stderr)
        return seen


def table(rows: Iterable[Row], seen: Mapping[tuple[str, str], str]) -> str:
    """Return the table, in Markdown."""
    head = ["no.", "fault", *(contender.name for contender in CONTENDERS)]
    lines = [head, ["---"] * len(head)]
    lines += [[row.numbers, row.words, *(seen.get((row.words, each.name), "") for each in CONTENDERS)] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def versions() -> str:
    said = ", ".join(f"{name} {version(name)}" for name in ("kopf_selectcache", "kopf", "kubernetes"))
    return f"Measured with {said}, on Python {platform.python_version()}."


def shown(document: str) -> dict[tuple[str, str], str]:
    """Read the table of a document."""
    _, _, rest = document.partition(BEGIN)
    lines = [line.strip("| ").split(" | ") for line in rest.partition(END)[0].splitlines() if line.startswith("|")]
    if not lines:
        return {}
    return {(words, name): cell for _, words, *cells in lines[2:] for name, cell in zip(lines[0][2:], cells, strict=True)}


def written(document: str, made: str) -> str:
    """Return the document with this table between its marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{made}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.comparison")
    parser.add_argument("--only", default="", help="rows whose words have this; the document stays as it is")
    parser.add_argument("--log", action="store_true", help="show what each contender logs")
    options = parser.parse_args(arguments)
    rows = [row for row in ROWS if options.only in row.words]
    cells = [(row, contender) for row in rows for contender in CONTENDERS]

    def play(cell: tuple[Row, Contender]) -> tuple[tuple[str, str], str]:
        row, contender = cell
        try:
            seen = played(row, contender, log=options.log)
        except Exception:
            traceback.print_exc()
            raise
        print(f"{row.words} | {contender.name}: {seen}", file=sys.stderr, flush=True)
        return (row.words, contender.name), seen

    with ThreadPoolExecutor(AT_ONCE) as threads:
        seen = dict(threads.map(play, cells))
    made = f"{versions()}\n\n{table(rows, seen)}"
    print(made)
    if not options.only:
        DOCUMENT.write_text(written(DOCUMENT.read_text(), made))


if __name__ == "__main__":
    main()
