"""Each seeded bug can be applied and names tests that exist, and tests/GUARANTEES.md lists them. Of each bug
that there was before, something says what guards its promise now."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.model.mistakes import MISTAKES
from tests.rows import each_row

from .features import FEATURES, FeatureMutant
from .guarantees import PAGE, promises, written
from .mutant import PRODUCTS, Mutant
from .seeded import LEAST, LEAST_OF_A_PRODUCT, MUTANTS

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PROMISES = range(1, 22)
EVERY: tuple[Mutant | FeatureMutant, ...] = (*MUTANTS, *FEATURES)
OF_BEFORE = 1211
"""So many names had seeded bugs when before.txt was begun."""


@cache
def functions(file: str) -> frozenset[str]:
    return frozenset(re.findall(r"^ *(?:async )?def (\w+)", source_of(file), re.MULTILINE))


@cache
def source_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@each_row("mutant", EVERY, ids=lambda mutant: mutant.name)
def test_a_seeded_bug_can_be_applied_in_one_place_and_makes_a_difference(
    mutant: Mutant | FeatureMutant,
) -> None:
    source = source_of(f"kopf_selectcache/{mutant.file}")
    assert source.count(mutant.old) == 1, f"the text is not in one place of {mutant.file}: adapt its `old`"
    assert mutant.new != mutant.old


def test_each_seeded_bug_can_be_parsed_and_uses_no_name_that_its_file_does_not_have(tmp_path: Path) -> None:
    """It would crash instead, and what the code does after a crash shows nothing about the bug."""
    pytest.importorskip("ruff")
    for number, mutant in enumerate(EVERY):
        source = source_of(f"kopf_selectcache/{mutant.file}")
        mutated = tmp_path / f"{number}.py"
        mutated.write_text(f"# {mutant.name}\n{source.replace(mutant.old, mutant.new)}", encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821,F823", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_the_page_of_the_tests_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "python -m tests.mutants.guarantees writes it"


def test_no_two_seeded_bugs_have_one_name() -> None:
    names = Counter(mutant.name for mutant in EVERY)
    assert [name for name, count in names.items() if count > 1] == []


def test_there_are_as_many_seeded_bugs_as_there_must_be() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= LEAST
    of_products = Counter(mutant.product for mutant in MUTANTS if mutant.product)
    assert set(of_products) == set(PRODUCTS)
    assert min(of_products.values()) >= LEAST_OF_A_PRODUCT


def test_each_promise_has_a_bug_that_breaks_it() -> None:
    assert list(promises()) == list(PROMISES)
    assert {mutant.breaks for mutant in MUTANTS} == {*PROMISES}


def test_each_test_that_is_to_catch_a_bug_exists() -> None:
    named = {test.partition("[")[0] for mutant in MUTANTS for test in mutant.tests}
    assert {
        test
        for test in named
        for file, _, name in [test.partition("::")]
        if not (ROOT / file).exists() or name not in functions(file)
    } == set()
    assert [mutant.name for mutant in MUTANTS if not mutant.tests] == []


# ---- Bugs of before.


@cache
def gone() -> dict[str, str]:
    """Return why the code of a seeded bug is gone, and what guards its promise now."""
    found = dict[str, str]()
    for key, value in tomllib.loads((HERE / "gone.toml").read_text(encoding="utf-8")).items():
        found |= dict.fromkeys(value, key) if isinstance(value, list) else {key: value}
    return found


def of_before() -> dict[str, str]:
    """Return the name that each seeded bug of before.txt had last."""
    lines = (HERE / "before.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition(" -> ") for line in lines if not line.startswith("#")]
    renamed = {name: later for name, _, later in pairs if later}

    def last(name: str) -> str:
        return last(renamed[name]) if name in renamed else name

    return {name: last(name) for name, _, _ in pairs}


def test_each_seeded_bug_of_before_is_one_of_today_or_in_the_table_of_those_whose_code_is_gone() -> None:
    today = {mutant.name for mutant in EVERY}
    before = of_before()
    assert len(before) >= OF_BEFORE
    assert {name: last for name, last in before.items() if last not in today and last not in gone()} == {}


def test_no_seeded_bug_of_today_is_in_the_table_of_those_whose_code_is_gone() -> None:
    assert [mutant.name for mutant in EVERY if mutant.name in gone()] == []


def test_the_tests_that_guard_the_promises_of_bugs_whose_code_is_gone_exist() -> None:
    known = {mutant.name for mutant in EVERY} | {mistake.name for mistake in MISTAKES}
    unknown = []
    for reason in set(gone().values()):
        guards = re.findall(r"`([^`]+)`", reason)
        assert guards, f"nothing is named that guards it: {reason}"
        for guard in guards:
            file, separator, name = guard.partition("::")
            is_known = (ROOT / file).exists() and name in functions(file) if separator else guard in known
            if not is_known and (separator or " " in guard):
                unknown.append(guard)
    assert unknown == []
