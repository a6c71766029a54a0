"""Contract 9: a handler reads its own object at least as new as the body that it was called with, whichever
stream is ahead."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from kopf_selectcache import Cached, NotFound, OutsideFilter, Selector
from kopf_selectcache.cache._overlay import own_of
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.core.store.claims import OwnWrite
from kopf_selectcache.core.store.projection import ALL, Projection
from kopf_selectcache.errors import Stalled
from kopf_selectcache.types import Reason
from tests.rows import each_row

from .environment import PODS, Environment, Obj, names, pod, with_environment

OLD = pod("mine", version="5", app="web", seen="old")
OTHER = pod("other", version="6", app="web")


def called_with(
    own: Obj,
    *held: Obj,
    declared: str | Selector = "app=web",
    deleted: bool = False,
    version: str = "10",
    resource: Resource = PODS,
) -> Cache:
    """Make the cache of a handler that was called with this object. The stream is at version 10 unless it is
    said."""
    environment = Environment()
    environment.declare(declared, resource, "kind").hold(*held, version=version)
    return environment.cache(own=own, deleted=deleted)


def shown(cache: Cache) -> str | Reason | None:
    """Say which of its versions a handler sees in each read, and that the reads agree."""
    listed = {obj["metadata"]["name"]: obj for obj in cache.list_cached("kind", namespace="ns")}
    assert names(cache.list_cached("kind")) == sorted(listed)
    assert cache.count("kind", labels="app=web") == len(listed)
    try:
        own = cache.get("kind", "mine", namespace="ns")
    except OutsideFilter as error:
        assert "mine" not in listed
        return error.reason
    except NotFound:
        assert "mine" not in listed
        assert cache.exists("kind", "mine", namespace="ns") is False
        return None
    assert cache.exists("kind", "mine", namespace="ns")
    assert cache.list("kind", labels="app=web", names=["mine"]) == [own] == [listed["mine"]]
    return str(own["metadata"]["resourceVersion"])


def test_the_body_counts_where_it_is_newer_than_the_stream() -> None:
    assert shown(called_with(pod("mine", version="11", app="web"), OLD, OTHER)) == "11"


def test_no_function_of_the_operator_is_called_under_a_lock() -> None:
    environment = Environment()
    free = list[bool]()

    def transform(obj: Obj) -> Obj:
        def look() -> bool:
            got: bool = informer.state.own_writes.lock.acquire(blocking=False)
            if got:
                informer.state.own_writes.lock.release()
            return got

        with ThreadPoolExecutor() as threads:
            free.append(threads.submit(look).result())
        return obj

    informer = environment.declare("app=web", PODS, "kind", Projection.of(transform=transform))
    informer.hold(OTHER)
    informer.state.own_writes.add(OwnWrite(("ns", "other"), "u", "", None, at=0.0))
    free.clear()
    assert shown(environment.cache(own=pod("mine", version="11", app="web"))) == "11"
    assert free
    assert all(free)


def test_the_store_may_pass_the_body_while_that_is_read() -> None:
    environment = Environment()

    def transform(obj: Obj) -> Obj:
        if obj["metadata"]["resourceVersion"] == "11":
            informer.hold(OTHER, version="12")
        return obj

    informer = environment.declare("app=web", PODS, "kind", Projection.of(transform=transform))
    mine = pod("mine", version="11", app="web")
    reads: list[Callable[[Cache], object]] = [
        lambda cache: cache.list_cached("kind", names=["mine"], namespace="ns"),
        lambda cache: cache.exists("kind", "mine", namespace="ns"),
    ]
    for read in reads:
        informer.hold(OTHER)
        with suppress(OutsideFilter):
            assert not read(environment.cache(own=mine))


@each_row(
    "change",
    [
        {"kind": "Node"},
        {"apiVersion": "v2"},
        {"apiVersion": None},
        {"metadata": None},
        {"metadata": {"name": "mine"}},
        {"metadata": {"name": "mine", "resourceVersion": "11"}},
        {"metadata": {"name": "mine", "resourceVersion": 11}},
    ],
)
def test_a_body_of_another_kind_or_of_no_object_changes_nothing(change: dict[str, Any]) -> None:
    assert shown(called_with({**pod("mine", version="11", app="web"), **change}, OLD)) == "5"


def test_where_a_field_is_known_to_the_server_alone_the_stream_counts() -> None:
    """Nobody knows if the body is still in the filter; the stored object was, as of the stream's version."""
    kind = Resource(Kind.unknown("", "Pod", "pods", namespaced=True), "v1", fields_known=False)
    own = pod("mine", version="11", app="web")
    assert (
        called_with(own, OLD, declared=Selector(fields="spec.color=red"), resource=kind).get(
            "kind", "mine", namespace="ns"
        )
        == OLD
    )


@each_row(
    ("own", "stream", "seen"),
    [
        ("11", "10", "11"),
        ("9", "10", "5"),
        ("b", "a", "5"),
        ("11", "a", "5"),
        ("a", "10", "5"),
        pytest.param("9" * 1_024, "10", "9" * 1_024, id="the longest"),
        pytest.param("9" * 5_000, "10", "5", id="longer than any server has"),
        ("²", "1", "5"),
    ],
)
def test_the_body_counts_only_if_its_version_is_known_to_be_later(own: str, stream: str, seen: str) -> None:
    assert shown(called_with(pod("mine", version=own, app="web"), OLD, version=stream)) == seen


# ---- A transform that fails for it.


def failing(obj: Obj) -> Obj:
    if obj["metadata"]["name"] == "mine":
        raise KeyError("canary")
    return obj


TRANSFORMED = Cached("app=web", transform=failing).projection
MINE = pod("mine", version="11", app="web")


@each_row(
    "read",
    [
        lambda cache: cache.get("pods", "mine", namespace="ns"),
        lambda cache: cache.list_cached("pods", labels="app=web", as_=bytes),
        lambda cache: cache.count("pods", labels="app=web"),
        lambda cache: cache.explain("pods"),
    ],
)
def test_a_transform_that_fails_for_the_body_raises_and_no_older_object_is_read(
    read: Callable[[Cache], object],
) -> None:
    environment = Environment()
    informer = environment.declare("app=web", PODS, "v1/pods", TRANSFORMED).hold(OTHER)
    with pytest.raises(Stalled):
        read(environment.cache(own=MINE))
    assert {outcome for _, outcome in informer.counts.reads} == {"Stalled"}


@with_environment
async def test_a_wait_reports_the_failing_transform_as_well(environment: Environment) -> None:
    environment.declare("app=web", PODS, "v1/pods", TRANSFORMED).hold(OTHER)
    with pytest.raises(Stalled):
        await environment.cache(own=MINE).wait_for("pods", lambda _: False)


def test_a_body_that_the_stream_is_past_needs_no_transform() -> None:
    transformed: list[str] = []

    def note(obj: Obj) -> Obj:
        transformed.append(obj["metadata"]["name"])
        return obj

    environment = Environment()
    projection = Cached("app=web", transform=note).projection
    environment.declare("app=web", PODS, "v1/pods", projection).hold(OTHER, version="11")
    transformed.clear()
    assert names(environment.cache(own=MINE).list_cached("pods")) == ["other"]
    assert transformed == []


def test_an_object_of_another_kind_is_nobody_s_own() -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "web-1", "uid": "u", "resourceVersion": "20"},
    }
    assert own_of(body, PODS, Selector(), deleted=False, version="6", projection=ALL) is None
