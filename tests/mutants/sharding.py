"""Seeded bugs of replicas that divide their work."""

from __future__ import annotations

from .mutant import Mutant

HANDLERS, COORDINATOR_TESTS = (
    "tests/sharding/test_handlers.py::test_",
    "tests/sharding/test_coordinator.py::test_",
)
DIVISION, SHARDS, COORDINATOR = "plugin/_division.py", "sharding/shards.py", "sharding/coordinator.py"

SHARDING: tuple[Mutant, ...] = (
    Mutant(
        "run the keys of other replicas",
        DIVISION,
        "            if not is_handled:\n",
        "            if False:\n",
        21,
        (HANDLERS + "each_key_is_handled_by_one_of_two_static_replicas",),
    ),
    Mutant(
        "run no keys of a range that comes",
        SHARDS,
        "            each.replay(self._has(range_))\n",
        "            pass\n",
        21,
        (HANDLERS + "a_range_that_comes_has_all_of_its_keys_run_and_one_that_goes_none",),
    ),
    Mutant(
        "send a write of a run that outlives its range",
        "client/writer.py",
        "self._writer.fence()) <= 0.0:",
        "self._writer.fence()) < 0.0:",
        21,
        (HANDLERS + "a_run_that_outlives_its_range_writes_nothing",),
    ),
    Mutant(
        "let a run of a later term write for one of an earlier",
        SHARDS,
        "self.ownership.time_left(held.range, held.term)",
        "inf",
        21,
        (HANDLERS + "a_run_that_outlives_its_range_writes_nothing",),
    ),
    Mutant(
        "let runs of a range that goes go on",
        SHARDS,
        "            await asyncio.gather(*self._cancel(range_), return_exceptions=True)\n",
        "            pass\n",
        21,
        (HANDLERS + "runs_of_a_range_that_goes_may_end_and_are_cancelled_after_their_time",),
    ),
    Mutant(
        "cancel runs of a range that goes at once",
        SHARDS,
        "self._sleep(self._grace)",
        "asyncio.sleep(0)",
        21,
        (HANDLERS + "runs_of_a_range_that_goes_may_end_and_are_cancelled_after_their_time",),
    ),
    Mutant(
        "let a write take longer than others wait for it",
        COORDINATOR,
        "min(state.options.timing.write, time_left(state, range_, term, self._clock()))",
        "time_left(state, range_, term, self._clock())",
        21,
        (COORDINATOR_TESTS + "a_replica_that_slept_for_an_hour_writes_nothing_and_begins_anew",),
    ),
    Mutant(
        "divide handlers of Kopf that nobody divides",
        DIVISION,
        "        if id(handler) not in indices:\n",
        "        if False:\n",
        21,
        (HANDLERS + "handlers_of_kopf_are_refused_since_each_replica_would_call_them",),
    ),
)
