"""`fetch` and `fetch_list`: from the cache where it can answer, and else from the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kopf_selectcache import BadSelector, Forbidden, NotFound, ReadError, Selector
from kopf_selectcache.client.reading import Unreachable
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.errors import Missing, NotKept, Rejected, Stalled
from tests.rows import each_row

from .environment import NODES, PODS, Environment, Obj, names, node, pod, with_environment

WEB, DB = pod("web-1", app="web"), pod("db-1", app="db")
DB_PATH = "/api/v1/namespaces/ns/pods/db-1"
LIST_PATH = "/api/v1/namespaces/ns/pods"


def page(*items: Obj, more: str = "") -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "PodList",
        "metadata": {"resourceVersion": "20", "continue": more},
        "items": list(items),
    }


# ---- One object.


@with_environment
async def test_an_object_proved_absent_is_not_asked_for(environment: Environment) -> None:
    environment.declare(Selector(namespaces=["ns"])).hold()
    with pytest.raises(NotFound) as caught:
        await environment.cache().fetch("pods", "nope", namespace="ns")
    assert caught.value.version == "10"
    assert await environment.cache().fetch("pods", "nope", namespace="ns", default=None) is None
    assert environment.server.asked == []


@with_environment
async def test_an_object_that_the_server_does_not_have_is_not_found(environment: Environment) -> None:
    environment.declare("app=web").hold(WEB)
    with pytest.raises(NotFound) as info:
        await environment.cache().fetch("pods", "nope", namespace="ns")
    assert info.value.version == ""
    assert await environment.cache().fetch("pods", "nope", namespace="ns", default=7) == 7


OTHERS = {
    "another name": pod("db-2", app="db"),
    "another namespace": pod("db-1", "other", app="db"),
    "no uid": {**DB, "metadata": {**DB["metadata"], "uid": ""}},
    "another kind": {**DB, "kind": "Service"},
    "no kind": {"metadata": DB["metadata"]},
}


@each_row("other", OTHERS)
@with_environment
async def test_contract_8_an_object_that_was_not_asked_for_is_no_answer(
    environment: Environment, other: str
) -> None:
    environment.declare("app=web").hold(WEB)
    environment.server.answer(DB_PATH, OTHERS[other])
    with pytest.raises(Stalled):
        await environment.cache().fetch("pods", "db-1", namespace="ns")


@with_environment
async def test_contract_8_a_namespace_where_there_is_none_is_no_answer(environment: Environment) -> None:
    environment.resources["nodes"] = NODES
    environment.server.answer(
        "/api/v1/nodes/n", {**node("n"), "metadata": {**node("n")["metadata"], "namespace": "ns"}}
    )
    with pytest.raises(Stalled):
        await environment.cache().fetch("nodes", "n")


@each_row(
    ("key", "name", "namespace"),
    [("pods", "x", None), ("nodes", "x", "ns"), ("pods", "../../secrets/x", "ns"), ("pods", "x", "../..")],
)
@with_environment
async def test_mistakes_never_reach_the_server(
    environment: Environment, key: str, name: str, namespace: str | None
) -> None:
    environment.resources.update(pods=PODS, nodes=NODES)
    with pytest.raises(ReadError) as info:
        await environment.cache().fetch(key, name, namespace=namespace)
    assert not isinstance(info.value, BadSelector)
    assert environment.server.asked == []


@with_environment
async def test_a_state_confirmed_too_long_ago_is_asked_for(environment: Environment) -> None:
    environment.declare("app=web").hold(WEB)
    newer = pod("web-1", version="12", app="web")
    environment.server.answer("/api/v1/namespaces/ns/pods/web-1", newer)
    environment.server.answer("/api/v1/pods", page(newer))
    cache = environment.cache()
    assert await cache.fetch("pods", "web-1", namespace="ns", max_age=60) == WEB
    assert await cache.fetch_list("pods", labels="app=web", max_age=60) == [WEB]
    assert await cache.fetch("pods", "web-1", namespace="ns", max_age=0) == newer
    assert await cache.fetch_list("pods", labels="app=web", max_age=0) == [newer]
    assert (
        await asyncio.to_thread(lambda: cache.blocking.fetch("pods", "web-1", namespace="ns", max_age=0))
        == newer
    )
    assert await asyncio.to_thread(
        lambda: cache.blocking.fetch_list("pods", labels="app=web", max_age=0)
    ) == [newer]


# ---- Several objects.


@with_environment
async def test_a_list_that_is_not_covered_is_asked_for_page_by_page(environment: Environment) -> None:
    environment.declare("app=web").hold(WEB)
    environment.server.answer(LIST_PATH, page(DB, more="token"), page(WEB))
    found = await environment.cache().fetch_list(
        "pods",
        namespace="ns",
        labels="app in (web,db)",
        fields={"status.phase": "Running"},
        sort_by="metadata.name",
    )
    assert [obj["metadata"]["name"] for obj in found] == ["db-1", "web-1"]
    query = {"labelSelector": "app in (db,web)", "fieldSelector": "status.phase=Running", "limit": "500"}
    assert environment.server.asked == [(LIST_PATH, query), (LIST_PATH, {**query, "continue": "token"})]


@with_environment
async def test_no_more_is_asked_for_than_the_limit(environment: Environment) -> None:
    environment.resources["pods"] = PODS
    for namespace, more in {"a": "", "b": "token", "c": ""}.items():
        environment.server.answer(
            f"/api/v1/namespaces/{namespace}/pods", page(pod("x", namespace), more=more)
        )
    found = await environment.cache().fetch_list("pods", namespace=["a", "b", "c"], limit=2)
    assert [obj["metadata"]["namespace"] for obj in found] == ["a", "b"]
    assert len(environment.server.asked) == 2
    assert await environment.cache().fetch_list("pods", limit=0) == []
    assert len(environment.server.asked) == 2


@with_environment
async def test_a_list_that_expires_half_way_is_asked_for_in_one_piece(environment: Environment) -> None:
    environment.resources["pods"] = PODS
    environment.server.answer(LIST_PATH, page(DB, more="token"), Refusal(410, "Expired"), page(WEB))
    assert await environment.cache().fetch_list("pods", namespace="ns") == [WEB], "nothing of the older state"
    assert environment.server.asked[-1] == (LIST_PATH, {})


@with_environment
async def test_a_list_in_one_piece_that_is_cut_up_nevertheless_is_read_to_its_end(
    environment: Environment,
) -> None:
    environment.resources["pods"] = PODS
    environment.server.answer(
        LIST_PATH, page(DB, more="token"), Refusal(410, "Expired"), page(WEB, more="more"), page(DB)
    )
    assert names(await environment.cache().fetch_list("pods", namespace="ns")) == ["db-1", "web-1"]
    assert environment.server.asked[-1] == (LIST_PATH, {"continue": "more"})


@each_row(
    ("answers", "requests"),
    [
        ([page(DB, more="same")], 2),
        ([page(more=str(n)) for n in range(200)], 101),
        (
            [
                page(DB, more="a"),
                {**page(WEB, more="b"), "metadata": {"resourceVersion": "21", "continue": "b"}},
            ],
            2,
        ),
        ([page(DB, more="a"), {**page(WEB), "metadata": {"resourceVersion": "21"}}], 2),
        ([page(DB, more="a"), Refusal(410, "Expired"), page(more="b"), Refusal(410, "Expired")], 4),
    ],
    ids=[
        "one token again and again",
        "empty pages without end",
        "pages of two versions",
        "a last page of another version",
        "expires again and again",
    ],
)
@with_environment
async def test_a_list_that_comes_to_no_end_is_given_up(
    environment: Environment, answers: list[Any], requests: int
) -> None:
    environment.resources["pods"] = PODS
    environment.server.answer(LIST_PATH, *answers)
    with pytest.raises(Stalled):
        await environment.cache().fetch_list("pods", namespace="ns")
    assert len(environment.server.asked) == requests


@with_environment
async def test_a_field_that_only_the_server_knows_is_asked_for(environment: Environment) -> None:
    foos = Resource(Kind.unknown("agg.io", "Foo", "foos", namespaced=True), "v1", fields_known=False)
    environment.declare("", foos, "foos").hold()
    environment.server.answer(
        "/apis/agg.io/v1/foos",
        {"kind": "FooList", "apiVersion": "agg.io/v1", "metadata": {"resourceVersion": "1"}, "items": []},
    )
    with pytest.raises(ReadError):
        environment.cache().list("foos", fields="spec.x=1")
    assert await environment.cache().fetch_list("foos", fields="spec.x=1") == []
    assert environment.server.asked == [
        ("/apis/agg.io/v1/foos", {"fieldSelector": "spec.x=1", "limit": "500"})
    ]


@each_row(
    ("answer", "error"),
    [
        (Refusal(410, "Expired"), Stalled),
        ({"kind": "Status", "code": 403}, Forbidden),
        (Refusal(400, "BadRequest", "no"), Rejected),
        (Refusal(404), Missing),
        (Unreachable("gone"), Stalled),
        ({"kind": "PodList"}, Stalled),
    ],
)
@with_environment
async def test_an_answer_that_is_no_list_raises(
    environment: Environment, answer: Any, error: type[Exception]
) -> None:
    environment.resources["pods"] = PODS
    environment.server.answer(LIST_PATH, answer)
    with pytest.raises(error):
        await environment.cache().fetch_list("pods", namespace="ns")
    assert len(environment.server.asked) == 1


@with_environment
async def test_a_list_that_makes_no_sense_is_refused(environment: Environment) -> None:
    environment.resources["nodes"] = NODES
    with pytest.raises(ReadError):
        await environment.cache().fetch_list("nodes", namespace="ns")
    with pytest.raises(NotKept):
        await environment.cache().fetch_list("nodes", where={"metadata.managedFields": []})
    with pytest.raises(ReadError):
        await environment.cache().fetch_list("nodes", labels="=")
    assert environment.server.asked == []


# ---- Only on the operator's loop.


ASKED: list[Callable[[Any], Any]] = [
    lambda cache: cache.fetch("pods", "x", namespace="ns"),
    lambda cache: cache.fetch_list("pods", labels="app=web"),
    lambda cache: cache.is_deleted("pods", "x", namespace="ns", uid="u"),
    lambda cache: cache.wait_synced(),
    lambda cache: cache.wait_for("pods", bool, timeout=1),
]


@each_row("ask", ASKED)
async def test_another_loop_is_refused(ask: Callable[[Any], Awaitable[Any]]) -> None:
    with pytest.raises(ReadError):
        await ask(Environment().cache())


@each_row("ask", ASKED)
@with_environment
async def test_a_sync_handler_that_cannot_await_is_refused_at_once(
    environment: Environment, ask: Callable[[Any], Any]
) -> None:
    """It would take the coroutine for the answer, which is not None, and believe that the object exists."""
    with pytest.raises(ReadError):
        await asyncio.to_thread(ask, environment.cache())
