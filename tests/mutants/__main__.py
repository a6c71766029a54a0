"""Applies each seeded bug to a copy of the package, runs the tests that must catch it there, and prints what
did: `make mutants`. Arguments are words of names, and numbers of promises. `--tests` prints the tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from .features import FEATURES, FeatureMutant
from .mutant import Mutant
from .seeded import MUTANTS

ROOT = Path(__file__).parents[2]
AT_ONCE = 2
LONGEST = 900.0
"""So many seconds for the tests of one mutant; a timeout catches nothing."""


class Outcome(NamedTuple):
    mutant: Mutant | FeatureMutant
    caught: tuple[tuple[str, str], ...]
    """By which test, and what it said."""
    why: str
    """Why that is not enough; empty if each of its tests has caught it."""


class Copies:
    """Copies of the package and its tests, one for each seeded bug that is tried at the same time."""

    def __init__(self, folder: Path) -> None:
        self._free = SimpleQueue[Path]()
        for number in range(AT_ONCE):
            copy = folder / str(number)
            for part in ("kopf_selectcache", "tests"):
                # With what is compiled: Python compiles the file that changes again.
                shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns(".*"))
            for file in ("setup.cfg", "pytest_kopf_selectcache.py"):
                shutil.copy(ROOT / file, copy)
            self._free.put(copy)

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[Path]:
        """Yield a copy in which one file of the package has another text."""
        copy = self._free.get()
        changed = copy / "kopf_selectcache" / file
        original = changed.with_suffix(".original")
        changed.replace(original)
        _forget_compiled(changed)
        changed.write_text(text, encoding="utf-8")
        try:
            yield copy
        finally:
            original.replace(changed)
            _forget_compiled(changed)
            self._free.put(copy)


def _forget_compiled(source: Path) -> None:
    """Remove what Python compiled: it would not notice a text of the same second and length."""
    for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*"):
        compiled.unlink()


def tried(mutant: Mutant | FeatureMutant, copies: Copies) -> Outcome:
    source = (ROOT / "kopf_selectcache" / mutant.file).read_text(encoding="utf-8")
    if (times := source.count(mutant.old)) != 1:
        return Outcome(mutant, (), f"its text is {times} times in {mutant.file}")
    with copies.changed(mutant.file, source.replace(mutant.old, mutant.new)) as copy:
        return judged(mutant, copy)


def judged(mutant: Mutant | FeatureMutant, copy: Path) -> Outcome:
    outcome = copy / "outcome"
    outcome.unlink(missing_ok=True)
    where = subprocess.run(
        [
            sys.executable,
            "-c",
            "import importlib.util; print(importlib.util.find_spec('kopf_selectcache').origin)",
        ],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    if str(copy) not in where.stdout:
        return Outcome(mutant, (), f"it cannot be imported: {where.stderr[-200:] or where.stdout}")
    env = os.environ | {"PYTHONPATH": str(copy), "MUTANT_OUTCOME": str(outcome)}
    said = ""
    for test in mutant.tests:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutants.judging",
            test,
        ]
        try:
            ran = subprocess.run(
                command, cwd=copy, env=env, capture_output=True, text=True, timeout=LONGEST, check=False
            )
        except subprocess.TimeoutExpired:
            return Outcome(mutant, (), f"{test} took too long")
        said = ran.stdout.strip()[-300:]
    told = (
        [json.loads(line) for line in outcome.read_text(encoding="utf-8").splitlines()]
        if outcome.exists()
        else []
    )
    caught = {
        test: next((each for each in told if each["asserted"] and each["test"].startswith(test)), None)
        for test in mutant.tests
    }
    survived = [test for test, by in caught.items() if by is None]
    others = "; ".join(f"{each['error']}: {each['said']}" for each in told if not each["asserted"])
    why = f"{', '.join(survived)} did not assert it: {others or said}" if survived else ""
    return Outcome(mutant, tuple((by["test"], by["said"]) for by in caught.values() if by is not None), why)


def proofs() -> list[str]:
    """Return the tests that seeded bugs name, each once: no case of a test that is named as a whole."""
    every: list[Mutant | FeatureMutant] = [*MUTANTS, *FEATURES]
    named = {test for mutant in every for test in mutant.tests}
    return sorted(
        test for test in named if test.partition("[")[0] == test or test.partition("[")[0] not in named
    )


def main(wanted: list[str]) -> int:
    if wanted == ["--tests"]:
        print("\n".join(proofs()))
        return 0
    every: list[Mutant | FeatureMutant] = [*MUTANTS, *FEATURES]
    mutants = [
        mutant
        for mutant in every
        if not wanted or any(word in mutant.name or word == str(mutant.breaks) for word in wanted)
    ]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        copies = Copies(Path(folder))
        for mutant, caught, why in pool.map(partial(tried, copies=copies), mutants):
            survivors += bool(why)
            product = f" ({mutant.product})" if mutant.product else ""
            print(
                f"{'SURVIVED' if why else 'caught':8}  {mutant.breaks:>3}  {mutant.name}{product}", flush=True
            )
            for test, said in caught:
                print(f"              {test.removeprefix('tests/')}\n              {said[:160]}")
            if why:
                print(f"              {why[:1000]}")
    print(f"{len(mutants) - survivors} of {len(mutants)} seeded bugs are caught by an assertion")
    return 1 if survivors or not mutants else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
