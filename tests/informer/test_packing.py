"""When objects are packed: those of lists before they are stored, those of events once they stand still."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable, Sequence
from weakref import ref

import pytest

from kopf_selectcache.core.store.packing import (
    SAMPLE_OBJECTS,
    SiblingPacking,
    Tally,
    Template,
    learned,
    weight,
)
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.informer import background
from kopf_selectcache.informer.background import STILL_SECONDS, DictionaryTraining
from kopf_selectcache.testing.sample_objects import Population

DATA = [json.dumps(each).encode() for each in Population(seed=3, namespaces=["shop"]).pods(SAMPLE_OBJECTS)]
SMALL = sorted(DATA, key=len)[:20]


def record(packing: SiblingPacking, number: int, *, version: int = 1, owner: str = "") -> Record:
    data = SMALL[number].replace(b'"Running"', b'"Running", "message": "%d"' % version)
    owners = (owner,) if owner else ()
    return Record("shop", f"p{number}", f"u{number}", str(version), {}, owners, data, b"", packing)


def is_packed(record: Record) -> bool:
    return record.stored != record.data


class Packing(SiblingPacking):
    """A compression that counts how often what only packing needs is freed."""

    freed = 0

    def free_compressors(self) -> None:
        self.freed += 1
        super().free_compressors()


class Stage:
    """A stream whose packing is followed, with a clock that is moved by hand."""

    def __init__(self, tally: Tally | None = None) -> None:
        self.packing = Packing()
        self.packing.begin()
        self.packing.adopt(learned(DATA))
        self.packing.fits = True
        self.store = Store(tally=tally)
        self.storing = DictionaryTraining(
            self.packing, view=self.store, all_kept=self.store.writing, tally=tally
        )
        self.asleep: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self.asleep.append((seconds, future))
        await future

    async def turns(self) -> None:
        """Let the other task run until it waits."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def wake(self) -> None:
        await self.turns()
        ((seconds, future),) = self.asleep
        assert seconds == STILL_SECONDS
        self.asleep.clear()
        future.set_result(None)
        await self.turns()

    def change(self, number: int, *, version: int = 1) -> Record:
        found = record(self.packing, number, version=version)
        self.storing.changed(found, is_initial=False)
        self.store.put(found)
        return found


def play(scene: Callable[[Stage], Awaitable[None]], stage: Stage | None = None) -> None:
    async def main() -> None:
        played = stage or Stage()
        task = asyncio.create_task(played.storing.run(played.sleep))
        try:
            await scene(played)
        finally:
            task.cancel()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_an_object_that_has_changed_is_packed_once_it_stands_still() -> None:
    async def scene(stage: Stage) -> None:
        first = stage.change(1)
        await stage.turns()
        assert not is_packed(first)
        second = stage.change(2)
        await stage.wake()
        assert (is_packed(first), is_packed(second)) == (True, False)
        await stage.wake()
        assert is_packed(second)
        assert stage.packing.moving == 0
        await stage.turns()
        assert not stage.asleep, "nothing moves, so nothing is awaited"

    play(scene)


def test_an_object_that_changes_again_and_again_is_not_packed() -> None:
    async def scene(stage: Stage) -> None:
        moving = stage.change(1)
        for version in range(2, 6):
            await stage.turns()
            moving = stage.change(1, version=version)
            await stage.wake()
            assert not is_packed(moving)
        await stage.wake()
        assert is_packed(moving)
        assert stage.packing.moving == 0

    play(scene)


def test_a_replayed_event_does_not_keep_the_newer_object_from_being_packed() -> None:
    async def scene(stage: Stage) -> None:
        newer = stage.change(1, version=2)
        await stage.turns()
        for version in (1, 2):
            stage.change(1, version=version)
        assert stage.packing.moving == len(newer.stored)
        assert stage.store.peek("shop", "p1") is newer
        await stage.wake()
        assert is_packed(newer)
        assert stage.packing.moving == 0
        stage.change(1, version=1)
        assert stage.packing.moving == 0

    play(scene)


def test_the_objects_that_have_stood_still_the_longest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MOST_MOVING_BYTES", 3 * len(SMALL[-1]))

    async def scene(stage: Stage) -> None:
        await stage.storing.taken()
        found = [stage.change(number) for number in range(20)]
        await stage.storing.taken()
        assert is_packed(found[0])
        assert not is_packed(found[-1])
        assert 0 < stage.packing.moving <= background.MOST_MOVING_BYTES
        assert stage.packing.moving == sum(len(each.stored) for each in found if not is_packed(each))

    play(scene)


def test_with_a_limit_of_bytes_objects_are_packed_before_they_are_stored() -> None:
    tally = Tally()

    async def scene(stage: Stage) -> None:
        for number in range(20):
            found = record(stage.packing, number, owner="one")
            stage.storing.changed(found, is_initial=False)
            assert is_packed(found)
            stage.store.put(found)
        held = stage.store.records()[0]
        (template,) = {each.packing for each in held if isinstance(each.packing, Template)}
        assert tally.bytes == sum(map(weight, held)) + template.weight

    play(scene, Stage(tally))


@pytest.mark.parametrize("tally", [None, Tally()])
def test_compressors_are_freed_after_the_events_that_need_them(tally: Tally | None) -> None:
    async def scene(stage: Stage) -> None:
        stage.change(1)
        assert stage.packing.freed == 0
        await stage.wake()
        if stage.asleep:  # What has changed stands still only now.
            await stage.wake()
        assert stage.packing.freed > 0
        await stage.turns()
        assert not stage.asleep, "nothing moves, so nothing is awaited"

    play(scene, Stage(tally))


def test_objects_of_an_initial_state_are_packed_as_they_come() -> None:
    async def scene(stage: Stage) -> None:
        found = record(stage.packing, 1)
        stage.storing.changed(found, is_initial=True)
        assert is_packed(found)
        assert stage.packing.moving == 0

    play(scene)


def test_packing_that_ends_references_no_object() -> None:
    async def scene(stage: Stage) -> None:
        stage.change(1)
        stage.storing.end()
        assert stage.packing.moving == 0
        stage.change(2)
        assert stage.packing.moving == 0
        await stage.storing.taken()

    play(scene)


def test_packing_that_ends_leaves_the_compression_to_the_garbage_collector() -> None:
    stage = Stage()
    stage.packing.pack_record(record(stage.packing, 0, owner="alone"))
    packing = ref(stage.packing)
    stage.storing.end()
    del stage
    gc.collect()
    assert packing() is None


def listed(stage: Stage, numbers: Sequence[int], *, version: int = 1) -> list[Record]:
    return [record(stage.packing, number, version=version, owner=f"o{number // 4}") for number in numbers]


def test_a_relist_stores_unchanged_objects_once() -> None:
    async def scene(stage: Stage) -> None:
        first = listed(stage, range(20))
        await stage.storing.taken(first)
        assert all(map(is_packed, first))
        for each in first:
            stage.store.put(each)
        again = [*listed(stage, range(19)), *listed(stage, [19], version=2)]
        await stage.storing.taken(again)
        assert [each.stored is before.stored for each, before in zip(again, first, strict=True)] == [
            True
        ] * 19 + [False]
        stage.store.begin()
        for each in again:
            stage.store.put(each)
        changes = stage.store.commit("9")
        assert [(change.before, change.after) for change in changes] == [(first[19], again[19])]
        assert b'"message": "2"' in again[19].data

    play(scene)


def test_7_an_object_of_another_uid_is_not_taken_for_the_stored_one() -> None:
    async def scene(stage: Stage) -> None:
        (first,) = listed(stage, [1])
        await stage.storing.taken([first])
        stage.store.put(first)
        (other,) = listed(stage, [2])
        other.name = first.name
        await stage.storing.taken([other])
        assert other.data != first.data

    play(scene)


def test_7_an_object_of_another_version_is_not_taken_for_the_stored_one() -> None:
    async def scene(stage: Stage) -> None:
        (first,) = listed(stage, [1])
        await stage.storing.taken([first])
        stage.store.put(first)
        (other,) = listed(stage, [1], version=2)
        await stage.storing.taken([other])
        assert b'"message": "2"' in other.data

    play(scene)
