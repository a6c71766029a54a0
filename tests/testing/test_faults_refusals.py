"""Faults that are answers, over real sockets: what a client gets to see of each."""

from __future__ import annotations

import json

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import (
    BadGateway,
    EmptyPage,
    ErrorEvent,
    ExpiredToken,
    Gone,
    IgnoreSelectors,
    LeaderChanged,
    NotServed,
    NoWatchList,
    Refuse,
    TooLargeVersion,
    Unauthorized,
)
from tests.apiserver.client import ApiError

from .serving import FOLLOWED, INITIAL, PODS, RawRequest, Served, pod, told


class TestRefusals:
    def test_a_refusal_is_a_status_as_real_servers_fill_it(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.faults.add(Refuse(503))
        assert client.refused().body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "ServiceUnavailable",
            "reason": "ServiceUnavailable",
            "code": 503,
        }

    @pytest.mark.parametrize(
        ("fault", "header", "details"),
        [
            (Refuse(503, retry_after=2), b"Retry-After: 2\r\n", 2),
            (Refuse(503, retry_after=2, in_details=False), b"Retry-After: 2\r\n", None),
            (Refuse(503, retry_after=2, in_header=False), b"", 2),
        ],
    )
    def test_retry_after_is_sent_in_the_header_and_in_the_details(
        self, cluster: EmbeddedCluster, fault: Refuse, header: bytes, details: int | None
    ) -> None:
        cluster.faults.add(fault)
        with RawRequest(cluster, headers={"Connection": "close"}) as request:
            head, _, body = request.to_the_end().partition(b"\r\n\r\n")
        assert (b"Retry-After" in head) == bool(header)
        assert header in head + b"\r\n"
        assert json.loads(body).get("details", {}).get("retryAfterSeconds") == details

    def test_an_overloaded_server_speaks_in_plain_words(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.faults.add(Refuse(429, retry_after=7))
        with RawRequest(cluster, headers={"Connection": "close"}) as request:
            assert b"Retry-After: 7\r\n" in request.to_the_end()
        assert client.refused().body == "Too many requests, please try again later.\n"

    def test_410_comes_as_a_status_that_looks_like_success(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.faults.add(Gone(http=200), verb="watch")
        with client.watch(PODS, query=FOLLOWED) as watch:
            status = next(watch)
        assert (status["kind"], status["code"]) == ("Status", 410)

    @pytest.mark.parametrize(
        ("fault", "code", "message"),
        [
            (LeaderChanged(), 500, "etcdserver: leader changed"),
            (TooLargeVersion(99, 5), 504, "Timeout: Too large resource version: 99, current: 5"),
            (
                TooLargeVersion(before_1_34=True),
                500,
                "etcdserver: mvcc: required revision is a future revision",
            ),
            (Unauthorized(), 401, "Unauthorized"),
        ],
    )
    def test_other_refusals_are_worded_as_by_real_servers(
        self, cluster: EmbeddedCluster, client: Served, fault: LeaderChanged, code: int, message: str
    ) -> None:
        cluster.faults.add(fault)
        error = client.refused()
        assert (error.status, error.body["message"]) == (code, message)

    @pytest.mark.parametrize(
        ("fault", "code", "words"),
        [(BadGateway(), 502, "502 Bad Gateway"), (NotServed(), 404, "404 page not found")],
    )
    def test_some_refusals_are_no_status(
        self, cluster: EmbeddedCluster, client: Served, fault: BadGateway, code: int, words: str
    ) -> None:
        cluster.faults.add(fault)
        error = client.refused()
        assert error.status == code
        assert words in error.body

    @pytest.mark.parametrize(
        ("fault", "field"),
        [(NoWatchList(), "sendInitialEvents"), (NoWatchList(before_1_27=True), "resourceVersionMatch")],
    )
    def test_an_old_server_refuses_initial_events_and_nothing_else(
        self, cluster: EmbeddedCluster, client: Served, fault: NoWatchList, field: str
    ) -> None:
        cluster.faults.add(fault)
        with pytest.raises(ApiError) as caught:
            client.watch(PODS, query=INITIAL)
        assert caught.value.status == 422
        assert caught.value.body["details"]["causes"][0]["field"] == field
        cluster.create(pod("a"))
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert told(watch, 1) == [("ADDED", "a")]

    def test_an_error_event_of_any_status_ends_the_stream(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"), pod("b"))
        cluster.faults.add(ErrorEvent(Refuse(429, retry_after=3), after_events=1))
        with client.watch(PODS, query=FOLLOWED) as watch:
            first, error = watch
        assert (first["type"], error["type"]) == ("ADDED", "ERROR")
        assert error["object"]["details"] == {"retryAfterSeconds": 3}


class TestPages:
    @pytest.fixture(autouse=True)
    def _three_pods(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"), pod("b"), pod("c"))

    def test_an_expired_token_is_refused_on_later_pages_alone(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.faults.add(ExpiredToken(), nth=2)
        first = client.listed(limit=1)
        second = client.listed(limit=1, **{"continue": first["metadata"]["continue"]})
        error = client.refused(limit=1, **{"continue": second["metadata"]["continue"]})
        assert (error.status, error.body["metadata"]) == (410, {})

    def test_a_fresh_token_goes_on(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(ExpiredToken(fresh=True), times=1)
        first = client.listed(limit=1)
        cluster.create(pod("d"))
        error = client.refused(limit=1, **{"continue": first["metadata"]["continue"]})
        assert error.status == 410
        assert client.names(limit=5, **{"continue": error.body["metadata"]["continue"]}) == ["b", "c", "d"]

    def test_an_empty_page_has_a_token_that_goes_on_to_the_skipped_objects(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.faults.add(EmptyPage(), nth=2, times=1)
        first = client.listed(limit=1)
        empty = client.listed(limit=1, **{"continue": first["metadata"]["continue"]})
        assert empty["items"] == []
        assert client.names(limit=5, **{"continue": empty["metadata"]["continue"]}) == ["b", "c"]

    @pytest.mark.parametrize("path", [PODS, "/api/v1/pods"])
    def test_an_empty_first_page_has_a_token_that_goes_on_to_all(
        self, cluster: EmbeddedCluster, client: Served, path: str
    ) -> None:
        cluster.faults.add(EmptyPage(), times=1)
        empty = client.request("GET", path, query={"limit": 2})
        assert empty["items"] == []
        more = client.request("GET", path, query={"continue": empty["metadata"]["continue"]})
        assert [item["metadata"]["name"] for item in more["items"]] == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("fault", "expected"),
        [
            (IgnoreSelectors(), ["a", "b", "c"]),
            (IgnoreSelectors(fields=False), ["b"]),
            (IgnoreSelectors(labels=False), []),
        ],
    )
    def test_ignored_selectors_select_nothing(
        self, cluster: EmbeddedCluster, client: Served, fault: IgnoreSelectors, expected: list[str]
    ) -> None:
        cluster.faults.add(fault)
        assert client.names(labelSelector="app=none", fieldSelector="metadata.name=b") == expected
