"""The storm of Events beside a timer."""

from __future__ import annotations

import asyncio

from bench.embedded import embedded
from bench.event_storm import Part, run, table
from tests.faults.environment import connections_closed


def test_each_event_of_the_storm_is_counted_and_the_timer_is_measured_in_both_parts() -> None:
    async def main() -> list[Part]:
        parts = await run(server, 0.3, writes_per_second=10_000)
        await connections_closed()  # The end may have interrupted one while it was opened.
        return parts

    with embedded() as server:
        quiet, storm = asyncio.run(main())
    assert storm.recorded > 0
    assert storm.written + storm.joined + storm.waiting >= storm.recorded  # Summaries come on top.
    assert all(part.late for part in (quiet, storm))
    lines = table([quiet, storm]).splitlines()
    assert [line.split("|")[1].strip() for line in lines] == ["", "---", "quiet", "storm"]
