"""The reads that wait until something is so: for all kinds to be synced, for an object as it should be. They
poll nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, overload

from kopf_selectcache._errors import NotDeclared, NotSynced, Stale, StateError
from kopf_selectcache.core.errors import Untransformed
from kopf_selectcache.core.store.store import Change
from kopf_selectcache.informer.informer import Feed
from kopf_selectcache.selectors.kind_keys import AnyKey, AnyName
from kopf_selectcache.selectors.selector import Selector

from .checks import (
    Counted,
    checked_event,
    checked_many,
    checked_predicate,
    chosen_of,
    feed_of,
    feeds_of_kind,
    match_of,
    must_overlap,
    must_suit,
    of_this,
    readable,
    request_of,
    satisfies,
    wanted_form,
)
from .errors import in_vain
from .formats.views import BodyView
from .freshness import wait_until_fresh
from .matcher import Field, Label, Namespaces, Obj
from .reading import Reading, waiting
from .request import Many, Read, method
from .state_errors import of_read

if TYPE_CHECKING:
    from .formats.formats import As, Made, Named


class Waiting(Reading):
    """What the cache that handlers get has of them."""

    @waiting
    async def wait_synced(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        at_least: Mapping[str, Any] | None = None,
    ) -> None:  # Its end names a reason.
        """Wait until each declared kind is synced; raise why one is not. By default, for `sync_timeout` of
        the settings.

            await cache.wait_synced()
            await cache.wait_synced(at_least=body)      # in a daemon: its kind is as new as its body is now

        With `at_least`, the kind of that object is at least as new as the object; Stale is raised if it is
        not in time.
        """
        timeout = self._runtime.settings.sync_timeout if timeout is None else timeout
        event = None if at_least is None else checked_event(at_least)
        try:
            async with asyncio.timeout(timeout):
                await self._runtime.wait_started()
                for feed in self._runtime.feeds.values():
                    await feed.settled()
                if at_least is not None and event is not None:
                    feeds = feeds_of_kind(self._runtime.feeds.values(), event)
                    await wait_until_fresh(feeds, at_least, patient=True, ending=self._runtime.ending)
        except TimeoutError:
            if event is not None and all(feed.version for feed in self._runtime.feeds.values()):
                raise Stale(
                    f"{self._call_of_wait_synced()}: the cache has not reached version {event.version} of"
                    f" {event} in {timeout:g} s",
                    remedy="Wait longer, timeout=...; or raise kopf.TemporaryError, and read later",
                ) from None
            # Which of them it was, and why, is said below.
        for feed in self._runtime.feeds.values():
            self._ready(feed, self._call_of_wait_synced, after=timeout)

    def _call_of_wait_synced(self) -> str:
        return method("wait_synced", sync=self._sync) + "()"

    @overload
    async def wait_for(
        self,
        kind: AnyName,
        predicate: Callable[[Obj], object],
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        timeout: float | None = None,  # noqa: ASYNC109
        as_: None = None,  # As below.
    ) -> Obj: ...
    @overload
    async def wait_for(
        self,
        kind: AnyKey,
        predicate: Callable[[Obj], object],
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        timeout: float | None = None,  # noqa: ASYNC109
        as_: Literal["view"],  # As below.
    ) -> BodyView: ...
    @overload
    async def wait_for(
        self,
        kind: type[Named],
        predicate: Callable[[Obj], object],
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        timeout: float | None = None,  # noqa: ASYNC109
        as_: None = None,  # As below.
    ) -> Named: ...
    @overload
    async def wait_for(
        self,
        kind: AnyKey,
        predicate: Callable[[Obj], object],
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        timeout: float | None = None,  # noqa: ASYNC109
        as_: As[Made],  # As below.
    ) -> Made: ...
    @waiting
    async def wait_for(
        self,
        kind: AnyKey,
        predicate: Callable[[Obj], object],
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        timeout: float | None = None,  # noqa: ASYNC109
        as_: Any = None,  # It says what for.
    ) -> Any:
        """Wait until a held object that matches satisfies the predicate, and return it as it was then.

            pod = await cache.wait_for('pods', is_ready, namespace=namespace, label={'app': name}, timeout=60)

        The predicate is given dicts, whatever `as_` says. Looks at what is held first, then at each change.
        Raises TimeoutError after `timeout` seconds, if there is one.
        """
        checked_predicate(predicate, timeout, "cache.wait_for()")
        form = wanted_form("wait_for", kind, as_)
        request = request_of(self._runtime, "wait_for", kind, namespace, label, field, None)
        read = Read("wait_for", kind, request, sync=self._sync, options={"timeout": timeout, "as_": as_})
        try:
            feed = feed_of(self._runtime, kind)
        except (NotDeclared, NotSynced) as error:
            raise of_this(error, read, self._runtime) from None
        seen: set[tuple[str, str]] = set()
        waiting = asyncio.timeout(timeout)
        with Counted(feed, "wait_for", kind):
            try:
                async with waiting:
                    await feed.settled(request)
                    with _told_by(feed) as told:
                        self._ready(feed, read.call, request)
                        view = self._view(feed, request)
                        many = checked_many(
                            Many("wait_for", kind, view.resource, request, self._sync, {"as_": as_})
                        )
                        must_suit(many, form, view.projection, self._runtime)
                        must_overlap(many, view)
                        match = match_of(many, None, view)
                        left, records, _ = chosen_of(view, match)
                        candidates = left.pairs(records)
                        del records  # Who waits for long must not keep what is held now.
                        while True:
                            for record, obj in candidates:
                                seen.add(record.key)
                                if satisfies(predicate, obj, "cache.wait_for()"):
                                    return obj if form is None else form.make(record, obj)
                            change = await told.get()
                            self._ready(feed, read.call, request)
                            came = (
                                view.newest(change.after)
                                if change is not None and change.after is not None
                                else None
                            )
                            candidates = match.pairs([came] if came is not None and came.stored else [])
            except TimeoutError:
                if not waiting.expired():
                    raise  # It is the predicate's own.
            except Untransformed as error:
                raise of_this(error, read, self._runtime) from None
            self._ready(feed, read.call, request, after=timeout)
            asked = Many(
                "wait_for", kind, self._view(feed, request).resource, request, self._sync, {"as_": as_}
            )
            raise TimeoutError(in_vain(asked, feed.filter, predicate, timeout, len(seen)))

    def _ready(
        self,
        feed: Feed,
        call: Callable[[], str],
        request: Selector | None = None,
        *,
        after: float | None = None,
    ) -> None:
        """Raise why what the request needs cannot be read, if it cannot."""
        try:
            readable(feed, request, after=after, sync=self._sync)
        except (NotSynced, StateError) as error:
            raise of_read(error, call(), feed.filter) from None


@contextmanager
def _told_by(feed: Feed) -> Iterator[asyncio.Queue[Change | None]]:
    """Queue the objects that enter or are updated meanwhile, and None when reads must raise."""
    told: asyncio.Queue[Change | None] = asyncio.Queue()

    def queue(change: Change | None) -> None:
        # After a departure there is nothing to look at, and its record must not be kept in memory.
        if change is None or change.after is not None:
            told.put_nowait(change)

    unsubscribe = feed.subscribe(queue)
    try:
        yield told
    finally:
        unsubscribe()
