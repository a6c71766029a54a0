"""Scopes: for each feature the smallest exploration that has it, together with what it depends on. Each is
exhaustive. The larger ones run under the marker `soak`."""

from __future__ import annotations

from dataclasses import replace

from .world import Scope

ONE = ((0, 1),)
INSIDE_OR_OUTSIDE = tuple(frozenset({each}) for each in (0, 1))

SMALL = (
    Scope("two streams", writes=2),
    Scope("relists", lists=1, has_ticks=True),
    Scope("probes", probes=1),
    Scope("one stream and a probe", streams=1, names=((0,),), writes=4, probes=1, begins_listed=True),
    Scope("own writes", own=1),
    Scope("two own writes", own=2, begins_listed=True),
    Scope("own writes and one stream", streams=1, names=((0,),), writes=3, own=2, begins_listed=True),
    Scope("own writes and relists", own=1, lists=1, begins_listed=True),
    Scope("three streams", streams=3, names=((0, 1, 2),), begins_listed=True),
    Scope("streams of other namespaces", streams=3, names=((0, 1), (1, 2)), begins_listed=True),
    Scope("two names and a probe", names=((0, 1), (0, 1)), probes=1, begins_listed=True),
    Scope("deletions with the old version", deletes_with_old_version=True, has_ticks=True),
    Scope("lost events", losses=1, own=1, begins_listed=True),
    Scope("lost events and probes", losses=1, probes=1, begins_listed=True),
    Scope("a restore", restores=1, begins_listed=True),
    Scope("an eviction and own writes", evictions=1, own=1, begins_listed=True),
    Scope("own writes while a list is read", own=1, lists=1, are_lists_slow=True, begins_listed=True),
    Scope(
        "a split cache", writes=3, own=1, outer=1, selections=INSIDE_OR_OUTSIDE, begins_listed=True
    ),
    Scope("unreadable objects", has_unreadable=True, begins_listed=True),
    Scope("misread fields", own=1, misread=frozenset({1}), begins_listed=True),
    Scope("another filter", own=1, filters=((0,), (1,)), changes=1, begins_listed=True),
    Scope("probes of the prober", probes=2, targets_only=True, has_ticks=True, begins_listed=True),
)
"""What the default suite explores."""

LARGE = (
    Scope("two streams, 3 writes", writes=3),
)
