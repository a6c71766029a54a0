"""The steps of a run: a failure is a row, every result is in the file, and the rest can be measured later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import bench.run
from bench.datasets import dataset
from bench.measuring import AT_LEAST, Result, middle
from bench.options import parser
from bench.roster import AGAIN, INDEX, KOPF_ALONE, OURS, chosen
from bench.run import EMPTY_TURNS, Bench, Results, read_results
from bench.running import Cap
from bench.targets import judged

ABOUT = {"seed": 1, "load": [0.5]}


class Server:
    """A server without a process: what it is asked is not looked at."""

    def kubeconfig(self, path: Path) -> Path:
        return path


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.run, "prepare", lambda _: None)
    monkeypatch.setattr(bench.run, "discovery", lambda _: {})
    monkeypatch.setattr(Bench, "_fill", lambda *_: None)


def made(tmp_path: Path, *arguments: str, resume: bool = False, said: list[str] | None = None) -> Bench:
    server: Any = Server()
    peers = chosen(INDEX, quick=False)
    return Bench(
        server,
        dataset("grouped", seed=1),
        parser().parse_args(arguments),
        tmp_path,
        commands={peer.name: ["peer", peer.name] for peer in peers},
        results=Results(tmp_path / "results.json", ABOUT, resume=resume),
        say=(said if said is not None else []).append,
    )


def run(bench_: Bench, steps: Mapping[str, Sequence[int]], *, first: bool = True) -> list[Result]:
    bench_.run(steps, chosen(INDEX, quick=False), first=first)
    return bench_._results.all  # The results are those of the file as well.


def measure(name: str, _: Sequence[str], *, data: str, objects: int, **__: Any) -> Result:
    return Result(name, objects, {"sync": 1.0, "process": 50e6}, data=data)


def test_a_peer_that_fails_is_a_row_and_those_after_it_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, command: Sequence[str], **more: Any) -> Result:
        if name == OURS:
            raise ConnectionResetError("the server is gone")
        return measure(name, command, **more)

    monkeypatch.setattr(bench.run, "started", fail)
    results = run(made(tmp_path), {"index": [4_000]})
    reason = "it could not be measured: ConnectionResetError: the server is gone"
    assert [(each.peer, each.over) for each in results] == [(OURS, reason), (AGAIN, None), (INDEX, None)]
    assert "did not finish" in judged(results)


def test_every_result_is_in_the_file_before_the_next_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[int] = []

    def count(name: str, command: Sequence[str], **more: Any) -> Result:
        file = tmp_path / "results.json"
        before.append(len(json.loads(file.read_text())["results"]) if file.exists() else 0)
        return measure(name, command, **more)

    monkeypatch.setattr(bench.run, "started", count)
    results = run(made(tmp_path), {"index": [4_000, 8_000]})
    assert before == list(range(6))
    assert read_results(tmp_path / "results.json")[1] == results


def test_a_resumed_run_measures_a_figure_as_often_as_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.run, "empty", measure)
    results = Results(tmp_path / "results.json", ABOUT, resume=False)
    done = [Result(name, 0, {"process": 1.0}, step="empty") for name in (KOPF_ALONE, OURS, KOPF_ALONE)]
    for each in done:
        results.add(each)
    found = run(made(tmp_path, resume=True), {"empty": ()})
    assert found[:3] == done
    assert [each.peer for each in found[3:]] == [OURS, KOPF_ALONE, OURS]
    assert len(found) == 2 * EMPTY_TURNS


@pytest.mark.parametrize(
    ("objects", "seconds", "cap"), [(8_000, 1.0, 420.0), (8_000, 5.0, 700.0), (4_000, 0.5, 180.0)]
)
def test_kopf_s_index_is_ended_once_it_has_taken_so_much_longer_that_the_target_is_met(
    objects: int, seconds: float, cap: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caps: dict[str, float] = {}

    def start(name: str, _: Sequence[str], *, data: str, objects: int, cap: Cap, **__: Any) -> Result:
        caps[name] = cap.seconds
        figures = {AT_LEAST: cap.seconds} if name == INDEX else {"sync": seconds}
        return Result(name, objects, figures, data=data)

    monkeypatch.setattr(bench.run, "started", start)
    results = run(made(tmp_path), {"index": [objects]})
    assert caps == {OURS: 180.0, AGAIN: 180.0, INDEX: pytest.approx(cap)}
    assert AT_LEAST in middle(results)[-1].figures
    assert "at most" in judged(results)
    assert (" met" in judged(results)) == (seconds < 2)
