"""How records are looked up: by the index that leaves the fewest to look at, cut by others, the rest left to
who asks.

The answer is that of a scan: what is chosen holds all that is looked for, and says what of it has not been
looked at. An index that a read could use and that is not there is wanted from then on; the writer builds it
(`Indexes.build`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, filterfalse
from typing import NamedTuple

from kopf_selectcache.core.selection.grammar import LabelRequirement

from .generation import Held
from .index_spec import ODD, Indexed
from .postings import OWNER, Dimension, Index
from .record import Record, Unreadable

WORTH = 200
"""A read that looks at no more records than this wants no index: it would save some 20 µs."""

MOST = 16
"""So many indexes of labels are made on demand. One that so many reads (`IDLE`) have not used makes room for
another."""

IDLE = 1000

AT_ONCE = 2000
"""Where more records than this change at once, indexes are built anew, slice by slice."""

CUTTING = ("=", "==", "!=", "notin")
"""The requirements of which an index says by one set after another whether a record meets them."""


NEGATIVE = ("!=", "notin", "!")
"""The requirements that most records meet: an index would leave nearly all of them."""


class Lookup(NamedTuple):
    """Which records are looked for: those that meet all of this."""

    names: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    labels: tuple[LabelRequirement, ...] = ()
    owner: str | None = None
    """The uid of an owner."""
    values: tuple[tuple[Indexed, object], ...] = ()
    """By declared indexes: a value that the record must have."""
    where: tuple[tuple[Indexed, object], ...] = ()
    """By declared indexes of a path: the value that must be there, and no list with it. Only an index can
    tell."""

    def admits(self, record: Record) -> bool:
        """Whether a record meets all of this but `where`."""
        return (
            (self.names is None or record.name in self.names)
            and (self.namespaces is None or record.namespace in self.namespaces)
            and all(each.matches(record.labels) for each in self.labels)
            and (self.owner is None or self.owner in record.owners)
            and all(value in index.of(record) for index, value in self.values)
        )


class Chosen(NamedTuple):
    """What of the held records must be looked at, and what for."""

    records: list[Record]
    rest: Lookup
    """What each has still to be looked at for. All else they meet."""
    version: str = ""
    """The version as of which that is so."""
    beside: Record | None = None
    """What is held under the key that was asked for as well."""
    by: tuple[str, ...] = ()
    """How they were found: the fewest candidates first, then what those were cut by. Empty if all were
    taken."""
    size: int = 0
    """How many candidates there were."""
    wanted: Dimension | None = None
    """The index that such a read has made."""
    unreadable: tuple[Unreadable, ...] = ()
    """All that are held and unreadable, whatever is looked for. They are not among the others."""


class _Candidates(NamedTuple):
    """One way to find them."""

    size: int
    by: str
    records: Callable[[], Iterable[Record]]
    rest: Lookup


class Indexes:
    """The indexes of one store. The store's lock is held around each call: whose values are not known has
    none to a declared index.
    """

    def __init__(self) -> None:
        self.made: dict[Dimension, Index] = {}
        """All indexes, ready or not."""
        self.declared: tuple[Indexed, ...] = ()
        self._reads = 0

    def change(self, before: Record | None, after: Record | None) -> None:
        """Take in that one record is held instead of another."""
        for index in self.made.values():
            index.change(before, after)

    def forget(self) -> bool:
        """Have all of them built anew; return whether there are any."""
        for index in self.made.values():
            index.forget()
        return bool(self.made)

    def want(self, dimension: Dimension) -> bool:
        """Have an index made; return whether there was none, and is room for one."""
        if dimension in self.made:
            return False
        on_demand = [each for each in self.made if each.by not in ("index", "owner")]
        if len(on_demand) >= MOST and dimension != OWNER:
            idle = min(on_demand, key=lambda each: self.made[each].used)
            if self._reads - self.made[idle].used < IDLE:
                return False
            del self.made[idle]
        self.made[dimension] = Index(_reading(dimension))
        self.made[dimension].used = self._reads
        return True

    def declare(self, indexed: Indexed) -> None:
        """Have a declared index made, unless it is."""
        dimension = Dimension("index", indexed.name)
        if dimension not in self.made:
            self.made[dimension] = Index(lambda record: indexed.known(record) or ())
            self.declared = (*self.declared, indexed)

    def unready(self) -> Index | None:
        """Return an index that has to be built."""
        return next((each for each in self.made.values() if not each.ready), None)

    def containers(self) -> dict[str, list[object]]:
        """Return the containers of each index, to be weighed when the lock is held no more."""
        return {str(dimension): index.containers() for dimension, index in self.made.items() if index.ready}

    # ---- Choosing.

    def chosen(self, held: Held, lookup: Lookup, *, asking: bool) -> Chosen:
        """Choose the fewest records that hold all that is looked for; `asking` wants an index where that
        would help.
        """
        self._reads += asking
        best = min(self._ways(held, lookup), key=lambda way: way.size, default=None)
        if best is None:
            named = [each.values() for each in held.values()]
            best = _Candidates(sum(map(len, named)), "", partial(chain.from_iterable, named), lookup)
        wanted = self._missing(lookup, best.size, asking=asking)
        records, rest, cuts = self._cut(best)
        return Chosen(
            list(records), rest, by=(*((best.by,) if best.by else ()), *cuts), size=best.size, wanted=wanted
        )

    def _missing(self, lookup: Lookup, size: int, *, asking: bool) -> Dimension | None:
        """Return an index that there is not, and that would help; `asking` has it made."""
        for indexed, _ in (*lookup.values, *lookup.where):
            if (
                dimension := Dimension("index", indexed.name)
            ) not in self.made:  # Of a branch: the whole has them all.
                if asking:
                    self.declare(indexed)
                return dimension
        missing = self._wanted(lookup) if size > WORTH else None
        if missing is None or not (self.want(missing) if asking else missing not in self.made):
            return None
        return missing

    def _ways(self, held: Held, lookup: Lookup) -> Iterator[_Candidates]:
        """Yield the ways to find candidates without taking all."""
        names, spaces = lookup.names, lookup.namespaces
        if names is not None:
            within = held if spaces is None else spaces
            yield _Candidates(
                len(names) * len(within),
                "names",
                partial(_by_name, held, within, names),
                lookup._replace(names=None, namespaces=None),
            )
        if spaces is not None:
            near = [held[space].values() for space in spaces if space in held]
            yield _Candidates(
                sum(map(len, near)),
                "namespace",
                partial(chain.from_iterable, near),
                lookup._replace(namespaces=None),
            )
        if not self.made:
            return
        if lookup.owner is not None and (index := self._ready(OWNER)) is not None:
            yield _of([index.posting(lookup.owner)], OWNER, lookup._replace(owner=None))
        for requirement in lookup.labels:
            rest = lookup._replace(labels=tuple(each for each in lookup.labels if each is not requirement))
            if (way := self._by_label(requirement, rest, lookup)) is not None:
                yield way
        for each in lookup.values:
            if (index := self._ready(Dimension("index", each[0].name))) is not None:
                rest = lookup._replace(values=tuple(other for other in lookup.values if other is not each))
                yield _of([index.posting(each[1])], Dimension("index", each[0].name), rest)
        for each in lookup.where:
            index = self._ready(Dimension("index", each[0].name))
            if index is not None and not index.posting(
                ODD
            ):  # Elsewhere, objects have to be decoded to see what is there.
                rest = lookup._replace(where=tuple(other for other in lookup.where if other is not each))
                yield _of([index.posting(each[1])], Dimension("index", each[0].name), rest)

    def _by_label(self, requirement: LabelRequirement, rest: Lookup, whole: Lookup) -> _Candidates | None:
        """Return the candidates by a label, if there is an index of it: `rest` is looked for beside it."""
        if requirement.operator in NEGATIVE:
            return None
        dimension = Dimension("label", requirement.key)
        index = self._ready(dimension)
        match requirement.operator:
            case _ if index is None:
                return None
            case "=" | "==" | "in":
                return _of([index.posting(value) for value in requirement.values], dimension, rest)
            case operator:  # Which numbers are greater, or less, whoever asks has to see.
                records = partial(chain.from_iterable, index.postings())
                return _Candidates(
                    index.count, str(dimension), records, rest if operator == "exists" else whole
                )

    def _cut(self, way: _Candidates) -> tuple[Iterable[Record], Lookup, list[str]]:
        """Cut the candidates by the sets of other labels. What has no index is looked at by whoever asks."""
        records, cuts, left = way.records(), [], []
        for requirement in way.rest.labels:
            index = (
                self._ready(Dimension("label", requirement.key)) if requirement.operator in CUTTING else None
            )
            if index is None or (
                requirement.operator in ("=", "==")
                and not isinstance(index.posting(requirement.values[0]), set)
            ):
                left.append(requirement)  # Of few that are equal there would be no more candidates.
                continue
            cut = filter if requirement.operator in ("=", "==") else filterfalse
            for value in requirement.values:
                posting = index.posting(value)
                records = cut(
                    (posting if isinstance(posting, set) else frozenset(posting)).__contains__, records
                )
            cuts.append(f"label {requirement.key}")
        return records, way.rest._replace(labels=tuple(left)) if cuts else way.rest, cuts

    def _wanted(self, lookup: Lookup) -> Dimension | None:
        """Return the index that would leave fewer candidates: one at a time, since the first may do."""
        if lookup.owner is not None:
            return None if self._is_ready(OWNER) else OWNER
        for requirement in lookup.labels:
            dimension = Dimension("label", requirement.key)
            if requirement.operator not in NEGATIVE and not self._is_ready(dimension):
                return dimension
        return None

    def _is_ready(self, dimension: Dimension) -> bool:
        index = self.made.get(dimension)
        return index is not None and index.ready

    def _ready(self, dimension: Dimension) -> Index | None:
        index = self.made.get(dimension)
        if index is None or not index.ready:
            return None
        index.used = self._reads
        return index


def _of(postings: Sequence[Collection[Record]], dimension: Dimension, rest: Lookup) -> _Candidates:
    records = partial(iter, postings[0]) if len(postings) == 1 else partial(chain.from_iterable, postings)
    return _Candidates(sum(map(len, postings)), str(dimension), records, rest)


def _by_name(held: Held, spaces: Iterable[str], names: Collection[str]) -> Iterator[Record]:
    for space in spaces:
        named = held.get(space, {})
        for name in names:
            if (found := named.get(name)) is not None:
                yield found


def _reading(dimension: Dimension) -> Callable[[Record], Collection[str]]:
    """Return what reads the values of a record."""
    key = dimension.key
    match dimension.by:
        case "owner":
            return _owners
        case _:
            return lambda record: () if (value := record.labels.get(key)) is None else (value,)


def _owners(record: Record) -> Collection[str]:
    return record.owners if len(record.owners) < 2 else dict.fromkeys(record.owners)
