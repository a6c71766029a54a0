"""Reconcilers under faults and restarts: in the end, the last state of each object is reconciled, and nothing
runs any more."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.testing import EmbeddedCluster, faults
from kopf_selectcache.testing.faults import Fault, Refuse
from tests.plugin.reconciling import APPS, app, config, operated, serving

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


class Crowd:
    """Objects that change by chance, and the status that each must get."""

    def __init__(self, cluster: EmbeddedCluster, keys: int, chance: Random) -> None:
        self._cluster, self._chance = cluster, chance
        self.names = [f"app-{number}" for number in range(keys)]
        self.sizes = dict.fromkeys(self.names, 0)
        self.others = dict.fromkeys(self.names, 0)
        for name in self.names:
            cluster.create(app(name), config(name, n="0"))

    def happen(self, number: int) -> None:
        name = self._chance.choice(self.names)
        draw = self._chance.random()
        if draw < 0.5:
            self.sizes[name] = number
            self._cluster.patch(app(name), {"spec": {"size": number}})
        elif draw < 0.95:
            self.others[name] = number
            self._cluster.patch(config(name), {"data": {"n": str(number)}})
        else:  # Another object of the same name.
            self._cluster.delete(app(name))
            self._cluster.create({**app(name), "spec": {"size": self.sizes[name]}})

    def unreconciled(self) -> list[str]:
        return [
            name
            for name in self.names
            if self._cluster.get(app(name)).get("status")
            != {"count": self.sizes[name], "other": self.others[name]}
        ]


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
    calls: Counter[str] = Counter()
    running: Counter[str] = Counter()
    ends: Counter[str] = Counter()

    @selectcache.reconcile(
        APPS, watches=["configmaps"], registry=registry, deleted=True, backoff=0.001, limit=20
    )
    async def reconcile(
        name: str, uid: str, spec: Any, cache: selectcache.Cache, patch: Any, deleted: bool, **_: Any
    ) -> None:
        calls[name] += 1
        running[name] += 1
        assert running[name] == 1, "one call at a time"
        try:
            if deleted:
                ends[uid] += 1
                return
            await asyncio.sleep(0)
            if mistakes.random() < 0.02:  # A handler that fails now and then.
                raise RuntimeError("by chance")
            patch.status["count"] = spec.get("size", 0)
            (found,) = cache.held("configmaps", namespace="shop", names=[name])
            patch.status["other"] = int(found["data"]["n"])
        finally:
            running[name] -= 1

    async def main() -> None:
        async with serving() as cluster:
            crowd, done = Crowd(cluster, keys, chance), 0
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
                running.clear()
            cluster.faults.clear()
            async with operated(registry, cluster):
                while crowd.unreconciled():  # noqa: ASYNC110  # There is no event for it.
                    await asyncio.sleep(0.1)
                for _ in range(200):
                    await asyncio.sleep(0)
                before, written = calls.total(), len(cluster.requests.where(verb="patch"))
                for _ in range(2000):
                    await asyncio.sleep(0)
                assert (calls.total(), len(cluster.requests.where(verb="patch"))) == (before, written)
            assert all(count == 1 for count in ends.values())
            assert not crowd.unreconciled()

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(main())
