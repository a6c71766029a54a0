"""Recordings: those of all recorders in one operator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock

from kopf_selectcache.informer.informers import Runtime

from .recording import FLUSH, Recording


class Recordings:
    """The recordings of one operator, by the names and options of recorders. They start with the first
    record.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._recordings: dict[object, Recording] = {}
        self._lock = Lock()
        self._is_closed = False

    def of(self, key: object, make: Callable[[Runtime], Recording]) -> Recording:
        """Return the recording of the recorders with this key, in any thread."""
        with self._lock:
            found = self._recordings.get(key)
            if found is None:
                found = self._recordings[key] = make(self._runtime)
                if self._is_closed:
                    found.close()
                else:
                    with suppress(RuntimeError):  # The loop is closed.
                        self._runtime.loop.call_soon_threadsafe(found.start)
            return found

    def all(self) -> Mapping[object, Recording]:
        with self._lock:
            return dict(self._recordings)

    async def end(self, timeout: float) -> None:  # noqa: ASYNC109  # It is a part of its work.
        """Write what waits, and end; on the operator's loop."""
        with self._lock:
            self._is_closed = True
        await asyncio.gather(*(each.end(timeout) for each in self.all().values()))

    def close(self) -> None:
        """End without writing what waits; on the operator's loop."""
        with self._lock:
            self._is_closed = True
        for each in self.all().values():
            each.close()


async def end_recordings(runtime: Runtime, timeout: float = FLUSH) -> None:  # noqa: ASYNC109  # As above.
    """Write the Events that wait, for at most `timeout` seconds, and end all recorders of an operator. Call
    it on its loop, while its transport is open.
    """
    await runtime.extensions.get(Recordings).end(timeout)


def recordings_of(runtime: Runtime) -> list[Recording]:
    """Return the recordings of an operator, for its metrics."""
    return [*runtime.extensions.get(Recordings).all().values()]
