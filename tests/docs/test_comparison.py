"""The tables of bench/FAULTS.md: the comparison of results; each table has every fault and every
contender. docs/comparison.md has figures of these tables and of bench/results.json.
"""

from __future__ import annotations

import re

import pytest

from bench.clustersecret import ACCEPTED, AFTER_CHANGES, TABLE
from bench.comparison import (
    CONTENTS,
    DOCUMENT,
    END,
    OUTCOMES,
    OWN,
    RECORDS,
    SUMMARY,
    TABLES,
    Cell,
    cells,
    columns,
    section,
    shown,
    summarize,
    table,
    written,
)
from bench.contenders.asking import Held
from bench.faults import ROWS, Row
from bench.measuring import middle
from bench.outcomes import REPEATED, WRONG
from bench.report import RESULTS, SIZE
from bench.run import read_results
from bench.staging import CONTENDERS, compared
from bench.targets import CONTROLLER, GROUPED, INFORMER, KUBE_RS, UNRELATED, Run
from bench.whole_operator import TABLE as WHOLE
from tests.ports.script import FAULTS, FORGOTTEN
from tests.rows import each_row

from .pages import DOCS, rows_of

RIGHT: Held = {"web-1": ["u1", "5"], "web-2": ["u2", "6"]}
THERE: Held = {**RIGHT, "db-1": ["u3", "3"]}


@each_row(
    ("held", "words"),
    [
        (RIGHT, "equal"),
        ({}, "holds nothing"),
        ({**RIGHT, "web-3": ["u4", "4"]}, "stale: keeps 1 deleted"),
        ({**RIGHT, "db-1": ["u3", "3"]}, "stale: keeps 1 that left the filter"),
        ({"web-1": ["u1", "5"]}, "stale: lacks 1"),
        ({**RIGHT, "web-2": ["u2", "4"]}, "stale: has an old version of 1"),
        ({**RIGHT, "web-2": ["u0", "6"]}, "stale: has an old version of 1"),
        (
            {"web-1": ["u1", "2"], "web-3": ["u4", "4"]},
            "stale: keeps 1 deleted, lacks 1, has an old version of 1",
        ),
    ],
)
def test_held_objects_are_compared_with_the_list_of_the_server(held: Held, words: str) -> None:
    assert compared(held, right=RIGHT, there=THERE) == words


@pytest.mark.parametrize(
    ("begin", "other"), [(CONTENTS, OUTCOMES), (OUTCOMES, CONTENTS)], ids=["contents", "outcomes"]
)
def test_a_new_table_takes_the_place_of_the_old_and_is_read_back(begin: str, other: str) -> None:
    row = Row("6", "a fault", lambda _: None)
    old = f"before\n{CONTENTS}\nold\n{END}\nbetween\n{OUTCOMES}\nold\n{END}\nafter\n"
    seen = {("a fault", contender.name): f"of {contender.name}" for contender in CONTENDERS}
    new = written(old, begin, table([row], seen))
    assert (shown(new, begin), shown(new, other)) == (seen, {})
    assert (
        new.startswith("before\n"),
        "\nbetween\n" in new,
        new.endswith("\nafter\n"),
        new.count("old"),
    ) == (True, True, True, 1)


@pytest.mark.parametrize("begin", TABLES.values(), ids=TABLES)
def test_the_page_has_a_result_for_every_fault_and_every_contender_and_for_no_others(begin: str) -> None:
    seen = shown(DOCUMENT.read_text(), begin)
    assert list(seen) == [(cell.row.words, cell.contender.name) for cell in cells() if cell.begin == begin]
    assert all(seen.values())


def test_each_fault_has_an_outcome_and_so_has_each_repeated_change() -> None:
    def is_outcome(cell: Cell) -> bool:
        return cell.begin == OUTCOMES and cell.contender is CONTENDERS[0]

    faults = [row.words for row in ROWS if row.numbers[:1].isdecimal()]
    assert [cell.row.words for cell in cells() if is_outcome(cell)] == faults + [
        row.words for row in REPEATED
    ]


@pytest.mark.parametrize(("begin", "name"), [(OUTCOMES, "cache"), (RECORDS, "on.change"), (OWN, "fed")])
def test_no_outcome_of_ours_is_wrong(begin: str, name: str) -> None:
    seen = shown(DOCUMENT.read_text(), begin)
    ours = {words: cell for (words, contender), cell in seen.items() if contender == name}
    assert ours
    assert {
        words: cell for words, cell in ours.items() if WRONG in cell and not cell.startswith("0 of ")
    } == {}


def test_fed_handlers_are_right_after_each_fault_and_their_operator_lives() -> None:
    seen = shown(DOCUMENT.read_text(), OWN)
    faults = {row.words for row in ROWS if not row.is_read}
    assert {cell for (words, name), cell in seen.items() if name == "fed" and words in faults} == {"right"}


def test_no_copy_of_example_10_is_wrong_and_its_idle_restart_writes_nothing() -> None:
    plain, ours = (
        {row[0]: row[at] for row in rows_of(section(DOCUMENT.read_text(), TABLE))} for at in (1, 2)
    )
    wrong = {words for words in ours if words.startswith("wrong copies")}
    assert wrong == {AFTER_CHANGES, *(f"wrong copies: {stage.words}" for stage in FAULTS)}
    assert {ours[words] for words in (*wrong, "the process ended", ACCEPTED)} == {"0"}
    assert plain[f"wrong copies: {FORGOTTEN.words}"] != "0"


def test_the_summary_counts_the_results_of_the_tables() -> None:
    text = DOCUMENT.read_text()
    assert summarize(text) == text
    faults = len(columns(text, CONTENTS)[0])
    assert f"each of {faults} faults" in text
    for begin, patterns in SUMMARY.items():
        for column in columns(text, begin):
            assert len(column) == faults
            assert all(any(re.fullmatch(each, cell) for each in patterns.values()) for cell in column)


USERS = (DOCS / "comparison.md").read_text(encoding="utf-8")
SUMMARIES = rows_of(DOCUMENT.read_text(encoding="utf-8").partition("## Contents")[0])


def test_the_page_of_users_has_the_summary_of_the_contents() -> None:
    counts = {row[0]: row[1:4] for row in SUMMARIES[2:6]}
    found = {row[0]: row[1:] for row in rows_of(USERS)}
    assert "equal to the server" in counts
    assert {words: found.get(words) for words in counts} == counts


def test_the_page_of_users_has_the_outcomes_of_kopfs_own_handlers() -> None:
    (right,) = (row[1:] for row in SUMMARIES if row[0] == "handlers right")
    (again,) = (row[1] for row in SUMMARIES if row[0].startswith("handlers right, after"))
    assert f"after all {right[1]} faults. Plain Kopf does after {right[0]}, and after {again} more" in USERS
    seen = shown(DOCUMENT.read_text(encoding="utf-8"), OUTCOMES)
    assert seen["nothing goes wrong, and a pod is deleted", "informer"] == "4 of 10 wrong"
    assert "wrong 4 times out of 10 after a deletion" in USERS


@each_row(
    ("heading", "peer", "key", "scale", "said"),
    [
        ("## The Python", INFORMER, "per object", 1e-3, "94 KB"),
        ("## The Python", INFORMER, "sync cpu", 1, "14.3 s"),
        ("## The Python", INFORMER, "get", 1, "0.7 µs"),
        ("## controller", CONTROLLER, "per object", 1e-3, "17.5 KB"),
        ("## controller", CONTROLLER, "empty", 1e-6, "26 MB"),
        ("## kube-rs", KUBE_RS, "per object", 1e-3, "69 KB"),
        ("## kube-rs", "kube-rs-stripped", "per object", 1e-3, "29 KB"),
        ("## kube-rs", KUBE_RS, "sync cpu", 1, "2.4 s"),
        ("## kube-rs", KUBE_RS, "empty", 1e-6, "7.6 MB"),
        ("## kube-rs", KUBE_RS, "get", 1, "0.1 µs"),
        ("## Java", "fabric8", "per object", 1e-3, "81 KB"),
        ("## Java", "fabric8", "sync cpu", 1, "7.6 s"),
        ("## Java", "fabric8", "empty", 1e-6, "100 MB"),
        ("## Java", "fabric8", "get", 1, "0.09 µs"),
        ("## kube-rs", "cache", "per object", 1e-3, "1.4 KB"),
        ("## kube-rs", "cache", "sync cpu", 1, "1.3 s"),
        ("## Java", "cache", "empty", 1e-6, "57 MB"),
    ],
)
def test_the_page_of_users_has_the_figures_of_the_bench(
    heading: str, peer: str, key: str, scale: float, said: str
) -> None:
    results = middle(read_results(RESULTS)[1])
    figure = Run([each for each in results if each.data == GROUPED]).get(peer, SIZE, key)
    assert figure is not None
    part = USERS.partition(heading)[2].partition("\n## ")[0]
    assert said in part
    assert float(said.split(maxsplit=1)[0]) == pytest.approx(figure * scale, rel=0.1)


def test_the_page_of_users_has_the_figures_of_unrelated_pods() -> None:
    results = middle(read_results(RESULTS)[1])
    run = Run([each for each in results if each.data == UNRELATED])
    assert f"faster: {run.get(CONTROLLER, SIZE, 'get'):.1f} µs" in USERS
    assert f"each takes {(run.get('cache', SIZE, 'per object') or 0) / 1e3:.1f} KB" in USERS


def test_the_page_of_users_has_the_cpu_of_whole_operators() -> None:
    rows = rows_of(section(DOCUMENT.read_text(encoding="utf-8"), WHOLE))
    of_events = [row for row in rows if row[:2] == ["@kopf.on.event", "20,000"]]
    cpu = {row[2]: f"{float(row[5].split(maxsplit=1)[0]):.1f} s" for row in of_events}
    assert f"{cpu['controller-runtime']} of CPU until all handlers have run" in USERS
    assert f"this cache it's {cpu['one watch']}, and with plain Kopf {cpu['plain Kopf']}" in USERS
