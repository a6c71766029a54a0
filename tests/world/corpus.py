"""Worlds that the default suite plays again: seeds, and the shortest histories of faults that were found."""

from __future__ import annotations

from typing import NamedTuple

SEEDS = (
    *range(8),
    35,  # A change that was overtaken returned as if it were in force.
    102,  # The answer to a deletion was lost, and the deleted object was still read.
    68,  # A handler did not wait until a departure was confirmed that only a list had shown.
    122,  # The same, with another order of lists.
    12,  # A handler was shown its body, though a stream had shown that the object had left.
    87,  # The same, where a request had shown it.
    125,  # A stream that was held at the end of a filter change counted as one that had caught up.
    4016,  # An own write was answered after a newer state was read, and shown by the next filter.
    4351,  # What only the next filter had listed was shown after an own deletion of its successor.
    130,  # A handler was shown its body, after its object had left and the filter had changed.
)
"""Seeds of worlds that must pass."""


class Found(NamedTuple):
    """A world that fails."""

    promise: str
    """The number of the promise that is broken."""
    reason: str


UNSOLVED: dict[int, Found] = {}
"""Seeds of worlds that fail on today's code, and why. The test fails if one of them passes: then move it to
SEEDS."""
