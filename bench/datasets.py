"""The sets of objects by name."""

from __future__ import annotations

from collections.abc import Mapping

from bench.data import Data
from bench.grouped import Grouped
from bench.unrelated import Unrelated

SETS: Mapping[str, type[Data]] = {each.name: each for each in (Grouped, Unrelated)}
DEFAULT = Grouped.name


def dataset(name: str, *, seed: int) -> Data:
    """Return the set of this name.

    >>> next(dataset('unrelated', seed=1).pods(1))['metadata']['namespace']
    'bench-00'
    """
    return SETS[name](seed=seed)
