"""Finalizers of reconcilers under faults and restarts: each object that has had one is cleaned up, and none
stays."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from random import Random
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.api.status import Problem
from tests.plugin.reconciling import APPS, app, operated, serving

from .hurried import HurriedLoop
from .test_reconcile import FAULTS

DONE = "example.com/done"
SHARES = ("first", "second")
"""Two reconcilers that share the finalizer."""


class Objects:
    """Objects that come, change and go, and the calls for each."""

    def __init__(self, cluster: EmbeddedCluster, chance: Random) -> None:
        self._cluster, self._chance = cluster, chance
        self._created: list[dict[str, Any]] = []
        self.finalized: set[str] = set()
        """The uids of those that were seen with the finalizer."""
        self.cleaned: set[tuple[str, str]] = set()
        """The reconcilers whose cleanup has succeeded, with the uid of the object."""

    def happen(self, number: int) -> None:
        """Create an object, or change or delete one."""
        living = self.present()
        act = self._chance.choice(("create", "patch", "patch", "delete"))
        if act == "create" or not living:
            self._created += self._cluster.create(app(f"app-{number}"))
        elif act == "patch":
            self._cluster.patch(self._chance.choice(living), {"spec": {"size": number}})
        else:
            self._cluster.delete(self._chance.choice(living))

    def present(self) -> list[dict[str, Any]]:
        """Return the objects that there are."""
        found = []
        for each in self._created:
            with suppress(Problem):
                found.append(self._cluster.get(each))
        self._created = found
        self.finalized |= {
            each["metadata"]["uid"] for each in found if DONE in each["metadata"].get("finalizers", [])
        }
        return found

    def delete_all(self) -> None:
        for each in self.present():
            self._cluster.delete(each)

    def register(self, registry: kopf.OperatorRegistry, share: str) -> None:
        @selectcache.reconcile(APPS, registry=registry, id=share, finalizer=DONE)
        async def follow(uid: str, deleting: bool, meta: Any, patch: kopf.Patch, **_: Any) -> object:
            assert DONE in meta.get("finalizers", []), "it is on before the first call"
            self.finalized.add(uid)
            if self._chance.random() < 0.2:
                raise kopf.TemporaryError("by the test", delay=0.1)
            if deleting and self._chance.random() < 0.2:
                return 0.1
            patch.status["count"] = self._chance.randint(0, 2)
            if deleting:
                self.cleaned.add((share, uid))
            return None


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("seed", "events"), [(1, 100), pytest.param(3, 5_000, marks=pytest.mark.soak)])
def test_18_each_object_that_has_had_the_finalizer_is_cleaned_up_and_disappears(
    seed: int, events: int, caplog: pytest.LogCaptureFixture
) -> None:
    for logger in ("kopf", "kopf_selectcache"):  # Captured records of many events take gigabytes.
        caplog.set_level(logging.CRITICAL, logger)
    chance = Random(seed)

    async def main() -> None:
        async with serving() as cluster:
            objects, registry, done = Objects(cluster, chance), kopf.OperatorRegistry(), 0
            for share in SHARES:
                objects.register(registry, share)
            while done < events:
                async with operated(registry, cluster):
                    until = min(events, done + chance.randint(10, 40))
                    while done < until:
                        if chance.random() < 0.1:
                            fault, verb = chance.choice(FAULTS)(chance)
                            cluster.faults.add(
                                fault, verb=verb, resource="webapps", times=chance.randint(1, 3)
                            )
                        done += 1
                        objects.happen(done)
                        if chance.random() < 0.3:
                            await asyncio.sleep(chance.random())
            cluster.faults.clear()
            objects.delete_all()
            async with operated(registry, cluster):
                while objects.present():  # noqa: ASYNC110  # There is no event for it.
                    await asyncio.sleep(0.1)
        assert objects.finalized
        assert objects.cleaned == {(share, uid) for share in SHARES for uid in objects.finalized}

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(main())
