"""Index: finds the records with a label, an owner or a value of a declared index without a scan.

An index maps values to *postings*: a single record, a tuple of a few records, or a set of many. An index of
nearly distinct values costs one dict entry per object, one of few values about 40 bytes per object. An index
of labels or owners is created when a read needs it. It is built in slices (`build`) and updated with each
change. Reads scan until it is ready. The store holds the lock.

Reads repeat *answers* to lookups until the records that they were chosen from change. The labels, name and
namespace of a record do not change. So the records that meet a lookup change only with the posting of an
index that has them, or with the table of their namespace. Such a change drops the answer at once: it keeps no
record alive that has left the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from sys import getsizeof
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from .record import Record

MOST = 256
"""The greatest number of answers of one store."""

MOST_RECORDS = 20_000
"""The greatest number of records in all answers of one store: 160 KB."""

CHECKED = 20_000
"""The greatest number of candidates that are checked under the store's lock, at 0.7 µs each. Readers check
more of them without it: no event is applied while the lock is held."""


class Used(Protocol):
    """An index, or all. It has the number of the last read that used it."""

    used: int


class AnsweredRecords(tuple[Record, ...]):
    """The records of an answer, which several reads share."""

    __slots__ = ()


class CachedAnswer(NamedTuple):
    """The records that meet a lookup."""

    lookup: object
    """The lookup. It is kept, so that its id is not reused."""
    records: AnsweredRecords | None
    """None while a reader checks the candidates."""
    postings: tuple[tuple[Used, object], ...]
    """Where they were chosen from: an index with a value, or all indexes with a namespace."""
    by: tuple[str, ...]
    size: int


class Answers:
    """The answers of one store. Each call needs the store's lock."""

    def __init__(self) -> None:
        self.by_lookup: dict[int, CachedAnswer] = {}
        self._by_posting: dict[tuple[Used, object], set[int]] = {}
        self._count = 0

    def add(self, answer: CachedAnswer) -> None:
        """Add an answer; the oldest ones make room for it."""
        number, count = id(answer.lookup), len(answer.records or ())
        if number in self.by_lookup:
            self._drop(number)
        if count > MOST_RECORDS:
            return
        while len(self.by_lookup) >= MOST or self._count + count > MOST_RECORDS:
            self._drop(next(iter(self.by_lookup)))
        self.by_lookup[number] = answer
        self._count += count
        for posting in answer.postings:
            self._by_posting.setdefault(posting, set()).add(number)

    def complete(self, answer: CachedAnswer, records: AnsweredRecords) -> None:
        """Add the records of an answer that was added without them, unless it was dropped since."""
        if self.by_lookup.get(id(answer.lookup)) is answer:
            self.add(answer._replace(records=records))

    def drop(self, index: Used, value: object) -> None:
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

FEW = 32
"""The largest tuple of records. A tuple takes at most a quarter of the memory of a set."""

LARGE = 50_000
"""The size from which sets grow by doubling. Smaller ones grow fourfold; a copy of them takes half the
memory."""


class IndexedProperty(NamedTuple):
    """The property that an index is built from."""

    by: Literal["label", "owner", "index"]
    """The value of a label; the uid of an owner; a declared index."""
    key: str = ""

    def __str__(self) -> str:
        match self.by:
            case "owner":
                return "owners"
            case _:
                return f"{self.by} {self.key}"


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

    __slots__ = ("_answers", "_of", "_postings", "_steps", "count", "ready", "used")

    def __init__(self, of: Callable[[Record], Collection[Any]], answers: Answers | None = None) -> None:
        self._of = of
        self._answers = Answers() if answers is None else answers
        self._postings: dict[Any, Posting] = {}
        self._steps: Iterator[int] | None = None
        self.ready = False
        self.used = 0
        """The number of the last read that used it."""
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
            if isinstance(posting, set) and len(posting) < LARGE:
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
                self._postings[value] = (*few, record) if len(few) < FEW else {*few, record}
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
                if len(found) < FEW // 2:
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
