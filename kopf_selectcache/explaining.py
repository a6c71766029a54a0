"""What a read would do, told without doing it."""
from __future__ import annotations

from dataclasses import dataclass

from .verdict import Verdict


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a read would do; as text, a few lines."""

    verdict: Verdict
    """Whether the filter holds all that is asked for."""
    looks_at: int
    """How many of the held objects would be compared with what is asked for."""
    decodes: bool
    """Whether each that has the labels must be decoded to see if it matches, because of `field=` or `where=`."""
    asks: tuple[str, ...]
    """The requests that `fetch_list` would make, where the cache cannot answer."""
    partial: str = ""
    """By what only a part of each object is kept, as it is declared: `drop=['data']`. Empty if objects are whole but for `managedFields`."""

    lacks: str = ""
    """Why the read would raise NotKept, whatever is held; empty if it would not."""

    def __str__(self) -> str:
        how = " and decodes those that fit so far" if self.decodes else ""
        lines = [str(self.verdict), f"The cache looks at {self.looks_at:,} held object{'' if self.looks_at == 1 else 's'}{how}."]
        if self.lacks:
            lines.append(f"A read raises NotKept: {self.lacks}.")
        if self.partial:
            lines.append(f"It keeps a part of each object, by {self.partial}: such a part must not be written back as the whole.")
        if not self.verdict:
            lines += [f"fetch_list asks the server: GET {path}." for path in self.asks]
        return "\n".join(lines)
