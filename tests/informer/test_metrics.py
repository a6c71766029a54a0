"""The metrics that Prometheus sees: every number, under labels that show the kind and nothing else."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier, get_ident

from prometheus_client import CollectorRegistry, generate_latest

import kopf_selectcache as selectcache
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.metrics import Collector, Counts
from tests.kopf_operators import Cluster, declaring, launched, pod


@dataclass
class Watched:
    """The part of an informer that the collector reads."""

    resource: Resource | None
    key: str = "widgets"
    store: Store = field(default_factory=Store)
    counts: Counts = field(default_factory=Counts)
    health: Health = Health.SYNCED
    is_synced: bool = True
    seconds: float | None = 1.5

    @property
    def state(self) -> Watched:
        return self

    def age(self) -> float | None:
        return self.seconds


def shown(*informers: Watched) -> list[str]:
    registry = CollectorRegistry()
    registry.register(Collector(lambda: informers))
    return [
        line
        for line in generate_latest(registry).decode().splitlines()
        if not line.startswith("#") and "_created" not in line
    ]


def test_each_number_is_shown_under_group_version_and_resource() -> None:
    kind = find("jobs")
    assert kind is not None
    informer = Watched(Resource(kind, "v1"))
    informer.state.store.begin()
    informer.state.store.put(
        Record("shop", "canary-name", "uid", "1", {"canary": "label"}, (), b'{"data":"canary"}')
    )
    informer.state.store.put(
        UnreadableRecord("shop", "canary-deep", "uid-2", "1", {}, (), b"", why="it is nested too deeply")
    )
    informer.state.store.commit("1")
    informer.counts.lists, informer.counts.watches, informer.counts.events = 2, 3, 4
    informer.counts.audits, informer.counts.drift = 8, 7
    informer.counts.relists["410"] += 1
    informer.counts.failures["garbled"] += 6
    for _ in range(5):
        informer.counts.reads_by_thread[get_ident(), "get", "OutsideFilter"] += 1
    labels = 'group="batch",resource="jobs",version="v1"'
    text = shown(informer)
    assert sorted(text) == sorted(
        [
            'kopf_selectcache_health{group="batch",resource="jobs",state="synced",version="v1"} 1.0',
            f"kopf_selectcache_objects{{{labels}}} 2.0",
            f"kopf_selectcache_bytes{{{labels}}} 17.0",
            f"kopf_selectcache_unreadable{{{labels}}} 1.0",
            f"kopf_selectcache_synced{{{labels}}} 1.0",
            f"kopf_selectcache_staleness_seconds{{{labels}}} 1.5",
            f"kopf_selectcache_lists_total{{{labels}}} 2.0",
            f"kopf_selectcache_watches_total{{{labels}}} 3.0",
            f"kopf_selectcache_events_total{{{labels}}} 4.0",
            f"kopf_selectcache_audits_total{{{labels}}} 8.0",
            f"kopf_selectcache_drift_total{{{labels}}} 7.0",
            (
                # The text is one line.
                'kopf_selectcache_failures_total{group="batch",reason="garbled",resource="jobs",version="v1"} 6.0'  # noqa: E501
            ),
            'kopf_selectcache_relists_total{group="batch",reason="410",resource="jobs",version="v1"} 1.0',
            (
                # The text is one line.
                'kopf_selectcache_reads_total{group="batch",outcome="OutsideFilter",resource="jobs",verb="get",version="v1"} 5.0'  # noqa: E501
            ),
        ]
    )
    assert "canary" not in "".join(text)


def test_a_kind_that_is_not_known_yet_shows_only_its_health() -> None:
    assert shown(Watched(None, health=Health.MISSING)) == [
        'kopf_selectcache_health{group="",resource="widgets",state="missing",version=""} 1.0'
    ]
    kind = find("pods")
    assert kind is not None
    assert not [
        line
        for line in shown(Watched(Resource(kind, "v1"), is_synced=False, seconds=None))
        if "staleness" in line
    ]


async def test_an_operator_shows_its_caches_once_it_has_logged_in() -> None:
    settings, registry = declaring(pods=""), CollectorRegistry()
    registry.register(selectcache.collector(settings))
    async with launched(settings, Cluster(pod())) as operator:
        assert not re.search("^kopf_selectcache", generate_latest(registry).decode(), re.MULTILINE)
        await operator.gate(None, None)
        assert (
            'kopf_selectcache_objects{group="",resource="pods",version="v1"} 1.0'
            in generate_latest(registry).decode()
        )
        recorder = selectcache.Recorder("webapps", cache=selectcache.cache_of(settings), sink="log")
        recorder.record(pod(), "Normal", "Seen", "It is there.")
        text = 'kopf_selectcache_recorded_events_total{component="webapps",outcome="handed"} 1.0'
        assert text in generate_latest(registry).decode()
        operator.runtime.pulse.longest = 7.5
        assert "\nkopf_selectcache_longest_stall_seconds 7.5\n" in generate_latest(registry).decode()


def test_no_read_is_lost_where_several_threads_count() -> None:
    counts, together = Counts(), Barrier(8, timeout=60)
    interval = sys.getswitchinterval()

    def read() -> None:
        together.wait()
        for n in range(5_000):
            # The first of each is where most can come between.
            counts.reads_by_thread[get_ident(), "get", str(n)] += 1

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(read) for _ in range(8)]:
                done.result()
    finally:
        sys.setswitchinterval(interval)
    assert set(counts.reads.values()) == {8}
