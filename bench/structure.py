"""The figures of the package's structure, beside earlier ones and the targets of the redesign.

`python -m bench.structure` prints the table. A figure above its target shows that the structure drifts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.call_paths import measure_paths
from bench.source_figures import (
    GENERATED,
    count_entries,
    count_files,
    count_layers,
    count_lines,
    find_cycles,
    find_longest,
    find_product,
    find_shared_names,
    format_copy,
    measure_classes,
    parse_files,
    rate_messages,
    rate_what,
    rate_wording,
    size_of,
)

ROOT = Path(__file__).parent.parent
PACKAGE = "kopf_selectcache"
MEASURED_ON = (3, 11)
"""The version of Python that the figures of 0.1.0 are from. Others make fewer calls for the same code."""


class Row(NamedTuple):
    """A figure of version 0.1.0, or of the version that is named, and the most that it may be. A path has
    calls, modules, perhaps switches.
    """

    name: str
    before: Sequence[float]
    target: Sequence[float]


ROWS: Mapping[str, Row] = {
    "entries": Row("entries in the package folder", [61], [14]),
    "layers": Row("rows of layers", [36], [13]),
    "cycles": Row("import cycles, types included", [3], [0]),
    "list": Row("calls, modules, switches: list, warm, 5 objects", [97, 21, 46], [50, 9, 16]),
    # Its names are checked, and looked for swapped.
    "get": Row("calls, modules, switches: get outside of the filter", [226, 23, 96], [90, 14, 30]),
    "refused": Row(
        "calls, modules, switches: a first refused list, to its text", [342, 18, 111], [180, 14, 65]
    ),
    "declare": Row("calls, modules, switches: declaring 'app=web'", [316, 16, 89], [120, 11, 45]),
    "line": Row("calls, modules, switches: a line of a watch", [43, 14, 25], [35, 9, 15]),
    "change": Row("calls, modules: a changed filter, with one stream", [], [900, 45]),
    "on.change": Row("calls, modules: a line of a watch until an on.change handler runs", [], [90, 25]),
    "reconcile": Row("calls, modules: a line of a watch until a reconciler runs", [], [130, 30]),
    "messages": Row("% of the code only phrases or checks for messages", [20], [9]),
    "wording": Row("% of the tests assert wording", [17.7], [5]),
    # Before: when the merging of files began, and they were 0.2.0.dev0.
    "product": Row("lines, statements, files: the product", [57_510, 34_527, 214], [38_000, 24_000, 165]),
    "kit": Row("lines, statements, files: testing/", [16_322, 8_972, 78], [14_000, 8_000, 65]),
    "generated": Row("lines, statements, files: generated, part of both", [925, 9, 3], [925, 9, 3]),
    "tests": Row("lines, statements, files: tests/", [157_192, 84_016, 727], [90_000, 50_000, 500]),
    "bench": Row("lines, statements, files: bench/", [11_135, 6_508, 72], [11_000, 6_500, 72]),
    "tests of a line": Row("lines of tests for a line of the package", [2.1], [1.8]),
    "names": Row("class names defined twice in a folder or between neighbours", [], [0]),
    "what": Row('"what" per 1,000 words of docstrings', [25], [3]),
    "longest": Row("lines of the longest file, formatted", [], [700]),
    "store files": Row("files in core/store/", [], [10]),
    "informer files": Row("files in informer/", [], [20]),
    "informer": Row("methods, attributes, imports: Informer", [], [35, 20, 25]),
}
BY_HAND = (
    "representations of a 403: 8 in 0.1.0, 4 now, at most 4",
    "make test, make test-kit, make proofs, .ci/run: the last prints their CPU; at most 220, -, 60 and 540 s",
    "make quick: none in 0.1.0, at most 30 s on two processors",
)


class Found(NamedTuple):
    figures: Mapping[str, Sequence[float]]
    """By the keys of ROWS."""
    places: Sequence[str]
    """Sentences that say which modules import each other, and which file is the longest."""


def measure() -> Found:
    """Return the figures of this checkout."""
    cycles = find_cycles(PACKAGE)
    with tempfile.TemporaryDirectory() as folder:
        package = parse_files(format_copy(ROOT / PACKAGE, Path(folder)).rglob("*.py"))
        product = {path: package[path] for path in find_product(Path(folder, PACKAGE))}
        longest, path = find_longest(package)
        source: dict[str, float] = {
            "entries": count_entries(ROOT / PACKAGE),
            "layers": count_layers(ROOT / "setup.cfg"),
            "cycles": len(cycles),
            "messages": round(rate_messages(product), 1),
            "wording": round(rate_wording(parse_files((ROOT / "tests").rglob("*.py"))), 1),
            "what": round(rate_what(package), 1),
            "longest": longest,
            "store files": count_files(ROOT / PACKAGE / "core" / "store"),
            "informer files": count_files(ROOT / PACKAGE / "informer"),
        }
        names = find_shared_names(product, Path(folder, PACKAGE))
        source["names"] = len(names)
        places = [
            f"Class names defined twice: {', '.join(sorted(names)) or 'none'}.",
            *(f"Cycle: {', '.join(cycle)}." for cycle in cycles),
            f"Longest file: {path.relative_to(folder)}.",
        ]
    informer = measure_classes(ROOT / PACKAGE / "informer" / "informer.py")["Informer"]
    figures: dict[str, Sequence[float]] = {name: [value] for name, value in source.items()}
    written = parse_files((ROOT / PACKAGE).rglob("*.py"))
    product_files = find_product(ROOT / PACKAGE)
    parts = {
        "product": {path: written[path] for path in product_files},
        "kit": {path: each for path, each in written.items() if path not in product_files},
        "generated": {path: each for path, each in written.items() if path.name in GENERATED},
        "tests": parse_files((ROOT / "tests").rglob("*.py")),
        "bench": parse_files((ROOT / "bench").rglob("*.py")),
    }
    figures |= {name: size_of(sources) for name, sources in parts.items()}
    figures["tests of a line"] = [round(count_lines(parts["tests"]) / count_lines(written), 2)]
    figures["informer"] = [*informer]
    figures |= {name: list(counts)[: len(ROWS[name].target)] for name, counts in measure_paths().items()}
    return Found({name: figures[name] for name in ROWS}, places)


def is_met(name: str, figures: Sequence[float]) -> bool:
    """Return True if no figure of the row is more than its target."""
    return all(figure <= most for figure, most in zip(figures, ROWS[name].target, strict=True))


def write_table(figures: Mapping[str, Sequence[float]]) -> str:
    """Return the table in Markdown."""
    lines = ["| | before | now | at most | met |", "|---|---|---|---|---|"]
    for key, row in ROWS.items():
        met = "yes" if is_met(key, figures[key]) else "no"
        lines.append(
            f"| {row.name} | {_write(row.before)} | {_write(figures[key])} | {_write(row.target)} | {met} |"
        )
    return "\n".join(lines)


def _write(figures: Sequence[float]) -> str:
    return ", ".join(f"{figure:,}" for figure in figures) or "-"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.structure", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    options = parser.parse_args(arguments)
    figures, places = measure()
    print(write_table(figures), "", f"By hand: {'; '.join(BY_HAND)}.", *places, sep="\n")
    if sys.version_info[:2] != MEASURED_ON:
        print("The calls of 0.1.0 are from Python {}.{}, these are not.".format(*MEASURED_ON))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
