"""Answers to lookups, which reads repeat until the records that they were chosen from change.

The labels, name and namespace of a record do not change. So the records that meet a lookup change only with
the posting of an index that has them, or with the table of their namespace. Such a change drops the answer at
once: it keeps no record alive that has left the store.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

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


class Records(tuple[Record, ...]):
    """The records of an answer, which several reads share."""

    __slots__ = ()


class CachedAnswer(NamedTuple):
    """The records that meet a lookup."""

    lookup: object
    """The lookup. It is kept, so that its id is not reused."""
    records: Records | None
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

    def complete(self, answer: CachedAnswer, records: Records) -> None:
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
