"""Tests of recordings run in virtual time."""

from __future__ import annotations

import pytest

from tests.faults.hurried import VirtualTime


@pytest.fixture
def times() -> VirtualTime:
    return VirtualTime()
