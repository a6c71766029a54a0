"""Faults of the events of watches, over real sockets: lost, doubled, reordered, stale."""

from __future__ import annotations

import json
from typing import Any

from kopf_selectcache.core.protocol.messages import END_OF_INITIAL_EVENTS
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import (
    DropEvents,
    DuplicateEvents,
    EarlyBookmark,
    IgnoredInitialEvents,
    Lag,
    NoBookmarks,
    OldVersionOnDelete,
    RecreatedAsModified,
    ReorderInitialEvents,
    ReplayEvents,
)

from .serving import FOLLOWED, INITIAL, PODS, Served, pod, told


class TestEvents:
    def test_a_lagging_replica_lists_and_watches_its_own_state(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"))
        fault = cluster.faults.add(Lag(cluster.version))
        cluster.create(pod("b"))
        assert client.names(resourceVersion="0") == ["a"]
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert told(watch, 1) == [("ADDED", "a")]
            fault.release()
            assert told(watch, 1) == [("ADDED", "b")]
        assert client.names(resourceVersion="0") == ["a", "b"]

    def test_a_lagging_replica_lists_the_current_state_if_no_version_is_given(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(Lag(cluster.version))
        cluster.create(pod("b"))
        assert client.names() == ["a", "b"]
        first = client.listed(limit=1)
        assert client.names(limit=1, **{"continue": first["metadata"]["continue"]}) == ["b"]
        assert client.names(resourceVersion=cluster.version, resourceVersionMatch="Exact") == ["a", "b"]

    def test_a_lagging_replica_has_caught_up_for_a_watch_that_asks_for_the_current_state(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"))
        fault = cluster.faults.add(Lag(cluster.version))
        cluster.create(pod("b"))
        with client.watch(PODS, query=INITIAL) as watch:
            assert told(watch, 3) == [("ADDED", "a"), ("ADDED", "b"), ("BOOKMARK", "")]
            cluster.create(pod("c"))
            fault.release()
            assert told(watch, 1) == [("ADDED", "c")]

    def test_dropped_events_never_come(self, cluster: EmbeddedCluster, client: Served) -> None:
        fault = cluster.faults.add(DropEvents(skip=1, count=1))
        cluster.create(pod("a"), pod("b"), pod("c"))
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert told(watch, 2) == [("ADDED", "a"), ("ADDED", "c")]
        fault.wait()

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

    def test_no_bookmarks_come_but_the_one_that_ends_the_initial_events(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.faults.add(NoBookmarks())
        with client.watch(PODS, query=INITIAL) as watch:
            assert told(watch, 1) == [("BOOKMARK", "")]
            cluster.bookmark()
            cluster.create(pod("a"))
            assert told(watch, 1) == [("ADDED", "a")]

    def test_initial_events_that_are_not_understood_have_no_end(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(IgnoredInitialEvents())
        with client.watch(PODS, query=INITIAL) as watch:
            assert told(watch, 1) == [("ADDED", "a")]
            cluster.create(pod("b"))
            events = watch.until(lambda event: event["type"] == "ADDED")
        assert not any(
            END_OF_INITIAL_EVENTS in event["object"]["metadata"].get("annotations", {}) for event in events
        )

    def test_a_plain_bookmark_comes_among_the_initial_events(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"), pod("b"))
        cluster.faults.add(EarlyBookmark(after_events=1))
        with client.watch(PODS, query=INITIAL) as watch:
            first, early, second, end = (next(watch) for _ in range(4))
        assert [event["type"] for event in (first, early, second, end)] == [
            "ADDED",
            "BOOKMARK",
            "ADDED",
            "BOOKMARK",
        ]
        assert "annotations" not in early["object"]["metadata"]
        assert (
            early["object"]["metadata"]["resourceVersion"] == first["object"]["metadata"]["resourceVersion"]
        )

    def test_deletions_carry_the_version_that_the_object_had(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(
            config_map := {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "default"},
            }
        )
        had = cluster.get(config_map)["metadata"]["resourceVersion"]
        cluster.faults.add(OldVersionOnDelete())
        with client.watch("/api/v1/namespaces/default/configmaps", query=FOLLOWED) as watch:
            watch.until(lambda event: event["object"]["metadata"]["name"] == "a")
            cluster.create(pod("b"))  # Another write comes between.
            cluster.delete(config_map)
            deletion = watch.until(is_deletion)[-1]
        assert deletion["object"]["metadata"]["resourceVersion"] == had

    def test_an_object_that_leaves_a_selector_has_the_version_that_it_had_inside(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(
            labelled := {
                **pod("a"),
                "metadata": {"name": "a", "namespace": "default", "labels": {"app": "web"}},
            }
        )
        cluster.faults.add(OldVersionOnDelete())
        with client.watch(PODS, query=FOLLOWED | {"labelSelector": "app=web"}) as watch:
            had = next(watch)["object"]["metadata"]["resourceVersion"]
            cluster.patch(labelled, {"metadata": {"labels": {"app": None}}})
            deletion = watch.until(is_deletion)[-1]
        assert deletion["object"]["metadata"]["resourceVersion"] == had

    def test_a_version_that_the_server_has_forgotten_is_that_of_the_deletion(self) -> None:
        filter_ = OldVersionOnDelete().filter_of({7: 3}.get)
        assert filter_ is not None

        def line(version: int) -> bytes:
            return json.dumps(
                {"type": "DELETED", "object": {"metadata": {"resourceVersion": str(version)}}}
            ).encode()

        pieces = filter_([line(7), line(9)], released=False)
        assert [
            json.loads(piece)["object"]["metadata"]["resourceVersion"]
            for piece in pieces
            if isinstance(piece, bytes)
        ] == ["3", "9"]

    def test_an_object_that_was_deleted_and_made_again_comes_as_modified(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"))
        cluster.faults.add(RecreatedAsModified())
        with client.watch(PODS, query=FOLLOWED) as watch:
            old = next(watch)["object"]["metadata"]["uid"]
            cluster.delete(pod("a"))
            cluster.create(pod("a"))
            events = watch.until(lambda event: event["object"]["metadata"]["uid"] != old)
        assert {event["type"] for event in events} == {"MODIFIED"}

    def test_a_deletion_that_nothing_makes_up_for_is_sent_before_anything_else(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"), pod("b"))
        cluster.faults.add(RecreatedAsModified())
        with client.watch(PODS, query=FOLLOWED | {"allowWatchBookmarks": "true"}) as watch:
            watch.until(lambda event: event["type"] == "BOOKMARK")
            cluster.delete(pod("a"))
            cluster.delete(pod("b"))
            cluster.bookmark()
            events = watch.until(lambda event: event["type"] == "BOOKMARK")
        assert [event["type"] for event in events if event["type"] != "MODIFIED"] == [
            "DELETED",
            "DELETED",
            "BOOKMARK",
        ]

    def test_an_early_bookmark_promises_nothing_that_comes_after_it(self) -> None:
        filter_ = EarlyBookmark(after_events=3).filter()
        assert filter_ is not None

        def line(number: int) -> bytes:
            return json.dumps(
                {"type": "ADDED", "object": {"metadata": {"resourceVersion": str(number)}}}
            ).encode()

        pieces = [
            piece for lines in ([1], [2, 3, 4, 5]) for piece in filter_([*map(line, lines)], released=False)
        ]
        events = [json.loads(piece) for piece in pieces if isinstance(piece, bytes)]
        assert [(event["type"], event["object"]["metadata"]["resourceVersion"]) for event in events] == [
            ("ADDED", "1"),
            ("ADDED", "2"),
            ("ADDED", "3"),
            ("BOOKMARK", "3"),
            ("ADDED", "4"),
            ("ADDED", "5"),
        ]

    def test_a_deletion_that_is_held_back_is_sent_when_the_fault_is_released(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.create(pod("a"))
        fault = cluster.faults.add(RecreatedAsModified())
        with client.watch(PODS, query=FOLLOWED) as watch:
            told(watch, 1)
            cluster.delete(pod("a"))
            fault.release()
            watch.until(is_deletion)


def is_deletion(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "DELETED")
