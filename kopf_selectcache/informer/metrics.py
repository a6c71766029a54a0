"""What the caches of an operator have done and hold, as numbers. Counts and shows; decides nothing.

Labels are group, version and resource, and of some what was done and what came of it, a reason, or a state,
of which there are few: nothing that grows with the cluster, and nothing that an object contains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from kopf_selectcache.core.selection.resource import Resource
    from kopf_selectcache.core.store.record import Record
    from kopf_selectcache.core.store.store import Store

    from .health import Health


@dataclass(slots=True)
class Counts:
    """What one cache has done since the operator started."""

    lists: int = 0
    """Requests for a page."""
    watches: int = 0
    """Streams asked for."""
    events: int = 0
    """Events taken in, bookmarks not counted."""
    audits: int = 0
    """Comparisons of all that is held with the server."""
    drift: int = 0
    """Objects that were found to be other than the server has them."""
    failures: Counter[str] = field(default_factory=Counter)
    """Requests that failed and streams that broke off, by what went wrong: a code, `lost`, `garbled`,
    `silent`, or `transform`, which is the operator's own; and `audit`, for comparisons that could not be
    made."""
    relists: Counter[str] = field(default_factory=Counter)
    """Complete lists after the first, by what made them necessary."""
    _reads: dict[tuple[int, str, str], int] = field(default_factory=dict, repr=False, compare=False)
    """Of each thread its own: to add to a number that is shared is two steps, between which another thread
    may come."""

    def read(self, verb: str, outcome: str) -> None:
        """Count a read, in any thread."""
        key = get_ident(), verb, outcome
        try:
            self._reads[key] += 1
        except KeyError:
            self._reads[key] = 1

    @property
    def reads(self) -> Counter[tuple[str, str]]:
        """Reads by verb, such as `get`, and outcome: `served`, or the name of the error."""
        counted: Counter[tuple[str, str]] = Counter()
        for (_, verb, outcome), count in self._reads.copy().items():
            counted[verb, outcome] += count
        return counted


def bytes_of(records: Iterable[Record]) -> int:
    """Return how many bytes objects take as they are stored."""
    return sum(len(record.stored) + len(record.fields) for record in records)


class Observed(Protocol):
    """What is asked of an informer."""

    key: str
    counts: Counts

    @property
    def resource(self) -> Resource | None: ...
    @property
    def store(self) -> Store: ...
    @property
    def health(self) -> Health: ...
    @property
    def synced(self) -> bool: ...
    def age(self) -> float | None: ...


class Collector:
    """Shows the numbers to Prometheus, whenever it asks: register it once. Needs the extra `metrics`."""

    def __init__(
        self,
        informers: Callable[[], Iterable[Observed]],
        *,
        longest_stall: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._informers = informers
        self._longest_stall = longest_stall

    def describe(self) -> Iterable[Metric]:
        """Say nothing beforehand: what there is depends on what is declared."""
        return ()

    def collect(self) -> Iterator[Metric]:
        # An extra.
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        names = ["group", "version", "resource"]
        prefix = "kopf_selectcache_"
        gauges = {
            name: GaugeMetricFamily(prefix + name, text, labels=names)
            for name, text in {
                "objects": "Objects held.",
                "bytes": "Bytes of the objects held, as they are stored.",
                "unreadable": "Objects held that cannot be decoded: of them, nothing is stored.",
                "synced": "1 if the cache holds what the server had and follows, else 0.",
                "staleness_seconds": "Seconds since the server last confirmed what is held.",
            }.items()
        }
        counters = {
            name: CounterMetricFamily(prefix + name, text, labels=names)
            for name, text in {
                "lists": "Pages asked for.",
                "watches": "Watches asked for.",
                "events": "Events taken in.",
                "audits": "Comparisons of all that is held with the server.",
                "drift": "Objects found by audits to be other than the server has them.",
            }.items()
        }
        failures = CounterMetricFamily(
            prefix + "failures", "Requests that failed and streams that broke off.", labels=[*names, "reason"]
        )
        relists = CounterMetricFamily(
            prefix + "relists", "Complete lists after the first.", labels=[*names, "reason"]
        )
        reads = CounterMetricFamily(
            prefix + "reads", "Reads of the cache.", labels=[*names, "verb", "outcome"]
        )
        health = GaugeMetricFamily(
            prefix + "health",
            "1 for the state that the cache is in. Of a kind that the cluster has yet to tell of, the"
            " resource is the declared key.",
            labels=[*names, "state"],
        )
        for informer in self._informers():
            resource = informer.resource
            labels = (
                [resource.kind.group, resource.version, resource.kind.plural]
                if resource is not None
                else ["", "", informer.key]
            )
            health.add_metric([*labels, informer.health.value], 1)
            if resource is None:
                continue
            records, _ = informer.store.records()
            gauges["objects"].add_metric(labels, len(records))
            gauges["bytes"].add_metric(labels, bytes_of(records))
            gauges["unreadable"].add_metric(labels, len(informer.store.unreadable))
            gauges["synced"].add_metric(labels, informer.synced)
            if (age := informer.age()) is not None:
                gauges["staleness_seconds"].add_metric(labels, age)
            for name, counter in counters.items():
                counter.add_metric(labels, getattr(informer.counts, name))
            for family, reasons in ((failures, informer.counts.failures), (relists, informer.counts.relists)):
                for reason, count in tuple(reasons.items()):
                    family.add_metric([*labels, reason], count)
            for (verb, outcome), count in informer.counts.reads.items():
                reads.add_metric([*labels, verb, outcome], count)
        yield from (health, *gauges.values(), *counters.values(), failures, relists, reads)
        if (longest := self._longest_stall()) is not None:
            yield GaugeMetricFamily(
                prefix + "longest_stall_seconds",
                "The longest time for which the event loop has stood still.",
                value=longest,
            )
