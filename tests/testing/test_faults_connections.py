"""Faults of connections and of time, over real sockets: what breaks, stalls or comes late, and how it is
over."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import (
    BufferingProxy,
    Delay,
    Disconnect,
    EndlessLine,
    EndStream,
    GzipWatch,
    IdleCut,
    Reset,
    Silence,
)
from tests.apiserver.waiting import wait_until

from .serving import FOLLOWED, PODS, RawRequest, Served, lines_in, pod, told, unchunked


class TestConnections:
    def test_a_stream_ends_in_good_order_after_so_many_events(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
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

    @pytest.mark.parametrize(
        "fault", [Reset(after_bytes=100), Reset(after_events=1), Reset(after_events=1, mid_line=True)]
    )
    def test_a_reset_follows_the_data_that_was_sent(self, cluster: EmbeddedCluster, fault: Reset) -> None:
        cluster.create(pod("a"), pod("b"))
        planned = cluster.faults.add(fault, verb="watch")
        with RawRequest(cluster, watch=True) as request:
            with pytest.raises(ConnectionResetError):
                request.to_the_end()
            assert b'{"type":"ADDED"' in request.data
            assert b"\r\n0\r\n\r\n" not in request.data
        planned.wait()

    def test_a_reset_after_so_many_bytes_of_a_stream_lets_exactly_them_pass(
        self, cluster: EmbeddedCluster
    ) -> None:
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

    @pytest.mark.parametrize(
        ("fault", "breaks"), [(Reset(after_bytes=10), True), (Disconnect(after_bytes=10), False)]
    )
    def test_an_answer_breaks_off_after_so_many_bytes(
        self, cluster: EmbeddedCluster, fault: Reset, breaks: bool
    ) -> None:
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

    def test_a_silent_watch_goes_on_when_it_is_released(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
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

    def test_no_answer_at_all_comes_until_it_is_released(self, cluster: EmbeddedCluster) -> None:
        fault = cluster.faults.add(Silence())
        with RawRequest(cluster) as request:
            fault.wait()
            assert request.data == b""
            assert cluster.requests[-1].code == 0
            fault.release()
            assert b'"kind":"PodList"' in request.until(b'"items":[]}')

    def test_a_request_without_an_answer_is_done_all_the_same(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
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
        assert request.data.partition(b"\r\n\r\n")[2].count(b"\n") == request.data.partition(b"\r\n\r\n")[
            2
        ].count(b"\r\n")

    def test_a_buffering_proxy_holds_back_until_it_has_enough(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(BufferingProxy(size=1500))
        with RawRequest(cluster, watch=True) as request:
            cluster.requests.wait("watch", "pods")
            cluster.create(*[pod(f"b-{number}") for number in range(5)])
            head, _, chunks = request.until(b"}\n").partition(b"\r\n\r\n")
        assert b"chunked" in head
        assert int(chunks.partition(b"\r\n")[0], 16) >= 1500  # Bytes of the first chunk.

    def test_a_watch_is_compressed_where_the_client_accepts_it(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(GzipWatch())
        with RawRequest(cluster, headers={"Accept-Encoding": "gzip"}, watch=True) as request:
            cluster.requests.wait("watch", "pods")
            cluster.cut()
            head, _, body = request.until(b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")
        assert b"Content-Encoding: gzip" in head
        assert lines_in(gzip.decompress(unchunked(body)))[0]["type"] == "ADDED"

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
