"""Work that several callers wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Shared(Generic[_T]):
    """Work that several callers wait for. It is cancelled when none of them waits any more."""

    def __init__(self, work: Coroutine[Any, Any, _T]) -> None:
        self._task = asyncio.create_task(_outcome(work))
        self._waiting = 0

    async def result(self) -> _T:
        """Wait for the result, and return or raise it."""
        self._waiting += 1
        try:
            # If this caller is cancelled, the work is not: others wait for it.
            await asyncio.wait([self._task])
            outcome = self._task.result()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._task.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome[0]

    @property
    def given_up(self) -> bool:
        """True if no caller waits."""
        return not self._waiting

    async def over(self) -> None:
        """Wait until the work is done or cancelled."""
        await asyncio.wait([self._task])


async def _outcome(work: Coroutine[Any, Any, _T]) -> tuple[_T] | Exception:
    """Return an error instead of raising it: the task may outlive its callers, and Kopf ends with the errors
    of tasks that are left over.
    """
    try:
        return (await work,)
    except Exception as error:  # noqa: BLE001  # Each caller raises it.
        return error
