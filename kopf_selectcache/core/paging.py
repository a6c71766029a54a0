"""From page to page of a list: what to ask for next, and whether the pages are of one list that comes to an end. Asks nobody."""
from __future__ import annotations

from collections.abc import Mapping

from .problems import Garbled
from .protocol import EMPTY_PAGES
from .wire import Page


class Paging:
    """One list that comes in pages. What only the `first` request may have is what the tokens of the others imply.

    >>> paging = Paging({'limit': '2'}, first={'resourceVersion': '10', 'resourceVersionMatch': 'Exact'})
    >>> paging.turn(Page('10', 'more', ()))
    >>> paging.query, paging.token, paging.version
    ({'limit': '2', 'continue': 'more'}, 'more', '10')
    >>> paging.turn(Page('10', '', ()))
    >>> paging.query is None
    True
    """

    def __init__(self, query: Mapping[str, str], *, first: Mapping[str, str] | None = None, version: str = "") -> None:
        self.query: Mapping[str, str] | None = {**query, **(first or {})}
        """What to ask for next; None after the last page."""
        self.version = version
        """The version of all pages; empty until the first, unless it must be a certain one."""
        self.token = ""
        self._query = query
        self._empty = 0

    def turn(self, page: Page) -> None:
        """Take a page in; raise Garbled if it cannot be of this list, or another can lead nowhere."""
        if self.version and page.version != self.version:
            raise Garbled(f"a page of version {page.version[:100]!r} came in a list of version {self.version[:100]!r}")
        # An empty page with a token is not the last one. But some servers ignore the token that they are given.
        self._empty = 0 if page.records else self._empty + 1
        if page.token and (page.token == self.token or self._empty > EMPTY_PAGES):
            raise Garbled("the pages of a list lead nowhere")
        self.version, self.token = page.version, page.token
        self.query = {**self._query, "continue": page.token} if page.token else None
