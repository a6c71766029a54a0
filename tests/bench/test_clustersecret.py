"""`python -m bench.clustersecret`: that it counts what the operator does, and its table."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from bench import clustersecret
from bench.clustersecret import ACCEPTED, FILES, OURS, PLAIN, QUICK, Figures, measure, report
from tests.docs.pages import rows_of
from tests.ports.script import CHANGES, FAULTS, Stage
from tests.ports.world import source_text

CUT = Stage("all watches end, and that is all", lambda player: player.world.cut())


def test_requests_cpu_memory_and_wrong_copies_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustersecret, "FIRM", 0)
    monkeypatch.setattr(clustersecret, "QUIET", 0.5)
    small = replace(QUICK, patience=120)  # It starts within that on any machine.
    figures = measure(source_text(FILES[OURS]), small, CHANGES[:1], [CUT])
    assert figures.requests["create"] > small.namespaces
    assert figures.restart["list"] >= 3
    assert figures.changed == 0
    assert figures.cpu > 0
    assert figures.peak > clustersecret.MEGABYTE
    assert figures.wrong == {CHANGES[0].words: 0, CUT.words: 0}


def test_the_table_has_ratios_of_plain_kopf_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustersecret, "machine", lambda _: "Measured.")
    right = {stage.words: 0 for stage in (*CHANGES, *FAULTS)}
    plain = Figures(
        Counter(get=30, create=10), 4.0, 90_000_000, Counter(get=8), 3, {**right, FAULTS[1].words: 2}
    )
    ours = Figures(Counter(create=10), 2.0, 60_000_000, Counter(list=4), 0, right)
    rows = {row[0]: row[1:] for row in rows_of(report({PLAIN: plain, OURS: ours}, QUICK))}
    assert rows["requests"] == ["40", "10", "4.0"]
    assert rows["- get"] == ["30", "0", ""]
    assert rows[ACCEPTED] == ["3", "0", ""]
    assert rows["CPU, s"] == ["4.0", "2.0", "2.0"]
    assert rows[f"wrong copies: {FAULTS[1].words}"] == ["2", "0", ""]
