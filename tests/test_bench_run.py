"""`python -m bench` as a whole, with few objects and the peers that need no toolchain: that it measures, never what it measures."""
from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.roster import AGAIN, METADATA, OURS

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]   # It measures for a while, on a machine that may be busy.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    main([
        "--quick", "--objects", "100,200", "--peers", f"plain,{METADATA},index", "--json", str(folder / "figures.json"),
        "--report", str(folder / "bench.md")])
    return folder


def test_every_peer_holds_all_objects_and_is_measured_beside_ours_which_is_measured_twice(folder: Path) -> None:
    results = json.loads((folder / "figures.json").read_text())["results"]
    names = [OURS, METADATA, "index", "plain", AGAIN]
    assert [(each["peer"], each["objects"], each["over"]) for each in results] == [(name, size, None) for size in (100, 200) for name in names]
    for each in results:
        assert each["figures"].keys() >= {"sync", "sync cpu", "memory", "get", "get view", "namespace", "label", "event cpu", "lag", "behind p99"}


def test_the_report_has_a_table_of_each_size_the_growth_the_targets_and_the_picture(folder: Path) -> None:
    report = (folder / "bench.md").read_text()
    assert "### 100 pods" in report
    assert "### 200 pods" in report
    assert "bytes of one more" in report
    assert "| time to sync | index |" in report
    assert "(bench.svg)" in report
    assert ET.parse(folder / "bench.svg").getroot().tag.endswith("svg")   # noqa: S314  # It is our own.
