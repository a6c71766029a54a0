"""Differences of two declarations of one kind."""

from __future__ import annotations

from dataclasses import fields

from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.selectors.selector import Branches, labels_of_namespaces

from .declaration import STORED, Cached


def select_alike(declared: Cached, other: Cached, *, kind: Kind | None) -> bool:
    """Return True if the filters of both select the same objects."""
    if declared.unconfined is None and other.unconfined is None:
        return _alike(declared.filter, other.filter, kind)
    # Of a kind that may turn out to be cluster-scoped, both filters must be alike.
    one, two = (
        each.filter if each.unconfined is None else each.unconfined.filter for each in (declared, other)
    )
    return _alike(declared.filter, other.filter, kind) and _alike(one, two, kind)


def _alike(one: Branches, two: Branches, kind: Kind | None) -> bool:
    if one == two:
        return True
    if labels_of_namespaces(one) or labels_of_namespaces(two):
        return set(one.branches) == set(two.branches)  # Only the cluster knows the namespaces.
    return bool(one.covers(two, kind=kind)) and bool(two.covers(one, kind=kind))


def differing_options(declared: Cached, other: Cached) -> list[str]:
    """Return the options that differ, as users write them."""
    names: list[str] = []
    for each in fields(Cached):
        if (
            each.compare
            and each.name not in ("filter", "unconfined")
            and getattr(declared, each.name) != getattr(other, each.name)
        ):
            names += _differing_parts(declared, other) if each.name == "projection" else [each.name]
    return [f"{'index' if name == 'indexes' else name}=" for name in names]


def _differing_parts(declared: Cached, other: Cached) -> list[str]:
    one, two = declared.projection, other.projection
    return [name for name in STORED if getattr(one, name) != getattr(two, name)]
