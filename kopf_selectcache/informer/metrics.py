"""Metrics of the caches of an operator: counters, and a collector for Prometheus.

Labels are group, version and resource, and `cache` if there are several sets of caches; some metrics add a
verb, an outcome, a reason or a state. Each has few values: no label grows with the cluster or contains text
of an object.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from kopf_selectcache.core.selection.kinds import Resource
    from kopf_selectcache.core.store.store import Store

from .health import Health
from .memory import bytes_of


@dataclass(slots=True)
class Counts:
    """Counters of one informer since the operator started."""

    lists: int = 0
    """Requested pages."""
    watches: int = 0
    """Requested watches."""
    events: int = 0
    """Received events without bookmarks."""
    audits: int = 0
    """Successful audits, one for each stream."""
    drift: int = 0
    """Objects that audits found to differ from the server."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failed requests and broken streams by `ReasonLabel`. `audit` counts failed audits."""
    relists: Counter[str] = field(default_factory=Counter)
    """Complete lists after the first, by `ReasonLabel`."""
    reads_by_thread: dict[tuple[int, str, str], int] = field(
        default_factory=lambda: defaultdict(int), repr=False, compare=False
    )
    """Reads by thread (`get_ident()`), verb and outcome. Threads share no counter, because an increment is
    not atomic.
    """

    @property
    def reads(self) -> Counter[tuple[str, str]]:
        """Reads by verb, such as `get`, and outcome: `served`, or the name of the error."""
        counted: Counter[tuple[str, str]] = Counter()
        for (_, verb, outcome), count in self.reads_by_thread.copy().items():
            counted[verb, outcome] += count
        return counted


class ObservedState(Protocol):
    """The part of the state of an informer that the collector reads."""

    @property
    def resource(self) -> Resource | None: ...
    @property
    def store(self) -> Store: ...
    @property
    def health(self) -> Health: ...
    @property
    def is_synced(self) -> bool: ...
    def age(self) -> float | None: ...


class Observed(Protocol):
    """The part of an informer that the collector reads."""

    key: str
    counts: Counts

    @property
    def state(self) -> ObservedState: ...


class Collector:
    """The collector for Prometheus. Register it once. Needs the extra `metrics`."""

    def __init__(
        self,
        informers: Callable[[], Iterable[Observed]],
        *,
        others: Callable[[], Mapping[str, Iterable[Observed]]] = dict,
        further: Callable[[], Iterable[Metric]] = tuple,
        longest_stall: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._informers = informers
        self._others = others  # Returns the informers of other sets of caches, by name.
        self._further = further  # Returns the metrics of higher layers.
        self._longest_stall = longest_stall

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the metrics depend on the declarations."""
        return ()

    def collect(self) -> Iterator[Metric]:
        # prometheus_client is an optional dependency.
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        others = self._others()
        # Prometheus takes an empty label for an absent one: the operator's own series stay the same.
        names = [*(["cache"] if others else []), "group", "version", "resource"]
        prefix = "kopf_selectcache_"
        gauges = {
            name: GaugeMetricFamily(prefix + name, text, labels=names)
            for name, text in {
                "objects": "Objects in the cache.",
                "bytes": "Bytes of the objects in the cache, as they are stored.",
                "unreadable": "Objects in the cache that can't be decoded.",
                "synced": "1 if the cache is complete and follows the server, else 0.",
                "staleness_seconds": "Seconds since the server last confirmed the contents.",
            }.items()
        }
        counters = {
            name: CounterMetricFamily(prefix + name, text, labels=names)
            for name, text in {
                "lists": "Requested pages.",
                "watches": "Requested watches.",
                "events": "Received events.",
                "audits": "Comparisons of the whole cache with the server.",
                "drift": "Objects that differed from the server in an audit.",
            }.items()
        }
        failures = CounterMetricFamily(
            prefix + "failures", "Failed requests and broken streams.", labels=[*names, "reason"]
        )
        relists = CounterMetricFamily(
            prefix + "relists", "Complete lists after the first.", labels=[*names, "reason"]
        )
        reads = CounterMetricFamily(
            prefix + "reads", "Reads of the cache.", labels=[*names, "verb", "outcome"]
        )
        health = GaugeMetricFamily(
            prefix + "health",
            "1 for the state of the cache. Until the cluster has resolved the kind, the resource is the"
            " declared key.",
            labels=[*names, "state"],
        )
        sets = {"": self._informers(), **others}
        for name, informer in ((name, each) for name, informers in sets.items() for each in informers):
            state = informer.state
            resource = state.resource
            labels = [name] if others else []
            labels += (
                [resource.kind.group, resource.version, resource.kind.plural]
                if resource is not None
                else ["", "", informer.key]
            )
            health.add_metric([*labels, state.health.value], 1)
            if resource is None:
                continue
            records, _ = state.store.records()
            gauges["objects"].add_metric(labels, len(records))
            gauges["bytes"].add_metric(labels, bytes_of(records))
            gauges["unreadable"].add_metric(labels, len(state.store.unreadable))
            gauges["synced"].add_metric(labels, state.is_synced)
            if (age := state.age()) is not None:
                gauges["staleness_seconds"].add_metric(labels, age)
            for counted, counter in counters.items():
                counter.add_metric(labels, getattr(informer.counts, counted))
            for family, reasons in ((failures, informer.counts.failures), (relists, informer.counts.relists)):
                for reason, count in tuple(reasons.items()):
                    family.add_metric([*labels, reason], count)
            for (verb, outcome), count in informer.counts.reads.items():
                reads.add_metric([*labels, verb, outcome], count)
        yield from (health, *gauges.values(), *counters.values(), failures, relists, reads)
        yield from self._further()
        if (longest := self._longest_stall()) is not None:
            yield GaugeMetricFamily(
                prefix + "longest_stall_seconds",
                "The longest time for which the event loop was blocked.",
                value=longest,
            )
