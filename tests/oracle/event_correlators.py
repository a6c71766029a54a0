"""Scripts of correlators, and how that of client-go answers them (eventcorrelator/main.go).

`python -m tests.oracle.event_correlators` builds that program, asks it, and stores the answers, which
are compared by default. The soaks compare live ones."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from kopf_selectcache.recorder.correlator import Correlator, CorrelatorDecision, Limits
from kopf_selectcache.recorder.events import EventType, Occurrence, Reference, Reporter
from tests.oracle import golang
from tests.oracle.golang import NoGo, OracleError, find_go

MODULE = Path(__file__).parent / "eventcorrelator"
GOLDEN = Path(__file__).parent / "testdata" / "event_correlators.jsonl.gz"
COUNT = 25
"""Stored scripts of each sort."""

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
QUARTER = SECOND // 4
"""Times are multiples of it: they are exact as floats of seconds."""


class Options(TypedDict):
    """A zero is the default of client-go."""

    similar: int
    within: int
    burst: int
    refill: float
    remembered: int
    functions: bool
    """Use functions of the script's own for keys and messages."""


class Operation(TypedDict):
    """An occurrence, or the server's answer to the write of a former one."""

    at: int
    """Nanoseconds since 1970."""
    occurrence: NotRequired[list[str]]
    """Component, host, controller, instance, kind, namespace, name, uid, field path, API version, type,
    reason, and message."""
    confirms: NotRequired[int]
    """The index of the answered operation."""
    name: NotRequired[str]
    """Empty if the server has the name that was written."""
    version: NotRequired[str]
    add: NotRequired[int]
    """The difference of the server's count from the one that was written."""


class Script(TypedDict):
    options: Options
    ops: list[Operation]


class Outcome(TypedDict, total=False):
    """Empty fields are left out, as Go does it. An answer of the server has none."""

    skip: bool
    patch: list[str]
    """The fields of the patch; none in a creation."""
    namespace: str
    name: str
    version: str
    count: int
    first: int
    last: int
    message: str
    controller: str
    instance: str


WIDE: dict[str, Any] = {
    "similar": [10],
    "within": [600],
    "burst": [25],
    "refill": [300.0],
    "remembered": [4096],
}
SORTS: dict[str, dict[str, Any]] = {
    "counts": {"remembered": [4096, 5], "reasons": 1, "burst": [1000, 5]},
    "aggregates": {"similar": [1, 2, 3], "within": [4, 600], "burst": [1000]},
    "buckets": {"burst": [2, 3, 5], "refill": [300.0, 7.0, 0.5], "similar": [3, 10]},
    "evictions": {"remembered": [1, 2, 3], "similar": [2, 3], "burst": [2, 1000], "answers": False},
    "everything": {
        "similar": [0, 1, 2, 3],
        "within": [0, 4, 600],
        "burst": [0, 2, 5, 1000],
        "refill": [0, 300.0, 0.5, 10.0],
        "remembered": [0, 2, 4, 8],
        "answers": False,
    },
    "functions": {"similar": [2, 3], "burst": [2, 3, 1000], "functions": True},
    "the defaults": {"length": 80, "objects": 1},
}
"""Sorts of scripts without the known differences, up to the first suppression. No message of a full group
repeats: which one client-go forgets is random."""


def make(
    rng: random.Random,
    *,
    objects: int = 2,
    reasons: int = 2,
    length: int = 40,
    functions: bool = False,
    answers: bool = True,
    **ranges: Any,
) -> Script:
    chosen = {name: rng.choice(values) for name, values in {**WIDE, **ranges}.items()}
    options = cast("Options", {**chosen, "functions": functions})
    similar, within = options["similar"] or 10, options["within"] or 600
    gaps = [0, 1, 2, 4, 4 * within, 4 * within - 1, 4 * within + 1, int(4 * (options["refill"] or 300))]
    weights = [6, 6, 4, 4, 1, 1, 1, 2]
    fresh = count(100)
    full: dict[str, set[str]] = defaultdict(set)
    seen: dict[str, int] = {}
    at = START
    ops: list[Operation] = []
    for index in range(length):
        at += QUARTER * rng.choices(gaps, weights)[0]
        if answers and ops and rng.random() < 0.25 and "occurrence" in ops[-1]:
            ops.append(Operation(at=at, confirms=len(ops) - 1, name="", version=f"v{index}", add=0))
            continue
        name = rng.choice("acd"[:objects])
        parts = ["webapps", "", "", "", "Pod", "shop", name, "", "", "v1"]
        parts += [rng.choice(["Normal", "Normal", "Warning"]), f"Reason{rng.randrange(reasons)}"]
        # The functions of scripts have a group for each reason.
        group = parts[-1] if functions else "".join(parts)
        if at - seen.get(group, at) > within * SECOND:
            full[group].clear()
        seen[group] = at
        message = rng.choice("lmnop") if similar < 9 else f"m{rng.randrange(14)}"
        if len(full[group] | {message}) >= similar:
            message = f"m{next(fresh)}"
        full[group].add(message)
        ops.append(Operation(at=at, occurrence=[*parts, message]))
    return Script(options=options, ops=ops)


def scripts(seed: int, number: int, sort: str) -> Iterator[Script]:
    """Yield this many scripts of a sort."""
    rng = random.Random(f"{seed} {sort}")
    yield from (make(rng, **SORTS[sort]) for _ in range(number))


def limits_of(options: Options, *, shown: int) -> Limits:
    given: dict[str, Any] = {
        "similar": options["similar"],
        "similar_within": options["within"],
        "burst": options["burst"],
        "refill": options["refill"],
        "remembered": options["remembered"],
    }
    given = {name: value for name, value in given.items() if value}
    if options["functions"]:
        given |= {
            "group_key": lambda occurrence: (occurrence.reason, occurrence.message.upper()),
            "aggregate_message": lambda occurrence, _: f"{occurrence.reason} again: {occurrence.message}",
            "bucket_key": lambda occurrence: occurrence.type + occurrence.message,
        }
    return Limits(**(given | {"shown": min(shown, given.get("similar", 10))}))


def occurrence_of(parts: Sequence[str]) -> Occurrence:
    component, host, controller, instance, kind, namespace, name, uid, path, version, sort, *rest = parts
    about = Reference(version, kind, namespace, name, uid, path)
    reason, message = rest
    source = Reporter(component, host, controller, instance)
    return Occurrence(source, about, EventType(sort), reason, message)


def outcome_of(verdict: CorrelatorDecision) -> Outcome:
    event = verdict.event
    if event is None:
        return Outcome(skip=True)
    source, message = event.occurrence.source, event.occurrence.message
    patched = ["count", "lastTimestamp", *(["message"] if message else [])]
    outcome: dict[str, Any] = {
        "patch": [] if verdict.is_new else patched,
        "namespace": event.namespace,
        "name": event.name,
        "count": event.count,
        "first": round(event.first * 4) * QUARTER,
        "last": round(event.last * 4) * QUARTER,
        "message": message,
        "controller": source.controller,
        "instance": source.instance,
    }
    return cast("Outcome", {name: value for name, value in outcome.items() if value})


def play(script: Script, limits: Limits) -> Iterator[Outcome]:
    """Yield the outcomes of our correlator."""
    correlator = Correlator(limits)
    verdicts: dict[int, CorrelatorDecision] = {}
    for index, op in enumerate(script["ops"]):
        if "occurrence" in op:
            occurrence = occurrence_of(op["occurrence"])
            verdicts[index] = verdict = correlator.correlate(occurrence, op["at"] / SECOND)
            yield outcome_of(verdict)
            continue
        verdict = verdicts[op["confirms"]]
        if (event := verdict.event) is not None:
            correlator.confirm(verdict.key, replace(event, count=event.count + op["add"]))
        yield Outcome()


def is_alike(script: Script, theirs: list[Outcome], *, shown: int = 1, whole: bool = False) -> bool:
    """Return true if our outcomes are those of client-go, but for names and versions: up to the first
    suppression, or as a `whole`. An Event that is patched keeps its name.
    """
    names: dict[str, str] = {}
    ours = play(script, limits_of(script["options"], shown=shown))
    for our, their in zip(ours, theirs, strict=True):
        left, right = our.copy(), their.copy()
        our_name, their_name = left.pop("name", ""), right.pop("name", "")
        if "patch" in left and names[our_name] != their_name:
            return False
        names[our_name] = their_name
        right.pop("version", None)
        if left != right:
            return False
        if "skip" in right and not whole:
            break
    return True


def ask(oracle: Path, asked: Iterable[Script]) -> Iterator[tuple[Script, list[Outcome]]]:
    """Yield each script with the outcomes of Go."""
    remaining = iter(asked)
    while bunch := list(islice(remaining, 2000)):
        yield from zip(bunch, golang.answers(oracle, bunch), strict=True)


@cache
def stored() -> dict[str, list[tuple[Script, list[Outcome]]]]:
    """Return the scripts of each sort, and of the differences, with the outcomes of Go."""
    return {sort: [tuple(each) for each in rows] for sort, rows in golang.stored(GOLDEN)}


DIFFERENCES: dict[str, Script] = {}
"""A script for each known difference; docs/dev/decisions.md lists them under 0027."""


def _script(name: str, *given: dict[str, Any], **options: Any) -> None:
    """Add a script. Each given operation is a second after the one before."""
    usual = ["webapps", "", "", "", "Pod", "shop", "web", "1", "", "v1", "Normal", "Pulled", "m"]
    ops: list[Operation] = []
    for index, each in enumerate(given):
        at = START + index * SECOND
        if "confirms" in each:
            ops.append(Operation(at=at, confirms=each["confirms"], name="", version="v", add=each["add"]))
        else:
            ops.append(Operation(at=at, occurrence=[each.get(str(i), part) for i, part in enumerate(usual)]))
    chosen = {each: values[0] for each, values in WIDE.items()} | {"functions": False} | options
    DIFFERENCES[name] = Script(options=cast("Options", chosen), ops=ops)


_SAME: dict[str, Any] = {}
_script("the host is in no key", _SAME, {"1": "node-2"})
_script("keys are joined with separators", {"6": "a", "7": "b1"}, {"6": "ab", "7": "1"})
_script("an Event without a message is no aggregate", {"12": ""}, _SAME, similar=2)
_script("an aggregate shows the newest messages", _SAME, {"12": "n"}, similar=2)
_script("an aggregate has a controller", {"2": "c"}, similar=1)
_script("suppressed occurrences are counted in summaries", *[_SAME] * 6, burst=1, refill=4.0)
_script("an answer counts for an aggregate", _SAME, {"confirms": 0, "add": 3}, _SAME, similar=1)
_script("a late answer loses no occurrence", _SAME, _SAME, {"confirms": 0, "add": 0}, _SAME)
_script("messages are cut", {"12": "m" * 2000})


if __name__ == "__main__":
    try:
        oracle = golang.build(find_go(), MODULE)
        made = {sort: list(scripts(1, COUNT, sort)) for sort in SORTS}
        made["differences"] = list(DIFFERENCES.values())
        golang.store(GOLDEN, [(sort, list(ask(oracle, asked))) for sort, asked in made.items()])
    except (NoGo, OracleError) as error:
        sys.exit(str(error))
    print(f"{sum(map(len, made.values()))} scripts, {GOLDEN.stat().st_size:,} bytes")
