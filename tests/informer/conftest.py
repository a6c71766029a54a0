"""What several tests of informers need."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from kopf_selectcache.informer.subscribers import PendingWrites


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep own writes, however fast the clock goes."""

    async def wait(_: PendingWrites) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(PendingWrites, "run", wait)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return what returns the lines, with their levels, that were logged since it was called last."""
    caplog.set_level(logging.DEBUG, logger="kopf_selectcache")
    return lambda: [f"{each.levelname}: {each.getMessage()}" for each in taken(caplog, logging.INFO)]


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return what returns the warnings, and worse, that were logged since it was called last."""
    return lambda: [each.getMessage() for each in taken(caplog, logging.WARNING)]


def taken(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    found = [each for each in caplog.records if each.name == "kopf_selectcache" and each.levelno >= level]
    caplog.clear()
    return found
