"""Makes a failing run short: leaves operations out while it still fails in the same way. Knows nothing of
what they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def shrunk(operations: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return operations of which none can be left out: first large parts are tried, then smaller ones, then
    each."""
    kept, size = list(operations), max(1, len(operations) // 2)
    while True:
        before, at = len(kept), 0
        while at < len(kept):
            without = kept[:at] + kept[at + size :]
            if fails(without):
                kept = without
            else:
                at += size
        if size > 1:
            size //= 2
        elif len(kept) == before:
            return kept
