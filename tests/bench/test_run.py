"""`python -m bench` as a whole, with few objects and the peers that need no toolchain: that it measures,
never what it measures."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.peers.asking import BOUNDS
from bench.roster import AGAIN, METADATA, OURS

pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(900),
]  # It measures for a while, on a machine that may be busy.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    main(
        [
            "--quick",
            "--objects",
            "100,200",
            "--peers",
            f"plain,{METADATA},index",
            "--json",
            str(folder / "figures.json"),
            "--report",
            str(folder / "bench.md"),
        ]
    )
    return folder


def test_every_peer_holds_all_objects_and_is_measured_beside_ours_which_is_measured_twice(
    folder: Path,
) -> None:
    results = json.loads((folder / "figures.json").read_text())["results"]
    names = [OURS, METADATA, "index", "plain", AGAIN]
    assert [(each["peer"], each["objects"], each["over"]) for each in results] == [
        (name, size, None) for size in (100, 200) for name in names
    ]
    for each in results:
        assert each["figures"].keys() >= {
            "sync",
            "sync cpu",
            "memory",
            "get",
            "get view",
            "namespace",
            "label",
            "event cpu",
            "lag",
            "behind p99",
        }


def test_it_is_seen_how_late_the_event_loop_of_each_operator_wakes(folder: Path) -> None:
    results = {
        (each["peer"], each["objects"]): each
        for each in json.loads((folder / "figures.json").read_text())["results"]
    }
    for name in (OURS, "index"):
        assert results[name, 100]["figures"].keys() >= {"added p99", "late p99", "idle p99", "caught up"}
        assert [len(counts) for counts in results[name, 100]["late"].values()] == [len(BOUNDS) + 1] * 2
    assert not results["plain", 100]["late"]


def test_the_report_has_a_table_of_each_size_the_growth_the_targets_and_the_picture(folder: Path) -> None:
    report = (folder / "bench.md").read_text()
    assert "## 100 pods" in report
    assert "## 200 pods" in report
    assert "bytes of one more" in report
    assert "| CPU of an event | index |" in report
    assert "(bench.svg)" in report
    assert f"how late the event loop woke, {OURS}" in report
    assert (folder / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert ET.parse(folder / "bench.svg").getroot().tag.endswith("svg")


def test_many_pods_of_the_synthetic_server_are_held_and_read_by_ours_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--million", "--objects", "100,1000", "--json", str(tmp_path / "figures.json")])
    results = json.loads((tmp_path / "figures.json").read_text())["results"]
    assert [(each["peer"], each["objects"], each["over"]) for each in results] == [
        (OURS, 100, None),
        (OURS, 1_000, None),
    ]
    for each in results:
        assert each["figures"].keys() >= {
            "sync",
            "sync cpu",
            "memory",
            "peak",
            "get",
            "get view",
            "label",
            "label view",
        }
        assert not each["figures"].keys() & {"namespace", "event cpu", "burst"}
    assert "bytes of one more" in capsys.readouterr().out
