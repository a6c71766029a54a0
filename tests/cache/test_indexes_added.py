"""Indexes that are added to a cache that is kept: what of, by whom, and what is told of mistakes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kopf_selectcache.cache.matcher import Obj
from kopf_selectcache.errors import NotKept, ReadError
from kopf_selectcache.testing import FakeCache

from .environment import PODS, names
from .test_indexes import CANARY, NGINX, fake, images, new


async def test_an_index_is_added_to_held_objects_and_to_new_ones() -> None:
    cache = fake(index=None)
    await cache.add_index("pods", image=images, node="spec.nodeName")
    assert cache.explain("pods", index={"image": "nginx"}).by == ("index image",)
    assert names(cache.list_cached("pods", index={"image": "nginx"})) == ["nginx", "proxied"]
    cache.cluster.create(new("more", "nginx"))
    assert names(cache.list_cached("pods", index={"image": "nginx", "node": "n1"})) == ["more", "nginx"]
    await cache.add_index("pods", image=images)  # As it is there, it stays.
    with pytest.raises(ReadError):
        await cache.add_index("pods", image="spec.image")


async def test_indexes_of_one_name_that_are_added_at_once_are_distinguished() -> None:
    cache = fake(index=None)
    told = await asyncio.gather(
        cache.add_index("pods", it=images),
        cache.add_index("pods", it="spec.nodeName"),
        return_exceptions=True,
    )
    assert told[0] is None
    assert cache.count("pods", index={"it": "nginx"}) == 2


async def test_an_object_an_added_index_fails_for_is_held_without_value_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def labelled(obj: Obj) -> str:
        return str(obj["metadata"]["labels"]["app"])

    cache = fake(index=None)
    await cache.add_index("pods", **{"a-b": labelled, "other": images})
    with caplog.at_level(logging.WARNING, "kopf_selectcache"):
        cache.cluster.create(new("more", CANARY))
        cache.cluster.create(new("another", "nginx"))
    assert cache.count("pods") == 5, "the cache goes on"
    assert names(cache.list_cached("pods", index={"a-b": "web"})) == ["nginx", "proxied"]
    assert names(cache.list_cached("pods", index={"other": CANARY})) == ["more"]
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(lines) == 1
    assert lines[0].startswith(
        f"The index 'a-b' of {PODS} leaves out ns/more and other objects for which its function fails:"
        " the"
        " function of the index 'a-b' raised KeyError at test_indexes_added.py:"
    )
    assert CANARY not in lines[0]


async def test_an_added_index_is_of_the_stored_fields() -> None:
    seen: list[Obj] = []

    def looked(obj: Obj) -> None:
        seen.append(obj)

    cache = fake(index=None, drop=["status"], transform=lambda obj: obj)
    with pytest.raises(NotKept):
        await cache.add_index("pods", phase="status.phase")
    with pytest.raises(NotKept):
        await cache.add_index("pods", node="spec.nodeName")
    await cache.add_index("pods", uid="metadata.uid", looked=looked)
    cache.cluster.create(new("more", "nginx"))
    assert cache.count("pods", index={"uid": NGINX["metadata"]["uid"]}) == 1
    assert len(seen) > 3
    assert all("status" not in each for each in seen)


@pytest.mark.parametrize("indexed", [{}, {"a": 5}, {"a": lambda obj: obj["canary"]}])
async def test_an_index_that_cannot_work_is_refused(indexed: dict[str, Any]) -> None:
    cache = fake(NGINX, index=None)
    with pytest.raises(ReadError):
        await cache.add_index("pods", **indexed)
    cache.cluster.create(new("db", "postgres"))
    assert cache.count("pods") == 2, "nothing was added"


@pytest.mark.parametrize(
    "call",
    [
        lambda cache: cache.add_index("pods"),
        lambda cache: cache.add_index("pods", index={"node": "spec.nodeName", "a-b": "c"}),
        lambda cache: cache.add_index("pods", index={}),
    ],
)
async def test_indexes_that_are_added_are_named_by_arguments(call: Any) -> None:
    with pytest.raises(ReadError):
        await call(FakeCache([], {"v1/pods": "app"}))
