"""Seeded bugs of the work queue, predicates, mappings, sources and the worker."""

from __future__ import annotations

from .mutant import Mutant

QUEUE = "tests/reactions/test_queue.py::"
FAILING = "tests/reactions/test_failing_functions.py::test_"
PURE, SOURCES, WORKER = (
    "tests/reactions/test_predicates.py::",
    "tests/reactions/test_sources.py::",
    "tests/reactions/test_worker.py::",
)

RECONCILE: tuple[Mutant, ...] = (
    Mutant(
        "let a map that raises CancelledError end its source",
        "reactions/_deliveries.py",
        "        except BaseException as error:  # It is the operator's code.  # noqa: BLE001\n            let_exit(error)\n            self._report",
        "        except Exception as error:  # noqa: BLE001\n            self._report",
        17,
        (FAILING + "a_map_that_raises_anything_is_called_again",),
    ),
    Mutant(
        "let changes starve the keys of a list",
        "reactions/queue.py",
        "since - entry.priority * self._ageing",
        "since - entry.priority * 1e9",
        17,
        (QUEUE + "test_the_wait_of_each_key_is_bounded_whatever_else_is_added",),
    ),
    Mutant(
        "run failing keys before healthy ones",
        "reactions/queue.py",
        "RETRY = -150",
        "RETRY = 150",
        17,
        (QUEUE + "test_live_keys_go_before_those_of_a_list_and_failed_ones_go_last",),
    ),
    Mutant(
        "never finish a shutdown that drops",
        "reactions/queue.py",
        "if not drain or entry.state is _State.WAITING",
        "if entry.state is _State.WAITING",
        17,
        (QUEUE + "test_the_end_drains_or_drops", QUEUE + "test_a_drain_that_takes_too_long_may_be_given_up"),
    ),
    Mutant(
        "hand a key out while it runs",
        "reactions/queue.py",
        "        if key in self._running:\n            entry.state",
        "        if False:\n            entry.state",
        17,
        (
            QUEUE + "test_a_key_that_is_added_while_it_runs_runs_once_more_afterwards",
            QUEUE + "test_many_operations_violate_nothing",
        ),
    ),
    Mutant(
        "let the later of two delays count",
        "reactions/queue.py",
        "elif now + seconds < entry.due or is_raised:",
        "elif now + seconds > entry.due or entry.due == math.inf:",
        17,
        (QUEUE + "test_of_delayed_adds_the_earliest_counts",),
    ),
    Mutant(
        "leave the delay of a failed key as it is",
        "reactions/queue.py",
        "self._failures[key] = failures + 1",
        "self._failures[key] = 1",
        17,
        (QUEUE + "test_retries_double_up_to_a_limit_with_a_random_share",),
    ),
    Mutant(
        "lose a run that something else has cancelled",
        "reactions/worker.py",
        "except (Exception, asyncio.CancelledError) as error:",
        "except Exception as error:",
        17,
        (WORKER + "test_failed_runs_are_repeated_with_backoff_and_succeeded_ones_when_they_ask",),
    ),
    Mutant(
        "map only the new object",
        "reactions/_deliveries.py",
        "for state in (change.old if change.is_whole else None, change.new)",
        "for state in (change.new,)",
        17,
        (SOURCES + "test_an_object_that_is_mapped_otherwise_than_before_has_both_run",),
    ),
    Mutant(
        "map only the last of joined states",
        "reactions/_deliveries.py",
        "        self.last = states[-1]",
        "        self.first, self.last = None, states[-1]",
        17,
        (SOURCES + "test_the_states_between_two_async_mappings_are_joined_and_no_key_is_lost",),
    ),
    Mutant(
        "drop changes whose predicate fails",
        "reactions/_deliveries.py",
        "return True  # To run once too often",
        "return False  # To run once too often",
        17,
        (FAILING + "a_predicate_that_fails_drops_nothing",),
    ),
    Mutant(
        "look for labels in the new object alone",
        "reactions/predicates.py",
        "for obj in (change.old, change.new)",
        "for obj in (change.new or change.old,)",
        17,
        (PURE + "test_a_label_selector_looks_at_both_objects",),
    ),
    Mutant(
        "start a source twice",
        "reactions/sources.py",
        "        if self._deliveries is not None:\n            raise DeclarationError(",
        "        if False:\n            raise DeclarationError(",
        17,
        (SOURCES + "test_a_source_is_started_once",),
    ),
    Mutant(
        "run the objects of a resync like changes",
        "reactions/sources.py",
        "is_live = not is_of_list and change.cause is not ChangeCause.RESYNC",
        "is_live = not is_of_list",
        17,
        ("tests/reactions/test_following.py::test_a_resync_of_the_kind_goes_after_live_changes",),
    ),
    Mutant(
        "send to a channel that is full",
        "reactions/sources.py",
        "if any(len(source.events) >= self._size for source in self._sources):",
        "if False:",
        17,
        (SOURCES + "test_each_source_of_a_channel_receives_each_event_with_its_limits",),
    ),
    Mutant(
        "compare a change with what the cache holds",
        "core/store/change.py",
        "return self._view(before)",
        "return self._view(self.after or before)",
        17,
        (
            SOURCES + "test_an_object_that_is_mapped_otherwise_than_before_has_both_run",
            SOURCES + "test_predicates_compare_the_object_before_a_change_with_the_one_after_it",
        ),
    ),
    Mutant(
        "hide what is known of an evicted object that departs",
        "core/store/change.py",
        '(self.after is not None and before.stored == b"")',
        'before.stored == b""',
        15,
        ("tests/informer/test_change_departures.py::test_15_a_departure_has_an_old_object_after_an_eviction",),
    ),
    Mutant(
        "hold back the keys of a state while the other one fails",
        "reactions/_deliveries.py",
        "if last is not None and await",
        "if last is not None and first is None and await",
        17,
        (SOURCES + "test_a_state_that_cannot_be_mapped_holds_back_no_keys_of_the_other",),
    ),
    Mutant(
        "map departed objects without a limit",
        "reactions/_deliveries.py",
        "if self._departed < MOST_DEPARTED or",
        "if True or",
        17,
        (SOURCES + "test_departed_objects_whose_mapping_has_not_ended_are_limited",),
    ),
)
