"""Operators in virtual time: pauses take none, and a test can tell how long they were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache.informer.informers import Runtime
from tests.faults.hurried import HurriedLoop, VirtualTime


class Times(VirtualTime):
    """The clock of the loop, which the caches of operators have as well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop: HurriedLoop | None = None
        init = Runtime.__init__

        def with_this_clock(runtime: Runtime, *args: Any, **options: Any) -> None:
            init(runtime, *args, clock=self.clock, **options)

        monkeypatch.setattr(Runtime, "__init__", with_this_clock)

    def clock(self) -> float:
        return 0.0 if self._loop is None else self._loop.now

    def make_loop(self) -> HurriedLoop:
        self._loop = HurriedLoop(awaits_threads=True)
        return self._loop

    async def until(self, condition: Callable[[], object], *, within: float) -> None:
        """Let time pass until something is so; fail if it takes longer. It looks 10,000 times at most."""
        end = self.clock() + within
        while not condition():
            assert self.clock() < end, f"it takes longer than {within} s"
            await asyncio.sleep(max(within / 10_000, 0.001))
