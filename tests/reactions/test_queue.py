"""The work queue: a model of it in virtual time, and its single rules."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf_selectcache import Key
from kopf_selectcache.reactions.queue import AGEING_SECONDS, MOST_CAUSES, Cause, Priority, Run, WorkQueue

KEYS: list[Key] = [Key(name, namespace="shop") for name in "abcdef"]
PRIORITIES = [Priority.LIVE, Priority.INITIAL, Priority.RETRY, 7]


@dataclass
class Model:
    """The queue beside what is known of it: what every key waits for, and since when."""

    now: float = 0.0
    running: set[Key] = field(default_factory=set)
    ready: dict[Key, tuple[float, int]] = field(default_factory=dict)
    """Since when a key is ready, and its priority."""
    delayed: dict[Key, tuple[float, int]] = field(default_factory=dict)
    longest: float = 0.0
    """The longest wait of a key beyond the latest of those that were taken before it."""

    def __post_init__(self) -> None:
        self.queue = WorkQueue(clock=lambda: self.now, chance=lambda: 0.5)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def _promote(self) -> None:
        for key, (due, priority) in sorted(self.delayed.items(), key=lambda item: item[1]):
            if due <= self.now:
                del self.delayed[key]
                self.ready[key] = due, priority

    def add(self, key: Key, seconds: float, priority: int) -> None:
        self._promote()
        if seconds:
            self.queue.add_after(key, seconds, priority=priority)
        else:
            self.queue.add(key, priority=priority)
        self._note(key, seconds, priority)

    def fail(self, key: Key) -> None:
        self._promote()
        seconds = self.queue.add_rate_limited(key)
        assert seconds is not None
        self._note(key, seconds, Priority.RETRY)

    def _note(self, key: Key, seconds: float, priority: int) -> None:
        if key in self.ready:
            since, former = self.ready[key]
            # A higher priority moves the deadline forward, never back.
            self.ready[key] = since, former
            if self.now - priority * AGEING_SECONDS < since - former * AGEING_SECONDS:
                self.ready[key] = self.now, priority
        else:
            due, former = self.delayed.pop(key, (float("inf"), priority))
            due, priority = min(due, self.now + seconds), max(former, priority)
            if due <= self.now or not seconds:
                self.ready[key] = self.now, priority
            else:
                self.delayed[key] = due, priority

    def take(self) -> Run | None:
        self._promote()
        run = self.queue.take()
        free = {
            key: at - priority * AGEING_SECONDS
            for key, (at, priority) in self.ready.items()
            if key not in self.running
        }
        assert (run is None) == (not free), "no lost wake-up"
        if run is not None:
            assert run.key not in self.running, "one run of a key at a time"
            assert free[run.key] == pytest.approx(min(free.values())), "the earliest deadline first"
            assert run.joined >= len(run.causes) > 0
            del self.ready[run.key]
            self.running.add(run.key)
        return run

    def done(self, key: Key) -> None:
        self.queue.done(key)
        self.running.remove(key)

    def check(self) -> None:
        self._promote()
        metrics = self.queue.metrics()
        assert metrics.depth == len(self.ready) == len(self.queue)
        assert self.queue.running == self.running
        assert self.queue.next_due() == pytest.approx(
            min((due for due, _ in self.delayed.values()), default=None)
        )

    def step(self, choose: Callable[[int], int]) -> None:
        """Do what the chosen numbers mean."""
        match choose(7):
            case 0 | 1:
                self.add(
                    KEYS[choose(len(KEYS))],
                    choose(2) * choose(2000) / 16,
                    PRIORITIES[choose(len(PRIORITIES))],
                )
            case 2 | 3:
                self.take()
            case 4 | 5 if self.running:
                key = sorted(self.running, key=str)[choose(len(self.running))]
                if choose(3):
                    self.queue.forget(key)
                else:
                    self.fail(key)
                self.done(key)
            case _:
                self.advance(choose(500) / 16)

    def finish(self) -> None:
        """Run everything: nothing waits for ever."""
        for _ in range(1000):
            while (run := self.take()) is not None:
                self.done(run.key)
            for key in sorted(self.running, key=str):
                self.done(key)
            due = self.queue.next_due()
            if not self.ready and due is None:
                break
            self.now = max(self.now, due if due is not None else 0.0)
        assert not self.ready
        assert not self.delayed
        self.queue.shut_down()
        assert self.queue.is_finished


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_queue_is_safe_and_loses_no_wake_up(data: st.DataObject) -> None:
    model = Model()
    for _ in range(data.draw(st.integers(1, 60))):
        model.step(lambda most: data.draw(st.integers(0, most - 1)))
        model.check()
    model.finish()


@pytest.mark.parametrize(
    "operations", [20_000, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_many_operations_violate_nothing(operations: int) -> None:
    rng = random.Random(operations)
    for _ in range(operations // 1000):
        model = Model()
        for number in range(1000):
            model.step(rng.randrange)
            if number % 50 == 0:
                model.check()
        model.finish()


def made(**options: float) -> tuple[WorkQueue, list[float]]:
    now = [0.0]
    return WorkQueue(clock=lambda: now[0], chance=lambda: 0.0, **options), now


A, B, C = KEYS[:3]


def taken(queue: WorkQueue) -> list[Key]:
    keys = []
    while (run := queue.take()) is not None:
        keys.append(run.key)
    return keys


@pytest.mark.parametrize("priority", [Priority.INITIAL, Priority.RETRY])
def test_the_wait_of_each_key_is_bounded_whatever_else_is_added(priority: Priority) -> None:
    queue, now = made()
    queue.add(A, priority=priority)
    number = 0
    while True:
        queue.add(
            Key(f"live-{number}", namespace="shop")
        )  # One run a second, and one change a second: no key is ever ready alone.
        run = queue.take()
        assert run is not None
        queue.done(run.key)
        if run.key == A:
            break
        now[0] += 1
        number += 1
        assert now[0] <= -priority * AGEING_SECONDS + 1


def test_live_keys_go_before_those_of_a_list_and_failed_ones_go_last() -> None:
    queue, now = made()
    queue.add_rate_limited(C)
    now[0] = 1.0
    queue.add(B, priority=Priority.INITIAL)
    queue.add(A)
    assert taken(queue) == [A, B, C]


def test_of_delayed_adds_the_earliest_counts() -> None:
    queue, now = made()
    for seconds in (9.0, 3.0, 5.0):
        queue.add_after(A, seconds)
    assert queue.next_due() == 3.0
    now[0] = 3.0
    assert taken(queue) == [A]
    assert queue.next_due() is None


def test_a_key_that_is_added_while_it_runs_runs_once_more_afterwards() -> None:
    queue, _ = made()
    queue.add(A)
    assert taken(queue) == [A]
    queue.add(A)
    queue.add(A)
    assert taken(queue) == []
    queue.done(A)
    assert taken(queue) == [A]
    queue.done(A)
    assert taken(queue) == []


def test_retries_double_up_to_a_limit_with_a_random_share() -> None:
    queue, now = made(shortest=1.0, longest=5.0)
    assert [queue.add_rate_limited(A) for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    assert queue.failures(A) == 4
    queue.forget(A)
    assert queue.add_rate_limited(A) == 1.0
    assert WorkQueue(clock=lambda: 0.0, chance=lambda: 1.0, shortest=1.0).add_rate_limited(
        A
    ) == pytest.approx(1.1)
    for _ in range(2000):
        queue.add_rate_limited(B)
    assert queue.add_rate_limited(B) == 5.0
    now[0] = 1.0
    run = queue.take()
    assert run is not None
    assert (run.key, run.failures) == (A, 1)


def test_the_end_drops_keys_that_do_not_run() -> None:
    queue, _ = made()
    queue.add(A)
    taken(queue)
    queue.add(A)
    queue.add(B)
    queue.add_after(C, 5.0)
    queue.shut_down()
    assert queue.is_shut_down
    assert (queue.add(C), queue.add_after(C, 1.0), queue.add_rate_limited(C)) == (False, False, None)
    assert (taken(queue), queue.is_finished) == ([], False)
    queue.done(A)
    assert (taken(queue), queue.is_finished) == ([], True)


def test_whoever_waits_is_woken_for_each_key_and_each_earlier_delay() -> None:
    queue, _ = made()
    calls: list[str] = []
    queue.wake = lambda: calls.append("wake")

    def woken(call: Callable[[], object]) -> bool:
        calls.clear()
        call()
        return bool(calls)

    assert woken(lambda: queue.add(A))
    assert woken(lambda: queue.add_after(B, 5.0))
    assert not woken(lambda: queue.add_after(C, 6.0))
    assert woken(lambda: queue.add_after(C, 4.0))
    taken(queue)
    assert woken(lambda: queue.done(A))
    assert woken(queue.shut_down)


def test_the_last_causes_of_a_key_are_remembered() -> None:
    queue, now = made()
    for number in range(MOST_CAUSES + 5):
        now[0] = float(number)
        queue.add(A, cause=Cause("updated", "pods", Key(f"web-{number}", namespace="shop")))
    run = queue.take()
    assert run is not None
    assert (run.joined, len(run.causes)) == (25, 20)
    assert run.causes[-1] == Cause("updated", "pods", Key("web-24", namespace="shop"), 24.0)
    assert [str(each) for each in (Cause("requeue"), Cause("sent", "pushes"))] == ["requeue", "sent: pushes"]


def test_the_memory_of_a_queue_is_bounded() -> None:
    queue, now = made()
    for number in range(1000):
        queue.add_after(A, 1000.0 - number / 10)
        queue.add(B, priority=number)
    assert len(queue._waiting) <= 2 * 2 + 65
    assert len(queue._ready) <= 2 + 65
    now[0] = 2000.0
    assert taken(queue) == [B, A]


def test_metrics_are_those_of_client_go() -> None:
    queue, now = made()
    queue.add(A)
    queue.add(A)
    queue.add(B)
    queue.add_after(C, 10.0)
    now[0] = 2.0
    queue.take()
    now[0] = 5.0
    metrics = queue.metrics()
    assert metrics._replace(queue_duration_seconds=None, work_duration_seconds=None)._asdict() == {  # type: ignore[arg-type]  # They are compared below.
        "depth": 1,
        "adds_total": 2,
        "retries_total": 1,
        "queue_duration_seconds": None,
        "work_duration_seconds": None,
        "unfinished_work_seconds": 3.0,
        "longest_running_processor_seconds": 3.0,
    }
    queue.done(A)
    waits, works = metrics.queue_duration_seconds, metrics.work_duration_seconds
    assert (waits.count, waits.total, works.count, works.total) == (1, 2.0, 1, 3.0)
    assert waits.counts == [0] * 9 + [1] + [0] * 3
