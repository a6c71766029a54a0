"""The end of an operator, or of one of its caches: reads raise from then on, and waiting reads are ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakSet

from kopf_selectcache._errors import ReadError

_T = TypeVar("_T")


def ended() -> ReadError:
    """Return the error of a read after the end."""
    return ReadError(
        "the operator that this cache belongs to has ended",
        remedy="End the task or thread that reads it",
    )


class Ending:
    """The end of one operator or cache, and the reads that must end with it."""

    def __init__(self) -> None:
        self.reached = False
        """True after the end. Reads in any thread check it."""
        self.error: Callable[[], ReadError] = ended
        """Returns the error of a read after the end."""
        self._limits: set[asyncio.Timeout] = set()
        # Each call of `cache_of` may make one, which must not live as long as the operator.
        self._followers: WeakSet[Ending] = WeakSet()

    def end(self, error: Callable[[], ReadError] = ended) -> None:
        """Cancel all reads that wait; they raise this error. Call it, and the methods below, on the
        operator's loop only.
        """
        self.error = error
        self.reached = True
        for limit in self._limits:
            limit.reschedule(0.0)  # A time that has passed.
        for follower in tuple(self._followers):
            follower.end()

    def include(self, follower: Ending) -> None:
        """End the follower as well."""
        self._followers.add(follower)
        if self.reached:
            follower.end()

    def check(self) -> None:
        """Raise the error if the end was reached."""
        if self.reached:
            raise self.error()

    async def limit(self, read: Coroutine[Any, Any, _T]) -> _T:
        """Await a read; raise the error if the end was reached, or is reached meanwhile. A read with a
        coroutine among its arguments is made after `check`: Python warns of one that never starts.
        """
        if self.reached:
            read.close()
            raise self.error()
        limit = asyncio.timeout(None)  # No task of its own: the read stays in the task that awaits it.
        try:
            async with limit:
                self._limits.add(limit)
                return await read
        except TimeoutError:
            if limit.expired():
                raise self.error() from None
            raise  # The read itself raised it.
        finally:
            self._limits.discard(limit)
