"""Deliveries: mappings that fail or take long, of objects that were evicted or never seen whole."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kopf_selectcache import Key
from kopf_selectcache.cache.formats.views import Views
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.record import EvictedRecord, Record, compact_json
from kopf_selectcache.reactions.engine import Deliveries
from kopf_selectcache.reactions.mapping import ITSELF, mapping_of
from kopf_selectcache.reactions.predicates import all_of
from kopf_selectcache.reactions.queue import WorkQueue
from tests.faults.environment import until
from tests.reactions.test_sources import Failing, by_target, keys_in, queue_of, sleep_briefly


def departed(kept: object = None) -> Change:
    """Return the departure of an object of which only metadata is known."""
    kind = find("pods")
    assert kind is not None
    evicted = EvictedRecord("", "a", "", "1", {}, (), stored=b"", kept=kept)
    return Change(evicted, None, ChangeCause.DELETED, views=Views(Resource(kind, "v1")))


async def test_the_keys_of_an_evicted_object_run_when_it_departs_although_its_mapping_has_failed() -> None:
    queue, mapping = queue_of(), Failing()
    deliveries = deliveries_of(queue, mapping)
    whole = {"metadata": {"name": "a", "resourceVersion": "1"}, "data": {"target": "dHdv"}}
    record = Record("", "a", "one", "1", {}, (), compact_json(whole))
    deliveries.deliver(departed(deliveries.keep(record)), record.key)
    assert len(queue) == 0
    await until(lambda: len(queue) == 1)
    assert keys_in(queue)[0].key == Key("a-dHdv")
    await deliveries.close()


async def test_of_an_object_that_was_never_seen_whole_only_its_metadata_is_mapped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = queue_of()
    for mapping in (ITSELF, by_target):
        deliveries = deliveries_of(queue, mapping)
        deliveries.deliver(departed(), "a")
        await deliveries.close()
    assert [run.key for run in keys_in(queue)] == [Key("a")]
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


async def test_a_mapping_that_runs_ends_with_its_source() -> None:
    ended: list[bool] = []

    async def wait(_: Any) -> list[Key]:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)
        return []

    deliveries = deliveries_of(queue_of(), wait)
    deliveries.deliver(Change.of("sent", None, {"metadata": {"name": "a"}}), "a")
    for _ in range(3):
        await asyncio.sleep(0)
    await deliveries.close()
    assert ended == [True]


async def test_ten_mappings_run_at_the_same_time_and_others_wait_for_them() -> None:
    queue, release = queue_of(), asyncio.Event()
    began: list[str] = []

    async def wait(obj: Any) -> list[Key]:
        began.append(obj["metadata"]["name"])
        await release.wait()
        return [Key(obj["metadata"]["name"])]

    deliveries = deliveries_of(queue, wait)
    for number in range(12):
        name = str(number)
        deliveries.deliver(Change.of("entered", None, {"metadata": {"name": name}}), name)
    await until(lambda: len(began) == 10)
    await sleep_briefly(0.0)
    assert len(began) == 10
    release.set()
    await until(lambda: len(queue) == 12)
    await deliveries.close()


def deliveries_of(queue: WorkQueue, mapping: Any) -> Deliveries:
    return Deliveries(
        queue,
        all_of([]),
        mapping_of(mapping),
        None,
        source="things",
        sleep=sleep_briefly,
        chance=lambda: 0.5,
        logger=logging.getLogger("kopf_selectcache"),
    )


def test_20_a_change_whose_arguments_are_in_another_order_is_refused() -> None:
    made: Any = Change
    web = {"metadata": {"name": "web"}}
    deliveries = deliveries_of(queue_of(), ITSELF)
    with pytest.raises(TypeError, match=r"Make it with Change[.]of"):
        deliveries.deliver(made("updated", web, web), "web")
