"""Indexes: find the records of a read without a scan. The planner (`Indexes`) starts from the smallest
candidate set, intersects it with further indexes, and returns the residual predicate for the caller to
evaluate.

The candidates include all matches, so the result is that of a scan. An `Index` of labels or owners that would
help a read and does not exist is requested. It is built in slices (`Store.build`) and updated with each
change. Reads scan until it is ready. The store holds the lock.

An index maps values to *postings*: a single record, a tuple of a few records, or a set of many. An index of
nearly distinct values costs one dict entry per object, one of few values about 40 bytes per object.

Reads repeat *answers* to lookups until the records that they were chosen from change. The labels, name and
namespace of a record do not change. So the records that meet a lookup change only with the posting of an
index that has them, or with the table of their namespace. Such a change drops the answer at once: it keeps no
record alive that has left the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, filterfalse
from sys import getsizeof
from typing import Any, Literal, NamedTuple, TypeAlias

from kopf_selectcache.core.selection.grammar import LabelRequirement

from .index_spec import ODD, Indexed, keys_of
from .record import Held, Record, UnreadableRecord

MOST_ANSWERS = 256
"""The greatest number of answers of one store."""

MOST_RECORDS = 20_000
"""The greatest number of records in all answers of one store: 160 KB."""

CHECKED_OBJECTS = 20_000
"""The greatest number of candidates that are checked under the store's lock, at 0.7 µs each. Readers check
more of them without it: no event is applied while the lock is held."""


class AnsweredRecords(tuple[Record, ...]):
    """The records of an answer, which several reads share."""

    __slots__ = ()


class CachedAnswer(NamedTuple):
    """The records that meet a lookup."""

    lookup: object
    """The lookup. It is kept, so that its id is not reused."""
    records: AnsweredRecords | None
    """None while a reader checks the candidates."""
    postings: tuple[tuple[object, object], ...]
    """Where they were chosen from: an index with a value, or the `Indexes` with a namespace."""
    by: tuple[str, ...]
    size: int


class Answers:
    """The answers of one store. Each call needs the store's lock."""

    def __init__(self) -> None:
        self.by_lookup: dict[int, CachedAnswer] = {}
        self._by_posting: dict[tuple[object, object], set[int]] = {}
        self._count = 0

    def add(self, answer: CachedAnswer) -> None:
        """Add an answer; the oldest ones make room for it."""
        number, count = id(answer.lookup), len(answer.records or ())
        if number in self.by_lookup:
            self._drop(number)
        if count > MOST_RECORDS:
            return
        while len(self.by_lookup) >= MOST_ANSWERS or self._count + count > MOST_RECORDS:
            self._drop(next(iter(self.by_lookup)))
        self.by_lookup[number] = answer
        self._count += count
        for posting in answer.postings:
            self._by_posting.setdefault(posting, set()).add(number)

    def complete(self, answer: CachedAnswer, records: AnsweredRecords) -> None:
        """Add the records of an answer that was added without them, unless it was dropped since."""
        if self.by_lookup.get(id(answer.lookup)) is answer:
            self.add(answer._replace(records=records))

    def drop(self, index: object, value: object) -> None:
        """Drop the answers that were chosen from a posting."""
        for number in tuple(self._by_posting.get((index, value), ())):
            self._drop(number)

    def clear(self) -> None:
        """Drop all answers."""
        self.by_lookup, self._by_posting, self._count = {}, {}, 0

    def _drop(self, number: int) -> None:
        answer = self.by_lookup.pop(number)
        self._count -= len(answer.records or ())
        for posting in answer.postings:
            numbers = self._by_posting[posting]
            numbers.discard(number)
            if not numbers:
                del self._by_posting[posting]


Posting: TypeAlias = Record | tuple[Record, ...] | set[Record]

TUPLE_RECORDS = 32
"""The largest tuple of records. A tuple takes at most a quarter of the memory of a set."""

DOUBLING_RECORDS = 50_000
"""The size from which sets grow by doubling. Smaller ones grow fourfold; a copy of them takes half the
memory."""


class IndexedProperty(NamedTuple):
    """The property that an index is built from."""

    by: Literal["label", "owner", "index"]
    """The value of a label; the uid of an owner; a declared index."""
    key: str = ""

    def __str__(self) -> str:
        return "owners" if self.by == "owner" else f"{self.by} {self.key}"


def in_words(by: str) -> str:
    """Name an index in a sentence, by the text of its dimension.

    >>> in_words('label app'), in_words('index node')
    ('index of label app', 'declared index node')
    """
    what, _, name = by.partition(" ")
    return f"declared index {name}" if what == "index" else f"index of {by}"


OWNER = IndexedProperty("owner")


class Index:
    """Postings by value. Only the writer uses it until it is `ready`; then each call needs the store's
    lock. A change of a posting drops its answers.
    """

    __slots__ = ("_answers", "_of", "_postings", "_steps", "count", "ready")

    def __init__(self, of: Callable[[Record], Collection[Any]], answers: Answers | None = None) -> None:
        self._of = of
        self._answers = Answers() if answers is None else answers
        self._postings: dict[Any, Posting] = {}
        self._steps: Iterator[int] | None = None
        self.ready = False
        self.count = 0
        """The number of entries in all postings."""

    def posting(self, value: object) -> Collection[Record]:
        """Return the records with this value. The result is not a copy."""
        found = self._postings.get(value, ())
        return (found,) if isinstance(found, Record) else found

    def postings(self) -> Iterator[Collection[Record]]:
        """Yield the posting of each value."""
        for found in self._postings.values():
            yield (found,) if isinstance(found, Record) else found

    def change(self, before: Record | None, after: Record | None) -> None:
        """Replace one record by another; None stands for absence."""
        if before is not None:
            self._discard(before)
        if after is not None:
            self._add(after)

    def forget(self) -> None:
        """Empty the index, to be built again."""
        self._postings, self._steps, self.ready, self.count = {}, None, False, 0

    def build(self, all_: Callable[[], list[Record]], is_held: Callable[[Record], bool], most: int) -> bool:
        """Add `most` entries of the records that existed at the first call; return True if that was the
        last of them.

        Later additions are made by `change`; records that have left since are skipped.
        """
        if self._steps is None:
            self._steps = self._built(all_(), is_held)
        for entries in self._steps:
            most -= entries
            if most <= 0:
                return False
        self._steps = None
        return True

    def _built(self, records: list[Record], is_held: Callable[[Record], bool]) -> Iterator[int]:
        """Build the index; yield the number of entries written after each step."""
        for record in records:
            if is_held(record):
                self._add(record)
            yield 1
        for value in list(self._postings):
            posting = self._postings.get(value)
            if isinstance(posting, set) and len(posting) < DOUBLING_RECORDS:
                self._postings[value] = posting.copy()
                yield len(posting)

    def _add(self, record: Record) -> None:
        for value in self._of(record):
            if self._answers.by_lookup:
                self._answers.drop(self, value)
            found = self._postings.get(value)
            if found is None:
                self._postings[value] = record
            elif isinstance(found, set):
                if record in found:
                    continue
                found.add(record)
            else:
                few = (found,) if isinstance(found, Record) else found
                if any(each is record for each in few):
                    # A change during the build has already added the record.
                    continue
                self._postings[value] = (*few, record) if len(few) < TUPLE_RECORDS else {*few, record}
            self.count += 1

    def _discard(self, record: Record) -> None:
        for value in self._of(record):
            if self._answers.by_lookup:
                self._answers.drop(self, value)
            found = self._postings.get(value)
            if isinstance(found, set):
                if record not in found:
                    continue
                found.discard(record)
                if len(found) < TUPLE_RECORDS // 2:
                    self._postings[value] = tuple(found)
            elif found is record:
                del self._postings[value]
            elif isinstance(found, tuple) and any(each is record for each in found):
                rest = tuple(each for each in found if each is not record)
                self._postings[value] = rest if len(rest) > 1 else rest[0]
            else:
                # The build has not reached the record yet.
                continue
            self.count -= 1

    def containers(self) -> list[object]:
        """Return the containers, to measure their memory. The records in them belong to the store."""
        return [self._postings, *self._postings.values()]


def room(containers: Iterable[object]) -> int:
    """Return the size of containers in bytes, without the records."""
    return sum(getsizeof(each) for each in containers if not isinstance(each, Record))


SCANNED_CANDIDATES = 200
"""The number of candidates up to which a read requests no index, which would save about 20 µs."""

MOST_INDEXES = 16
"""The greatest number of label indexes on demand."""

STEP_CHANGES = 2000
"""The number of changes in one step beyond which indexes are rebuilt in slices."""

CUTTING = ("=", "==", "!=", "notin")
"""Operators that an index evaluates by set membership."""


ALL = None
"""Stands for all namespaces, in the answers that are found without an index."""

NEGATIVE = ("!=", "notin", "!")
"""Operators that most records meet, so that an index would exclude few of them."""


class Lookup(NamedTuple):
    """The predicate of a read: a record must meet all conditions."""

    names: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    labels: tuple[LabelRequirement, ...] = ()
    owner: str | None = None
    """The uid of an owner."""
    values: tuple[tuple[Indexed, object], ...] = ()
    """The key of a required value (`json_values`) for each of these declared indexes."""
    where: tuple[tuple[Indexed, object], ...] = ()
    """The key of a required value at the path of each of these declared indexes, which must not be in a list.
    Only the index can evaluate it."""

    def admits(self, record: Record) -> bool:
        """Return True if a record meets all conditions except `where`."""
        return (
            (self.names is None or record.name in self.names)
            and (self.namespaces is None or record.namespace in self.namespaces)
            and all(each.matches(record.labels) for each in self.labels)
            and (self.owner is None or self.owner in record.owners)
            and all(value in index.keys(record) for index, value in self.values)
        )

    def met_by(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records that meet all conditions except `where`."""
        if self.names is not None:
            records = (record for record in records if record.name in self.names)
        if self.namespaces is not None:
            records = (record for record in records if record.namespace in self.namespaces)
        if self.owner is not None:
            records = (record for record in records if self.owner in record.owners)
        if self.values:
            records = (
                record
                for record in records
                if all(value in index.keys(record) for index, value in self.values)
            )
        return _labelled(records, self.labels) if self.labels else iter(records)


NOTHING = Lookup()
"""The residual predicate if an index has answered all of it."""


def _labelled(records: Iterable[Record], requirements: tuple[LabelRequirement, ...]) -> Iterator[Record]:
    """Yield the records with such labels. Records share the dicts of equal labels: each is checked once."""
    known: dict[int, bool] = {}
    alive = []  # Keeps the dicts alive, so that their ids are not reused.
    for record in records:
        labels = record.labels
        found = known.get(id(labels))
        if found is None:
            found = known[id(labels)] = all(requirement.matches(labels) for requirement in requirements)
            alive.append(labels)
        if found:
            yield record


class Selection(NamedTuple):
    """The candidates of a read, and the residual predicate."""

    records: Sequence[Record]
    """The candidates, which other reads may share."""
    rest: Lookup
    """The residual predicate. The candidates meet all other conditions."""
    version: str = ""
    """The version of the contents."""
    beside: Record | None = None
    """The record of the key that was requested in addition."""
    by: tuple[str, ...] = ()
    """The names of the indexes used: the one with the fewest candidates, then those that it was intersected
    with. Empty after a scan."""
    size: int = 0
    """The number of candidates before the intersection."""
    missing: IndexedProperty | None = None
    """The missing index that would help such a read."""
    unreadable: tuple[UnreadableRecord, ...] = ()
    """All unreadable records, regardless of the predicate. `records` has none of them."""
    answer: CachedAnswer | None = None
    """The answer to complete once the residual predicate is checked, if other reads may repeat it."""


class _Candidates(NamedTuple):
    """One way to find candidates."""

    size: int
    by: str
    records: Callable[[], Iterable[Record]]
    rest: Lookup
    postings: tuple[tuple[object, object], ...] = ()
    """The postings that they are in, each as an index and a value. Empty without an index of labels."""


class Indexes:
    """The indexes of one store. Each call needs the store's lock, so no function of the operator is called:
    a record without stored values has none in a declared index.
    """

    def __init__(self) -> None:
        self.made: dict[IndexedProperty, Index] = {}
        """All indexes, ready or not."""
        self.declared: tuple[Indexed, ...] = ()
        self.answers = Answers()

    def change(self, before: Record | None, after: Record | None) -> None:
        """Replace one record by another in all indexes, and drop the answers that this changes."""
        for index in self.made.values():
            index.change(before, after)
        if self.answers.by_lookup:
            self.answers.drop(self, ALL)
            for record in (before, after):
                if record is not None:
                    self.answers.drop(self, record.namespace)

    def forget(self) -> bool:
        """Empty all indexes, to be rebuilt; return True if there are any."""
        self.answers.clear()
        for index in self.made.values():
            index.forget()
        return bool(self.made)

    def want(self, dimension: IndexedProperty) -> bool:
        """Create an index to be built; return True if it is new and there is room for it."""
        if dimension in self.made:
            return False
        if dimension != OWNER and sum(each.by == "label" for each in self.made) >= MOST_INDEXES:
            return False
        self.made[dimension] = Index(_reading(dimension), self.answers)
        return True

    def declare(self, indexed: Indexed) -> None:
        """Create a declared index to be built, unless it exists."""
        dimension = IndexedProperty("index", indexed.name)
        if dimension not in self.made:
            self.made[dimension] = Index(lambda record: keys_of(indexed.known(record) or ()))
            self.declared = (*self.declared, indexed)

    def unready(self) -> Index | None:
        """Return an index that is not ready, or None."""
        return next((each for each in self.made.values() if not each.ready), None)

    def containers(self) -> dict[str, list[object]]:
        """Return the containers of each ready index, to measure their memory without the lock."""
        return {str(dimension): index.containers() for dimension, index in self.made.items() if index.ready}

    # ---- Choosing.

    def chosen(self, held: Held, lookup: Lookup, *, asking: bool, version: str = "") -> Selection:
        """Return the smallest set of candidates, as of a version; `asking` requests a missing index that
        would help.
        """
        answer = self.answers.by_lookup.get(id(lookup)) if asking else None
        if answer is not None and answer.records is not None:
            return Selection(answer.records, NOTHING, version, by=answer.by, size=answer.size)
        best = self._by_owner(lookup)
        if best is None or best.size > SCANNED_CANDIDATES:
            best = min(self._ways(held, lookup), key=lambda way: way.size, default=None)
        if best is None:
            named = [each.values() for each in held.values()]
            best = _Candidates(sum(map(len, named)), "", partial(chain.from_iterable, named), lookup)
        missing = self._missing(lookup, best.size, asking=asking)
        records, rest, cuts = self._cut(best)
        by = (*((best.by,) if best.by else ()), *cuts)
        if (
            asking
            and missing is None
            and (best.postings or best.size <= SCANNED_CANDIDATES)
            and _is_lasting(lookup)
        ):
            spaces = (ALL,) if lookup.namespaces is None else lookup.namespaces
            postings = best.postings or tuple((self, space) for space in spaces)
            answer = CachedAnswer(lookup, None, postings, by, best.size)
            if best.size > CHECKED_OBJECTS and rest != NOTHING:
                self.answers.add(answer)
                return Selection(list(records), rest, version, by=by, size=best.size, answer=answer)
            found = AnsweredRecords(rest.met_by(records))
            self.answers.add(answer._replace(records=found))
            return Selection(found, NOTHING, version, by=by, size=best.size)
        if best.size <= SCANNED_CANDIDATES and not rest.where:
            records, rest = rest.met_by(records), NOTHING
        return Selection(list(records), rest, version, by=by, size=best.size, missing=missing)

    def _missing(self, lookup: Lookup, size: int, *, asking: bool) -> IndexedProperty | None:
        """Return a missing index that would help, or None; `asking` creates it."""
        for indexed, _ in (*lookup.values, *lookup.where):
            # Only the view of a substore may lack a declared index. The union has all of them.
            if (dimension := IndexedProperty("index", indexed.name)) not in self.made:
                if asking:
                    self.declare(indexed)
                return dimension
        missing = self._first_unbuilt(lookup) if size > SCANNED_CANDIDATES else None
        if missing is None or not (self.want(missing) if asking else missing not in self.made):
            return None
        return missing

    def _ways(self, held: Held, lookup: Lookup) -> Iterator[_Candidates]:
        """Yield the ways to find candidates without a scan."""
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
        if (way := self._by_owner(lookup)) is not None:
            yield way
        for requirement in lookup.labels:
            rest = lookup._replace(labels=tuple(each for each in lookup.labels if each is not requirement))
            if (way := self._by_label(requirement, rest, lookup)) is not None:
                yield way
        for each in lookup.values:
            if (index := self._ready(IndexedProperty("index", each[0].name))) is not None:
                rest = lookup._replace(values=tuple(other for other in lookup.values if other is not each))
                yield _of([index.posting(each[1])], IndexedProperty("index", each[0].name), rest)
        for each in lookup.where:
            index = self._ready(IndexedProperty("index", each[0].name))
            # If some object has a list or an object at the path, objects must be decoded to see it.
            if index is not None and not index.posting(ODD):
                rest = lookup._replace(where=tuple(other for other in lookup.where if other is not each))
                yield _of([index.posting(each[1])], IndexedProperty("index", each[0].name), rest)

    def _by_owner(self, lookup: Lookup) -> _Candidates | None:
        index = None if lookup.owner is None else self._ready(OWNER)
        if index is None:
            return None
        return _of([index.posting(lookup.owner)], OWNER, lookup._replace(owner=None))

    def _by_label(self, requirement: LabelRequirement, rest: Lookup, whole: Lookup) -> _Candidates | None:
        """Return the candidates by an index of a label, or None. `rest` is the predicate without it."""
        if requirement.operator in NEGATIVE:
            return None
        dimension = IndexedProperty("label", requirement.key)
        index = self._ready(dimension)
        match requirement.operator:
            case _ if index is None:
                return None
            case "=" | "==" | "in":
                way = _of([index.posting(value) for value in requirement.values], dimension, rest)
                return way._replace(postings=tuple((index, value) for value in requirement.values))
            case operator:  # The index does not compare numbers; the caller does.
                records = partial(chain.from_iterable, index.postings())
                return _Candidates(
                    index.count, str(dimension), records, rest if operator == "exists" else whole
                )

    def _cut(self, way: _Candidates) -> tuple[Iterable[Record], Lookup, list[str]]:
        """Intersect the candidates with postings of other labels. The caller checks the rest."""
        records, cuts, left = way.records(), [], []
        for requirement in way.rest.labels:
            index = (
                self._ready(IndexedProperty("label", requirement.key))
                if requirement.operator in CUTTING
                else None
            )
            if index is None or (
                requirement.operator in ("=", "==")
                and not isinstance(index.posting(requirement.values[0]), set)
            ):
                # A small posting would already be the set of candidates.
                left.append(requirement)
                continue
            cut = filter if requirement.operator in ("=", "==") else filterfalse
            for value in requirement.values:
                posting = index.posting(value)
                records = cut(
                    (posting if isinstance(posting, set) else frozenset(posting)).__contains__, records
                )
            cuts.append(f"label {requirement.key}")
        return records, way.rest._replace(labels=tuple(left)) if cuts else way.rest, cuts

    def _first_unbuilt(self, lookup: Lookup) -> IndexedProperty | None:
        """Return the index that would reduce the candidates. One at a time, because the first may suffice."""
        if lookup.owner is not None:
            return OWNER if self._ready(OWNER) is None else None
        for requirement in lookup.labels:
            dimension = IndexedProperty("label", requirement.key)
            if requirement.operator not in NEGATIVE and self._ready(dimension) is None:
                return dimension
        return None

    def _ready(self, dimension: IndexedProperty) -> Index | None:
        index = self.made.get(dimension)
        return index if index is not None and index.ready else None


def _is_lasting(lookup: Lookup) -> bool:
    """Return True if reads have it for long. Those with owners and indexed values are made for each read."""
    return lookup.owner is None and not lookup.values and not lookup.where


def _of(postings: Sequence[Collection[Record]], dimension: IndexedProperty, rest: Lookup) -> _Candidates:
    records = partial(iter, postings[0]) if len(postings) == 1 else partial(chain.from_iterable, postings)
    return _Candidates(sum(map(len, postings)), str(dimension), records, rest)


def _by_name(held: Held, spaces: Iterable[str], names: Collection[str]) -> Iterator[Record]:
    for space in spaces:
        named = held.get(space, {})
        for name in names:
            if (found := named.get(name)) is not None:
                yield found


def _reading(dimension: IndexedProperty) -> Callable[[Record], Collection[str]]:
    """Return the function that extracts the values of a record."""
    key = dimension.key
    if dimension == OWNER:
        return _owners
    return lambda record: () if (value := record.labels.get(key)) is None else (value,)


def _owners(record: Record) -> Collection[str]:
    return record.owners if len(record.owners) < 2 else dict.fromkeys(record.owners)
