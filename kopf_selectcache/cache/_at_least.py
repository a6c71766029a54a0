"""`at_least=`: reads as of a version or later. Compares the versions of streams with it, and waits for them.

A stream holds all up to a version if it has reached it: by an event or by a bookmark. While neither comes,
one list of metadata, which all waits share, shows how far it is (`informer.reach`). A stream
that was not listed since the server was restored holds no version of now, however high its own version is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from kopf_selectcache._errors import NotDeclared, ReadError
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.store.record import (
    ObjectKey,
    are_numbers,
    is_newer,
    is_number,
    is_reached,
    rank_of,
)
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.reflector import Reflector
from kopf_selectcache.informer.state import InformerState
from kopf_selectcache.selectors.selector import Selector

from .request import AtLeast

LONGEST_WAIT = 5.0
"""Seconds that a read waits until its streams are as new as its `at_least=`."""

GRACE = 1.0
"""Seconds that a wait gives the watches before it lets them be compared with the server."""

_NO_OBJECT = ("", "")


def require_comparable(informer: Informer, at_least: AtLeast) -> None:
    """Raise ReadError if the version of the request cannot be compared with those of this kind."""
    resource, version = informer.state.resource, informer.state.store.version
    if at_least.kind and resource is not None and resource.kind.kind:
        kind = resource.kind
        if (at_least.group, at_least.kind) != (kind.group, kind.kind):
            raise ReadError(
                f"at_least= is a {clipped(at_least.kind, 100)}, and its version can't be compared with those"
                " of"
                f" {resource}",
                remedy=f"Give an object of the kind {resource}",
            )
    if version and not is_number(version):
        raise ReadError(
            f"at_least= doesn't work for {informer}: the server's versions aren't numbers, and have no order",
            remedy="Use max_age=\nTo read from the server: cache.live",
        )


def has_reached(runtime: Runtime, kind: object, version: object) -> bool:
    """Return True if a cache with one stream is known to be as new as a version: later reads are, too."""
    informer = runtime.names.quick.get(kind) if type(kind) is str else None
    store = informer.state.ready if informer is not None and not informer.state.has_several_streams else None
    return store is not None and type(version) is str and is_reached(version, store.version)


def is_as_new(informer: Informer, at_least: AtLeast, region: Selector | None) -> bool:
    """Return True if the streams of a request are known to hold all that there was at the version."""
    version, epoch = at_least.version, _epoch_of(informer)
    streams = informer.state.streams_for(region)
    return all(
        each.substore.epoch == epoch and _has_reached(each, version) for each in streams
    ) and not _has_unconfirmed(informer, version)


def has_passed(state: InformerState, key: ObjectKey, version: str) -> bool:
    """Return True if the streams that could hold an object are known to hold all that there was at the
    version.
    """
    streams = [each for each in state.reflectors if each.substore.keys.have(key)]
    return bool(streams) and all(
        each.substore.epoch == state.union.epoch and _has_reached(each, version) for each in streams
    )


def version_reached(informer: Informer) -> str:
    """Return a version that all streams are known to have reached: the oldest of theirs, unless a leave
    before it is unconfirmed. It is empty while a stream is behind a list of another one.
    """
    version = informer.state.store.version
    streams = informer.state.streams_for()
    newest = [each.version for each in streams]
    if not newest or not are_numbers((version, *newest)):
        return version
    reached = min(newest, key=rank_of)
    if not all(_has_reached(each, reached) for each in streams):
        return ""  # What moved unseen is in no answer.
    return version if _has_unconfirmed(informer, reached) else reached


def lists_of(informer: Informer) -> tuple[str, ...]:
    """Return the version of the last list of each stream. After a restore each stream is listed again."""
    return tuple([each.substore.listed for each in informer.state.streams_for()])


def _epoch_of(informer: Informer) -> int:
    """Return the present epoch: each restore of the server begins one."""
    return max((each.substore.epoch for each in informer.state.streams_for()), default=0)


def _has_reached(reflector: Reflector, version: str) -> bool:
    return not is_newer(reflector.goal(version), reflector.version)


def _has_unconfirmed(informer: Informer, version: str) -> bool:
    state = informer.state
    return state.has_several_streams and state.has_unconfirmed_up_to(version, besides=_NO_OBJECT)


async def wait(
    informer: Informer, at_least: AtLeast, region: Selector | None, seconds: float | None = None
) -> None:
    """Wait until the streams of a request are as new as the version, for some seconds at most, if any are
    given; return at once if they cannot be read.
    """
    sleep = informer.environment.sleep
    end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if seconds is not None:
        end = asyncio.ensure_future(sleep(seconds))
    grace = asyncio.ensure_future(sleep(GRACE if seconds is None else min(GRACE, seconds)))
    try:
        with suppress(NotDeclared):  # The kind was removed: its reads raise that.
            await informer.ending.limit(_wait(informer, at_least, region, end, grace))
    finally:
        end.cancel()
        grace.cancel()


async def _wait(
    informer: Informer,
    at_least: AtLeast,
    region: Selector | None,
    end: asyncio.Future[None],
    grace: asyncio.Future[None],
) -> None:
    version = at_least.version
    while not end.done() and informer.state.part(region).error is None:
        streams, epoch = informer.state.streams_for(region), _epoch_of(informer)
        # A stream of an older epoch is not compared: it is being listed, which ends its wait.
        unlisted = [each for each in streams if each.substore.epoch < epoch]
        unreached = [
            each for each in streams if each.substore.epoch == epoch and not _has_reached(each, version)
        ]
        late = [*unlisted, *unreached]
        if not late and not _has_unconfirmed(informer, version):
            return
        goals = [(each, each.goal(version)) for each in late]
        waits = [(each.awaited, goal, each.awaited.wait(goal)) for each, goal in goals]
        if not late:
            waits.append((informer.awaited, version, informer.awaited.wait(version)))
        compared = [
            each.comparison.wait(goal, exact=goal != version)
            for each, goal in goals
            if grace.done() and each in unreached
        ]
        futures: list[asyncio.Future[Any]] = [*(each[-1] for each in waits), *compared]
        try:
            await asyncio.wait(
                [end, *futures, *([] if grace.done() else [grace])], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for awaited, goal, future in waits:
                awaited.discard(goal, future)
            for future in compared:
                future.cancel()
