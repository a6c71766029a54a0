"""`wait_synced` names who is not; `wait_for` is woken by changes; sync handlers wait in their thread, never on the loop's."""
from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from typing import Any

import pytest

from kopf_selectcache import Forbidden, NotDeclared, NotSynced, OutsideFilter, ReadError

from .world import NODES, PODS, World, pod, run

WEB = pod("web-1", app="web")


def ready(obj: dict[str, Any]) -> bool:
    return bool(obj["metadata"]["labels"].get("ready") == "yes")


# ---- wait_synced.


def test_all_kinds_are_waited_for() -> None:
    async def main(world: World) -> None:
        pods, nodes = world.declare(), world.declare("", NODES, "nodes")
        waiting = asyncio.create_task(world.cache().wait_synced())
        await asyncio.sleep(0)
        pods.hold()
        await asyncio.sleep(0)
        assert not waiting.done()
        nodes.hold()
        await waiting
    run(main)


def test_who_waited_in_vain_is_told_for_whom_and_why() -> None:
    async def main(world: World) -> None:
        world.declare().hold()
        feed = world.declare("", NODES, "nodes")
        feed.trouble, feed.remedy = "nodes: the server has fallen silent", "It is asked again"
        with pytest.raises(NotSynced) as info:
            await world.cache().wait_synced(0)
        assert str(info.value) == (
            "The cache of nodes is not synced after 0 s: nodes: the server has fallen silent. It is asked again")
    run(main)


def test_the_settings_say_how_long() -> None:
    async def main(world: World) -> None:
        world.declare()
        world.settings.sync_timeout = 0.01
        with pytest.raises(NotSynced, match=r"not synced after 0\.01 s"):
            await world.cache().wait_synced()
    run(main)


def test_a_kind_that_cannot_be_kept_raises_why() -> None:
    async def main(world: World) -> None:
        feed = world.declare()
        feed.error = Forbidden("pods: no", remedy="Grant it")
        feed.settling.set()
        with pytest.raises(Forbidden, match="pods: no"):
            await world.cache().wait_synced()
    run(main)


# ---- wait_for.


def test_what_is_held_is_looked_at_first() -> None:
    async def main(world: World) -> None:
        feed = world.declare("app=web").hold(WEB, pod("web-2", app="web", ready="yes"))
        found = await world.cache().wait_for("pods", ready, namespace="ns")
        assert found["metadata"]["name"] == "web-2"
        assert feed.listeners == []
    run(main)


def test_the_own_object_is_looked_at_as_new_as_it_is() -> None:
    async def main(world: World) -> None:
        world.declare("app=web").hold(WEB)
        own = pod("web-1", version="11", app="web", ready="yes")
        assert await world.cache(own=own).wait_for("pods", ready) == own
    run(main)


def test_then_each_change_is() -> None:
    async def main(world: World) -> None:
        feed = world.declare("app=web").hold(WEB)
        waiting = asyncio.create_task(world.cache().wait_for(
            "pods", ready, namespace="ns", label="tier=gold", field="status.phase=Running"))
        await asyncio.sleep(0)
        feed.leave(WEB)
        feed.put(pod("web-2", version="11", app="web", tier="gold"))
        feed.put(pod("web-3", version="12", app="web", ready="yes"))
        feed.put(pod("web-4", "elsewhere", version="13", app="web", tier="gold", ready="yes"))
        feed.put({**pod("web-5", version="14", app="web", tier="gold", ready="yes"), "status": {"phase": "Failed"}})
        await asyncio.sleep(0)
        assert not waiting.done()
        feed.put(pod("web-2", version="15", app="web", tier="gold", ready="yes"))
        assert (await waiting)["metadata"]["resourceVersion"] == "15"
        assert feed.listeners == []
    run(main)


def test_what_lasted_but_a_moment_is_seen() -> None:
    async def main(world: World) -> None:
        feed = world.declare("app=web").hold(WEB)
        waiting = asyncio.create_task(world.cache().wait_for("pods", ready))
        await asyncio.sleep(0)
        feed.put(pod("web-1", version="11", app="web", ready="yes"))
        feed.put(pod("web-1", version="12", app="web", ready="no"))
        assert (await waiting)["metadata"]["resourceVersion"] == "11"
    run(main)


def test_waiting_begins_before_the_cache_is_synced() -> None:
    async def main(world: World) -> None:
        feed = world.declare("app=web")
        waiting = asyncio.create_task(world.cache().wait_for("pods", ready))
        await asyncio.sleep(0)
        feed.hold(pod("web-1", app="web", ready="yes"))
        assert (await waiting)["metadata"]["name"] == "web-1"
    run(main)


def test_what_can_never_be_held_is_not_waited_for() -> None:
    async def main(world: World) -> None:
        feed = world.declare("app=web").hold()
        with pytest.raises(OutsideFilter, match="asks for what can never be held"):
            await world.cache().wait_for("pods", ready, label="app=db")
        with pytest.raises(NotDeclared):
            await world.cache().wait_for("nodes", ready)
        assert feed.listeners == []
    run(main)


@pytest.mark.parametrize("synced", [True, False])
def test_who_waits_for_too_long_is_told_for_what(synced: bool) -> None:   # noqa: FBT001
    async def main(world: World) -> None:
        feed = world.declare("app=web")
        if synced:
            feed.hold(WEB)
        with pytest.raises(TimeoutError) as info:
            await world.cache().wait_for("pods", ready, namespace="ns", timeout=0)
        assert str(info.value) == "No object of 'pods' that is held (namespaces=['ns']) satisfied the predicate within 0 s"
        assert feed.listeners == []
    run(main)


def test_errors_of_the_predicate_are_its_callers_and_disturb_nobody_else() -> None:
    async def main(world: World) -> None:
        def broken(_: object) -> bool:
            raise TimeoutError("of its own")
        feed = world.declare("app=web").hold()
        waiting = asyncio.create_task(world.cache().wait_for("pods", broken, timeout=60))
        await asyncio.sleep(0)
        feed.put(WEB)
        with pytest.raises(TimeoutError, match="of its own"):
            await waiting
        assert feed.listeners == []
    run(main)


def test_who_is_cancelled_leaves_no_listener() -> None:
    async def main(world: World) -> None:
        feed = world.declare("app=web").hold()
        waiting = asyncio.create_task(world.cache().wait_for("pods", ready))
        await asyncio.sleep(0)
        assert len(feed.listeners) == 1
        waiting.cancel()
        await asyncio.wait([waiting])
        assert feed.listeners == []
    run(main)


# ---- blocking.


def test_threads_wait_for_the_loop_to_do_the_work() -> None:
    async def main(world: World) -> None:
        db = pod("db-1", app="db")
        world.declare("app=web").hold(pod("web-1", app="web", ready="yes"))
        world.server.answer("/api/v1/namespaces/ns/pods/db-1", db)
        world.server.answer("/api/v1/pods", {"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": [db]})
        blocking = world.cache().blocking

        def handler() -> None:
            assert blocking.fetch("pods", "db-1", "ns") == db
            assert blocking.fetch("pods", "nope", "ns", default=None) is None
            assert blocking.fetch_list("pods", label="app in (web,db)", sort_by="metadata.name", limit=1) == [db]
            blocking.wait_synced()
            assert blocking.wait_for("pods", ready, namespace="ns", timeout=60)["metadata"]["name"] == "web-1"
            with pytest.raises(OutsideFilter):
                blocking.wait_for("pods", ready, label="app=db")
        await asyncio.to_thread(handler)
    run(main)


def test_reads_of_the_cache_need_no_loop() -> None:
    async def main(world: World) -> None:
        world.declare("app=web").hold(WEB)
        assert await asyncio.to_thread(world.cache().get, "pods", "web-1", "ns") == WEB
        assert await asyncio.to_thread(world.cache().list, "pods", label="app=web") == [WEB]
    run(main)


def test_a_thread_whose_wait_is_ended_by_the_loop_is_let_go() -> None:
    async def main(world: World) -> None:
        feed = world.declare("app=web").hold()
        thread = asyncio.create_task(asyncio.to_thread(world.cache().blocking.wait_for, "pods", ready))
        await feed.subscribed.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task(), thread}:
            task.cancel()
        with pytest.raises((CancelledError, asyncio.CancelledError)):
            await thread
        assert feed.listeners == []
    run(main)


def test_on_the_loops_own_thread_it_is_refused() -> None:
    async def main(world: World) -> None:
        world.declare("app=web", PODS).hold(WEB)
        with pytest.raises(ReadError) as info:
            world.cache().blocking.fetch("pods", "db-1", "ns")
        assert str(info.value) == (
            "cache.blocking.fetch() was called on the thread of the operator's event loop, and would stop it for good. "
            "Write: await cache.fetch(...)"
        )
    run(main)


def test_after_the_operator_has_ended_it_is_refused() -> None:
    async def main(world: World) -> World:
        return world
    blocking = run(main).cache().blocking
    with pytest.raises(ReadError, match=r"cache.blocking.wait_synced\(\) was called while the operator's event loop does not run"):
        blocking.wait_synced()


def test_another_loop_of_another_thread_may_block_itself() -> None:
    async def main(world: World) -> None:
        world.declare("app=web").hold(WEB)
        cache = world.cache()

        async def elsewhere() -> Any:
            return cache.blocking.fetch("pods", "web-1", "ns")
        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == WEB
    run(main)
