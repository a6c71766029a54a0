"""Copies of a `Union`, and what makes two of them equal: for an exploration, which visits each state once.

It looks inside, so it says at once when there is something in there that it does not know.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from kopf_selectcache.core.store.record import ObjectKey, Record
from kopf_selectcache.core.store.store import Records, Store
from kopf_selectcache.core.store.substore import Substore, UnionView
from kopf_selectcache.core.store.union import Union

Part: TypeAlias = tuple[object, ...]

_OF_MERGING = {
    "tally",
    "substores",
    "_alone",
    "_shown",
    "epoch",
    "_listed",
    "_left",
    "_unconfirmed",
    "_leaving",
    "_unclear",
    "_outdated",
    "_near",
    "_by_key",
    "_groups",
    "_group_of",
    "_request_index",
    "_union",
}
_OF_BRANCHES = {
    "keys",
    "holds_all",
    "view",
    "epoch",
    "listed",
    "vague",
    "_waits",
    "_versions",
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
    old = _known(union, _OF_MERGING)
    assert union.tally is None, "what is counted is not copied"
    for branch, twin in twins.items():
        _known(branch, _OF_BRANCHES)
        _fill(twin.view, branch.view)
        twin.epoch, twin.listed = branch.epoch, branch.listed
        twin.vague = set(branch.vague)
        for key, wait in branch._waiting.items():
            twin.wait_for(wait.version, key)
    _fill(made._union, union._union)
    made._union.versions = union._union.versions
    made.epoch, made._listed = union.epoch, {twins[branch] for branch in union._listed}
    made._unclear = set(union._unclear)
    for name in ("_left", "_unconfirmed", "_leaving"):
        setattr(made, name, dict(old[name]))
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
        union._union.versions,
        sorted(branches.index(branch) for branch in union._listed).__repr__(),
        *((branch.version, branch.epoch, branch.listed, branch.view._staged is None) for branch in branches),
    )


def of_key(union: Union, key: ObjectKey) -> Part:
    """Return what of it concerns a key, without telling the key."""
    doubt, shown = union._unconfirmed.get(key), union.store.get(*key)[0]
    return (
        part(shown),
        union._left.get(key),
        key in union._unclear,
        (doubt.uid, doubt.version, doubt.epoch) if doubt is not None else None,
        *(_of_branch(branch, key, shown) for branch in union.substores),
    )


def _of_branch(branch: Substore, key: ObjectKey, shown: Record | None) -> Part:
    view, (space, name) = branch.view, key
    held = view.held(key)
    staged = view._staged.get(space, {}).get(name) if view._staged is not None else None
    wait = branch._waiting.get(key)
    return (
        part(held),
        held is shown,
        part(staged),
        staged is held,
        part(view._gone.get(key)),
        key in branch.vague,
        wait and wait.version,
    )


def part(record: Record | None) -> Part | None:
    return (record.uid, record.version, record.labels["serial"]) if record is not None else None
