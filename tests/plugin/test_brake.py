"""Calls that go on without end because they write: how often they are made, in whole operators and in virtual
time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.cache.noting import WriteTarget, Written, notes
from kopf_selectcache.plugin.brake import (
    LIMIT_CALLS,
    LONGEST_PAUSE_SECONDS,
    MOST_CHANGES,
    MOST_TARGETS,
    QUIET_SECONDS,
    Brake,
    Chains,
)
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.api.status import Problem
from tests.faults.environment import until
from tests.plugin.reconciling import APPS, app, config, operated, serving
from tests.plugin.virtual import Times

PERIOD = 150.0
"""Seconds in which the versions are counted."""

FEW = 2 * LIMIT_CALLS
"""The calls in this time at most: the first ones, and then one after each pause."""

ENDLESS = 2000
"""Calls after which a handler gives up, so that a test ends."""


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "are delayed" in each.getMessage()]


def has_status(cluster: EmbeddedCluster, wanted: dict[str, int]) -> bool:
    return bool(cluster.get(app()).get("status") == wanted)


def status(count: int) -> dict[str, Any]:
    return {"status": {"count": count}}


async def test_17_writes_of_a_reconciler_to_its_own_object_do_not_call_it_without_end(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry, id="follow")
    async def follow(cache: selectcache.Cache, name: str, **_: Any) -> None:
        calls.append(name)
        if len(calls) < ENDLESS:
            await cache.live.patch(APPS, name, status(len(calls)), namespace="shop", subresource="status")

    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        await asyncio.sleep(PERIOD)
        assert LIMIT_CALLS < len(calls) <= FEW
        before = len(calls)
        cluster.patch(app(), {"spec": {"size": 1}})  # Somebody else's change is not delayed.
        await times.until(lambda: len(calls) > before, within=LONGEST_PAUSE_SECONDS / 10)
    (warning,) = warnings_in(caplog)
    assert "Reconciler 'follow'" in warning
    assert "its own write to webapps.example.com shop/web" in warning


async def test_17_writes_in_a_thread_count_too(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr("kopf_selectcache.plugin.brake.QUIET_SECONDS", 60.0)  # The threads take real time.

    @selectcache.reconcile(APPS, registry=registry, id="follow")
    def follow(cache: selectcache.SyncCache, name: str, **_: Any) -> None:
        calls.append(name)
        if len(calls) < ENDLESS:
            cache.live.patch(APPS, name, status(len(calls)), namespace="shop", subresource="status")

    async with serving(app()) as cluster, operated(registry, cluster):
        await until(lambda: warnings_in(caplog) or len(calls) > 2 * LIMIT_CALLS)
    assert len(warnings_in(caplog)) == 1


async def test_17_writes_of_a_handler_of_changes_to_its_own_object_do_not_call_it_without_end(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @selectcache.on.change(APPS, registry=registry, id="follow")
    async def follow(cache: selectcache.Cache, name: str, **_: Any) -> None:
        calls.append(name)
        if len(calls) < ENDLESS:
            await cache.live.patch(APPS, name, status(len(calls)), namespace="shop", subresource="status")

    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        await asyncio.sleep(PERIOD)
        assert LIMIT_CALLS < len(calls) <= FEW
        before = len(calls)
        cluster.patch(app(), {"spec": {"size": 1}})
        await times.until(lambda: len(calls) > before, within=LONGEST_PAUSE_SECONDS / 10)
    (warning,) = warnings_in(caplog)
    assert "'follow'" in warning
    assert "its own write to webapps.example.com shop/web" in warning


def by_patch(registry: kopf.OperatorRegistry, calls: list[str]) -> None:
    """Declare two reconcilers, each with a field of the status that changes with each call."""

    async def follow(field: str, patch: kopf.Patch, **_: Any) -> None:
        calls.append(field)
        if len(calls) < ENDLESS:
            patch.status[field] = len(calls)

    for field in ("count", "other"):
        selectcache.reconcile(APPS, registry=registry, id=field)(partial(follow, field))


def by_write(registry: kopf.OperatorRegistry, calls: list[str]) -> None:
    """Declare two handlers of changes, each with a field of the status that changes with each call."""

    async def follow(field: str, cache: selectcache.Cache, name: str, **_: Any) -> None:
        calls.append(field)
        if len(calls) < ENDLESS:
            changed = {"status": {field: len(calls)}}
            await cache.live.patch(APPS, name, changed, namespace="shop", subresource="status")

    for field in ("count", "other"):
        selectcache.on.change(APPS, registry=registry, id=field)(partial(follow, field))


def by_difference(registry: kopf.OperatorRegistry, calls: list[str]) -> None:
    """Declare two handlers of changes, each of which writes what differs from the field of the other."""

    async def follow(
        field: str, source: str, cache: selectcache.Cache, name: str, body: Any, **_: Any
    ) -> None:
        seen = body.get("status") or {}
        wanted = seen.get(source, 0) + 1
        if seen.get(field) != wanted and len(calls) < ENDLESS:
            calls.append(field)
            await cache.live.patch(
                APPS, name, {"status": {field: wanted}}, namespace="shop", subresource="status"
            )

    for field, source in (("count", "other"), ("other", "count")):
        selectcache.on.change(APPS, registry=registry, id=field)(partial(follow, field, source))


def by_conflict(registry: kopf.OperatorRegistry, calls: list[str]) -> None:
    """Declare two handlers of changes that do not agree on the value of a field."""

    async def follow(
        field: str, value: int, cache: selectcache.Cache, name: str, body: Any, **_: Any
    ) -> None:
        if body.get("status") != {"count": value} and len(calls) < ENDLESS:
            calls.append(field)
            await cache.live.patch(APPS, name, status(value), namespace="shop", subresource="status")

    for field, value in (("count", 1), ("other", 2)):
        selectcache.on.change(APPS, registry=registry, id=field)(partial(follow, field, value))


@pytest.mark.parametrize("declare", [by_patch, by_write, by_difference, by_conflict])
async def test_17_two_handlers_whose_writes_call_each_other_are_slowed_down(
    declare: Any, registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    declare(registry, calls)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        await asyncio.sleep(PERIOD)
        assert 2 * LIMIT_CALLS <= len(calls) <= 2 * FEW
        before = len(calls)
        cluster.patch(app(), {"spec": {"size": 1}})  # Somebody else's change is not delayed.
        if declare in (by_patch, by_write):
            await times.until(lambda: len(calls) > before, within=LONGEST_PAUSE_SECONDS / 10)
    warnings = warnings_in(caplog)
    assert len(warnings) == 1
    assert "'count' and " in warnings[0]
    assert "'other' call each other for webapps.example.com shop/web" in warnings[0]
    assert "by their writes to webapps.example.com shop/web" in warnings[0]


async def test_17_two_handlers_that_write_the_objects_of_each_other_are_slowed_down(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @selectcache.reconcile(APPS, registry=registry, id="follow")
    async def follow(cache: selectcache.Cache, **_: Any) -> None:
        calls.append("app")
        if len(calls) < ENDLESS:
            await cache.live.patch(
                "configmaps", "child", {"data": {"size": str(len(calls))}}, namespace="shop"
            )

    @selectcache.on.change("configmaps", registry=registry, id="answer")
    async def answer(cache: selectcache.Cache, **_: Any) -> None:
        await cache.live.patch(APPS, "web", status(len(calls)), namespace="shop", subresource="status")

    async with serving(app(), config("child", size="0")) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        await asyncio.sleep(PERIOD)
        assert LIMIT_CALLS < len(calls) <= FEW
    (warning,) = warnings_in(caplog)
    assert "'answer' and Reconciler 'follow' call each other for" in warning
    assert "by their writes to configmaps shop/child, webapps.example.com shop/web" in warning


async def test_17_a_reconciler_whose_objects_are_deleted_each_time_is_slowed_down(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a restore: the uid of the owner is that of an object that has gone, so the garbage collector
    deletes what belongs to it."""
    calls: list[str] = []

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, id="follow")
    async def follow(cache: selectcache.Cache, name: str, body: Any, **_: Any) -> None:
        calls.append(name)
        if len(calls) < ENDLESS:
            metadata = {"name": name, "uid": "0a0a0a0a-0000-0000-0000-000000000000"}
            await cache.live.ensure(config("child", {**body, "metadata": metadata}))

    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        await asyncio.sleep(PERIOD)
        created = cluster.requests.where(verb="create", resource="configmaps")
        assert LIMIT_CALLS < len(created) <= FEW
        assert len(calls) <= 2 * FEW
    (warning,) = warnings_in(caplog)
    assert warning.startswith("Something undoes what Reconciler 'follow'")
    assert "for webapps.example.com shop/web" in warning
    assert "to configmaps shop/child" in warning


@pytest.mark.parametrize("verb", ["patch", "apply"])
async def test_17_a_reconciler_whose_changes_are_reverted_each_time_is_slowed_down(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    calls: list[str] = []
    clusters: list[EmbeddedCluster] = []

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, id="follow")
    async def follow(cache: selectcache.Cache, name: str, **_: Any) -> None:
        calls.append(name)
        child = cache.get("configmaps", "child", namespace="shop")
        if child["data"]["size"] == "1" or len(calls) >= ENDLESS:
            return
        if verb == "patch":
            await cache.live.patch("configmaps", "child", {"data": {"size": "1"}}, namespace="shop")
        else:
            await cache.live.apply(config("child", size="1"), force=True)

    @selectcache.on.change("configmaps", registry=registry)
    async def revert(new: Any, **_: Any) -> None:
        if new["data"]["size"] == "1":
            clusters[0].patch(config("child"), {"data": {"size": "2"}})

    async with serving(app()) as cluster:
        clusters.append(cluster)
        cluster.create(config("child", cluster.get(app()), size="2"))
        async with operated(registry, cluster):
            await times.until(lambda: calls, within=10)
            await asyncio.sleep(PERIOD)
            assert LIMIT_CALLS < len(cluster.requests.where(verb="patch", resource="configmaps")) <= FEW
    (warning,) = warnings_in(caplog)
    assert "writes for webapps.example.com shop/web" in warning


# ---- What looks alike, and is not delayed.


async def test_17_a_reconciler_that_creates_one_object_per_call_is_not_slowed_down(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    most = 2 * LIMIT_CALLS

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, id="follow")
    async def follow(cache: selectcache.Cache, body: Any, patch: kopf.Patch, **_: Any) -> None:
        count = len(cache.list_cached("configmaps", owner=body))
        patch.status["count"] = count
        if count < most:
            await cache.live.create(config(f"child-{count}", body))

    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: cluster.get(app()).get("status") == {"count": most}, within=5)
    assert not warnings_in(caplog)


@pytest.mark.parametrize("most_per_call", [1, 2 * LIMIT_CALLS])
async def test_17_a_handler_that_follows_the_writes_of_another_one_is_not_slowed_down(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture, most_per_call: int
) -> None:
    most = 2 * LIMIT_CALLS

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, id="create")
    async def create(cache: selectcache.Cache, body: Any, **_: Any) -> None:
        count = len(cache.list_cached("configmaps", owner=body))
        for number in range(count, min(most, count + most_per_call)):
            await cache.live.create(config(f"child-{number}", body))

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, id="count")
    async def count(cache: selectcache.Cache, body: Any, patch: kopf.Patch, **_: Any) -> None:
        patch.status["count"] = len(cache.list_cached("configmaps", owner=body))

    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: cluster.get(app()).get("status") == {"count": most}, within=5)
    assert not warnings_in(caplog)


async def test_17_a_chain_of_handlers_that_each_react_once_is_not_slowed_down(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """The size of the spec leads to a field of the status, and that to another one."""

    async def first(cache: selectcache.Cache, name: str, body: Any, **_: Any) -> None:
        await write(cache, name, body, "count", body["spec"].get("size", 0))

    async def second(cache: selectcache.Cache, name: str, body: Any, **_: Any) -> None:
        await write(cache, name, body, "other", (body.get("status") or {}).get("count", 0))

    async def write(cache: selectcache.Cache, name: str, body: Any, field: str, value: int) -> None:
        if (body.get("status") or {}).get(field) != value:
            await cache.live.patch(
                APPS, name, {"status": {field: value}}, namespace="shop", subresource="status"
            )

    selectcache.reconcile(APPS, registry=registry, id="first")(first)
    selectcache.reconcile(APPS, registry=registry, id="second")(second)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: has_status(cluster, {"count": 0, "other": 0}), within=10)
        for size in range(1, 2 * LIMIT_CALLS):
            cluster.patch(app(), {"spec": {"size": size}})
            await times.until(partial(has_status, cluster, {"count": size, "other": size}), within=0.5)
    assert not warnings_in(caplog)


async def test_17_a_handler_that_writes_the_status_for_each_change_of_a_user_is_not_slowed_down(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    """The user is fast, so that changes are joined with those of the handler."""

    async def follow(cache: selectcache.Cache, name: str, body: Any, **_: Any) -> None:
        seen = {"count": body["spec"].get("size", 0)}
        if body.get("status") != seen:
            await cache.live.patch(APPS, name, {"status": seen}, namespace="shop", subresource="status")

    selectcache.on.change(APPS, registry=registry, id="follow")(follow)
    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: cluster.get(app()).get("status") == {"count": 0}, within=10)
        for size in range(1, 5 * LIMIT_CALLS):
            cluster.patch(app(), {"spec": {"size": size}})
            for _ in range(size % 7):
                await asyncio.sleep(0)
        await times.until(lambda: cluster.get(app())["status"] == {"count": 5 * LIMIT_CALLS - 1}, within=0.5)
    assert not warnings_in(caplog)


@pytest.mark.parametrize("by_patch", [True, False])
async def test_17_a_status_that_follows_an_object_that_goes_to_and_fro_is_not_delayed(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture, by_patch: bool
) -> None:
    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, id="follow")
    async def follow(cache: selectcache.Cache, name: str, patch: kopf.Patch, **_: Any) -> None:
        count = int(cache.get("configmaps", "child", namespace="shop")["data"]["size"])
        found = {"count": count, "other": 1}
        if by_patch:
            patch.status.update(found)
        else:
            await cache.live.patch(APPS, name, {"status": found}, namespace="shop", subresource="status")

    async with serving(app()) as cluster:
        cluster.create(config("child", cluster.get(app()), size="0"))
        async with operated(registry, cluster):
            await times.until(partial(has_status, cluster, {"count": 0, "other": 1}), within=10)
            for number in range(2 * LIMIT_CALLS):
                cluster.patch(config("child"), {"data": {"size": str(number % 2)}})
                wanted = {"count": number % 2, "other": 1}
                await times.until(partial(has_status, cluster, wanted), within=0.5)
    assert not warnings_in(caplog)


def test_17_objects_that_somebody_deletes_all_at_one_time_are_created_again_without_a_delay(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"child-{number}" for number in range(2 * LIMIT_CALLS)]

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, id="follow")
    async def follow(cache: selectcache.Cache, body: Any, **_: Any) -> None:
        found = {each["metadata"]["name"] for each in cache.list_cached("configmaps", owner=body)}
        for name in [each for each in names if each not in found][:1]:
            await cache.live.create(config(name, body))

    def uids(cluster: EmbeddedCluster) -> set[str]:
        found = set()
        for name in names:
            with suppress(Problem):  # It is absent.
                found.add(cluster.get(config(name))["metadata"]["uid"])
        return found

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await times.until(lambda: len(uids(cluster)) == len(names), within=5)
            before = uids(cluster)
            for name in names:
                cluster.delete(config(name))
            await times.until(lambda: len(uids(cluster) - before) == len(names), within=0.5)

    times.run(main())
    assert not warnings_in(caplog)


async def test_17_an_apply_that_changes_nothing_is_not_taken_for_one_that_was_undone(
    registry: kopf.OperatorRegistry, times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, id="follow")
    async def follow(cache: selectcache.Cache, name: str, body: Any, **_: Any) -> None:
        calls.append(name)
        await cache.live.apply(config("child", body, size="1"))

    async with serving(app()) as cluster, operated(registry, cluster):
        await times.until(lambda: calls, within=10)
        for number in range(2 * LIMIT_CALLS):
            calls.clear()
            cluster.patch(config("child"), {"data": {"other": str(number)}})
            await times.until(lambda: calls, within=0.5)
    assert not warnings_in(caplog)


# ---- The brake itself.


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


KEY = Key("web", namespace="shop")


def written(version: int) -> Written:
    target = WriteTarget("webapps.example.com", "shop", "web", "")
    return Written(target, "web", "uid", str(version), is_deletion=False, found=frozenset(), left=frozenset())


def called(brake: Brake, clock: Clock, number: int, *, key: Key = KEY) -> float:
    """Make a call that the last one has caused; return how long it waits."""
    callers = [(KEY, str(number - 1))]
    pause = brake.pause(key, callers)
    clock.now += pause
    with brake.watching(key, callers):
        note = notes.get()
        assert note is not None
        note(written(number))
    return pause


def test_17_the_pauses_grow_to_a_minute_and_the_log_repeats_it_after_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    brake = Brake("Reconciler 'follow'", "webapps.example.com", clock, Chains())
    pauses = [called(brake, clock, number) for number in range(100)]
    assert pauses[: LIMIT_CALLS + 1] == [0.0] * (LIMIT_CALLS + 1)
    assert pauses[LIMIT_CALLS + 1 : LIMIT_CALLS + 9] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert len(warnings_in(caplog)) == 1 + int(clock.now // 3600)


def test_17_a_row_is_over_after_a_quiet_time() -> None:
    clock = Clock()
    brake = Brake("Reconciler 'follow'", "webapps.example.com", clock, Chains())
    for number in range(2 * LIMIT_CALLS):
        assert called(brake, clock, number) == 0.0
        clock.now += QUIET_SECONDS + 0.1


def test_17_a_loop_that_has_ended_delays_nothing_though_others_keep_calling() -> None:
    clock = Clock()
    brake = Brake("Reconciler 'follow'", "webapps.example.com", clock, Chains())
    for number in range(2 * LIMIT_CALLS):
        called(brake, clock, number)
    end = clock.now + LONGEST_PAUSE_SECONDS + QUIET_SECONDS
    for number in range(100, 2000, 4):  # Somebody else causes one call, and later that a second one.
        assert called(brake, clock, number) == 0.0
        if clock.now > end:
            assert called(brake, clock, number + 1) == 0.0
        clock.now += QUIET_SECONDS / 4


def test_17_the_memory_of_calls_is_bounded() -> None:
    clock = Clock()
    brake = Brake("Reconciler 'follow'", "webapps.example.com", clock, Chains())
    for number in range(1000):
        called(brake, clock, number, key=Key(f"web-{number}", namespace="shop"))
        clock.now += QUIET_SECONDS / 10
    assert len(brake.rows) < 25
    clock.now += QUIET_SECONDS
    assert called(brake, clock, 1000, key=Key("web-999", namespace="shop")) == 0.0
    for half in ("a", "b"):
        with brake.watching(KEY, []):
            note = notes.get()
            assert note is not None
            for number in range(MOST_TARGETS - 1):
                note(written(number)._replace(target=WriteTarget("pods", "shop", f"{half}-{number}", "")))
    assert len(brake.rows[KEY].targets) == MOST_TARGETS
    chains = Chains()
    for number in range(MOST_CHANGES + 1):
        chains.note(written(number), (brake, KEY), [], clock.now)
    assert [bool(chains.steps((KEY, str(number)))) for number in (0, 1, MOST_CHANGES)] == [False, True, True]
    chains.forget_old(clock.now + LONGEST_PAUSE_SECONDS + QUIET_SECONDS)
    assert chains.steps((KEY, "1"))
    chains.forget_old(clock.now + LONGEST_PAUSE_SECONDS + QUIET_SECONDS + 1)
    assert not any(chains.steps((KEY, str(number))) for number in range(MOST_CHANGES + 1))
