"""Writes calls of a cache for remedies: as a sync handler makes them, or with `await`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_FOR_THREAD = ContextVar("_FOR_THREAD", default=False)


def call_of(verb: str, arguments: str = "") -> str:
    """Return the call of an awaited read, as it is written where this runs: a sync handler has no loop.

    >>> call_of("fetch")
    'cache.blocking.fetch(...)'
    >>> call_of("fetch", "whole=True")
    'cache.blocking.fetch(..., whole=True)'
    """
    # Without arguments, `wait_synced` waits for all caches.
    given = arguments if verb == "wait_synced" else ", ".join(filter(None, ("...", arguments)))
    return awaited_call(f"{verb}({given})")


def awaited_call(call: str) -> str:
    """Return a call that is awaited likewise.

    >>> awaited_call("remove('pods')")
    "cache.blocking.remove('pods')"
    """
    is_for_thread = _FOR_THREAD.get() or running_loop() is None
    return f"cache.blocking.{call}" if is_for_thread else f"await cache.{call}"


@contextmanager
def for_thread() -> Iterator[None]:
    """Write the calls of this task for a sync handler, whose thread waits for it."""
    token = _FOR_THREAD.set(True)
    try:
        yield
    finally:
        _FOR_THREAD.reset(token)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; None in the thread of a sync handler."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
