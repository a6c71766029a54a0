"""Seeded bugs of reconcilers, of the patches that they make, and of their end."""
from __future__ import annotations

from .mutant import Mutant

OWN, RUNS = "tests/plugin/test_own_patches.py::test_", "tests/plugin/test_reconcile.py::test_"
PATCHES, RECONCILER = "plugin/_own_patches.py", "plugin/_reconciler.py"
CALLS = "plugin/_reconcile_calls.py"
BRAKE = "tests/plugin/test_brake.py::test_"
BRAKING, NOTING, CHANGES = "plugin/_brake.py", "cache/noting.py", "plugin/changes.py"
STOPPING = "tests/plugin/test_stopping.py::test_2_"

RECONCILERS: tuple[Mutant, ...] = (
    Mutant("call a reconciler for its own writes without a pause", CALLS, "        if seconds := self._brake.pause(key, _callers(run)):\n", "        if seconds := 0.0:\n", 17,
           (BRAKE + "17_writes_of_a_reconciler_to_its_own_object_do_not_call_it_without_end",)),
    Mutant("call a handler of changes for its own writes without a pause", CHANGES, "slowed = self._brake.pause(key, self._brake.heard(key))", "slowed = 0.0", 17,
           (BRAKE + "17_writes_of_a_handler_of_changes_to_its_own_object_do_not_call_it_without_end",)),
    Mutant("let a call that writes nothing end a row of undone writes", BRAKING, "                row.end()\n            return\n", "                del self._rows[key]\n            return\n", 17,
           (BRAKE + "17_a_reconciler_whose_changes_are_reverted_each_time_is_slowed_down",)),
    Mutant("compare no contents with what an own write has left", NOTING, "return bool((self.left - self.found) & last.left)", "return False", 17,
           (BRAKE + "17_a_reconciler_whose_changes_are_reverted_each_time_is_slowed_down",)),
    Mutant("take an object for the one that was deleted", NOTING, "            return True\n        return bool(", "            return False\n        return bool(", 17,
           (BRAKE + "17_a_reconciler_whose_objects_are_deleted_each_time_is_slowed_down",)),
    Mutant("take a value that stays for one that was undone", NOTING, "return bool((self.left - self.found) & last.left)", "return bool(self.left & last.left)", 17,
           (BRAKE + "17_a_status_that_follows_an_object_that_goes_to_and_fro_is_not_delayed",)),
    Mutant("slow down a reconciler that makes progress", BRAKING, "or targets <= row.seen)", "or True)", 17,
           (BRAKE + "17_a_reconciler_that_creates_one_object_per_call_is_not_slowed_down",)),
    Mutant("count calls that others have caused", BRAKING, "bool(callers) and all(each in self.versions for each in callers)", "True", 17,
           (BRAKE + "17_a_status_that_follows_an_object_that_goes_to_and_fro_is_not_delayed",)),
    Mutant("delay the changes of others", BRAKING, "return 0.0 if is_free else row.until - now", "return row.until - now", 17,
           (BRAKE + "17_writes_of_a_reconciler_to_its_own_object_do_not_call_it_without_end",)),
    Mutant("let a paused handler of changes sleep through the changes of others", CHANGES, "            slowed.set()\n", "            pass\n", 17,
           (BRAKE + "17_writes_of_a_handler_of_changes_to_its_own_object_do_not_call_it_without_end",)),
    Mutant("remember the writes of calls for ever", BRAKING, "        for key in list(islice(self._rows, 2)):\n", "        for key in list(islice(self._rows, 0)):\n", 17,
           ("tests/plugin/test_growth.py::test_17_what_is_remembered_does_not_grow_with_the_objects_that_come_and_go",)),
    Mutant("remember Events without a limit", "recorder/correlator.py", "if len(self._entries) > self._most else None", "if False else None", 17,
           ("tests/plugin/test_growth.py::test_17_what_is_remembered_does_not_grow_with_the_objects_that_come_and_go",)),
    Mutant("let waits go on when the operator begins to stop", "plugin/operator.py", "            root.add_done_callback(self.begin_to_stop)\n", "            pass\n", 2,
           (STOPPING + "an_operator_ends_though_handlers_of_its_caches_wait_in_all_threads",)),
    Mutant("begin a call in a thread after the operator has begun to stop", "plugin/_calls.py", "    if operator.is_stopping:\n", "    if False:\n", 17,
           (STOPPING + "a_call_that_gets_its_thread_after_the_stop_has_begun_is_not_made",)),
    Mutant("let threads wait beyond the deadline of a stop", "plugin/operator.py", "        asyncio.get_running_loop().call_later(seconds, self.waits.end, STOPPING)\n", "", 2,
           (STOPPING + "a_stop_has_a_deadline_for_threads_that_kopf_waits_for",)),
    Mutant("cancel handlers of changes before the deadline of a stop", "plugin/changes.py", "        if self._operator.is_stopping:\n", "        if False:\n", 2,
           (STOPPING + "a_handler_of_changes_that_runs_at_the_stop_may_finish",)),
    Mutant("call a reconciler for its own patches", PATCHES, "        return any(_differing(_without(expected), _without(new)))\n", "        return True\n", 18,
           (OWN + "the_change_of_an_own_patch_is_dropped_once",)),
    Mutant("drop the change of another that comes with an own one", PATCHES, "        return any(_differing(_without(expected), _without(new)))\n", "        return False\n", 18,
           (OWN + "a_change_of_another_that_is_joined_with_an_own_one_is_not_dropped",)),
    Mutant("drop the changes that arrive before the answer to a patch", PATCHES, "            if self._must_call(key, event, is_admitted=is_admitted):\n                self._call", "            if False:\n                self._call", 18,
           (OWN + "changes_wait_for_the_answer_to_a_patch",)),
    Mutant("look for pruned fields in merge patches alone", "plugin/_patching.py", "            lost += lost_paths(_after(base, part), answer, frozenset(map(_path_of, part)))\n", "", 18,
           (RUNS + "a_field_that_the_server_prunes_is_named_and_slows_the_calls_down",)),
    Mutant("call a reconciler for changes during a patch that its predicates drop", PATCHES, "self._held[key].append((event, is_admitted))", "self._held[key].append((event, True))", 18,
           (OWN + "other_predicates_decide_about_changes_that_have_waited",)),
    Mutant("call a reconciler twice for an object that is gone", CALLS, "            del departures[uid]\n", "            pass\n", 18,
           (RUNS + "a_reconciler_is_called_once_for_an_object_that_is_gone",)),
    Mutant("treat an object that came back as gone", CALLS, "            if present != uid:\n                departure.is_gone", "            if True:\n                departure.is_gone", 18,
           (RUNS + "an_object_that_comes_back_is_not_gone",)),
    Mutant("call reconcilers while the operator is paused", CALLS, "            await wait_until_callable(self._operator, self._parts)\n            while self._parts is not None and self._parts.is_paused:\n                await", "            while False:\n                await", 18,
           (RUNS + "no_reconciler_is_called_while_the_operator_is_paused",)),
    Mutant("wait for a call that never ends at the end of the operator", RECONCILER, "                    working.cancel()\n", "                    pass\n", 18,
           ("tests/plugin/test_reconcile_failures.py::test_a_run_that_resists_does_not_keep_the_operator_from_its_end",)),
    Mutant("end the caches before the handlers", "plugin/operator.py", "                # Handlers read the caches up to their ends.\n", "                caches.cancel()\n", 18,
           (RUNS + "an_operator_stops_while_a_reconciler_runs",)),
    Mutant("lose the first list of an object that a reconciler has seen", "_kopf.py", "        memory.noticed_by_listing = noticed_by_listing\n", "        pass\n", 18,
           ("tests/plugin/test_reconcile_failures.py::test_a_memo_of_an_object_that_kopf_has_seen_is_left_to_kopf",)),
)
