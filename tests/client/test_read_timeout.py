"""How long the next piece of a stream may take: one timer, as if there were one for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from kopf_selectcache.client.reading import IdleTimeout
from tests.faults.hurried import HurriedLoop

NEVER = 1e9


def hurried(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on a loop whose time passes when nothing else is left to do; nothing may fail beside it."""

    @wraps(test)
    def run(**given: Any) -> None:
        failed: list[dict[str, Any]] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, what: failed.append(what))
            await test(**given)

        with asyncio.Runner(loop_factory=HurriedLoop) as runner:
            runner.run(main())
        assert failed == []

    return run


async def after(*delays: float) -> AsyncIterator[float]:
    """Yield each delay once it has passed."""
    for delay in delays:
        await asyncio.sleep(delay)
        yield delay


def timers(loop: asyncio.AbstractEventLoop) -> int:
    # There is no other way to see them.
    return sum(not timer.cancelled() for timer in loop._scheduled)  # type: ignore[attr-defined]


@hurried
async def test_each_piece_may_take_as_long_however_long_all_of_them_take() -> None:
    loop = asyncio.get_running_loop()
    patience, pieces = IdleTimeout(), after(*[9.0] * 10, 11.0)
    for _ in range(10):
        assert await patience.next(pieces, within=10) == 9
        assert timers(loop) == 1, "one timer does for all"
    began = loop.time()
    with pytest.raises(TimeoutError):
        await patience.next(pieces, within=10)
    assert loop.time() - began == pytest.approx(10)
    assert await patience.next(after(5.0), within=10) == 5, "it may be waited again"


@hurried
async def test_a_piece_that_is_no_sign_of_life_does_not_put_the_end_off() -> None:
    loop = asyncio.get_running_loop()
    patience, pieces = IdleTimeout(), after(*[4.0] * 10)
    began = loop.time()
    assert await patience.next(pieces, within=10) == 4
    assert await patience.next(pieces, within=10, alive=False) == 4
    with pytest.raises(TimeoutError):
        await patience.next(pieces, within=10, alive=False)
    assert loop.time() - began == pytest.approx(10)


@hurried
async def test_pieces_that_are_ready_at_once_and_no_sign_of_life_end_as_well() -> None:
    patience, pieces = IdleTimeout(), after(*[0.0] * 10)
    await patience.next(pieces, within=10)
    await asyncio.sleep(10)  # It is due, and nobody waits.
    with pytest.raises(TimeoutError):
        await patience.next(pieces, within=10, alive=False)


@hurried
async def test_the_end_is_no_timeout_and_leaves_no_timer() -> None:
    loop = asyncio.get_running_loop()
    patience, pieces = IdleTimeout(), after(1.0)
    assert await patience.next(pieces, within=10) == 1
    assert await patience.next(pieces, within=10) is None
    assert timers(loop) == 1
    patience.end()
    assert timers(loop) == 0
    patience.end()


@pytest.mark.parametrize(("first", "then", "expected"), [(40, 10, 10), (10, 40, 40)])
@hurried
async def test_how_long_it_may_take_may_change(first: float, then: float, expected: float) -> None:
    loop = asyncio.get_running_loop()
    patience, pieces = IdleTimeout(), after(1.0, NEVER)
    await patience.next(pieces, within=first)
    began = loop.time()
    with pytest.raises(TimeoutError):
        await patience.next(pieces, within=then)
    assert loop.time() - began == pytest.approx(expected)


@hurried
async def test_a_caller_that_does_something_else_meanwhile_is_not_ended() -> None:
    loop = asyncio.get_running_loop()
    patience, pieces = IdleTimeout(), after(1.0, 1.0, NEVER)
    await patience.next(pieces, within=10)
    await asyncio.sleep(100)  # It is due, and nobody waits.
    began = loop.time()
    assert await patience.next(pieces, within=10) == 1
    with pytest.raises(TimeoutError):
        await patience.next(pieces, within=10)
    assert loop.time() - began == pytest.approx(11)


@pytest.mark.parametrize("at", [5, 10])
@hurried
async def test_a_caller_that_others_cancel_is_cancelled(at: float) -> None:
    loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(IdleTimeout().next(after(NEVER), within=10))
    loop.call_at(at, waiting.cancel)  # Before it is made, and so before what is due at the same time.
    with pytest.raises(asyncio.CancelledError):
        await waiting


@hurried
async def test_an_error_of_the_stream_is_raised_and_no_cancellation_is_left() -> None:
    async def stubborn() -> AsyncIterator[int]:
        try:
            await asyncio.sleep(NEVER)
        except asyncio.CancelledError:
            raise ConnectionError from None
        yield 1

    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(ConnectionError):
        await IdleTimeout().next(stubborn(), within=10)
    assert not task.cancelling()
    await asyncio.sleep(1)
