"""`gone`: an object that was deleted is told from one that merely left the filter, which may be just as
absent from the cache."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache import ReadError
from kopf_selectcache.errors import Stalled
from kopf_selectcache.testing import FakeCache
from tests.rows import each_row

from .environment import NODES, Environment, node, pod, with_environment

WEB = pod("web-1", app="web")
PATH = "/api/v1/namespaces/ns/pods/web-1"


def metadata(uid: str, **more: Any) -> dict[str, Any]:
    """Return what a server sends of web-1."""
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": {"name": "web-1", "namespace": "ns", "uid": uid, "resourceVersion": "20", **more},
    }


def served(name: str = "web-1", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
    }


# ---- What comes of a departure, on an API server.


def departing(cache: FakeCache) -> str:
    """Return the uid of web-1, which is held."""
    uid = cache.get("pods", "web-1", namespace="shop")["metadata"]["uid"]
    assert isinstance(uid, str)
    return uid


def is_gone(cache: FakeCache, uid: str | None) -> bool:
    answers = [
        asyncio.run(_asked(cache, uid)),
        cache.blocking.is_deleted("pods", "web-1", namespace="shop", uid=uid),
    ]
    assert answers[0] is answers[1]
    return answers[0]


async def _asked(cache: FakeCache, uid: str | None) -> bool:
    return await cache.is_deleted("pods", "web-1", namespace="shop", uid=uid)


def test_an_object_that_left_the_filter_is_not_gone() -> None:
    cache = FakeCache([served(app="web")], {"pods": "app=web"})
    uid = departing(cache)
    cache.cluster.patch(served(), {"metadata": {"labels": {"app": "db"}}})
    assert cache.list_cached("pods") == []
    assert not is_gone(cache, uid)


@pytest.mark.parametrize("app", ["web", "db"])
def test_an_object_replaced_by_another_of_its_name_is_gone_and_the_other_is_not(app: str) -> None:
    """It makes no difference if the other object is stored."""
    cache = FakeCache([served(app="web")], {"pods": "app=web"})
    uid = departing(cache)
    cache.cluster.delete(served())
    (created,) = cache.cluster.create(served(app=app))
    other = created["metadata"]["uid"]
    assert is_gone(cache, uid)
    assert not is_gone(cache, other)
    assert not is_gone(cache, None), "without a uid, any object of the name counts"


# ---- What is asked for.


OTHERS = {
    "another name": metadata("u", name="web-2"),
    "another namespace": metadata("u", namespace="other"),
    "no uid": metadata(""),
    "another kind": {**pod("web-1"), "kind": "Service"},
    "no kind": {"metadata": metadata("u")["metadata"]},
}


@each_row("other", OTHERS)
@with_environment
async def test_contract_8_an_object_that_was_not_asked_for_is_no_answer(
    environment: Environment, other: str
) -> None:
    environment.declare("app=web").hold()
    environment.server.answer(PATH, OTHERS[other])
    with pytest.raises(Stalled):
        await environment.cache().is_deleted("pods", "web-1", namespace="ns", uid="uid-web-1")


@with_environment
async def test_a_server_that_sends_the_whole_object_all_the_same_is_understood(
    environment: Environment,
) -> None:
    environment.server.answer("/api/v1/nodes/n", node("n"))
    environment.resources["nodes"] = NODES
    assert not await environment.cache().is_deleted("nodes", "n", uid="n")
    assert await environment.cache().is_deleted("nodes", "n", uid="other")


@with_environment
async def test_a_state_older_than_is_allowed_is_asked_for(environment: Environment) -> None:
    environment.declare("app=web").hold(WEB)
    assert await environment.cache().is_deleted("pods", "web-1", namespace="ns", max_age=1)
    assert not await environment.cache().is_deleted("pods", "web-1", namespace="ns", max_age=2)


# ---- No answer is a guess.


@each_row(
    "asked",
    [
        {"name": "web-1"},
        {"name": "web-1", "namespace": "ns", "uid": 7},
        {"name": "web-1", "namespace": "ns", "uid": ""},
        {"name": {"metadata": {}}},
    ],
)
@with_environment
async def test_mistakes_are_refused(environment: Environment, asked: dict[str, Any]) -> None:
    environment.declare("app=web").hold()
    with pytest.raises(ReadError):
        await environment.cache().is_deleted("pods", **asked)
    assert environment.server.asked == []
