"""The pictures with figures: of memory, from bench/results.json, and of the ranges that replicas own."""

from __future__ import annotations

from bench.measuring import middle
from bench.report import COPIES, HEADS, RESULTS, SIZE
from bench.roster import OURS
from bench.run import read_results
from bench.targets import CONTROLLER, GROUPED, KUBE_RS, UNRELATED, Run
from kopf_selectcache.core.assignment.rendezvous import desired_owners
from tests.docs.pictures.picture import Picture

NAMES = {OURS: "this cache", CONTROLLER: "controller-runtime, in Go", KUBE_RS: "kube-rs, in Rust"}
LONGEST = 300
"""Pixels of the longest bar."""

REPLICAS = ("webapps-0", "webapps-1", "webapps-2")
DEAD = REPLICAS[0]
LETTERS = dict(zip(REPLICAS, "ABC", strict=True))
KINDS = dict(zip(REPLICAS, ("left", "pod", "box"), strict=True))
CELL = 22
ACROSS = 16


def memory() -> Picture:
    results = middle(read_results(RESULTS)[1])
    runs = {name: Run([each for each in results if each.data == name]) for name in (GROUPED, UNRELATED)}
    sizes = {(peer, data): run.get(peer, SIZE, "per object") for peer in COPIES for data, run in runs.items()}
    scale = LONGEST / max(size for size in sizes.values() if size is not None)
    drawn = Picture(
        f"Memory per pod in caches of {SIZE:,} pods, if most are replicas, and if no two are alike. It is "
        + ", ".join(
            f"{_shown(sizes[peer, GROUPED])} and {_shown(sizes[peer, UNRELATED])} with"
            f" {NAMES.get(peer, HEADS.get(peer, peer))}"
            for peer in COPIES
        )
        + ".",
        66 + 76 * len(COPIES),
        style="    .ours { fill: $blue; stroke: $blue; stroke-width: 1.5 }\n"
        "    .other { fill: $edge; stroke: $edge; stroke-width: 1.5 }\n",
    )
    drawn.text(10, 26, f"Memory per pod, with {SIZE:,} pods", kind="head")
    drawn.box(10, 39, 16, 12, "other", radius=2)
    drawn.text(32, 50, "mostly replicas", kind="note")
    drawn.box(170, 39, 16, 12, "box", radius=2)
    drawn.text(192, 50, "no two alike", kind="note")
    y = 66
    for peer in COPIES:
        drawn.text(10, y + 20, NAMES.get(peer, HEADS.get(peer, peer)))
        for row, (data, kind) in enumerate(
            ((GROUPED, "ours" if peer == OURS else "other"), (UNRELATED, "pod" if peer == OURS else "box"))
        ):
            size = sizes[peer, data]
            long = (size or 0) * scale
            if size is not None:
                drawn.box(10, y + 28 + 20 * row, long, 15, kind, radius=2)
            drawn.text(
                10 if size is None else 18 + long,
                y + 40 + 20 * row,
                _shown(size),
                kind="note" if size is None else "",
            )
        y += 76
    return drawn


def _shown(size: float | None) -> str:
    if size is None:
        return "not measured"
    return f"{size / 1e3:.1f} KB" if size < 20_000 else f"{size / 1e3:.0f} KB"


def replicas() -> Picture:
    before, after = (desired_owners(frozenset(some)) for some in (REPLICAS, set(REPLICAS) - {DEAD}))
    drawn = Picture(
        "64 ranges of namespaces belong to three replicas, 21 or 22 each. Replica A dies. Within 50 seconds,"
        " B and C own its ranges, and keep their own.",
        332,
        style="    .moved { stroke-width: 3 }\n",
    )
    y = _owned(drawn, 10, "Three replicas", before, before)
    drawn.arrow((32, y), (32, y + 46))
    drawn.text(46, y + 20, "A dies. Within 50 seconds, B and C", "take over its namespaces.")
    _owned(drawn, y + 54, "Two replicas", after, before)
    return drawn


def _owned(drawn: Picture, y: float, head: str, owners: tuple[str, ...], before: tuple[str, ...]) -> float:
    """Draw a square for each range, bold if it has moved. Return where it ends."""
    drawn.text(24, y + 16, head, kind="head")
    x = 160
    for name in dict.fromkeys(sorted(owners)):
        drawn.text(x, y + 16, f"{LETTERS[name]}: {owners.count(name)}", kind="note")
        x += 76
    for number, owner in enumerate(owners):
        down, across = divmod(number, ACROSS)
        left, top = 24 + across * CELL, y + 28 + down * CELL
        moved = " moved" if owner != before[number] else ""
        drawn.box(left + 2, top + 2, CELL - 4, CELL - 4, KINDS[owner] + moved, radius=3)
        drawn.text(left + CELL / 2, top + CELL / 2 + 5, LETTERS[owner], kind="code", anchor="middle")
    return y + 28 + len(owners) / ACROSS * CELL + 8
