"""Explanation: the coverage and the work of a read, computed without the read."""

from __future__ import annotations

from dataclasses import dataclass

from kopf_selectcache.core.store.postings import in_words
from kopf_selectcache.selectors.selector import Verdict


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of `cache.explain`; `str` gives a few lines of text."""

    verdict: Verdict
    """The comparison of the request with the filter; true if the filter covers it."""
    looks_at: int
    """The number of stored objects that are candidates: they are compared with the rest of the request. 0 if
    the filter selects no object of the request."""
    decodes: bool
    """True if candidates with the right labels must be decoded, because no index answers `fields=` or
    `where=`."""
    asks: tuple[str, ...]
    """The requests that `fetch_list` would send if the cache cannot answer."""
    partial: str = ""
    """The declared projection, such as `drop=['data']`. Empty if objects are whole but for
    `managedFields`."""

    by: tuple[str, ...] = ()
    """The indexes that find the candidates: `names`, `namespace`, or an index such as `label app`; the first
    one finds them, the others reduce them. Empty if all stored objects are candidates."""
    indexes: str = ""
    """The index that such a read would cause to be built, so that later reads have fewer candidates; empty if
    none would help, or it is being built."""
    nowhere: tuple[str, ...] = ()
    """The declared indexes that the request uses, and by which no stored object has a value."""
    lacks: str = ""
    """The reason for which the read would always raise NotKept; empty if it would not."""
    version: str = ""
    """The version of the stored objects: that of the last event or bookmark of each watch, the oldest one."""
    age: float = 0.0
    """The seconds since the server last confirmed them."""
    laid_over: int = 0
    """The number of stored objects that the answer shows as the operator has written them, or as the handler
    was called with, because the watch has not reported that yet."""
    is_split: bool = False
    """True if `cache.list_outside` has the labels and owners of the objects outside of the filter."""

    def __str__(self) -> str:
        how = " and decodes those that fit so far" if self.decodes else ""
        found = [each for each in self.by if each not in ("names", "namespace")]
        which = f" that it finds by its {' and '.join(map(in_words, found))}," if found else ""
        objects = f"{self.looks_at:,} cached object{'' if self.looks_at == 1 else 's'}"
        lines = [
            str(self.verdict),
            f"The cache looks at {objects}{which}{how}".rstrip(",") + ".",
        ]
        if self.indexes:
            lines.append(f"The first such read builds an index of {self.indexes} for the next ones.")
        lines += [f"No cached object has a value in the index {each}." for each in self.nowhere]
        if self.laid_over:
            lines.append(
                f"It shows {self.laid_over:,} object{'' if self.laid_over == 1 else 's'} newer than the watch"
                " has reported: your own writes, and the object of the handler."
            )
        if self.lacks:
            lines.append(f"A read raises NotKept: {self.lacks}.")
        if self.partial:
            lines.append(
                f"It only stores a part of each object, {self.partial}. Don't write a part back as a whole"
                " object."
            )
        if not self.verdict:
            if self.is_split:
                lines.append("cache.list_outside shows the labels and owners of objects outside the filter.")
            lines += [f"fetch_list asks the server: GET {path}." for path in self.asks]
        lines.append(f"The cache is at version {self.version}, confirmed {self.age:.1f} s ago.")
        return "\n".join(lines)
