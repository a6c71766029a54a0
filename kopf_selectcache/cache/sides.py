"""Reads of both sides of a split cache: counts objects inside and outside of the filter, and finds those
outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kopf_selectcache._errors import NotKept, ReadError, require
from kopf_selectcache.core.store.record import OutsideRecord, Record
from kopf_selectcache.core.store.substore import ObjectKey
from kopf_selectcache.selectors.selector import Selector

from ._outside import failures_of
from ._snapshot import Snapshot, compare, count_objects, outside_of
from .matcher import Match
from .request import Request


@dataclass(frozen=True, slots=True)
class HiddenObject:
    """An object that exists, and that the filter of a split cache does not select."""

    namespace: str | None
    """Its namespace; None for a cluster-scoped object."""
    name: str
    uid: str
    version: str
    labels: dict[str, str]
    owners: tuple[str, ...]
    """The uids of its owners."""
    wanted: tuple[str, ...]
    """The requirements that it fails, one of each branch of the filter."""


def counting(*, outside: bool) -> Callable[[Request, Snapshot], int]:
    """Return the function that counts objects, also those outside of the filter."""
    require(isinstance(outside, bool), ReadError, "cache.count()", "outside", outside, "True or False")
    return _count_all if outside else count_objects


def hiding(owner: str | None) -> Callable[[Request, Snapshot], list[HiddenObject]]:
    """Return the function that finds objects outside of the filter, of one owner or of any."""

    def find(request: Request, snapshot: Snapshot) -> list[HiddenObject]:
        match = replace(_match(request, snapshot), owner=owner)
        comparisons, (_, outside) = snapshot.comparisons, _sides(snapshot)
        found = match.chosen(outside.values())
        return [_hidden(each, failures_of(comparisons, each)) for each in found]

    return find


def _hidden(record: Record, wanted: tuple[str, ...]) -> HiddenObject:
    return HiddenObject(
        record.namespace or None,
        record.name,
        record.uid,
        record.version,
        dict(record.labels),
        tuple(record.owners),
        wanted,
    )


def _count_all(request: Request, snapshot: Snapshot) -> int:
    """Return the number of requested objects, inside and outside of the filter of a split cache."""
    match = _match(request, snapshot)
    return sum(match.count(side.values()) for side in _sides(snapshot))


def _match(request: Request, snapshot: Snapshot) -> Match:
    """Return the predicate of a request, by names and labels; raise OutsideFilter if some of the objects that
    it requests may be on neither side, and NotKept if their metadata does not decide it.
    """
    compared, plan = compare(request, snapshot), snapshot.plan
    spaces = compared.selector.namespaces
    if plan is None or not all(map(plan.proves, spaces or ("",))) or (spaces is None and not plan.is_of_all):
        raise outside_of(request, compared.coverage, snapshot)
    match = snapshot.comparisons.match(compared.selector, under=Selector())
    if match.decodes or request.index is not None or request.where is not None:
        raise NotKept(
            f"{request!r}: only names and labels are known of objects outside of the filter",
            remedy="Leave out outside=True; or count by labels alone",
        )
    return match


def _sides(snapshot: Snapshot) -> tuple[dict[ObjectKey, Record], dict[ObjectKey, Record]]:
    """Return the objects inside and outside of the filter, of one generation, with own writes."""
    inside, outside = dict[ObjectKey, Record](), dict[ObjectKey, Record]()
    with snapshot.own_writes.lock:
        for record in snapshot.store.all_records()[0]:
            is_outside = isinstance(record, OutsideRecord) or snapshot.is_lost(record)
            (outside if is_outside else inside)[record.key] = record
        # A deletion of an object outside rests at once: no stream shows it inside.
        for write in (*snapshot.own_writes, *snapshot.own_writes.resting.values()):
            present = inside.pop(write.key, None) or outside.pop(write.key, None)
            newest = write.instead_of(present, snapshot.store.version)
            if newest is not None:
                (outside if isinstance(newest, OutsideRecord) else inside)[write.key] = newest
            elif write.outside is not None and not write.is_deletion:
                outside[write.key] = write.outside
    return inside, outside
