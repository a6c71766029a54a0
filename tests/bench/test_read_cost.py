"""The comparison of reads with plain ones."""

from __future__ import annotations

import pytest

from bench import read_cost
from bench.read_cost import Row


def test_each_read_is_compared_with_a_plain_one(capsys: pytest.CaptureFixture[str]) -> None:
    read_cost.main(["--objects=20", "--turns=2", "--seconds=0"])
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == len(read_cost.rows(20)) + len(read_cost.packed_rows(20)) == 15
    assert all("x | " in line for line in lines)


def test_the_figure_is_the_median_of_the_ratios_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([2.0, 4.0, 1.0, 3.0, 1.0, 4.0])
    monkeypatch.setattr(read_cost, "calls_in", lambda *_: 1)
    monkeypatch.setattr(read_cost, "measured", lambda *_: next(times))
    row = Row("slow", "get", lambda: None, lambda: None)
    assert read_cost.compared(row, turns=3).median == 3.0
