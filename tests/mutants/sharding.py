"""Seeded bugs of replicas that divide their work."""

from __future__ import annotations

from .mutant import Mutant

CACHES, DECISIONS = (
    "tests/sharding/test_divided_caches.py::test_",
    "tests/sharding/test_division.py::test_",
)
HANDLERS, COORDINATOR_TESTS = (
    "tests/sharding/test_handlers.py::test_",
    "tests/sharding/test_coordinator.py::test_",
)
REPLICA, FENCE = "tests/sharding/test_replica.py::test_", "tests/sharding/test_fence.py::test_"
DIVISION, SHARDS, COORDINATOR = "plugin/_sharding.py", "sharding/shards.py", "sharding/coordinator.py"

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
        "divide namespaces where objects are to be divided",
        "core/assignment/hashing.py",
        'if by == "object" else namespace or name',
        "if False else namespace or name",
        21,
        (HANDLERS + "each_key_is_handled_by_one_of_two_static_replicas",),
    ),
    Mutant(
        "divide caches where objects are divided",
        "settings/division.py",
        'if by != "namespace":\n        return Decision(False,',
        'if by == "":\n        return Decision(False,',
        21,
        (DECISIONS + "replicas_that_divide_objects_have_whole_caches",),
    ),
    Mutant(
        "run no keys of a range that comes",
        SHARDS,
        "                each.replay(lambda key: self.range_of(key) in ranges)\n",
        "                pass\n",
        21,
        (HANDLERS + "a_range_that_comes_has_all_of_its_keys_run_and_one_that_goes_none",),
    ),
    Mutant(
        "send a write of a run that outlives its range",
        "client/writer.py",
        "(fence := time_left()) <= 0.0:",
        "(fence := time_left()) < 0.0:",
        21,
        (
            HANDLERS + "a_run_that_outlives_its_range_writes_nothing",
            FENCE + "a_write_to_another_cluster_is_refused_as_well",
            FENCE + "a_task_that_outlives_its_run_writes_while_the_range_is_held_and_not_later",
        ),
    ),
    Mutant(
        "say that nothing was sent of a write whose answer was lost",
        "client/writer.py",
        "                if self._is_settled\n                else self._unsettled(",
        "                if True\n                else self._unsettled(",
        21,
        (FENCE + "a_write_whose_answer_was_lost_may_have_been_sent_whatever_happens_to_the_range",),
    ),
    Mutant(
        "take ranges before the caches are synced",
        "plugin/operator.py",
        "            await self.gate(None, None, fresh=False)  # A replica takes",
        "            await self.logged_in()  # A replica takes",
        21,
        (REPLICA + "a_replica_takes_nothing_before_its_caches_are_synced",),
    ),
    Mutant(
        "keep idle ranges at the end until the last run has ended",
        SHARDS,
        "self._running(range_), self._sleep(self._grace)",
        "set().union(*(self._running(each) for each in range(self.ranges))), self._sleep(self._grace)",
        21,
        (REPLICA + "idle_ranges_go_at_once_at_the_end_and_a_busy_one_once_its_run_has_ended",),
    ),
    Mutant(
        "give idle ranges away only after the handlers have ended",
        "plugin/operator.py",
        "                    self.replica.leave()  # Ranges without calls are free at once.\n"
        "                # Handlers read the caches up to their ends.\n"
        "                await asyncio.gather(self._handling, return_exceptions=True)\n",
        "                    await asyncio.gather(self._handling, return_exceptions=True)\n"
        "                    self.replica.leave()\n",
        21,
        (REPLICA + "idle_ranges_go_at_once_at_the_end_and_a_busy_one_once_its_run_has_ended",),
    ),
    Mutant(
        "record an Event of a run that outlives its range",
        "recorder/recording.py",
        "        if self._is_closed or time_left() <= 0.0:\n",
        "        if self._is_closed:\n",
        21,
        (FENCE + "an_event_is_recorded_only_while_the_range_is_held",),
    ),
    Mutant(
        "let a run of a later term write for one of an earlier",
        SHARDS,
        "lambda: self.ownership.time_left(range_, term)",
        "lambda: inf",
        21,
        (HANDLERS + "a_run_that_outlives_its_range_writes_nothing",),
    ),
    Mutant(
        "let runs of a range that goes go on",
        SHARDS,
        "            await end_within(self._cancel(range_), self._sleep(CANCELLED))\n",
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
        "plugin/division.py",
        "        if id(handler) not in indices:\n",
        "        if False:\n",
        21,
        (HANDLERS + "handlers_of_kopf_are_refused_since_each_replica_would_call_them",),
    ),
    Mutant(
        "cache the namespaces of all replicas",
        "informer/namespaces.py",
        "return frozenset(filter(self.division.serves, names)) if declared.divided else names",
        "return names",
        21,
        (CACHES + "each_static_replica_caches_its_namespaces_and_names_the_owner_of_the_others",),
    ),
    Mutant(
        "take a range for warm before its namespaces are synced",
        "informer/namespaces.py",
        "        return are_planned and state.unsettled(None) is None\n",
        "        return True\n",
        21,
        (CACHES + "a_range_is_warm_once_all_of_its_namespaces_are_synced",),
    ),
    Mutant(
        "keep the namespaces of a range that goes",
        SHARDS,
        "        self._cache(self.cached - {range_})\n",
        "        pass\n",
        21,
        (CACHES + "a_range_that_goes_is_lost_in_the_same_step_and_nothing_is_run_or_asked_for_it",),
    ),
    Mutant(
        "answer from a range that has gone until its streams have ended",
        "informer/namespaces.py",
        "        if hidden is not informer.state:\n",
        "        if False:\n",
        21,
        (CACHES + "a_range_that_goes_is_lost_in_the_same_step_and_nothing_is_run_or_asked_for_it",),
    ),
    Mutant(
        "divide kinds that other handlers need whole",
        "settings/division.py",
        "    for use in (uses.watched, uses.admission, uses.indexed):\n",
        "    for use in ():\n",
        21,
        (DECISIONS + "a_kind_is_divided_if_its_handlers_are_and_nobody_else_needs_it",),
    ),
    Mutant(
        "do not say which replica has what a read asks for",
        "cache/_labelled.py",
        "    if division is None:\n",
        "    if True:\n",
        21,
        (CACHES + "a_list_of_all_namespaces_is_not_complete_and_a_witness_says_so",),
    ),
    Mutant(
        "divide all namespaces, whichever the filter names",
        "settings/division.py",
        '        requirements.append(LabelRequirement(NAME_LABEL, "in", branch.namespaces))\n',
        "        pass\n",
        21,
        (DECISIONS + "a_divided_filter_chooses_its_namespaces_by_label",),
    ),
    Mutant(
        "keep the place of a run that is cancelled before it begins",
        "reactions/engine.py",
        "task.add_done_callback(partial(self._note_end, run.key))",
        "task.add_done_callback(lambda task, key=run.key: task.cancelled() or self._note_end(key, task))",
        21,
        (
            "tests/reactions/test_worker.py::test_a_run_that_is_cancelled_before_it_begins_leaves_its_place_to_others",
        ),
    ),
)
