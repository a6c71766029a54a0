"""`python -m bench` as a whole, with few objects and the peers that need no toolchain: that it measures,
never what it measures."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.datasets import SETS
from bench.roster import AGAIN, KOPF_ALONE, METADATA, OURS

pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(900),
]  # It measures for a while, on a machine that may be busy.


RUN = (
    "--quick",
    "--objects",
    "100,200",
    "--only",
    "empty,round,burst,late",
    "--data",
    "grouped,unrelated",
    "--peers",
    f"plain,{METADATA},index",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    main([*RUN, "--json", str(folder / "figures.json"), "--report", str(folder / "bench.md")])
    return folder


def read(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "figures.json").read_text())["results"]
    return found


def test_every_peer_holds_all_objects_and_is_measured_beside_ours_which_is_measured_twice(
    folder: Path,
) -> None:
    rounds = [each for each in read(folder) if each["step"] == "round"]
    names = [OURS, METADATA, "index", "plain", AGAIN]
    assert [(each["data"], each["peer"], each["objects"], each["over"]) for each in rounds] == [
        (data, name, size, None) for data in SETS for size in (100, 200) for name in names
    ]
    for each in rounds:
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


def test_a_burst_is_measured_with_each_set_and_an_empty_process_once_by_turns(folder: Path) -> None:
    results = read(folder)
    bursts = {(each["data"], each["peer"]) for each in results if "burst cpu" in each["figures"]}
    assert bursts == {*(("grouped", name) for name in (OURS, "index", "plain")), ("unrelated", OURS)}
    empty = [each for each in results if each["step"] == "empty"]
    assert [each["peer"] for each in empty] == [KOPF_ALONE, OURS] * 3
    assert {each["data"] for each in empty} == {"grouped"}
    assert all(each["figures"]["process"] > 10e6 for each in empty)


def test_the_report_has_the_targets_and_tables_of_each_set_and_its_picture(folder: Path) -> None:
    report = (folder / "bench.md").read_text()
    for heading in ("## Grouped pods", "## Unrelated pods", "### 100 pods", "### 200 pods"):
        assert f"\n{heading}\n" in report
    assert "bytes of one more" in report
    assert "| get, a view |  | 2.00 µs |" in report
    assert "| memory of the process with nothing to hold, more than | kopf run | 12.0 MB |" in report
    assert f"how late the event loop woke, {OURS}" in report
    for name in SETS:
        assert f"(bench-{name}.svg)" in report
        assert (folder / f"bench-{name}.png").read_bytes().startswith(b"\x89PNG")
        assert ET.parse(folder / f"bench-{name}.svg").getroot().tag.endswith("svg")


def test_time_until_handlers_run_is_measured_against_kopf_s_index(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    main(["--only", "index", "--objects", "100,200", "--peers", "index", "--json", str(file)])
    results = json.loads(file.read_text())["results"]
    assert [(each["peer"], each["objects"], each["over"]) for each in results] == [
        (name, size, None) for size in (100, 200) for name in (OURS, AGAIN, "index")
    ]
    assert all(each["figures"].keys() >= {"sync", "sync cpu", "memory"} for each in results)


def test_many_pods_of_the_synthetic_server_are_held_and_read_by_ours_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--only", "million", "--objects", "100,1000", "--json", str(tmp_path / "figures.json")])
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
    assert "1,000 pods" in capsys.readouterr().out
