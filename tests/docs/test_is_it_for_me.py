"""docs/is-it-for-me.md: the figures that anyone can repeat are those of the benches."""

from __future__ import annotations

import re

from .pages import DOCS, FAULTS, ROOT, rows_of, section

PAGE = DOCS / "is-it-for-me.md"
SECRETS = "## An operator that copies Secrets"
SHOWN = {row[0]: row[1:] for row in rows_of(section(PAGE, "## What we measured"))}
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_operator_that_copies_secrets_has_the_figures_of_its_bench() -> None:
    measured = {row[0]: row[1:3] for row in rows_of(section(FAULTS, SECRETS))}
    assert SHOWN["copies Secrets: requests for a script of changes"] == measured["requests"]
    restart = measured["requests of a restart with nothing to do"]
    assert SHOWN["copies Secrets: requests of an idle restart"] == restart
    assert SHOWN["copies Secrets: CPU"] == [f"{each} s" for each in measured["CPU, s"]]
    assert SHOWN["copies Secrets: watches"] == measured["- watch"]


def test_the_faults_are_those_of_the_comparison() -> None:
    summary = section(FAULTS, "## Summary")
    (faults,) = re.findall(r"after each of (\d+) faults", summary)
    (ours, index) = next(row[1:3] for row in rows_of(summary) if row[0] == "equal to the server")
    shown = SHOWN[f"contents equal to the server after {faults} faults"]
    assert shown == [f"{index} times", f"{ours} times"]


def test_times_and_sizes_are_those_of_readme() -> None:
    (found,) = re.findall(r"after ([\d.]+) s with this cache, and after ([\d.]+) s", README)
    (shown,) = (row for words, row in SHOWN.items() if "@kopf.index" in words)
    assert shown == [f"{each} s" for each in reversed(found)]
    sizes = {row[0]: row[1] for row in rows_of(README)}
    replicas, unlike = (sizes[f"memory per object, {which}"] for which in ("mostly replicas", "no two alike"))
    text = PAGE.read_text(encoding="utf-8")
    assert f"{replicas} for each pod of a ReplicaSet, {unlike} if no two are alike" in text
