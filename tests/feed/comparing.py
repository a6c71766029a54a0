"""Compares two runs. What may differ is a rule with a reason; everything else is a difference."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from .recording import Call, Recorder, Track

Calls = list[Call]


@dataclass(frozen=True)
class Rule:
    """A difference that is expected: what is left out of the calls of two watches, and of one watch."""

    words: str
    reason: str
    of_two: Callable[[Calls], Calls] = lambda calls: calls
    of_one: Callable[[Calls], Calls] = lambda calls: calls


def _without_repeated_none(calls: Calls) -> Calls:
    """Leave out events of type None for an object that was there before, with their calls."""
    left, known, leaving = [], False, False
    for call in calls:
        if call.handler == "index":
            left.append(call)
            continue
        if call.handler.startswith("event"):
            if call.what == "None" and known and call.handler == "event":
                leaving = True
            elif call.handler == "event":
                leaving = False
                known = call.what != "DELETED"
            if leaving:
                if left and left[-1].handler == "index":
                    left.pop()
                continue
        left.append(call)
    return left


def _present(calls: Calls) -> Calls:
    return [replace(each, what="present") if each.what in ("ADDED", "MODIFIED") else each for each in calls]


NO_MANAGED_FIELDS = Rule(
    "no managedFields",
    "The cache does not store metadata.managedFields. The recorder leaves them out of both.",
)
NO_REPEATED_NONE = Rule(
    "no repeated None after a 410",
    "Kopf lists again, and shows each object once more with the type None. The cache compares the list with"
    " what it has, and shows only changes.",
    of_two=_without_repeated_none,
)
ADDED_ON_RETURN = Rule(
    "ADDED instead of MODIFIED when an object gets the label",
    "For the cache, an object that enters its filter is new, also if it was there before.",
    of_two=_present,
    of_one=_present,
)
DELETIONS_IN_GAPS = Rule(
    "deletions in gaps are told",
    "After a 410, Kopf does not notice which objects its new list lacks. The cache does.",
    of_one=lambda calls: [each for each in calls if each.what != "DELETED"],
)
TIMEOUTS_WITHOUT_EFFECT = Rule(
    "server_timeout, reconnect_backoff and initial_streaming have no effect",
    "They are about the watch that Kopf no longer has.",
)


def require_same(two: Recorder, one: Recorder, *rules: Rule) -> None:
    """Raise AssertionError with all that differs between a run with two watches and one with one watch, apart
    from what these rules expect.
    """
    found = differences(two, one, *rules)
    assert not found, "\n".join(["they differ:", *found])


def differences(two: Recorder, one: Recorder, *rules: Rule) -> list[str]:
    """Return what differs between a run with two watches and one with one watch, as lines of a diff."""
    found = []
    for key in sorted({*two.tracks, *one.tracks}):
        before, after = (_shown(each.tracks[key]) for each in (two, one))
        for part in before:
            if part == "calls":
                left, right = two.tracks[key].calls, one.tracks[key].calls
                for rule in rules:
                    left, right = rule.of_two(left), rule.of_one(right)
                before[part], after[part] = _lines(left), _lines(right)
            found += [
                f"{key} {part}: {line}"
                for line in difflib.unified_diff(before[part], after[part], "two", "one", n=1, lineterm="")
            ]
    if two.notes != one.notes:
        found.append(f"notes: {two.notes} and {one.notes}")
    return found


def _shown(track: Track) -> dict[str, list[str]]:
    return {
        "calls": _lines(track.calls),
        "daemons": [
            f"{name} {line}" for name in sorted(track.daemons) for line in _lines(track.daemons[name])
        ],
        "timers": sorted(track.timers),
        "patches": [_json(each) for each in track.patches],
        "final": [_json(track.final)],
    }


def _lines(calls: Iterable[Call]) -> list[str]:
    return [f"{call.handler} {call.what} {_json(call.given)}" for call in calls]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
