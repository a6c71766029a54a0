"""Applies each seeded bug to a copy of the package, runs the tests that must catch it there, and prints what
did: `make mutants`. Arguments are words of names, and numbers of promises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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


def tried(mutant: Mutant | FeatureMutant) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        for part in ("kopf_selectcache", "tests"):
            # With what is compiled: Python compiles the file that changes again.
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns(".*"))
        for file in ("setup.cfg", "pytest_kopf_selectcache.py"):
            shutil.copy(ROOT / file, copy)
        mutated = copy / "kopf_selectcache" / mutant.file
        source = mutated.read_text(encoding="utf-8")
        if (times := source.count(mutant.old)) != 1:
            return Outcome(mutant, (), f"its text is {times} times in {mutant.file}")
        mutated.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
        return judged(mutant, copy)


def judged(mutant: Mutant | FeatureMutant, copy: Path) -> Outcome:
    outcome = copy / "outcome"
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


def main(wanted: list[str]) -> int:
    every: list[Mutant | FeatureMutant] = [*MUTANTS, *FEATURES]
    mutants = [
        mutant
        for mutant in every
        if not wanted or any(word in mutant.name or word == str(mutant.breaks) for word in wanted)
    ]
    survivors = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for mutant, caught, why in pool.map(tried, mutants):
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
