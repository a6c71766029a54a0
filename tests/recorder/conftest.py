"""Tests of recordings run in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.faults.hurried import HurriedLoop


class VirtualTimes:
    """Runs a test on a loop whose time passes only when nothing else is left to do."""

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=HurriedLoop) as runner:
            runner.run(test)


@pytest.fixture
def times() -> VirtualTimes:
    return VirtualTimes()
