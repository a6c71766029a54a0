"""The metrics of all recorders in one operator, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kopf_selectcache.informer.informers import Runtime

from .recording import recordings_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PREFIX = "kopf_selectcache_"


def event_metrics(runtime: Runtime) -> Iterator[Metric]:
    """Yield the counts of Events by the name of their recorder."""
    # prometheus_client is an optional dependency.
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

    emitted = CounterMetricFamily(
        PREFIX + "emitted_events", "Events that were recorded, and summaries.", labels=["component"]
    )
    recorded = CounterMetricFamily(
        PREFIX + "recorded_events", "The outcomes of these Events.", labels=["component", "outcome"]
    )
    waiting = GaugeMetricFamily(
        PREFIX + "waiting_events", "Events that wait to be written.", labels=["component"]
    )
    totals: dict[str, Counter[str]] = {}
    for recording in recordings_of(runtime):  # Several may have one name.
        stats, total = recording.stats(), totals.setdefault(recording.component, Counter())
        total.update({**stats.outcomes, "emitted": stats.emitted, "waiting": stats.waiting})
    for component, total in totals.items():
        emitted.add_metric([component], total.pop("emitted"))
        waiting.add_metric([component], total.pop("waiting"))
        for outcome, count in total.items():
            recorded.add_metric([component, outcome], count)
    yield from (emitted, recorded, waiting)
