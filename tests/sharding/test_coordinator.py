"""Replicas agree who handles which range, by Leases and one ConfigMap of the embedded API server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

import pytest

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.assignment.records import ANNOTATION
from kopf_selectcache.core.assignment.replica import WORKS, Stage
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.sharding.coordinator import REACH_SECONDS, Coordinator
from tests.faults.environment import run

from .environment import GROUP, NAMESPACE, Acting, fleet


def ranges_in(coordinator: Coordinator, stage: Stage) -> set[int]:
    return {hold.range for hold in coordinator.state.holds if hold.stage is stage}


async def test_the_ranges_of_a_dead_replica_go_to_the_others() -> None:
    async with fleet() as replicas:
        for name in ("a", "b", "c"):
            replicas.start(name)
        await replicas.until(lambda: sorted(replicas.owned().values()) == [21, 21, 22])
        killed_at = replicas.clock.now
        replicas.kill("b")
        await replicas.until(lambda: len(replicas.log.acting) == 64)
        assert set(replicas.log.acting.values()) == {"a", "c"}
        assert 24 < replicas.clock.now - killed_at <= 50, "nobody takes from the living"
        assert replicas.log.overlaps == []


async def test_a_new_replica_gets_its_part_and_a_leaving_one_gives_its_own_away() -> None:
    async with fleet() as replicas:
        for name in ("a", "b"):
            replicas.start(name)
        await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
        replicas.start("c")
        await replicas.until(lambda: sorted(replicas.owned().values()) == [21, 21, 22])
        left = replicas.replicas["a"]
        left.coordinator.leave()
        await replicas.until(left.tasks[1].done)
        assert replicas.log.of("a") == set()
        await replicas.until(lambda: sorted(replicas.owned().values()) == [0, 32, 32])
        assert replicas.log.overlaps == []


async def test_a_replica_without_a_server_stops_before_another_takes_its_ranges() -> None:
    async with fleet() as replicas:
        for name in ("a", "b"):
            replicas.start(name)
        await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
        token = replicas.replicas["a"].coordinator
        token._transport.send = token._transport.get = _never  # type: ignore[method-assign]
        await replicas.until(lambda: replicas.owned() == {"a": 0, "b": 64})
        stopped = [line for line in replicas.log.lines if line.startswith("a -")]
        assert len(stopped) == 32
        assert replicas.log.overlaps == []


ASSIGNMENT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": f"{GROUP}-shards", "namespace": NAMESPACE},
}


async def _never(*_: object, **__: object) -> bytes:
    raise Unreachable("the network is cut")


async def test_a_replica_with_other_settings_handles_nothing_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fleet() as replicas:
        replicas.start("a")
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        other = replicas.start("b", ranges=16)
        await replicas.until(lambda: other.coordinator.is_over)
        assert replicas.owned() == {"a": 64, "b": 0}
    assert "This replica handles nothing: " in caplog.text


async def test_a_deleted_assignment_is_made_anew_and_nothing_is_handled_twice() -> None:
    async with fleet() as replicas:
        for name in ("a", "b"):
            replicas.start(name)
        await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
        replicas.cluster.delete(ASSIGNMENT)
        deleted_at = replicas.clock.now
        await replicas.until(lambda: len(replicas.log.lines) > 64)
        await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
        assert replicas.clock.now - deleted_at <= 12, "docs/replicas.md says about 8 seconds"
        assert replicas.log.overlaps == []


async def test_an_edited_assignment_is_made_anew_and_nothing_is_handled_twice() -> None:
    async with fleet() as replicas:
        for name in ("a", "b"):
            replicas.start(name)
        await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
        data = replicas.cluster.get(ASSIGNMENT)["data"]
        edited = data["assignment"].replace('"owner":"a/', '"owner":"b/')
        replicas.cluster.patch(ASSIGNMENT, {"data": {"assignment": edited}})
        stopped = {f"{name} -{range_}" for range_, name in replicas.log.acting.items()}
        await replicas.until(lambda: stopped <= {*replicas.log.lines})
        await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
        assert replicas.log.overlaps == []


async def test_of_two_processes_with_one_name_one_handles_and_the_other_says_why_it_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fleet() as replicas:
        first = replicas.start("a")
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        second = replicas.start("a")
        replicas.replicas["first"] = first
        await replicas.until(lambda: replicas.clock.now > 1100)
        assert second.coordinator.status().condition.startswith("another process, a/process0-1, holds")
        assert len(first.coordinator.status().acting) == 64
        assert second.coordinator.status().unowned == (), "the other one owns them all"
        assert replicas.log.overlaps == []
    (line,) = [each for each in caplog.records if "another process" in each.getMessage()]
    assert line.levelname == "WARNING"
    assert "have had no owner" not in caplog.text


async def test_a_replica_that_divides_in_another_way_joins_once_the_others_are_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fleet() as replicas:
        replicas.start("a")
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        other = replicas.start("b", ranges=32)
        await replicas.until(lambda: "This replica handles nothing: " in caplog.text)
        assert "a divides 64 ranges" in other.coordinator.status().condition
        now = replicas.clock.now
        await replicas.until(lambda: replicas.clock.now > now + 200)
        assert replicas.owned() == {"a": 64, "b": 0}
        assert caplog.text.count("This replica handles nothing: ") == 1, "it has said so"
        replicas.kill("a")
        killed_at = replicas.clock.now
        await replicas.until(lambda: replicas.owned() == {"b": 32} or other.tasks[1].done())
        assert replicas.owned() == {"b": 32}
        assert replicas.clock.now - killed_at <= 100, "it looks once in the time of a Lease"
        assert replicas.log.overlaps == []
    assert "another process" not in caplog.text, "its own Lease is from an earlier life"
    assert "Replica a of webapps has not renewed its Lease for 40 s: others take its ranges." in caplog.text


async def test_a_replica_that_is_refused_can_leave() -> None:
    async with fleet() as replicas:
        replicas.start("a")
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        other = replicas.start("b", ranges=32)
        await replicas.until(lambda: other.coordinator.is_over)
        other.coordinator.leave()
        await replicas.until(other.tasks[1].done)
        assert replicas.owned() == {"a": 64, "b": 0}


@pytest.mark.parametrize("change", ["delete", "edit"])
async def test_the_reason_why_a_replica_cannot_go_on_is_a_warning(
    change: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="kopf_selectcache")
    async with fleet() as replicas:
        replicas.start("a")
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        assert not [each for each in caplog.records if each.levelname == "WARNING"]
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        metadata = {"name": f"{GROUP}-shard-a", "namespace": NAMESPACE}
        if change == "delete":
            replicas.cluster.delete(ASSIGNMENT)
        else:
            edited = {**lease, "metadata": metadata}
            replicas.cluster.patch(edited, {"metadata": {"annotations": {ANNOTATION: "edited"}}})
        await replicas.until(lambda: replicas.owned() == {"a": 0})
        await replicas.until(lambda: replicas.owned() == {"a": 64})
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    what = "there is no assignment" if change == "delete" else "somebody has edited its Lease"
    assert any(what in each for each in warned), warned
    assert "handles 0 of 0" not in caplog.text


async def test_a_replica_that_slept_for_an_hour_writes_nothing_and_begins_anew() -> None:
    async with fleet() as replicas:
        sleeper = replicas.start("a")
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        term = sleeper.coordinator.term_of(7)
        assert term is not None
        assert sleeper.coordinator.time_left(7, term) == 5.0, "the longest time of a write"
        replicas.clock.now += 3600  # Nobody has woken it: the machine was suspended.
        assert sleeper.coordinator.time_left(7, term) == 0.0
        assert sleeper.coordinator.term_of(7) is None
        replicas.start("b")
        await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
        assert replicas.log.overlaps == []
        assert sleeper.coordinator.time_left(7, term) == 0.0, "a run from before writes nothing"


async def test_missing_permissions_are_logged_once_and_nothing_is_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fleet() as replicas:
        token = replicas.cluster.user("nobody", [])
        replica = replicas.start("a", token=token)
        await replicas.until(lambda: replica.coordinator.requests > 5)
        assert replicas.owned() == {"a": 0}
        assert replica.coordinator.status().condition == "it has no Lease yet"
    told = [text for each in caplog.records if "may not use its Lease" in (text := each.getMessage())]
    assert ["leases" in told[0], "configmaps" in told[1], len(told)] == [True, True, 2]


async def test_three_replicas_send_few_requests() -> None:
    async with fleet() as replicas:
        for name in ("a", "b", "c"):
            replicas.start(name)
        await replicas.until(lambda: sorted(replicas.owned().values()) == [21, 21, 22])
        sent = {each: each.coordinator.requests for each in replicas.replicas.values()}
        end = replicas.clock.now + 300
        await replicas.until(lambda: replicas.clock.now > end)
        assert all(each.coordinator.requests - before <= 31 for each, before in sent.items()), (
            "one renewal in ten seconds"
        )


async def test_a_bug_ends_a_replicas_work_and_it_joins_again_under_another_identity(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fleet() as replicas:
        broken, cooled = replicas.start("a"), set[int]()

        class Cooling(Acting):
            def cool(self, ranges: Collection[int]) -> None:
                cooled.update(ranges)

        broken.coordinator.ranges = Cooling("a", replicas.log)
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        before = broken.coordinator.status().identity
        tell = broken.coordinator._tell

        def fail() -> None:
            broken.coordinator._tell = tell  # type: ignore[method-assign]
            raise ValueError("a bug")

        broken.coordinator._tell = fail  # type: ignore[method-assign]
        await replicas.until(lambda: replicas.owned() == {"a": 0})
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        assert broken.coordinator.status().identity != before
        assert len(cooled) == 64, "it may not get all of them again"
        assert replicas.log.overlaps == []
    assert "stops because of a bug in kopf_selectcache, and joins again" in caplog.text


@pytest.mark.parametrize("answer", [b"{}", b'{"metadata": {}, "items": 7}', b"\xff"])
async def test_answers_that_make_no_sense_end_no_replica(answer: bytes) -> None:
    async with fleet() as replicas:
        replica = replicas.start("a")
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        transport = replica.coordinator._transport
        send, get = transport.send, transport.get

        async def garbage(*_: object, **__: object) -> bytes:
            return answer

        transport.send = transport.get = garbage  # type: ignore[method-assign]
        await replicas.until(lambda: replicas.owned() == {"a": 0})
        transport.send, transport.get = send, get  # type: ignore[method-assign]
        await replicas.until(lambda: replicas.owned() == {"a": 64})


def test_ranges_that_stay_unowned_are_logged_once_and_once_that_all_have_an_owner(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    def told() -> list[str]:
        return [text for each in caplog.records if "owner" in (text := each.getMessage())]

    async def main() -> None:
        async with fleet() as replicas:
            first, warm = replicas.start("a").coordinator, asyncio.Event()
            replicas.start("b")
            await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
            assert told() == [], "nobody has to know of ranges that move"

            class Slow(Acting):
                async def warm(self, range_: int) -> None:
                    await warm.wait()

            first.ranges = Slow("a", replicas.log)
            replicas.kill("b")
            await replicas.until(lambda: len(first.status().unowned) == 32)
            unowned_at = replicas.clock.now
            await replicas.until(lambda: replicas.clock.now > unowned_at + 30)
            assert told() == []
            await replicas.until(lambda: replicas.clock.now > unowned_at + 200)
            since = "since 2025-12-31T23:59:"  # It is always midnight here.
            assert [text.partition(since)[0] for text in told()] == [
                "32 of 64 ranges of webapps have had no owner "
            ]
            warm.set()
            await replicas.until(lambda: replicas.owned() == {"a": 64})
            assert told()[1:] == ["All ranges of webapps have an owner again."]

    run(main())


async def test_a_range_is_handled_once_the_caches_have_the_writes_of_its_last_owner() -> None:
    async with fleet() as replicas:
        replica, reached, versions = replicas.start("a"), asyncio.Event(), list[str]()
        coordinator = replica.coordinator
        ranges, leases_now, failures = coordinator.ranges, coordinator._leases_now, [Unreachable("no")]

        async def reach(version: str) -> None:
            versions.append(version)
            await reached.wait()

        async def failing_once() -> Any:
            if failures and ranges_in(coordinator, Stage.CATCHING_UP):
                raise failures.pop()
            return await leases_now()

        ranges.reach = reach  # type: ignore[method-assign]
        coordinator._leases_now = failing_once  # type: ignore[method-assign]

        def catching_up() -> int:
            return len(ranges_in(coordinator, Stage.CATCHING_UP))

        await replicas.until(lambda: catching_up() == 64 and versions)
        taken_at = coordinator.state.seen
        assert taken_at is not None
        assert int(versions[0]) >= int(taken_at.version)
        assert replicas.owned() == {"a": 0}
        assert coordinator.term_of(7) is None, "no run may begin"
        replicas.cluster.delete(ASSIGNMENT)
        await replicas.until(lambda: not catching_up())
        await replicas.until(lambda: catching_up() == 64)
        assert replicas.log.lines == [], "nothing has begun"
        reached.set()
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        assert coordinator.term_of(7) is not None
        assert replicas.log.overlaps == []


async def test_whoever_gets_a_range_whose_runs_were_cancelled_waits_for_their_last_writes() -> None:
    async with fleet() as replicas:
        drained, started = dict[int, float](), dict[int, float]()

        class Cancelling(Acting):
            async def drain(self, range_: int) -> bool:
                await super().drain(range_)
                drained[range_] = replicas.clock.now
                return bool(range_ % 2)

            def start(self, ranges: Collection[int]) -> None:
                super().start(ranges)
                started.update(dict.fromkeys(ranges, replicas.clock.now))

        for name in ("a", "b"):
            replicas.start(name).coordinator.ranges = Cancelling(name, replicas.log)
            await replicas.until(lambda: len(replicas.log.acting) == 64)
        await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
        waits = {range_: started[range_] - drained[range_] for range_ in drained}
        assert min(wait for range_, wait in waits.items() if not range_ % 2) >= 5.0
        assert min(wait for range_, wait in waits.items() if range_ % 2) < 5.0
        assert replicas.log.overlaps == []


async def test_ranges_whose_caches_do_not_come_on_wait_for_some_time_and_have_no_owner_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with fleet() as replicas:
        replicas.start("a")
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        late, begun, started = replicas.start("b").coordinator, dict[int, float](), dict[int, float]()

        class Late(Acting):
            async def reach(self, version: str) -> None:
                late_ones = ranges_in(late, Stage.CATCHING_UP)
                begun.update({each: replicas.clock.now for each in late_ones if each not in begun})
                await asyncio.Event().wait()

            def start(self, ranges: Collection[int]) -> None:
                super().start(ranges)
                started.update(dict.fromkeys(ranges, replicas.clock.now))

        late.ranges = Late("b", replicas.log)
        await replicas.until(lambda: ranges_in(late, Stage.CATCHING_UP))
        found = late.status()
        assert (found.condition, found.acting) == (WORKS, ())
        assert {*found.unowned} >= ranges_in(late, Stage.CATCHING_UP)
        await replicas.until(lambda: replicas.owned()["b"] == 32)
        waits = [started[range_] - begun[range_] for range_ in started]
        assert max(waits) <= REACH_SECONDS + 1, "none waits for what came before it"
        assert late.status().unowned == ()
        assert len(late.status().acting) == 32
        assert replicas.log.overlaps == []
    assert "although its caches have not reached the present state of the server in 60 s" in caplog.text
    assert "ranges of webapps have had no owner" in caplog.text
    assert "All ranges of webapps have an owner again" in caplog.text


async def test_a_list_that_is_refused_is_logged_and_delays_ranges_for_some_time_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with fleet() as replicas:
        coordinator = replicas.start("a").coordinator
        leases_now = coordinator._leases_now

        async def refused() -> Any:
            if ranges_in(coordinator, Stage.CATCHING_UP):
                raise Refused(Refusal(403, "Forbidden", "no list of leases"))
            return await leases_now()

        coordinator._leases_now = refused  # type: ignore[method-assign]
        begun_at = replicas.clock.now
        await replicas.until(lambda: replicas.owned()["a"] or replicas.clock.now > begun_at + 200)
        assert replicas.owned() == {"a": 64}
    assert "can't do its part, because it may not use its Lease" in caplog.text
    assert "no list of leases" in caplog.text


async def test_a_replica_that_is_to_leave_leaves_although_it_has_a_bug() -> None:
    async with fleet() as replicas:
        broken = replicas.start("a")
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        tell = broken.coordinator._tell

        def fail() -> None:
            broken.coordinator._tell = tell  # type: ignore[method-assign]
            raise ValueError("a bug")

        broken.coordinator._tell = fail  # type: ignore[method-assign]
        broken.coordinator.leave()
        begun_at = replicas.clock.now
        await replicas.until(lambda: broken.tasks[1].done() or replicas.clock.now > begun_at + 100)
        assert broken.tasks[1].done()


async def test_ranges_that_go_are_cooled_in_few_steps_and_all_where_other_replicas_have_other_settings() -> (
    None
):
    async with fleet() as replicas:
        cools = list[set[int]]()

        class Cooling(Acting):
            def cool(self, ranges: Collection[int]) -> None:
                cools.append({*ranges})

        first = replicas.start("a")
        first.coordinator.ranges = Cooling("a", replicas.log)
        await replicas.until(lambda: replicas.owned() == {"a": 64})
        replicas.start("b")
        await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
        await replicas.until(lambda: len(set[int]().union(*cools)) == 32)
        assert sum(map(len, cools)) == 32
        assert len(cools) < 32
        other = replicas.start("c", ranges=16)
        other.coordinator.ranges = Cooling("c", replicas.log)
        cools.clear()
        await replicas.until(lambda: other.coordinator.is_over)
        assert cools == [{*range(16)}]
