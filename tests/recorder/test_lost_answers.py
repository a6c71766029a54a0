"""Answers to the writes of an Event are lost while the same Event occurs again: whatever is lost, the server
counts each call once."""

from __future__ import annotations

from itertools import product

import pytest

from kopf_selectcache.recorder.correlator import Limits
from tests.rows import each_row

from .event_server import (
    EventServer,
    Request,
    no_answer,
    occurrence,
    passed,
    recording,
    refused,
    run,
    written,
)

FAULTS = ("", "lost", "dropped")
"""The fate of a request: it is answered; it is executed without an answer; it does not arrive, and nobody
knows.
"""
APIS = ("v1", "events.k8s.io/v1")


def unavailable(_: object) -> None:
    raise refused(503, "ServiceUnavailable")


def invalid(_: object) -> None:
    raise refused(422, "Invalid")


class Scheduled(EventServer):
    """Gives its requests their faults in order."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule: list[str] = []
        self.fault = ""
        self.fail, self.lose = self.begin, self.end

    def begin(self, request: Request) -> None:
        self.fault = self.schedule.pop(0) if self.schedule else ""
        if self.fault == "dropped":
            no_answer(request)
        if self.fault == "503":
            unavailable(request)
        if self.fault == "422":
            invalid(request)

    def end(self, request: Request) -> None:
        if self.fault == "lost":
            no_answer(request)

    @property
    def total(self) -> int:
        """The sum of the counts of all Events."""
        return sum(
            event.get("count") or event.get("series", {"count": 1})["count"] for event in self.events.values()
        )


@pytest.mark.parametrize(
    ("api", "similar"), [("v1", 1000), ("events.k8s.io/v1", 2)], ids=["alone", "aggregated"]
)
def test_19_whatever_answers_are_lost_each_call_is_counted_once(api: str, similar: int) -> None:
    """For each fault of the first four requests, with and without an Event of an earlier run, and for more
    calls before the first request, during it, before its repeat, and afterwards.
    """
    limits = Limits(similar=similar)

    async def play(schedule: tuple[str, ...], earlier: int, more: tuple[int, ...]) -> None:
        server, calls = Scheduled(), 0

        def record(number: int) -> None:
            nonlocal calls
            for _ in range(number):
                calls += 1
                events.record(occurrence(message=str(calls) if similar == 2 else "It is deployed."))

        async with recording(server, limits, api=api) as events:
            record(earlier)
        await passed(60)
        server.schedule, server.took = list(schedule), 1.0
        async with recording(server, limits, api=api) as events:
            record(1 + more[0])
            await passed(0.5)
            record(more[1])
            await passed(1)
            record(more[2])
            await written(events)
            record(more[3])
            await written(events)
        assert server.total == calls, (schedule, earlier, more, server.writes)

    async def main() -> None:
        for schedule in product(FAULTS, repeat=4):
            for earlier in (0, 2):
                for more in ((0, 0, 1, 0), (2, 1, 0, 1), (3, 1, 2, 1)):
                    await play(schedule, earlier, more)

    run(main())


@each_row("api", APIS)
@each_row("given_up", [["503"] * 11, ["422"]], ids=["failed", "rejected"])
@each_row("executed", ["lost", "dropped"])
@each_row("is_meanwhile", [False, True])
def test_19_a_creation_that_was_given_up_without_an_answer_is_not_counted_twice(
    api: str, given_up: list[str], executed: str, *, is_meanwhile: bool
) -> None:
    """Its next occurrence comes afterwards, or before the last request is answered."""

    async def main() -> None:
        server = Scheduled()
        server.schedule = [executed, *given_up]
        async with recording(server, api=api) as events:
            begin, recorded = server.fail, False

            def record_at_the_end(request: Request) -> None:
                nonlocal recorded
                if is_meanwhile and not recorded and len(server.schedule) == 1:
                    recorded = True
                    events.record(occurrence())
                begin(request)

            server.fail = record_at_the_end
            events.record(occurrence())
            await written(events)
            if not is_meanwhile:
                events.record(occurrence())
                await written(events)
            assert server.total == 2

    run(main())


def test_19_an_event_that_waits_in_vain_is_not_counted_twice() -> None:
    """After a creation without an answer was given up, the next occurrence is dropped by the bound."""

    async def main() -> None:
        server = Scheduled()
        server.schedule = ["lost", "422"]
        async with recording(server, waiting=1) as events:
            events.record(occurrence())
            await written(events)
            server.took = 1.0
            events.record(occurrence("other"))
            await passed(0.5)
            events.record(occurrence())
            events.record(occurrence("another"))
            await written(events)
            assert events.stats().overflow == 1
            events.record(occurrence())
            await written(events)
            assert server.counts()["web: It is deployed."] == 3

    run(main())


def test_19_an_event_that_expires_before_its_count_is_added_is_created_with_all() -> None:
    def expire(request: Request) -> None:
        if not request.body:
            server.events.clear()

    server = EventServer()

    async def main() -> None:
        async with recording(server) as events:
            events.record(occurrence())
        await passed(60)
        server.lose = expire
        async with recording(server) as events:
            events.record(occurrence())
            await written(events)
            assert server.writes == ["POST", "POST", "read", "PATCH", "PATCH", "POST"]
            assert server.counts() == {"web: It is deployed.": 2}

    run(main())
