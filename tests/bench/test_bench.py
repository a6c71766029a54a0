"""`python -m bench`: which peers there are, how one is told and ended, and what it answers."""

from __future__ import annotations

import asyncio
import doctest
import os
import socket
import subprocess
import sys
import threading
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import ClassVar, overload

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
from bench.options import counts, parser, steps
from bench.peers.asking import FEWEST, Order, Read, late, obeyed, percentiles, timed
from bench.peers.held import reader
from bench.roster import OURS, PEERS, Unknown, chosen, command
from bench.running import Cap, Over, Running
from bench.wire import received
from tests.faults.hurried import HurriedLoop
from tests.rows import each_row

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="what a process takes is read from /proc")
CAP = Cap(60, 4_000)
ECHO = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    print(json.dumps({"told": order["do"]}), flush=True)
"""


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


def test_so_few_objects_that_not_every_namespace_and_app_has_some_are_an_error() -> None:
    with pytest.raises(ArgumentTypeError, match="100 at least"):
        counts("50,1000")


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


def test_a_peer_that_cannot_be_built_is_left_out_with_the_output_of_its_tool(tmp_path: Path) -> None:
    recipe = Recipe("go", "false-tool", (), "peer", {})
    tool = tmp_path / recipe.tool
    tool.write_text("#!/bin/sh\necho 'building'\necho 'error: no such module'\necho 'see --help'\nexit 3\n")
    tool.chmod(0o755)
    told: list[str] = []
    with pytest.raises(LeftOut):
        built(recipe, say=told.append, environ={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert "once" in told[0]


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


def test_the_official_informer_runs_where_its_package_is(tmp_path: Path) -> None:
    informer = next(peer for peer in PEERS if peer.name == "informer")
    assert command(informer, clients=tmp_path / "python", say=print)[0] == str(tmp_path / "python")
    assert command(PEERS[0], clients=tmp_path / "python", say=print)[0] == sys.executable


# ---- A peer as a process.


@LINUX
def test_a_peer_takes_commands_and_answers_and_shows_its_usage(tmp_path: Path) -> None:
    with Running([sys.executable, "-c", ECHO], env={}, cap=CAP, log=tmp_path / "log") as peer:
        assert peer.answer() == {"ready": True}
        before = peer.usage()
        peer.forget_peak()
        assert peer.ask(do="sync") == {"told": "sync"}
        after = peer.usage()
    assert after.cpu > before.cpu > 0
    assert after.peak >= after.resident > 1_000_000


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
def test_the_connections_of_a_peer_are_counted(tmp_path: Path) -> None:
    source = "import socket; found = [socket.socket() for _ in range(3)]; print({}, flush=True); input()"
    with Running([sys.executable, "-c", source], env={}, cap=CAP, log=tmp_path / "log") as peer:
        peer.answer()
        assert peer.connections() == 3


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


def test_of_slow_reads_there_are_fewer_but_never_so_few_that_they_say_nothing(ticks: Iterator[int]) -> None:
    asked: list[int] = []
    timed(asked.append, 100, seconds=9, clock=lambda: float(next(ticks)))
    assert asked == list(range(9))
    asked.clear()
    timed(asked.append, 100, seconds=0, clock=lambda: float(next(ticks)))
    assert asked == list(range(FEWEST))


def test_all_wakes_that_were_due_while_the_loop_stood_still_were_late() -> None:
    async def standing_still() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, HurriedLoop)
        loop.call_at(0.875, lambda: setattr(loop, "now", loop.now + 1))
        return await late(every=0.25, seconds=2)

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        assert runner.run(standing_still()) == [0, 0, 0, 0.875, 0.625, 0.375, 0.125, 0]


def test_a_peer_with_an_event_loop_says_how_late_it_wakes() -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        answer = obeyed(Pods(), {"do": "late", "every": 0.001, "seconds": 0.01}, clock=float, loop=loop)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    assert sum(answer["counts"]) >= 10
    assert answer["p50"] <= answer["p99"] <= answer["max"]


def test_every_object_of_a_list_is_made_that_makes_them_when_they_are_asked_for() -> None:
    made: list[int] = []

    class Lazy(Sequence[int]):
        def __len__(self) -> int:
            return 3

        @overload
        def __getitem__(self, at: int) -> int: ...
        @overload
        def __getitem__(self, at: slice) -> list[int]: ...
        def __getitem__(self, at: int | slice) -> int | list[int]:
            assert isinstance(at, int)
            made.append(range(3)[at])
            return at

    assert len(peers.cache.gone_through(Lazy())) == 3
    assert made == [0, 1, 2]


def test_waiting_ends_once_the_annotation_is_there() -> None:
    assert obeyed(Pods(), {"do": "until", **ASKED}, clock=float)["at"] > 0


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentiles([float(value) for value in range(100, 0, -1)]) == {"p50": 51, "p99": 100}
    assert percentiles([7.0]) == {"p50": 7, "p99": 7}


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


def test_the_options_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(peer.words in told for peer in PEERS)
