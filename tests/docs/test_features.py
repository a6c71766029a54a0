"""tests/FEATURES.md is generated, and each of its rows names tests and seeded bugs that exist."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.features import PAGE, ROWS_OF, SOURCE, Row, read, rows, write
from tests.mutants.features import FEATURES, FeatureMutant
from tests.mutants.mutant import Mutant
from tests.mutants.seeded import MUTANTS
from tests.rows import each_row

Function = ast.FunctionDef | ast.AsyncFunctionDef

ROOT = Path(__file__).parents[2]
STATES = ("works", "partly", "planned", "declined")
OF_A_SERVER = {"server", "api", "place"}
"""Fixtures of tests that run on both servers, and those of their file that take one of these."""
ALL: list[Mutant | FeatureMutant] = [*MUTANTS, *FEATURES]
BUGS = {bug.name: bug for bug in ALL}


@cache
def functions(file: str) -> dict[str, Function]:
    """Return the functions of a file, those of classes by `Class::function`."""
    return dict(_functions(ast.parse((ROOT / file).read_text(encoding="utf-8"))))


def _functions(tree: ast.Module | ast.ClassDef, within: str = "") -> Iterator[tuple[str, Function]]:
    for each in tree.body:
        if isinstance(each, Function):
            yield within + each.name, each
        elif isinstance(each, ast.ClassDef):
            yield from _functions(each, f"{each.name}::")


def exists(test: str) -> bool:
    file, _, name = test.partition("::")
    return (ROOT / file).is_file() and name in functions(file)


def runs_on_both(test: str) -> bool:
    file, _, name = test.partition("::")
    if not file.startswith("tests/conformance/") or "RUNS_ON" in (ROOT / file).read_text(encoding="utf-8"):
        return False
    return _needs_server(functions(file), name)


def _needs_server(known: dict[str, Function], name: str) -> bool:
    arguments = {each.arg for each in known[name].args.args}
    return bool(arguments & OF_A_SERVER) or any(
        _needs_server(known, each) for each in arguments & known.keys() - {name}
    )


def test_the_page_matches_its_source() -> None:
    """After a change of tests/features.toml, `python -m tests.docs.features` writes the page anew."""
    assert PAGE.read_text(encoding="utf-8") == write(read(SOURCE.read_text(encoding="utf-8")))


def test_there_is_each_row_of_the_reference_once() -> None:
    names = [f"{part}{number + 1}" for part, count in ROWS_OF.items() for number in range(count)]
    assert [row.name for row in rows()] == names


def test_only_tests_of_a_server_count_as_those_of_both() -> None:
    assert runs_on_both("tests/conformance/test_live.py::test_a_hidden_object_is_named_and_adopted")
    assert not runs_on_both("tests/cache/test_reads.py::test_list_is_complete_or_an_error")


@each_row("row", rows(), ids=lambda row: row.name)
def test_a_row_has_all_that_its_state_needs(row: Row) -> None:
    assert row.state in STATES
    assert bool(row.why) is (row.state != "works")
    assert "|" not in row.reference + row.ours + row.why
    assert [test for test in row.tests if not exists(test)] == []
    assert [name for name in row.mutants if name not in BUGS] == []
    assert [name for name in row.mutants if not {*BUGS[name].tests} & {*row.tests}] == []
    if row.state == "works":
        both = {test for test in row.tests if runs_on_both(test)}
        assert [name for name in row.mutants if both & {*BUGS[name].tests}], "a bug that such a test catches"


def test_each_seeded_bug_of_a_feature_is_in_its_row() -> None:
    named = {(row.name, name) for row in rows() for name in row.mutants}
    assert [bug.name for bug in FEATURES if (bug.breaks, bug.name) not in named] == []
