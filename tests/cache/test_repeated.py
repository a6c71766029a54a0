"""Reads that are repeated: requests and answers are memoised, and what a caller gets is its own."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import pytest

from kopf_selectcache.cache.request import Requests
from kopf_selectcache.errors import ReadError
from kopf_selectcache.testing import FakeCache


class App(StrEnum):
    WEB = "web"


class Values:
    """A collection that has a hash, and changes."""

    def __init__(self, *values: str) -> None:
        self.values = list(values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __contains__(self, value: object) -> bool:
        return value in self.values


def web(number: int) -> dict[str, Any]:
    metadata = {"name": f"web-{number}", "namespace": "shop", "labels": {"app": "web"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}}


def held() -> FakeCache:
    return FakeCache([web(number) for number in range(3)], {"v1/pods": ""})


def test_7_the_names_that_a_caller_gets_are_its_own() -> None:
    cache = held()
    first = cache.list("pods", labels="app=web").keys()
    expected = list(first)
    assert type(first) is list
    first.clear()
    assert cache.list("pods", labels="app=web").keys() == expected
    assert cache.list("pods", labels="app=web").keys() == expected


def test_7_an_object_of_a_repeated_list_is_a_new_one() -> None:
    cache = held()
    for each in cache.list("pods", labels="app=web"):
        each["metadata"]["labels"]["app"] = "changed"
    assert {each["metadata"]["labels"]["app"] for each in cache.list("pods", labels="app=web")} == {"web"}


@pytest.mark.parametrize("limit", [0, 1, 2, 5, None])
def test_a_limit_cuts_a_repeated_list(limit: int | None) -> None:
    cache = held()
    for _ in range(3):
        found = cache.list("pods", labels="app=web", limit=limit)
        assert len(found) == len(list(found)) == (3 if limit is None else min(limit, 3))


def test_repeated_counts_and_paths_agree() -> None:
    cache = held()
    for _ in range(3):
        assert cache.count("pods", labels="app=web") == 3
        assert cache.count("pods", labels="app=web", where={"metadata.name": "web-1"}) == 1
        assert cache.count("pods", labels="app=web", fields="metadata.name!=web-1") == 2
        assert cache.count("pods", labels="app=web", fields="status.phase=Running") == 3


def test_requests_by_texts_are_made_once() -> None:
    requests, chosen = Requests(), {"labels": {"app": "web"}, "namespace": "shop"}
    first = requests.several("list", "pods", chosen)
    assert requests.several("list", "pods", chosen) is first
    assert requests.several("list", "pods", chosen | {"fields": None, "limit": None}) is first
    for other in (
        requests.several("held", "pods", chosen),
        requests.several("list", "jobs", chosen),
        requests.several("list", "pods", chosen | {"labels": {"app": "db"}}),
        requests.several("list", "pods", {"labels": {"app": "web"}}),
        requests.several("list", "pods", chosen | {"as_": "view"}),
        requests.several("list", "pods", chosen | {"limit": 0}),
    ):
        assert (other is first, repr(other) == repr(first)) == (False, False)


def test_a_label_that_may_change_is_read_each_time() -> None:
    cache, values = held(), Values("db")
    assert not cache.list("pods", labels={"app": values})
    values.values = ["web"]
    assert len(cache.list("pods", labels={"app": values})) == 3
    assert len(cache.list("pods", labels={"app": App.WEB})) == 3


def test_a_wrong_argument_is_refused_each_time() -> None:
    cache = held()
    for _ in range(2):
        for wrong in ({"labels": "app in ("}, {"namespace": ""}, {"as_": "dict"}, {"labels": {1: "web"}}):
            with pytest.raises(ReadError):
                cache.list("pods", **wrong)
