"""The shell around the API: what is HTTP about it."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from typing import Any

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.client import ApiError

from .serving import PODS, RawRequest, Served, pod


def answer(cluster: EmbeddedCluster, **headers: str) -> tuple[bytes, bytes]:
    with RawRequest(cluster, headers={"Connection": "close", **headers}) as request:
        head, _, body = request.to_the_end().partition(b"\r\n\r\n")
    return head, body


def big(name: str) -> dict[str, Any]:
    return {**pod(name), "metadata": {"name": name, "annotations": {"note": "x" * 200_000}}}


def test_a_big_answer_is_compressed_where_the_client_accepts_it(cluster: EmbeddedCluster) -> None:
    cluster.create(big("a"), big("b"))
    head, body = answer(cluster, **{"Accept-Encoding": "gzip"})
    assert b"Content-Encoding: gzip" in head
    assert len(body) < 100_000
    assert len(json.loads(gzip.decompress(body))["items"]) == 2


def test_the_head_of_a_watch_comes_before_any_event(cluster: EmbeddedCluster) -> None:
    with RawRequest(
        cluster, watch=True, resourceVersion=cluster.version, headers={"Accept-Encoding": "gzip"}
    ) as request:
        head = request.until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert b"Content-Encoding" not in head


def test_a_watch_without_a_time_ends_all_the_same_within_an_hour() -> None:
    class Timer:
        def cancel(self) -> None:
            pass

    asked: list[float] = []

    def later(seconds: float, _: object) -> Timer:
        asked.append(seconds)
        return Timer()

    with EmbeddedCluster(tls=False, later=later, bookmarks_every=1).in_thread() as cluster:
        for _ in range(2):
            with RawRequest(cluster, watch=True) as request:
                request.until(b"\r\n\r\n")
                cluster.requests.wait("watch")
    lasts = [seconds for seconds in asked if seconds != 1]
    assert len(set(lasts)) == 2
    assert all(1800 <= seconds <= 3600 for seconds in lasts)


def test_a_watch_whose_client_has_gone_is_forgotten(cluster: EmbeddedCluster) -> None:
    with RawRequest(cluster, watch=True) as request:
        request.until(b"\r\n\r\n")
        cluster.requests.wait("watch")
    while cluster.cut():
        pass


@pytest.mark.parametrize("tls", [False, True])
async def test_a_client_that_goes_away_in_the_middle_of_a_list_is_no_failure(
    tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(tls=tls) as cluster:
        cluster.create(*(big(f"a-{number}") for number in range(20)))  # More than is written at a time.
        request = await asyncio.to_thread(RawRequest, cluster, "/version")
        await asyncio.to_thread(request.until, b"\r\n\r\n")
        request.send(PODS)
        request.reset()
        await cluster.requests.until("list")
    assert caplog.text == ""


@pytest.mark.parametrize("tls", [False, True])
async def test_a_client_that_goes_away_in_the_middle_of_an_event_is_no_failure(
    tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(tls=tls) as cluster:
        request = await asyncio.to_thread(RawRequest, cluster, watch=True, resourceVersion=cluster.version)
        await asyncio.to_thread(request.until, b"\r\n\r\n")
        request.reset()
        cluster.create(*(big(f"a-{number}") for number in range(20)))  # More than is written at a time.
    assert caplog.text == ""


def test_a_body_that_is_too_large_is_refused_as_by_the_real_server(client: Served) -> None:
    with pytest.raises(ApiError) as caught:
        client.request("POST", PODS, body={"metadata": {"annotations": {"note": "x" * 3_200_000}}})
    assert (caught.value.status, caught.value.body["reason"]) == (413, "RequestEntityTooLarge")
    assert caught.value.body["message"] == "Request entity too large: limit is 3145728"


def test_of_a_parameter_that_is_given_twice_the_first_counts(
    cluster: EmbeddedCluster, client: Served
) -> None:
    cluster.create(pod("a"), pod("b"))
    listed = client.request("GET", f"{PODS}?limit=1&limit=2")
    assert len(listed["items"]) == 1
    assert cluster.requests[-1].query == {"limit": "1"}


def test_a_request_without_a_valid_token_is_recorded_without_a_user(cluster: EmbeddedCluster) -> None:
    client = Served(cluster, token=cluster.token[::-1])
    assert client.refused().status == 401
    assert (cluster.requests[-1].user, cluster.requests[-1].code) == ("", 401)
    client.close()


def test_a_bug_is_a_500_that_tells_nothing_and_a_log_that_tells_all(
    cluster: EmbeddedCluster,
    client: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cluster.api, "answering", lambda *_, **__: 1 / 0)
    with caplog.at_level(logging.ERROR):
        error = client.refused()
    assert (error.status, error.body["reason"]) == (500, "InternalError")
    assert "ZeroDivisionError" in caplog.text
