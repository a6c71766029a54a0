"""The metrics of the work queues in one operator, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kopf_selectcache.informer.informers import Runtime

from .queue import WorkQueues

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_TEXTS: Mapping[str, str] = {
    "depth": "Keys that are ready.",
    "adds_total": "Keys that were added.",
    "retries_total": "Keys that were added with a delay.",
    "queue_duration_seconds": "How long keys were ready before their calls.",
    "work_duration_seconds": "How long the calls for a key took.",
    "unfinished_work_seconds": "The sum of the times of the calls that run.",
    "longest_running_processor_seconds": "The time of the longest of these.",
}
"""The texts of the metrics, which are fields of `QueueMetrics`."""


def queue_metrics(runtime: Runtime) -> Iterator[Metric]:
    """Yield the metrics as client-go has them, in any thread; none without reconcilers."""
    # prometheus_client is an optional dependency.
    from prometheus_client.core import (  # noqa: PLC0415
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    queues = runtime.extensions.get(WorkQueues).metrics()
    for name, text in _TEXTS.items() if queues else ():
        values = {queue: getattr(metrics, name) for queue, metrics in queues.items()}
        if name.endswith("_duration_seconds"):
            histogram = HistogramMetricFamily(f"workqueue_{name}", text, labels=["name"])
            for queue, seen in values.items():
                histogram.add_metric([queue], buckets=seen.buckets(), sum_value=seen.total)
            yield histogram
            continue
        make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = make(f"workqueue_{name}", text, labels=["name"])
        for queue, value in values.items():
            family.add_metric([queue], value)
        yield family
