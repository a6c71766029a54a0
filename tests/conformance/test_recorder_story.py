"""A CronJob with three Events a minute, as `kubectl get events` shows them after two hours: a summary counts
those that are suppressed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import datetime
from itertools import count

from kopf._cogs.structs.credentials import Vault

from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.recorder.correlator import Limits
from kopf_selectcache.recorder.events import EventType, Occurrence, Reference, Reporter
from kopf_selectcache.recorder.recording import Recording
from tests.real.inprocess import credentials

from .places import Place
from .test_features_reconcile import run

REASONS = ("SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete")
MINUTES = 120
START = 1_800_000_000.0


def tell_story(place: Place) -> dict[str, tuple[int, int]]:
    """Return the count of each reason, and the minute in which it was last seen."""

    async def main() -> None:
        minute, ticks = [0], count()
        vault = Vault({"login": credentials(place.api)})
        recording = Recording(
            KopfTransport(vault),
            Limits(),
            source=Reporter("cronjobs", "", "cronjobs", "cronjobs"),
            writes_per_second=None,
            clock=lambda: minute[0] * 60.0,
            # client-go names Events by the nanosecond.
            wall_clock=lambda: START + minute[0] * 60.0 + next(ticks) / 1000,
            # What takes longer is virtual: the wait for a summary.
            sleep=lambda seconds: asyncio.sleep(seconds if seconds <= 5 else 0.01),
            logger=logging.getLogger("kopf_selectcache"),
        )
        about = Reference("batch/v1", "CronJob", place.namespace, "backup", "uid")
        recording.start()
        for minute[0] in range(MINUTES):
            for reason in REASONS:
                recording.record(
                    Occurrence(recording.source, about, EventType.NORMAL, reason, f"{reason} of backup.")
                )
            for _ in range(20):  # The recording sees each minute.
                await asyncio.sleep(0)
            # Nothing else tells that they are written.
            while recording.stats().waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await recording.end()
        stats = recording.stats()
        assert stats.recorded == 3 * MINUTES
        assert stats.emitted == sum(stats.outcomes.values())
        assert stats.rejected == stats.failed == stats.unsent == 0
        await vault.close()

    run(main())
    counts = Counter[str]()
    last: dict[str, int] = {}
    for event in place.api.request("GET", f"/api/v1/namespaces/{place.namespace}/events")["items"]:
        counts[event["reason"]] += event["count"]
        seen = datetime.fromisoformat(event["lastTimestamp"]).timestamp()
        last[event["reason"]] = max(last.get(event["reason"], 0), int(seen - START) // 60)
    return {reason: (count, last[reason]) for reason, count in counts.items()}


def test_a_summary_counts_suppressed_events(place: Place) -> None:
    listed = tell_story(place)
    assert listed == {
        "SuccessfulCreate": (9, 8),
        "SawCompletedJob": (9, 8),
        "SuccessfulDelete": (8, 7),
        "EventsSuppressed": (334, 119),
    }
    assert sum(seen for seen, _ in listed.values()) == 3 * MINUTES
