"""How a cache is called while things go wrong: what is read meanwhile, and when nobody should wait for it any
more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kopf_selectcache import Forbidden, NotSynced, Stale
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.errors import Stalled
from kopf_selectcache.informer.health import LASTING_ANSWERS, TOLERATED_SECONDS, Health
from kopf_selectcache.informer.metrics import Collector
from kopf_selectcache.plugin.operator import failing
from tests.faults.environment import Environment, operating, until
from tests.faults.server import (
    Answer,
    Server,
    Then,
    bookmark,
    ended,
    error,
    event,
    held,
    listed,
    pod,
    refused,
    streamed,
)

LISTED = listed("100", pod("a", "90"))
NO = refused(403, "Forbidden", message="no")
DOWN = refused(503, "ServiceUnavailable")


def health(environment: Environment) -> Health:
    return environment.informer.state.health


def shown_as_synced(environment: Environment) -> float:
    """Return what Prometheus is shown."""
    collector = Collector(lambda: [environment.informer])
    (value,) = (
        sample.value
        for family in collector.collect()
        for sample in family.samples
        if sample.name == "kopf_selectcache_synced"
    )
    return float(value)


# ---- A server that has just started refuses everybody for some seconds.


async def test_a_server_that_starts_and_refuses_everybody_costs_no_read() -> None:
    down, up = asyncio.Event(), asyncio.Event()
    watches = [
        streamed(bookmark("101"), down, then=Then.CLOSE),
        *[NO] * 4,
        held(up, streamed(event("ADDED", pod("b", "105")))),
    ]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        seen: list[Change | None] = []
        await until(lambda: environment.informer.state.store.version == "101")
        environment.informer.subscribe(seen.append)
        down.set()
        await environment.watched(6)
        assert environment.time.slept == [0.5, 1.0, 2.0, 4.0, 8.0], "it is asked quickly"
        assert health(environment) is Health.STALE
        assert environment.names() == ["a@90"]
        with pytest.raises(Stale):
            environment.cache.list_cached("pods", max_age=5)
        up.set()
        await environment.holds("a@90", "b@105")
        await until(lambda: environment.informer.state.is_synced)
        assert None not in seen, "nobody was told that it could not be read"
        assert len(server.pods.listed) == 1


async def test_a_right_that_is_missing_for_as_long_as_no_server_takes_to_start_was_revoked() -> None:
    revoked, granted = asyncio.Event(), asyncio.Event()
    watches = [
        streamed(bookmark("101"), revoked, error(403, message="no")),
        *[NO] * 6,
        held(granted, streamed()),
    ]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await until(lambda: environment.informer.state.store.version == "101")
        revoked.set()
        await environment.watched(6)
        assert health(environment) is Health.STALE
        await environment.watched(7)
        assert health(environment) is Health.FORBIDDEN
        assert environment.time.slept == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
        with pytest.raises(Forbidden):
            environment.names()
        granted.set()
        await environment.synced()
        assert environment.names() == ["a@90"]


@pytest.mark.parametrize("between", [DOWN, Answer((b"no HTTP\r\n\r\n",))], ids=["503", "no HTTP"])
async def test_one_old_refusal_is_not_enough_and_other_failures_prove_no_missing_right(
    between: Answer,
) -> None:
    gates = [asyncio.Event() for _ in range(LASTING_ANSWERS)]
    watches = [
        streamed(bookmark("101"), gates[0], error(403)),
        held(gates[1], NO),
        between,
        held(gates[2], NO),
    ]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        for gate in gates:
            await until(lambda: environment.informer.state.store.version)
            assert environment.names() == ["a@90"]
            environment.time.now += TOLERATED_SECONDS
            failures = environment.informer.counts.failures["403"]
            gate.set()
            # Before the next round.
            await until(lambda: environment.informer.counts.failures["403"] > failures)  # noqa: B023
        await until(lambda: health(environment) is Health.FORBIDDEN)


async def test_a_refusal_before_the_cache_recovered_does_not_count() -> None:
    again = asyncio.Event()
    watches = [
        streamed(error(403)),
        NO,
        streamed(bookmark("101"), again, error(403)),
        held(asyncio.Event(), NO),
    ]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await until(lambda: environment.informer.state.store.version == "101")
        environment.time.now += TOLERATED_SECONDS
        again.set()
        await environment.watched(4)
        assert health(environment) is Health.STALE


async def test_a_missing_right_is_logged_again_when_it_is_for_another_verb(
    warned: Callable[[], list[str]],
) -> None:
    other = refused(403, message="no, and in other words")
    async with (
        Server(lists=[NO, other, LISTED], watches=[NO, other, NO, streamed()]) as server,
        operating(server) as environment,
    ):
        await environment.synced()
        lines = warned()
        assert [line.split(": no")[0] for line in lines] == [
            "the operator does not have permission to list pods",
            "the operator does not have permission to watch pods",
        ]


# ---- Stale.


async def test_whatever_moves_the_version_confirms_the_held_state() -> None:
    gates = [asyncio.Event() for _ in range(2)]
    watches = [streamed(gates[0], event("ADDED", pod("b", "105")), gates[1], bookmark("110"))]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await environment.synced()
        for gate, version in zip(gates, ("105", "110"), strict=True):
            environment.time.now += 30.0
            assert environment.cache.info("pods").age == 30.0
            gate.set()
            # Before the next round.
            await until(lambda: environment.informer.state.store.version == version)  # noqa: B023
            assert environment.cache.info("pods").age == 0.0


async def test_a_cache_that_has_not_followed_for_a_while_is_stale_and_read_as_before() -> None:
    down, up = asyncio.Event(), asyncio.Event()
    watches = [streamed(down, error(500)), held(up, streamed())]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await environment.synced()
        environment.time.now += 2 * TOLERATED_SECONDS
        assert environment.informer.state.is_synced, "where nothing is wrong, time alone changes nothing"
        down.set()
        await environment.watched(2)
        environment.time.now += TOLERATED_SECONDS - 1
        assert health(environment) is Health.SYNCED
        assert shown_as_synced(environment) == 1
        environment.time.now += 1
        assert health(environment) is Health.STALE
        assert shown_as_synced(environment) == 0
        assert environment.names() == ["a@90"]
        up.set()
        await environment.synced()
        assert health(environment) is Health.SYNCED


async def test_a_cache_fails_the_probe_once_it_has_been_in_a_state_for_as_long_as_is_allowed() -> None:
    down, denied, up = asyncio.Event(), asyncio.Event(), asyncio.Event()
    watches = [streamed(down, error(500)), held(denied, refused(403)), held(up, streamed())]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        limits = {"stale": 120.0, "forbidden": 0.0}

        def fails() -> str:
            return failing(environment.runtime.informers.values(), limits)

        await environment.synced()
        environment.time.now += 1_000
        assert not fails(), "a cache that is synced has been so for long"
        down.set()
        await environment.watched(2)
        environment.time.now += TOLERATED_SECONDS
        assert (health(environment), fails()) == (Health.STALE, "")
        environment.time.now += 100  # Waits between attempts take time as well.
        assert not fails()
        denied.set()  # Another reason does not begin a new state.
        await environment.watched(3)
        assert (health(environment), fails()) == (Health.STALE, "")
        environment.time.now += 20
        assert fails().startswith(
            "The cache of pods has been stale for 120 s or more: the operator does not have"
            " permission to watch pods. "
        )
        up.set()
        await environment.synced()
        environment.time.now += 1_000
        assert not fails()


async def test_a_cache_has_been_in_a_state_since_the_first_of_its_lists_and_watches_was() -> None:
    async with (
        Server(lists=[LISTED]) as server,
        operating(server, selectors={"pods": ["app=web", "app=db,tier=x"]}) as environment,
    ):
        await until(
            lambda: (
                environment.informer.state.has_several_streams and not environment.informer.state.is_resolving
            )
        )
        first, second = environment.informer.state.conditions
        first.fail(Refusal(404), verb="list")
        environment.time.now += 5
        second.fail(Refusal(404), verb="list")
        environment.time.now += 2
        assert (environment.informer.state.health, environment.informer.state.lasted()) == (Health.MISSING, 7)


async def test_a_complete_list_that_cannot_be_followed_is_served_as_stale_in_the_end() -> None:
    up = asyncio.Event()
    watches = [DOWN] * 3 + [held(up, streamed())]
    async with (
        Server(lists=[LISTED], watches=watches) as server,
        operating(server, sync_timeout=1.5) as environment,
    ):
        await environment.watched(3)
        assert health(environment) is Health.SYNCING
        await environment.informer.wait_until_settled()
        await environment.watched(4)
        assert health(environment) is Health.STALE
        assert environment.names() == ["a@90"]
        up.set()
        await environment.synced()


# ---- Stalled.


def unserved(server: Server, then: asyncio.Event) -> None:
    found = server.scripts["/api/v1"].lists[0]
    server.scripts["/api/v1"].lists[:] = [*[DOWN] * 7, held(then, found)]
    server.pods.lists[:] = [LISTED]


def unlisted(server: Server, then: asyncio.Event) -> None:
    server.pods.lists[:] = [*[DOWN] * 7, held(then, LISTED)]


@pytest.mark.parametrize("failing", [unserved, unlisted])
async def test_nobody_waits_for_ever_for_a_first_list_that_does_not_come(
    failing: Callable[[Server, asyncio.Event], None], warned: Callable[[], list[str]]
) -> None:
    async with Server() as server:
        up = asyncio.Event()
        failing(server, up)
        async with operating(server, sync_timeout=20.0) as environment:
            seen: list[Change | None] = []
            environment.informer.subscribe(seen.append)
            await until(lambda: environment.informer.counts.failures["503"] == 6)
            assert health(environment) is Health.SYNCING
            with pytest.raises(NotSynced):
                environment.names()
            await environment.informer.wait_until_settled()
            await until(lambda: len(environment.time.slept) == 7)
            assert health(environment) is Health.STALLED
            assert seen == [None]
            with pytest.raises(Stalled) as caught:
                environment.names()
            assert caught.value.code == 503
            with pytest.raises(Stalled):
                await environment.cache.wait_synced()
            assert len(warned()) == 2, "the trouble, and what comes of it"
            up.set()
            await environment.synced()
            assert environment.names() == ["a@90"]


async def test_a_stream_that_is_accepted_and_breaks_off_again_and_again_stays_stalled(
    warned: Callable[[], list[str]],
) -> None:
    watches = [ended(event("ADDED", pod("a", "90")))] * 3
    lists = [DOWN] * 3
    async with (
        Server(lists=lists, watches=watches) as server,
        operating(server, initial="stream", sync_timeout=0.5) as environment,
    ):
        await environment.listed(4)
        assert health(environment) is Health.STALLED
        assert len([line for line in warned() if "Meanwhile" in line]) == 1


SENSELESS = {
    "a list without a version": (listed(""), "a PodList came without a resourceVersion"),
    "an object without a uid": (
        listed(
            "100",
            pod("a", "90"),
            {"kind": "Pod", "metadata": {"name": "bad", "namespace": "shop", "resourceVersion": "9"}},
        ),
        "an object of kind Pod, shop/bad, came without a name, uid or resourceVersion",
    ),
}


@pytest.mark.parametrize("senseless", SENSELESS)
async def test_a_list_that_never_makes_sense_is_not_waited_for(senseless: str) -> None:
    given, why = SENSELESS[senseless]
    up = asyncio.Event()
    async with (
        Server(lists=[*[given] * LASTING_ANSWERS, held(up, LISTED)]) as server,
        operating(server) as environment,
    ):
        await environment.informer.wait_until_settled()
        with pytest.raises(Stalled, match=why):
            environment.names()
        up.set()
        await environment.synced()
        assert environment.time.slept == [0.5, 1.0, 2.0]
        assert environment.names() == ["a@90"]


async def test_only_answers_in_a_row_that_make_no_sense_are_certain() -> None:
    senseless = listed("")
    lists = [senseless, senseless, DOWN, senseless, senseless]
    async with Server(lists=lists) as server, operating(server) as environment:
        await environment.listed(6)
        assert health(environment) is Health.SYNCING


async def test_the_wait_begins_anew_once_a_missing_right_is_granted() -> None:
    gone = asyncio.Event()
    watches = [NO, streamed(event("ADDED", pod("a", "90")), gone, error(500)), ended()]
    async with (
        Server(watches=watches) as server,
        operating(server, initial="stream", sync_timeout=30.0) as environment,
    ):
        await until(lambda: environment.informer.counts.events)
        environment.time.now += 25.0
        gone.set()
        await environment.watched(3)
        assert health(environment) is Health.SYNCING


async def test_a_wait_that_begins_once_a_missing_right_is_granted_lasts_until_the_sync() -> None:
    gate = asyncio.Event()
    stream = streamed(gate, event("ADDED", pod("a", "90")), bookmark("100", end=True))
    async with Server(watches=[NO, stream]) as server, operating(server, initial="stream") as environment:
        await environment.informer.wait_until_settled()
        assert health(environment) is Health.FORBIDDEN
        await until(lambda: health(environment) is Health.SYNCING)
        waiting = asyncio.create_task(environment.cache.wait_synced(timeout=30))
        await asyncio.sleep(0)
        gate.set()
        await waiting
        assert environment.names() == ["a@90"]


async def test_mistakes_of_ours_are_not_waited_for_either(caplog: pytest.LogCaptureFixture) -> None:
    async with Server(lists=[LISTED]) as server, operating(server, sync_timeout=60.0) as environment:
        environment.informer.resolver.plan = None  # type: ignore[assignment,method-assign]  # A mistake that is made each time.
        await environment.informer.wait_until_settled()
        assert health(environment) is Health.STALLED
        assert "TypeError" in environment.informer.state.message
        assert "Report it" in environment.informer.state.remedy
        assert caplog.text.count("failed because of a bug") == 3


# ---- Who is told of changes.


async def test_a_listener_that_fails_keeps_no_change_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: Change | None) -> None:
        raise KeyError("mine")

    go = asyncio.Event()
    watches = [streamed(go, event("MODIFIED", pod("a", "101")), event("ADDED", pod("b", "102")))]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await environment.holds("a@90")
        seen: list[Change | None] = []
        environment.informer.subscribe(fail)
        environment.informer.subscribe(seen.append)
        go.set()
        await environment.holds("a@101", "b@102")
        assert [change.after.version for change in seen if change and change.after] == ["101", "102"]
        assert len(server.pods.watched) == 1, "nothing is asked for again"
        assert caplog.text.count("A subscriber to the changes of pods failed") == 2
