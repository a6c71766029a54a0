"""Retries of a read that asks the server, within the time that its caller gives. Retries transient failures
only, with backoff.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from kopf_selectcache._errors import StateError
from kopf_selectcache.core.protocol.backoff import delay

_T = TypeVar("_T")

MOST_DOUBLED = 3
"""Waits double up to 4 seconds, and no further: the caller's time ends soon, and a long last wait would waste
it."""


class Unanswered(Exception):
    """The time is over before the first attempt has ended."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The clock, sleep and randomness of retries. Used on the operator's event loop only."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    chance: Callable[[], float]

    async def run(self, attempt: Callable[[], Awaitable[_T]], seconds: float) -> _T:
        """Return the result of the first attempt that succeeds within so many seconds.

        Raise what an attempt raises, if it is no transient failure; after the time the last failure, or
        Unanswered. If the next attempt would begin too late, because the server asks for more patience, raise
        at once.
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
                    raise  # It is from a function of the caller, such as as_=.
                break
            failures += 1
            await self.sleep(pause)
        raise last
