"""Seeded bugs in split caches, in what departures are known from, and in versions across restores."""

from __future__ import annotations

from .mutant import CORPUS, Mutant

PARTIAL = "tests/cache/formats/test_partial.py::test_13_"

OUTSIDE = "tests/settings/test_outside.py::test_6_"
SIDES = "tests/cache/test_sides.py::test_9_"
SPLIT_UNION = "tests/core/store/test_split.py::test_"
AT_LEAST = "tests/cache/test_at_least.py::test_11_"

SPLIT_CACHES: tuple[Mutant, ...] = (
    Mutant(
        "drop from what a departure is known when it waits",
        "core/store/changes.py",
        "change.filter_changed, change.known_by))",
        "change.filter_changed))",
        6,
        (OUTSIDE + "a_departure_is_known_from_the_streams_that_there_were",),
    ),
    Mutant(
        "take each departure from a split cache for one into its outer streams",
        "informer/swap.py",
        '"metadata" if self.after.store.has_outside(record) else None',
        '"metadata"',
        6,
        (OUTSIDE + "an_object_that_the_next_filter_finds_outside_is_known_to_exist",),
    ),
    Mutant(
        "name the metadata as the proof of an object that is held",
        "core/store/changes.py",
        'known_by="cache"',
        'known_by="metadata"',
        6,
        (OUTSIDE + "an_object_that_does_not_match_any_more_is_known_to_exist_because_it_is_held",),
    ),
    Mutant(
        "compare versions from before a restore",
        "cache/freshness.py",
        "        each.substore.epoch == epoch and _has_reached(each, version) for each in",
        "        _has_reached(each, version) for each in",
        11,
        (AT_LEAST + "a_stream_that_was_not_listed_since_a_restore_has_no_version_of_now",),
    ),
    Mutant(
        "take a snapshot from before a restore for one of now",
        "cache/reads.py",
        "if is_restored or is_newer(",
        "if is_newer(",
        11,
        ("tests/cache/test_pinned.py::test_11_a_snapshot_from_before_a_restore_is_not_as_new_as_a_version",),
    ),
    Mutant(
        "let an own deletion hide a later object outside",
        "cache/_outside.py",
        "[each for each in known if each is not None and not write.is_newer_than(each, version)]",
        "[]",
        9,
        (SIDES + "an_own_deletion_hides_no_later_object_of_that_name",),
    ),
    Mutant(
        "count both sides without the handler's own object",
        "cache/snapshots.py",
        "            if key is not None and own is not None:\n                present[key]",
        "            if False:\n                present[key]",
        9,
        (SIDES + "a_handler_finds_its_own_object_on_the_side_where_it_is",),
    ),
    Mutant(
        "report an object that is known outside as gone",
        "core/store/union.py",
        "        if self.store.has_outside(record):\n",
        "        if False:\n",
        6,
        (
            f"{CORPUS}[An object moves outside of a split cache while nobody serves the kind]",
            SPLIT_UNION + "6_an_object_that_a_restart_finds_outside_has_left_and_is_not_gone",
        ),
    ),
    Mutant(
        "take the absence of an object that the cache has not heard of for its end",
        "cache/_server_reads.py",
        "        if uid and request.at_least is not None and request.at_least.uid == uid:\n",
        "        if request.at_least is not None:\n",
        6,
        ("tests/cache/test_at_least.py::test_6_an_object_that_the_cache_has_not_heard_of_is_not_gone",),
    ),
    Mutant(
        "trust a comparison from before a restore in a snapshot",
        "cache/reads.py",
        "or (lists != pin.lists and any(is_older(each, pin.reached) for each in lists))",
        "or False",
        11,
        ("tests/cache/test_pinned.py::test_11_a_comparison_from_before_a_restore_proves_nothing",),
    ),
    Mutant(
        "take each absence in the cache for a deletion",
        "cache/_server_reads.py",
        "request.at_least.uid == uid:\n            return True",
        "request.at_least.uid == uid or True:\n            return True",
        6,
        (AT_LEAST + "an_absence_as_of_a_version_is_known_without_a_request",),
    ),
    Mutant(
        "answer a get of one watch at any version",
        "cache/freshness.py",
        "type(version) is str and is_reached(version, store.version)",
        "type(version) is str",
        11,
        (AT_LEAST + "a_get_of_a_version_that_is_reached_is_that_of_any_other_get",),
    ),
    Mutant(
        "return the default for a member that is not stored",
        "cache/formats/partial.py",
        "        if key not in self and is_lost(key, self._tree):\n",
        "        if False:\n",
        13,
        (
            PARTIAL + "every_read_of_a_part_says_so",
            PARTIAL + "a_member_of_which_a_part_is_stored_says_so",
        ),
    ),
    Mutant(
        "mark the top of a partial object alone",
        "cache/formats/partial.py",
        "        if part.parts and key in value:\n",
        "        if False:\n",
        13,
        (PARTIAL + "a_member_of_which_a_part_is_stored_says_so",),
    ),
)
