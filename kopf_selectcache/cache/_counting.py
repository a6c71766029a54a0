"""Counts objects: those inside of the filter, or in a split cache those outside of it as well."""

from __future__ import annotations

from collections.abc import Callable

from kopf_selectcache._errors import NotKept, ReadError, require
from kopf_selectcache.selectors.selector import Selector

from ._snapshot import Snapshot, compare, count_objects, outside_of
from .request import Request


def counting(*, outside: bool) -> Callable[[Request, Snapshot], int]:
    """Return the function that counts objects, also those outside of the filter."""
    require(isinstance(outside, bool), ReadError, "cache.count()", "outside", outside, "True or False")
    return count_all if outside else count_objects


def count_all(request: Request, snapshot: Snapshot) -> int:
    """Return the number of requested objects, inside and outside of the filter of a split cache."""
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
    with snapshot.own_writes.lock:
        records = {record.key: record for record in snapshot.store.all_records()[0]}
        # A deletion of an object outside rests at once: no stream shows it inside.
        for write in (*snapshot.own_writes, *snapshot.own_writes.resting.values()):
            newest = write.instead_of(records.get(write.key), snapshot.store.version)
            if newest is None and write.outside is not None and not write.is_deletion:
                newest = write.outside
            if newest is None:
                records.pop(write.key, None)
            else:
                records[write.key] = newest
    return match.count(records.values())
