"""Scopes: what can happen in each exploration."""

from __future__ import annotations

from kopf_selectcache.core.assignment.replica import Timing

from .world import Fault, Part, Scope

STRANGERS = (Fault.DELETE, Fault.EDIT, Fault.DELETE_LEASE, Fault.EDIT_LEASE, Fault.PUT_BACK)
PARTS = tuple(Part)
MANY = (*STRANGERS[:-1], Fault.CRASH, Fault.LEAVE, Fault.LATE, Fault.CANCEL)

SMALL = (
    Scope("all begin at once", replicas=3, ranges=3, faults=0, is_cold=True),
    Scope("parts", parts=PARTS, faults=1),
    Scope("other clocks", parts=PARTS, kinds=(Fault.CRASH,), faults=1, offsets=(20, 0)),
    Scope("crashes", kinds=(Fault.CRASH,), faults=2),
    Scope("strangers", kinds=STRANGERS, faults=1),
    Scope("strangers and crashes", kinds=(Fault.DELETE_LEASE, Fault.CRASH), faults=2),
    Scope("no watch of a", parts=PARTS, kinds=STRANGERS, faults=1, story=("a: watch blocked",)),
    Scope(
        "a is cut off, b is fast",
        kinds=(Fault.FAST,),
        faults=2,
        at="b",
        story=("a: requests blocked", "a: watch blocked"),
    ),
    Scope(
        "a is cut off and slow",
        kinds=(Fault.SLOW,),
        faults=2,
        at="a",
        story=("a: requests blocked", "a: watch blocked"),
    ),
    Scope(
        "the assignment is deleted while all begin",
        is_cold=True,
        parts=(Part.WATCH,),
        kinds=(Fault.DELETE,),
        faults=2,
    ),
    Scope(
        "b starts, and a has no watch",
        late=1,
        ranges=2,
        kinds=STRANGERS[:-1],
        faults=1,
        story=("a: watch blocked",),
    ),
    Scope("a stopped server", parts=(Part.SERVER,), kinds=(Fault.CRASH,), faults=2),
    Scope(
        "a stopped server while one joins",
        ranges=2,
        parts=(Part.SERVER,),
        faults=1,
        late=1,
        timing=Timing(lease=5, renew=2, margin=2, write=3, retry=1),
    ),
    Scope(
        "slow answers",
        parts=(Part.REQUESTS,),
        at="a",
        faults=1,
        client_patience=4,
        story=("a: watch blocked", "a: answers blocked"),
        timing=Timing(lease=6, renew=1, margin=1, write=1, retry=1),
    ),
    Scope("hand-over", ranges=2, parts=PARTS, kinds=(Fault.CRASH, Fault.LEAVE), faults=1, late=1),
    Scope(
        "a stops while it drains",
        ranges=2,
        parts=(Part.PROCESS,),
        at="a",
        faults=1,
        late=1,
        story=("a: work blocked",),
    ),
    Scope(
        "a cancels what it drains",
        ranges=2,
        parts=(Part.SERVER,),
        kinds=(Fault.CANCEL,),
        at="a",
        faults=2,
        late=1,
        story=("a: work blocked", "b starts"),
    ),
    Scope(
        "a drains without a watch",
        ranges=2,
        parts=(Part.ANSWERS,),
        at="a",
        faults=1,
        late=1,
        story=("a: work blocked", "b starts", "a: watch blocked"),
        timing=Timing(lease=8, renew=2, margin=2, write=1, retry=1),
    ),
    Scope(
        "strangers while a drains without a watch",
        ranges=2,
        kinds=STRANGERS,
        faults=1,
        late=1,
        story=("a: work blocked", "b starts", "a: watch blocked"),
    ),
    Scope(
        "a late acknowledgement",
        ranges=2,
        kinds=(Fault.LATE, Fault.CRASH),
        faults=1,
        late=1,
        story=("a: delete the assignment", "3", "a: work blocked", "b starts"),
    ),
    Scope(
        "b has no watch of Leases",
        faults=0,
        story=("b: leases blocked", "a: delete its Lease", "a: watch blocked"),
    ),
    Scope(
        "two that see other members",
        replicas=3,
        ranges=6,
        faults=0,
        story=("c: answers blocked", "1", "c: edit its Lease", "1", "b: leases blocked", "b: edit its Lease"),
        timing=Timing(),
    ),
    Scope("few ranges at a time", ranges=4, faults=0, late=1, warm_at_once=1),
    Scope("leave", parts=(Part.ANSWERS, Part.WORK), kinds=(Fault.LEAVE,), faults=2, at="a"),
    Scope("three replicas", replicas=3, ranges=2, parts=(Part.PROCESS,), kinds=(Fault.CRASH,), faults=1),
)

KNOWN_LIMIT = Scope(
    "an earlier assignment is put back, and a has no watch",
    late=1,
    ranges=2,
    kinds=(Fault.PUT_BACK,),
    faults=1,
    story=("a: watch blocked",),
)
"""A replica that has just started can't know that there was a newer one."""

NO_TRACE = Scope(
    "its Lease and the assignment are deleted, and a can't see it",
    late=1,
    ranges=2,
    faults=0,
    story=(
        "a: watch blocked",
        "a: leases blocked",
        "a: answers blocked",
        "a: delete its Lease",
        "a: delete the assignment",
        "b starts",
    ),
    timing=Timing(),
)
"""A replica that has just started can't know that there is another one."""

LARGE = (
    Scope("two watches", parts=(Part.WATCH,), faults=2),
    Scope("strangers and a slow watch", parts=(Part.WATCH,), kinds=STRANGERS, faults=2),
    Scope("drift", parts=(Part.REQUESTS,), kinds=(Fault.SLOW, Fault.FAST), faults=3),
    Scope("two parts", parts=PARTS, faults=2),
    Scope("two parts in a hand-over", ranges=2, parts=PARTS, kinds=(Fault.LEAVE,), faults=2, late=1),
    Scope("anything twice", parts=PARTS, kinds=MANY, faults=2),
    Scope("three replicas, anything", replicas=3, ranges=3, parts=PARTS, kinds=MANY, faults=1, late=1),
)

LEASES = tuple(kind for kind in MANY if kind not in (Fault.DELETE, Fault.EDIT))
ASSIGNMENTS = tuple(kind for kind in MANY if kind is not Fault.DELETE_LEASE)
"""Not both: see NO_TRACE."""

RANDOM = (
    Scope("two replicas", ranges=3, parts=PARTS, kinds=ASSIGNMENTS, faults=10_000),
    Scope("two replicas without Leases", ranges=3, parts=PARTS, kinds=LEASES, faults=10_000),
    Scope("four replicas", replicas=4, ranges=6, parts=PARTS, kinds=ASSIGNMENTS, faults=10_000, late=1),
    Scope("three without Leases", replicas=3, ranges=6, parts=PARTS, kinds=LEASES, faults=10_000, late=1),
    Scope(
        "real durations",
        replicas=3,
        ranges=6,
        parts=PARTS,
        kinds=ASSIGNMENTS,
        faults=10_000,
        timing=Timing(),
    ),
)


def scope_of(name: str) -> Scope:
    """Return the scope of a name."""
    return next(scope for scope in (*SMALL, *LARGE) if scope.name == name)
