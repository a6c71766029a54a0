"""Swap: when the filter of a cache changes, the union of the next filter takes the place of the present one
in one step.

Groups of streams that both filters have are *kept*: they go on, and the next union takes them over with the
step. The streams of all other groups are listed beside the present ones. Once these groups are as new as all
that readers have seen, nobody can see an object go back, disappear or return. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

from .changes import Change, ChangeCause, KnownBy, replaced
from .claims import Substore
from .record import Record, is_older, rank_of
from .union import Union

Selects = Callable[[Record], bool | None]
"""Returns whether a filter selects an object; None if that cannot be known."""


class Swap:
    """The present and the next union, until the step."""

    def __init__(
        self,
        before: Union,
        after: Union,
        kept: Mapping[Substore, Substore],
        *,
        selects: Selects,
        selected: Selects,
    ) -> None:
        """`kept` maps the substores of kept groups to those of the next union. `selects` is of the next
        filter, `selected` of the present one.
        """
        self.before = before
        self.after = after
        self._kept = kept
        self.selects = selects
        self._selected = selected
        self._epoch = before.epoch
        self._ended = [each for each in before.substores if each not in kept]
        self._new = [each for each in after.substores if each not in kept.values()]

    @property
    def is_outdated(self) -> bool:
        """True if the server was restored meanwhile: versions cannot be compared, so all begins anew."""
        return not self.before.epoch == self.after.epoch == self._epoch

    @property
    def is_complete(self) -> bool:
        """True if all lists of the new groups are complete."""
        return not self._new or self.after.version_of(self._new) != ""

    @property
    def seen(self) -> str:
        """The newest version of which readers may have seen something in the groups that end."""
        versions = (each.version for each in self._ended if each.epoch == self._epoch)
        return max(versions, key=rank_of, default="")

    def has_reached(self, version: str) -> bool:
        """Return True if the lists of the new groups are complete, and as new as this version."""
        if not self._new:
            return True
        reached = self.after.version_of(self._new)
        return reached != "" and not is_older(reached, version)

    def records(self) -> list[Record]:
        """Return the records of all streams of the next union."""
        of_kept = (each.view.records()[0] for each in self._kept)
        return list(dict.fromkeys(chain(self.after.newest(), *of_kept)))

    def share(self, record: Record) -> Record:
        """Return the same object as the present union holds it, so that it is in memory only once."""
        held = self.before.shown(record.key)
        is_shared = held is not None and held.compression is record.compression and held.is_same(record)
        return held if held is not None and is_shared else record

    def take(self) -> list[Change]:
        """Have the next union take over the kept groups; return the changes that lead from the present one to
        it: departures, updates, entries; each ordered by namespace and name.
        """
        self.after.take_over(self.before, self._kept)
        before = {record.key: record for record in self.before.store.records()[0]}
        after = {record.key: record for record in self.after.store.records()[0]}
        left, updated, entered = list[Change](), list[Change](), list[Change]()
        for key in sorted(before.keys() | after.keys()):
            old, new = before.get(key), after.get(key)
            if old is new:
                continue
            if old is None or new is None or old.uid != new.uid:
                if old is not None:
                    left.append(self._departure(old, is_replaced=new is not None))
                if new is not None:
                    entered.append(self._entry(new, is_replacing=old is not None))
            elif old.version != new.version:
                updated.append(Change(old, new, ChangeCause.UPDATED))
        return [*left, *updated, *entered]

    def _entry(self, record: Record, *, is_replacing: bool) -> Change:
        filter_changed = not is_replacing and self._selected(record) is False
        return Change(None, record, ChangeCause.ENTERED, filter_changed)

    def _departure(self, record: Record, *, is_replaced: bool) -> Change:
        if is_replaced:
            return replaced(record)
        if self.selects(record) is False:
            known_by: KnownBy | None = "metadata" if self.after.store.has_outside(record) else None
            return Change(record, None, ChangeCause.LEFT, True, known_by)
        return self.after.departure_of(record)
