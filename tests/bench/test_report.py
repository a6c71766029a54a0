"""How the bench's figures become tables, targets, histograms and pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from io import BytesIO

from PIL import Image, ImageColor

from bench.histogram import histograms
from bench.measuring import AT_LEAST, Result
from bench.picture import GRID, Dot, drawing, svg
from bench.png import SCALE, png
from bench.roster import AGAIN, INDEX, KOPF_ALONE, OURS, PEERS
from bench.table import tables
from bench.targets import OTHER_LIMITS, TARGETS, counted, growth, judged
from tests.rows import each_row

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


def test_a_table_in_markdown_has_as_many_cells_in_each_row() -> None:
    for block in tables(results(), markdown=True).split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1


# ---- Targets, and growth.


def cells(table: str) -> list[list[str]]:
    """Return the rows of a table in Markdown."""
    return [line[2:-2].split(" | ") for line in table.splitlines()[2:]]


def test_a_target_is_met_or_missed_by_ratios_of_the_same_run() -> None:
    run = [
        Result(OURS, 1000, {"per object": 2_000.0, "get": 5.0, "label view": 3.0, "get view": 2.1}),
        Result("controller-runtime", 1000, {"per object": 20_000.0, "get": 10.0}),
        Result("controller-runtime-unsafe", 1000, {"indexed view": 3.0}),
        Result(OURS, 20000, {"get": 11.0}),
        Result("controller-runtime", 20000, {"get": 10.0}),
    ]
    assert cells(judged(run, markdown=True)) == [
        ["memory an object", "controller-runtime", "0.083x; 0.12x", "0.10x missed", ""],
        ["get, a dict", "controller-runtime", "1.00x", "0.50x met", "1.10x missed"],
        ["get, a view", "", "2.00 µs", "2.10 µs missed", ""],
        ["one in fifty by label, views", "controller-runtime-unsafe", "1.00x", "1.00x met", ""],
    ]
    assert counted(run) == (2, 5)


def test_the_memory_of_one_more_object_is_the_slope_between_two_sizes_and_not_the_mean() -> None:
    run = [Result(OURS, objects, {"memory": 50e6 + 1_100.0 * objects}) for objects in (20_000, 100_000)]
    assert cells(judged(run, markdown=True)) == [
        ["memory of one more full pod", "", "1,200 bytes", "", "1,100 bytes met"]
    ]
    unrelated = [replace(result, data="unrelated") for result in run]
    assert judged(unrelated, markdown=True) == ""


@each_row(
    ("theirs", "verdict"),
    [
        ({"sync": 500.0}, "0.002x met (8,000 pods)"),
        ({"sync": 300.0}, "0.0033x missed (8,000 pods)"),
        ({AT_LEAST: 420.0}, "at most 0.0024x met (8,000 pods)"),
        ({AT_LEAST: 200.0}, "at most 0.005x undecided (8,000 pods)"),
    ],
)
def test_a_peer_that_was_ended_early_is_judged_by_the_time_that_it_has_taken(
    theirs: dict[str, float], verdict: str
) -> None:
    run = [
        Result(OURS, 8_000, {"sync": 1.0}, step="index"),
        Result("index", 8_000, theirs, step="index"),
    ]
    assert cells(judged(run, markdown=True)) == [["time until handlers run", "index", "0.0025x", verdict]]


def test_a_target_whose_peer_failed_is_neither_met_nor_missed_and_says_so() -> None:
    run = [Result(OURS, 1000, {"get": 5.0}), Result("controller-runtime", 1000, over="it ended: killed")]
    assert ["get, a dict", "controller-runtime", "1.00x", "did not finish"] in cells(
        judged(run, markdown=True)
    )
    assert counted(run) == (0, 0)


def test_other_limits_are_judged_apart() -> None:
    run = [Result(OURS, 1000, {"peak": 16.0, "memory": 10.0, "added p99": 20.1})]
    assert judged(run) == ""
    assert cells(judged(run, OTHER_LIMITS, markdown=True)) == [
        ["peak at sync, of our own memory after it", OURS, "1.50x", "1.60x missed"],
        ["added lateness of the loop at 2,000 changes a second (p99)", "", "20.0 ms", "20.1 ms missed"],
    ]


def test_every_target_of_the_table_names_peers_that_are_measured_with_each_set() -> None:
    judges = {peer.name for peer in PEERS if peer.judges}
    bursts = {peer.name for peer in PEERS if peer.bursts}
    for target in TARGETS:
        names = {name for name in (target.peer, target.ours) if name} - {INDEX, KOPF_ALONE}
        assert names <= (bursts if target.key == "burst cpu" else judges)
    assert {target.peer for target in OTHER_LIMITS if target.peer} <= {peer.name for peer in PEERS}


def test_growth_tells_flat_from_linear_and_shows_the_cost_of_one_more_object() -> None:
    run = [
        Result(OURS, objects, {"memory": 5e6 + 100 * objects, "sync": objects * 2.0, "get": 7.0})
        for objects in (1000, 10000, 100000)
    ]
    run.append(Result("index", 1000, {"memory": 5.0}))
    [row] = [line.strip("| ").split(" | ") for line in growth(run, markdown=True).splitlines()[2:]]
    assert row[0] == OURS
    assert row[1] == "1.00"
    assert row[4] == "0.00"
    assert row[-1] == "100"
    assert growth(run[:1]) == ""


# ---- How late a loop wakes.


def test_a_histogram_is_shown_of_each_peer_that_has_a_loop() -> None:
    run = [
        Result(OURS, 1000, late={"idle": [3, 1] + [0] * 8, "busy": [1, 1] + [0] * 7 + [2]}),
        Result("client-go", 1000),
    ]
    [first, head, *rows] = histograms(run).splitlines()
    assert first.endswith(OURS)
    assert head.split() == ["idle", "busy"]
    assert [row.replace("#", "").split() for row in (rows[0], rows[1], rows[-1])] == [
        ["up", "to", "1", "ms", "75.00", "%", "25.00", "%"],
        ["up", "to", "2", "ms", "25.00", "%", "25.00", "%"],
        ["more", "50.00", "%"],
    ]
    assert rows[-1].count("#") == 15
    assert histograms(run, markdown=True).count("```") == 2
    assert histograms(run[1:]) == ""


# ---- The picture.


def lines_of(drawn: str) -> list[list[str]]:
    """Return the points of each peer's line, one panel after the other."""
    found = ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}polyline")
    return [line.attrib["points"].split() for line in found if line.attrib["stroke"] != GRID]


def test_the_picture_has_a_line_for_each_peer_that_finished_and_names_them_all() -> None:
    drawn = svg(drawing(results()))
    texts = ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    assert {text.text for text in texts} >= {OURS, AGAIN, "client-go", "index", "1,000", "10,000"}
    assert [len(points) for points in lines_of(drawn) if points] == [1, 2, 2, 1, 2, 2]


def test_the_picture_as_png_shows_the_same_shapes_in_their_colours() -> None:
    drawn = drawing(results())
    at, colour = next(
        (shape.at, shape.colour)
        for shape in drawn.shapes
        if isinstance(shape, Dot) and shape.title == "client-go"
    )
    with Image.open(BytesIO(png(drawn))) as image:
        assert image.size == (drawn.width * SCALE, drawn.height * SCALE)
        assert image.getpixel((round(at[0] * SCALE), round(at[1] * SCALE))) == ImageColor.getrgb(colour)
        assert image.getpixel((2, 2)) == (255, 255, 255)
