"""Compare what contenders hold after each fault: `python -m bench.comparison` plays all faults, and writes
bench/FAULTS.md.

It needs the environment with other clients (`make test-clients`). It does not measure speed.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from bench.faults import ROWS, Row
from bench.outcomes import REPEATED, Operation, Repeated, play_fault, play_repeated
from bench.records import (
    HANDLERS,
    KEEPERS,
    KILLED,
    TEN_TIMES,
    Bookkeeping,
    play_record,
    play_repeated_records,
)
from bench.staging import CONTENDERS, Contender, Over, Staging
from kopf_selectcache.testing import EmbeddedCluster

DOCUMENT = Path(__file__).parent / "FAULTS.md"
CONTENTS = "<!-- begin: contents, by python -m bench.comparison -->"
OUTCOMES = "<!-- begin: outcomes, by python -m bench.comparison -->"
RECORDS = "<!-- begin: records, by python -m bench.comparison -->"
OWN = "<!-- begin: handlers, by python -m bench.comparison -->"
END = "<!-- end -->"
TABLES = {"contents": CONTENTS, "outcomes": OUTCOMES, "records": RECORDS, "handlers": OWN}
SUMMARY = {
    CONTENTS: {
        "equal to the server": "equal",
        "different, a minute or two later": "stale.*",
        "the process ended": "the process ended",
        "the fault cannot happen": "never asks so",
    },
    OUTCOMES: {
        "right": "right",
        "right, after the process ended and was restarted": "restarted: right",
        "wrong": "(restarted: )?wrong.*|.*before the fault",
        "the process ended, and again after its restart": "the process ended, and again.*",
        "no result: Kopf received nothing and called no handler": "(restarted: )?not called",
        "no result: the fault cannot happen": "never asks so",
    },
    RECORDS: {
        "records right": "right",
        "records right, after the process ended and was restarted": "restarted: right",
        "records wrong": "(restarted: )?wrong.*|.*before the fault",
        "the operator ended, and again after its restart": "the process ended, and again.*",
        "no records: the fault cannot happen": "never asks so",
    },
    OWN: {
        "handlers right": "right",
        "handlers right, after the process ended and was restarted": "restarted: right",
        "handlers wrong": "(restarted: )?wrong.*|.*before the fault",
        "Kopf ended, and again after its restart": "the process ended, and again.*",
        "no handlers: the fault cannot happen": "never asks so",
    },
}
"""The rows of the summary: the pattern of the results that a row counts, for each table."""

TOTALS = {
    "departures missed": r"misses (\d+)",
    "departures told twice": r"is told (\d+) departures? twice",
    "departures told that did not happen": r"is told (\d+) departures? that did not happen",
}
"""The rows of the summary that add up a number of each result of the records."""

COLUMNS = {CONTENTS: CONTENDERS, OUTCOMES: CONTENDERS, RECORDS: KEEPERS, OWN: HANDLERS}
"""The contenders of each table."""

AT_ONCE = 4
BOOKMARKS = 1.0
"""Seconds between two bookmarks: a minute on real servers."""

S = TypeVar("S", bound=Staging)


def play_contents(row: Row, contender: Contender, *, log: bool = False) -> str:
    """Play a row to a contender, and compare its contents."""
    with _staged(Staging, contender, patience=row.patience, log=log) as stage:
        try:
            seen = row.script(stage)
            if seen is None:
                if not stage.ended:
                    stage.create("web-last")
                seen = stage.verdict()
        except Over as over:
            seen = str(over)
        return seen


def play_outcome(row: Row | Repeated, contender: Contender, *, log: bool = False) -> str:
    """Play a row to an operator with a contender, and compare the last result of its handler."""
    if isinstance(row, Repeated):
        with _staged(Operation, contender, patience=60, log=log) as stage:
            return play_repeated(stage, row)
    with _staged(Operation, contender, patience=row.patience, log=log) as stage:
        return play_fault(stage, row)


def play_records(row: Row | Repeated, contender: Contender, *, log: bool = False) -> str:
    """Play a row to an operator that keeps records, and compare its records."""
    patience = row.patience if isinstance(row, Row) else 60
    with _staged(Bookkeeping, contender, patience=patience, log=log) as stage:
        return play_record(stage, row) if isinstance(row, Row) else play_repeated_records(stage, row)


@contextmanager
def _staged(staging: type[S], contender: Contender, *, patience: float, log: bool) -> Iterator[S]:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedCluster(bookmarks_every=BOOKMARKS).in_thread() as cluster,
        staging(cluster, contender, Path(folder), patience=patience) as stage,
    ):
        yield stage
        if log:
            print(stage.log, file=sys.stderr)


@dataclass(frozen=True)
class Cell:
    """One cell of a table: its place, and the play that fills it."""

    begin: str
    """The mark of the table in the document."""
    row: Row | Repeated
    contender: Contender
    play: Callable[..., str]


def cells() -> list[Cell]:
    """Return the cells of all tables, row by row."""
    faults = [row for row in ROWS if not row.is_read]
    rows: dict[str, Sequence[Row | Repeated]] = {
        CONTENTS: ROWS,
        OUTCOMES: (*faults, *REPEATED),
        RECORDS: (*faults, KILLED, *TEN_TIMES),
        OWN: (*faults, KILLED, *TEN_TIMES),
    }
    plays: dict[str, Callable[..., str]] = {
        CONTENTS: play_contents,
        OUTCOMES: play_outcome,
        RECORDS: play_records,
        OWN: play_records,
    }
    return [
        Cell(begin, row, each, play)
        for begin, play in plays.items()
        for row in rows[begin]
        for each in COLUMNS[begin]
    ]


def table(
    rows: Iterable[Row | Repeated],
    seen: Mapping[tuple[str, str], str],
    contenders: Sequence[Contender] = CONTENDERS,
) -> str:
    """Return the table, in Markdown."""
    head = ["no.", "fault", *(contender.name for contender in contenders)]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        numbers = row.numbers if isinstance(row, Row) else "–"
        lines.append([numbers, row.words, *(seen.get((row.words, each.name), "") for each in contenders)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def versions() -> str:
    said = ", ".join(f"{name} {version(name)}" for name in ("kopf_selectcache", "kopf", "kubernetes"))
    return f"Measured with {said}, on Python {platform.python_version()}."


def section(document: str, begin: str) -> str:
    """Return the part of a document between a mark and the next end."""
    return document.partition(begin)[2].partition(END)[0]


def shown(document: str, begin: str) -> dict[tuple[str, str], str]:
    """Read a table of a document."""
    lines = [
        line.strip("| ").split(" | ")
        for line in section(document, begin).splitlines()
        if line.startswith("|")
    ]
    if not lines:
        return {}
    return {
        (words, name): cell
        for _, words, *cells in lines[2:]
        for name, cell in zip(lines[0][2:], cells, strict=True)
    }


def written(document: str, begin: str, made: str) -> str:
    """Return the document with this table between its marks."""
    before, _, rest = document.partition(begin)
    _, _, after = rest.partition(END)
    return f"{before}{begin}\n\n{made}\n{END}{after}"


def columns(document: str, begin: str) -> list[list[str]]:
    """Return the results of each contender for the faults; not those of reads and of repeated changes."""
    faults = {row.words for row in ROWS if not row.is_read}
    results = shown(document, begin)
    return [
        [cell for (words, name), cell in results.items() if name == each.name and words in faults]
        for each in COLUMNS[begin]
    ]


def summarize(document: str) -> str:
    """Return the document with the counts of its tables, and the rows that are no faults, in the rows of its
    summary.
    """
    rows: dict[str, list[str]] = {}
    for begin, patterns in SUMMARY.items():
        results = columns(document, begin)
        for words, pattern in patterns.items():
            rows[words] = [
                str(sum(bool(re.fullmatch(pattern, each)) for each in column)) for column in results
            ]
    for words, pattern in TOTALS.items():
        rows[words] = [
            str(sum(int(found[1]) for each in column if (found := re.search(pattern, each))))
            for column in columns(document, RECORDS)
        ]
    others: dict[str, Sequence[Row | Repeated]] = {OUTCOMES: REPEATED, RECORDS: (KILLED, *TEN_TIMES)}
    for begin, those in others.items():
        results_of = shown(document, begin)
        for row in those:
            rows[row.words] = [results_of.get((row.words, each.name), "") for each in COLUMNS[begin]]
    lines = document.splitlines(keepends=True)
    for at, line in enumerate(lines):
        if line.startswith("## Contents"):
            break
        words = line.strip("| \n").partition(" | ")[0]
        if line.startswith("|") and words in rows:
            lines[at] = f"| {' | '.join([words, *rows[words]])} |\n"
    return "".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.comparison")
    parser.add_argument("--only", default="", help="rows whose words have this; the document stays as it is")
    parser.add_argument(
        "--table", choices=tuple(TABLES), help="this table alone; the others stay as they are"
    )
    parser.add_argument(
        "--at-once", type=int, default=AT_ONCE, help="how many to play at the same time; %(default)s"
    )
    parser.add_argument("--log", action="store_true", help="show what each contender logs")
    options = parser.parse_args(arguments)
    wanted = [TABLES[options.table]] if options.table else list(TABLES.values())
    chosen = [cell for cell in cells() if cell.begin in wanted and options.only in cell.row.words]

    def play(cell: Cell) -> tuple[Cell, str]:
        try:
            seen = cell.play(cell.row, cell.contender, log=options.log)
        except Exception:
            traceback.print_exc()
            raise
        print(f"{cell.row.words} | {cell.contender.name}: {seen}", file=sys.stderr, flush=True)
        return cell, seen

    with ThreadPoolExecutor(options.at_once) as threads:
        results = list(threads.map(play, chosen))
    for begin in wanted:
        seen = {
            (cell.row.words, cell.contender.name): result for cell, result in results if cell.begin == begin
        }
        rows = dict.fromkeys(cell.row for cell in chosen if cell.begin == begin)
        made = f"{versions()}\n\n{table(rows, seen, COLUMNS[begin])}"
        print(made)
        if not options.only:
            DOCUMENT.write_text(summarize(written(DOCUMENT.read_text(), begin, made)))


if __name__ == "__main__":
    main()
