"""Each wait of a handler ends: whatever a server does, refuses or loses. Contract 9, and 8. The test is Kopf,
and moves the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import kopf
import pytest
from kopf._core.actions import execution, progression
from kopf._core.engines.posting import settings_var

from kopf_selectcache import Forbidden, Selector
from kopf_selectcache.cache.freshness import RELIST_AFTER_SECONDS, TICK_SECONDS, event_of
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.claims import HEAP_SLACK_ENTRIES, Row, Unclaimed
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.testing.faults import Refuse, Silence
from tests.cache.test_freshness import WEB, handling, names, names_later
from tests.faults.environment import until
from tests.gated import Gated, gated, settle
from tests.kopf_operators import called, changing, only, watching
from tests.objects import pod

BOTH = pytest.mark.parametrize("kind", ["event", "update"])


@asynccontextmanager
async def busy(environment: Gated) -> AsyncIterator[None]:
    """Change an object of the cache every two seconds of its clock."""

    async def change() -> None:
        number = 0
        while True:
            number += 1
            environment.cluster.patch(pod("a"), {"metadata": {"annotations": {"n": str(number)}}})
            await environment.clock.sleep(2)

    task = asyncio.create_task(change())
    try:
        yield
    finally:
        task.cancel()


def deleting(body: dict[str, Any]) -> asyncio.Task[Any]:
    """Call a handler of events with a deletion."""
    registry = kopf.OperatorRegistry()
    kopf.on.event("pods", registry=registry)(with_cache(names))
    return asyncio.create_task(called(only(registry._watching), watching("DELETED", body)))


# ---- Versions that no stream reaches.


@BOTH
@pytest.mark.parametrize("app", ["web", "db"])
async def test_a_body_beyond_the_server_is_waited_for_once_though_the_stream_moves(
    kind: str, app: str
) -> None:
    """It comes from before a restore. Kopf calls timers with it again and again."""
    async with gated("app=web", pod("a", **WEB)) as environment, busy(environment):
        (lost,) = environment.cluster.create(pod("lost", app=app))
        lost["metadata"]["resourceVersion"] = "999999"
        began = environment.clock.now
        call = handling(kind, names_later)(lost)
        await environment.clock.move_until(call.done)
        assert RELIST_AFTER_SECONDS <= environment.clock.now - began < 2 * RELIST_AFTER_SECONDS
        again = handling(kind, names_later)(lost)
        await settle()
        assert again.done()
        assert await again == await call
        assert environment.informer.counts.relists == {"behind": 1}


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_version_that_is_no_number_and_that_the_stream_has_passed_is_waited_for_until_a_new_list(
    is_busy: bool,
) -> None:
    async with gated("app=web", pod("a", **WEB), pod("z", **WEB)) as environment:
        body = environment.cluster.get(pod("z"))
        body["metadata"]["resourceVersion"] = "not-a-number"
        async with busy(environment) if is_busy else nullcontext():
            call = handling("event")(body)
            await environment.clock.move_until(call.done)
            assert await call == ["a", "z"]


# ---- Lists that do not come.


@BOTH
@pytest.mark.parametrize("fault", [Refuse(403), Refuse(504), Refuse(429, retry_after=3600)])
async def test_a_comparison_that_fails_ends_with_the_stream(kind: str, fault: Refuse) -> None:
    """The stream relists as well. Its error names the cause, or says that it is stale."""
    async with gated("app=web", pod("a", **WEB)) as environment:
        planned = environment.cluster.faults.add(fault, verb="list", resource="pods")
        call = handling(kind)(environment.cluster.create(pod("other", app="db"))[0])
        await environment.clock.move(60)
        await settle()
        if kind == "update" or fault.code == 403:
            await environment.clock.move_until(call.done)
            assert isinstance(call.exception(), (Forbidden, kopf.TemporaryError))
        else:
            assert not call.done()
            planned.release()
            await environment.clock.move_until(call.done, step=60, most=7200)
            assert await call == ["a"]


async def test_handlers_share_the_waits_between_comparisons() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        environment.cluster.faults.add(Refuse(429, retry_after=30), verb="list", resource="pods")
        calls = []
        for number in range(30):
            calls.append(handling("event")(environment.cluster.create(pod(f"other-{number}", app="db"))[0]))
            await environment.clock.move(0.1)
        await until(environment.comparisons)
        assert len(environment.comparisons()) == 1
        for call in calls:
            call.cancel()
        await settle()
        assert not [task for task in asyncio.all_tasks() if "comparison" in task.get_name()]


# ---- Watches that close while they are compared.


async def test_a_watch_that_is_opened_anew_meanwhile_is_compared_anew() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        others = environment.cluster.create(pod("other-1", app="db"), pod("other-2", app="db"))
        held = environment.cluster.faults.add(Silence(), verb="list", resource="pods", times=1)
        calls = [handling("event")(other) for other in others]
        await until(lambda: held.hits)
        await environment.cut()
        environment.cluster.faults.clear()
        await until(lambda: all(call.done() for call in calls))
        assert len(environment.comparisons()) == 2


async def test_a_caller_that_joins_a_comparison_with_a_newer_body_awaits_another() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        silence = await environment.cut()
        held = environment.cluster.faults.add(Silence(), verb="list", resource="pods", times=1)
        first = handling("event")(environment.cluster.create(pod("other-1", app="db"))[0])
        await until(lambda: held.hits)
        environment.cluster.create(pod("b", **WEB))
        second = handling("event")(environment.cluster.create(pod("other-2", app="db"))[0])
        await settle()
        held.release()
        await until(first.done)
        await until(lambda: second.done() or any(asked.code == 200 for asked in environment.comparisons()))
        assert not second.done()
        await environment.compared()
        assert not second.done()
        silence.release()
        await until(second.done)
        assert await second == ["a", "b"]


async def test_a_comparison_that_fails_by_a_mistake_of_ours_is_made_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        comparison = environment.informer.state.reflectors[0].comparison
        compare = comparison._compare

        async def broken() -> None:
            monkeypatch.setattr(comparison, "_compare", compare)
            raise ZeroDivisionError

        monkeypatch.setattr(comparison, "_compare", broken)
        call = handling("event")(environment.cluster.create(pod("other", app="db"))[0])
        await environment.clock.move_until(call.done)
        assert await call == ["a"]
        assert "ZeroDivisionError" in caplog.text


async def test_a_bookmark_releases_the_waits_for_earlier_versions() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        comparison = environment.informer.state.reflectors[0].comparison
        environment.cluster.faults.add(Silence(), verb="list", resource="pods")
        gone, old, new = comparison.wait("1"), comparison.wait("2"), comparison.wait("999999")
        gone.cancel()
        environment.cluster.bookmark()
        await until(old.done)
        assert (old.result(), new.done()) == (True, False)
        assert not comparison.has_caught_up, "the server may lag behind what is waited for"
        new.cancel()
        await environment.catch_up()


# ---- Leaves that nobody confirms.


def overlapping() -> Any:
    return gated(["app=web", "tier=gold"], *(pod(name, **WEB) for name in "abc"), pod("d", tier="gold"))


async def with_an_unconfirmed_leave(environment: Gated) -> dict[str, Any]:
    """Delete b and then c, and let the second stream say nothing. Return the body of c."""
    await environment.catch_up()
    body = environment.cluster.get(pod("c"))
    environment.cluster.delete(pod("b"), grace_period=0)
    environment.cluster.delete(pod("c"), grace_period=0)
    body["metadata"]["resourceVersion"] = str(environment.cluster.version)
    await until(
        lambda: environment.informer.state.reflectors[0].version == body["metadata"]["resourceVersion"]
    )
    return body


async def test_a_handler_goes_on_as_soon_as_the_leaves_before_its_event_are_confirmed() -> None:
    """Its own may be confirmed later."""
    async with overlapping() as environment:
        body = await with_an_unconfirmed_leave(environment)
        environment.cluster.faults.add(
            Silence(),
            verb="list",
            resource="pods",
            where=lambda asked: "metadata.name=c" in asked.query.get("fieldSelector", ""),
        )
        began = environment.clock.now
        call = deleting(body)
        await environment.clock.move_until(call.done, step=0.25)
        assert environment.clock.now - began < RELIST_AFTER_SECONDS
        assert await call == ["a", "d"]


async def test_a_leave_at_an_unreported_version_is_awaited_before_all_others() -> None:
    async with overlapping() as environment:
        doubts, waited = environment.informer.state.union.unconfirmed, environment.informer.awaited.wait("5")
        doubts["shop", "b"] = Row("")
        environment.informer._release_confirmed()
        assert not waited.done()
        doubts.clear()
        environment.informer._release_confirmed()
        assert waited.done()


async def check_unconfirmed(environment: Gated, kind: str, call: asyncio.Task[Any]) -> None:
    """Check that a call waits 15 s for the leave. After that, a handler of events reads the last known state,
    and any other raises."""
    step = 0.5
    # The streams are waited for first: that takes as long as their requests.
    await environment.clock.move_until(lambda: environment.informer.awaited, step=step)
    began = environment.clock.now - step
    await environment.clock.move_until(call.done, step=step)
    assert RELIST_AFTER_SECONDS <= environment.clock.now - began <= RELIST_AFTER_SECONDS + TICK_SECONDS + step
    if kind == "event":
        assert await call == ["a", "b", "c", "d"]
    else:
        with pytest.raises(kopf.TemporaryError, match="until it is known which objects have left it"):
            await call


@BOTH
async def test_a_leave_that_is_not_confirmed_ends_with_an_error_or_is_read_as_it_was(kind: str) -> None:
    async with overlapping() as environment:
        await with_an_unconfirmed_leave(environment)
        environment.cluster.faults.add(Refuse(503), verb="list", resource="pods")
        changed = environment.cluster.patch(pod("a"), {"metadata": {"annotations": {"seen": "new"}}})
        await check_unconfirmed(environment, kind, handling(kind)(changed))


@BOTH
async def test_a_leave_at_the_version_of_the_event_is_waited_for_no_longer_while_the_stream_moves(
    kind: str,
) -> None:
    """A list shows the leave, at the version of the newest change. Each event of the stream wakes those who
    wait for this version."""
    async with overlapping() as environment:
        await environment.catch_up()
        first, _ = environment.informer.state.reflectors
        environment.cluster.inject(Silence(), "pods")
        environment.cluster.delete(pod("b"), grace_period=0)
        changed = environment.cluster.patch(pod("a"), {"metadata": {"annotations": {"seen": "new"}}})
        first.relist(MetricReason.BEHIND)
        await until(lambda: first.writer.commits == 2)
        (((_, name), row),) = environment.informer.state.union.unconfirmed.items()
        assert (name, row.left) == ("b", changed["metadata"]["resourceVersion"])
        environment.cluster.faults.add(Refuse(503), verb="list", resource="pods")
        async with busy(environment):
            await check_unconfirmed(environment, kind, handling(kind)(changed))


@BOTH
async def test_no_leave_is_waited_for_while_a_stream_cannot_be_maintained(kind: str) -> None:
    filters = [Selector("app=web", namespaces=["shop"]), Selector("app=db")]
    async with gated(filters, pod("a", **WEB), pod("b", **WEB)) as environment:
        environment.cluster.faults.add(Refuse(403), resource="pods", where=lambda asked: not asked.namespace)
        environment.cluster.cut("watch", "pods")
        await environment.clock.move_until(lambda: environment.informer.state.health == "forbidden")
        await environment.clock.move(10)
        environment.cluster.patch(pod("b"), {"metadata": {"labels": {"app": "db"}}})
        (c,) = environment.cluster.create(pod("c", **WEB))

        def read(cache: Any, **_: Any) -> list[str]:
            return sorted(
                each["metadata"]["name"]
                for each in cache.list_cached("pods", namespace="shop", labels="app=web")
            )

        began = environment.clock.now
        call = handling(kind, read)(c)
        await environment.clock.move_until(call.done, step=0.1)
        assert environment.clock.now - began < RELIST_AFTER_SECONDS
        assert await call == ["a", "c"]


def test_the_oldest_unconfirmed_leave_is_found_however_often_leaves_come_and_are_settled() -> None:
    doubts = Unclaimed()
    for number in range(3 * HEAP_SLACK_ENTRIES):
        doubts[("shop", "a")] = Row("", str(number + 10))
        doubts[("shop", "b")] = Row("", "5")
    assert doubts.oldest() is doubts["shop", "b"]
    assert len(doubts._heap) < 2 * HEAP_SLACK_ENTRIES
    doubts["shop", "c"] = Row("")
    assert doubts.oldest() is doubts["shop", "c"]
    doubts.clear()
    assert doubts.oldest() is None


# ---- Handlers that Kopf calls a bounded number of times.


@pytest.mark.parametrize("options", [{"retries": 2}, {"timeout": 3600}])
async def test_a_stale_cache_uses_up_no_retries(options: dict[str, Any]) -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        refused = environment.cluster.faults.add(Refuse(503), resource="pods")
        environment.cluster.cut("watch", "pods")
        (b,) = environment.cluster.create(pod("b", **WEB))
        ran: list[list[str]] = []
        registry = kopf.OperatorRegistry()

        async def run_it(cache: Any, **_: Any) -> None:
            ran.append(names(cache))

        kopf.on.update("pods", registry=registry, **options)(with_cache(run_it))
        handler: Any = only(registry._changing)
        state = progression.State.from_scratch().with_handlers([handler])
        once = asyncio.create_task(
            execution.execute_handler_once(
                settings=settings_var.get(),
                handler=handler,
                cause=changing(b),
                state=state[handler.id],
                lifecycle=None,
                default_errors=execution.ErrorsMode.TEMPORARY,
            )
        )
        await environment.clock.move(120)
        assert not once.done()
        refused.release()
        await environment.clock.move_until(once.done)
        assert (once.result().final, ran) == (True, [["a", "b"]])


# ---- What waits leave behind.


async def test_bodies_of_another_epoch_are_forgotten_in_the_end() -> None:
    async with gated("app=web") as environment:
        (reflector,) = environment.informer.state.reflectors
        for number in range(1001):
            reflector.note_foreign("uid", str(number))
        assert reflector.foreign == {("uid", "1000")}


# ---- Fields that only the cluster knows.


@pytest.mark.parametrize(
    ("selector", "spec", "is_selected"),
    [
        ("spec.env=prod", {"env": "prod"}, True),
        ("spec.env=prod", {"env": "test"}, False),
        ("spec.env=prod", {"env": None}, False),
        ("spec.of=3", {"of": 3}, True),  # Numbers and booleans are compared as servers write them.
        ("spec.of=true", {"of": True}, True),
    ],
)
def test_where_fields_are_not_known_the_path_tells_whether_a_stream_delivers_an_event(
    selector: str, spec: dict[str, object], is_selected: bool
) -> None:
    resource = Resource(
        Kind.unknown("example.com", "Widget", "widgets", namespaced=True, names=set()),
        "v1",
        fields_known=False,
    )
    stream: Any = SimpleNamespace(
        substore=Union([Keys()]).substores[0],
        resource=resource,
        filter=Selector(fields=selector),
        has_misread=False,
    )
    metadata = {"name": "w", "namespace": "shop", "uid": "u", "resourceVersion": "9"}
    event = event_of({"apiVersion": "example.com/v1", "kind": "Widget", "spec": spec, "metadata": metadata})
    assert event is not None
    assert event.is_delivered_by(stream) is is_selected
