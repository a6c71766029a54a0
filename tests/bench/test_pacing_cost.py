"""The measurement of paced watches, at its smallest."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import pacing_cost
from bench.pacing_cost import PAGE, RATES, Run, table, write


def test_each_number_of_events_is_measured_with_and_without_the_delay(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pacing_cost.main(["--rates", "400", "--seconds=0.25", "--turns=1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("| 400 |")


def test_a_row_has_the_medians_of_the_turns() -> None:
    plain = [Run(cpu, [0.001] * 98 + [0.002] * 2) for cpu in (1e-4, 3e-4, 2e-4)]
    paced = [Run(cpu, [0.005] * 100) for cpu in (1e-4, 1e-4, 1e-4)]
    assert table({300: (plain, paced)}).splitlines()[2] == (
        "| 300 | 1.0 ms | 2.0 ms | 5.0 ms | 5.0 ms | 200 µs | 100 µs | 0.50 |"
    )


def test_the_page_has_a_table_of_all_numbers_of_events(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    for rate in RATES:
        assert f"\n| {rate:,} |" in page.read_text(encoding="utf-8")
    write("no table", page)
    assert "<!-- pacing -->\nno table\n<!-- pacing ends -->" in page.read_text(encoding="utf-8")
