"""Seeded bugs in what subscribers receive when a cache starts again."""

from __future__ import annotations

from .mutant import Mutant

SUBSCRIBERS = "informer/subscribers.py"
QUEUE = "core/store/changes.py"
TESTS = "tests/informer/test_subscribers.py::test_15_"
DIFFERENCES = TESTS + "after_a_restart_only_real_differences_are_reported"
NARROWED = TESTS + "after_a_restart_an_object_departs_only_for_subscribers_it_does_not_match"
EVICTED = TESTS + "a_subscriber_saves_its_needs_of_an_object_before_eviction_and_gets_them"

RESTARTS: tuple[Mutant, ...] = (
    Mutant(
        "forget the objects that an eviction has dropped",
        SUBSCRIBERS,
        "for record in records)",
        "for record in (() if is_evicted else records))",
        15,
        (DIFFERENCES,),
    ),
    Mutant(
        "forget the objects that a restart has dropped",
        SUBSCRIBERS,
        "for record in aside.values():",
        "for record in list(aside.values())[:0]:",
        15,
        (DIFFERENCES,),
    ),
    Mutant(
        "report all objects again after a restart",
        SUBSCRIBERS,
        "if former.version == after.version:",
        "if False:",
        15,
        (DIFFERENCES,),
    ),
    Mutant(
        "report the departures of a restart to who began in the middle of it",
        SUBSCRIBERS,
        "Known(partial(self._call, keep), self._aside)",
        "Known(partial(self._call, keep), ())",
        15,
        (TESTS + "a_subscriber_of_a_restart_under_way_gets_all_objects_and_no_departures",),
    ),
    Mutant(
        "treat an object that cannot be read after a restart as departed",
        QUEUE,
        "elif before is not None and not is_wanted:",
        "elif before is not None:",
        15,
        (NARROWED,),
    ),
    Mutant(
        "forget that a subscriber does not want an object that is evicted",
        SUBSCRIBERS,
        "        if kept is None:\n",
        "        if False:\n",
        15,
        (NARROWED,),
    ),
    Mutant(
        "keep the contents of an earlier restart after an eviction",
        SUBSCRIBERS,
        "EvictedRecord.of(record) if record.stored else record",
        "record",
        15,
        (TESTS + "an_eviction_frees_the_contents_that_an_earlier_restart_retained",),
    ),
    Mutant(
        "keep the contents of an object that cannot be read through an eviction",
        QUEUE,
        "if known is not None and known.stored:",
        "if False:",
        15,
        (TESTS + "an_eviction_frees_the_last_known_record_of_an_object_that_cannot_be_read",),
    ),
    Mutant(
        "lose what a subscriber has kept of an evicted object",
        SUBSCRIBERS,
        "kept=self._kept.pop(record.key, True)",
        "kept=True",
        15,
        (EVICTED, "tests/reactions/test_sources.py::test_each_departure_reaches_the_queue_once"),
    ),
    Mutant(
        "join the changes of a subscriber that wants all of them",
        "core/store/changes.py",
        "            self._changes.append(change)\n",
        "            self._changes = deque([*(e for e in self._changes if e.key != change.key), change])\n",
        15,
        ("tests/core/store/test_fifo.py::test_15_no_change_is_joined_with_another_and_their_order_stays",),
    ),
    Mutant(
        "drop changes of a subscriber that wants all of them silently",
        "core/store/changes.py",
        "            self.drop()\n        if self.is_full:\n",
        "            self._changes.popleft()\n        if self.is_full:\n",
        15,
        (
            "tests/core/store/test_fifo.py::test_15_a_slow_subscriber_is_warned_and_receives_nothing_until_it_has_looked",
        ),
    ),
    Mutant(
        "update an object that a slow reader has resumed without",
        "cache/changes.py",
        "        self._narrowing.clear()\n",
        "",
        15,
        (
            "tests/cache/test_changes.py::test_15_an_object_that_could_not_be_read_when_a_slow_reader_resumed_enters_later",
        ),
    ),
    Mutant(
        "report a departure to who begins while departures are reported",
        SUBSCRIBERS,
        "for each in subscribers:",
        "for each in tuple(self._subscribers):",
        15,
        (TESTS + "a_subscriber_added_while_departures_are_reported_receives_none_of_them",),
    ),
    Mutant(
        "wait for the end of an object that is evicted as if the cache had it",
        "cache/changes.py",
        "if change is None or (change.after is None",
        "if change is not None and (change.after is None",
        15,
        (
            "tests/informer/test_change_departures.py::test_the_end_of_an_object_is_waited_for_although_it_is_evicted",
        ),
    ),
)
