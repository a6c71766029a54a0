"""`python -m bench`: which peers there are, how one is told and ended, and how figures become a table and a picture."""
from __future__ import annotations

import asyncio
import doctest
import json
import os
import socket
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import ClassVar, overload

import pytest
from PIL import Image, ImageColor

import bench.__main__
import bench.data
import bench.histogram
import bench.peers.asking
import bench.peers.cache
import bench.roster
import bench.targets
from bench import peers
from bench.__main__ import counts, main
from bench.building import RECIPES, LeftOut, Recipe, built, key_of
from bench.histogram import histogram, histograms
from bench.measuring import Plan, Result, held, middle
from bench.peers.asking import FEWEST, Order, Read, late, obeyed, percentiles, timed
from bench.peers.held import reader
from bench.picture import GRID, Dot, drawing, svg
from bench.png import SCALE, png
from bench.roster import AGAIN, OURS, PEERS, QUICK, Unknown, chosen, command
from bench.running import Cap, Over, Running
from bench.table import number, ratio, tables
from bench.targets import TARGETS, exponent, growth, judged
from bench.wire import received
from tests.test_faults.hurried import HurriedLoop

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
    assert [peer.name for peer in chosen(None, quick=True)] == [OURS, *QUICK]


def test_a_peer_that_is_not_there_is_an_error_that_names_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unknown, match=r"there is no informers\. There are: cache, cache-raw, cache-metadata, controller-runtime, "):
        chosen("informers", quick=False)
    with pytest.raises(SystemExit, match="2"):
        main(["--peers", "informers"])
    assert "there is no informers" in capsys.readouterr().err


def test_so_few_objects_that_not_every_namespace_and_app_has_some_are_an_error() -> None:
    with pytest.raises(ValueError, match="100 at least"):
        counts("50,1000")


def test_a_peer_whose_toolchain_is_not_there_is_left_out_with_the_reason(tmp_path: Path) -> None:
    for recipe in RECIPES.values():
        with pytest.raises(LeftOut, match=rf"{recipe.tool} is not installed"):
            built(recipe, say=print, environ={"PATH": str(tmp_path), "HOME": str(tmp_path)})


def test_a_peer_that_cannot_be_built_is_left_out_with_what_was_said(tmp_path: Path) -> None:
    recipe = Recipe("go", "false-tool", (), "peer", {})
    tool = tmp_path / recipe.tool
    tool.write_text("#!/bin/sh\necho 'building'\necho 'error: no such module'\necho 'see --help'\nexit 3\n")
    tool.chmod(0o755)
    told: list[str] = []
    with pytest.raises(LeftOut, match="false-tool could not build it: error: no such module"):
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
def test_a_peer_is_told_and_answers_and_shows_what_it_takes(tmp_path: Path) -> None:
    with Running([sys.executable, "-c", ECHO], env={}, cap=CAP, log=tmp_path / "log") as peer:
        assert peer.answer() == {"ready": True}
        before = peer.usage()
        peer.forget_peak()
        assert peer.ask(do="sync") == {"told": "sync"}
        after = peer.usage()
    assert after.cpu > before.cpu > 0
    assert after.peak >= after.resident > 1_000_000


@LINUX
@pytest.mark.parametrize(("source", "cap", "why"), [
    ("import sys; sys.exit('no such cluster')", CAP, "it ended: no such cluster"),
    ("input()", Cap(0, 4_000), "more than 0 s"),
    ("print('{\"error\": \"Refused: 403\"}', flush=True); input()", CAP, "Refused: 403"),
    ("input()", Cap(60, 0), "more than 0 MB"),
])
def test_a_peer_that_does_not_finish_is_ended_and_says_why(source: str, cap: Cap, why: str, tmp_path: Path) -> None:
    with Running([sys.executable, "-c", source], env={}, cap=cap, log=tmp_path / "log") as peer, pytest.raises(Over, match=why):
        peer.answer()


@LINUX
def test_what_a_process_receives_is_counted_and_what_others_receive_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as sending:
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

    held: ClassVar = {("bench-00", "a"): {"namespace": "bench-00", "app": "web"}, ("bench-01", "b"): {"namespace": "bench-01", "app": "db"}}

    def sync(self) -> None:
        pass

    def count(self) -> int:
        return len(self.held)

    def read(self, order: Order) -> Read | None:
        return reader(order, get=self.held.__getitem__, objects=self.held.values, namespace=lambda pod: pod["namespace"], label=dict.get)

    def annotation(self, key: tuple[str, str], name: str) -> str | None:
        return self.held[key].get(name)


@pytest.fixture
def ticks() -> Iterator[int]:
    return count()


ASKED = {"keys": [("bench-00", "a"), ("bench-01", "b")], "namespace": "bench-01", "label": ("app", "web"), "annotation": ("app", "web"), "every": 0, "seconds": 9}


@pytest.mark.parametrize(("order", "answer"), [
    ({"do": "sync"}, {"seconds": 1, "objects": 2}),
    ({"do": "collect"}, {}),
    ({"do": "get", "form": "", "times": 3}, {"p50": 1e6, "p99": 1e6, "objects": 1}),
    ({"do": "namespace", "form": "", "times": 3}, {"p50": 1e6, "p99": 1e6, "objects": 1}),
    ({"do": "label", "form": "view", "times": 3}, {"p50": 1e6, "p99": 1e6, "objects": 1}),
    ({"do": "indexed", "form": "", "times": 3}, {"left out": "no such read"}),
    ({"do": "get", "form": "typed", "times": 3}, {"left out": "no such read"}),
    ({"do": "late"}, {"left out": "no event loop"}),
])
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


def test_a_way_to_keep_objects_that_our_cache_has_not_is_left_out_and_says_what_it_lacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(peers.cache.MODES, "frozen", {"frozen": True})
    peers.cache.main("frozen")
    assert json.loads(capsys.readouterr().out) == {"left out": "Cached takes no frozen="}


@LINUX
def test_a_peer_that_leaves_itself_out_is_no_result(tmp_path: Path) -> None:
    said = [sys.executable, "-c", "print('{\"left out\": \"no frozen=\"}', flush=True)"]
    with pytest.raises(LeftOut, match="no frozen="):
        held(OURS, said, objects=1, plan=Plan.of(quick=True), cap=CAP, kubeconfig=tmp_path, log=tmp_path / "log")


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


# ---- The table.


def results() -> list[Result]:
    return [
        Result(OURS, 1000, {"sync": 2.0, "memory": 4e6, "get": 10.0, "behind": -1.0}),
        Result("client-go", 1000, {"sync": 1.0, "memory": 20e6, "get view": 0.5, "behind": 0.5}),
        Result("index", 1000, over="more than 180 s"),
        Result(AGAIN, 1000, {"sync": 2.5, "memory": 4e6, "get": 11.0}),
        Result(OURS, 20000, {"sync": 30.0, "memory": 80e6}),
        Result("client-go", 20000, {"sync": 15.0, "memory": 400e6}),
    ]


def test_every_figure_of_a_peer_stands_with_how_many_times_ours_it_is() -> None:
    lines = [line.split() for line in tables(results()).splitlines()]
    assert ["client-go", "1.00", "(0.50x)", "20.0", "(5.00x)"] in lines
    assert ["client-go", "15.0", "(0.50x)", "400", "(5.00x)"] in lines
    assert ["cache", "2.00", "4.00"] in lines


def test_of_what_is_measured_repeatedly_the_median_of_each_figure_is_shown() -> None:
    run = [Result(OURS, 1000, {"sync": seconds, "get": 7.0}) for seconds in (3.0, 1.0, 2.0)]
    run += [Result("index", 1000, {"sync": 9.0}), Result("index", 1000, over="more than 180 s"), Result(OURS, 2000, {"sync": 5.0})]
    assert middle(run) == [
        Result(OURS, 1000, {"sync": 2.0, "get": 7.0}), Result("index", 1000, {"sync": 9.0}, "more than 180 s"), Result(OURS, 2000, {"sync": 5.0})]


def test_a_group_of_which_nothing_was_measured_is_not_shown() -> None:
    assert "to hold them" in tables(results())
    assert "burst" not in tables(results())


def test_what_did_not_finish_is_a_result() -> None:
    assert "index: did not finish, more than 180 s" in tables(results())


def test_what_a_peer_has_no_read_for_is_left_empty() -> None:
    lines = tables(results(), markdown=True).splitlines()
    assert "| client-go |  | 0.50 |" in lines
    assert "| cache | 10.0 |  |" in lines


def test_who_has_nothing_of_a_group_is_no_row_of_it() -> None:
    groups = [block.splitlines() for block in tables(results()).split("\n\n") if block.startswith("to read them, µs (p50)")]
    assert [[row.split("  ")[0] for row in rows[1:]] for rows in groups] == [[OURS, "client-go", AGAIN]]
    burst = tables([Result(OURS, 1000, {"sync": 1.0, "burst": 9.0}), Result("index", 1000, {"sync": 1.0})])
    assert [row.split()[0] for row in burst.split("\n\n")[-1].splitlines()] == ["to", OURS]


def test_a_table_in_markdown_has_as_many_cells_in_each_row() -> None:
    for block in tables(results(), markdown=True).split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1


def test_a_ratio_to_nothing_or_of_what_is_below_nothing_is_none() -> None:
    assert ratio(3, 2) == 1.5
    assert ratio(3, 0) is None
    assert ratio(3, -1) is None
    assert ratio(-3, 2) is None


@pytest.mark.parametrize(("value", "shown"), [(12_345.6, "12,346"), (99.94, "99.9"), (1.234, "1.23"), (-0.5, "-0.50"), (0.0123, "0.012"), (0, "0")])
def test_a_number_has_as_many_digits_as_say_something(value: float, shown: str) -> None:
    assert number(value) == shown


# ---- Targets, and growth.


def test_a_target_is_met_or_missed_by_ratios_of_the_same_run() -> None:
    run = [
        Result(OURS, 1000, {"memory": 10.0, "peak": 16.0, "get": 5.0, "label view": 3.0, "sync": 1.0, "added p99": 20.1}), Result("informer", 1000, {"memory": 500.0}),
        Result("controller-runtime", 1000, {"memory": 20.0, "get": 10.0}), Result("controller-runtime-unsafe", 1000, {"indexed view": 3.0}),
        Result("index", 1000, {"sync": 2.0}),
        Result(OURS, 20000, {"get": 11.0}), Result("controller-runtime", 20000, {"get": 10.0})]
    found = [line[2:-2].split(" | ") for line in judged(run, markdown=True).splitlines()[2:]]
    assert found == [
        ["memory", "controller-runtime", "0.12x", "0.50x missed", ""],
        ["memory", "informer", "0.04x", "0.02x met", ""],
        ["peak at sync, of our own memory after it", OURS, "1.50x", "1.60x missed", ""],
        ["get, a dict", "controller-runtime", "1.00x", "0.50x met", "1.10x missed"],
        ["list by label, views", "controller-runtime-unsafe", "1.00x", "1.00x met", ""],
        ["added lateness of the loop at 2,000 changes a second (p99)", "", "20.0 ms", "20.1 ms missed", ""],
    ]


def test_a_target_of_many_objects_is_not_judged_of_few() -> None:
    run = [Result(name, objects, {"sync": sync}) for objects in (1000, 4000) for name, sync in ((OURS, 1.0), ("index", 60.0))]
    assert [line.split("|")[1:-1] for line in judged(run, markdown=True).splitlines()[2:]] == [
        [" time to sync ", " index ", " 0.02x ", "  ", " 0.017x met "]]


def test_where_nothing_is_judged_there_is_no_table() -> None:
    assert judged([Result(OURS, 1000, {"sync": 1.0})]) == ""


def test_a_target_names_peers_that_there_are() -> None:
    assert {name for target in TARGETS for name in (target.peer, target.ours)} <= {peer.name for peer in PEERS}


def test_growth_tells_flat_from_linear_and_what_one_more_object_takes() -> None:
    run = [Result(OURS, objects, {"memory": 5e6 + 100 * objects, "sync": objects * 2.0, "get": 7.0}) for objects in (1000, 10000, 100000)]
    run.append(Result("index", 1000, {"memory": 5.0}))
    [row] = [line.strip("| ").split(" | ") for line in growth(run, markdown=True).splitlines()[2:]]
    assert row[0] == OURS
    assert row[1] == "1.00"
    assert row[4] == "0.00"
    assert row[-1] == "100"
    assert growth(run[:1]) == ""


def test_one_number_of_objects_has_no_growth() -> None:
    assert exponent([(1, 3), (1, 4)]) is None


# ---- How late a loop wakes.


def test_a_histogram_is_shown_of_each_peer_that_has_a_loop() -> None:
    run = [Result(OURS, 1000, late={"idle": [3, 1] + [0] * 8, "busy": [1, 1] + [0] * 7 + [2]}), Result("client-go", 1000)]
    [first, head, *rows] = histograms(run).splitlines()
    assert first.endswith(OURS)
    assert head.split() == ["idle", "busy"]
    assert [row.replace("#", "").split() for row in (rows[0], rows[1], rows[-1])] == [
        ["up", "to", "1", "ms", "75.00", "%", "25.00", "%"], ["up", "to", "2", "ms", "25.00", "%", "25.00", "%"], ["more", "50.00", "%"]]
    assert rows[-1].count("#") == 15
    assert histograms(run, markdown=True).count("```") == 2
    assert histograms(run[1:]) == ""


def test_what_was_hardly_ever_so_late_is_seen_all_the_same() -> None:
    assert "#" in histogram({"busy": [99_999, 1]}).splitlines()[-1]


# ---- The picture.


def lines_of(drawn: str) -> list[list[str]]:
    """Return the points of each peer's line, one panel after the other."""
    found = ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}polyline")   # noqa: S314  # It is our own.
    return [line.attrib["points"].split() for line in found if line.attrib["stroke"] != GRID]


def test_the_picture_has_a_line_for_each_peer_that_finished_and_names_them_all() -> None:
    drawn = svg(drawing(results()))
    texts = ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")   # noqa: S314
    assert {text.text for text in texts} >= {OURS, AGAIN, "client-go", "index", "1,000", "10,000"}
    assert [len(points) for points in lines_of(drawn) if points] == [2, 2, 1, 2, 2, 1]


def test_more_memory_is_drawn_higher() -> None:
    ours, theirs = (points[0] for points in lines_of(svg(drawing(results())))[:2])
    assert float(theirs.partition(",")[2]) < float(ours.partition(",")[2])


def test_the_picture_as_png_shows_the_same_shapes_in_their_colours() -> None:
    drawn = drawing(results())
    at, colour = next((shape.at, shape.colour) for shape in drawn.shapes if isinstance(shape, Dot) and shape.title == "client-go")
    with Image.open(BytesIO(png(drawn))) as image:
        assert image.size == (drawn.width * SCALE, drawn.height * SCALE)
        assert image.getpixel((round(at[0] * SCALE), round(at[1] * SCALE))) == ImageColor.getrgb(colour)
        assert image.getpixel((2, 2)) == (255, 255, 255)


def test_where_pillow_is_not_a_picture_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:
    monkeypatch.setattr(bench.__main__, "ApiServer", None)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "PIL")
    with pytest.raises(SystemExit, match="2"):
        main(["--picture", str(tmp_path / "bench.svg")])
    assert "pip install 'kopf_selectcache[bench]'" in capsys.readouterr().err


def test_where_nobody_finished_the_picture_says_so() -> None:
    assert "nobody finished" in svg(drawing([Result(OURS, 1000, over="more than 1 s")]))


@pytest.mark.parametrize("module", [bench.data, bench.targets, bench.roster, bench.histogram, peers.asking, bench.__main__])
def test_examples_are_so(module: ModuleType) -> None:
    assert doctest.testmod(module).attempted
    assert not doctest.testmod(module).failed


def test_the_options_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    told = capsys.readouterr().out
    assert all(peer.words in told for peer in PEERS)
