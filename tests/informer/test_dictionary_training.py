"""How objects are stored while a cache is kept: packed where it is worthwhile, from the first page on,
whichever way they come."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from kopf_selectcache import Cached, Selector
from kopf_selectcache.core.protocol.decoder import OBJECT_COST_BYTES, SLICE_BYTES
from kopf_selectcache.core.store.packing import FEWEST_OBJECTS, SAMPLE_OBJECTS, SiblingPacking, Storage
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.informer import background
from kopf_selectcache.informer.background import (
    MAPPED_BLOCK_BYTES,
    SPARE_HEAP_BYTES,
    DictionaryTraining,
    limit_spare_heap,
    run_in_thread,
    trim_heap,
)
from kopf_selectcache.testing.sample_objects import Population
from tests.faults.environment import Environment, operating, run, until
from tests.faults.server import Obj, Script, Server, bookmark, error, event, held, listed, streamed
from tests.secrets import caching, named, secret

CALLED: list[int] = []
COUNT = 3 * FEWEST_OBJECTS


def pods(count: int = COUNT, *, version: int = 1) -> list[Obj]:
    made = list(Population(seed=3, namespaces=["shop"]).pods(count))
    for number, pod in enumerate(made):
        pod["metadata"] |= {
            "uid": f"uid-{number}",
            "resourceVersion": str(version + number),
            "labels": {"app": "web"},
        }
    return made


def records(environment: Environment) -> list[Record]:
    return environment.informer.state.store.records()[0]


def packed(environment: Environment) -> list[bool]:
    return [record.stored != record.data for record in records(environment)]


def as_served(environment: Environment) -> list[Obj]:
    return sorted(
        (record.decode() for record in records(environment)),
        key=lambda obj: int(obj["metadata"]["resourceVersion"]),
    )


def served(objects: Sequence[Obj]) -> list[Obj]:
    for obj in objects:
        obj["metadata"].pop("managedFields", None)
    return list(objects)


async def test_each_page_is_packed_as_it_comes() -> None:
    """The peak of a long list is not all of it as JSON."""
    made = pods()
    go = asyncio.Event()
    lists = [
        listed("1000", *made[:FEWEST_OBJECTS], then="t1"),
        held(go, listed("1000", *made[FEWEST_OBJECTS:])),
    ]
    async with Server(lists=lists, watches=[streamed()]) as server, operating(server) as environment:
        await environment.listed(2)
        come = environment.informer.state.union.substores[0].view.writing()
        assert [record.stored != record.data for record in come] == [True] * FEWEST_OBJECTS
        go.set()
        await environment.synced()
        assert all(packed(environment))


async def test_streamed_objects_are_packed_as_they_arrive() -> None:
    made = pods()
    assert COUNT * OBJECT_COST_BYTES > 3 * SLICE_BYTES
    first = b"".join(event("ADDED", pod) for pod in made)
    watches = [streamed(first, bookmark("1000", end=True))]
    async with Server(watches=watches) as server, operating(server, initial="stream") as environment:
        await environment.synced()
        await until(lambda: all(packed(environment)))
        assert as_served(environment) == served(made)


async def test_a_kind_that_grows_is_packed_once_it_is_large_enough() -> None:
    made = pods()
    more = asyncio.Event()
    watches = [streamed(more, b"".join(event("ADDED", pod) for pod in made[10:]))]
    async with (
        Server(lists=[listed("5", *made[:10])], watches=watches) as server,
        operating(server) as environment,
    ):
        await environment.synced()
        assert not any(packed(environment))
        more.set()
        await until(lambda: len(records(environment)) == COUNT)
        assert sum(packed(environment)) > COUNT / 2
        assert as_served(environment) == served(made)


def noise() -> list[Obj]:
    rng = random.Random(5)  # The same each time.
    return [
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "spec": {"key": base64.b64encode(rng.randbytes(2_000)).decode()},
            "metadata": {
                "name": f"s-{number}",
                "namespace": "shop",
                "uid": f"u-{number}",
                "resourceVersion": str(number + 1),
            },
        }
        for number in range(COUNT)
    ]


@pytest.mark.parametrize(
    ("storage", "made", "all_packed"),
    [
        ("auto", "pods", True),
        ("packed", "pods", True),
        ("raw", "pods", False),
        ("auto", "noise", False),
        ("packed", "noise", True),
        ("auto", "few", False),
        ("packed", "few", True),
    ],
)
def test_the_settings_and_the_declaration_say_how_a_kind_is_stored(
    storage: Storage, made: str, all_packed: bool
) -> None:
    objects = {"pods": pods(), "noise": noise(), "few": pods(5)}[made]

    async def main(declared: Cached, **settings: Any) -> None:
        async with (
            Server(lists=[listed("1000", *objects)]) as server,
            operating(server, selectors={"pods": declared}, **settings) as environment,
        ):
            await environment.synced()
            assert set(packed(environment)) == {all_packed}
            assert as_served(environment) == served(objects)

    run(main(Cached(Selector(), storage=storage)))
    if made == "few":
        run(main(Cached(Selector()), storage=storage))
        run(main(Cached(Selector(), storage=storage), storage="raw" if all_packed else "auto"))


# ---- Memory that is free again.


async def test_it_is_given_back_once_all_has_been_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    freed: list[int] = []
    gone = asyncio.Event()
    lists = [listed("1000", *pods(5), then="more"), listed("1000"), listed("1001", *pods(5))]
    watches = [streamed(error(500, "InternalError")), streamed(gone, error(410, "Expired")), streamed()]
    async with Server(lists=lists, watches=watches) as server, operating(server) as environment:
        monkeypatch.setattr(
            "kopf_selectcache.informer.reflector.trim_heap", lambda: asked.append(len(server.pods.listed))
        )
        monkeypatch.setattr(SiblingPacking, "free_compressors", lambda _: freed.append(len(asked)))
        await environment.watched(2)
        assert asked == [2], "not after each page, nor before each watch"
        gone.set()
        await environment.watched(3)
        assert asked == [2, 3]
        assert freed == [0, 1], "compressors are freed before"


@pytest.mark.parametrize(
    ("library", "called"),
    [
        (SimpleNamespace(malloc_trim=CALLED.append), [0]),
        (SimpleNamespace(), []),
        (TypeError("as on Windows"), []),
        (OSError("there is none"), []),
    ],
)
def test_it_is_asked_for_where_the_c_library_keeps_it(
    library: object, called: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_: None) -> object:
        if isinstance(library, Exception):
            raise library
        return library

    CALLED.clear()
    monkeypatch.setattr("kopf_selectcache.informer.background.ctypes.CDLL", load)
    trim_heap()
    assert called == CALLED


# ---- Threads.


async def test_a_cache_waits_for_no_thread_that_a_handler_may_have() -> None:
    """Handlers that wait in asyncio's threads may wait for this very cache."""
    go, taken = Event(), Event()

    def long() -> None:
        taken.set()
        go.wait()

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    job = asyncio.get_running_loop().run_in_executor(None, long)
    try:
        await until(taken.is_set)
        async with (
            Server(lists=[listed("1000", *pods())], watches=[streamed()]) as server,
            operating(server) as environment,
        ):
            await environment.synced()
            assert all(packed(environment))
    finally:
        go.set()
        await job


async def test_a_waiter_that_has_gone_before_the_work_is_done_gets_no_result() -> None:
    go = Event()
    leaving: list[asyncio.Task[bool]] = []
    late = Event()
    waiting = asyncio.create_task(run_in_thread(go.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    go.set()
    assert await run_in_thread(lambda: 5) == 5
    leaving.append(asyncio.create_task(run_in_thread(late.wait)))
    await asyncio.sleep(0)
    late.set()  # The loop is closed by now.


def test_work_that_fails_raises_in_its_waiter() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(run_in_thread(lambda: 1 // 0), 60))


def test_learning_that_was_interrupted_is_done_the_next_time() -> None:
    packing = SiblingPacking()
    held = [
        Record("shop", f"p{number}", "uid", "1", {}, (), json.dumps(pod).encode(), packing=packing)
        for number, pod in enumerate(pods())
    ]
    store = Store()
    for record in held:
        store.put(record)
    storing = DictionaryTraining(packing, view=store, all_kept=lambda: held, tally=None)

    async def main() -> None:
        interrupted = asyncio.create_task(storing.taken())
        await asyncio.sleep(0)
        interrupted.cancel()
        await asyncio.wait([interrupted])
        assert (packing.learned, packing.fits, packing._window) == (False, False, SAMPLE_OBJECTS)
        await storing.taken()
        assert packing.learned
        assert all(record.stored != record.data for record in held)

    asyncio.run(main())


# ---- Several lists and watches.


@pytest.mark.parametrize("storage", ["auto", "packed"])
async def test_other_objects_in_a_shared_list_are_not_learned_from(storage: Storage) -> None:
    names = ("s187", "s192")
    objects = [
        secret(f"s{number:03}")
        | {"data": {"token": base64.b64encode(random.Random(number).randbytes(300)).decode()}}
        for number in range(200)
    ]
    declared = Cached(Selector(names=names, namespaces=["shop"]), share_watches=True, storage=storage)
    async with caching(declared, *objects) as environment:
        await until(lambda: environment.informer.state.version)
        assert named(environment.cache.list_cached("secrets", namespace="shop")) == [*names]
        assert (
            sum(asked.verb == "list" for asked in environment.cluster.requests if asked.resource == "secrets")
            == 1
        )
        packing = environment.informer.swapper.packing
        assert packing is not None
        assert (packing.learned, packing.fits) == (False, False), "nobody has begun to"


def test_namespaces_with_few_objects_each_are_packed_as_one_kind() -> None:
    """An object that was read of one dictionary while another was trained is packed, too."""
    spaces = [f"ns-{number}" for number in range(6)]
    made = {
        space: [
            {**pod, "metadata": {**pod["metadata"], "namespace": space}} for pod in pods(FEWEST_OBJECTS // 2)
        ]
        for space in spaces
    }

    async def main() -> None:
        async with Server() as server:
            for space in spaces:
                server.scripts[f"/api/v1/namespaces/{space}/pods"] = Script(
                    [listed("1000", *made[space])], [streamed(bookmark("1001"))]
                )
            async with operating(
                server, selectors={"pods": Selector("app=web", namespaces=spaces)}
            ) as environment:
                await environment.synced()
                await until(lambda: all(packed(environment)))
                assert len(records(environment)) == 6 * (FEWEST_OBJECTS // 2)

    run(main())


def test_the_heap_is_limited_unless_the_environment_sets_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *option: options.append(option))
    monkeypatch.setattr(background, "ctypes", SimpleNamespace(CDLL=lambda _: library))
    for name in ("MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    limit_spare_heap()
    assert [value for _, value in options] == [MAPPED_BLOCK_BYTES, SPARE_HEAP_BYTES]
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    limit_spare_heap()
    assert len(options) == 2
