"""Reconcilers under faults and restarts: in the end, the last state of each object is reconciled, and nothing
runs any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

import kopf
import pytest

from kopf_selectcache.testing import faults
from kopf_selectcache.testing.faults import Fault, Refuse
from tests.plugin.reconciling import app, operated, serving

from .crowds import Calls, Crowd
from .hurried import HurriedLoop

FAULTS: tuple[Callable[[Random], tuple[Fault, str]], ...] = (
    lambda chance: (Refuse(chance.choice((429, 500, 503)), retry_after=0), chance.choice(("list", "watch"))),
    lambda chance: (Refuse(chance.choice((409, 500, 503)), retry_after=0), "patch"),
    lambda _: (faults.BadGateway(), ""),
    lambda _: (faults.Gone(), "watch"),
    lambda chance: (faults.ErrorEvent(Refuse(410), after_events=chance.randint(0, 4)), "watch"),
    lambda chance: (faults.Disconnect(chance.randint(0, 4)), "watch"),
    lambda _: (faults.Disconnect(after_bytes=0), "patch"),
    lambda chance: (faults.Disconnect(after_bytes=chance.choice((1, 40, 700))), "patch"),
    lambda chance: (faults.Reset(after_bytes=chance.choice((0, 1, 40, 700))), ""),
    lambda chance: (faults.EndStream(chance.randint(0, 4), mid_line=chance.random() < 0.5), "watch"),
    lambda _: (faults.DuplicateEvents(), "watch"),
    lambda chance: (faults.ReplayEvents(chance.randint(1, 5)), "watch"),
)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("seed", "events", "keys"), [(1, 300, 12), pytest.param(2, 100_000, 1000, marks=pytest.mark.soak)]
)
def test_the_last_state_of_each_object_is_reconciled(
    seed: int, events: int, keys: int, caplog: pytest.LogCaptureFixture
) -> None:
    for logger in ("kopf", "kopf_selectcache"):  # Captured records of 100,000 events take gigabytes.
        caplog.set_level(logging.CRITICAL, logger)
    chance, mistakes, registry = Random(seed), Random(seed), kopf.OperatorRegistry()
    calls = Calls()
    calls.register(registry, mistakes)

    async def main() -> None:
        async with serving() as cluster:
            crowd, done = Crowd(cluster, [f"app-{number}" for number in range(keys)], chance), 0

            def unreconciled() -> list[str]:
                return crowd.unreconciled(
                    {name: cluster.get(app(name)).get("status") for name in crowd.names}
                )

            while done < events:
                async with operated(registry, cluster):
                    until = min(events, done + chance.randint(events // 8, events // 4))
                    while done < until:
                        if chance.random() < 0.1:
                            fault, verb = chance.choice(FAULTS)(chance)
                            resource = chance.choice(("webapps", "webapps", "configmaps"))
                            cluster.faults.add(
                                fault, verb=verb, resource=resource, times=chance.randint(1, 3)
                            )
                        if chance.random() < 0.02:
                            cluster.cut("watch", chance.choice(("webapps", "configmaps")))
                        done += 1
                        crowd.happen(done)
                        for _ in range(chance.randint(0, 20)):
                            await asyncio.sleep(0)
                calls.restart()
            cluster.faults.clear()
            async with operated(registry, cluster):
                while unreconciled():  # noqa: ASYNC110  # There is no event for it.
                    await asyncio.sleep(0.1)
                for _ in range(200):
                    await asyncio.sleep(0)
                before, written = calls.by_name.total(), len(cluster.requests.where(verb="patch"))
                for _ in range(2000):
                    await asyncio.sleep(0)
                assert (calls.by_name.total(), len(cluster.requests.where(verb="patch"))) == (before, written)
            assert all(count == 1 for count in calls.ends.values())
            assert not unreconciled()

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(main())
