"""A seeded bug, as data."""

from __future__ import annotations

from typing import NamedTuple

TRANSIT = "branch transit x order of the streams"
OVERLAY = "overlay x relist x leaving a branch"
PROJECTION = "projection x selector on the dropped path"
THREADS = "reading threads x commit"
PRODUCTS = (TRANSIT, OVERLAY, PROJECTION, THREADS)
"""The combinations that tests enumerate and do not sample."""


CORPUS = "tests/world/test_world.py::test_in_the_worlds_of_the_corpus_no_read_contradicts_the_history"
"""The stored worlds; their titles are the parameters: `f"{CORPUS}[a title]"`."""


class Mutant(NamedTuple):
    """One mistake."""

    name: str
    """The name in docs/guarantees.md: a sentence about the faulty code, or without its subject."""
    file: str
    """In the package."""
    old: str
    new: str
    breaks: int
    """The number of the promise in docs/guarantees.md."""
    tests: tuple[str, ...]
    """Each of them must catch it; the promise names them."""
    product: str = ""
