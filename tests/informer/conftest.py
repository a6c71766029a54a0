"""What several tests of informers need."""

from __future__ import annotations

import asyncio

import pytest

from kopf_selectcache.informer.subscribers import PendingWrites


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep own writes, however fast the clock goes."""

    async def wait(_: PendingWrites) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(PendingWrites, "run", wait)
