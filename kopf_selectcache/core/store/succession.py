"""Succession: when the filter of a cache changes, the union of the next filter takes the place of the present
one in one step.

Streams of both filters are *kept*: the next union shares their records, and each of their reports is applied
to both unions. All other streams of the next filter are listed beside the present ones. An object is *in
flight* if the present union shows a state that the next one may still receive, or if the next one shows a
state that readers have seen end. No reader may see it go back, disappear or return, so the step waits for it.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from .changes import Change, ChangeCause, KnownBy, replaced
from .record import ObjectKey, OutsideRecord, Record, is_newer, is_older, rank_of
from .substore import Floors, Substore
from .union import Union


class UnionDeparture(NamedTuple):
    """The departure of an object from the present union while the filter changes."""

    record: Record
    """Its last record."""
    version: str
    """The version as of which that is known."""


class Succession:
    """The present and the next union, until the step.

    `kept` maps the streams of the present union that the next one has as well to those of the next one.
    `selected` returns if the present filter selects an object, None if that cannot be known.
    """

    def __init__(
        self,
        before: Union,
        after: Union,
        kept: Mapping[Substore, Substore],
        selects: Callable[[Record], bool | None],
        selected: Callable[[Record], bool | None],
    ) -> None:
        self.before = before
        self.after = after
        self.selects = selects
        """Returns if the next filter selects an object; None if that cannot be known."""
        self._selected = selected
        self._in_flight: Iterable[ObjectKey] | None = None
        """The objects that were in flight at the last call of `has_arrived`; None before the first one."""
        self._note_what_has_ended()
        self._adopt(kept)

    def _note_what_has_ended(self) -> None:
        """Note which states readers have seen end, and as of which version. After a restore of the server,
        versions begin anew.
        """
        self._epoch = self.before.epoch
        self._ended = _floors_of(self.before)
        self._departed: dict[ObjectKey, UnionDeparture] = {}
        """The objects that have departed from the present union meanwhile."""
        self._just_departed: set[ObjectKey] = set()
        """Those of them whose stream may not have reached their departure yet."""
        versions = [self.before.newest_version, *self._ended.values()]
        self._confirmed = max(versions, key=rank_of)
        """The version as of which readers know what has ended."""

    def _adopt(self, kept: Mapping[Substore, Substore]) -> None:
        """Fill the kept streams of the next union with their records, as if they had been listed. They ignore
        states that readers have seen end.
        """
        for of, substore in kept.items():
            for key, floor in self._ended.items():
                _ignore(substore, key, floor, of.version)
            self.after.begin(substore)
            for record in of.view.records()[0]:
                self.after.put(substore, record)
            self.after.commit(substore, of.version)
            substore.listed = of.listed

    @property
    def is_complete(self) -> bool:
        """True if all lists of the next union are complete."""
        return self.after.store.version != ""

    def share(self, record: Record) -> Record:
        """Return the same object as the present union holds it, so that it is in memory only once."""
        held = self.before.shown(record.key)
        is_shared = held is not None and held.compression is record.compression and held.is_same(record)
        return held if held is not None and is_shared else record

    def note(self, changes: Iterable[Change]) -> None:
        """Note changes of the present union."""
        for change in changes:
            if (record := change.before) is not None and change.after is None:
                self._departed[record.key] = UnionDeparture(record, "")
                self._just_departed.add(record.key)
                # The object may have been elsewhere meanwhile, unseen.
                self._confirmed = max(self._confirmed, self.before.reached(record.key), key=rank_of)

    def restart(self) -> None:
        """Look at all objects again: the streams that are not kept have gone on."""
        self._in_flight = None

    def has_arrived(self) -> bool:
        """Return True if no object is in flight, of those that were at the last call. Call it after `restart`
        immediately before the step: then it looks at all objects.
        """
        if self._epoch != self.before.epoch:
            self._note_what_has_ended()
        if not self.after.has_one_epoch:
            return False
        if not self.before.has_one_epoch:
            return True  # The server was restored: versions of different epochs cannot be compared.
        if not self._are_outer_streams_new_enough():
            return False
        for key in self._just_departed:
            departure = self._departed[key]
            version = max(departure.version, self.before.newest_version, key=rank_of)
            self._departed[key] = departure._replace(version=version)
        self._just_departed.clear()
        keys = self._in_flight
        if keys is None:
            keys = dict.fromkeys(
                record.key for union in (self.before, self.after) for record in union.store.all_records()[0]
            )
        self._in_flight = [key for key in keys if self._is_in_flight(key)]
        return not self._in_flight

    def _are_outer_streams_new_enough(self) -> bool:
        """Return True if the outer streams of the next union have what has departed. A split cache has that
        already.
        """
        return _is_split(self.before) or not any(
            each.keys.are_outside and is_older(each.version, self._confirmed) for each in self.after.substores
        )

    def _is_in_flight(self, key: ObjectKey) -> bool:
        shown, following = self.before.store.held(key), self.after.store.held(key)
        if shown is following:
            return False
        if shown is None:
            assert following is not None, "both are None"
            return (
                self._may_depart(key, following)
                or (self._has_ended(following) and not self.after.has_passed(key, self._confirmed))
                or (
                    self.before.is_past(following)
                    and (_is_split(self.before) or self._selected(following) is True)
                )
            )
        if following is not None:
            return is_older(following.version, shown.version)
        if isinstance(shown, OutsideRecord):
            may_be_shown = _is_split(self.after) or self.selects(shown) is not False
            return may_be_shown and self._is_behind(shown)
        if self.selects(shown) is False:
            return self._is_on_its_way_outside(shown)
        return self._is_behind(shown)

    def _may_depart(self, key: ObjectKey, following: Record) -> bool:
        """Return True if a stream of the next union has still to report a departure from the present one. If
        none has, a restored server has the object again.
        """
        departed = self._departed.get(key)
        return (
            departed is not None
            and not is_newer(following.version, departed.record.version)
            and (self.after.is_unconfirmed(key) or not self.after.has_passed(key, departed.version))
        )

    def _has_ended(self, record: Record) -> bool:
        """Return True if readers had seen this state end before the change."""
        floor = self._ended.get(record.key)
        return floor is not None and not is_newer(record.version, floor)

    def _is_behind(self, shown: Record) -> bool:
        """Return True if a stream of the next union has still to report an object, or its end."""
        return any(
            not version or not self.after.has_passed(shown.key, version)
            for version in (shown.version, *self.before.left_at(shown.key))
        )

    def _is_on_its_way_outside(self, record: Record) -> bool:
        """Return True if an outer stream of the next union has still to report an object, or its end."""
        return any(
            each.keys.are_outside and each.keys.have(record.key) and is_newer(record.version, each.version)
            for each in self.after.substores
        )

    def differences(self) -> list[Change]:
        """Return the changes that lead from the present union to the next one, in this order: departures,
        updates, entries; each ordered by namespace and name. The next union ignores reports of streams that
        are behind about objects that have departed.
        """
        both = {record.key: record for record in self.before.store.all_records()[0]}
        before = {key: record for key, record in both.items() if not isinstance(record, OutsideRecord)}
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
        newest = self.before.newest_version
        self.after.seen = max(newest, self.before.seen, key=rank_of)
        floors = _floors_of(self.before)
        for key, floor in self._ended.items():
            floors.lay(key, floor)
        departed = {key: each.record for key, each in self._departed.items()}
        for key, record in {**departed, **both}.items():
            # A version beyond that of all streams is from before the server was restored.
            is_shown_later = isinstance(record, OutsideRecord) and self.selects(record) is not False
            if not is_shown_later and not is_newer(record.version, newest):
                floors.lay(key, record.version)
        for key, floor in floors.items():
            for substore in self.after.substores if key not in after else ():
                _ignore(substore, key, floor, substore.version)
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


def _floors_of(union: Union) -> Floors:
    """Return the states that readers have seen end, and that a stream may still report."""
    found = Floors()
    for key, floor in (each for substore in union.substores for each in substore.floors.items()):
        found.lay(key, floor)
    return found


def _ignore(substore: Substore, key: ObjectKey, floor: str, version: str) -> None:
    """Have a stream that is at this version ignore states that have ended, if it may still report them."""
    if substore.keys.have(key) and is_newer(floor, version):
        substore.floors.lay(key, floor)


def _is_split(union: Union) -> bool:
    return any(each.keys.are_outside for each in union.substores)
