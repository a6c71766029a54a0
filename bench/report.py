"""The pages generated from the results: bench/RESULTS.md, its pictures, and the tables of other pages.

`python -m bench.report` writes them again from bench/results.json, without a measurement.

A table of another page is between two comments: `<!-- bench: NAME -->` and `<!-- bench ends -->`. `BLOCKS`
has the tables by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.histogram import histograms
from bench.measuring import AT_LEAST, ROUND_STEP, Result, middle
from bench.picture import drawing, svg
from bench.png import png
from bench.roster import AGAIN, INDEX, KOPF_ALONE, OURS, RAW
from bench.run import read_results
from bench.table import number, piped, tables
from bench.targets import (
    CONTROLLER,
    GROUPED,
    INFORMER,
    KUBE_RS,
    OTHER_LIMITS,
    TARGETS,
    UNRELATED,
    Run,
    counted,
    growth,
    judged,
)

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results.json", HERE / "RESULTS.md"
PERFORMANCE, README = HERE.parent / "docs/performance.md", HERE.parent / "README.md"
NOTES = HERE / "NOTES.md"
BLOCK = re.compile(r"(<!-- bench: ([a-z-]+) -->\n).*?(<!-- bench ends -->)", re.DOTALL)


def described_run(about: Mapping[str, Any]) -> str:
    """Describe the machine and the objects."""
    return (
        f"{about['processors']} processors, {about['machine']}, {about['memory'] / 1e9:.0f} GB; Python"
        f" {about['python']}; load {about['load'][0]} at the start. The same objects for all, from seed"
        f" {about['seed']}:\n\n" + "\n".join(about.get("objects", ()))
    )


def parts(results: Sequence[Result], *, markdown: bool) -> Iterator[str]:
    """Yield the targets, and the tables of each set of objects."""
    yield judged(results, markdown=markdown)
    yield judged(results, OTHER_LIMITS, markdown=markdown)
    for name in dict.fromkeys(result.data for result in results):
        some = [result for result in results if result.data == name]
        yield f"{'## ' if markdown else ''}{name.capitalize()} pods"
        yield growth(some, markdown=markdown)
        yield tables(some, markdown=markdown)
        yield histograms(some, markdown=markdown)


def page(head: str, results: Sequence[Result], left_out: Mapping[str, str], pictures: Sequence[str]) -> str:
    """Return the report, in Markdown."""
    left = "".join(f"- {name} is left out: {why}\n" for name, why in left_out.items())
    shown = "\n".join(f"![memory and sync against the number of objects]({name})" for name in pictures)
    met, judgements = counted(results)
    return (
        "# Beside its peers\n\n`make bench ARGS=--publish` writes this page. Brackets contain the multiple of"
        " our figure. Ours is measured twice, first and last, which shows the noise of the run."
        f" {met} of {judgements} targets are met, each judged with each set and number of pods. Memory is"
        " above the empty process.\n\n"
        f"{head}\n\n{left}\n{shown}\n\n"
        + "\n\n".join(part for part in parts(results, markdown=True) if part)
        + "\n"
    )


def draw(results: Sequence[Result], file: Path) -> list[str]:
    """Write a picture for each set of objects, as SVG and as PNG; return the names of the former."""
    names = []
    for name in dict.fromkeys(result.data for result in results):
        drawn = drawing(
            [result for result in results if result.data == name and result.step in (ROUND_STEP, "million")]
        )
        each = file.with_stem(f"{file.stem}-{name}").with_suffix(".svg")
        each.write_text(svg(drawn))
        each.with_suffix(".png").write_bytes(png(drawn))
        names.append(each.name)
    return names


# ---- Tables of other pages.

SIZE = 20_000
"""The number of objects whose figures other pages have, or else the smallest that was measured."""
COLUMNS = (OURS, CONTROLLER, INFORMER)
HEADS = {OURS: "this cache", INFORMER: "Python's informer"}
FIGURES = (
    ("memory per object", "per object", 1e-3, "KB"),
    ("peak while syncing", "peak", 1e-6, "MB"),
    ("CPU to sync", "sync cpu", 1, "s"),
    ("received", "received", 1e-6, "MB"),
    ("`get`", "get", 1, "µs"),
    ("`get`, read-only", "get view", 1, "µs"),
    ("list one in fifty by label", "label", 1e-3, "ms"),
    ("the same, read-only", "label view", 1e-3, "ms"),
    ("CPU per event", "event cpu", 1, "µs"),
    ("from write to read, 99th percentile", "lag p99", 1, "ms"),
)


def figures(results: Sequence[Result], data: str) -> str:
    """Return a table of the figures of some peers."""
    run = Run([result for result in results if result.data == data])
    size = SIZE if SIZE in run.sizes else min(run.sizes, default=0)
    there = [name for name in COLUMNS if run.get(name, size, "per object") is not None]
    rows = [[f"{size:,} {data} pods", *(HEADS.get(name, name) for name in there)]]
    for words, key, scale, unit in FIGURES:
        if run.get(OURS, size, key) is not None:
            rows.append([words, *(_cell(run, name, size, key, scale, unit) for name in there)])
    return piped(rows) if len(rows) > 1 else ""


def _cell(run: Run, name: str, size: int, key: str, scale: float, unit: str) -> str:
    figure, base = run.get(name, size, key), run.get(OURS, size, key)
    if figure is None or base is None:
        return ""
    if name != OURS:
        shown = f"{number(figure * scale)} {unit}"
        return f"{shown} ({number(figure / base)}x)" if base > 0 else shown
    measured = sorted({figure, run.get(AGAIN, size, key) or figure})
    return f"{' to '.join(dict.fromkeys(number(each * scale) for each in measured))} {unit}"


def missed(results: Sequence[Result], _: str) -> str:
    """Return the number of targets that are met, and a table of those that are missed, with all figures."""
    met, judgements = counted(results)
    link = "[all](RESULTS.md)"
    told = f"{met} of {judgements} targets are met, each with each set and number of pods; {link}."
    lines = [line for line in judged(results, TARGETS, markdown=True).splitlines() if "missed" in line]
    rows = [["missed", "of", "allowed", "measured"]]
    for line in lines:
        words, peer, allowed, *verdicts = (cell.strip() for cell in line.strip("|").split("|"))
        figures = [verdict.replace(" missed", "").replace(" met", "") for verdict in verdicts if verdict]
        rows.append([words, peer, allowed, ", ".join(figures)])
    return f"{told}\n\n{piped(rows)}" if lines else told


def others(results: Sequence[Result], data: str) -> str:
    """Return what is measured with other numbers of objects, as a list."""
    return _listed(_other_lines(Run([result for result in results if result.data == data])))


def sizes(results: Sequence[Result], data: str) -> str:
    """Return when handlers run and how well they run, with other numbers of objects, as a list."""
    return _listed(_lines_of_sizes(Run([result for result in results if result.data == data])))


def _listed(lines: Iterator[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _other_lines(run: Run) -> Iterator[str]:
    alone, ours = run.get(KOPF_ALONE, 0, "process"), run.get(OURS, 0, "process")
    if alone is not None and ours is not None:
        yield (
            f"A process with nothing to hold: {number(ours / 1e6)} MB, of which `kopf run` alone takes"
            f" {number(alone / 1e6)} MB."
        )
    bursts = [
        f"{peer} {number(cpu)} µs"
        for peer in (OURS, RAW, "kube-rs-stripped", KUBE_RS, CONTROLLER, "client-go-json", INFORMER, INDEX)
        if (cpu := run.get(peer, 1_000, "burst cpu")) is not None
    ]
    if bursts:
        yield (
            "CPU of an event of 1,000 pods, from a synthetic server that sends as fast as it can: "
            f"{', '.join(bursts)}."
        )


def _lines_of_sizes(run: Run) -> Iterator[str]:
    for size in (4_000, 8_000):
        took, theirs = run.get(OURS, size, "sync"), run.get(INDEX, size, "sync")
        least = run.get(INDEX, size, AT_LEAST)
        if took is not None and (theirs is not None or least is not None):
            known = f"{number(theirs)} s" if theirs is not None else f"more than {number(least or 0)} s"
            yield f"With {size:,} pods, handlers run after {number(took)} s. With `@kopf.index`: {known}."
    late = [
        f"{number(added)} ms with {words}"
        for peer, words in ((OURS, "this cache"), (INDEX, "`@kopf.index`"))
        if (added := run.get(peer, 1_000, "added p99")) is not None
    ]
    if late:
        yield (
            "While 2,000 pods change per second, your event loop is delayed by"
            f" {', and by '.join(late)} (99th percentile)."
        )
    if (held := run.get(OURS, 1_000_000, "memory")) is not None:
        cpu, get = run.get(OURS, 1_000_000, "sync cpu"), run.get(OURS, 1_000_000, "get")
        yield (
            f"A million pods take {number(held / 2**30)} GiB, {number(cpu or 0)} s of CPU to sync, and"
            f" {number(get or 0)} µs for a `get`."
        )


COMPARED = (
    ("memory per object, mostly replicas", GROUPED, "per object", 1e-3, "KB"),
    ("memory per object, no two alike", UNRELATED, "per object", 1e-3, "KB"),
    ("memory of the process without objects", GROUPED, "empty", 1e-6, "MB"),
    ("CPU to sync", GROUPED, "sync cpu", 1, "s"),
    ("`get`, mostly replicas", GROUPED, "get", 1, "µs"),
    ("`get`, no two alike", UNRELATED, "get", 1, "µs"),
)
COPIES = {OURS: "your own copy", CONTROLLER: "your own copy", KUBE_RS: "shared", INFORMER: "shared"}
"""The peers of README, and what their `get` returns."""


def compared(results: Sequence[Result], _: str) -> str:
    """Return the table of README, with both sets of objects. Ours is measured twice."""
    runs = {name: Run([each for each in results if each.data == name]) for name in (GROUPED, UNRELATED)}
    heads = {OURS: "this cache", CONTROLLER: "controller-runtime, in Go", KUBE_RS: "kube-rs, in Rust"}
    rows = [[f"{SIZE:,} pods", *(heads.get(peer, HEADS.get(peer, peer)) for peer in COPIES)]]
    for words, data, key, scale, unit in COMPARED:
        cells = [words]
        for peer, copy in COPIES.items():
            names = (OURS, AGAIN) if peer == OURS else (peer,)
            measured = sorted(each for name in names if (each := runs[data].get(name, SIZE, key)) is not None)
            shown = " to ".join(dict.fromkeys(_rounded(each * scale) for each in measured))
            cells.append(f"{shown} {unit}{f', {copy}' if key == 'get' else ''}" if shown else "not measured")
        rows.append(cells)
    took, theirs = (runs[GROUPED].get(peer, 4_000, "sync") for peer in (OURS, INDEX))
    if took is None or theirs is None:
        return piped(rows)
    return (
        f"{piped(rows)}\n\nWith 4,000 pods, the first handler ran after {_rounded(took)} s with this cache,"
        f" and after {_rounded(theirs)} s with `@kopf.index`."
    )


def _rounded(value: float) -> str:
    return f"{value:.1f}" if value < 20 else f"{value:.0f}"


BLOCKS: Mapping[str, Callable[[Sequence[Result], str], str]] = {
    "figures": figures,
    "missed": missed,
    "others": others,
    "sizes": sizes,
    "compared": compared,
}


def filled(text: str, results: Sequence[Result]) -> str:
    r"""Return a page with its tables.

    >>> print(filled('<!-- bench: missed -->\nold\n<!-- bench ends -->', []))
    <!-- bench: missed -->
    0 of 0 targets are met, each with each set and number of pods; [all](RESULTS.md).
    <!-- bench ends -->
    """

    def fill(match: re.Match[str]) -> str:
        made = BLOCKS[match[2]](results, _shown(results))
        return f"{match[1]}{made}\n{match[3]}" if made else f"{match[1]}{match[3]}"

    return BLOCK.sub(fill, text)


def _shown(results: Sequence[Result]) -> str:
    """Return the set of objects whose figures other pages have."""
    return GROUPED if any(result.data == GROUPED for result in results) else UNRELATED


def pages(file: Path = RESULTS) -> dict[Path, str]:
    """Return the pages with the figures of these results, and README.md."""
    about, found, left_out = read_results(file)
    results = middle(found)
    pictures = [f"{PAGE.stem}-{name}.svg" for name in dict.fromkeys(result.data for result in results)]
    return {
        PAGE: page(described_run(about), results, left_out, pictures),
        NOTES: filled(NOTES.read_text(encoding="utf-8"), results),
        PERFORMANCE: filled(PERFORMANCE.read_text(encoding="utf-8"), results),
        README: filled(README.read_text(encoding="utf-8"), results),
    }


def publish() -> None:
    """Write the pages and the pictures of the results."""
    draw(middle(read_results(RESULTS)[1]), PAGE)
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")


def write_report(results_file: Path, file: Path) -> None:
    """Write one page of these results, with its pictures beside it."""
    about, found, left_out = read_results(results_file)
    results = middle(found)
    text = page(described_run(about), results, left_out, draw(results, file))
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    publish()
