"""What handlers get as `cache`: the reads. Each answers from inside the declared filter, or says at once why it cannot.

The only place that raises read errors. Which read is answered in which case is one table, in the documentation and in
the tests: `list` is complete or an error, `held` is the part that is held, `get` tells absent from hidden.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar, overload

from .asking import ask_many, ask_one, resource_of
from .blocking import Blocking
from .core.fields import Key, Kind
from .core.problems import BadField
from .core.record import Record
from .core.store import Change
from .errors import DeclarationError, NotDeclared, NotFound, NotSynced, OutsideFilter, ReadError, StateError
from .explaining import Explanation
from .fetching import questions
from .matching import (
    DROPPED,
    Field,
    Label,
    Match,
    Namespaces,
    Obj,
    Objects,
    SortBy,
    Where,
    path_of,
    paths_of,
    present,
)
from .overlay import View
from .runner import Feed, Runtime
from .selector import Branches, Selector
from .verdict import Verdict
from .wording import Many, One, absent, misplaced, not_held, not_kept, nowhere, outside, unmatchable, unsynced

_D = TypeVar("_D")
_RAISE: Final = object()
_NOT_HERE = (OutsideFilter, NotDeclared, NotSynced, StateError)
"""What a read of the cache may say, and the server may know better."""


class Cache:
    """The caches of one operator, as one handler sees them. Reads are safe in any thread; those to await, on its loop.

    `own` is the body that the handler was called with: reads show that object at least as new. `deleted` says that it
    was called with its deletion.
    """

    def __init__(self, runtime: Runtime, *, own: Mapping[str, Any] | None = None, deleted: bool = False) -> None:
        self._runtime = runtime
        self._own = own
        self._deleted = deleted
        self.blocking = Blocking(self, runtime.loop)
        """The reads that wait, for sync handlers."""

    # ---- One object.

    @overload
    def get(self, kind: Key, name: str, namespace: str | None = None) -> Obj: ...
    @overload
    def get(self, kind: Key, name: str, namespace: str | None = None, *, default: _D) -> Obj | _D: ...
    def get(self, kind: Key, name: str, namespace: str | None = None, *, default: Any = _RAISE) -> Any:
        """Return one object; raise NotFound if it is proved absent, OutsideFilter if it may exist and not be held.

            pod = cache.get('pods', 'web-1', namespace)
            config = cache.get('configmaps', name, namespace, default=None)

        The default stands for what is proved absent, never for what is merely not held.
        """
        try:
            with self._reading("get", kind) as view:
                return self._one(One("get", kind, view.resource, name, namespace), view).decode()
        except NotFound:
            if default is _RAISE:
                raise
            return default

    def exists(self, kind: Key, name: str, namespace: str | None = None) -> bool:
        """Return True if the object is held, False if it is proved absent; raise what `get` raises otherwise.

            if not cache.exists('secrets', 'ca-bundle', 'infra'):
                raise kopf.TemporaryError('no CA yet')
        """
        try:
            with self._reading("exists", kind) as view:
                self._one(One("exists", kind, view.resource, name, namespace), view)
        except NotFound:
            return False
        return True

    @overload
    async def fetch(self, kind: Key, name: str, namespace: str | None = None) -> Obj: ...
    @overload
    async def fetch(self, kind: Key, name: str, namespace: str | None = None, *, default: _D) -> Obj | _D: ...
    async def fetch(self, kind: Key, name: str, namespace: str | None = None, *, default: Any = _RAISE) -> Any:
        """Return one object, from the cache if it is held or proved absent there, and else from the server.

            if await cache.fetch('configmaps', name, namespace, default=None) is None:
                create_config(name, namespace)

        The kind need not be declared. Nothing is remembered: what is not held is asked for each time.
        """
        self._must_be_on_loop("fetch")
        try:
            with suppress(*_NOT_HERE), self._reading("fetch", kind) as view:
                return self._one(One("fetch", kind, view.resource, name, namespace), view).decode()
            one = _checked(One("fetch", kind, await resource_of(self._runtime, kind), name, namespace))
            with _no_declaration():
                return (await ask_one(self._runtime, one)).decode()
        except NotFound:
            if default is _RAISE:
                raise
            return default

    # ---- Several objects.

    def list(
        self, kind: Key, *, namespace: Namespaces = None, label: Label = None, field: Field = None,
        names: Collection[str] | None = None, where: Where | None = None, sort_by: SortBy | None = None,
        limit: int | None = None,
    ) -> Objects:
        """Return all objects that there are; raise OutsideFilter if some of them might not be held.

            pods = cache.list('pods', namespace=namespace, label='app=web,tier=gold')
            oldest = cache.list('jobs', label={'run': run}, sort_by='metadata.creationTimestamp', limit=1)

        `label` and `field` are text, dicts, or selectors. `where` compares values at any path, after the selection:
        it never makes a read complete. The order is unspecified without `sort_by`.
        """
        request = _request(namespace, label, field, names)
        with self._reading("list", kind) as view:
            many = _checked_many(Many("list", kind, view.resource, request), where, sort_by)
            _must_be_covered(many, view)
            return present(_match(many, where, view).objects(_records(view, request)), sort_by=sort_by, limit=limit)

    def held(
        self, kind: Key, *, namespace: Namespaces = None, label: Label = None, field: Field = None,
        names: Collection[str] | None = None, where: Where | None = None, sort_by: SortBy | None = None,
        limit: int | None = None,
    ) -> Objects:
        """Return those of the held objects that match; raise OutsideFilter if none can ever be held.

            mine = cache.held('pods', namespace=namespace, label={'instance': name})

        There may be others that match, outside the filter: where that matters, `list` is the read.
        """
        request = _request(namespace, label, field, names)
        with self._reading("held", kind) as view:
            many = _checked_many(Many("held", kind, view.resource, request), where, sort_by)
            _must_overlap(many, view)
            return present(_match(many, where, view).objects(_records(view, request)), sort_by=sort_by, limit=limit)

    def owned(self, owner: Mapping[str, Any], kind: Key) -> Objects:
        """Return those of the held objects that are owned by this one, by its uid.

            pods = cache.owned(body, 'pods')

        As with `held`, there may be others outside the filter.
        """
        metadata = owner.get("metadata") or {}
        uid, namespace = metadata.get("uid"), metadata.get("namespace")
        if not uid:
            raise ReadError(
                "cache.owned() was given an owner without a metadata.uid", remedy=f"Write: cache.owned(body, {kind!r})")
        with self._reading("owned", kind) as view:
            # Whoever is owned by a namespaced object lives in its namespace.
            within = [namespace] if namespace and view.resource.kind.namespaced else None
            many = Many("owned", kind, view.resource, Selector(namespaces=within))
            _must_overlap(many, view)
            return [record.decode() for record in _records(view, many.request) if uid in record.owners]

    def count(
        self, kind: Key, *, namespace: Namespaces = None, label: Label = None, field: Field = None,
        names: Collection[str] | None = None, where: Where | None = None,
    ) -> int:
        """Return how many objects there are; raise OutsideFilter if some of them might not be held.

            replicas = cache.count('pods', namespace=namespace, label={'app': name})
        """
        request = _request(namespace, label, field, names)
        with self._reading("count", kind) as view:
            many = _checked_many(Many("count", kind, view.resource, request), where, None)
            _must_be_covered(many, view)
            return _match(many, where, view).count(_records(view, request))

    async def fetch_list(
        self, kind: Key, *, namespace: Namespaces = None, label: Label = None, field: Field = None,
        names: Collection[str] | None = None, where: Where | None = None, sort_by: SortBy | None = None,
        limit: int | None = None,
    ) -> Objects:
        """Return all objects that there are, from the cache if it holds them all, and else from the server.

            claims = await cache.fetch_list('persistentvolumeclaims', namespace=namespace)

        The kind need not be declared. Nothing is remembered.
        """
        self._must_be_on_loop("fetch_list")
        request = _request(namespace, label, field, names)
        with suppress(*_NOT_HERE), self._reading("fetch_list", kind) as view:
            many = _checked_many(Many("fetch_list", kind, view.resource, request), where, sort_by)
            _must_be_covered(many, view)
            return present(_match(many, where, view).objects(_records(view, request)), sort_by=sort_by, limit=limit)
        many = _checked_many(Many("fetch_list", kind, await resource_of(self._runtime, kind), request), where, sort_by)
        records = await ask_many(self._runtime, many, enough=limit if where is None and sort_by is None else None)
        return present(Match(where=paths_of(where)).objects(records), sort_by=sort_by, limit=limit)

    # ---- How the cache is doing, and what it would do.

    def age(self, kind: Key) -> float:
        """Return how many seconds ago the server last confirmed what is held.

            if cache.age('pods') > 60:
                logger.warning('acting on what the cluster was a minute ago')
        """
        with self._reading("age", kind):
            age = self._runtime.feed(kind).age()
            assert age is not None, f"{kind!r} is synced, and was never heard of"
            return age

    def scope(self, kind: Key) -> Selector:
        """Return what is covered: its `namespaces`, `names`, `label` and `field`; None is all of them.

            print(cache.scope('pods'))    # label='app=web', namespaces=['shop']
        """
        return self._runtime.feed(kind).filter

    def explain(
        self, kind: Key, *, namespace: Namespaces = None, label: Label = None, field: Field = None,
        names: Collection[str] | None = None, where: Where | None = None,
    ) -> Explanation:
        """Say whether the filter covers a read, why not, and what would be looked at or asked for. Reads nothing.

            print(cache.explain('pods', label='app in (web,db)'))
        """
        request = _request(namespace, label, field, names)
        with self._reading("explain", kind) as view:
            many = _checked_many(Many("list", kind, view.resource, request), where, None)
            return Explanation(
                verdict=_verdict(view.filter, request, view.resource.domains),
                looks_at=len(_records(view, request)),
                decodes=_match(many, where, view).decodes,
                asks=tuple(
                    f"{path}?{'&'.join(f'{key}={value}' for key, value in query.items())}".removesuffix("?")
                    for path, query in questions(view.resource, request)
                ),
            )

    async def wait_synced(self, timeout: float | None = None) -> None:   # noqa: ASYNC109  # Its end names a reason.
        """Wait until each declared kind is synced; raise why one is not. By default, for `sync_timeout` of the settings.

            await cache.wait_synced()
        """
        self._must_be_on_loop("wait_synced")
        timeout = self._runtime.settings.sync_timeout if timeout is None else timeout
        feeds = list(self._runtime.feeds.values())
        try:
            async with asyncio.timeout(timeout):
                for feed in feeds:
                    await feed.settled()
        except TimeoutError:
            pass   # Which of them it was, and why, is said below.
        for feed in feeds:
            if error := _not_readable(feed, after=timeout):
                raise error

    async def wait_for(
        self, kind: Key, predicate: Callable[[Obj], object], *, namespace: Namespaces = None,
        label: Label = None, field: Field = None, timeout: float | None = None,   # noqa: ASYNC109  # It says what for.
    ) -> Obj:
        """Wait until a held object that matches satisfies the predicate, and return it as it was then.

            pod = await cache.wait_for('pods', is_ready, namespace=namespace, label={'app': name}, timeout=60)

        Looks at what is held first, then at each change. Raises TimeoutError after `timeout` seconds, if there is one.
        """
        self._must_be_on_loop("wait_for")
        request = _request(namespace, label, field, None)
        feed = self._runtime.feed(kind)
        changes: asyncio.Queue[Change] = asyncio.Queue()
        waiting = asyncio.timeout(timeout)
        try:
            async with waiting:
                await feed.settled()
                unsubscribe = feed.subscribe(changes.put_nowait)
                try:
                    with self._reading("wait_for", kind) as view:
                        many = _checked_many(Many("wait_for", kind, view.resource, request), None, None)
                        _must_overlap(many, view)
                        match = _match(many, None, view)
                        candidates = match.objects(_records(view, request))
                    while True:
                        for obj in candidates:
                            if predicate(obj):
                                return obj
                        change = await changes.get()
                        candidates = match.objects([change.after] if change.after is not None else [])
                finally:
                    unsubscribe()
        except TimeoutError:
            if not waiting.expired():
                raise   # It is the predicate's own.
            raise TimeoutError(
                f"No object of {kind!r} that is held ({request}) satisfied the predicate within {timeout} s") from None

    # ---- Below, what the reads have in common.

    @contextmanager
    def _reading(self, verb: str, kind: Key) -> Iterator[View]:
        """Enter a read of one kind: it must be readable; what comes of it is counted."""
        feed = self._runtime.feed(kind)
        outcome = "served"
        try:
            error = _not_readable(feed)
            if error is not None:
                raise error
            assert feed.resource is not None, f"{feed.key} is synced, and nobody knows of what"
            with _no_declaration():
                yield View(feed.resource, feed.filter, feed.store, self._own, self._deleted)
        except ReadError as error:
            outcome = type(error).__name__
            raise
        finally:
            feed.counts.reads[verb, outcome] += 1

    def _one(self, one: One, view: View) -> Record:
        """Return what is held, which needs no verdict; or raise why nothing is."""
        record, version = view.get(_checked(one).namespace or "", one.name)
        if record is not None:
            return record
        verdict = view.filter.covers(one.request, kind=view.resource.domains)
        raise absent(one, view.filter, version) if verdict else not_held(one, verdict)

    def _must_be_on_loop(self, method: str) -> None:
        if asyncio.get_running_loop() is not self._runtime.loop:
            raise ReadError(
                f"cache.{method}() was awaited on another event loop than the operator's",
                remedy=f"In a thread, write: cache.blocking.{method}(...)",
            )


@contextmanager
def _no_declaration() -> Iterator[None]:
    """Turn declaration errors into read errors: the former are permanent to Kopf, which drops a creation for good."""
    try:
        yield
    except DeclarationError as error:
        raise ReadError(error.what, remedy=error.remedy) from error


def _not_readable(feed: Feed, *, after: float | None = None) -> ReadError | None:
    if error := feed.unreadable():
        return error
    if feed.resource is None or not feed.store.version:
        return unsynced(feed.key, feed.trouble, feed.remedy, after=after)
    return None


def _checked(one: One) -> One:
    if error := misplaced(one):
        raise error
    return one


def _checked_many(many: Many, where: Where | None, sort_by: SortBy | None) -> Many:
    if many.request.namespaces is not None and many.resource.kind.namespaced is False:
        raise nowhere(many, many._replace(request=replace(many.request, namespaces=None)))
    paths = [path for path, _ in paths_of(where)]
    if sort_by is not None and not callable(sort_by):
        paths.append(path_of(sort_by))
    if any(path[:2] == DROPPED for path in paths):
        raise not_kept(many)
    return many


def _match(many: Many, where: Where | None, view: View) -> Match:
    try:
        return Match.of(many.request, where, view.resource, view.filter)
    except BadField as problem:
        raise unmatchable(many, problem.label) from None


def _records(view: View, request: Selector) -> Sequence[Record]:
    """Return what must be looked at: one namespace, or all."""
    within = request.namespaces
    return view.records(within[0] if within is not None and len(within) == 1 else None)


def _request(namespace: Namespaces, label: Label, field: Field, names: Collection[str] | None) -> Selector:
    with _no_declaration():
        return Selector(label, field=field, names=names, namespaces=[namespace] if isinstance(namespace, str) else namespace)


# Reads are repeated, and their verdicts depend on nothing but the two selectors: an operator has a few dozen of them.
@lru_cache(maxsize=1024)
def _verdict(declared: Branches, request: Selector, kind: Kind | None) -> Verdict:
    return declared.covers(request, kind=kind)


@lru_cache(maxsize=1024)
def _excluded(declared: Branches, request: Selector, kind: Kind | None) -> bool:
    """Whether nothing of what is asked for can be held, though there may be such objects."""
    return declared.disjoint(request, kind=kind) and request.contradiction(kind=kind) is None


def _must_be_covered(many: Many, view: View) -> None:
    verdict = _verdict(view.filter, many.request, view.resource.domains)
    if not verdict:
        raise outside(many, verdict)


def _must_overlap(many: Many, view: View) -> None:
    if _excluded(view.filter, many.request, view.resource.domains):
        raise outside(many, _verdict(view.filter, many.request, view.resource.domains))
