"""`Objects.batches`: iterates over many objects, and decodes a few of them at a time."""

from __future__ import annotations

import gc
import weakref
from types import GeneratorType
from typing import Any, ClassVar

import pytest

from kopf_selectcache import Objects
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.testing import FakeCache
from tests.cache.test_freshness import WEB
from tests.objects import pod

NAMES = [f"p-{number}" for number in range(7)]


def fake() -> FakeCache:
    return FakeCache([pod(name, **WEB) for name in NAMES], {"v1/pods": "app=web"})


class Decoded:
    """A decoded object that can be referred to weakly."""

    alive: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def __init__(self, record: Record) -> None:
        self.name = record.name
        self.alive.add(self)


def test_batches_have_all_objects_once_and_are_made_when_they_are_reached() -> None:
    Decoded.alive.clear()
    cache, found, most = fake(), list[str](), 0
    for page in Objects(cache.list_cached("pods", sort_by="metadata.name")._records, Decoded).batches(3):
        found += [each.name for each in page]
        del page
        gc.collect()
        most = max(most, len(Decoded.alive))
    assert found == NAMES
    assert most == 0, "no page is kept"
    assert [len(page) for page in cache.list_cached("pods").batches(3)] == [3, 3, 1]
    assert list(cache.list_cached("pods", labels="app=web,tier=gold").batches(3)) == []


def test_batches_are_of_one_generation() -> None:
    cache, found = fake(), list[str]()
    for page in cache.list_cached("pods", sort_by="metadata.name").batches(3):
        found += [each["metadata"]["name"] for each in page]
        if len(found) == 3:
            cache.cluster.delete(pod("p-6"), grace_period=0)
            cache.cluster.create(pod("p-9", **WEB))
    assert found == NAMES


def test_the_size_of_batches_is_checked_when_they_are_asked_for() -> None:
    cache = fake()
    wrong: tuple[Any, ...] = 0, -1, True, 1.5, "3"
    for size in wrong:
        with pytest.raises(ValueError, match="1 object or more"):
            cache.list_cached("pods").batches(size)
    with cache.snapshot("pods") as now:
        pages = now.list_cached("pods").batches(5)
        assert isinstance(pages, GeneratorType)
    assert sum(map(len, pages)) == 7
