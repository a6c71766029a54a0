"""`cache.pages`: iterates over many objects, and decodes one page of them at a time."""

from __future__ import annotations

import gc
import weakref
from types import GeneratorType
from typing import Any, ClassVar

import msgspec
import pytest

from kopf_selectcache import BodyView, OutsideFilter, ReadError
from kopf_selectcache.testing import FakeCache
from tests.cache.test_freshness import WEB, pod
from tests.rows import each_row

NAMES = [f"p-{number}" for number in range(7)]


def fake() -> FakeCache:
    return FakeCache([pod(name, **WEB) for name in NAMES], {"v1/pods": "app=web"})


class Decoded:
    """A decoded object that can be referred to weakly."""

    alive: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    def __init__(self, obj: dict[str, Any]) -> None:
        self.name = obj["metadata"]["name"]
        self.alive.add(self)


def test_pages_have_all_objects_once_and_are_made_when_they_are_reached() -> None:
    Decoded.alive.clear()
    cache, found, most = fake(), list[str](), 0
    for page in cache.pages("pods", size=3, as_=Decoded, sort_by="metadata.name"):
        found += [each.name for each in page]
        del page
        gc.collect()
        most = max(most, len(Decoded.alive))
    assert found == NAMES
    assert most == 0, "no page is kept"
    assert [len(page) for page in cache.pages("pods", size=3)] == [3, 3, 1]
    assert list(cache.pages("pods", labels="app=web,tier=gold")) == []


def test_pages_are_of_one_generation() -> None:
    cache, found = fake(), list[str]()
    for page in cache.pages("pods", size=3, sort_by="metadata.name"):
        found += [each["metadata"]["name"] for each in page]
        if len(found) == 3:
            cache.cluster.delete(pod("p-6"), grace_period=0)
            cache.cluster.create(pod("p-9", **WEB))
    assert found == NAMES


class Named(msgspec.Struct):
    kind: str


@each_row("form", [(None, dict), ("view", BodyView), (bytes, bytes), (Named, Named), (len, int)], ids=str)
def test_pages_have_each_form(form: tuple[Any, type]) -> None:
    given, expected = form
    pages = list(fake().pages("pods", size=4, limit=5, as_=given))
    assert [len(page) for page in pages] == [4, 1]
    assert all(type(each) is expected for page in pages for each in page)


def test_pages_are_checked_when_they_are_asked_for() -> None:
    cache = fake()
    wrong: tuple[Any, ...] = 0, -1, True, 1.5, "3"
    for size in wrong:
        with pytest.raises(ReadError):
            cache.pages("pods", size=size)
    with pytest.raises(OutsideFilter):
        cache.pages("pods", labels="app=db")
    with cache.snapshot("pods") as now:
        pages = now.pages("pods", size=5)
        assert isinstance(pages, GeneratorType)
    assert sum(map(len, pages)) == 7
