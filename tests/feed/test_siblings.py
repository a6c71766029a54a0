"""A fed handler that reads the siblings of its object right after a cut reads the right ones, without waiting
for them: the cache has each event before the handler is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.testing import EmbeddedCluster
from tests.conftest import client_of

from .recording import Recorder, Wire
from .running import ONE, PLURAL, Kind, Operated, Options, World

ROUNDS = 4
"""Each has two cuts."""

Merged = dict[str, int]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(garbage_collection=False).in_thread() as running:
        yield running


def test_9_siblings_are_right_after_a_cut_without_a_wait(cluster: EmbeddedCluster, wire: Wire) -> None:
    merges: list[tuple[str, int, Merged]] = []

    def merging(registry: kopf.OperatorRegistry, kind: Kind, recorder: Recorder) -> None:
        @kopf.on.event(*kind, id="event", registry=registry)
        @selectcache.with_cache(fresh=False)
        async def event(cache: selectcache.Cache, type: str | None, **kwargs: Any) -> None:  # Kopf's name.  # noqa: A002
            body = kwargs["body"]
            found = {each["metadata"]["name"]: version_of(each) for each in cache.list_cached(PLURAL)}
            merges.append((body["metadata"]["name"], version_of(body), found))
            recorder.called("event", type, kwargs)

    world = World(client_of(cluster))
    run = Operated(world, ONE, wire, Options(register=merging))
    for number in range(ROUNDS):
        world.create(f"a/old-{number}", size=0)
    with run.started():
        run.called(f"a/old-{ROUNDS - 1}", "event")
        for number in range(ROUNDS):
            new = [f"a/new-{number}-1", f"a/new-{number}-2"]
            cluster.cut("watch")
            for each in new:
                world.create(each, size=1)
            for each in new:
                run.called(each, "event")
            assert merges[-1][2] == listed(cluster, world)
            cluster.cut("watch")
            world.delete(f"a/old-{number}")
            run.called(f"a/old-{number}", "event", 2)
            assert merges[-1][2] == listed(cluster, world)
    assert not run.kopfs_own_watches
    late = [(name, version) for name, version, found in merges if found.get(name, version) < version]
    assert not late, "the cache is older than the object of the handler"


def version_of(obj: Any) -> int:
    return int(obj["metadata"]["resourceVersion"])


def listed(cluster: EmbeddedCluster, world: World) -> Merged:
    items = client_of(cluster).request("GET", f"/apis/{world.group}/v1/{PLURAL}")["items"]
    return {each["metadata"]["name"]: version_of(each) for each in items}
