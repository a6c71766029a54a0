"""The comparison of reads with plain ones."""

from __future__ import annotations

from typing import Any

import pytest

from bench import read_cost
from bench.read_cost import Row


def test_each_read_is_compared_with_a_plain_one(capsys: pytest.CaptureFixture[str]) -> None:
    read_cost.main(["--objects=20", "--turns=2", "--seconds=0"])
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == len(read_cost.rows(20)) + len(read_cost.packed_rows(20)) == 15
    assert all("x | " in line for line in lines)


def test_the_reads_of_a_split_cache_have_the_answers_that_their_names_say() -> None:
    calls = {row.name: row.call for row in read_cost.rows(20)}
    assert calls["split: get, absent"]() is None
    assert len(calls["split: hidden"]()) == 20  # type: ignore[arg-type]  # It is a list.
    pods: list[Any] = [
        calls[name]() for name in ("get(at_least=)", "get in a snapshot", "split: get, inside")
    ]
    for pod in pods:
        del pod["metadata"]["creationTimestamp"]  # The servers of the two caches may differ by a second.
    assert pods[0] == pods[1] == pods[2]
    assert pods[0]["metadata"]["name"] == "web-00010"


def test_the_figure_is_the_median_of_the_ratios_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([2.0, 4.0, 1.0, 3.0, 1.0, 4.0])
    monkeypatch.setattr(read_cost, "calls_in", lambda *_: 1)
    monkeypatch.setattr(read_cost, "measured", lambda *_: next(times))
    row = Row("slow", "get", lambda: None, lambda: None)
    assert read_cost.compared(row, turns=3).median == 3.0
