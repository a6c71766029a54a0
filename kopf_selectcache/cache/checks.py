"""What a read must be to be answered: its arguments of the right types, its request inside the filter. Reads
nothing.

Mistakes in a read are read errors: as declaration errors they would be permanent to Kopf, which drops a
creation for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import isawaitable, iscoroutinefunction
from keyword import iskeyword
from types import NoneType
from typing import NamedTuple, TypeAlias

from kopf_selectcache._errors import DeclarationError, NotDeclared, NotKept, NotSynced, ReadError, StateError
from kopf_selectcache.core.errors import NO_VALUE, BadField, Untransformed
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.index_spec import Failing, Indexed
from kopf_selectcache.core.store.projection import Path, Projection, as_written, keys_of
from kopf_selectcache.core.store.record import Record, Unreadable
from kopf_selectcache.informer._readiness import Part
from kopf_selectcache.informer.informer import Feed
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.client_classes import stands_for
from kopf_selectcache.selectors.kind_keys import AnyKey, as_given, checked_key, key_of
from kopf_selectcache.selectors.selector import Selector, Verdict
from kopf_selectcache.selectors.suggestions import near
from kopf_selectcache.settings.retention import PATHS, wrong_path
from kopf_selectcache.settings.retention import indexes as declared_indexes

from .errors import (
    awaitable,
    camelled,
    misnamed,
    misplaced,
    misspelt,
    mistyped,
    not_kept,
    not_whole,
    nowhere,
    outside,
    partial,
    unfit,
    unmatchable,
    unreadable_many,
)
from .formats.formats import Form, form_of
from .freshness import Event, event_of
from .live import line_of
from .matcher import Field, Label, Match, Namespaces, Obj, SortBy, Where, paths_of
from .memo import requests
from .request import Many, One, Read, bare, method
from .snapshot import View
from .state_errors import of_read, stale, undeclared, unsynced, untransformed

_logger = logging.getLogger("kopf_selectcache")

NotHere: TypeAlias = NotDeclared | NotSynced | StateError | Untransformed
"""What is in the way of a read, whatever it asks for."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread, if one runs: none does in a sync handler's."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class NoDeclaration:
    """Turns declaration errors into errors of a read. Each read enters it more than once: a generator would
    cost thrice as much.
    """

    def __init__(self, verb: str = "", kind: object = None) -> None:
        self._verb = verb
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, DeclarationError):
            # Reads take one namespace or several, by one name.
            what, remedy = (
                text.replace("namespaces=", "namespace=") if self._verb else text
                for text in (error.what, error.remedy)
            )
            raise ReadError(
                f"{bare(self._verb, self._kind)}: {what}" if self._verb else what, remedy=remedy
            ) from error


class Counted(NoDeclaration):
    """Counts a read with what comes of it: of an error its name, if it is one of ours."""

    def __init__(self, feed: Feed, verb: str, kind: object) -> None:
        super().__init__(verb, kind)
        self._feed = feed

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            outcome = "served"
        elif isinstance(error, (ReadError, TimeoutError, asyncio.CancelledError)):
            outcome = type(error).__name__
        else:
            outcome = ReadError.__name__ if isinstance(error, DeclarationError) else "failed"
        self._feed.counts.read(self._verb, outcome)
        super().__exit__(kind, error, trace)


def feed_of(runtime: Runtime, kind: AnyKey) -> Feed:
    """Return the feed of the kind; raise ReadError for what can be none, and NotDeclared for others."""
    with NoDeclaration():
        key = key_of(kind)
        try:
            return runtime.feed(key)
        except (NotDeclared, NotSynced):
            checked_key(key)
            raise


def readable(
    feed: Feed, request: Selector | None = None, *, after: float | None = None, sync: bool = False
) -> Part:
    """Return what of the feed the request needs, or all of it; raise why that cannot be read, if it
    cannot.
    """
    part = feed.part(request)
    if part.error is not None:
        raise part.error
    if feed.resource is None or not part.store.version:
        raise unsynced(feed.key, part.trouble, part.remedy, after=after, sync=sync)
    return part


def of_this(error: NotHere, read: Read, runtime: Runtime, feed: Feed | None = None) -> ReadError:
    """Return what is in the way as an error of this read, which names its call. A cache's own words are for
    its log and probe.
    """
    match error:
        case NotDeclared():
            return undeclared(read, runtime.feeds)
        case Untransformed():
            return untransformed(read.bare(), error, line_of(runtime, read.kind), read.of_server(whole=True))
        case _:
            return of_read(error, read.call(), feed.filter if feed is not None else None)


def must_be_fresh(feed: Feed, request: Selector | None, max_age: float, read: Read) -> None:
    """Raise Stale if what is held was confirmed longer ago than the reader allows."""
    if not isinstance(max_age, (int, float)) or isinstance(max_age, bool) or not max_age >= 0:
        raise mistyped(f"cache.{read.verb}()", "max_age", max_age, "a number of seconds")
    age = feed.age(request)
    if age is None or age > max_age:
        raise of_read(stale(feed.resource, age, max_age, read.of_server()), read.call(), feed.filter)


# ---- What is asked for.


def request_of(
    runtime: Runtime,
    verb: str,
    kind: AnyKey,
    namespace: Namespaces,
    label: Label,
    field: Field,
    names: Collection[str] | None,
) -> Selector:
    """Return what a read asks for, as a selector."""
    with NoDeclaration(verb, kind):
        if (
            field is None and names is None and (namespace is None or type(namespace) is str)
        ):  # As most reads are.
            if label is None or type(label) is str:
                return runtime.memo.of(requests)(label, namespace)
            if type(label) is dict and all(type(value) is str for value in label.values()):
                return runtime.memo.of(requests)(tuple(label.items()), namespace)
        return Selector(
            label,
            field=field,
            names=names,
            namespaces=[namespace] if isinstance(namespace, str) else namespace,
        )


def request_of_one(name: object, namespace: object) -> Selector | None:
    """Return what a read of one object asks for, as a selector; None if it makes no sense, which is said
    later.
    """
    with suppress(DeclarationError):
        return Selector(names=[name], namespaces=[namespace] if namespace is not None else None)  # type: ignore[list-item]  # It is checked.
    return None


def checked_one(one: One) -> One:
    """Raise ReadError if the name and namespace cannot be those of an object of the kind."""
    for argument, given in (("name", one.name), ("namespace", one.namespace)):
        if not isinstance(given, str) and (argument, given) != ("namespace", None):
            raise mistyped(one.bare(), argument, given, "text")
    if error := misplaced(one):
        raise error
    return one


def asked_for(one: One) -> Selector:
    """Return what a read of one object asks for, as a selector; raise ReadError if no object can be called
    so.
    """
    try:
        return one.request
    except DeclarationError:
        raise misnamed(one) from None


def checked_many(
    many: Many, where: Where | None = None, sort_by: SortBy | None = None, limit: int | None = None
) -> Many:
    """Raise ReadError if what is asked for, or how it is wanted, makes no sense."""
    if callable(where):
        raise ReadError(
            f"{many.bare()}: where is a function", remedy=f"Write: [each for each in {many.call()} if ...]"
        )
    if where is not None and not isinstance(where, Mapping):
        raise mistyped(
            many.bare(), "where", where, "a dict of values by path, such as {'spec.nodeName': 'node01'}"
        )
    if not_paths := [key for key in where or () if not _is_path(key)]:
        raise mistyped(
            many.bare(),
            "a path of where=",
            not_paths[0],
            "keys with dots between them, 'spec.nodeName', or a tuple of keys",
        )
    if sort_by is not None and not callable(sort_by) and not _is_path(sort_by):
        raise mistyped(
            many.bare(), "sort_by", sort_by, "a path such as 'metadata.creationTimestamp', or a function"
        )
    for path, value in (where or {}).items():
        if wrong := wrong_path(path):
            raise ReadError(f"{many.bare()}: where={{{_path(path)}: ...}} {wrong}", remedy=PATHS)
        if not isinstance(value, (str, int, float, list, Mapping, NoneType)):
            raise mistyped(
                many.bare(), f"where={{{_path(path)}: ...}}", value, "a value of JSON to compare with"
            )
    if isinstance(sort_by, (str, tuple)):
        _refuse_order(many, sort_by)
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise mistyped(many.bare(), "limit", limit, "a number of objects")
    if many.request.namespaces is not None and many.resource.kind.namespaced is False:
        raise nowhere(many, many._replace(request=replace(many.request, namespaces=None)))
    return many


def must_be_kept(
    many: Many, where: Where | None, sort_by: SortBy | None, projection: Projection, runtime: Runtime
) -> None:
    """Raise NotKept if something is asked for that is dropped before storing."""
    paths = [path for path, _ in paths_of(where)]
    if sort_by is not None and not callable(sort_by):
        paths.append(keys_of(sort_by))
    for path in paths:
        if not projection.kept(path):
            raise not_kept(many, path, projection, line_of(runtime, many.kind))


def wanted_form(verb: str, kind: AnyKey, as_: object, *, keys_only: object = False) -> Form | None:
    """Return the form that is asked for, by name or by the class that names the kind; None for dicts, and for
    keys.
    """
    if not isinstance(keys_only, bool):
        raise mistyped(bare(verb, kind), "keys_only", keys_only, "True or False")
    if keys_only and as_ is not None:
        raise ReadError(
            f"{bare(verb, kind)}: keys_only=True returns no objects, and as_ says what to make of them",
            remedy="Leave one of them out",
        )
    if keys_only:
        with NoDeclaration():
            key_of(kind)
        return None
    if as_ is not None:
        return form_of(bare(verb, kind), as_)
    if not isinstance(kind, type):
        return None
    with NoDeclaration():
        key_of(kind)
    return form_of(bare(verb, kind), kind)._replace(given=None)


def must_suit(asked: One | Many, form: Form | None, projection: Projection, runtime: Runtime) -> None:
    """Raise ReadError if the objects cannot have this form, NotKept if too little of them is kept for it."""
    for path in form.paths if form is not None else ():
        if projection.lost(path):
            if (camel := tuple(map(camelled, path))) != path and not projection.lost(camel):
                raise misspelt(asked, path, camel)
            raise not_kept(asked, path, projection, line_of(runtime, asked.kind))
    if form is None or form.of_client is None:
        return
    if not stands_for(form.of_client, asked.resource):
        raise unfit(asked, form.of_client.__name__)
    if projection.partial:
        raise not_whole(asked, form.of_client.__name__, projection, line_of(runtime, asked.kind))


def _refuse_order(many: Many, path: Path) -> None:
    """Raise ReadError if nothing can be sorted by this."""
    if isinstance(path, str) and path.startswith("-"):
        raise ReadError(
            f"{many.bare()}: sort_by={_path(path)} is no path: there is no descending order",
            remedy=f"Write sort_by={_path(path[1:])}, and turn the answer round: [...][::-1]",
        )
    if wrong := wrong_path(path):
        raise ReadError(f"{many.bare()}: sort_by={_path(path)} {wrong}", remedy=PATHS)


def _path(path: Path) -> str:
    return clipped(repr(path), 200)


def _is_path(given: object) -> bool:
    return isinstance(given, str) or (isinstance(given, tuple) and all(isinstance(key, str) for key in given))


def owner_of(owner: object, call: str) -> tuple[str, str | None]:
    """Return the uid and namespace of what `owned` was given."""
    if not isinstance(owner, Mapping):
        raise mistyped(call, "the owner", owner, "the body of an object")
    metadata = owner.get("metadata")
    uid, namespace = (
        (metadata.get("uid"), metadata.get("namespace")) if isinstance(metadata, Mapping) else (None, None)
    )
    if not isinstance(uid, str) or not uid:
        raise ReadError("cache.owned() was given an owner without a metadata.uid", remedy=f"Write: {call}")
    return uid, namespace if isinstance(namespace, str) else None


def checked_event(at_least: object) -> Event:
    """Return the object that a cache must be as new as; raise ReadError if this is none."""
    if not isinstance(at_least, Mapping) or not isinstance(at_least.get("metadata"), Mapping):
        raise mistyped("cache.wait_synced()", "at_least", at_least, "the body of an object")
    event = event_of(at_least)
    if event is None or not event.kind:
        lacking = "metadata.resourceVersion" if event is None else "kind"
        raise ReadError(
            f"cache.wait_synced(at_least=...): the body has no {lacking}",
            remedy="Give a body as a server or Kopf gives it; in tests, cache.cluster.get(body)",
        )
    return event


def feeds_of_kind(feeds: Iterable[Feed], event: Event) -> list[Feed]:
    """Return the caches of the kind of an object; raise ReadError if it is known that there is none."""
    found = [
        feed
        for feed in feeds
        if feed.resource is not None
        and (feed.resource.kind.group, feed.resource.kind.kind) == (event.group, event.kind)
    ]
    if not found and all(feed.resource is not None for feed in feeds):
        raise ReadError(
            f"cache.wait_synced(at_least=...): no cache is declared for the kind {event.kind}",
            remedy="Declare one, or leave at_least out",
        )
    return found


def checked_uid(uid: object, call: str) -> None:
    """Raise ReadError if this cannot be the uid of an object."""
    if uid is not None and (not isinstance(uid, str) or not uid):
        raise mistyped(
            call,
            "uid",
            uid,
            "the metadata.uid of an object, or leave it out: then any object of the name counts",
        )


def checked_predicate(predicate: Callable[..., object], timeout: object, call: str) -> None:
    """Raise ReadError if this is nothing to wait with."""
    if not callable(predicate):
        raise mistyped(call, "the predicate", predicate, "a function of an object")
    if iscoroutinefunction(predicate):
        raise awaitable(call, "the predicate", predicate)
    if timeout is not None and (not isinstance(timeout, (int, float)) or isinstance(timeout, bool)):
        raise mistyped(call, "timeout", timeout, "a number of seconds")


def satisfies(predicate: Callable[[Obj], object], obj: Obj, call: str) -> bool:
    """Whether the object is waited for. A coroutine would be taken for a yes: it is refused, and never
    awaited.
    """
    answer = predicate(obj)
    if isawaitable(answer):
        if isinstance(answer, Coroutine):
            answer.close()
        raise awaitable(call, "the predicate", predicate)
    return bool(answer)


def match_of(many: Many, where: Where | None, view: View, index: Mapping[str, object] | None = None) -> Match:
    """Return the predicate of a read of several objects."""
    try:
        indexes = (
            tuple(each for each in view.indexes.values() if each.path is not None)
            if many.request.terms or where is not None
            else ()
        )
        if where is None and index is None:
            return view.comparisons.matches(view.filter, many.request, view.resource, indexes)
        return Match.of(
            many.request,
            where,
            view.resource,
            view.filter,
            values=_values_of(many, index, view),
            indexes=indexes,
            projection=view.projection,
        )
    except BadField as problem:
        raise unmatchable(many, problem.label) from None


class Candidates(NamedTuple):
    """The records that a read has to look at."""

    match: Match
    """What they must be like."""
    records: list[Record]
    unreadable: Sequence[Unreadable]
    """Those that may be a part of the answer, and cannot be read. They are not among the others."""


def chosen_of(view: View, match: Match) -> Candidates:
    """Return what must be looked at, and what for."""
    chosen = view.chosen(match.lookup)
    return Candidates(
        match.left(chosen.rest),
        chosen.records,
        match.unreadable(chosen.unreadable) if chosen.unreadable else (),
    )


def must_be_readable(many: Many, found: Candidates, runtime: Runtime) -> None:
    """Raise Unreadable if something of the answer cannot be read."""
    if found.unreadable:
        raise unreadable_many(many, found.unreadable, line_of(runtime, many.kind))


def _values_of(
    many: Many, index: Mapping[str, object] | None, view: View
) -> tuple[tuple[Indexed, object], ...]:
    """Return what is asked for by declared indexes; raise ReadError for what is not declared, or cannot be a
    value.
    """
    if index is None:
        return ()
    if not isinstance(index, Mapping):
        raise _of_type(
            many, "index", index, "a dict of values by the names of indexes, such as {'image': 'nginx'}"
        )
    for name, value in index.items():
        if name not in view.indexes:
            known = f", but {', '.join(map(repr, view.indexes))}" if view.indexes else ""
            meant = near(name, view.indexes) if isinstance(name, str) else None
            declare = (
                f"Declare it, Cached(..., index={{{shown(name)}: ...}}), with a path or a function; or add"
                f" it: {method('add_index', sync=many.sync)}({as_given(many.kind)}, {_argument(name)})"
                if isinstance(name, str)
                else "Give the name of an index, which is a text"
            )
            raise ReadError(
                f"{many.bare()}: {many.resource} have no index {shown(name)}{known}",
                remedy=f"Did you mean index={{{meant!r}: ...}}?" if meant is not None else declare,
            )
        if not isinstance(value, (str, bool, int, float)):
            raise _of_type(
                many, f"index={{{name!r}: ...}}", value, "one value, which is a text in most indexes"
            )
        if view.indexes[name].function is not None and not isinstance(value, str):
            raise _of_type(many, f"index={{{name!r}: ...}}", value, "a text: what functions return are texts")
    return tuple((view.indexes[name], value) for name, value in index.items())


def _of_type(many: Many, argument: str, given: object, wanted: str) -> ReadError:
    """Say of which type something is that should be another one. What an index is read by may be a Secret's:
    it is not shown.
    """
    return ReadError(
        f"{many.bare()}: {argument} is of the type {type(given).__name__}", remedy=f"Give {wanted}"
    )


def _argument(name: str, by: str = "...") -> str:
    """Write an index as an argument of `add_index`, whether or not Python takes its name for one."""
    return f"{name}={by}" if name.isidentifier() and not iskeyword(name) else f"**{{{shown(name)}: {by}}}"


def missing_index(many: Many, match: Match, view: View) -> str:
    """Return what to write for an index of a path that `where` compares, or that a field has its value at;
    empty if there is one of each.
    """
    indexed = {index.path for index, _ in match.served}
    paths = [
        path
        for path, value in match.where
        if path not in indexed and isinstance(value, (str, bool, int, float))
    ]
    paths += [
        path
        for term, field, index in match.terms
        if index is None and term.equal and (path := field.path_of(term.value)) is not None
    ]
    for path in paths:
        if view.projection.exact(path):
            for name in (path[-1], f"by_{'_'.join(path)}"):
                if name not in ("self", "kind", *view.indexes):
                    return (
                        f"{method('add_index', sync=many.sync)}({as_given(many.kind)},"
                        f" {_argument(name, repr(as_written(path)))})"
                    )
    return ""


def added(many: Many, indexes: Mapping[str, object], view: View, runtime: Runtime) -> list[Indexed]:
    """Return the indexes that are to be added; raise ReadError for what can be none, and NotKept where too
    little is kept for one.
    """
    if not indexes:
        raise ReadError(
            f"{many.bare()} was given no index", remedy=f"Write: {many.call()[:-1]}, node='spec.nodeName')"
        )
    if isinstance(nested := indexes.get("index"), Mapping):
        arguments = ", ".join(_argument(name) if isinstance(name, str) else "..." for name in nested)
        raise ReadError(
            f"{many.bare()}: index= is a dict, and each index is an argument here",
            remedy=f"Write: {many.call()[:-1]}, {arguments or 'name=...'})",
        )
    with NoDeclaration(many.verb, many.kind):
        made = declared_indexes(indexes, late=True)
    for each in made:
        known = view.indexes.get(each.name)
        if known is not None:
            if not known.is_like(each):
                raise another(many, each.name, known)
            continue
        if each.path is not None and not view.projection.exact(each.path):
            what = (
                f"{many.bare()}: what is at {as_written(each.path)!r} may have been changed by the transform"
                f" of {many.resource}"
            )
            if not view.projection.kept(each.path):
                what = not_kept(many, each.path, view.projection, line_of(runtime, many.kind)).what
            raise NotKept(
                what,
                remedy=(
                    f"Declare the index, which then sees objects as they come: Cached(..., index={{{each}}})"
                ),
            )
    return [replace(each, failing=_failing(many.resource, each.name)) for each in made]


def _failing(resource: Resource, name: str) -> Failing:
    """Return what tells that the function of an index that was added fails for what has come: once."""
    told: list[str] = []

    def failing(key: tuple[str, str], why: str) -> None:
        if not told:
            told.append(why)
            _logger.warning(
                "The cache of %(resource)s: for %(object)s, %(why)s. The index %(index)s has no value of that"
                " object, nor of others for which it fails; %(advice)s.",
                {
                    "resource": str(resource),
                    "object": "/".join(filter(None, key)),
                    "why": why,
                    "index": shown(name),
                    "advice": NO_VALUE,
                },
                extra={"resource": str(resource)},
            )

    return failing


def another(many: Many, name: str, known: Indexed) -> ReadError:
    """Say that there is another index of the name."""
    return ReadError(
        f"{many.bare()}: {many.resource} have another index {shown(name)} already: {known}",
        remedy=(
            "Give this one another name; or, if it is meant to be the same, define its function once: a"
            " lambda is another one with each call"
        ),
    )


def unindexed(many: Many, name: str, record: Record, why: str) -> ReadError:
    """Say for which object the function of an index failed."""
    where = f"{record.namespace}/{record.name}" if record.namespace else record.name
    return ReadError(
        f"{many.bare()}: for {where}, {why}",
        remedy=f"Correct the function of the index {shown(name)}; {NO_VALUE}",
    )


# ---- Whether the filter holds it.


def verdict_of(request: Selector, view: View) -> Verdict:
    """Say whether the filter covers what is asked for."""
    verdict: Verdict = view.comparisons.covers(view.filter, request, view.resource.domains)
    return verdict


def must_be_covered(many: Many, view: View) -> None:
    """Raise OutsideFilter unless all that is asked for is held."""
    if not (verdict := verdict_of(many.request, view)):
        raise outside(many, verdict)


def must_be_whole(asked: One | Many, view: View) -> None:
    """Raise NotKept if only a part of each object is held."""
    if view.projection.partial:
        raise partial(asked, view.projection)


def must_overlap(many: Many, view: View) -> None:
    """Raise OutsideFilter if nothing of what is asked for can be held."""
    if view.comparisons.excludes(view.filter, many.request, view.resource.domains):
        raise outside(many, verdict_of(many.request, view))
