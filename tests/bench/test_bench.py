"""`python -m bench`: which peers there are, how one is told and ended, and what it answers."""

from __future__ import annotations

import asyncio
import doctest
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

import bench.data
import bench.datasets
import bench.grouped
import bench.histogram
import bench.options
import bench.peers.asking
import bench.peers.cache
import bench.records
import bench.report
import bench.roster
import bench.targets
import bench.unrelated
from bench import peers
from bench.__main__ import main
from bench.building import RECIPES, LeftOut, Recipe, built, key_of
from bench.options import parser, steps
from bench.peers.asking import Order, Read, late, obeyed
from bench.peers.held import reader
from bench.roster import OURS, PEERS, Unknown, chosen
from bench.running import Cap, Over, Running
from bench.wire import received
from tests.faults.hurried import HurriedLoop
from tests.rows import each_row

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="what a process takes is read from /proc")
CAP = Cap(60, 4_000)


# ---- Which peers there are.


def test_ours_is_measured_first_whoever_else_is() -> None:
    assert [peer.name for peer in chosen("plain, informer", quick=False)] == [OURS, "informer", "plain"]
    assert chosen(None, quick=False) == PEERS
    assert {peer.name for peer in chosen(None, quick=True)} == {
        peer.name for peer in PEERS if peer.judges or peer.bursts
    }


def test_a_peer_that_is_not_there_is_an_error_that_names_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(
        Unknown,
        match=r"there is no informers\. There are: cache, cache-raw, cache-gzip, cache-metadata, ",
    ):
        chosen("informers", quick=False)
    with pytest.raises(SystemExit) as ended:
        main(["--peers", "informers"])
    assert ended.value.code == 2
    assert "there is no informers" in capsys.readouterr().err


@each_row(
    ("given", "found"),
    [
        ([], {"round": (20_000, 100_000), "index": (4_000, 8_000), "million": (1_000_000,)}),
        (["--quick"], {"round": (1_000, 3_000)}),
        (["--objects", "500"], {"round": (500,)}),
        (["--only", "million", "--objects", "500"], {"million": (500,)}),
        (["--only", "index"], {"index": (4_000, 8_000)}),
    ],
)
def test_a_run_has_the_steps_that_fit_its_options(
    given: list[str], found: dict[str, tuple[int, ...]]
) -> None:
    made = steps(parser().parse_args(given))
    assert {step: sizes for step, sizes in made.items() if sizes} == found


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--repeats", "0"], "'0' is no whole number above 0"),
        (["--seconds", "-1"], "'-1' is no number above 0"),
        (["--megabytes", "nan"], "'nan' is no number above 0"),
        (["--clients", "no-such-python"], "there is no program no-such-python"),
        (["--report", "/no/such/folder/page.md"], "/no/such/folder/page.md cannot be written"),
        (["--data", "grouped,mixed"], "there is no set 'mixed', only grouped, unrelated"),
        (["--objects", "many"], "'many' is no list of numbers"),
        (["--objects", "1,000"], "write 1000 or 1_000, not 1,000"),
    ],
)
def test_arguments_that_would_fail_at_the_end_are_refused_at_the_start(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_peer_whose_toolchain_is_not_there_is_left_out_with_the_reason(tmp_path: Path) -> None:
    for recipe in RECIPES.values():
        with pytest.raises(LeftOut):
            built(recipe, say=print, environ={"PATH": str(tmp_path), "HOME": str(tmp_path)})


def test_a_peer_is_built_once_for_the_same_sources_and_again_for_others(tmp_path: Path) -> None:
    recipe = Recipe("go", "tool", ("{target}",), "peer", {})
    tool = tmp_path / recipe.tool
    tool.write_text('#!/bin/sh\necho built > "$1/peer"\n')
    tool.chmod(0o755)
    told: list[str] = []
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert [built(recipe, say=told.append, environ=environ).read_text() for _ in range(2)] == ["built\n"] * 2
    assert len(told) == 1
    (tmp_path / "sources").mkdir()
    before = key_of(tmp_path / "sources", recipe)
    (tmp_path / "sources" / "main.go").write_text("package main")
    assert key_of(tmp_path / "sources", recipe) != before


# ---- A peer as a process.


@LINUX
@pytest.mark.parametrize(
    ("source", "cap", "why"),
    [
        ("import sys; sys.exit('no such cluster')", CAP, "it ended: no such cluster"),
        ("input()", Cap(0, 4_000), "more than 0 s"),
        ('print(\'{"error": "Refused: 403"}\', flush=True); input()', CAP, "Refused: 403"),
        ("input()", Cap(60, 0), "more than 0 MB"),
    ],
)
def test_a_peer_that_does_not_finish_is_ended_and_says_why(
    source: str, cap: Cap, why: str, tmp_path: Path
) -> None:
    with (
        Running([sys.executable, "-c", source], env={}, cap=cap, log=tmp_path / "log") as peer,
        pytest.raises(Over, match=why),
    ):
        peer.answer()


@LINUX
def test_bytes_that_a_process_receives_are_counted_and_those_of_others_are_not() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as sending,
    ):
        receiving, _ = listening.accept()
        with receiving:
            before = received(os.getpid())
            sending.sendall(b"x" * 1_000)
            assert len(receiving.recv(1_000, socket.MSG_WAITALL)) == 1_000
            assert received(os.getpid()) == before + 1_000
            with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
                assert received(other.pid) == 0
                other.communicate(b"\n")


# ---- What a peer does.


class Pods:
    """A peer that holds two pods."""

    held: ClassVar = {
        ("bench-00", "a"): {"namespace": "bench-00", "app": "web"},
        ("bench-01", "b"): {"namespace": "bench-01", "app": "db"},
    }

    def sync(self) -> None:
        pass

    def count(self) -> int:
        return len(self.held)

    def read(self, order: Order) -> Read | None:
        return reader(
            order,
            get=self.held.__getitem__,
            objects=self.held.values,
            namespace=lambda pod: pod["namespace"],
            label=dict.get,
        )

    def annotation(self, key: tuple[str, str], name: str) -> str | None:
        return self.held[key].get(name)


@pytest.fixture
def ticks() -> Iterator[int]:
    return count()


ASKED = {
    "keys": [("bench-00", "a"), ("bench-01", "b")],
    "namespace": "bench-01",
    "label": ("app", "web"),
    "annotation": ("app", "web"),
    "every": 0,
    "seconds": 9,
}


@pytest.mark.parametrize(
    ("order", "answer"),
    [
        ({"do": "sync"}, {"seconds": 1, "objects": 2}),
        ({"do": "collect"}, {}),
        ({"do": "get", "form": "", "times": 3}, {"p50": 1e6, "p99": 1e6, "objects": 1}),
        ({"do": "namespace", "form": "", "times": 3}, {"p50": 1e6, "p99": 1e6, "objects": 1}),
        ({"do": "label", "form": "view", "times": 3}, {"p50": 1e6, "p99": 1e6, "objects": 1}),
        ({"do": "indexed", "form": "", "times": 3}, {"left out": "no such read"}),
        ({"do": "get", "form": "typed", "times": 3}, {"left out": "no such read"}),
        ({"do": "late"}, {"left out": "no event loop"}),
    ],
)
def test_an_order_is_obeyed_and_timed(order: Order, answer: Order, ticks: Iterator[int]) -> None:
    assert obeyed(Pods(), {**ASKED, **order}, clock=lambda: float(next(ticks))) == answer


def test_all_wakes_that_were_due_while_the_loop_stood_still_were_late() -> None:
    async def standing_still() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, HurriedLoop)
        loop.call_at(0.875, lambda: setattr(loop, "now", loop.now + 1))
        return await late(every=0.25, seconds=2)

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        assert runner.run(standing_still()) == [0, 0, 0, 0.875, 0.625, 0.375, 0.125, 0]


@each_row(
    "module",
    [
        bench.data,
        bench.datasets,
        bench.grouped,
        bench.unrelated,
        bench.targets,
        bench.roster,
        bench.histogram,
        bench.options,
        bench.records,
        bench.report,
        peers.asking,
    ],
)
def test_examples_are_so(module: ModuleType) -> None:
    assert doctest.testmod(module).attempted
    assert not doctest.testmod(module).failed
