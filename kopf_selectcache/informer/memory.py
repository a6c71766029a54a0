"""How many bytes caches may hold: how that is written, who holds how much, and what to change where it is too
much.

It counts and says; to let a cache go is up to whoever keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import Key, Kind
from kopf_selectcache.core.store.accounting import OVERHEAD, Tally, weight
from kopf_selectcache.core.store.record import Record, kept_json
from kopf_selectcache.selectors.kind_keys import assigned, text_of
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.settings.quantity import Size, bytes_in, written

from .phrase import Phrase

AGAIN = 600.0
"""After so many seconds, about, a cache that was let go is tried again: objects may have been deleted."""

SAMPLES = 5000
"""So many objects are looked at, to find what would fit, and stand for the others."""

FITS = 0.75
"""What is proposed takes no more than this of what is allowed: objects come and grow, and a list anew has
some of them twice."""

LARGEST = 3
"""So many of the largest caches are named."""

# ---- Who holds how much.


class Excess(NamedTuple):
    """What a cache held when it was found to be beyond a budget."""

    objects: int
    bytes: int
    limit: Size
    """The limit as it was declared."""
    allowed: int
    """How many bytes it may hold: of an overall limit, what other caches leave."""
    largest: tuple[tuple[str, int], ...] = ()
    """The largest caches with their bytes, where it is the overall limit."""
    total: int = 0
    """How many bytes all of them held, likewise."""


class Budget:
    """What all caches of one operator may hold together."""

    def __init__(self, limit: Size | None = None) -> None:
        self.limit = limit
        self._most = None if limit is None else bytes_in(limit)
        self._shares: list[Share] = []

    def share(self, key: Key, limit: Size | None) -> Share:
        """Return the part of one cache, which may hold so many bytes itself."""
        share = Share(self, text_of(key), limit)
        self._shares.append(share)
        return share

    def excess(self, share: Share, tally: Tally) -> Excess | None:
        """Return by what a cache is beyond, if all are that together."""
        if self._most is None or self.limit is None:
            return None
        total = sum(each.bytes for each in self._shares)
        if total <= self._most:
            return None
        largest = sorted(((each.key, each.bytes) for each in self._shares), key=lambda named: -named[1])[
            :LARGEST
        ]
        return Excess(
            tally.objects,
            tally.bytes,
            self.limit,
            max(0, self._most - total + share.bytes),
            tuple(largest),
            total,
        )


class Share:
    """What one cache holds, and may hold."""

    def __init__(self, budget: Budget, key: str, limit: Size | None) -> None:
        self.key = key
        self.limit = limit
        self.excess: Excess | None = None
        """By what it has been found to be beyond. From then on it counts as nothing to others: it is let
        go."""
        self.tally: Tally | None = None
        """What is held; None where there is no limit at all."""
        self._asked = 0  # How many bytes were held when it was asked last whether that is too much.
        self._budget = budget
        self._most = None if limit is None else bytes_in(limit)

    @property
    def bytes(self) -> int:
        """How many bytes are held."""
        return self.tally.bytes if self.tally is not None and self.excess is None else 0

    def begin(self) -> Tally | None:
        """Count anew; return who is to be told of what is held."""
        self.excess = None
        self._asked = 0
        self.tally = Tally() if self._most is not None or self._budget.limit is not None else None
        return self.tally

    def is_beyond(self) -> bool:
        """Whether it is too much, where it has grown since this was asked last."""
        tally = self.tally
        grown = tally is not None and tally.bytes > self._asked
        self._asked = tally.bytes if tally is not None else 0
        if (
            tally is not None and grown and self.excess is None
        ):  # Another cache may have grown: it is asked itself.
            if self._most is not None and self.limit is not None and tally.bytes > self._most:
                self.excess = Excess(tally.objects, tally.bytes, self.limit, self._most)
            else:
                self.excess = self._budget.excess(self, tally)
        return self.excess is not None


# ---- What to change.


@dataclass(frozen=True, slots=True)
class Fitting:
    """A narrower selector, and how much of what was held it would have selected."""

    selector: Selector
    objects: int
    bytes: int


def fitting(records: Sequence[Record], most: float) -> Fitting | None:
    """Return the label or the namespace that has the most bytes of these objects, of those that have no more
    than `most`.
    """
    step = max(1, len(records) // SAMPLES)
    parts: dict[tuple[str, str], list[int]] = {}
    for record in records[::step]:
        size = weight(record) * step
        for part in _parts(record):
            amount = parts.setdefault(part, [0, 0])
            amount[0] += step
            amount[1] += size
    total = len(records[::step]) * step
    fit = [(size, part, count) for part, (count, size) in parts.items() if size <= most and count < total]
    if not fit:
        return None
    size, (label, value), count = max(fit)
    selector = Selector({label: value}) if label else Selector(namespaces=[value])
    return Fitting(selector, count, size)


def _parts(record: Record) -> Iterator[tuple[str, str]]:
    yield from record.labels.items()
    if record.namespace:
        yield "", record.namespace


def told(
    name: object,
    key: Key,
    excess: Excess,
    filter_: Selector | AnyOf,
    records: Sequence[Record],
    *,
    kind: Kind | None,
    limit: Size | None,
    packed: bool,
    others: bool = False,
    indexes: Collection[str] = (),
) -> tuple[Phrase, str, Phrase]:
    """Return what happened to a cache, with what it held, and the one thing to change.

    `limit` is what is declared of the cache itself, `others` says that more is declared of it besides,
    `packed` that it is stored packed, or that this was found to be of no use, and `indexes` are the names of
    those whose values it held as well.
    """
    overall = bool(excess.largest)
    line = f"settings.selectcache.max_bytes = {excess.limit!r}" if overall else f"max_bytes={excess.limit!r}"
    held_in_all = excess.total if overall else excess.bytes
    what = Phrase(
        "%(resource)s: the cache was let go, because %(grown)s grew beyond %(limit)s",
        resource=name,
        grown="all caches together" if overall else "it",
        limit=line,
    )
    held = (
        f"with {clipped(filter_, 200)} it held {excess.objects:,}"
        f" {'object' if excess.objects == 1 else 'objects'} in {written(excess.bytes)}"
    )
    values = indexed_bytes(records) if indexes else 0
    if values > excess.bytes / 4:
        held += f", of which {written(values)} are what is indexed by {', '.join(sorted(map(repr, indexes)))}"
    if overall:
        held += "; the largest are " + ", ".join(
            f"{each} with {written(size)}" for each, size in excess.largest
        )
    again = (
        f"it is tried again about every {AGAIN / 60:g} minutes; meanwhile, await cache.fetch(...) asks the"
        " server directly"
    )
    narrower = _narrower(
        key, filter_, fitting(records, FITS * excess.allowed), kind=kind, limit=limit, others=others
    )
    by_values = values > excess.bytes / 2
    if narrower is not None and not by_values:
        return what, held, Phrase(f"Select less: %(narrower)s; {again}", narrower=narrower)
    line = "settings.selectcache.max_bytes = " if overall else "max_bytes="
    # Twice as much, or half as much again as was held: the list may not have been complete.
    more = f"{line}{written(max(2 * (bytes_in(excess.limit) or 0), 1.5 * held_in_all))!r}"
    less = (
        f"Index by less in {assigned(key)}: Cached(..., index={{...}}), or in what is added later"
        if by_values
        else lessened(assigned(key), excess.objects, excess.allowed, packed=packed)
    )
    return what, held, Phrase(f"%(less)s; or allow more: %(more)s; {again}", less=less, more=more)


def indexed_bytes(records: Sequence[Record]) -> int:
    """Return about how many bytes the values of declared and added indexes take, which are kept beside
    objects.
    """
    step = max(1, len(records) // SAMPLES)
    return step * sum(len(kept_json(record.indexed())) for record in records[::step] if record.fields)


def lessened(declared: str, objects: int, allowed: float, *, packed: bool) -> str:
    """Say what to change where so many objects are to take no more than is allowed."""
    if objects * OVERHEAD > allowed:
        return (
            f"Select less in {declared}: {objects:,} objects take {written(objects * OVERHEAD)} with nothing"
            " kept of them"
        )
    packing = "" if packed else "; or store it packed: Cached(..., storage='packed')"
    return f"Keep less of each object in {declared}: Cached(..., keep=[...]){packing}; or narrow its filter"


def _narrower(
    key: Key,
    filter_: Selector | AnyOf,
    fit: Fitting | None,
    *,
    kind: Kind | None,
    limit: Size | None,
    others: bool,
) -> str | None:
    """Return the declaration that would fit, and of how much."""
    both = (
        fit.selector.narrowed_to(filter_, kind=kind)
        if fit is not None and isinstance(filter_, Selector)
        else None
    )
    if fit is None or not isinstance(both, Selector):
        return None
    plain = both == Selector(both.label)
    text = repr(str(both.label)) if plain else repr(both)
    options = (", ..." if others else "") + (f", max_bytes={limit!r}" if limit is not None else "")
    return (
        f"{assigned(key)} = {f'Cached({text}{options})' if options else text} would have held about "
        f"{fit.objects:,} of them in {written(fit.bytes)}"
    )


def expected(objects: int, json: int, values: int, *, leaves: float) -> int:
    """Return about how many bytes such a cache would hold, of objects with so much JSON and such values
    beside it, before there is one.

    `leaves` is the part of the JSON that is left of it where it is packed.
    """
    return objects * OVERHEAD + round(json * leaves) + values
