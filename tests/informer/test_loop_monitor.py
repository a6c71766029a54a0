"""A loop that stands still is noticed and told; after a gap in which connections may have died, watches are
opened anew."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import pytest

from kopf_selectcache import Selector
from kopf_selectcache.client.reading import IdleTimeout
from kopf_selectcache.informer import informers
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import BEAT_SECONDS, NOTICED_SECONDS, LoopMonitor, wall
from tests.faults.environment import operating, until
from tests.faults.server import Server, bookmark, event, held, listed, pod, streamed
from tests.secrets import caching

LISTED = listed("100", pod("a", "90"))


class Beats:
    """A clock of which each sleep takes as long as told."""

    def __init__(self, *lasting: float) -> None:
        self.now = 0.0
        self.lasting = list(lasting)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        assert seconds == BEAT_SECONDS
        if not self.lasting:
            await asyncio.Event().wait()
        self.now += self.lasting.pop(0)


async def test_only_a_gap_that_people_would_notice_is_logged_and_the_longest_is_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gaps: list[float] = []
    beats = Beats(
        BEAT_SECONDS,
        BEAT_SECONDS + NOTICED_SECONDS - 0.1,
        BEAT_SECONDS + 12.0,
        BEAT_SECONDS,
        BEAT_SECONDS + NOTICED_SECONDS,
    )
    heart = LoopMonitor(
        gaps.append, logger=logging.getLogger("kopf_selectcache"), clock=beats.clock, sleep=beats.sleep
    )
    task = asyncio.create_task(heart.run())
    await until(lambda: len(gaps) == 2)
    task.cancel()
    assert gaps == [pytest.approx(12.0), pytest.approx(NOTICED_SECONDS)]
    assert heart.longest == pytest.approx(12.0)
    told = [message for message in caplog.messages if "stood still for" in message]
    assert len(told) == 2
    assert told[0].startswith("The operator's event loop stood still for 12 s, and no cache was updated.")


@pytest.mark.skipif(
    not hasattr(time, "CLOCK_BOOTTIME"), reason="no clock of this system counts the time in which it sleeps"
)
def test_its_clock_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda clock: {time.CLOCK_BOOTTIME: 7200.0}[clock])
    assert wall() == 7200.0


async def test_each_operator_has_its_loop_monitor_and_learns_of_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Informer] = []
    monkeypatch.setattr(informers, "BEAT_SECONDS", -100.0)  # Each comes late by so much.
    # It must be a method.
    monkeypatch.setattr(Informer, "resume", lambda informer: told.append(informer))  # noqa: PLW0108
    async with Server(lists=[LISTED]) as server, operating(server) as environment:
        await until(lambda: environment.informer in told)
        assert environment.runtime.pulse.longest >= 100.0


@pytest.mark.parametrize(("gap", "watches"), [(70.0, 2), (69.0, 1)])
async def test_after_a_gap_as_long_as_no_live_connection_is_silent_the_watch_is_resumed(
    gap: float, watches: int
) -> None:
    still = asyncio.Event()
    streams = [
        streamed(bookmark("101"), still, event("ADDED", pod("b", "110"))),
        streamed(event("ADDED", pod("b", "110"))),
    ]
    async with (
        Server(lists=[LISTED], watches=streams) as server,
        operating(server, idle_timeout=70.0) as environment,
    ):
        await until(lambda: environment.informer.state.version == "101")
        beats = Beats(BEAT_SECONDS + gap)
        heart = LoopMonitor(
            environment.runtime.after_gap,
            logger=logging.getLogger("kopf_selectcache"),
            clock=beats.clock,
            sleep=beats.sleep,
        )
        task = asyncio.create_task(heart.run())
        await until(lambda: heart.longest)
        if watches == 1:
            still.set()
        await environment.holds("a@90", "b@110")
        assert [asked["resourceVersion"] for asked in server.pods.watched] == ["100", "101"][:watches], (
            "it goes on where it was"
        )
        task.cancel()
        assert len(server.pods.listed) == 1


async def test_after_a_gap_all_watches_of_a_cache_are_opened_anew_and_after_the_next_one_again() -> None:
    async with caching(
        [Selector("app", namespaces=["shop"]), Selector("tier", namespaces=["infra"])]
    ) as environment:
        await environment.cache.wait_synced()
        informer = environment.informer
        for watches in (2, 4, 6):
            # The lambda is called before the loop continues.
            await until(lambda: len(environment.watches()) == watches and informer.state.is_synced)  # noqa: B023
            environment.runtime.after_gap(100.0)
        await until(lambda: len(environment.watches()) == 8)
        assert environment.informer.counts.lists == 2


async def test_a_gap_that_comes_while_the_watch_is_given_up_for_another_changes_nothing() -> None:
    async with caching("app") as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced)
        for _ in range(20):
            environment.runtime.after_gap(100.0)
            await asyncio.sleep(0)
        await until(lambda: len(environment.watches()) > 1 and environment.informer.state.is_synced)
        assert environment.informer.counts.lists == 1


async def test_a_gap_during_the_first_list_interrupts_nothing_and_the_next_one_does() -> None:
    gate = asyncio.Event()
    async with (
        Server(lists=[held(gate, LISTED)], watches=[streamed(bookmark("101"))]) as server,
        operating(server, idle_timeout=70.0) as environment,
    ):
        await environment.listed(1)
        environment.runtime.after_gap(100.0)
        gate.set()
        await until(lambda: environment.informer.state.version == "101")
        environment.runtime.after_gap(100.0)
        await environment.watched(2)
        assert len(server.pods.listed) == 1


async def test_a_server_that_has_never_sent_a_bookmark_may_be_silent_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def next_chunk(
        _: IdleTimeout, chunks: AsyncIterator[bytes], *, within: float, alive: bool
    ) -> bytes | None:
        assert alive
        waits.append(within)
        return await anext(chunks, None)

    monkeypatch.setattr(IdleTimeout, "next", next_chunk)
    first, second, third = asyncio.Event(), asyncio.Event(), asyncio.Event()
    stream = streamed(
        first,
        event("ADDED", pod("b", "110")),
        second,
        bookmark("111"),
        third,
        event("ADDED", pod("c", "112")),
    )
    async with (
        Server(lists=[LISTED], watches=[stream]) as server,
        operating(server, idle_timeout=70.0) as environment,
    ):
        await environment.synced()
        first.set()
        await environment.holds("a@90", "b@110")
        assert set(waits) == {280.0}, "nothing has said that bookmarks come"
        second.set()
        await until(lambda: environment.informer.state.version == "111")
        waits.clear()
        third.set()
        await environment.holds("a@90", "b@110", "c@112")
        assert set(waits) == {70.0}


async def test_a_mistake_in_the_callback_for_a_gap_does_not_end_the_loop_monitor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def mistaken(_: float) -> None:
        raise KeyError("nobody has thought of this")

    beats = Beats(BEAT_SECONDS + 12.0, BEAT_SECONDS + 13.0)
    heart = LoopMonitor(
        mistaken, logger=logging.getLogger("kopf_selectcache"), clock=beats.clock, sleep=beats.sleep
    )
    task = asyncio.create_task(heart.run())
    await until(lambda: heart.longest > 12.5)
    assert not task.done()
    task.cancel()
    assert any("could not be refreshed after the pause" in each for each in caplog.messages)
