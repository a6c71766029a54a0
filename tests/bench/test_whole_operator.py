"""Whole operators: requests, CPU and memory, with and without a second watch."""

from __future__ import annotations

from bench.data import Data
from bench.datasets import SETS
from bench.whole_operator import (
    COMMANDS,
    GO,
    HANDLER,
    ONE,
    PLAIN,
    TWO,
    Figures,
    commands_of,
    measure,
    report,
    verdict,
)
from kopf_selectcache.testing import EmbeddedCluster
from tests.conftest import client_of

DATA: Data = SETS["grouped"](seed=1)


def test_one_watch_asks_half_as_much_as_two() -> None:
    commands = {name: each for name, each in commands_of(COMMANDS, go=False).items() if name in (TWO, ONE)}
    with EmbeddedCluster(garbage_collection=False).in_thread() as cluster:
        found = measure(client_of(cluster), DATA.many(5)[:], commands, repeats=1, changes=3)
    (two,), (one,) = found.values()
    assert isinstance(two, Figures), two
    assert isinstance(one, Figures), one
    assert (two.requests, one.requests) == (4, 2)
    assert two.megabytes == 2 * one.megabytes > 0
    assert min(one.cpu, one.event, one.rest, one.peak) > 0


def test_the_tables_have_medians_and_ratios() -> None:
    plain, two, one = (
        Figures(9, 40, 5, 1000, 200, 300),
        Figures(18, 80, 6, 1200, 250, 400),
        Figures(9, 40, 4, 900, 100, 150),
    )
    tables = {(HANDLER, 4000): {PLAIN: [plain], TWO: [two], ONE: [one, one, two], GO: [plain]}}
    assert report(tables).splitlines()[4] == (
        f"| {HANDLER} | 4,000 | {ONE} | 9 (1.00x) | 40 (1.00x) | 4 (0.80x) | 900 (0.90x) | 100 (0.50x)"
        " | 150 (0.50x) |"
    )
    assert verdict(tables).splitlines()[2:] == [
        f"| requests | {TWO} | 0.50x | 0.50x |",
        f"| MB received | {TWO} | 0.50x | 0.50x |",
        f"| CPU until all have run, s | {PLAIN} | 1.05x | 0.80x |",
        f"| CPU of an event, µs | {PLAIN} | 1.00x | 0.90x |",
        f"| memory, MB | {TWO} | 1.00x | 0.40x |",
    ]
