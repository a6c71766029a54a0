"""docs/dev/architecture.md: the places that it names exist."""

from __future__ import annotations

import re

from tests.rows import each_row

from .pages import DOCS, ROOT

PACKAGE = ROOT / "kopf_selectcache"
CORE = ("assignment", "protocol", "selection", "store")
AROUND = ("bench", "examples", "tests")
PAGE = (DOCS / "dev/architecture.md").read_text()
ROWS = [
    line
    for line in PAGE.partition("## To change something")[2].partition("\n## ")[0].splitlines()
    if line[:2] == "| "
][1:]


@each_row("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_each_name_of_a_row_is_in_a_module_that_the_row_names(row: str) -> None:
    quoted = re.findall(r"`([^`]+)`", row)
    modules = [
        PACKAGE / each for each in quoted if re.fullmatch(r"[\w/]+(\.py|/)", each) and each != "attacks.py"
    ]
    assert all(each.exists() for each in modules), modules
    source = "".join(each.read_text() for each in modules if each.is_file())
    names = [each for each in quoted if re.fullmatch(r"_?[A-Z]\w*(\.\w+)?|_?[a-z]+(_[a-z]+)+|_[a-z]+", each)]
    for name in names:
        for part in name.split("."):
            assert re.search(rf"\b{part}\b", source), f"{name} is in none of {modules}"


@each_row("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_the_tests_of_a_row_exist(row: str) -> None:
    places = re.findall(r"tests/[\w/]+(?:\.\w+)?", row)
    assert places
    assert all((ROOT / each).exists() for each in places), places


def test_the_table_has_each_folder_of_the_package() -> None:
    listed = PAGE.partition("## Folders")[2].partition("\n## ")[0]
    folders = {each.parent.name for each in PACKAGE.glob("*/__init__.py")}
    assert folders == {*re.findall(r"`(\w+)/`", listed)} - {"api", "faults", "formats"} - {*CORE} - {*AROUND}
    assert {each.parent.name for each in (PACKAGE / "core").glob("*/__init__.py")} == {*CORE}


def test_each_file_that_the_page_names_exists() -> None:
    files = re.findall(r"`([\w/]+/\w+\.py)`", PAGE)
    assert len(files) > 20
    assert [each for each in files if not (PACKAGE / each).exists()] == []
