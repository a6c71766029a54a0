"""`gone`: an object that was deleted is told from one that merely left the filter, which may be just as
absent from the cache."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache import Forbidden, ReadError, Selector
from kopf_selectcache.client.reading import Unreachable
from kopf_selectcache.client.transport import DROP, METADATA
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.errors import Missing, Stalled
from kopf_selectcache.testing import FakeCache
from tests.rows import each_row

from .environment import NODES, Environment, node, pod, run

WEB = pod("web-1", app="web")
PATH = "/api/v1/namespaces/ns/pods/web-1"
NOT_FOUND = Refusal(404, "NotFound")


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


def test_what_left_the_filter_is_not_gone() -> None:
    cache = FakeCache([served(app="web")], {"pods": "app=web"})
    uid = departing(cache)
    cache.cluster.patch(served(), {"metadata": {"labels": {"app": "db"}}})
    assert cache.list_cached("pods") == []
    assert not is_gone(cache, uid)


def test_what_was_deleted_is_gone() -> None:
    cache = FakeCache([served(app="web")], {"pods": "app=web"})
    uid = departing(cache)
    cache.cluster.delete(served())
    assert is_gone(cache, uid)
    assert is_gone(cache, None)


@pytest.mark.parametrize("app", ["web", "db"])
def test_what_was_replaced_by_another_of_its_name_is_gone_and_the_other_is_not(app: str) -> None:
    """Whether the other is held or not."""
    cache = FakeCache([served(app="web")], {"pods": "app=web"})
    uid = departing(cache)
    cache.cluster.delete(served())
    (created,) = cache.cluster.create(served(app=app))
    other = created["metadata"]["uid"]
    assert is_gone(cache, uid)
    assert not is_gone(cache, other)
    assert not is_gone(cache, None), "without a uid, any object of the name counts"


def test_what_is_being_deleted_still_exists() -> None:
    held_up = served(app="web")
    held_up["metadata"]["finalizers"] = ["example.com/wait"]
    cache = FakeCache([held_up], {"pods": "app=web"})
    uid = departing(cache)
    cache.cluster.delete(served())
    cache.cluster.patch(served(), {"metadata": {"labels": {"app": "db"}}})
    assert cache.list_cached("pods") == []
    assert not is_gone(cache, uid)


def test_under_a_filter_of_namespaces_alone_the_answer_is_as_right() -> None:
    cache = FakeCache([served()], {"pods": Selector(namespaces=["shop"])})
    uid = departing(cache)
    assert not is_gone(cache, uid)
    cache.cluster.delete(served())
    assert is_gone(cache, uid)


# ---- What is asked for.


@pytest.mark.parametrize("uid", ["uid-web-1", None])
def test_what_is_held_is_not_asked_for(uid: str | None) -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold(WEB)
        assert not await environment.cache().is_deleted("pods", "web-1", namespace="ns", uid=uid)
        assert environment.server.asked == []

    run(main)


def test_what_is_not_held_is_asked_for_by_its_metadata_alone() -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold()
        environment.server.answer(PATH, metadata("uid-web-1"), NOT_FOUND)
        assert [
            await environment.cache().is_deleted("pods", "web-1", namespace="ns", uid="uid-web-1")
            for _ in range(2)
        ] == [
            False,
            True,
        ]
        assert environment.server.asked == [(PATH, {})] * 2
        assert environment.server.accepted == [METADATA] * 2

    run(main)


OTHERS = {
    "another name": metadata("u", name="web-2"),
    "another namespace": metadata("u", namespace="other"),
    "no uid": metadata(""),
    "another kind": {**pod("web-1"), "kind": "Service"},
    "no kind": {"metadata": metadata("u")["metadata"]},
}


@each_row("other", OTHERS)
def test_contract_8_what_was_not_asked_for_is_no_answer(other: str) -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold()
        environment.server.answer(PATH, OTHERS[other])
        with pytest.raises(Stalled):
            await environment.cache().is_deleted("pods", "web-1", namespace="ns", uid="uid-web-1")

    run(main)


def test_a_server_that_sends_the_whole_object_all_the_same_is_understood() -> None:
    async def main(environment: Environment) -> None:
        environment.server.answer("/api/v1/nodes/n", node("n"))
        environment.resources["nodes"] = NODES
        assert not await environment.cache().is_deleted("nodes", "n", uid="n")
        assert await environment.cache().is_deleted("nodes", "n", uid="other")

    run(main)


def test_what_is_proved_absent_here_may_have_come_since_and_is_asked_for() -> None:
    async def main(environment: Environment) -> None:
        environment.declare(Selector(namespaces=["ns"])).hold()
        environment.server.answer(PATH, metadata("new"))
        assert not await environment.cache().is_deleted("pods", "web-1", namespace="ns", uid="new")

    run(main)


def test_what_is_held_under_another_uid_may_be_older_and_is_asked_for() -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold(WEB)
        environment.server.answer(PATH, metadata("new"))
        assert not await environment.cache().is_deleted("pods", "web-1", namespace="ns", uid="new")

    run(main)


@pytest.mark.parametrize("uid", ["uid-web-1", None])
def test_what_departed_as_the_handler_was_told_is_asked_for_though_the_stream_still_has_it(
    uid: str | None,
) -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold(WEB)
        assert await environment.cache(departed="uid-web-1").is_deleted(
            "pods", "web-1", namespace="ns", uid=uid
        )
        assert not await environment.cache(departed="uid-of-another").is_deleted(
            "pods", "web-1", namespace="ns", uid=uid
        )

    run(main)


def test_what_is_older_than_is_allowed_is_asked_for() -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold(WEB)
        assert await environment.cache().is_deleted("pods", "web-1", namespace="ns", max_age=1)
        assert not await environment.cache().is_deleted("pods", "web-1", namespace="ns", max_age=2)

    run(main)


def test_identical_questions_share_an_answer_but_none_with_a_fetch() -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold()
        environment.server.answer(PATH, WEB)
        cache = environment.cache()
        await asyncio.gather(
            *(cache.is_deleted("pods", "web-1", namespace="ns", uid=uid) for uid in ("a", "b")),
            cache.fetch("pods", "web-1", namespace="ns"),
        )
        assert sorted(environment.server.accepted) == sorted([METADATA, f"application/json{DROP}"])

    run(main)


def test_questions_are_paced_as_fetches_are() -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold()
        for number in range(25):
            await environment.cache().is_deleted("pods", f"web-{number}", namespace="ns")
        assert environment.slept != []

    run(main)


def test_it_is_counted_as_a_read_of_the_cache_is() -> None:
    async def main(environment: Environment) -> None:
        counts = environment.declare("app=web").hold(WEB).counts
        await environment.cache().is_deleted("pods", "web-1", namespace="ns")
        await environment.cache().is_deleted("pods", "web-2", namespace="ns")
        assert counts.reads == {("is_deleted", "served"): 1, ("is_deleted", "OutsideFilter"): 1}

    run(main)


# ---- No answer is a guess.


@each_row(
    ("answer", "error"),
    [
        (
            Refusal(403, "Forbidden"),
            Forbidden,
        ),
        (
            Refusal(404),
            Missing,
        ),
        (
            Refusal(500, "InternalError"),
            Stalled,
        ),
        (
            Unreachable("down"),
            Stalled,
        ),
        (
            {"kind": "Table"},
            Stalled,
        ),
    ],
)
def test_what_the_server_says_instead_is_no_deletion(
    answer: Any,
    error: type[Exception],
) -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold()
        environment.server.answer(PATH, answer)
        with pytest.raises(error):
            await environment.cache().is_deleted("pods", "web-1", namespace="ns", uid="uid-web-1")

    run(main)


@each_row(
    "asked",
    [
        {"name": "web-1"},
        {"name": "web-1", "namespace": "ns", "uid": 7},
        {"name": "web-1", "namespace": "ns", "uid": ""},
        {"name": {"metadata": {}}},
    ],
)
def test_mistakes_are_told(
    asked: dict[str, Any],
) -> None:
    async def main(environment: Environment) -> None:
        environment.declare("app=web").hold()
        with pytest.raises(ReadError):
            await environment.cache().is_deleted("pods", **asked)
        assert environment.server.asked == []

    run(main)
