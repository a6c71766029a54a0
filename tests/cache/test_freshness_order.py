"""Handlers whose event is newer than what a stream has shown: lagging servers, live bodies, restores, and the
end of the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import kopf
import pytest
from kopf._core.actions import execution, progression
from kopf._core.engines.posting import settings_var
from kopf._core.reactor import subhandling

from kopf_selectcache import Cached, Selector
from kopf_selectcache.cache.freshness import wait_until_fresh
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.informer.health import Health
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.testing.faults import Gone, Lag, Refuse, Silence
from tests.cache.test_freshness import WEB, handling, names, names_later
from tests.cache.test_freshness_ends import overlapping, with_an_unconfirmed_leave
from tests.faults.environment import until
from tests.gated import Gated, gated, settle
from tests.kopf_operators import called, changing, only, spawned
from tests.objects import pod


def is_done(call: asyncio.Task[Any]) -> bool:
    return call.done()


async def settle_sockets() -> None:
    for _ in range(20):
        await settle()


# ---- Daemons and timers, whose body is Kopf's live one.


@pytest.mark.parametrize("kind", ["daemon", "timer"])
async def test_a_body_that_changes_during_the_wait_is_waited_for_as_well(kind: str) -> None:
    async with gated("app=web", pod("a", **WEB), pod("c", **WEB)) as environment:
        refused = await environment.cut(Refuse(503))
        old = environment.cluster.patch(pod("c"), {"metadata": {"annotations": {"n": "1"}}})
        cause = spawned(old)
        seen: list[tuple[str, list[str]]] = []

        async def fn(cache: Any, body: Any, **_: Any) -> None:
            seen.append((body["metadata"]["resourceVersion"], names(cache)))

        registry = kopf.OperatorRegistry()
        decorator: Any = (
            kopf.daemon("pods", registry=registry)
            if kind == "daemon"
            else kopf.timer("pods", interval=1, registry=registry)
        )
        decorator(with_cache(fn))
        call = asyncio.create_task(called(only(registry._spawning), cause))
        await settle()
        # Kopf hears of b and of another change of c. The stream comes to the first change of c, and no
        # further.
        environment.cluster.create(pod("b", **WEB))
        new = environment.cluster.patch(pod("c"), {"metadata": {"annotations": {"n": "2"}}})
        cause.body._replace_with(new)
        silence = environment.cluster.faults.add(Silence(after_events=1), verb="watch", resource="pods")
        refused.release()
        await environment.clock.move_until(
            lambda: environment.informer.state.version == old["metadata"]["resourceVersion"]
        )
        await settle_sockets()
        assert not is_done(call)
        silence.release()
        await until(call.done)
        assert seen == [(new["metadata"]["resourceVersion"], ["a", "b", "c"])]


async def test_a_body_that_is_always_ahead_is_waited_for_15_s_more() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:

        class AlwaysAhead(dict[str, Any]):
            def __copy__(self) -> dict[str, Any]:
                ahead: dict[str, Any] = environment.cluster.patch(
                    pod("a"), {"metadata": {"annotations": {"n": str(environment.cluster.version)}}}
                )
                return ahead

        began = environment.clock.now
        wait = asyncio.create_task(
            wait_until_fresh(
                [environment.informer],
                AlwaysAhead(),
                patient=True,
                ending=environment.operator.runtime.ending,
            )
        )
        await environment.clock.move_until(wait.done, most=60)
        assert 15 <= environment.clock.now - began < 30


# ---- Servers that lag.


@pytest.mark.parametrize("initial", ["stream", "pages"])
async def test_an_initial_state_of_a_server_that_lags_does_not_show_that_the_watch_has_caught_up(
    initial: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work_here(work: Callable[[], object]) -> None:
        work()  # Not in a thread, for which the test would have to wait.

    monkeypatch.setattr("kopf_selectcache.informer.reflector.run_in_thread", work_here)
    async with gated("app=web", pod("a", **WEB), initial=initial) as environment:
        lag = environment.cluster.faults.add(Lag(environment.cluster.version), resource="pods")
        environment.cluster.faults.add(Gone(), verb="watch", resource="pods", times=1)
        environment.cluster.cut("watch", "pods")
        (reflector,) = environment.informer.state.reflectors
        await environment.clock.move_until(
            lambda: reflector.writer.commits == 2 and reflector.comparison.is_open
        )
        environment.cluster.create(pod("b", **WEB))
        (other,) = environment.cluster.create(pod("other", app="db"))
        await settle_sockets()
        call = handling("event", names_later)(other)
        await settle_sockets()
        assert not is_done(call)
        lag.release()
        await environment.clock.move_until(call.done)
        assert await call == ["a", "b"]


async def test_names_that_share_a_watch_are_compared_as_the_objects_they_select() -> None:
    shared = Cached(Selector(names=["a", "b"], namespaces=["shop"]), share_watches=True)
    async with gated(shared, pod("a")) as environment:
        silence = await environment.cut()
        environment.cluster.create(pod("b"))
        (other,) = environment.cluster.create(pod("other"))
        call = handling("event")(other)
        await environment.compared()
        assert not call.done()
        silence.release()
        await until(call.done)
        assert await call == ["a", "b"]


# ---- Restores of the server.


async def test_a_restore_that_another_stream_finds_does_not_end_the_wait_for_this_one() -> None:
    filters = [Selector("app=web", namespaces=[namespace]) for namespace in ("shop", "infra")]
    async with gated(filters, pod("a", **WEB), pod("i", "infra", **WEB)) as environment:
        shop, infra = sorted(
            environment.informer.state.reflectors, key=lambda each: each.stream.namespace != "shop"
        )
        backup = environment.cluster.backup()
        environment.cluster.create(*(pod(f"lost-{n}", "infra", **WEB) for n in range(4)))
        await until(lambda: len(names(environment.cache)) == 6)
        silence = environment.cluster.faults.add(
            Silence(), verb="watch", resource="pods", where=lambda asked: asked.namespace == "shop"
        )
        environment.cluster.restore(backup)
        await environment.clock.move_until(lambda: shop.comparison.is_open)
        environment.cluster.create(pod("b", **WEB))
        (c,) = environment.cluster.create(pod("c", **WEB))  # In the restored state.
        call = handling("event", names_later)(c)
        await settle()
        held = environment.cluster.faults.add(Silence(), verb="list", resource="pods", namespace="shop")
        infra.relist(MetricReason.AUDIT)
        commits = infra.writer.commits
        await environment.clock.move_until(lambda: infra.writer.commits > commits or call.done())
        await environment.clock.move(6)
        await settle_sockets()
        assert not is_done(call)
        held.release()
        silence.release()
        await environment.clock.move_until(call.done)
        assert {"a", "b", "c"} <= set(await call)


# ---- How waits end.


@pytest.mark.parametrize("which", ["stream", "comparison", "leave"])
async def test_a_wait_ends_with_the_operator(which: str) -> None:
    async with overlapping() if which == "leave" else gated("app=web", pod("a", **WEB)) as environment:
        await _wait_in_vain(environment, which)


async def _wait_in_vain(environment: Gated, which: str) -> None:
    if which == "leave":
        await with_an_unconfirmed_leave(environment)
        environment.cluster.faults.add(Refuse(503), verb="list", resource="pods")
        body = environment.cluster.patch(pod("a"), {"metadata": {"annotations": {"seen": "new"}}})
    else:
        await environment.cut()
        environment.cluster.faults.add(Refuse(503), verb="list", resource="pods")
        (body,) = environment.cluster.create(pod("b", app="web" if which == "stream" else "db"))
    call, informer = handling("event")(body), environment.informer
    await environment.clock.move(1)
    assert not is_done(call)
    environment.operator.task.cancel()
    await environment.clock.move_until(call.done, most=60)
    with pytest.raises(kopf.TemporaryError, match="has ended"):
        await call
    assert informer.waiting_handlers == 0


async def test_a_sub_handler_uses_up_no_retries_of_its_parent() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        refused = environment.cluster.faults.add(Refuse(503), resource="pods")
        environment.cluster.cut("watch", "pods")
        (b,) = environment.cluster.create(pod("b", **WEB))
        registry = kopf.OperatorRegistry()

        async def parent(**_: Any) -> None:
            kopf.register(with_cache(names), id="sub")

        kopf.on.update("pods", registry=registry, retries=1)(parent)
        handler: Any = only(registry._changing)
        state = progression.State.from_scratch().with_handlers([handler])
        once = asyncio.create_task(
            execution.execute_handler_once(
                settings=settings_var.get(),
                handler=handler,
                cause=changing(b),
                state=state[handler.id],
                lifecycle=kopf.lifecycles.all_at_once,
                extra_context=subhandling.subhandling_context,
                default_errors=execution.ErrorsMode.TEMPORARY,
            )
        )
        await environment.clock.move_until(lambda: environment.informer.state.health is Health.STALE)
        await environment.clock.move(60)
        await settle_sockets()
        assert not once.done(), "it waits, and is not called again"
        refused.release()
        await environment.clock.move_until(once.done)
        assert (await once).exception is None
