"""What the pages of docs/ promise to have: no option is missing, and no default is out of date. What they
show, doctest runs."""

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import MISSING, fields
from operator import attrgetter
from pathlib import Path

import pytest

from bench.comparison import CONTENTS, OUTCOMES, section
from kopf_selectcache import OutsideFilter
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.testing import EmbeddedCluster, FakeCache, Requests
from tests.cache.world import reading

from .pages import fences

DOCS = Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"
OUTCOMES_IN_README = {
    "right": "right",
    "right, after its process ended and was started again": "restarted: right",
    "wrong": "(restarted: )?wrong.*|.*before the fault",
    "its process ended, and again after its restart": "the process ended, and again.*",
    "no result: Kopf was told of nothing and called no handler": "(restarted: )?not called",
    "no result: the fault cannot happen to it": "never asks so",
}


def test_each_option_has_its_section_with_its_default() -> None:
    sections = re.findall(r"^## `(\w+)` = (.+)$", (DOCS / "settings.md").read_text(), flags=re.MULTILINE)
    shown = [
        (name, "nothing" if default == "nothing" else ast.literal_eval(default)) for name, default in sections
    ]
    options = [
        (option.name, "nothing" if option.default is MISSING else option.default)
        for option in fields(SelectCacheSettings)
    ]
    assert shown == options


def test_the_comparison_in_the_readme_counts_that_of_its_page() -> None:
    rows = faults_of(CONTENTS)
    counts = [
        Counter(cell.partition(":")[0] for cell in column) for column in list(zip(*rows, strict=True))[2:]
    ]
    kept = {row[0]: row[1:] for row in rows_of(README.read_text()) if len(row) == 5}
    for words, seen in {
        "what the server has": "equal",
        "something else, a minute or two later": "stale",
        "its process ended": "the process ended",
        "the fault cannot happen to it": "never asks so",
    }.items():
        assert kept[words] == [str(count[seen]) for count in counts]
    assert f"{len(rows)} faults" in README.read_text()


def test_the_outcomes_in_the_readme_count_those_of_the_page() -> None:
    columns = list(zip(*faults_of(OUTCOMES), strict=True))[2:]
    shown = {row[0]: row[1:] for row in rows_of(README.read_text()) if len(row) == 5}
    for words, pattern in OUTCOMES_IN_README.items():
        assert shown[words] == [
            str(sum(1 for cell in column if re.fullmatch(pattern, cell))) for column in columns
        ]
    assert all(
        any(re.fullmatch(pattern, cell) for pattern in OUTCOMES_IN_README.values())
        for column in columns
        for cell in column
    )
    for row in rows_of(section(DOCS.joinpath("comparison.md").read_text(), OUTCOMES)):
        assert row[1] not in shown or shown[row[1]] == row[2:]


def faults_of(begin: str) -> list[list[str]]:
    """The rows of a table of the comparison that have the number of a fault."""
    return [
        row
        for row in rows_of(section(DOCS.joinpath("comparison.md").read_text(), begin))
        if row[0][:1].isdecimal()
    ]


def test_the_readme_shows_the_error_as_it_is() -> None:
    (shown,) = (fence.text for fence in fences(README, "text") if "OutsideFilter" in fence.text)
    with pytest.raises(OutsideFilter) as info:
        reading("app=web").get("pods", "db-1", "shop")
    assert shown.split() == f'cache.get("pods", "db-1", "shop") OutsideFilter: {info.value}'.split()


def rows_of(text: str) -> list[list[str]]:
    """The rows of the tables of a text, cell by cell."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_the_test_kit_is_called_as_is_said() -> None:
    text = (DOCS / "testing.md").read_text()
    shown = [
        line
        for block in re.findall(r"^```text\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    calls = {
        call: attrgetter(call.removeprefix("requests."))(
            Requests if call.startswith("requests.") else EmbeddedCluster
        )
        for call in (line.partition("(")[0].removeprefix("cluster.") for line in shown)
        if call != "FakeCache"
    }
    expected = [f"cluster.{call}{bare(method)}" for call, method in calls.items()]
    assert [line for line in shown if line.startswith("cluster.")] == expected
    assert [line for line in shown if not line.startswith("cluster.")] == [
        f"FakeCache{bare(FakeCache.__init__)}"
    ]


def bare(function: Callable[..., object]) -> str:
    """A signature as it is called, without types."""
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=each.empty) for name, each in signature.parameters.items() if name != "self"
    ]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def test_the_tests_of_testing_md_pass(tmp_path: Path) -> None:
    text = (DOCS / "testing.md").read_text()
    operator, *tests = [
        each
        for each in re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        if ">>>" not in each
    ]
    definition = (DOCS.parent / "examples/04-application/crd.yaml").read_text()
    (tmp_path / "crd.yaml").write_text(
        definition.replace("Application", "WebApp").replace("application", "webapp")
    )
    (tmp_path / "my_operator.py").write_text(operator)
    (tmp_path / "test_my_operator.py").write_text("\n".join(tests))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, f"{text.count('def test_')} passed" in ran.stdout) == (0, True), ran.stdout


def test_examples_name_manifests_that_there_are() -> None:
    named = {
        page.parent / file: page
        for page in DOCS.parent.glob("examples/0*/README.md")
        for file in re.findall(r"(?:--load|apply -f) (\S+\.yaml)", page.read_text())
    }
    assert [str(file) for file in named if not file.exists()] == []
    assert set(DOCS.parent.glob("examples/0*/*.yaml")) == named.keys()
