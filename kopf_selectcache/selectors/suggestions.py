"""Suggests a known name for a misspelt one. Nothing depends on it: an error without a suggestion is still
complete.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(word: str, known: Iterable[str], *, likeness: float = 0.7) -> str | None:
    """Return the known name that is most like the word, or None if none is that like (1.0 means equal)."""
    names = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower()[:100], names, n=1, cutoff=likeness)
    return names[found[0]] if found else None
