"""Whatever a function of the operator's author raises is an error of that call: the log has it, and the
function is called again."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from tests.plugin.reconciling import APPS, app, operated, serving
from tests.plugin.virtual import Times


class Interrupt(BaseException):
    """Such as that of a library for threads."""


async def cancelled() -> None:
    """Await a task that somebody else cancels."""
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task


RAISED = pytest.mark.parametrize("raised", [ValueError, asyncio.CancelledError, Interrupt])


@pytest.mark.parametrize(
    ("decorator", "is_async", "raised"),
    [
        (selectcache.reconcile, True, ValueError),
        (selectcache.reconcile, True, asyncio.CancelledError),
        (selectcache.reconcile, False, Interrupt),
        (selectcache.on.change, True, Interrupt),
        (selectcache.on.change, False, asyncio.CancelledError),
    ],
)
def test_17_a_call_that_raises_anything_is_repeated(
    decorator: Any,
    is_async: bool,
    raised: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry, calls, times = kopf.OperatorRegistry(), list[str](), Times(monkeypatch)

    def block(name: str, **_: Any) -> None:
        calls.append(name)
        if len(calls) == 1:
            raise raised("no")

    async def follow(name: str, **_: Any) -> None:
        if raised is asyncio.CancelledError and not calls:
            calls.append(name)
            await cancelled()
        block(name)

    decorator(APPS, registry=registry, id="follow")(follow if is_async else block)

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await times.until(lambda: len(calls) == 2, within=120)

    times.run(main())
    assert calls == ["web", "web"]
    assert "'follow' failed with an exception and will try again" in caplog.text


@RAISED
def test_17_a_reconciler_starts_again_whatever_making_a_source_raises(
    raised: type[BaseException], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry, calls, times = kopf.OperatorRegistry(), list[str](), Times(monkeypatch)
    channel, made = selectcache.sources.Channel(size=1), list[int]()

    def make() -> Any:
        made.append(1)
        if len(made) == 1:
            raise raised("no")
        return channel.source()

    @selectcache.reconcile(APPS, watches=[make], registry=registry)
    async def follow(name: str, **_: Any) -> None:
        calls.append(name)

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await times.until(lambda: calls, within=120)

    times.run(main())
    assert calls == ["web"]
    assert "follow' starts again." in caplog.text
