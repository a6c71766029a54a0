"""Each fault, over real sockets: what a client gets to see of it, to whom it happens, and how it is over."""
from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kopf_selectcache.testing import EmbeddedCluster, End
from kopf_selectcache.testing.faults import (
    BadGateway,
    BigObjects,
    BufferingProxy,
    Delay,
    Disconnect,
    DropEvents,
    DuplicateEvents,
    EarlyBookmark,
    EmptyPage,
    EmptyVersion,
    EndlessLine,
    EndStream,
    ErrorEvent,
    ExpiredToken,
    Fault,
    Gone,
    GzipWatch,
    IdleCut,
    IgnoredInitialEvents,
    IgnoredLimit,
    Lag,
    LeaderChanged,
    MalformedJSON,
    NoBookmarks,
    NoEndBookmark,
    NoMetadata,
    NotServed,
    NoWatchList,
    OldVersionOnDelete,
    RecreatedAsModified,
    Refuse,
    ReorderInitialEvents,
    ReplayEvents,
    Reset,
    Silence,
    TableInstead,
    TooLargeVersion,
    TooManyRequests,
    Unauthorized,
    UnknownEventType,
    WrongKind,
)
from tests.apiserver.client import ApiError
from tests.apiserver.waiting import wait_until

from .serving import FOLLOWED, INITIAL, PODS, RawRequest, Served, lines_in, pod, told


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[Served]:
    client = Served(cluster)
    yield client
    client.close()


class TestWhomItHappensTo:
    def test_a_fault_happens_to_all_requests_unless_it_says_to_which(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(Refuse(503))
        assert [client.refused(path).status for path in (PODS, "/version", "/apis")] == [503, 503, 503]

    @pytest.mark.parametrize(("match", "hit"), [
        ({"verb": "list"}, True), ({"verb": "watch"}, False),
        ({"resource": "pods"}, True), ({"resource": "pods/status"}, False), ({"resource": "jobs.batch"}, False),
        ({"namespace": "default"}, True), ({"namespace": "other"}, False), ({"namespace": ""}, False),
        ({"user": "admin"}, True), ({"user": "somebody"}, False),
        ({"name": "a"}, False),
    ])
    def test_it_happens_where_all_that_is_given_is_equal(
            self, cluster: EmbeddedCluster, client: Served, match: dict[str, str], hit: bool) -> None:   # noqa: FBT001
        fault = cluster.faults.add(Refuse(503), **match)   # type: ignore[arg-type]
        assert status_of(client) == (503 if hit else 200)
        assert len(fault.hits) == hit

    def test_a_resource_can_be_named_with_its_group(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(Refuse(503), resource="jobs.batch")
        assert client.refused("/apis/batch/v1/jobs").status == 503

    def test_a_condition_says_what_else_there_is_to_say(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(Refuse(503), where=lambda asked: asked.query.get("labelSelector") == "app=web")
        assert client.names() == []
        assert client.refused(labelSelector="app=web").status == 503

    def test_it_happens_from_the_nth_request_on_so_many_times(self, cluster: EmbeddedCluster, client: Served) -> None:
        fault = cluster.faults.add(Refuse(503), verb="list", nth=2, times=2)
        assert [status_of(client) for _ in range(5)] == [200, 503, 503, 200, 200]
        assert [asked.verb for asked in fault.hits] == ["list", "list"]

    def test_only_requests_that_it_can_happen_to_are_counted(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(EndStream(), nth=1, times=1)
        assert client.names() == ["a"]
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert list(watch) == []

    @pytest.mark.parametrize("fault", [
        BufferingProxy(), DropEvents(), DuplicateEvents(), EarlyBookmark(), EmptyPage(), EndStream(), EndlessLine(),
        ErrorEvent(Refuse(410)), ExpiredToken(), GzipWatch(), IdleCut(1), IgnoredInitialEvents(), IgnoredLimit(),
        NoBookmarks(), NoEndBookmark(), NoWatchList(), OldVersionOnDelete(), RecreatedAsModified(), ReorderInitialEvents(),
        ReplayEvents(), UnknownEventType(),
    ], ids=lambda fault: type(fault).__name__)
    def test_a_plain_list_does_not_count_for_what_can_happen_to_pages_and_watches_alone(
            self, cluster: EmbeddedCluster, client: Served, fault: Fault) -> None:
        planned = cluster.faults.add(fault)
        assert client.names() == []
        assert list(planned.hits) == []

    def test_released_it_happens_no_more(self, cluster: EmbeddedCluster, client: Served) -> None:
        fault = cluster.faults.add(Refuse(503))
        assert client.refused().status == 503
        fault.release()
        assert client.names() == []

    def test_cleared_all_are_released(self, cluster: EmbeddedCluster, client: Served) -> None:
        fault = cluster.faults.add(Refuse(503))
        cluster.faults.clear()
        assert fault.released
        assert client.names() == []
        assert list(cluster.faults) == []

    def test_faults_that_are_given_at_the_start_happen_to_all(self) -> None:
        with EmbeddedCluster(tls=False, faults=[Refuse(503)]).in_thread() as cluster:
            client = Served(cluster)
            assert client.refused().status == 503
            client.close()

    def test_what_was_hit_can_be_awaited_on_any_loop(self, cluster: EmbeddedCluster, client: Served) -> None:
        fault = cluster.faults.add(Refuse(503), verb="list")

        async def wait() -> str:
            waiting = asyncio.create_task(fault.hit(2))
            await asyncio.to_thread(client.refused)
            await asyncio.to_thread(client.refused)
            return (await waiting).path
        assert asyncio.run(wait()) == PODS

    def test_to_wait_in_a_thread_ends_with_an_error_where_it_never_happens(self, cluster: EmbeddedCluster) -> None:
        with pytest.raises(TimeoutError):
            cluster.faults.add(Refuse(503)).wait(timeout=0)

    def test_a_fault_can_be_injected_into_the_watches_that_are_open(self, cluster: EmbeddedCluster, client: Served) -> None:
        with client.watch(PODS, query=FOLLOWED) as watch:
            cluster.requests.wait("watch", "pods")
            cluster.inject(ErrorEvent(Refuse(410)), "pods")
            assert [event["type"] for event in watch] == ["ERROR"]
        with client.watch(PODS, query=FOLLOWED) as later:
            cluster.create(pod("a"))
            assert told(later, 1) == [("ADDED", "a")]


class TestRefusals:
    def test_a_refusal_is_a_status_as_real_servers_fill_it(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(Refuse(503))
        assert client.refused().body == {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "ServiceUnavailable", "reason": "ServiceUnavailable", "code": 503}

    @pytest.mark.parametrize(("fault", "header", "details"), [
        (Refuse(429, retry_after=2), b"Retry-After: 2\r\n", 2),
        (Refuse(429, retry_after=2, in_details=False), b"Retry-After: 2\r\n", None),
        (Refuse(429, retry_after=2, in_header=False), b"", 2),
    ])
    def test_retry_after_is_told_in_the_header_and_in_the_details(
            self, cluster: EmbeddedCluster, fault: Refuse, header: bytes, details: int | None) -> None:
        cluster.faults.add(fault)
        with RawRequest(cluster, headers={"Connection": "close"}) as request:
            head, _, body = request.to_the_end().partition(b"\r\n\r\n")
        assert (b"Retry-After" in head) == bool(header)
        assert header in head + b"\r\n"
        assert json.loads(body).get("details", {}).get("retryAfterSeconds") == details

    def test_an_overloaded_server_speaks_in_plain_words(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(TooManyRequests(retry_after=7))
        with RawRequest(cluster, headers={"Connection": "close"}) as request:
            assert b"Retry-After: 7\r\n" in request.to_the_end()
        assert client.refused().body == "Too many requests, please try again later.\n"

    def test_410_comes_as_a_refusal(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(Gone())
        assert (client.refused().status, client.refused().body["reason"]) == (410, "Expired")

    def test_410_comes_as_a_status_that_looks_like_success(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(Gone(http=200), verb="watch")
        with client.watch(PODS, query=FOLLOWED) as watch:
            status = next(watch)
        assert (status["kind"], status["code"]) == ("Status", 410)

    @pytest.mark.parametrize(("fault", "code", "message"), [
        (LeaderChanged(), 500, "etcdserver: leader changed"),
        (TooLargeVersion(99, 5), 504, "Timeout: Too large resource version: 99, current: 5"),
        (Unauthorized(), 401, "Unauthorized"),
    ])
    def test_other_refusals_are_worded_as_by_real_servers(
            self, cluster: EmbeddedCluster, client: Served, fault: LeaderChanged, code: int, message: str) -> None:
        cluster.faults.add(fault)
        error = client.refused()
        assert (error.status, error.body["message"]) == (code, message)

    @pytest.mark.parametrize(("fault", "code", "words"), [
        (BadGateway(), 502, "502 Bad Gateway"), (NotServed(), 404, "404 page not found")])
    def test_some_refusals_are_no_status(
            self, cluster: EmbeddedCluster, client: Served, fault: BadGateway, code: int, words: str) -> None:
        cluster.faults.add(fault)
        error = client.refused()
        assert error.status == code
        assert words in error.body

    @pytest.mark.parametrize(("fault", "field"), [
        (NoWatchList(), "sendInitialEvents"), (NoWatchList(before_1_27=True), "resourceVersionMatch")])
    def test_an_old_server_refuses_initial_events_and_nothing_else(
            self, cluster: EmbeddedCluster, client: Served, fault: NoWatchList, field: str) -> None:
        cluster.faults.add(fault)
        with pytest.raises(ApiError) as caught:
            client.watch(PODS, query=INITIAL)
        assert caught.value.status == 422
        assert caught.value.body["details"]["causes"][0]["field"] == field
        cluster.create(pod("a"))
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert told(watch, 1) == [("ADDED", "a")]

    def test_an_error_event_of_any_status_ends_the_stream(self, cluster: EmbeddedCluster, client: Served) -> None:
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

    def test_an_expired_token_is_refused_on_later_pages_alone(self, cluster: EmbeddedCluster, client: Served) -> None:
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

    def test_an_empty_page_has_a_token_that_goes_on_to_what_was_left_out(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(EmptyPage(), nth=2, times=1)
        first = client.listed(limit=1)
        empty = client.listed(limit=1, **{"continue": first["metadata"]["continue"]})
        assert empty["items"] == []
        assert client.names(limit=5, **{"continue": empty["metadata"]["continue"]}) == ["b", "c"]

    @pytest.mark.parametrize("path", [PODS, "/api/v1/pods"])
    def test_an_empty_first_page_has_a_token_that_goes_on_to_all(
            self, cluster: EmbeddedCluster, client: Served, path: str) -> None:
        cluster.faults.add(EmptyPage(), times=1)
        empty = client.request("GET", path, query={"limit": 2})
        assert empty["items"] == []
        more = client.request("GET", path, query={"continue": empty["metadata"]["continue"]})
        assert [item["metadata"]["name"] for item in more["items"]] == ["a", "b", "c"]

    def test_an_ignored_limit_gives_all_at_once(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(IgnoredLimit())
        assert client.names(limit=1) == ["a", "b", "c"]


class TestConnections:
    def test_a_stream_ends_in_good_order_after_so_many_events(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"), pod("b"))
        fault = cluster.faults.add(EndStream(after_events=1))
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert [event["object"]["metadata"]["name"] for event in watch] == ["a"]
        fault.wait()

    def test_a_stream_ends_in_the_middle_of_a_line(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"), pod("b"))
        cluster.faults.add(EndStream(after_events=1, mid_line=True))
        with RawRequest(cluster, watch=True) as request:
            body = request.until(b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")[2]
        assert body.count(b'{"type":"ADDED"') == 2
        assert body.count(b"}\n") == 1

    @pytest.mark.parametrize("fault", [Reset(after_bytes=100), Reset(after_events=1), Reset(after_events=1, mid_line=True)])
    def test_a_reset_is_a_reset_after_what_has_come(self, cluster: EmbeddedCluster, fault: Reset) -> None:
        cluster.create(pod("a"), pod("b"))
        planned = cluster.faults.add(fault, verb="watch")
        with RawRequest(cluster, watch=True) as request:
            with pytest.raises(ConnectionResetError):
                request.to_the_end()
            assert b'{"type":"ADDED"' in request.data
            assert b"\r\n0\r\n\r\n" not in request.data
        planned.wait()

    def test_a_reset_after_so_many_bytes_of_a_stream_lets_exactly_them_pass(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(Reset(after_bytes=100))
        with RawRequest(cluster, watch=True) as request:
            with pytest.raises(ConnectionResetError):
                request.to_the_end()
            assert len(request.data.partition(b"\r\n\r\n")[2].partition(b"\r\n")[2]) == 100

    def test_an_answer_is_reset_before_its_first_byte(self, cluster: EmbeddedCluster) -> None:
        cluster.faults.add(Reset())
        with RawRequest(cluster) as request:
            with pytest.raises(ConnectionResetError):
                request.to_the_end()
            assert request.data == b""

    @pytest.mark.parametrize(("fault", "breaks"), [(Reset(after_bytes=10), True), (Disconnect(after_bytes=10), False)])
    def test_an_answer_breaks_off_after_so_many_bytes(
            self, cluster: EmbeddedCluster, fault: Reset, breaks: bool) -> None:   # noqa: FBT001
        cluster.faults.add(fault)
        with RawRequest(cluster) as request:
            try:
                request.to_the_end()
                assert not breaks
            except ConnectionResetError:
                assert breaks
            head, _, body = request.data.partition(b"\r\n\r\n")
        assert body == b'{"kind":"P'
        assert b"Content-Length: 10\r\n" not in head

    def test_a_stream_is_disconnected_before_it_is_complete(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"), pod("b"))
        cluster.faults.add(Disconnect(after_events=1))
        with RawRequest(cluster, watch=True) as request:
            data = request.to_the_end()
        assert [event["object"]["metadata"]["name"] for event in lines_in(data)] == ["a"]
        assert b"\r\n0\r\n\r\n" not in data

    def test_a_silent_watch_goes_on_when_it_is_released(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        fault = cluster.faults.add(Silence(after_events=1))
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert told(watch, 1) == [("ADDED", "a")]
            cluster.create(pod("b"))
            fault.wait()
            fault.release()
            assert told(watch, 1) == [("ADDED", "b")]

    def test_a_watch_can_fall_silent_in_the_middle_of_a_line(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"))
        fault = cluster.faults.add(Silence(after_bytes=20))
        with RawRequest(cluster, watch=True) as request:
            request.until(b'{"type":"ADDED","obj')
            fault.wait()
            assert not request.data.endswith(b"\n\r\n")
            fault.release()
            request.until(b"}\n")

    def test_a_silent_watch_does_not_even_end(self, cluster: EmbeddedCluster, client: Served) -> None:
        fault = cluster.faults.add(Silence())
        with client.watch(PODS, query=FOLLOWED) as watch:
            cluster.requests.wait("watch", "pods")
            cluster.cut()
            fault.wait()
            fault.release()
            assert list(watch) == []

    def test_no_answer_at_all_comes_until_it_is_released(self, cluster: EmbeddedCluster) -> None:
        fault = cluster.faults.add(Silence())
        with RawRequest(cluster) as request:
            fault.wait()
            assert request.data == b""
            assert cluster.requests[-1].code == 0
            fault.release()
            assert b'"kind":"PodList"' in request.until(b'"items":[]}')

    def test_an_answer_falls_silent_after_so_many_bytes(self, cluster: EmbeddedCluster) -> None:
        fault = cluster.faults.add(Silence(after_bytes=5))
        with RawRequest(cluster) as request:
            request.until(b'\r\n\r\n{"kin')
            fault.release()
            request.until(b'"items":[]}')

    def test_a_request_without_an_answer_is_done_all_the_same(self, cluster: EmbeddedCluster, client: Served) -> None:
        fault = cluster.faults.add(Reset(), verb="create")
        with pytest.raises(Exception, match="Connection"):
            client.request("POST", PODS, body=pod("a"))
        fault.wait()
        assert client.names() == ["a"]

    def test_an_endless_line_never_ends(self, cluster: EmbeddedCluster) -> None:
        cluster.faults.add(EndlessLine())
        with RawRequest(cluster, watch=True) as request:
            while len(request.data) < 3_000_000:
                request.data += request.socket.recv(1 << 20)
        assert request.data.partition(b"\r\n\r\n")[2].count(b"\n") == request.data.partition(b"\r\n\r\n")[2].count(b"\r\n")

    def test_a_buffering_proxy_holds_back_until_it_has_enough(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(BufferingProxy(size=1500))
        with RawRequest(cluster, watch=True) as request:
            cluster.requests.wait("watch", "pods")
            cluster.create(*[pod(f"b-{number}") for number in range(5)])
            head, _, chunks = request.until(b"}\n").partition(b"\r\n\r\n")
        assert b"chunked" in head
        assert int(chunks.partition(b"\r\n")[0], 16) >= 1500   # Bytes of the first chunk.

    def test_a_buffering_proxy_passes_on_what_it_has_with_the_end(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        fault = cluster.faults.add(BufferingProxy())
        with client.watch(PODS, query=FOLLOWED) as watch:
            fault.wait()
            cluster.cut()
            assert len(list(watch)) == 1

    def test_a_watch_is_compressed_where_the_client_accepts_it(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(GzipWatch())
        with RawRequest(cluster, headers={"Accept-Encoding": "gzip"}, watch=True) as request:
            cluster.requests.wait("watch", "pods")
            cluster.cut()
            head, _, body = request.until(b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")
        assert b"Content-Encoding: gzip" in head
        assert lines_in(gzip.decompress(_unchunked(body)))[0]["type"] == "ADDED"

    def test_a_watch_of_a_client_that_accepts_identity_alone_is_not_compressed(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(GzipWatch())
        with RawRequest(cluster, headers={"Accept-Encoding": "identity"}, watch=True) as request:
            assert b"Content-Encoding" not in request.until(b"}\n")

    def test_an_idle_watch_is_cut(self) -> None:
        timers = Timers()
        with EmbeddedCluster(tls=False, later=timers.later).in_thread() as cluster:
            cluster.create(pod("a"))
            fault = cluster.faults.add(IdleCut(50))
            with RawRequest(cluster, watch=True) as request:
                request.until(b"}\n")
                timers.run_out(cluster, 50)
                assert b"\r\n0\r\n\r\n" not in request.to_the_end()
            fault.wait()

    def test_an_answer_comes_late(self) -> None:
        timers = Timers()
        with EmbeddedCluster(tls=False, later=timers.later).in_thread() as cluster:
            fault = cluster.faults.add(Delay(30), verb="list")
            with RawRequest(cluster) as request:
                fault.wait()
                assert cluster.requests[-1].code == 0
                timers.run_out(cluster, 30)
                request.until(b"PodList")

    def test_a_watch_starts_late(self) -> None:
        timers = Timers()
        with EmbeddedCluster(tls=False, later=timers.later).in_thread() as cluster:
            cluster.create(pod("a"))
            fault = cluster.faults.add(Delay(30), verb="watch")
            with RawRequest(cluster, watch=True) as request:
                fault.wait()
                assert cluster.requests[-1].code == 0
                timers.run_out(cluster, 30)
                request.until(b"ADDED")


def status_of(client: Served) -> int:
    """List the pods; give the code of the answer."""
    try:
        client.listed()
    except ApiError as error:
        return error.status
    return 200


def is_deletion(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "DELETED")


class Timers:
    """A clock that runs when it is told to."""

    def __init__(self) -> None:
        self.pending: list[Timer] = []

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(seconds, call)
        self.pending.append(timer)
        return timer

    def run_out(self, cluster: EmbeddedCluster, seconds: float) -> None:
        """Let all that wait for so long be called; wait for the first to be there."""
        del cluster
        wait_until(lambda: any(timer.seconds == seconds for timer in self.live()), "something waits")
        for timer in self.live():
            if timer.seconds == seconds:
                timer.cancel()
                timer.loop.call_soon_threadsafe(timer.call)

    def live(self) -> list[Timer]:
        return [timer for timer in tuple(self.pending) if not timer.cancelled]


class Timer:
    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self.seconds = seconds
        self.call = call
        self.loop = asyncio.get_running_loop()
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def _unchunked(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        parts.append(body[:int(size, 16)])
        body = body[int(size, 16) + 2:]
    return b"".join(parts)


class TestEvents:
    def test_a_lagging_replica_lists_and_watches_what_it_has_seen(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        fault = cluster.faults.add(Lag(cluster.version))
        cluster.create(pod("b"))
        assert client.names(resourceVersion="0") == ["a"]
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert told(watch, 1) == [("ADDED", "a")]
            fault.release()
            assert told(watch, 1) == [("ADDED", "b")]
        assert client.names(resourceVersion="0") == ["a", "b"]

    def test_dropped_events_never_come(self, cluster: EmbeddedCluster, client: Served) -> None:
        fault = cluster.faults.add(DropEvents(skip=1, count=1))
        cluster.create(pod("a"), pod("b"), pod("c"))
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert told(watch, 2) == [("ADDED", "a"), ("ADDED", "c")]
        fault.wait()

    def test_events_can_be_dropped_by_type_and_name(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"), pod("b"))
        cluster.faults.add(DropEvents(types=frozenset({"DELETED"}), names=frozenset({"a"})))
        with client.watch(PODS, query=FOLLOWED) as watch:
            told(watch, 2)
            cluster.delete(pod("a"), pod("b"))
            assert told(iter(watch.until(is_deletion)[-1:]), 1) == [("DELETED", "b")]

    def test_duplicated_events_come_twice(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(DuplicateEvents())
        cluster.create(pod("a"), pod("b"))
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert told(watch, 4) == [("ADDED", "a"), ("ADDED", "a"), ("ADDED", "b"), ("ADDED", "b")]

    def test_replayed_events_come_once_more_together(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(ReplayEvents(after_events=2))
        cluster.create(pod("a"), pod("b"), pod("c"))
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert [name for _, name in told(watch, 5)] == ["a", "b", "a", "b", "c"]

    def test_initial_events_come_in_another_order(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(ReorderInitialEvents())
        cluster.create(pod("a"), pod("b"))
        with client.watch(PODS, query=INITIAL) as watch:
            assert told(watch, 3) == [("ADDED", "b"), ("ADDED", "a"), ("BOOKMARK", "")]
            cluster.create(pod("c"), pod("d"))
            assert told(watch, 2) == [("ADDED", "c"), ("ADDED", "d")]

    def test_no_bookmarks_come_but_the_one_that_ends_the_initial_events(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(NoBookmarks())
        with client.watch(PODS, query=INITIAL) as watch:
            assert told(watch, 1) == [("BOOKMARK", "")]
            cluster.bookmark()
            cluster.create(pod("a"))
            assert told(watch, 1) == [("ADDED", "a")]

    def test_the_end_of_the_initial_events_is_never_told(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(NoEndBookmark())
        with client.watch(PODS, query=INITIAL) as watch:
            assert told(watch, 1) == [("ADDED", "a")]
            cluster.create(pod("b"))
            assert told(watch, 1) == [("ADDED", "b")]

    def test_initial_events_that_are_not_understood_have_no_end(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(IgnoredInitialEvents())
        with client.watch(PODS, query=INITIAL) as watch:
            assert told(watch, 1) == [("ADDED", "a")]
            cluster.create(pod("b"))
            events = watch.until(lambda event: event["type"] == "ADDED")
        assert not any("annotations" in event["object"]["metadata"] for event in events)

    def test_initial_events_that_are_not_understood_do_not_come_for_a_version(
            self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(IgnoredInitialEvents())
        with client.watch(PODS, query={**INITIAL, "resourceVersion": cluster.version}) as watch:
            cluster.create(pod("b"))
            events = watch.until(lambda event: event["type"] == "ADDED")
        assert events[-1]["object"]["metadata"]["name"] == "b"

    def test_a_plain_bookmark_comes_among_the_initial_events(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"), pod("b"))
        cluster.faults.add(EarlyBookmark(after_events=1))
        with client.watch(PODS, query=INITIAL) as watch:
            first, early, second, end = (next(watch) for _ in range(4))
        assert [event["type"] for event in (first, early, second, end)] == ["ADDED", "BOOKMARK", "ADDED", "BOOKMARK"]
        assert "annotations" not in early["object"]["metadata"]
        assert early["object"]["metadata"]["resourceVersion"] == first["object"]["metadata"]["resourceVersion"]

    def test_deletions_carry_a_version_before_their_own(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(OldVersionOnDelete())
        with client.watch(PODS, query=FOLLOWED) as watch:
            told(watch, 1)
            cluster.delete(pod("a"))
            deletion = watch.until(is_deletion)[-1]
        assert int(deletion["object"]["metadata"]["resourceVersion"]) < cluster.version

    def test_an_object_that_was_deleted_and_made_again_comes_as_modified(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(RecreatedAsModified())
        with client.watch(PODS, query=FOLLOWED) as watch:
            old = next(watch)["object"]["metadata"]["uid"]
            cluster.delete(pod("a"))
            cluster.create(pod("a"))
            events = watch.until(lambda event: event["object"]["metadata"]["uid"] != old)
        assert {event["type"] for event in events} == {"MODIFIED"}

    def test_a_released_filter_of_events_lets_the_rest_of_the_stream_be(self, cluster: EmbeddedCluster, client: Served) -> None:
        fault = cluster.faults.add(DropEvents())
        with client.watch(PODS, query=FOLLOWED) as watch:
            cluster.create(pod("a"))
            fault.wait()
            fault.release()
            cluster.create(pod("b"))
            assert told(watch, 1) == [("ADDED", "b")]


class TestContents:
    @pytest.fixture(autouse=True)
    def _two_pods(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"), pod("b"))

    def test_half_of_the_json_comes(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(MalformedJSON())
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            json.loads(client.listed())

    def test_one_line_of_a_watch_is_broken(self, cluster: EmbeddedCluster) -> None:
        fault = cluster.faults.add(MalformedJSON(after_events=1))
        with RawRequest(cluster, watch=True) as request:
            fault.wait()
            cluster.cut()
            body = _unchunked(request.until(b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")[2])
        first, second = body.splitlines()
        assert json.loads(first)["type"] == "ADDED"
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            json.loads(second)

    def test_objects_have_no_metadata(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(NoMetadata(names=frozenset({"b"})))
        assert ["metadata" in item for item in client.listed()["items"]] == [True, False]
        assert "metadata" not in client.request("GET", f"{PODS}/b")
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert ["metadata" in next(watch)["object"] for _ in range(2)] == [True, False]

    def test_objects_and_lists_have_an_empty_version(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(EmptyVersion())
        listed = client.listed()
        assert {part["metadata"]["resourceVersion"] for part in [listed, *listed["items"]]} == {""}
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert next(watch)["object"]["metadata"]["resourceVersion"] == ""

    def test_objects_of_another_kind_come(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(WrongKind())
        listed = client.listed()
        assert (listed["kind"], listed["items"][0]["kind"]) == ("SurpriseList", "Surprise")
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert next(watch)["object"]["kind"] == "Surprise"

    def test_a_table_comes_instead_of_objects(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(TableInstead())
        assert client.listed()["kind"] == "Table"
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert next(watch)["object"]["kind"] == "Table"

    def test_events_of_an_unknown_type_come(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(UnknownEventType(instead_of="ADDED"))
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert told(watch, 1) == [("SURPRISED", "a")]

    def test_objects_of_2_mib_come_in_lists_and_in_lines(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(BigObjects(names=frozenset({"a"})))
        assert [len(json.dumps(item)) > 2 * 1024 * 1024 for item in client.listed()["items"]] == [True, False]
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert [len(json.dumps(next(watch))) > 2 * 1024 * 1024 for _ in range(2)] == [True, False]


class TestServers:
    def test_a_server_that_does_not_listen_refuses_connections_and_has_broken_all(self, cluster: EmbeddedCluster) -> None:
        with RawRequest(cluster, watch=True) as request:
            request.until(b"\r\n\r\n")
            cluster.stop_listening()
            with contextlib.suppress(ConnectionResetError):
                request.to_the_end()
            assert b"\r\n0\r\n\r\n" not in request.data
        with pytest.raises(ConnectionRefusedError):
            RawRequest(cluster)
        cluster.listen_again()
        with RawRequest(cluster) as request:
            request.until(b"PodList")

    def test_a_server_moves_to_another_port(self, cluster: EmbeddedCluster) -> None:
        before = cluster.url
        cluster.stop_listening()
        cluster.listen_again(port=0)
        assert cluster.url != before
        with RawRequest(cluster) as request:
            request.until(b"PodList")

    def test_a_restored_server_goes_back_in_versions(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.create(pod("a"))
        backup = cluster.backup()
        version = cluster.version
        cluster.create(pod("b"))
        cluster.restore(backup)
        client.close()
        assert client.names() == ["a"]
        assert cluster.version == version

    def test_watches_are_cut_all_or_those_that_are_meant(self, cluster: EmbeddedCluster, client: Served) -> None:
        with client.watch(PODS, query=FOLLOWED) as pods, client.watch("/api/v1/nodes", query=FOLLOWED) as nodes:
            cluster.requests.wait("watch", times=2)
            assert cluster.cut(resource="pods") == 1
            assert list(pods) == []
            assert cluster.cut(how=End.RESET) == 1
            with pytest.raises(ConnectionError):
                next(nodes)
