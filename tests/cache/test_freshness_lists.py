"""How many lists handlers that wait cost the server: contract 8 holds, whatever they wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kopf_selectcache import Selector
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.testing.faults import Gone, Refuse, Silence
from kopf_selectcache.testing.request_log import Asked
from tests.cache.test_freshness import WEB, handling, names
from tests.faults.environment import operating, until
from tests.faults.server import Answer, Server, event, listed, streamed
from tests.faults.server import pod as served
from tests.gated import Gated, count_openings, gated, settle
from tests.kopf_operators import run
from tests.objects import pod


def count_lists(environment: Gated) -> int:
    """Count the lists of the informer itself, by their first pages."""
    return sum(
        asked.verb == "list" and not {"resourceVersionMatch", "continue", "fieldSelector"} & {*asked.query}
        for asked in environment.cluster.requests
    )


async def pass_time(environment: Gated, seconds: float) -> None:
    """Let time pass, and whatever happens on sockets meanwhile."""
    for _ in range(round(2 * seconds)):
        await environment.clock.move(0.5)
        for _ in range(10):
            await settle()
        while await environment.clock.wait_for_answers():
            await settle()


async def test_bodies_of_a_lost_state_cost_one_list_in_15_s() -> None:
    """After a restore, timers hold bodies of lost objects, and each runs at a time of its own."""
    async with gated("app=web", pod("a", **WEB)) as environment:
        bodies = environment.cluster.create(*(pod(f"lost-{n}", **WEB) for n in range(20)))
        await until(lambda: len(names(environment.cache)) == 21)
        before, began, calls = count_lists(environment), environment.clock.now, []
        for n, body in enumerate(bodies):
            body["metadata"]["resourceVersion"] = str(900_000 + n)
            calls.append(handling("timer")(body))
            await pass_time(environment, 1)
        await environment.clock.move_until(lambda: all(call.done() for call in calls))
        assert count_lists(environment) - before <= (environment.clock.now - began) / 15 + 1


async def test_a_comparison_that_takes_longer_than_15_s_does_not_cost_a_list_of_the_stream() -> None:
    """The metadata of a large kind takes 16 s to list. Nothing is wrong with the server, and nothing is
    missing."""
    async with gated("app=web", pod("a", **WEB)) as environment:
        before = count_lists(environment)
        opened = count_openings(environment.informer.state.reflectors[0].comparison)
        held = environment.cluster.faults.add(Silence(), verb="list", resource="pods", where=is_comparison)
        call = handling("event")(environment.cluster.create(pod("other", app="db"))[0])
        await until(lambda: held.hits)
        await pass_time(environment, 16)
        held.release()
        await until(call.done)
        assert count_lists(environment) == before
        assert opened() == 0


def is_comparison(asked: Asked) -> bool:
    return asked.query.get("resourceVersionMatch") == "NotOlderThan"


async def test_a_list_whose_pages_fail_is_not_begun_anew_by_callers_that_ask_for_one() -> None:
    async with gated("app=web", *(pod(f"a{n:02}", **WEB) for n in range(40)), page_limit=1) as environment:
        (reflector,) = environment.informer.state.reflectors
        failed: set[str] = set()

        def fails_once(asked: Asked) -> bool:
            token = asked.query.get("continue", "")
            is_first = bool(token) and token not in failed
            failed.add(token)
            return is_first

        lists = reflector.writer.lists
        environment.cluster.faults.add(Gone(), verb="watch", resource="pods", times=1)
        environment.cluster.faults.add(Refuse(500), verb="list", resource="pods", where=fails_once)
        environment.cluster.cut("watch", "pods")
        await environment.clock.move_until(lambda: reflector.writer.lists == lists + 1)
        while reflector.writer.commits < 2 and reflector.writer.lists < lists + 3:
            reflector.relist(MetricReason.AUDIT)  # So do handlers that have waited for 15 s.
            await pass_time(environment, 1)
        assert reflector.writer.lists == lists + 1


@pytest.mark.parametrize("with_handler", [False, True])
async def test_after_an_outage_the_watch_goes_on_without_a_list(with_handler: bool) -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        (other,) = environment.cluster.create(pod("other", app="db"))
        environment.cluster.stop_listening()
        comparison = environment.informer.state.reflectors[0].comparison
        await environment.clock.move_until(lambda: not comparison.is_open)
        call = handling("timer")(other) if with_handler else None
        await pass_time(environment, 30)
        environment.cluster.listen_again()
        await environment.clock.move_until(lambda: comparison.is_open and (call is None or call.done()))
        assert not environment.informer.counts.relists


async def test_many_streams_are_waited_for_together() -> None:
    namespaces = ["shop", "infra", *(f"ns-{n}" for n in range(4))]
    async with gated(Selector("app=web", namespaces=namespaces), pod("a", **WEB)) as environment:
        (other,) = environment.cluster.create(pod("other", app="db"))
        other["metadata"]["resourceVersion"] = "999999"
        before, began = count_lists(environment), environment.clock.now
        call = handling("event")(other)
        await environment.clock.move_until(call.done)
        assert environment.clock.now - began < len(namespaces) * 15
        assert count_lists(environment) - before <= len(namespaces)


async def test_retry_after_is_honoured_also_if_the_waiting_callers_have_gone() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        refused = environment.cluster.faults.add(Refuse(429, retry_after=30), verb="list", resource="pods")
        (other,) = environment.cluster.create(pod("other", app="db"))
        comparison = environment.informer.state.reflectors[0].comparison
        for _ in range(20):
            call = handling("event")(other)
            await until(lambda: comparison._failures)
            await environment.clock.move(1)
            call.cancel()
        assert len(refused.hits) == 1
        await environment.clock.move(20)
        call = handling("event")(other)
        await until(lambda: len(refused.hits) == 2)
        refused.release()
        await environment.clock.move_until(call.done)


class WrongVersion(Server):
    """A server, or a proxy, that gives each list of metadata the same version, whatever is asked for."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self.comparisons = 0
        self._version = version

    def _chosen(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        if not path.endswith("/pods"):
            return super()._chosen(path, query, headers)
        if "watch" in query:
            return streamed(event("MODIFIED", served("a", "101")))
        is_metadata = "PartialObjectMetadata" in headers.get("accept", "")
        self.comparisons += is_metadata
        return listed(self._version if is_metadata else "101", served("a", "101"))


@pytest.mark.parametrize("version", ["101", "abc"], ids=["older", "no number"])
async def test_a_list_of_another_version_than_was_asked_for_is_a_failure_that_is_paid_for(
    version: str,
) -> None:
    async with WrongVersion(version) as server, operating(server) as environment:
        await environment.synced()
        await until(lambda: environment.informer.state.version == "101")
        comparison, began = environment.informer.state.reflectors[0].comparison, environment.time.now
        waits = comparison.wait("500")
        await until(lambda: server.comparisons == 10)
        assert environment.time.now - began > 60
        assert not waits.done()
        waits.cancel()


def test_9_a_stream_whose_watch_ends_during_the_wait_for_another_is_waited_for() -> None:
    """It had caught up with the server when the handler began to wait. Then its watch ends before it has
    delivered a change from before the event."""

    def read(cache: Any, **_: Any) -> list[str]:
        return sorted(each["metadata"]["resourceVersion"] for each in cache.list_cached("pods"))

    async def main() -> None:
        filters = [Selector("app=web", namespaces=["shop"]), Selector("app=db", namespaces=["infra"])]
        other = pod("d", namespace="infra", app="db")
        async with gated(filters, pod("a", **WEB), other) as environment:
            cluster = environment.cluster
            await environment.catch_up()
            first, second = environment.informer.state.reflectors
            slow, lost = (cluster.inject(Silence(), "pods", namespace=each) for each in ("shop", "infra"))
            sibling = cluster.patch(other, {"metadata": {"annotations": {"seen": "new"}}})
            changed = cluster.patch(pod("a"), {"metadata": {"annotations": {"seen": "new"}}})
            call = handling("event", read)(changed)
            await environment.clock.move(0.1)
            second.comparison.close()  # As its reflector notes the end of the watch.
            slow.release()
            await until(lambda: first.version == changed["metadata"]["resourceVersion"])
            await environment.clock.move(0.1)
            assert not call.done()
            lost.release()
            cluster.bookmark()
            await environment.clock.move_until(call.done)
            assert await call == [each["metadata"]["resourceVersion"] for each in (sibling, changed)]

    run(main())
