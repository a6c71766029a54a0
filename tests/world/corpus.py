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


UNSOLVED: dict[int, Found] = {
    1103: Found(
        "16", "a list goes on after its watch has expired, and shows an older state than was read before"
    ),
    1236: Found(
        "9",
        "a handler is called with a newer body, and reads an object of its namespace that was deleted before",
    ),
    1345: Found(
        "9", "an object enters between the lost answer to its deletion and the look that finds it gone"
    ),
}
"""Seeds of worlds that fail on today's code, and why. The test fails if one of them passes: then move it to
SEEDS."""
