"""Readiness: the part of an informer that one request needs, or the error that explains why there is none.

A failed stream does not affect requests that do not need it, unless it could hold objects of the same names
as a stream that the request needs together with others (`core.store.union`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kopf_selectcache._errors import StateError
from kopf_selectcache.core.store.store import Readable, Store
from kopf_selectcache.selectors.selector import Selector

from .health import Condition
from .reflector import Reflector
from .state import InformerState

NOTHING_YET = Store()
"""A store without a version, for a part that cannot be read."""


class ReadablePart(NamedTuple):
    """The readable part of an informer for one request."""

    error: StateError | None
    """The error that reads must raise; None if the store can be read."""
    store: Readable
    """The store to read. Its version is empty before the first complete lists."""
    message: str = ""
    remedy: str = ""
    """The failure and the one thing to change; empty if the store can be read."""


def ready_store(state: InformerState) -> Store | None:
    """Return the store, if every request can be answered; else None."""
    for condition in state.conditions if state.is_resolving else state.stream_conditions:
        if not condition.readable:
            return None
    if any(each.unreadable() is not None for each in state.followed):
        return None
    store = state.store
    return store if store.version else None


def worst_of(state: InformerState, reflectors: Sequence[Reflector]) -> Condition:
    """Return the worst condition of some streams; while the key is resolved, the worst of
    `state.conditions`.
    """
    resolving = state.is_resolving or not state.reflectors
    conditions: Sequence[Condition] = state.conditions
    if not resolving:
        conditions = [*(each.condition for each in reflectors), *state.followed_conditions]
    return max(conditions, key=lambda condition: condition.gravity)


def part_for(state: InformerState, request: Selector | None) -> ReadablePart:
    """Return the part of the informer that a request needs; for None, all of it."""
    for each in state.followed:
        if (unreadable := each.unreadable()) is not None:
            error, message, remedy = unreadable
            return ReadablePart(error, NOTHING_YET, message, remedy)
    if request is None or not state.has_several_streams:
        if state.is_resolving or len(state.stream_conditions) != 1:
            return _part(worst_of(state, state.reflectors), state.store)
        return _part(state.stream_conditions[0], state.store)
    needed = state.needed(request)
    condition = worst_of(state, needed.reflectors)
    if not needed.store.version and condition.readable:
        condition = worst_of(state, needed.near)
    return _part(condition, needed.store)


def _part(condition: Condition, store: Readable) -> ReadablePart:
    if condition.readable and store.version:
        return ReadablePart(None, store)
    return ReadablePart(condition.error(), store, condition.message, condition.remedy)


def streams_for(state: InformerState, request: Selector | None) -> tuple[Reflector, ...]:
    """Return the streams that a request needs; for None, all."""
    if request is None or not state.has_several_streams:
        return state.reflectors
    return state.needed(request).reflectors


def age_of(state: InformerState, request: Selector | None) -> float | None:
    """Return the seconds since the server last confirmed the stored objects; None before the first complete
    list.
    """
    ages = [each.age() for each in streams_for(state, request)]
    ages += [each.age() for each in state.followed]
    return max((age for age in ages if age is not None), default=None) if None not in ages else None


async def wait_until_settled(
    state: Callable[[], InformerState], request: Selector | None, moved: asyncio.Event
) -> None:
    """Wait until each stream that the request needs is synced, or has failed."""
    while True:
        now = state()
        if now.is_resolving:
            if part_for(now, request).error is not None:
                return
            conditions = [*now.followed_conditions, now.resolving]
        else:
            conditions = [each.condition for each in streams_for(now, request)]
            conditions += now.followed_conditions
        if waited := [each for each in conditions if not each.has_settled]:
            await waited[0].wait_until_settled()
            continue
        part = part_for(now, request)
        if part.error is not None or part.store.version:
            return
        moved.clear()  # Each of several streams must reach the version of the newest list.
        await moved.wait()
