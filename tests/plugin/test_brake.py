"""Handlers that write the same object again and again are slowed down; all others are not."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.plugin._brake import (
    CALLS_PER_PAUSE,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_CALLS,
    MOST_REMEMBERED,
    QUIET,
    Brake,
    Loop,
)
from kopf_selectcache.testing.api.status import Problem
from tests.faults.environment import run, until

from .reconciling import APPS, app, config, operated, serving


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def play(written: Callable[[int], set[str]], *, seconds: float, apart: float = 0.005) -> list[float]:
    """Return the times of the calls of a handler that its own writes call again."""
    clock = Clock()
    brake, calls = Brake(clock), list[float]()
    while clock.now < seconds:
        pause, _ = brake.pause("key")
        clock.now += pause
        brake.note("key", written(len(calls)))
        calls.append(clock.now)
        clock.now += apart
    return calls


def test_17_a_loop_of_writes_is_slowed_down_to_a_call_a_minute() -> None:
    """At 200 calls a second, 150 seconds took 30,000 writes."""
    calls = play(lambda _: {"pods shop/web"}, seconds=150)
    assert len(calls) <= MOST_CALLS + 150
    calls = play(lambda _: {"pods shop/web"}, seconds=3600)
    pauses = [after - before for before, after in pairwise(calls)]
    assert pauses[MOST_CALLS] == pytest.approx(FIRST_PAUSE)
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE)
    assert len(calls) < MOST_CALLS + 8 * CALLS_PER_PAUSE


@pytest.mark.parametrize(
    "written",
    [
        lambda call: {f"pods shop/web-{call}"},
        lambda call: {"pods shop/web"} if call % MOST_CALLS else set(),
        lambda _: set(),
    ],
    ids=["one object after the other", "with an end", "nothing"],
)
def test_17_a_handler_that_gets_on_is_not_slowed_down(written: Callable[[int], set[str]]) -> None:
    calls = play(written, seconds=10)
    assert len(calls) >= 1999


def test_17_a_handler_that_writes_every_few_seconds_keeps_its_times() -> None:
    calls = play(lambda _: {"webapps shop/web"}, seconds=3600, apart=FIRST_PAUSE + 1)
    assert len(calls) == 3600 / (FIRST_PAUSE + 1)


def test_17_calls_before_a_quiet_time_do_not_count() -> None:
    clock = Clock()
    brake = Brake(clock)
    for _ in range(3):
        for _ in range(MOST_CALLS):
            assert brake.pause("key") == (0.0, None)
            brake.note("key", {"pods shop/web"})
        clock.now += QUIET + FIRST_PAUSE + 0.1


def test_20_a_loop_is_named_once() -> None:
    clock = Clock()
    brake = Brake(clock)
    for _ in range(MOST_CALLS):
        brake.note("key", {"pods shop/web", "configmaps shop/other"} if _ else {"pods shop/web"})
    assert brake.pause("key") == (FIRST_PAUSE, Loop("pods shop/web", MOST_CALLS))
    assert brake.pause("key") == (FIRST_PAUSE, None)
    assert brake.pause("other") == (0.0, None)
    clock.now += FIRST_PAUSE
    assert brake.pause("key") == (0.0, None)
    brake.note("key", {"pods shop/web"})
    assert brake.pause("key") == (FIRST_PAUSE, None)


def test_17_what_is_remembered_of_calls_is_bounded() -> None:
    clock = Clock()
    brake = Brake(clock)
    for number in range(5 * MOST_REMEMBERED):
        brake.note(number, {"pods shop/web"})
        clock.now += QUIET
    assert len(brake._streaks) <= MOST_REMEMBERED


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return kopf.OperatorRegistry()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "calls in a row" in each.getMessage()]


def test_17_a_reconciler_whose_writes_are_undone_is_slowed_down_and_named(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody deletes what it creates, as the garbage collector does after a restore."""
    calls = Counter[str]()

    @selectcache.reconcile(APPS, owns=["configmaps"], registry=registry, id="create")
    async def reconcile(cache: selectcache.Cache, body: Any, name: str, **_: Any) -> None:
        calls[name] += 1
        if not cache.exists("configmaps", name, "shop"):
            await cache.live.create(config(name, body))

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):

            def is_named() -> bool:
                with suppress(Problem):  # It is not created again yet.
                    cluster.delete(config("web"))
                return bool(warnings_of(caplog))

            await until(is_named)
            cluster.create(app("other"))
            await until(lambda: calls["other"] > 0)

    caplog.set_level(logging.WARNING)
    run(main())
    assert calls["web"] == MOST_CALLS
    (warning,) = warnings_of(caplog)
    assert warning == (
        f"Reconciler 'create' has written configmaps shop/web in {MOST_CALLS} calls in a row: somebody"
        " undoes it, or each write differs from the last. It is called less often from now on, down to once"
        " a minute."
    )


@pytest.mark.parametrize("decorator", [selectcache.on.change, selectcache.reconcile])
def test_17_a_handler_that_patches_its_own_object_by_live_is_slowed_down(
    decorator: Any, registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    async def handle(cache: selectcache.Cache, name: str, namespace: str, **_: Any) -> None:
        nonlocal calls
        calls += 1
        await cache.live.patch(APPS, name, namespace, changes={"spec": {"calls": calls}})

    decorator(APPS, registry=registry)(handle)

    async def main() -> None:
        async with serving(app()) as cluster, operated(registry, cluster):
            await until(lambda: bool(warnings_of(caplog)) or calls > MOST_CALLS)

    caplog.set_level(logging.WARNING)
    run(main())
    assert calls == MOST_CALLS
    assert len(warnings_of(caplog)) == 1
