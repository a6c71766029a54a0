"""Copies of a `Union`, and what makes two of them equal: for an exploration, which visits each state once.

It looks inside, so it says at once when there is something in there that it does not know.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.record import ObjectKey, Record
from kopf_selectcache.core.store.store import Records, Store, UnionView
from kopf_selectcache.core.store.union import Union

Part: TypeAlias = tuple[object, ...]

_OF_MERGING = {
    "tally",
    "own_writes",
    "substores",
    "_alone",
    "_shown",
    "epoch",
    "_next",
    "_rows",
    "_unclaimed",
    "_met",
    "_outdated",
    "_near",
    "_by_key",
    "_groups",
    "_group_of",
    "_request_index",
}
_OF_BRANCHES = {
    "keys",
    "holds_all",
    "view",
    "epoch",
    "listed",
    "laid",
    "vague",
    "has_missed",
    "_waits",
    "_waiting",
}
_OF_STORES = {
    "_proof",
    "_lock",
    "_held",
    "_staged",
    "_gone",
    "_version",
    "_tally",
    "_request_index",
    "_indexes",
    "unreadable",
    "often_read",
}
_OF_UNIONS = _OF_STORES | {"versions", "_outside"}


def _known(thing: object, attributes: set[str]) -> dict[str, Any]:
    found = vars(thing)
    assert found.keys() == attributes, f"{type(thing).__name__} has changed: {found.keys() ^ attributes}"
    return found


def copied(union: Union) -> Union:
    """Return a copy that shares nothing with the original that changes."""
    made = Union([branch.keys for branch in union.substores])
    twins = dict(zip(union.substores, made.substores, strict=True))
    old = _known(union, _OF_MERGING if union.is_alone else _OF_MERGING | {"_union"})
    assert union.tally is None, "what is counted is not copied"
    assert not union.own_writes.laid, "own writes are not copied"
    for branch, twin in twins.items():
        _known(branch, _OF_BRANCHES)
        _fill(twin.view, branch.view)
        twin.epoch, twin.listed = branch.epoch, branch.listed
        twin.vague, twin.has_missed = set(branch.vague), branch.has_missed
        twin._waits, twin._waiting = branch._waits.copy(), branch._waiting.copy()
    made._met = {frozenset(twins[each] for each in group) for group in union._met}
    if not union.is_alone:
        _fill(made._union, union._union)
        made._union.versions = union._union.versions
    made.epoch, made._rows = union.epoch, dict(old["_rows"])
    made._next = {number: dict(records) for number, records in union._next.items()}
    for key, row in union._unclaimed.items():
        made._unclaimed[key] = row
    return made


def _fill(made: Store, store: Store) -> None:
    old = _known(store, _OF_UNIONS if isinstance(store, UnionView) else _OF_STORES)
    assert not old["_indexes"].made, "indexes are not copied"
    assert not old["unreadable"], "all objects can be read"
    assert not old.get("_outside"), "no cache is split"
    assert not old["often_read"].bytes, "no object is read often"
    made._held, made._gone, made._version = _named(old["_held"]), dict(old["_gone"]), old["_version"]
    made._staged = _named(old["_staged"]) if old["_staged"] is not None else None


def _named(records: Records) -> Records:
    return {namespace: dict(named) for namespace, named in records.items()}


def as_a_whole(union: Union) -> Part:
    """Return what of it concerns no key."""
    branches = union.substores
    return (
        union.epoch,
        () if union.is_alone else union._union.versions,
        repr(sorted(union._next)),
        *(
            (branch.version, branch.epoch, branch.listed, branch.has_missed, branch.view._staged is None)
            for branch in branches
        ),
    )


def of_key(union: Union, key: ObjectKey) -> Part:
    """Return what of it concerns a key, without telling the key."""
    row, shown = union._rows.get(key), union.store.get(*key)[0]
    return (
        part(shown),
        (row.left, row.since) if row is not None else None,
        key in union._unclaimed,
        *(part(records.get(key)) for records in union._next.values()),
        *(_of_branch(branch, key, shown) for branch in union.substores),
    )


def _of_branch(branch: Substore, key: ObjectKey, shown: Record | None) -> Part:
    view, (space, name) = branch.view, key
    held = view.held(key)
    staged = view._staged.get(space, {}).get(name) if view._staged is not None else None
    waits = [version for version, waiting in branch._waits if waiting == key]
    return (
        part(held),
        held is shown,
        part(staged),
        staged is held,
        part(view._gone.get(key)),
        key in branch.vague,
        *waits,
    )


def part(record: Record | None) -> Part | None:
    return (record.uid, record.version, record.labels["serial"]) if record is not None else None
