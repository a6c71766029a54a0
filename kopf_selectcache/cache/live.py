"""The server's answers to reads that the cache cannot answer, or the read errors that say why there is
none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

from kopf_selectcache._errors import NotDeclared, NotFound, NotSynced, StateError
from kopf_selectcache.client import partial_metadata
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.client.transport import JSON, UNAUTHORIZED, NoCredentials, Refused, Unreachable
from kopf_selectcache.core.errors import Garbled, TooLarge, Untransformed
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.selection.kinds import Key
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.selection.sent import Sent, Unselected
from kopf_selectcache.core.store.projection import ALL, Projection
from kopf_selectcache.core.store.record import Record, Unreadable
from kopf_selectcache.informer.audit import Audit
from kopf_selectcache.informer.causes import cause_of
from kopf_selectcache.informer.informer import Feed
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import AnyKey, assigned, key_of
from kopf_selectcache.settings.planner import questions

from .errors import unreadable, unreadable_many
from .request import Many, One, Read
from .state_errors import (
    REFUSED_CREDENTIALS,
    gone,
    not_served,
    refused,
    too_large,
    unanswered,
    unauthorized,
    unselected,
    untransformed,
)


async def resource_of(runtime: Runtime, read: Read) -> Resource:
    """Return what the read is of, declared or not."""
    kind, call = key_of(read.kind), read.call()
    try:
        declared = runtime.feed(kind).resource
    except (NotDeclared, NotSynced):
        declared = None
    question = f"{call}, which has to know what {kind!r} is"
    try:
        return declared if declared is not None else await runtime.resolve(kind)
    except NotServed:
        raise not_served(call, repr(kind), kind, line_of(runtime, kind)) from None
    except Refused as error:
        if error.refusal.code == UNAUTHORIZED:
            raise unauthorized(question, REFUSED_CREDENTIALS, cause_of(error.refusal)) from None
        raise unanswered(
            question, f"{error.refusal.code} {error.refusal.reason}".rstrip(), cause_of(error.refusal)
        ) from None
    except (Unreachable, Garbled) as error:
        raise _unanswered(question, error) from error


def projection_of(runtime: Runtime, kind: Key) -> Projection:
    """Return what is kept of the kind: what the server answers has the same shape."""
    with suppress(NotDeclared, NotSynced):
        return runtime.feed(kind).projection
    return ALL


def line_of(runtime: Runtime, kind: AnyKey) -> str | None:
    """Return what the kind's filter is assigned to in a startup handler; None if it is not declared."""
    with suppress(NotDeclared, NotSynced):
        feed = runtime.feed(key_of(kind))
        return next(assigned(key) for key, each in runtime.feeds.items() if each is feed)
    return None


async def ask_one(runtime: Runtime, one: One, projection: Projection) -> Record:
    """Ask for one object."""
    record = await _asked(
        runtime, one, JSON, partial(Reader.of(one.resource, projection).record, kindless=False)
    )
    if isinstance(record, Unreadable):
        raise unreadable(one, record, line_of(runtime, one.kind))
    return record


async def ask_uid(runtime: Runtime, one: One) -> str | None:
    """Ask which object has the name, by its metadata alone; None if there is none."""
    with suppress(NotFound):
        return (
            await _asked(
                runtime, one, partial_metadata.ONE, partial(partial_metadata.metadata_of, one.resource)
            )
        ).uid
    return None


async def _asked(runtime: Runtime, one: One, accept: str, read: Callable[[bytes], Record]) -> Record:
    request = one.request  # What is no name must not become a part of a path.
    path = one.resource.path(*request.namespaces or (None,), *request.names or ())
    try:
        return _wanted(
            read(await runtime.fetches.get(path, {}, accept=accept)),
            request.namespaces or ("",),
            request.names,
        )
    except Refused as error:
        # Where the kind itself is not served, a server answers 404 without that reason.
        if (error.refusal.code, error.refusal.reason) == (404, "NotFound"):
            raise gone(one) from None
        raise refused(one, "get", error.refusal, line_of(runtime, one.kind)) from None
    except (Unreachable, Garbled) as error:
        raise _senseless(runtime, one, error) from error


async def ask_many(
    runtime: Runtime, many: Many, projection: Projection, *, enough: int | None
) -> list[Record]:
    """Ask for all objects, or for at least so many of them."""
    records: list[Record] = []
    try:
        # Labels alone are compared: our table of fields must not make an answer an error.
        reader = Reader.of(many.resource, projection, sent=Sent(tuple(many.request.requirements)))
        for path, query in questions(many.resource, many.request):
            more = None if enough is None else enough - len(records)
            if more is not None and more <= 0:
                break
            found = await runtime.fetches.pages(
                path,
                query,
                reader,
                page_limit=runtime.settings.page_limit,
                patience=runtime.settings.sync_timeout,
                enough=more,
            )
            records += [_wanted(record, many.request.namespaces, many.request.names) for record in found]
    except Refused as error:
        raise refused(many, "list", error.refusal, line_of(runtime, many.kind)) from None
    except (Unreachable, Garbled) as error:
        raise _senseless(runtime, many, error) from error
    if found := [record for record in records if isinstance(record, Unreadable)]:
        raise unreadable_many(many, found, line_of(runtime, many.kind))
    return records


def _wanted(record: Record, namespaces: Collection[str] | None, names: Collection[str] | None) -> Record:
    """Return the object if it has a name and a namespace that were asked for; else raise Garbled."""
    if (namespaces is None or record.namespace in namespaces) and (names is None or record.name in names):
        return record
    raise Garbled(
        f"an object came that was not asked for, {'/'.join(part[:253] for part in record.key if part)!r}"
    )


def _senseless(runtime: Runtime, asked: One | Many, error: Unreachable | Garbled) -> StateError:
    if isinstance(error, Untransformed):
        whole = asked._replace(options={**asked.options, "whole": True})
        return untransformed(asked.bare(), error, line_of(runtime, asked.kind), whole.call())
    if isinstance(error, Unselected):
        return unselected(asked, error)
    return _unanswered(asked.call(), error, one=isinstance(asked, One))


def _unanswered(asked: str, error: Unreachable | Garbled, *, one: bool = False) -> StateError:
    if isinstance(error, TooLarge):
        return too_large(asked, error, one=one)
    return (
        unauthorized(asked, str(error)) if isinstance(error, NoCredentials) else unanswered(asked, str(error))
    )


async def ask_audit(runtime: Runtime, feed: Feed, many: Many) -> Audit:
    """Ask for all names and versions of what the feed holds, and compare."""
    try:
        return await feed.audit()
    except Refused as error:
        raise refused(many, "list", error.refusal, line_of(runtime, many.kind)) from None
    except (Unreachable, Garbled) as error:
        raise _unanswered(many.bare(), error) from error
