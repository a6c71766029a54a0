"""The CPU time from a change to its handler."""

from __future__ import annotations

import pytest

from bench import change_cost
from bench.building import LeftOut, Recipe
from bench.change_cost import CONTENDERS, GO, OURS, measure, report


def test_each_contender_is_measured_with_the_same_changes_and_one_without_its_toolchain_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unbuilt(recipe: Recipe, **_: object) -> None:
        raise LeftOut(f"{recipe.tool} is not installed")

    monkeypatch.setattr(change_cost, "built", unbuilt)
    monkeypatch.setattr(change_cost, "PAUSE", 0)
    figures = measure(2, 3, 1)
    assert list(figures) == [each for each in CONTENDERS if each != GO]
    assert all(len(spent) == 1 and spent[0] > 0 for spent in figures.values())
    assert f"{GO} is left out: go is not installed" in capsys.readouterr().err


def test_the_table_has_the_median_of_each_contender_and_its_ratio_to_ours() -> None:
    lines = report({OURS: [100.0, 300.0, 200.0], GO: [50.0, 50.0, 80.0]}).splitlines()
    assert [line.split()[-1] for line in lines] == ["ratio", "1.00", "0.25"]
    assert lines[2].split()[:2] == [GO, "50"]
