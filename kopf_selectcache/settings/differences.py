"""Differences of two declarations of one kind."""

from __future__ import annotations

from dataclasses import fields

from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.selectors.selector import labels_of_namespaces

from .declaration import STORED, Cached


def select_alike(declared: Cached, other: Cached, *, kind: Kind | None) -> bool:
    """Return True if the filters of both select the same objects."""
    one, two = declared.filter, other.filter
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
            and each.name != "filter"
            and getattr(declared, each.name) != getattr(other, each.name)
        ):
            names += _differing_parts(declared, other) if each.name == "projection" else [each.name]
    return [f"{'index' if name == 'indexes' else name}=" for name in names]


def _differing_parts(declared: Cached, other: Cached) -> list[str]:
    one, two = declared.projection, other.projection
    return [name for name in STORED if getattr(one, name) != getattr(two, name)]
