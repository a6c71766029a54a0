"""Contract 9: a handler reads its own kind at least as new as the body it is called with. The test is Kopf,
and moves the clock."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import Any

import kopf
import pytest

from kopf_selectcache import Forbidden, ReadError, Selector, Stale
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.errors import Oversized
from kopf_selectcache.informer.reach import AwaitedVersions
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.testing.faults import Refuse, Silence
from tests.faults.environment import until
from tests.gated import gated, settle
from tests.kopf_operators import admission, called, changing, indexing, only, spawned, watching
from tests.objects import pod
from tests.rows import each_row

Obj = dict[str, Any]
WEB = {"app": "web"}
KINDS: dict[str, tuple[Callable[..., Any], str, Callable[[Any], Any]]] = {
    "event": (kopf.on.event, "_watching", lambda body: watching("MODIFIED", body)),
    "update": (kopf.on.update, "_changing", changing),
    "timer": (functools.partial(kopf.timer, interval=1), "_spawning", spawned),
    "daemon": (kopf.daemon, "_spawning", spawned),
    "index": (kopf.index, "_indexing", indexing),
}


def names(cache: Any, **_: Any) -> list[str]:
    return sorted(each["metadata"]["name"] for each in cache.list_cached("pods"))


async def names_later(cache: Any, **_: Any) -> list[str]:
    return names(cache)


def handling(
    kind: str = "update", fn: Callable[..., Any] = names, **options: Any
) -> Callable[[Mapping[str, Any]], asyncio.Task[Any]]:
    """Return what calls a handler of this kind with a body, as Kopf does."""
    decorator, part, cause = KINDS[kind]
    registry = kopf.OperatorRegistry()
    decorator("pods", registry=registry)(with_cache(**options)(fn))
    handler: Any = only(getattr(registry, part))
    return lambda body: asyncio.create_task(called(handler, cause(body)))


# ---- A stream that delivers the event as well.


@pytest.mark.parametrize("fn", [names, names_later])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_handler_waits_until_the_stream_has_progressed_to_its_body(kind: str, fn: Any) -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        silence = await environment.cut()
        environment.cluster.create(pod("b", **WEB))
        (c,) = environment.cluster.create(pod("c", **WEB))
        call = handling(kind, fn)(c)
        await environment.clock.move(1)
        assert not call.done()
        silence.release()
        await until(call.done)
        assert await call == ["a", "b", "c"]


async def test_a_handler_waits_for_a_kind_that_is_declared_later() -> None:
    async with gated("app=web", pod("a", **WEB), kind="secrets") as environment:
        await environment.cache.declare("pods", "app=web")
        environment.kind = "pods"
        await until(lambda: all(each.comparison.is_open for each in environment.informer.state.reflectors))
        silence = await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))
        call = handling()(b)
        await environment.clock.move(1)
        assert not call.done(), "it has not waited for its body"
        silence.release()
        await until(call.done)
        assert await call == ["a", "b"]


async def test_an_object_that_has_left_the_filter_is_waited_for_as_long_as_it_is_held() -> None:
    async with gated("app=web", pod("a", **WEB), pod("b", **WEB)) as environment:
        silence = await environment.cut()
        left = environment.cluster.patch(pod("b"), {"metadata": {"labels": {"app": "db"}}})
        call = handling()(left)
        await environment.clock.move(1)
        assert not call.done()
        silence.release()
        await until(call.done)
        assert await call == ["a"]
        assert not environment.comparisons()


@pytest.mark.parametrize("options", [{"fresh": False}, {"kinds": []}])
async def test_a_handler_that_does_not_want_to_wait_does_not(options: Obj) -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        await environment.cut()
        environment.cluster.create(pod("b", **WEB))
        (c,) = environment.cluster.create(pod("c", **WEB))
        assert await handling(**options)(c) == ["a", "c"]


async def test_an_object_to_be_admitted_is_not_waited_for() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        await environment.cut()
        (c,) = environment.cluster.create(pod("c", **WEB))
        registry = kopf.OperatorRegistry()
        kopf.on.validate("pods", registry=registry)(with_cache(names))
        assert await called(only(registry._webhooks), admission(c)) == ["a"]


async def test_a_daemon_that_is_stopped_while_it_waits_does_not_run() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        await environment.cut()
        cause = spawned(environment.cluster.create(pod("b", **WEB))[0])
        registry = kopf.OperatorRegistry()
        kopf.daemon("pods", registry=registry)(with_cache(names))
        call = asyncio.create_task(called(only(registry._spawning), cause))
        await settle()
        assert not call.done()
        cause.stopper.set(reason=kopf.DaemonStoppingReason.OPERATOR_EXITING)
        assert await call is None


# ---- A stream that does not follow, or does not move.


async def test_a_stale_cache_makes_kopf_call_a_changing_handler_again() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        refused = environment.cluster.faults.add(Refuse(503), resource="pods")
        environment.cluster.cut("watch", "pods")
        (b,) = environment.cluster.create(pod("b", **WEB))
        call = handling()(b)
        await environment.clock.move_until(call.done)
        with pytest.raises(kopf.TemporaryError) as error:
            await call
        assert isinstance(error.value.__cause__, Stale)
        with pytest.raises(kopf.TemporaryError):
            await handling()(b)
        refused.release()
        await environment.clock.move_until(lambda: names(environment.cache) == ["a", "b"])
        assert await handling()(b) == ["a", "b"]


async def test_a_cache_that_cannot_be_maintained_is_not_waited_for() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        environment.cluster.faults.add(Refuse(403), resource="pods")
        environment.cluster.cut("watch", "pods")
        call = handling("event")(environment.cluster.create(pod("b", **WEB))[0])
        await environment.clock.move_until(call.done)
        with pytest.raises(Forbidden):
            await call


async def test_a_stream_that_stays_at_one_version_is_listed_anew() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        await environment.cut()
        call = handling("event")(environment.cluster.create(pod("b", **WEB))[0])
        await environment.clock.move(14)
        assert not call.done()
        await environment.clock.move(2)
        await environment.clock.move_until(call.done)
        assert await call == ["a", "b"]
        assert environment.informer.counts.relists == {"behind": 1}


async def test_a_restore_of_the_server_ends_the_wait() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        backup = environment.cluster.backup()
        *_, body = environment.cluster.create(*(pod(name, **WEB) for name in "bcd"))
        await until(lambda: names(environment.cache) == ["a", "b", "c", "d"])
        body["metadata"]["resourceVersion"] = str(environment.cluster.version + 1)
        call = handling("event")(body)
        await settle()
        environment.cluster.restore(backup)
        environment.informer.state.reflectors[0].relist(MetricReason.BEHIND)
        await environment.clock.move_until(call.done)
        assert "b" not in await call
        assert int(environment.informer.state.version) < int(body["metadata"]["resourceVersion"])


async def test_a_cache_that_is_let_go_meanwhile_is_not_waited_for() -> None:
    async with gated("app=web", pod("a", **WEB), max_bytes="64Ki") as environment:
        silence = await environment.cut()
        large = pod("b", **WEB)
        large["metadata"]["annotations"] = {"large": "x" * 200_000}
        _, c = environment.cluster.create(large, pod("c", **WEB))
        call = handling()(c)
        await settle()
        assert not call.done()
        silence.release()
        await until(call.done)
        with pytest.raises(Oversized):
            await call


async def test_a_version_that_is_no_number_is_reached_when_the_object_has_it() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        a = environment.cluster.get(pod("a"))
        (record,) = environment.informer.state.store.records()[0]
        record.version = a["metadata"]["resourceVersion"] = "not-a-number"
        assert await handling()(a) == ["a"]
        record.version = "another"
        call = handling("event")(a)
        await environment.clock.move(14)
        assert not call.done()
        await environment.clock.move_until(
            call.done
        )  # Nobody can say whether it has been there: the newest list is as good.


# ---- A stream that does not deliver the event.


async def test_a_body_that_is_no_object_is_an_event_that_no_stream_delivers() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        (other,) = environment.cluster.create(pod("other", **WEB))
        del other["metadata"]["uid"]
        await handling()(other)


async def test_changes_that_the_watch_delivered_since_the_list_are_not_awaited() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        (other,) = environment.cluster.create(pod("other", app="db"))
        held = environment.cluster.faults.add(Silence(), verb="list", resource="pods")
        call = handling()(other)
        await until(lambda: held.hits)
        environment.cluster.delete(pod("a"), grace_period=0)
        await until(lambda: not names(environment.cache))
        held.release()
        await until(call.done)
        assert await call == []


async def test_a_watch_that_was_opened_anew_is_compared_once_for_all_handlers() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        refused = await environment.cut(Refuse(503))
        environment.cluster.create(pod("b", **WEB))
        others = environment.cluster.create(*(pod(f"other-{number}", app="db") for number in range(20)))
        held = environment.cluster.faults.add(Refuse(503), verb="list", resource="pods", times=1)
        calls = [handling("event")(other) for other in others]
        await environment.clock.move(1)
        assert not any(call.done() for call in calls)
        assert not environment.comparisons()  # It is not open yet.
        refused.release()
        await environment.clock.move_until(lambda: all(call.done() for call in calls))
        assert held.hits
        assert [await call for call in calls] == [["a", "b"]] * 20
        assert sum(asked.code == 200 for asked in environment.comparisons()) == 1
        (last,) = environment.cluster.create(pod("last", app="db"))
        assert await handling("event")(last) == ["a", "b"]
        assert sum(asked.code == 200 for asked in environment.comparisons()) == 1


@pytest.mark.parametrize("change", ["create", "update", "delete", "replace"])
async def test_changes_that_the_list_shows_are_awaited_from_the_watch(change: str) -> None:
    async with gated("app=web", pod("a", **WEB), pod("b", **WEB)) as environment:
        before = environment.cluster.get(pod("b"))["metadata"]["uid"]
        silence = await environment.cut()
        if change == "create":
            environment.cluster.create(pod("c", **WEB))
        elif change == "update":
            environment.cluster.patch(pod("b"), {"metadata": {"annotations": {"seen": "new"}}})
        else:
            environment.cluster.delete(pod("b"), grace_period=0)
        if change == "replace":
            environment.cluster.create(pod("b", **WEB))
        (other,) = environment.cluster.create(pod("other", app="db"))
        call = handling(
            "event",
            lambda cache, **_: {
                each["metadata"]["name"]: each["metadata"] for each in cache.list_cached("pods")
            },
        )(other)
        await until(lambda: call.done() or environment.comparisons())
        assert not call.done(), "it must wait for the watch"
        await environment.compared()
        assert not call.done()
        silence.release()
        await environment.clock.move_until(call.done)
        found = await call
        assert sorted(found) == {"create": ["a", "b", "c"], "delete": ["a"]}.get(change, ["a", "b"])
        assert change != "update" or "seen" in found["b"]["annotations"]
        assert change != "replace" or found["b"]["uid"] != before


# ---- Several streams.


async def test_each_stream_of_several_is_waited_for_in_its_own_way() -> None:
    filters = [Selector("app=web", namespaces=["shop"]), Selector("app=web", namespaces=["infra"])]
    async with gated(filters, pod("a", **WEB), pod("b", "infra", **WEB)) as environment:
        silence = await environment.cut()
        environment.cluster.create(pod("c", "infra", **WEB))
        (d,) = environment.cluster.create(pod("d", **WEB))
        call = handling()(d)
        await settle()
        assert not call.done()
        silence.release()
        await until(call.done)
        assert await call == ["a", "b", "c", "d"]
        assert [asked.namespace for asked in environment.comparisons()] == ["infra"]


async def test_an_object_that_left_one_stream_is_awaited_until_that_is_confirmed() -> None:
    a, b, c = (pod(name, **WEB) for name in "abc")
    async with gated(["app=web", "tier=gold"], a, b, c) as environment:
        await environment.catch_up()
        environment.cluster.create(pod("d", tier="gold"))
        await until(lambda: names(environment.cache) == ["a", "b", "c", "d"])
        environment.cluster.delete(b, grace_period=0)
        body = environment.cluster.get(c)
        environment.cluster.delete(c, grace_period=0)
        body["metadata"]["resourceVersion"] = str(environment.cluster.version)
        registry = kopf.OperatorRegistry()
        kopf.on.event("pods", registry=registry)(with_cache(names))
        await until(
            lambda: environment.informer.state.reflectors[0].version == body["metadata"]["resourceVersion"]
        )
        call = asyncio.create_task(called(only(registry._watching), watching("DELETED", body)))
        await settle()
        assert not call.done()
        await environment.clock.move_until(call.done)
        assert await call == ["a", "d"]
        assert not environment.comparisons()


# ---- Daemons: inside, and not only at the start.


async def test_a_daemon_waits_for_its_body_where_it_wants_to() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        silence = await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))
        waiting = asyncio.create_task(environment.cache.wait_synced(at_least=b))
        await environment.clock.move(1)
        assert not waiting.done()
        silence.release()
        await waiting
        assert names(environment.cache) == ["a", "b"]


async def test_a_wait_for_a_body_ends_with_stale() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))
        with pytest.raises(Stale):
            await environment.cache.wait_synced(timeout=0, at_least=b)


@each_row("wrong", ["body", {}, {"metadata": {}}, {"metadata": {"resourceVersion": "5"}}])
async def test_a_value_that_is_no_body_is_refused(wrong: Any) -> None:
    async with gated("app=web") as environment:
        with pytest.raises(ReadError):
            await environment.cache.wait_synced(at_least=wrong)


async def test_a_body_of_a_kind_that_is_not_declared_is_refused() -> None:
    async with gated("app=web") as environment:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "5"},
        }
        with pytest.raises(ReadError):
            await environment.cache.wait_synced(at_least=node)


# ---- Versions, and who waits for them.


async def test_a_version_that_is_no_number_is_reached_when_it_comes() -> None:
    awaited = AwaitedVersions()
    some = awaited.wait("v-b")
    awaited.reach("v-a")
    awaited.reach("7")
    assert not some.done()
    awaited.reach("v-b")
    assert some.result()
    other = awaited.wait("v-c")
    awaited.wake()
    assert not other.result()
    assert not awaited
