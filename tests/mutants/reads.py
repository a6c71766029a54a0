"""Seeded bugs in the freshness of reads."""

from __future__ import annotations

from .mutant import Mutant

AT_LEAST, AS_NEW = "tests/cache/test_at_least.py::test_11_", "cache/_at_least.py"

PINNED = "tests/cache/test_pinned.py::test_"

READS: tuple[Mutant, ...] = (
    Mutant(
        "answer although the cache is older than at_least",
        "cache/_snapshot.py",
        "    is_behind = request.at_least is not None and not is_as_of(",
        "    is_behind = False and not is_as_of(",
        11,
        (AT_LEAST + "a_read_on_the_loop_raises_until_the_cache_is_as_new",),
    ),
    Mutant(
        "do not wait for the version of an awaited read",
        "cache/_snapshot.py",
        "                await wait(informer, request.at_least, region_of(request), seconds)\n",
        "                pass\n",
        11,
        (
            AT_LEAST + "an_awaited_read_waits_until_the_cache_is_as_new",
            AT_LEAST + "a_thread_waits_and_then_raises",
        ),
    ),
    Mutant(
        "wait for a version without an end",
        AS_NEW,
        "while not end.done() and",
        "while",
        11,
        (AT_LEAST + "an_awaited_read_asks_the_server_when_its_wait_has_ended",),
    ),
    Mutant(
        "be content with one stream that has the version",
        AS_NEW,
        "    return all(_has_reached(",
        "    return any(_has_reached(",
        11,
        (AT_LEAST + "each_stream_that_a_read_needs_is_as_new",),
    ),
    Mutant(
        "answer although a leave before the version is unconfirmed",
        AS_NEW,
        "    return informer.parted and informer.has_unconfirmed(version, besides=_NO_OBJECT)\n",
        "    return False\n",
        11,
        (AT_LEAST + "a_leave_before_the_version_is_confirmed_before_the_answer",),
    ),
    Mutant(
        "trust the comparison of a watch that has ended",
        "informer/_comparison.py",
        '        self.has_caught_up, self.as_of = False, ""\n        self._is_open',
        "        self.has_caught_up = False\n        self._is_open",
        11,
        (AT_LEAST + "a_version_that_no_event_reaches_takes_one_list_of_metadata",),
    ),
    Mutant(
        "compare the versions of two kinds",
        AS_NEW,
        "        if (at_least.group, at_least.kind) != (kind.group, kind.kind):\n",
        "        if False:\n",
        11,
        (AT_LEAST + "what_has_no_order_is_refused",),
    ),
    Mutant(
        "compare versions that are no numbers",
        AS_NEW,
        "    if version and not is_number(version):\n",
        "    if False:\n",
        11,
        (AT_LEAST + "versions_of_a_server_that_are_no_numbers_are_refused",),
    ),
    Mutant(
        "hide a newer own write from a read with at_least",
        "cache/_snapshot.py",
        "        if shown is not None and not is_newer(request.at_least.version, shown.version):\n",
        "        if False:\n",
        11,
        (AT_LEAST + "an_own_write_is_as_new_as_itself",),
    ),
    Mutant(
        "return an answer without its version",
        "cache/_snapshot.py",
        "    return Found(left, chosen.records, unreadable, chosen.version)\n",
        '    return Found(left, chosen.records, unreadable, "")\n',
        11,
        (AT_LEAST + "an_answer_has_its_version",),
    ),
    Mutant("let later changes into a snapshot", "core/store/store.py", "{space: named.copy() for space, named in self._held.items()}", "self._held", 3,
           (PINNED + "3_reads_of_a_snapshot_are_of_one_generation_of_each_kind",)),
    Mutant("answer a read of a snapshot from the fast path", "cache/pinned.py", "    def get_fast(self,", "    def get_slow(self,", 3,
           (PINNED + "3_reads_of_a_snapshot_are_of_one_generation_of_each_kind",)),
    Mutant("let later own writes into a snapshot", "core/store/own_writes.py", "frozen.writes, frozen.resting = self.writes.copy(), self.resting.copy()", "frozen.writes, frozen.resting = self.writes, self.resting", 3,
           (PINNED + "3_a_snapshot_shows_the_own_writes_from_before_it",)),
    Mutant("let a later body into a snapshot", "cache/pinned.py", "            body = copy(opened.body)", "            body = opened.body", 3,
           (PINNED + "3_a_snapshot_shows_the_handlers_own_object_as_it_was",)),
    Mutant("open a snapshot of two states of an informer", "cache/pinned.py", "        if informer.state is state:\n", "        if True:\n", 3,
           (PINNED + "3_a_change_of_the_filter_meanwhile_opens_the_snapshot_again",)),
    Mutant("read a snapshot after its end", "cache/pinned.py", "        self.pins, self._closed = None,", "        self.pins, self._closed = self.pins,", 11,
           (PINNED + "11_reads_before_and_after_the_with_and_of_other_kinds_raise", PINNED + "11_a_snapshot_keeps_no_object_after_its_end")),
    Mutant("let a snapshot stay young", "cache/pinned.py", "age = pin.age + informer.environment.clock() - pin.at", "age = pin.age", 11,
           (PINNED + "11_a_snapshot_grows_old",)),
    Mutant("answer from a snapshot that is older than at_least", "cache/pinned.py", "        if is_newer(request.at_least.version, pin.version):\n", "        if False:\n", 11,
           (PINNED + "11_a_snapshot_grows_old",)),
    Mutant("do not name a snapshot that is kept", "cache/pinned.py", "            self._open[id(pinned)] = opened\n", "            pass\n", 11,
           (PINNED + "11_the_log_names_a_snapshot_that_is_kept_for_minutes",)),
    Mutant("name a snapshot that has ended", "cache/pinned.py", "            self._open.pop(id(pinned), None)\n", "            pass\n", 11,
           (PINNED + "11_the_log_names_a_snapshot_that_is_kept_for_minutes",)),
)
