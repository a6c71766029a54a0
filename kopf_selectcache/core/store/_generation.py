"""Difference of two generations of records. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from .record import Record

Held: TypeAlias = Mapping[str, Mapping[str, Record]]
"""Records by namespace and name."""


def all_of(held: Held) -> Iterator[Record]:
    """Yield all records."""
    return (record for named in held.values() for record in named.values())


def differing(before: Held, after: Held) -> Iterator[tuple[Record | None, Record | None]]:
    """Yield each changed record before and after, None for absence. An object that was replaced by another
    with the same name yields two pairs: a removal and an addition.
    """
    for old in all_of(before):
        new = after.get(old.namespace, {}).get(old.name)
        if new is None or new.uid != old.uid:
            yield old, None
    for new in all_of(after):
        same = before.get(new.namespace, {}).get(new.name)
        if same is None or same.uid != new.uid:
            yield None, new
        elif same is not new:
            yield same, new
