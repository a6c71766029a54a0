"""Faults of a fake cache: what reads ask the server goes wrong on demand, and what is held is read as
before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kopf_selectcache
from kopf_selectcache import Forbidden, ReadError
from kopf_selectcache.errors import Missing, Rejected, Stalled
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.faults import (
    BadGateway,
    BrokenFault,
    Delay,
    Disconnect,
    EndStream,
    ErrorEvent,
    Fault,
    Gone,
    LeaderChanged,
    MalformedJSON,
    NotServed,
    OldVersionOnDelete,
    Refuse,
    Silence,
    Unauthorized,
)
from tests.rows import each_row

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}},
}
CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "options", "namespace": "shop", "uid": "u2"},
}

READS: dict[str, Callable[[FakeCache], Any]] = {
    "fetch": lambda cache: cache.blocking.fetch("configmaps", "options", namespace="shop"),
    "fetch_list": lambda cache: cache.blocking.fetch_list("configmaps", namespace="shop"),
    "gone": lambda cache: cache.blocking.is_deleted("configmaps", "options", namespace="shop", uid="u2"),
}


def fake() -> FakeCache:
    return FakeCache([POD, CONFIG], {"pods": "app=web"})


@each_row("read", READS)
@each_row(
    ("fault", "error"),
    [
        (Refuse(403), Forbidden),
        (Refuse(405), Rejected),
        (Refuse(429), Stalled),
        (Refuse(500), Stalled),
        (Refuse(503), Stalled),
        (MalformedJSON(), Stalled),
        (Unauthorized(), kopf_selectcache.errors.Unauthorized),
        (LeaderChanged(), Stalled),
        (BadGateway(), Stalled),
        (Gone(), Stalled),
    ],
    ids=str,
)
def test_a_fault_refuses_reads_of_the_server_and_not_those_of_the_cache(
    read: str, fault: Fault, error: type[ReadError]
) -> None:
    cache = fake()
    planned = cache.cluster.faults.add(fault, resource="configmaps")
    with pytest.raises(error):
        READS[read](cache)
    assert [asked.verb for asked in planned.hits] == ["list" if read == "fetch_list" else "get"]
    assert cache.get("pods", "web", namespace="shop")["metadata"]["name"] == "web"
    planned.release()
    READS[read](cache)


def test_a_kind_that_is_not_served_is_missing() -> None:
    cache = fake()
    cache.cluster.faults.add(NotServed(), resource="configmaps", verb="list")
    with pytest.raises(Missing):
        READS["fetch_list"](cache)


def test_a_fault_happens_to_the_requests_that_it_is_planned_for() -> None:
    cache = fake()
    planned = cache.cluster.faults.add(Refuse(503), resource="configmaps", name="options", nth=2, times=1)
    READS["fetch"](cache)
    with pytest.raises(Stalled):
        READS["fetch"](cache)
    READS["fetch"](cache)
    READS["fetch_list"](cache)
    assert [str(asked) for asked in planned.hits] == [
        "get /api/v1/namespaces/shop/configmaps/options, of admin: 503"
    ]


def test_the_retry_time_of_the_server_is_reported() -> None:
    cache = fake()
    cache.cluster.faults.add(Refuse(429, retry_after=7), resource="configmaps")
    with pytest.raises(Stalled) as caught:
        READS["fetch"](cache)
    assert caught.value.retry_after == 7


def test_an_error_in_the_code_of_the_test_is_reported() -> None:
    cache = fake()
    cache.cluster.faults.add(
        Refuse(503), resource="configmaps", where=lambda asked: asked.query["nothing"] == ""
    )
    with pytest.raises(BrokenFault):
        READS["fetch"](cache)


@each_row(
    "fault",
    [
        Silence(),
        Disconnect(),
        EndStream(),
        Delay(1.0),
        OldVersionOnDelete(),
        ErrorEvent(Refuse(500)),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_fault_of_connections_or_watches_is_refused(fault: Fault) -> None:
    with pytest.raises(TypeError):
        fake().cluster.faults.add(fault)
