"""The paging rule: which page of a list is next, how large it is, when it is requested, and when the list is
given up. No I/O.

All pages of a list have one version, so no object is in two of them. The progress of a list is therefore
measured in new keys: a page with a token and objects, but without a new key, shows that the tokens form a
loop or that the server ignores them. A page without objects may be correct; the next page is requested after
a wait. The pages of a list with few objects and few bytes per page are requested with waits as well.

The `limit` of a request depends on the size of the objects: `PageSize` aims at pages of 4 MB, and learns from
the previous pages.

Every list follows this rule: those of the protocol (`core.protocol.machine` has a `Pager` in its state), and
audits, fetches, comparisons and probes (`Paging` has a `Pager` and the query).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from operator import lt

from kopf_selectcache.core.errors import Garbled

from .messages import Page, delay

EMPTY_PAGES = 100
"""The most pages without objects in a row."""

PAGES_AT_ONCE = 100
"""The most pages that are requested without a wait; one more for each `KEYS_PER_PAGE` objects and each
`BYTES_PER_PAGE` bytes of the list."""

KEYS_PER_PAGE = 10

MOST_PAGES = 20_000
"""The most pages of a list: 10 million objects with the default limit of 500. etcd cannot store as many."""

MOST_BYTES = 16 * 1024**3
"""The most bytes of all pages of a list: etcd stores at most 8 GiB, and JSON takes about twice as much."""

PAGE_BYTES = 4_000_000
"""The intended size of a page, decompressed. While a page is read, it is in memory twice, in addition to the
contents of the cache."""

BYTES_PER_PAGE = PAGE_BYTES // 4
"""A page of this size needs no wait, even if it has few objects. Pages of large objects have half of
`PAGE_BYTES` or more."""

MOST_PAGE_BYTES = 4 * PAGE_BYTES
"""The most bytes of a page with more than one object, decompressed. Reading stops there, and a smaller page
is requested."""

SHRINK_DIVISOR = 16
"""The divisor of the limit after a page that is too large. The number of its objects is not known, only that
they are large."""

ENDLESS_PAGES = "the pages of a list never end"
TOO_FEW_OBJECTS = "the pages of a list had too few objects"


@dataclass(frozen=True, slots=True)
class Pager:
    """The progress of one list, up to the last received page.

    Servers list objects in the order of their keys. As long as they do, a key is new if it is greater than
    all previous ones, and it does not have to be stored. Only the keys of the first page and those out of
    order are stored. So a list that repeats itself is detected at the first repeated page if it returns to
    its start, otherwise after one complete repetition.
    """

    version: str = ""
    """The version of all pages; empty before the first page, unless a certain version is required."""
    token: str = ""
    """The token of the next page; empty after the last page."""
    pages: int = 0
    keys: int = 0
    """The number of new keys in all pages so far."""
    size: int = 0
    """The bytes of all pages so far."""
    empty: int = 0
    """The number of pages without objects in a row."""
    greatest: str = ""
    """The greatest key so far."""
    seen: frozenset[str] = frozenset()
    """The keys of the first page, and those that were out of order."""

    def turn(self, page: Page) -> Pager:
        """Return the progress after this page; raise Garbled if it cannot belong to the list, or if the list
        has no end.
        """
        if self.version and page.version != self.version:
            raise Garbled(
                f"a page of version {page.version[:100]!r} came in a list of version {self.version[:100]!r}"
            )
        turned = replace(
            self,
            version=page.version,
            token=page.token,
            pages=self.pages + 1,
            size=self.size + page.size,
        )
        if turned.size > MOST_BYTES:
            raise Garbled(f"a list has more than {MOST_BYTES // 1024**3} GiB")
        if not page.token:
            return turned
        if turned.pages >= MOST_PAGES:
            raise Garbled(f"a list has more than {MOST_PAGES} pages")
        keys = [f"{record.namespace}/{record.name}" for record in page.records]
        found, seen = self._new(keys)
        # A page without objects is not the last page if it has a token; but such pages may have no end.
        empty = 0 if keys else self.empty + 1
        if (keys and not found) or empty > EMPTY_PAGES:
            raise Garbled(ENDLESS_PAGES)
        return replace(
            turned, empty=empty, keys=self.keys + found, greatest=max([self.greatest, *keys]), seen=seen
        )

    def _new(self, keys: list[str]) -> tuple[int, frozenset[str]]:
        """Return the number of new keys, and the keys to store."""
        if self.pages and keys and self.greatest < keys[0] and all(map(lt, keys, islice(keys, 1, None))):
            return len(keys), self.seen
        seen = self.seen.union(keys)
        return len(seen) - len(self.seen), seen

    @property
    def is_paced(self) -> bool:
        """True if the next page must be requested after a wait only."""
        return (
            self.empty > 0
            or self.pages > PAGES_AT_ONCE + self.keys // KEYS_PER_PAGE + self.size // BYTES_PER_PAGE
        )


NO_PAGES = Pager()
"""A list before its first page."""


class PageSize:
    """Chooses the limit of the next page by the size of the objects in the previous ones: of one list, or of
    all lists of a stream.

    >>> size = PageSize(500)
    >>> size.shrink(), size.query, size.shrink(), size.query
    (True, {'limit': '31'}, True, {'limit': '1'})
    """

    def __init__(self, most: int | None) -> None:
        self._most = most  # None asks for the whole list.
        self._limit = most
        self._is_ignored = False
        """True if the server ignored the limit of the last list that was large enough to show it."""

    @property
    def query(self) -> Mapping[str, str]:
        return {"limit": str(self._limit)} if self._limit is not None else {}

    @property
    def most_bytes(self) -> int | None:
        """The most bytes to read of a page; None if no smaller page can be requested: then only the setting
        limits it.
        """
        return (
            MOST_PAGE_BYTES if self._limit is not None and self._limit > 1 and not self._is_ignored else None
        )

    def learn(self, page: Page) -> None:
        """Choose the limit of the next page. It doubles at most, because the next objects may be larger."""
        objects = len(page.records)
        if self._most is None or self._limit is None or not objects:
            return
        # A list with fewer objects than the limit does not show if the server ignores it. API servers ignore
        # the limit of some lists only.
        if page.token or objects > self._limit:
            self._is_ignored = objects > self._limit
        fitting = PAGE_BYTES * objects // max(page.size, 1)
        # Do not shrink after a small page: it may be the end of a list, with a few large objects. After one
        # that is hardly too large, more requests would cost more than its bytes.
        if page.size > 1.5 * PAGE_BYTES or fitting > self._limit:
            self._limit = max(1, min(fitting, 2 * self._limit, self._most))

    def shrink(self) -> bool:
        """Reduce the limit after a page that was too large; return False if it cannot be smaller."""
        if self._limit is None or self._limit <= 1:
            return False
        self._limit = max(1, self._limit // SHRINK_DIVISOR)
        return True


class Paging:
    """One list in pages, with the queries of its requests. `first` has the parameters of the first request
    only: the tokens of later requests imply them.

    >>> paging = Paging({}, page_limit=2, first={'resourceVersion': '10', 'resourceVersionMatch': 'Exact'}, patience=120.0)
    >>> paging.turn(Page('10', 'more', ()))
    >>> paging.query, paging.token, paging.version, paging.take_pause(1.0)
    ({'limit': '2', 'continue': 'more'}, 'more', '10', 0.5)
    >>> paging.turn(Page('10', '', ()))
    >>> paging.is_complete
    True
    """  # The call in the example has to be on one line.  # noqa: E501

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
        """The limit in seconds for all pauses of the list together."""
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
        """Add a page; raise Garbled if it cannot belong to the list, or if the list has no end."""
        self._pager = self._pager.turn(page)
        self.size.learn(page)
        self._rest, self.is_complete = {"continue": page.token}, not page.token

    def take_pause(self, jitter: float) -> float:
        """Return the seconds to wait before the next request, usually 0; raise Garbled if the pauses together
        exceed the limit.

        Each call counts as a pause.
        """
        if self.is_complete or not self._pager.is_paced:
            return 0.0
        if self._paused >= self._patience:
            raise Garbled(f"{TOO_FEW_OBJECTS}, for {self._patience:g} s")
        pause = delay(0, jitter)
        self._paused += pause
        return pause
