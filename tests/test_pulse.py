"""A loop that stands still is noticed and told; after a gap in which connections may have died, watches are opened anew."""
from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from kopf_selectcache import listwatch
from kopf_selectcache.pulse import BEAT, NOTICED, Pulse, wall
from tests.test_faults.server import Server, bookmark, event, listed, pod, streamed
from tests.test_faults.world import operating, run, until

LISTED = listed("100", pod("a", "90"))


class Beats:
    """A clock of which each sleep takes as long as told."""

    def __init__(self, *lasting: float) -> None:
        self.now = 0.0
        self.lasting = list(lasting)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        assert seconds == BEAT
        if not self.lasting:
            await asyncio.Event().wait()
        self.now += self.lasting.pop(0)


def test_only_a_gap_that_people_would_notice_is_told_and_the_longest_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        gaps: list[float] = []
        beats = Beats(BEAT, BEAT + NOTICED - 0.1, BEAT + 12.0, BEAT, BEAT + NOTICED)
        pulse = Pulse(gaps.append, logger=logging.getLogger("kopf_selectcache"), clock=beats.clock, sleep=beats.sleep)
        task = asyncio.create_task(pulse.run())
        await until(lambda: len(gaps) == 2)
        task.cancel()
        assert gaps == [pytest.approx(12.0), pytest.approx(NOTICED)]
        assert pulse.longest == pytest.approx(12.0)
    run(main())
    told = [message for message in caplog.messages if "stood still for" in message]
    assert len(told) == 2
    assert told[0].startswith("The operator's event loop stood still for 12 s: a handler has blocked it, or the machine was asleep.")


def test_its_clock_goes_on_while_the_machine_sleeps_and_never_back() -> None:
    times = [wall() for _ in range(100)]
    assert times == sorted(times)


@pytest.mark.parametrize(("gap", "watches"), [(71.0, 2), (69.0, 1)])
def test_after_a_gap_longer_than_a_live_connection_is_silent_the_watch_is_resumed(gap: float, watches: int) -> None:
    async def main() -> None:
        streams = [streamed(bookmark("101")), streamed(event("ADDED", pod("b", "110")))]
        async with Server(lists=[LISTED], watches=streams) as server, operating(server, idle_timeout=70.0) as world:
            await until(lambda: world.feed.version == "101")
            beats = Beats(BEAT + gap)
            pulse = Pulse(world.runtime.after_gap, logger=logging.getLogger("kopf_selectcache"), clock=beats.clock, sleep=beats.sleep)
            task = asyncio.create_task(pulse.run())
            await until(lambda: pulse.longest)
            if watches == 2:
                await world.holds("a@90", "b@110")
                assert server.pods.watched[-1]["resourceVersion"] == "101", "it goes on where it was"
            task.cancel()
            assert len(server.pods.watched) == watches
            assert len(server.pods.listed) == 1
    run(main())


def test_a_server_that_has_never_sent_a_bookmark_may_be_silent_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def next_chunk(chunks: AsyncIterator[bytes], *, within: float) -> bytes | None:
        waits.append(within)
        return await anext(chunks, None)

    async def main() -> None:
        first, second, third = asyncio.Event(), asyncio.Event(), asyncio.Event()
        stream = streamed(first, event("ADDED", pod("b", "110")), second, bookmark("111"), third, event("ADDED", pod("c", "112")))
        async with Server(lists=[LISTED], watches=[stream]) as server, operating(server, idle_timeout=70.0) as world:
            await world.synced()
            first.set()
            await world.holds("a@90", "b@110")
            assert set(waits) == {280.0}, "nothing has said that bookmarks come"
            second.set()
            await until(lambda: world.feed.version == "111")
            waits.clear()
            third.set()
            await world.holds("a@90", "b@110", "c@112")
            assert set(waits) == {70.0}
    monkeypatch.setattr(listwatch, "_next", next_chunk)
    run(main())


def test_a_mistake_of_whoever_is_told_of_a_gap_does_not_end_the_heartbeat(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def mistaken(_: float) -> None:
            raise KeyError("nobody has thought of this")

        beats = Beats(BEAT + 12.0, BEAT + 13.0)
        pulse = Pulse(mistaken, logger=logging.getLogger("kopf_selectcache"), clock=beats.clock, sleep=beats.sleep)
        task = asyncio.create_task(pulse.run())
        await until(lambda: pulse.longest > 12.5)
        assert not task.done()
        task.cancel()
    run(main())
    assert caplog.messages.count("Nothing was done about the gap.") >= 1
