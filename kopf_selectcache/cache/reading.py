"""What all reads of a cache have in common: which feed, whether it can be read, what is counted. No read of
its own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, cast

from kopf_selectcache._errors import NotDeclared, NotSynced, ReadError, StateError
from kopf_selectcache.core.errors import Untransformed
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.store.projection import at
from kopf_selectcache.core.store.record import Record, Unreadable
from kopf_selectcache.informer.informer import Feed
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.retries import Unanswered
from kopf_selectcache.selectors.kind_keys import AnyKey
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.selectors.signatures import taught, written

from ._pending import Pending
from .blocking import AsyncReads, Blocking, Waits
from .checks import (
    Counted,
    asked_for,
    checked_many,
    checked_one,
    chosen_of,
    feed_of,
    match_of,
    must_be_fresh,
    must_be_kept,
    must_be_readable,
    must_be_whole,
    must_suit,
    of_this,
    readable,
    request_of_one,
    running_loop,
)
from .errors import (
    absent,
    into_list,
    mistyped,
    never_awaited,
    no_such_read,
    not_awaited,
    not_held,
    unordered,
    unreadable,
)
from .formats.formats import Form, formed, quick
from .formats.views import BodyView
from .live import line_of
from .matcher import IntoList, SortBy, Unordered, Where
from .memo import Comparisons
from .request import Many, One, Read
from .snapshot import View
from .state_errors import unanswered

_M = TypeVar("_M", bound=Callable[..., Any])
_T = TypeVar("_T")

_NAME = ("metadata", "name")

_NO_OPTIONS: Mapping[str, object] = {}

_WITHIN = {"namespace"}

UNSAID: Any = object()
"""Stands for an argument that was not given."""

_logger = logging.getLogger("kopf_selectcache")

_CACHES_IN_REPR = 10
_LONGEST_FILTER = 80
"""How many caches `repr(cache)` lists, and how many characters of each filter."""


def read(method: _M) -> _M:
    """Teach what the read takes, to those who write something else."""
    return cast("_M", taught(ReadError, f"cache.{method.__name__}")(method))


def at_once(method: _M) -> _M:
    """As `read`, for `get`, which is called most: what is held is answered before anything is considered.

    It has the arguments that can be answered so, since to hand over whatever comes takes a sixth of the time
    of such a read.
    """
    whole = read(method)

    @wraps(method)
    def call(
        self: Reading,
        kind: Any = UNSAID,
        name: Any = UNSAID,
        namespace: Any = UNSAID,
        /,
        *more: Any,
        default: Any = UNSAID,
        as_: Any = None,
        **others: Any,
    ) -> Any:
        if not more and (not others or (namespace is UNSAID and others.keys() == _WITHIN)):
            answer: Any
            within = others.get("namespace", namespace)
            if as_ is None:
                answer = self._plainly("get", kind, name, within, Record.decode)
            elif as_ == "view":
                answer = self._plainly("get", kind, name, within, BodyView)
            else:
                answer = (
                    self._plainly("get", kind, name, within, make, lossless=True)
                    if (make := quick(as_)) is not None
                    else None
                )
            if answer is not None:
                return answer
        if default is not UNSAID:
            others["default"] = default
        if as_ is not None:
            others["as_"] = as_
        return whole(self, *(each for each in (kind, name, namespace, *more) if each is not UNSAID), **others)

    return cast("_M", call)


def waiting(method: _M) -> _M:
    """Tell who takes the coroutine of a read for its answer: a sync handler at once, an async one where it
    forgets to await.
    """
    parameters = signature(method)

    @wraps(method)
    async def limited(self: Reading, /, *args: Any, **kwargs: Any) -> Any:
        return await self._runtime.ending.limit(method(self, *args, **kwargs))

    @wraps(method)
    def call(self: Reading, /, *args: Any, **kwargs: Any) -> Any:
        if (here := running_loop()) is not self._runtime.loop:
            instead = written(f"cache.blocking.{method.__name__}", parameters, (self, *args), kwargs)
            raise not_awaited(method.__name__, instead, sync=here is None)
        method(
            self, *args, **kwargs
        ).close()  # It begins when it is awaited; what it does not take is told here.
        return Pending(
            partial(limited, self, *args, **kwargs),
            unawaited=lambda: never_awaited(
                written(f"cache.{method.__name__}", parameters, (self, *args), kwargs)
            ),
            forgotten=self._forget,
        )

    return cast("_M", taught(ReadError, f"await cache.{method.__name__}")(call))


def must_be_awaited(cache: Reading, answer: _T) -> _T:
    """Return what a handler, or a callback, has answered; raise ReadError if it has not awaited a read: it
    took a wrong turn.
    """
    if isinstance(answer, Pending):
        answer.close()  # It is told here, and not once more when it is dropped.
        raise answer.unawaited()
    if cache._forgotten:  # Of what is defined here.  # noqa: SLF001
        # As above. Kept, it would keep its traceback, and that the handler.
        raise cache._forgotten.pop()  # noqa: SLF001
    return answer


def look(many: Many, how: Callable[[], _T]) -> _T:
    """Look at objects; raise ReadError if a path leads into a list of one of them, or to what cannot be
    sorted by.
    """
    try:
        return how()
    except IntoList as found:
        raise into_list(many, found.path, found.listed, found.name) from None
    except Unordered as found:
        raise unordered(many, found.path, found.name, listed=found.listed) from None


class Reading:
    """Base of the cache that handlers get."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        own: Mapping[str, Any] | None = None,
        deleted: bool = False,
        departed: str | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._runtime = runtime
        self._own = own
        self._deleted = deleted
        self._departed = departed
        self._named: tuple[object] | None = None  # The own object, once it is known how.
        self._for_sync = False
        self._forgotten: list[ReadError] = []  # The first read that was dropped without being awaited.
        self.blocking = Blocking(cast("AsyncReads", self._of_sync()), runtime, waits)
        """The reads that wait, for sync handlers."""

    def _of_sync(self) -> Self:
        """Return this cache as it reads for sync handlers, on the loop: its errors say what those can
        write.
        """
        other = copy(self)
        other._for_sync = True  # A copy of this.  # noqa: SLF001
        return other

    @property
    def _sync(self) -> bool:
        return self._for_sync or running_loop() is not self._runtime.loop

    if not TYPE_CHECKING:  # Checkers know better what is not there.

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise no_such_read(name, [each for each in dir(self) if not each.startswith("_")])

        def __getitem__(self, kind: object) -> NoReturn:
            raise ReadError(
                f"cache[{shown(kind)}] is no read",
                remedy=f"Write cache.list({shown(kind)}, ...), or one of its other methods",
            )

        def __contains__(self, item: object) -> NoReturn:
            raise TypeError(
                f"a cache is not a container: {shown(item)} in cache has no meaning. Write"
                " cache.exists(kind, name, namespace) for an object, or"
                f" {shown(item)} in settings.selectcache.selectors for a declared kind"
            )

        __iter__ = None  # Else Python iterates by __getitem__. With None it says that this is not iterable.

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            feeds = list(self._runtime.feeds.values())
        except ReadError as error:  # The operator has not started yet, or has ended.
            return f"<{name}: {clipped(error.what, _LONGEST_FILTER)}>"
        caches = [
            f"{feed}: {clipped(feed.filter, _LONGEST_FILTER)} ({feed.health})"
            for feed in feeds[:_CACHES_IN_REPR]
        ]
        more = [f"{len(feeds) - _CACHES_IN_REPR:,} more"] if len(feeds) > _CACHES_IN_REPR else []
        return f"<{name} {'; '.join([*caches, *more]) or 'of no kinds'}>"

    # ---- Below, what the reads have in common.

    def _plainly(
        self,
        verb: str,
        kind: object,
        name: object,
        namespace: object,
        make: Callable[[Record], _T],
        *,
        lossless: bool = False,
    ) -> _T | None:
        """Return what is made of an object that is held, counted as read; None if there is anything to
        consider, which the whole way is for.

        Most reads are of this kind, and take a fraction of the time of the whole way. What is held is
        answered whatever the filter says of it; a handler's own object alone may be another than what is
        held. With `lossless`, there is something to consider where not all of each object is kept.
        """
        named = self._named
        if (
            type(kind) is not str
            or type(name) is not str
            or name == (named[0] if named is not None else self._own_name())
        ):
            return None
        if namespace is None or namespace is UNSAID:
            namespace = ""
        elif type(namespace) is not str or not namespace:
            return None
        feed = self._runtime.quick.get(kind)
        if feed is None or (store := feed.ready) is None or (lossless and feed.projection.partial):
            return None
        record = store.peek(namespace, name)
        if record is None or not record.stored:
            return None
        try:
            answer = make(record)
        # Of a struct, it may be anything; it is raised, and counted, on the whole way.
        except Exception:  # noqa: BLE001
            return None
        feed.counts.read(verb, "served")
        return answer

    def _own_name(self) -> object:
        """Return the name of the handler's own object, which stays the same, and is remembered; None if it
        has none.
        """
        (named,) = self._named = (at(self._own, _NAME) if self._own is not None else None,)
        return named

    def _forget(self, error: ReadError) -> None:
        """Take note of a read that was never awaited; but one handler, such as a daemon, may forget it for
        ever.
        """
        _logger.error(
            "%(call)s was never awaited. %(remedy)s.",
            {"call": error.what.removesuffix(" was never awaited"), "remedy": error.remedy},
        )
        self._forgotten[:] = self._forgotten or [error]

    @contextmanager
    def _reading(
        self,
        verb: str,
        kind: AnyKey,
        max_age: float | None = None,
        *,
        request: Selector | None = None,
        name: object = None,
        namespace: object = None,
        options: Mapping[str, object] = _NO_OPTIONS,
    ) -> Iterator[View]:
        """Enter a read of one kind, by request or name: what it needs must be readable, and fresh enough. It
        is counted.
        """
        try:
            feed = feed_of(self._runtime, kind)
        except (NotDeclared, NotSynced) as error:
            raise of_this(
                error, self._as_called(verb, kind, request, name, namespace, options), self._runtime
            ) from None
        with Counted(feed, verb, kind):
            needed = (
                request_of_one(name, namespace)
                if request is None and name is not None and feed.parted
                else request
            )
            try:
                view = self._view(feed, needed)
            except (NotSynced, StateError) as error:
                raise of_this(
                    error, self._as_called(verb, kind, request, name, namespace, options), self._runtime, feed
                ) from None
            if max_age is not None:
                must_be_fresh(
                    feed, needed, max_age, self._as_called(verb, kind, request, name, namespace, options)
                )
            try:
                yield view
            except Untransformed as error:
                raise of_this(
                    error, self._as_called(verb, kind, request, name, namespace, options), self._runtime
                ) from None

    def _as_called(
        self,
        verb: str,
        kind: AnyKey,
        request: Selector | None,
        name: object,
        namespace: object,
        options: Mapping[str, object],
    ) -> Read:
        """Return the read for an error, which is all that needs it: others go without its cost."""
        return Read(verb, kind, request, name, namespace, self._sync, options)

    def _view(self, feed: Feed, request: Selector | None) -> View:
        """Return the kind as this handler sees it; raise why what the request needs cannot be read, if it
        cannot.
        """
        part = readable(feed, request, sync=self._sync)
        assert feed.resource is not None, f"{feed.key} is synced, and nobody knows of what"
        return View(
            feed.resource,
            feed.filter,
            part.store,
            feed.memo.of(Comparisons),
            self._own,
            self._deleted,
            feed.projection,
            feed.indexes,
        )

    async def _persistently(self, read: Read, seconds: object, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Return what the read returns; with `seconds`, its `timeout=`, retry transient failures for so
        long.
        """
        if seconds is None:
            return await attempt()
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds >= 0:
            raise mistyped(read.bare(), "timeout", seconds, "a number of seconds")
        try:
            return await self._runtime.retries.run(attempt, seconds)
        except Unanswered:
            raise unanswered(read.call(), f"none came within {seconds:g} s") from None

    def _selected(
        self,
        verb: str,
        kind: AnyKey,
        request: Selector,
        must: Callable[[Many, View], None],
        where: Where | None,
        sort_by: SortBy | None,
        limit: int | None,
        max_age: float | None,
        form: Form | None,
        *,
        whole: bool = False,
        index: Mapping[str, object] | None = None,
    ) -> Any:
        """Return the held objects that match, if the filter has to the request what it must have."""
        options = {
            "where": where,
            "sort_by": sort_by,
            "limit": limit,
            "max_age": max_age,
            "as_": form and form.given,
            "whole": whole,
            "index": index,
        }
        with self._reading(verb, kind, max_age, request=request, options=options) as view:
            many = checked_many(
                Many(verb, kind, view.resource, request, self._sync, options), where, sort_by, limit
            )
            if whole:
                must_be_whole(many, view)
            must_suit(many, form, view.projection, self._runtime)
            must_be_kept(many, where, sort_by, view.projection, self._runtime)
            must(many, view)
            found = chosen_of(view, match_of(many, where, view, index))
            if verb != "held":
                must_be_readable(many, found, self._runtime)
            return look(
                many,
                lambda: formed(
                    found.match,
                    found.records,
                    form,
                    sort_by=sort_by,
                    limit=limit,
                    unreadable=found.unreadable,
                ),
            )

    def _object(self, one: One, view: View, form: Form | None) -> Any:
        """Return what is held in the form that is asked for; or raise why nothing is."""
        if form is not None:
            must_suit(one, form, view.projection, self._runtime)
        record = self._one(one, view)
        if isinstance(record, Unreadable):
            raise unreadable(one, record, line_of(self._runtime, one.kind))
        return record.decode() if form is None else form.make(record, None)

    def _one(self, one: One, view: View) -> Record:
        """Return what is held, which needs no verdict; or raise why nothing is."""
        record, version = view.get(checked_one(one).namespace or "", one.name)
        if record is not None:
            return record
        verdict = view.filter.covers(asked_for(one), kind=view.resource.domains)
        raise absent(one, view.filter, version) if verdict else not_held(one, verdict)
