"""The memory of a change of a filter: beside what is held before, the bytes that it adds, and a page."""

from __future__ import annotations

from bench.change_memory import CHANGES, main

OBJECTS = 2_000
TABLES = 300
"""Bytes of the tables of a store, for each object."""


def test_a_change_takes_the_memory_it_adds_and_some_pages() -> None:
    found = main(["--objects", str(OBJECTS)])
    same, anew = (found[name] for name in CHANGES)
    assert same.peak < OBJECTS * TABLES + 2 * same.page
    assert anew.peak < anew.held + OBJECTS * TABLES + 2 * anew.page
    for figures in (same, anew):
        assert figures.added < figures.held / 4, "the former objects are freed"
