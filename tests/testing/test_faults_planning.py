"""Whom faults happen to, over real sockets: to which requests, how often, and how they are over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kopf_selectcache.testing import Asked, EmbeddedCluster
from kopf_selectcache.testing.faults import (
    BrokenFault,
    BufferingProxy,
    DropEvents,
    DuplicateEvents,
    EarlyBookmark,
    EmptyPage,
    EndlessLine,
    EndStream,
    ErrorEvent,
    ExpiredToken,
    Fault,
    GzipWatch,
    IdleCut,
    IgnoredInitialEvents,
    IgnoredLimit,
    IgnoreSelectors,
    NoBookmarks,
    NoEndBookmark,
    NoWatchList,
    OldVersionOnDelete,
    Planned,
    RecreatedAsModified,
    Refuse,
    ReorderInitialEvents,
    ReplayEvents,
    UnknownEventType,
)
from tests.apiserver.client import ApiError

from .serving import FOLLOWED, INITIAL, PODS, Served, pod, told


class TestWhomItHappensTo:
    def test_a_fault_happens_to_all_requests_unless_it_says_to_which(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.faults.add(Refuse(503))
        assert [client.refused(path).status for path in (PODS, "/version", "/apis")] == [503, 503, 503]

    @pytest.mark.parametrize(
        ("match", "hit"),
        [
            ({"verb": "list"}, True),
            ({"verb": "watch"}, False),
            ({"resource": "pods"}, True),
            ({"resource": "pods/status"}, False),
            ({"resource": "jobs.batch"}, False),
            ({"namespace": "default"}, True),
            ({"namespace": "other"}, False),
            ({"namespace": ""}, False),
            ({"user": "admin"}, True),
            ({"user": "somebody"}, False),
            ({"name": "a"}, False),
        ],
    )
    def test_it_happens_where_all_that_is_given_is_equal(
        self, cluster: EmbeddedCluster, client: Served, match: dict[str, str], hit: bool
    ) -> None:
        # One of several types, by the key.
        fault = cluster.faults.add(Refuse(503), **match)  # type: ignore[arg-type]
        assert status_of(client) == (503 if hit else 200)
        assert len(fault.hits) == hit

    def test_a_resource_can_be_named_with_its_group(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(Refuse(503), resource="jobs.batch")
        assert client.refused("/apis/batch/v1/jobs").status == 503

    @pytest.mark.parametrize("match", [{"verb": "LIST"}, {"resource": "pod"}, {"resource": "v1/pods"}])
    def test_a_fault_that_could_never_happen_is_refused(
        self, cluster: EmbeddedCluster, match: dict[str, str]
    ) -> None:
        with pytest.raises(ValueError):
            cluster.faults.add(Refuse(503), **match)  # type: ignore[arg-type]  # As above.
        assert list(cluster.faults) == []

    def test_a_condition_selects_requests_by_anything_else(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.faults.add(Refuse(503), where=lambda asked: asked.query.get("labelSelector") == "app=web")
        assert client.names() == []
        assert client.refused(labelSelector="app=web").status == 503

    def test_it_happens_from_the_nth_request_on_so_many_times(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        fault = cluster.faults.add(Refuse(503), verb="list", nth=2, times=2)
        assert [status_of(client) for _ in range(5)] == [200, 503, 503, 200, 200]
        assert [asked.verb for asked in fault.hits] == ["list", "list"]

    def test_only_requests_that_it_can_happen_to_are_counted(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(EndStream(), nth=1, times=1)
        assert client.names() == ["a"]
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert list(watch) == []

    @pytest.mark.parametrize(
        "fault",
        [
            BufferingProxy(),
            DropEvents(),
            DuplicateEvents(),
            EarlyBookmark(),
            EmptyPage(),
            EndStream(),
            EndlessLine(),
            ErrorEvent(Refuse(410)),
            ExpiredToken(),
            GzipWatch(),
            IdleCut(1),
            IgnoredInitialEvents(),
            IgnoredLimit(),
            IgnoreSelectors(),
            NoBookmarks(),
            NoEndBookmark(),
            NoWatchList(),
            OldVersionOnDelete(),
            RecreatedAsModified(),
            ReorderInitialEvents(),
            ReplayEvents(),
            UnknownEventType(),
        ],
        ids=lambda fault: type(fault).__name__,
    )
    def test_a_plain_list_does_not_count_for_faults_of_pages_and_watches_alone(
        self, cluster: EmbeddedCluster, client: Served, fault: Fault
    ) -> None:
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

    def test_a_hit_can_be_awaited_on_any_loop(self, cluster: EmbeddedCluster, client: Served) -> None:
        fault = cluster.faults.add(Refuse(503), verb="list")

        async def wait() -> str:
            waiting = asyncio.create_task(fault.hit(2))
            await asyncio.to_thread(client.refused)
            await asyncio.to_thread(client.refused)
            return (await waiting).path

        assert asyncio.run(wait()) == PODS

    def test_to_wait_in_a_thread_ends_with_an_error_where_it_never_happens(
        self, cluster: EmbeddedCluster
    ) -> None:
        with pytest.raises(TimeoutError):
            cluster.faults.add(Refuse(503), verb="list", resource="pods").wait(timeout=0)

    def test_a_fault_can_be_injected_into_the_watches_that_are_open(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        with client.watch(PODS, query=FOLLOWED) as watch:
            cluster.requests.wait("watch", "pods")
            cluster.inject(ErrorEvent(Refuse(410)), "pods")
            assert [event["type"] for event in watch] == ["ERROR"]
        with client.watch(PODS, query=FOLLOWED) as later:
            cluster.create(pod("a"))
            assert told(later, 1) == [("ADDED", "a")]


def is_canary(asked: Asked) -> bool:
    return asked.query["labelSelector"] == "canary"


def backwards(lines: list[bytes]) -> list[bytes]:
    return sorted(lines, key=lambda line: line["name"])  # type: ignore[call-overload]  # A mistake.


def run_into_a_mistake(then: Callable[[Planned, ApiError], object]) -> None:
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        fault = cluster.faults.add(Refuse(503), verb="list", where=is_canary)
        client = Served(cluster)
        refusal = client.refused()
        client.close()
        assert cluster.requests[-1].code == 500
        then(fault, refusal)


class TestMistakesOfTheTestItself:
    WORDS = (
        r"Refuse \(list, where=is_canary \(.*\)\) has raised KeyError\('labelSelector'\), about list /api/v1/"
    )

    def test_an_error_of_a_condition_reaches_the_client_the_log_and_the_clusters_end(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        refusals: list[ApiError] = []
        with pytest.raises(BrokenFault, match=self.WORDS) as caught:
            run_into_a_mistake(lambda _, refusal: refusals.append(refusal))
        assert [refusal.body["message"] for refusal in refusals] == [str(caught.value)]
        assert isinstance(caught.value.__cause__, KeyError)
        assert "return asked.query" in caplog.text

    def test_a_wait_for_a_broken_fault_fails_at_once(self) -> None:
        with pytest.raises(BrokenFault):
            run_into_a_mistake(lambda fault, _: fault.wait())

    def test_an_error_in_a_fault_breaks_the_watch_off(self, caplog: pytest.LogCaptureFixture) -> None:
        def watch() -> None:
            with EmbeddedCluster(tls=False).in_thread() as cluster:
                cluster.create(pod("a"))
                cluster.faults.add(ReorderInitialEvents(backwards))
                client = Served(cluster)
                with client.watch(PODS, query=INITIAL) as watch, pytest.raises(ConnectionError):
                    next(watch)
                client.close()

        with pytest.raises(BrokenFault):
            watch()
        assert "backwards" in caplog.text


def status_of(client: Served) -> int:
    """List the pods; give the code of the answer."""
    try:
        client.listed()
    except ApiError as error:
        return error.status
    return 200
