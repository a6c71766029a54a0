"""Worlds that the default suite plays again: seeds, and the shortest histories of faults that were found."""

from __future__ import annotations

from typing import NamedTuple

SEEDS = (
    *range(8),
    35,  # A change that was overtaken returned as if it were in force.
    102,  # The answer to a deletion was lost, and the deleted object was still read.
    68,  # A handler did not wait until a departure was confirmed that only a list had shown.
    122,  # The same, with another order of lists.
)
"""Seeds of worlds that must pass."""


class Found(NamedTuple):
    """A world that fails."""

    promise: str
    """The number of the promise that is broken."""
    reason: str


_OLD_BODY = (
    "A handler is called with an old body of its own object. The cache knows a newer state of it, which is"
    " outside of the filter; another stream is older than the body, so the body is shown again."
)

UNSOLVED: dict[int, Found] = {
    12: Found("4", _OLD_BODY),
    87: Found("4", _OLD_BODY),
    125: Found("9", "A handler reads a sibling older than its body while a filter changes. Not analysed."),
}
"""Seeds of worlds that fail on today's code, and why. The test fails if one of them passes: then move it to
SEEDS."""
