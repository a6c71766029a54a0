"""Scopes: for each feature the smallest exploration that has it, together with what it depends on. Each is
exhaustive with `make model` and under the marker `soak`."""

from __future__ import annotations

from . import rule, unordered
from .world import Rule, Scope

ONE_STREAM = tuple(frozenset({each}) for each in (0, 1))
"""Each object is in one stream."""

SMALL = (
    Scope("two streams", writes=2),
    Scope("relists", lists=1, has_ticks=True),
    Scope("probes", probes=1),
    Scope("one stream and a probe", streams=1, names=((0,),), writes=4, probes=1, begins_listed=True),
    Scope("own writes", own=2, begins_listed=True),
    Scope("own writes and one stream", streams=1, names=((0,),), writes=4, own=1, begins_listed=True),
    Scope(
        "own writes, relists and a quiet stream",
        writes=3,
        own=1,
        lists=1,
        selections=(frozenset({0}),),
        begins_listed=True,
    ),
    Scope("own writes whose answer is lost", own=1, loses_answers=True, begins_listed=True),
    Scope(
        "probes while a list is read",
        probes=1,
        lists=1,
        selections=ONE_STREAM,
        are_lists_slow=True,
        begins_listed=True,
    ),
    Scope("three streams", streams=3, names=((0, 1, 2),), begins_listed=True),
    Scope("streams of other namespaces", streams=3, names=((0, 1), (1, 2)), begins_listed=True),
    Scope("two names and a probe", names=((0, 1), (0,)), probes=1, begins_listed=True),
    Scope("deletions with the old version", deletes_with_old_version=True, has_ticks=True),
    Scope(
        "one stream and deletions with the old version",
        streams=1,
        names=((0,),),
        deletes_with_old_version=True,
        begins_listed=True,
    ),
    Scope(
        "two names and deletions with the old version",
        names=((0, 1), (0, 1)),
        writes=3,
        selections=(frozenset({0}), frozenset({1})),
        deletes_with_old_version=True,
        begins_listed=True,
    ),
    Scope("lost events", losses=1, own=1, begins_listed=True),
    Scope("lost events and probes", losses=1, probes=1, begins_listed=True),
    Scope("a restore", restores=1, selections=ONE_STREAM, begins_listed=True),
    Scope("a restore and own writes", restores=1, own=1, selections=(frozenset({0}),), begins_listed=True),
    Scope("an eviction and own writes", evictions=1, own=1, selections=ONE_STREAM, begins_listed=True),
    Scope(
        "own writes while a list is read",
        own=1,
        lists=1,
        selections=ONE_STREAM,
        are_lists_slow=True,
        begins_listed=True,
    ),
    Scope("a split cache", writes=3, own=1, outer=1, selections=ONE_STREAM, begins_listed=True),
    Scope("unreadable objects", has_unreadable=True, begins_listed=True),
    Scope("misread fields", own=1, misread=frozenset({1}), begins_listed=True),
    Scope("another filter", own=1, filters=((0,), (1,)), changes=1, begins_listed=True),
    Scope(
        "a restore while a filter changes",
        filters=((0,), (1,)),
        changes=1,
        restores=1,
        selections=ONE_STREAM,
        begins_listed=True,
    ),
    Scope("probes of the prober", probes=2, targets_only=True, has_ticks=True, begins_listed=True),
    Scope("versions without order", lists=1, has_order=False),
    Scope(
        "versions without order, another filter",
        filters=((0,), (1,)),
        changes=1,
        has_order=False,
        begins_listed=True,
    ),
)
"""The default suite explores their shortest stories."""

LARGE = (
    Scope("two streams, 4 writes", writes=4),
    Scope("two relists, 3 writes", writes=3, lists=2, begins_listed=True),
    Scope("two probes, 3 writes", writes=3, probes=2, begins_listed=True),
    Scope("two own writes of 3", writes=3, own=2, begins_listed=True),
    Scope("own writes, relists and probes", own=1, lists=1, probes=1, begins_listed=True),
    Scope("own writes and first lists", own=2, lists=1),
    Scope("three streams, 3 writes", streams=3, names=((0, 1, 2),), writes=3, begins_listed=True),
    Scope("three streams and first lists", streams=3, names=((0, 1, 2),)),
    Scope("three streams and a probe", streams=3, names=((0, 1, 2),), probes=1, begins_listed=True),
    Scope("three streams and own writes", streams=3, names=((0, 1, 2),), own=1, lists=1, begins_listed=True),
    Scope("other namespaces and own writes", streams=3, names=((0, 1), (1, 2)), own=1, begins_listed=True),
    Scope("other namespaces and probes", streams=3, names=((0, 1), (1, 2)), probes=1, begins_listed=True),
    Scope("two names, a probe and a relist", names=((0, 1), (0, 1)), probes=1, lists=1, begins_listed=True),
    Scope("old versions and own writes", deletes_with_old_version=True, has_ticks=True, own=1, lists=1),
    Scope("old versions and probes", deletes_with_old_version=True, writes=3, probes=1, begins_listed=True),
    Scope("two lost events", losses=2, lists=1, writes=3, begins_listed=True),
    Scope("a restore, own writes and a relist", restores=1, own=1, lists=1, begins_listed=True),
    Scope("a restore and slow lists", restores=1, are_lists_slow=True, begins_listed=True),
    Scope("an eviction and slow lists", evictions=1, own=1, are_lists_slow=True, begins_listed=True),
    Scope(
        "a split cache of two alternatives",
        streams=3,
        names=((0, 1, 2),),
        outer=2,
        selections=(frozenset({0}), frozenset({1}), frozenset({0, 1}), frozenset({2})),
        own=1,
        probes=1,
        lists=1,
        begins_listed=True,
    ),
    Scope("unreadable objects and own writes", has_unreadable=True, own=1, lists=1, begins_listed=True),
    Scope("misread fields and relists", own=2, lists=1, misread=frozenset({1}), begins_listed=True),
    Scope("a wider filter", own=1, filters=((0,), (0, 1)), changes=1, lists=1, begins_listed=True),
    Scope("a narrower filter", own=1, filters=((0, 1), (0,)), changes=1, lists=1, begins_listed=True),
    Scope(
        "another filter and slow lists",
        filters=((0,), (1,)),
        changes=1,
        own=1,
        are_lists_slow=True,
        begins_listed=True,
    ),
    Scope(
        "a restore and own writes while a filter changes",
        filters=((0,), (1,)),
        changes=1,
        restores=1,
        own=1,
        begins_listed=True,
    ),
    Scope("another filter and a probe", filters=((0, 1), (0,)), changes=1, probes=1, begins_listed=True),
)
"""What runs under the marker `soak`: products of the features, and longer histories."""


def rule_of(scope: Scope) -> Rule:
    """Return the rule that serves a scope."""
    return rule if scope.has_order else unordered


def scope_of(name: str) -> Scope:
    """Return the small scope of this name."""
    return next(scope for scope in SMALL if scope.name == name)
