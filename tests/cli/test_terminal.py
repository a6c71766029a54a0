"""Text of commands on terminals of several widths, in pipes, and in colour."""

from __future__ import annotations

import io
import re

import pytest

from kopf_selectcache.cli._report import Problem, Report, Section
from kopf_selectcache.cli.output import width_of, write
from tests.rows import each_row

from .terminals import written_to_terminal

PROBLEM = Problem(
    "permission is missing to list, watch pods in shop", "Add to a Role in shop: " + "word " * 20
)
REPORT = Report((Section("pods", "labels='" + "x" * 100 + "'", problems=(PROBLEM,)),))
SGR = re.compile(r"\x1b\[\d+m")


def shown(text: str, columns: int = 60, **environment: str) -> str:
    return written_to_terminal(columns, lambda file: write(file, text, environment=environment))


@each_row("columns", [200, 80, 60, 40])
def test_lines_are_wrapped_to_the_width_with_later_lines_indented(columns: int) -> None:
    lines = shown(f"  ! {PROBLEM}\n", columns, NO_COLOR="1").splitlines()
    assert max(map(len, lines)) <= columns
    assert " ".join(" ".join(lines).split()) == f"! {PROBLEM}".strip()
    assert all(line.startswith("    ") for line in lines[1:])


def test_a_word_is_never_broken() -> None:
    assert "x" * 100 in shown(f"missing: {'x' * 100} y\n", 40)


def test_a_terminal_that_does_not_tell_its_width_has_80_columns() -> None:
    assert max(map(len, shown("word " * 100, 0, NO_COLOR="1").splitlines())) <= 80


@each_row(("told", "columns"), [("50", 50), ("", 70), ("0", 70), ("-5", 70), ("wide", 70)])
def test_the_environment_variable_columns_comes_before_the_width_of_the_terminal(
    told: str, columns: int
) -> None:
    lines = shown("word " * 100, 70, NO_COLOR="1", COLUMNS=told).splitlines()
    assert columns - len(" word") <= max(map(len, lines)) <= columns


def test_the_environment_variable_columns_does_not_concern_pipes() -> None:
    assert width_of(io.StringIO(), {"COLUMNS": "50"}) is None


LONG_KINDS = Report(
    (
        Section("certificaterequests.cert-manager.io/v1", "labels='app=web,tier in (gold,silver)'"),
        Section("pods", "all objects", problems=(PROBLEM,)),
    )
)


@pytest.mark.parametrize("width", [80, 60, 54])
def test_rows_that_do_not_fit_are_shown_as_a_line_for_each_column(width: int) -> None:
    lines = LONG_KINDS.text(width).splitlines()
    first = lines.index("certificaterequests.cert-manager.io/v1")
    assert [line.split()[0] for line in lines[first + 1 : first + 5]] == [
        "FILTER",
        "OBJECTS",
        "BYTES",
        "PERMISSIONS",
    ]
    second = lines.index("pods")
    assert lines[second + 1] == "  FILTER       all objects"
    assert lines[second + 5] == f"  ! {PROBLEM}."
    assert max(len(line) for line in lines if not line.startswith("  !") and "MiB" not in line) <= width


def test_rows_that_fit_are_a_table() -> None:
    assert LONG_KINDS.text(120).startswith("KIND ")


def test_marked_lines_are_coloured_unless_the_environment_forbids_it() -> None:
    text = "KIND  FILTER\n  ! wrong\nmissing: list pods\n  * odd\ntoo much: a\nplain\n"
    coloured = shown(text)
    assert SGR.sub("", coloured) == text
    assert [bool(SGR.search(line)) for line in coloured.splitlines()] == [True] * 5 + [False]
    assert shown(text, NO_COLOR="1") == shown(text, TERM="dumb") == text
    assert shown(text, NO_COLOR="") == coloured, "https://no-color.org: an empty one is none"


def test_a_pipe_gets_the_text_as_it_is() -> None:
    pipe, text = io.StringIO(), f"  ! {PROBLEM}\n"
    write(pipe, text, environment={})
    assert (pipe.getvalue(), width_of(pipe)) == (text, None)


@each_row(("width", "filter_"), [(None, 109), (200, 109), (80, 44), (40, 29)])
def test_20_filters_of_the_table_are_cut_to_fit_in_a_terminal(width: int | None, filter_: int) -> None:
    line = REPORT.text(width).splitlines()[1]
    assert len(line.split()[1]) == filter_
    assert "x" * 100 in REPORT.text(width, wide=True)
