"""What a read would do, told without doing it."""

from __future__ import annotations

from dataclasses import dataclass

from kopf_selectcache.core.store.postings import in_words
from kopf_selectcache.selectors.selector import Verdict


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a read would do; as text, a few lines."""

    verdict: Verdict
    """Whether the filter holds all that is asked for."""
    looks_at: int
    """How many of the held objects would be taken as candidates, and compared with the rest of what is asked
    for."""
    decodes: bool
    """Whether each that has the labels must be decoded to see if it matches, because no index answers
    `field=` or `where=`."""
    asks: tuple[str, ...]
    """The requests that `fetch_list` would make, where the cache cannot answer."""
    partial: str = ""
    """By what only a part of each object is kept, as it is declared: `drop=['data']`. Empty if objects are
    whole but for `managedFields`."""

    by: tuple[str, ...] = ()
    """How the candidates are found: by `names`, `namespace`, or an index such as `label app`; then what they
    are cut by. Empty if it is all that is held."""
    indexes: str = ""
    """The index that such a read would have made, so that the next ones look at less; empty if none would
    help, or it is being made."""
    nowhere: tuple[str, ...] = ()
    """The declared indexes that are asked by, and by which no held object has a value."""
    lacks: str = ""
    """Why the read would raise NotKept, whatever is held; empty if it would not."""

    def __str__(self) -> str:
        how = " and decodes those that fit so far" if self.decodes else ""
        found = [each for each in self.by if each not in ("names", "namespace")]
        which = f" that it finds by its {' and '.join(map(in_words, found))}," if found else ""
        lines = [
            str(self.verdict),
            f"The cache looks at {self.looks_at:,} held object{'' if self.looks_at == 1 else 's'}{which}{how}".rstrip(  # noqa: E501
                ","
            )
            + ".",
        ]
        if self.indexes:
            lines.append(f"Such a read has an index of {self.indexes} made, for the next ones.")
        lines += [f"No held object has a value by the index {each}." for each in self.nowhere]
        if self.lacks:
            lines.append(f"A read raises NotKept: {self.lacks}.")
        if self.partial:
            lines.append(
                f"It keeps a part of each object, by {self.partial}: such a part must not be written back as"
                " the whole."
            )
        if not self.verdict:
            lines += [f"fetch_list asks the server: GET {path}." for path in self.asks]
        return "\n".join(lines)
