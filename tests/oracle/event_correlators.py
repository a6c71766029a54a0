"""Scripts of correlators, and how that of client-go answers them (eventcorrelator/main.go).

`python -m tests.oracle.event_correlators` builds that program, asks it, and stores the answers, which
are compared by default. The soaks compare live ones."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    "buckets": {"burst": [1, 2, 3], "refill": [300.0, 7.0, 0.5, 25.0], "similar": [3, 10]},
    "evictions": {"remembered": [1, 2, 3], "similar": [2, 3], "burst": [2, 1000], "varied": False},
    "everything": {
        "similar": [0, 1, 2, 3],
        "within": [0, 4, 600],
        "burst": [0, 1, 2, 5],
        "refill": [0, 300.0, 3.0, 10.0],
        "remembered": [0, 2, 4, 8],
    },
    "functions": {"similar": [2, 3], "burst": [2, 3], "functions": True},
    "the defaults": {"length": 80, "objects": 1, "varied": False},
}
"""Sorts of scripts in which no message of a full group repeats: which one client-go forgets is random."""

REPEATING: dict[str, Any] = {
    "similar": [2, 3],
    "burst": [1000],
    "objects": 1,
    "reasons": 1,
    "varied": False,
    "repeats": True,
    "length": 20,
}
"""A sort in which they do: client-go has one of several outcomes."""

PLAIN: dict[str, Any] = {
    "similar": [2, 3, 10],
    "within": [4, 600],
    "burst": [2, 5, 1000],
    "refill": [300.0, 0.5],
    "varied": False,
    "answers": False,
}
"""A sort without the known differences, up to the first suppression."""


def make(
    rng: random.Random,
    *,
    objects: int = 2,
    reasons: int = 2,
    length: int = 40,
    functions: bool = False,
    varied: bool = True,
    repeats: bool = False,
    answers: bool = True,
    **ranges: Any,
) -> Script:
    """Return a script. `varied`: its sources and paths vary; `repeats`: messages of full groups repeat;
    `answers`: those of the server have other names and counts, and come late."""
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
        if ops and rng.random() < 0.25:
            answered = rng.randrange(len(ops)) if answers else len(ops) - 1
            if "occurrence" in ops[answered]:
                add = rng.choice([0, 0, 0, 1, 3, -1, -100]) if answers else 0
                name = rng.choice(["", "", f"other-{index}"]) if answers else ""
                ops.append(Operation(at=at, confirms=answered, name=name, version=f"v{index}", add=add))
                continue
        # Joined without a separator, "a" and "b1" are "ab" and "1".
        name, uid = rng.choice([("a", "b1"), ("ab", "1"), ("c", ""), ("d", "")][:objects])
        host, path = (rng.choice(["", "", each]) if varied else "" for each in ("host", "spec"))
        parts = [
            "webapps",
            host,
            *rng.choice([("", ""), ("c", "i"), ("c", "j")] if varied else [("", "")]),
            "Pod",
            rng.choice(["shop", ""]) if objects > 2 else "shop",
            name,
            uid if varied else "",
            path,
            "v1",
            rng.choice(["Normal", "Normal", "Warning"]),
            f"Reason{rng.randrange(reasons)}",
        ]
        # The functions of scripts have a group for each reason.
        group = parts[-1] if functions else "".join(parts[:2] + parts[4:8] + parts[9:] + parts[2:4])
        if at - seen.get(group, at) > within * SECOND:
            full[group].clear()
        seen[group] = at
        message = (
            rng.choice(["" if varied else "l", "m", "n", "o", "p"])
            if similar < 9
            else f"m{rng.randrange(14)}"
        )
        if not repeats and len(full[group] | {message}) >= similar:
            message = f"m{next(fresh)}"
        full[group].add(message)
        ops.append(Operation(at=at, occurrence=[*parts, message]))
    return Script(options=options, ops=ops)


def scripts(seed: int, number: int, sort: str) -> Iterator[Script]:
    """Yield this many scripts of a sort: one of `SORTS`, `repeating` or `plain`."""
    rng = random.Random(f"{seed} {sort}")
    options = {**SORTS, "repeating": REPEATING, "plain": PLAIN}[sort]
    yield from (make(rng, **options) for _ in range(number))


def limits_of(options: Options, *, reference: bool = True, shown: int = 1) -> Limits:
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
    return Limits(**given, shown=shown, reference=reference)


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
        "version": event.resource_version,
        "count": event.count,
        "first": round(event.first * 4) * QUARTER,
        "last": round(event.last * 4) * QUARTER,
        "message": message,
        "controller": source.controller,
        "instance": source.instance,
    }
    return cast("Outcome", {name: value for name, value in outcome.items() if value})


def play(script: Script, limits: Limits, chance: Callable[[], float] = lambda: 0.0) -> Iterator[Outcome]:
    """Yield the outcomes of our correlator."""
    correlator = Correlator(limits, chance)
    verdicts: dict[int, CorrelatorDecision] = {}
    for index, op in enumerate(script["ops"]):
        if "occurrence" in op:
            occurrence = occurrence_of(op["occurrence"])
            verdicts[index] = verdict = correlator.correlate(occurrence, op["at"] / SECOND)
            yield outcome_of(verdict)
            continue
        verdict = verdicts[op["confirms"]]
        if (event := verdict.event) is not None:
            named = replace(event, name=op["name"] or event.name, resource_version=op["version"])
            correlator.confirm(verdict.key, replace(named, count=max(0, event.count + op["add"])))
        yield Outcome()


def is_equal(script: Script, theirs: list[Outcome]) -> bool:
    return list(play(script, limits_of(script["options"]))) == theirs


def is_alike(script: Script, theirs: list[Outcome], *, shown: int = 1, whole: bool = False) -> bool:
    """Return true if the outcomes without `reference=True` are those of client-go, but for names and for the
    versions of aggregates: up to the first suppression, or as a `whole`. An Event keeps its name.
    """
    names: dict[str, str] = {}
    for our, their in zip(
        play(script, limits_of(script["options"], reference=False, shown=shown)), theirs, strict=True
    ):
        left, right = our.copy(), their.copy()
        name = right.pop("name", "")
        if names.setdefault(left.pop("name", ""), name) != name:
            return False
        if right.get("message", "").startswith("(combined"):
            left.pop("version", None)
        if left != right:
            return False
        if "skip" in right and not whole:
            break
    return True


def is_reachable(script: Script, theirs: list[Outcome]) -> bool:
    """Return true if some random numbers lead to these outcomes."""
    limits, chosen = limits_of(script["options"]), list[int]()
    while True:
        chooser = Chooser(limits.similar, chosen)
        ours = play(script, limits, chooser.choose)
        if all(our == their for our, their in zip(ours, theirs, strict=True)):
            return True
        # Those before the first difference.
        chosen = chooser.taken
        while chosen and chosen[-1] == limits.similar - 1:
            chosen.pop()
        if not chosen:
            return False
        chosen[-1] += 1


class Chooser:
    """Chooses by numbers that are given, and then the first each time."""

    def __init__(self, number: int, given: list[int]) -> None:
        self.taken: list[int] = []
        self._number = number
        self._given = iter(given)

    def choose(self) -> float:
        self.taken.append(next(self._given, 0))
        return (self.taken[-1] + 0.5) / self._number


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
"""A script for each known difference without `reference=True`; docs/decisions/0027-events.md lists them."""


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
        made = {sort: list(scripts(1, COUNT, sort)) for sort in (*SORTS, "repeating", "plain")}
        made["differences"] = list(DIFFERENCES.values())
        golang.store(GOLDEN, [(sort, list(ask(oracle, asked))) for sort, asked in made.items()])
    except (NoGo, OracleError) as error:
        sys.exit(str(error))
    print(f"{sum(map(len, made.values()))} scripts, {GOLDEN.stat().st_size:,} bytes")
