"""The calls of a reconciler, the time until all states are reconciled, and the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import reconcile_cost
from bench.building import LeftOut, Recipe
from bench.reconcile_cost import GO, OURS, QUICK, START, Figures, measure, report
from kopf_selectcache.testing import EmbeddedCluster
from tests.conftest import client_of


def test_each_script_is_played_to_each_contender_and_one_without_its_toolchain_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unbuilt(recipe: Recipe, **_: object) -> None:
        raise LeftOut(f"{recipe.tool} is not installed")

    monkeypatch.setattr(reconcile_cost, "built", unbuilt)
    monkeypatch.setattr(reconcile_cost, "QUIET", 0.1)
    scripts = [
        replace(each, changes=10, burst=min(each.burst, 5), takes=min(each.takes, 0.01)) for each in QUICK
    ]
    with EmbeddedCluster(garbage_collection=False).in_thread() as cluster:
        figures = measure(client_of(cluster), 3, scripts, 1)
    assert list(figures) == [START, *(each.name for each in scripts)]
    assert all(list(contenders) == [OURS] for contenders in figures.values())
    assert figures[START][OURS][0].runs == 3
    assert all(0 < figures[each.name][OURS][0].runs <= 10 for each in scripts)
    assert f"{GO} is left out: go is not installed" in capsys.readouterr().err


def test_the_table_has_medians_and_their_ratios_to_ours() -> None:
    ours, other = Figures(100, 50, 0.2, 1.0), Figures(100, 100, 0.4, 0.5)
    lines = report({"steady": {OURS: [ours, ours, other], GO: [other]}}).splitlines()
    assert lines[2:] == [
        f"| steady | 100 | {OURS} | 50 | 0.20 | 1.00 |",
        f"| steady | 100 | {GO} | 100 (2.00x) | 0.40 (2.00x) | 0.50 (0.50x) |",
    ]
