"""Retries of reads that ask the server: transient failures only, with backoff, until the caller's timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from kopf_selectcache._errors import StateError
from kopf_selectcache.core.protocol.backoff import delay

_T = TypeVar("_T")

MOST_DOUBLED = 3
"""The wait doubles this many times, to at most 4 seconds: a longer wait would waste the caller's time."""


class Unanswered(Exception):
    """The timeout expired before the first attempt ended."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The clock, sleep and randomness of retries. Used on the operator's event loop only."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    chance: Callable[[], float]

    async def run(self, attempt: Callable[[], Awaitable[_T]], seconds: float) -> _T:
        """Return the result of the first attempt that succeeds within `seconds`.

        Raise a failure that is not transient at once; after the timeout raise the last failure, or
        Unanswered. Raise at once as well if the next attempt would begin after the timeout, because the
        server asks for a longer wait.
        """
        end, failures = self.clock() + seconds, 0
        last: Exception = Unanswered()
        while True:
            limit = asyncio.timeout(end - self.clock())
            try:
                async with limit:
                    return await attempt()
            except StateError as error:
                pause = delay(min(failures, MOST_DOUBLED), self.chance(), at_least=error.retry_after or 0.0)
                if not error.transient or pause >= end - self.clock():
                    raise
                last = error
            except TimeoutError:
                if not limit.expired():
                    raise  # A function of the caller raised it, such as as_=.
                break
            failures += 1
            await self.sleep(pause)
        raise last
