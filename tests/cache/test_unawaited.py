"""Awaited reads and writes that nobody awaits: the log names their place."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from inspect import currentframe
from typing import Any

import pytest

from kopf_selectcache.cache.cache import Cache
from tests.kopf_operators import Cluster, declaring, launched, run

LOGGED = "cache.live.delete() in test_unawaited.py"


def with_live(work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Run work with `cache.live` of an operator whose server knows no deletions."""

    async def main() -> None:
        cluster = Cluster()
        vars(cluster)["send"] = sent
        async with launched(declaring(pods=""), cluster) as operator:
            await operator.gate(None, None)
            await work(Cache(operator.runtime).live)

    async def sent(*_: object) -> bytes:
        return b"{}"

    run(main())
    gc.collect()  # The traceback of a cancellation may refer to its call.


# Python itself warns as well.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_20_the_log_names_the_place_of_a_write_that_nobody_awaits(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[int] = []

    async def work(live: Any) -> None:
        frame = currentframe()
        assert frame is not None
        live.delete("v1/configmaps", "a", namespace="shop")
        lines.append(frame.f_lineno - 1)

    with_live(work)
    assert (
        caplog.messages.count(
            f"{LOGGED}:{lines[0]} did nothing, because it was never awaited. Write: await"
            " cache.live.delete(...)"
        )
        == 1
    )


@pytest.mark.parametrize(
    "use",
    [
        lambda call: call,
        asyncio.create_task,
        lambda call: asyncio.wait_for(call, 60),
        asyncio.gather,
        asyncio.ensure_future,
    ],
)
def test_20_no_log_names_a_write_that_is_awaited(use: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def work(live: Any) -> None:
        assert await use(live.delete("v1/configmaps", "a", namespace="shop")) in (None, [None])

    with_live(work)
    assert LOGGED not in caplog.text


def test_20_no_log_names_a_write_that_is_cancelled_or_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def work(live: Any) -> None:
        live.delete("v1/configmaps", "a", namespace="shop").close()
        task = asyncio.create_task(live.delete("v1/configmaps", "a", namespace="shop"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with_live(work)
    assert LOGGED not in caplog.text
