"""Leaves out steps of a world that fails, as long as it fails with the same promise."""

from __future__ import annotations

from .world import Run


def shrunk(run: Run) -> Run:
    """Return a run with fewer steps that breaks the same promise."""
    assert run.lie is not None, "only a world that fails can be made smaller"
    promise, best, size = _promise(run), run, max(1, len(run.lines) // 2)
    while size:
        start = 0
        while start < len(best.lines):
            lines = [*best.lines[:start], *best.lines[start + size :]]
            tried = Run(run.filter, run.options).play(lambda _, lines=lines: lines)  # type: ignore[misc]
            if tried.lie is not None and _promise(tried) == promise:
                best = tried
            else:
                start += size
        size //= 2
    return best


def _promise(run: Run) -> str:
    """Return the number of the promise, and what is wrong about it."""
    words = str(run.lie).split(":")
    return ":".join(words[:2]) if words[0] != "1" else words[0]
