"""The paging rule: which page of a list comes next, how large it is, when it may be asked for, and when the
list is given up. No I/O.

All pages of a list are of one version, so no object is in two of them. New keys are therefore the progress of
a list: a page with a token that brings objects, but no new key, shows that the tokens lead back or the server
ignores them. A page without objects may be correct; it is followed after a wait. So are the pages of a list
that brings few objects, and few bytes, per page.

The `limit` of a request follows the size of the objects: `PageSize` aims at pages of 4 MB, and learns from
the pages before.

Every list of a page follows this rule: those of the protocol (`core.protocol.machine` keeps a `Pager` in its
state), and audits, fetches, comparisons and confirming lists (`Paging` keeps one, with the query).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from operator import lt

from kopf_selectcache.core.errors import Garbled

from .backoff import delay
from .messages import Page, Piece

EMPTY_PAGES = 100
"""A list may have this many pages without objects in a row."""

PAGES_AT_ONCE = 100
"""A list may have this many pages that follow each other without a wait, and one more for each
`KEYS_PER_PAGE` of its objects and each `BYTES_PER_PAGE`."""

KEYS_PER_PAGE = 10

MOST_PAGES = 20_000
"""A list may have this many pages: 10 million objects with the default limit of 500, which is more than etcd
can store."""

MOST_BYTES = 16 * 1024**3
"""A list may have this many bytes, in all of its pages: etcd stores at most 8 GiB, and JSON takes about twice
as much."""

PAGE_BYTES = 4_000_000
"""A page should have this many bytes, decompressed: it is held twice while it is read, beside all that a
cache holds."""

BYTES_PER_PAGE = PAGE_BYTES // 4
"""A page of this many bytes needs no wait, however few objects it has. Pages of large objects have half of
`PAGE_BYTES` or more."""

MOST_PAGE_BYTES = 4 * PAGE_BYTES
"""A page of more than one object may have this many bytes, decompressed. Reading stops there, and a smaller
page is asked for."""

SHRINKS = 16
"""The limit of a page that is too large is divided by this: how many objects it has is not known, except that
they are large."""

NOWHERE = "the pages of a list lead nowhere"
FEW = "the pages of a list bring few objects"


@dataclass(frozen=True, slots=True)
class Pager:
    """One list, up to the page that came last.

    Servers list objects in the order of their keys. While they do, a key is new if it is greater than all
    before, and no key has to be stored. Only the first page is, and what does not come in order: so a list
    that repeats itself is noticed at the first repeated page if it goes back to its start, or else after it
    has repeated itself once.
    """

    version: str = ""
    """The version of all pages; empty until the first, unless it must be a certain one."""
    token: str = ""
    """The token of the next page; empty after the last."""
    pages: int = 0
    keys: int = 0
    """The number of new keys that the pages have brought."""
    size: int = 0
    """The bytes of all pages."""
    empty: int = 0
    """The number of pages without objects in a row."""
    greatest: str = ""
    """The greatest key so far."""
    seen: frozenset[str] = frozenset()
    """The keys of the first page, and those that were not in order."""

    def turn(self, page: Page) -> Pager:
        """Take a page in; raise Garbled if it cannot be of this list, or if the list has no end."""
        if self.version and page.version != self.version:
            raise Garbled(
                f"a page of version {page.version[:100]!r} came in a list of version {self.version[:100]!r}"
            )
        return replace(self._take(page, is_last=not page.token), version=page.version, token=page.token)

    def take(self, piece: Piece) -> Pager:
        """Take a piece of the next page in, which counts as a page of its own; raise Garbled if the list has
        no end.
        """
        return self._take(piece, is_last=False)

    def _take(self, page: Page | Piece, *, is_last: bool) -> Pager:
        turned = replace(self, pages=self.pages + 1, size=self.size + page.size)
        if turned.size > MOST_BYTES:
            raise Garbled(f"a list has more than {MOST_BYTES // 1024**3} GiB")
        if is_last:
            return turned
        if turned.pages >= MOST_PAGES:
            raise Garbled(f"a list has more than {MOST_PAGES} pages")
        keys = [f"{record.namespace}/{record.name}" for record in page.records]
        found, seen = self._new(keys)
        # A page without objects is not the last one if it has a token. But there may be no last one.
        empty = 0 if keys else self.empty + 1
        if (keys and not found) or empty > EMPTY_PAGES:
            raise Garbled(NOWHERE)
        return replace(
            turned, empty=empty, keys=self.keys + found, greatest=max([self.greatest, *keys]), seen=seen
        )

    def _new(self, keys: list[str]) -> tuple[int, frozenset[str]]:
        """Return how many of these keys are new, and the keys to store."""
        if self.pages and keys and self.greatest < keys[0] and all(map(lt, keys, islice(keys, 1, None))):
            return len(keys), self.seen
        seen = self.seen.union(keys)
        return len(seen) - len(self.seen), seen

    @property
    def is_paced(self) -> bool:
        """True if the next page must not be asked for without a wait."""
        return (
            self.empty > 0
            or self.pages > PAGES_AT_ONCE + self.keys // KEYS_PER_PAGE + self.size // BYTES_PER_PAGE
        )


NO_PAGES = Pager()
"""A list before its first page."""


class PageSize:
    """Chooses how many objects to ask for in one page, by the size of those in the pages before: of one list,
    or of all lists of a stream.

    >>> size = PageSize(500)
    >>> size.shrink(), size.query, size.shrink(), size.query
    (True, {'limit': '31'}, True, {'limit': '1'})
    """

    def __init__(self, most: int | None) -> None:
        self._most = most  # None asks for the whole list.
        self._limit = most
        self._is_ignored = (
            False  # Whether the last answer that shows it had more objects than were asked for.
        )
        self._is_split = most is None

    @property
    def query(self) -> Mapping[str, str]:
        return {"limit": str(self._limit)} if self._limit is not None else {}

    @property
    def most_bytes(self) -> int | None:
        """The bytes to read of a page at most; None if a smaller page cannot be asked for, so that only the
        setting bounds it.
        """
        return (
            MOST_PAGE_BYTES if self._limit is not None and self._limit > 1 and not self._is_ignored else None
        )

    @property
    def is_split(self) -> bool:
        """True if the next answer must be read in pieces (`core.protocol.splitter`): a list in one piece, or
        a server that ignores the limit.
        """
        return self._is_split

    def split(self) -> None:
        """Note that the smallest page was too large."""
        self._is_split = True

    def learn(self, page: Page, *, objects: int = 0, size: int = 0) -> None:
        """Choose the limit of the next page. It doubles at most: the next objects may be larger.

        Of a page that came in pieces, say how many objects and bytes came before its last piece.
        """
        objects, size = objects + len(page.records), size + page.size
        if self._most is None or self._limit is None or not objects:
            return
        # A list that has so few objects does not show it. An API server ignores the limit of some lists, and
        # not of others.
        if page.token or objects > self._limit:
            self._is_ignored = objects > self._limit
        # Splitting takes several times the CPU.
        self._is_split = self._is_split and self._is_ignored and size > MOST_PAGE_BYTES
        fitting = PAGE_BYTES * objects // max(size, 1)
        # A page that is small because the list ends with a few large objects is no reason for smaller pages.
        if size > PAGE_BYTES or fitting > self._limit:
            self._limit = max(1, min(fitting, 2 * self._limit, self._most))

    def shrink(self) -> bool:
        """Ask for smaller pages, because one was too large; return False if there are none."""
        if self._limit is None or self._limit <= 1:
            return False
        self._limit = max(1, self._limit // SHRINKS)
        return True


class Paging:
    """One list that comes in pages, with the queries of its requests. The `first` request alone has what the
    tokens of the others imply.

    >>> paging = Paging({}, page_limit=2, first={'resourceVersion': '10', 'resourceVersionMatch': 'Exact'}, patience=120.0)
    >>> paging.turn(Page('10', 'more', ()))
    >>> paging.query, paging.token, paging.version, paging.take_pause(1.0)
    ({'limit': '2', 'continue': 'more'}, 'more', '10', 0.5)
    >>> paging.turn(Page('10', '', ()))
    >>> paging.is_complete
    True
    """  # A line of an example is not broken.  # noqa: E501

    def __init__(
        self,
        query: Mapping[str, str],
        *,
        page_limit: int | None,
        patience: float,
        first: Mapping[str, str] | None = None,
        version: str = "",
    ) -> None:
        self.size = PageSize(page_limit)
        """The size of the next page."""
        self.is_complete = False
        """True after the last page."""
        self._query = query
        self._rest: Mapping[str, str] = first or {}
        self._pager = Pager(version)
        self._patience = patience
        """The seconds that all pauses of the list may take together."""
        self._paused = 0.0

    @property
    def query(self) -> Mapping[str, str]:
        """The query of the next request."""
        return {**self._query, **self.size.query, **self._rest}

    @property
    def version(self) -> str:
        return self._pager.version

    @property
    def token(self) -> str:
        return self._pager.token

    def turn(self, page: Page) -> None:
        """Take a page in; raise Garbled if it cannot be of this list, or if the list has no end."""
        self._pager = self._pager.turn(page)
        self.size.learn(page)
        self._rest, self.is_complete = {"continue": page.token}, not page.token

    def take_pause(self, jitter: float) -> float:
        """Return the seconds to wait before the next request, mostly 0; raise Garbled if all pauses have
        taken too long.

        Each call counts as a pause.
        """
        if self.is_complete or not self._pager.is_paced:
            return 0.0
        if self._paused >= self._patience:
            raise Garbled(f"{FEW}, for {self._patience:g} s")
        pause = delay(0, jitter)
        self._paused += pause
        return pause
