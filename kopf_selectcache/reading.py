"""What all reads of a cache have in common: which feed, whether it can be read, what is counted. No read of its own."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, cast

from .blocking import Blocking, Waits
from .calls import taught, written
from .checking import (
    Counted,
    asked_for,
    checked_many,
    checked_one,
    feed_of,
    match_of,
    must_be_fresh,
    must_be_kept,
    must_be_whole,
    must_suit,
    readable,
    records_of,
    request_of_one,
    running_loop,
)
from .core.record import Record
from .errors import ReadError, shown
from .feed import Feed
from .forms import Form, formed
from .keys import AnyKey
from .matching import IntoList, SortBy, Where
from .overlay import View
from .runner import Runtime
from .selector import Selector
from .wording import Many, One, absent, into_list, no_such_read, not_awaited, not_held

if TYPE_CHECKING:
    from .cache import Cache

_M = TypeVar("_M", bound=Callable[..., Any])
_T = TypeVar("_T")


def read(method: _M) -> _M:
    """Teach what the read takes, to those who write something else."""
    return cast("_M", taught(ReadError, f"cache.{method.__name__}")(method))


def waiting(method: _M) -> _M:
    """Refuse a read that is to be awaited where it is called: a sync handler would take the coroutine for the answer."""
    parameters = signature(method)

    @wraps(method)
    def call(self: Reading, /, *args: Any, **kwargs: Any) -> Any:
        if (here := running_loop()) is not self._runtime.loop:
            instead = written(f"cache.blocking.{method.__name__}", parameters, (self, *args), kwargs)
            raise not_awaited(method.__name__, instead, sync=here is None)
        return method(self, *args, **kwargs)
    return read(cast("_M", call))


def look(many: Many, how: Callable[[], _T]) -> _T:
    """Look at objects; raise ReadError if a path leads into a list of one of them."""
    try:
        return how()
    except IntoList as found:
        raise into_list(many, found.path, found.listed, found.name) from None


class Reading:
    """Base of the cache that handlers get."""

    def __init__(
        self, runtime: Runtime, *, own: Mapping[str, Any] | None = None, deleted: bool = False, departed: str | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._runtime = runtime
        self._own = own
        self._deleted = deleted
        self._departed = departed
        self._for_sync = False
        self.blocking = Blocking(cast("Cache", self._of_sync()), runtime.loop, waits)
        """The reads that wait, for sync handlers."""

    def _of_sync(self) -> Self:
        """Return this cache as it reads for sync handlers, on the loop: its errors say what those can write."""
        other = copy(self)
        other._for_sync = True   # noqa: SLF001  # A copy of this.
        return other

    @property
    def _sync(self) -> bool:
        return self._for_sync or running_loop() is not self._runtime.loop

    if not TYPE_CHECKING:   # Checkers know better what is not there.
        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(name if name.startswith("_") else no_such_read(name, [each for each in dir(self) if not each.startswith("_")]))

        def __getitem__(self, kind: object) -> NoReturn:
            raise ReadError(f"cache[{shown(kind)}] is no read", remedy=f"Write cache.list({shown(kind)}, ...), or one of its other methods")

    # ---- Below, what the reads have in common.

    @contextmanager
    def _reading(
        self, verb: str, kind: AnyKey, max_age: float | None = None, *, request: Selector | None = None, name: object = None,
        namespace: object = None,
    ) -> Iterator[View]:
        """Enter a read of one kind, by request or name: what it needs must be readable, and fresh enough. It is counted."""
        feed = feed_of(self._runtime, kind)
        with Counted(feed, verb, kind):
            if request is None and name is not None and feed.parted:
                request = request_of_one(name, namespace)
            view = self._view(feed, request)
            must_be_fresh(feed, request, max_age, f"cache.{verb}()")
            yield view

    def _view(self, feed: Feed, request: Selector | None) -> View:
        """Return the kind as this handler sees it; raise why what the request needs cannot be read, if it cannot."""
        part = readable(feed, request, sync=self._sync)
        assert feed.resource is not None, f"{feed.key} is synced, and nobody knows of what"
        return View(
            feed.resource, feed.filter, part.store, feed.comparisons, self._own, self._deleted, feed.projection)

    def _selected(
        self, verb: str, kind: AnyKey, request: Selector, must: Callable[[Many, View], None],
        where: Where | None, sort_by: SortBy | None, limit: int | None, max_age: float | None, form: Form | None, *, whole: bool = False,
    ) -> list[Any]:
        """Return the held objects that match, if the filter has to the request what it must have."""
        with self._reading(verb, kind, max_age, request=request) as view:
            if whole:
                must_be_whole(view)
            options = {"where": where, "sort_by": sort_by, "limit": limit, "max_age": max_age, "as_": form and form.given, "whole": whole}
            many = checked_many(Many(verb, kind, view.resource, request, self._sync, options), where, sort_by, limit)
            must_suit(many, form, view.projection, self._runtime)
            must_be_kept(many, where, sort_by, view.projection, self._runtime)
            must(many, view)
            match = match_of(many, where, view)
            return look(many, lambda: formed(match, records_of(view, request), form, sort_by=sort_by, limit=limit))

    def _object(self, one: One, view: View, form: Form | None) -> Any:
        """Return what is held in the form that is asked for; or raise why nothing is."""
        if form is None:
            return self._one(one, view).decode()
        must_suit(one, form, view.projection, self._runtime)
        return form.make(self._one(one, view), None)

    def _one(self, one: One, view: View) -> Record:
        """Return what is held, which needs no verdict; or raise why nothing is."""
        record, version = view.get(checked_one(one).namespace or "", one.name)
        if record is not None:
            return record
        verdict = view.filter.covers(asked_for(one), kind=view.resource.domains)
        raise absent(one, view.filter, version) if verdict else not_held(one, verdict)
