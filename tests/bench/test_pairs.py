"""The paired measurement of two checkouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import pairs


def test_a_checkout_is_measured_in_a_process_of_its_own() -> None:
    found = pairs.measure(str(Path(__file__).parents[2]), count=10, share=0.02)
    assert found
    assert min(found.values()) > 0


def test_the_table_has_the_median_of_the_ratios_of_pairs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {"old": iter(range(2, 100, 2)), "new": iter(range(1, 100))}
    monkeypatch.setattr(pairs, "measure", lambda checkout, **_: {"get": float(next(times[checkout]))})
    pairs.main(["old", "new"])
    assert "| get | 16.00 | 8.00 | 0.50 | 0.50 to 0.50 |" in capsys.readouterr().out
