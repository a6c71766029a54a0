"""WorkQueues: those of all reconcilers in one operator, for its metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kopf_selectcache.informer.informers import Runtime

from .queue import QueueMetrics, WorkQueue


class WorkQueues:
    """The work queues that run in one operator, by the names of their reconcilers."""

    def __init__(self, _: Runtime) -> None:
        self._queues: Mapping[str, WorkQueue] = {}

    @contextmanager
    def running(self, name: str, queue: WorkQueue) -> Iterator[None]:
        """Show a queue meanwhile."""
        # Replaced, since the metrics are read in another thread.
        self._queues = {**self._queues, name: queue}
        try:
            yield
        finally:
            self._queues = {each: other for each, other in self._queues.items() if other is not queue}

    def metrics(self) -> Mapping[str, QueueMetrics]:
        """Return the metrics of each queue, in any thread."""
        return {name: queue.metrics(is_read_only=True) for name, queue in self._queues.items()}

    def close(self) -> None:
        """End with the operator: each queue ends with its reconciler."""
