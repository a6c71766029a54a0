"""Watches: where they begin, what they show at the edges of a selector, bookmarks, and how they end; as the
real server."""

import json

import pytest

from kopf_selectcache.testing.api.status import expired

from .asking import (
    ALL_MAPS,
    DEFINITIONS,
    MAPS,
    METADATA,
    METADATA_LIST,
    TABLE,
    WIDGETS,
    Asked,
    counted,
    events,
    told,
)

END = {"k8s.io/initial-events-end": "true"}
STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


# ---- Changes.


def test_a_watch_shows_every_change_after_its_version(api: Asked) -> None:
    start = api.create("before")
    first = api.create("a")
    watch = api.watch(MAPS, resourceVersion=start)
    second = api.label("a", i="1")
    third = api.delete("a")
    assert told(watch) == [("ADDED", "a", first), ("MODIFIED", "a", second), ("DELETED", "a", third)]


def test_an_event_that_was_taken_does_not_come_again(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"))
    api.create("b")
    assert len(events(watch)) == 1
    assert events(watch) == []


def test_a_watch_of_a_namespace_shows_nothing_of_others_nor_of_other_kinds(api: Asked) -> None:
    start = api.create("apps", path="/api/v1/namespaces")
    watch = api.watch("/api/v1/namespaces/apps/configmaps", resourceVersion=start)
    api.create("a")
    api.create("a", path="/api/v1/namespaces/apps/secrets")
    assert events(watch) == []


def test_an_object_leaving_a_selector_is_deleted_as_it_was_with_the_current_version(api: Asked) -> None:
    start = api.create("a", labels={"i": "1"}, data={"k": "v"})
    watch = api.watch(MAPS, resourceVersion=start, labelSelector="i=1")
    left = api.ask("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"i": "2"}}, "data": {"k": "new"}})
    [event] = events(watch)
    assert event["type"] == "DELETED"
    assert (event["object"]["metadata"]["labels"], event["object"]["data"]) == ({"i": "1"}, {"k": "v"})
    assert (
        event["object"]["metadata"]["resourceVersion"] == json.loads(left.body)["metadata"]["resourceVersion"]
    )


def test_an_object_that_enters_a_selector_is_added(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"), labelSelector="i=1")
    version = api.label("a", i="1")
    assert told(watch) == [("ADDED", "a", version)]


def test_changes_outside_a_selector_are_not_shown(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"), labelSelector="i=1")
    api.label("a", i="2")
    api.delete("a")
    assert events(watch) == []


def test_a_deleted_object_is_shown_as_it_was_last_with_the_version_of_the_deletion(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a", data={"k": "v"}), labelSelector="!x")
    version = api.delete("a")
    [event] = events(watch)
    assert (event["type"], event["object"]["data"]) == ("DELETED", {"k": "v"})
    assert event["object"]["metadata"]["resourceVersion"] == str(version)


def test_fields_are_edges_as_labels_are(api: Asked) -> None:
    pods = "/api/v1/namespaces/default/pods"
    start = api.create("p", path=pods, spec={"containers": [{"name": "a", "image": "b"}]})
    watch = api.watch(pods, resourceVersion=start, fieldSelector="status.phase=Running")
    for phase in ("Running", "Failed"):
        api.ask("PATCH", f"{pods}/p/status", {"status": {"phase": phase}})
    assert [(event["type"], event["object"]["status"]["phase"]) for event in events(watch)] == [
        ("ADDED", "Running"),
        ("DELETED", "Running"),
    ]


# ---- Where a watch begins.


@pytest.mark.parametrize(
    "query",
    [{}, {"resourceVersion": "0"}, {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}],
)
def test_a_watch_from_no_version_begins_with_existing_objects(api: Asked, query: dict[str, str]) -> None:
    first, second = api.create("a"), api.create("b")
    watch = api.watch(MAPS, query)
    third = api.label("a", i="1")
    assert told(watch) == [("ADDED", "a", first), ("ADDED", "b", second), ("MODIFIED", "a", third)]


@pytest.mark.parametrize(
    "query",
    [
        STREAMING,
        STREAMING | {"resourceVersion": "0"},
        STREAMING | {"resourceVersion": "1"},
        {"allowWatchBookmarks": "true"},
        {"allowWatchBookmarks": "true", "resourceVersion": "0"},
    ],
)
def test_the_end_of_the_initial_events_is_marked(api: Asked, query: dict[str, str]) -> None:
    first = api.create("a", labels={"i": "1"})
    version = api.create("b")
    *added, bookmark = events(api.watch(MAPS, query, labelSelector="i"))
    assert [event["object"]["metadata"]["resourceVersion"] for event in added] == [str(first)]
    assert bookmark == {
        "type": "BOOKMARK",
        "object": {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": str(version), "annotations": END},
        },
    }


@pytest.mark.parametrize("more", [{}, {"resourceVersion": "0"}])
def test_without_initial_events_a_watch_begins_now(api: Asked, more: dict[str, str]) -> None:
    api.create("a")
    watch = api.watch(MAPS, STREAMING | {"sendInitialEvents": "false"} | more)
    assert events(watch) == []
    version = api.create("b")
    assert told(watch) == [("ADDED", "b", version)]


def test_a_version_that_has_not_come_is_waited_for_in_silence(api: Asked) -> None:
    version = api.create("a")
    watch = api.watch(MAPS, resourceVersion=version + 1, allowWatchBookmarks="true")
    watch.bookmark()
    api.create("b")
    assert (events(watch), watch.ended) == ([], False)
    later = api.create("c")
    assert told(watch) == [("ADDED", "c", later)]


def test_initial_events_of_a_version_that_has_not_come_are_an_error(api: Asked) -> None:
    version = api.create("a")
    watch = api.watch(MAPS, STREAMING | {"resourceVersion": "99999"})
    [event] = events(watch)
    assert (event["type"], event["object"]["code"], watch.ended) == ("ERROR", 504, True)
    assert event["object"]["message"] == f"Timeout: Too large resource version: 99999, current: {version}"


def test_a_forgotten_version_is_an_error_in_the_stream(api: Asked) -> None:
    version = api.create("a")
    api.create("b")
    horizon = api.api.history.compact()
    watch = api.watch(MAPS, resourceVersion=version)
    assert events(watch) == [
        {
            "type": "ERROR",
            "object": {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": f"too old resource version: {version} ({horizon})",
                "reason": "Expired",
                "code": 410,
            },
        }
    ]
    assert watch.ended
    api.create("c")
    assert events(watch) == []


def test_compaction_does_not_disturb_a_watch_that_is_there(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"))
    api.create("b")
    api.api.history.compact()
    api.create("c")
    assert [name for _, name, _ in told(watch)] == ["b", "c"]


# ---- Bookmarks.


def test_a_bookmark_tells_the_version_of_the_cluster(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"), allowWatchBookmarks="true")
    version = api.create("other", path="/api/v1/namespaces/default/secrets")
    watch.bookmark()
    assert events(watch) == [
        {
            "type": "BOOKMARK",
            "object": {
                "kind": "ConfigMap",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": str(version)},
            },
        }
    ]


def test_a_watch_that_asked_for_no_bookmarks_gets_none(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"))
    watch.bookmark()
    assert events(watch) == []


# ---- Forms.


def test_events_of_custom_resources_begin_with_version_and_kind(api: Asked) -> None:
    api.define()
    api.widget("a", size=1)
    [line] = api.watch(WIDGETS).lines()
    assert line.startswith(
        b'{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{'
    )


def test_a_watch_of_metadata_shows_metadata_alone(api: Asked) -> None:
    start = api.create("a", labels={"i": "1"}, data={"k": "v"})
    watch = api.watch(
        MAPS, accept=METADATA, resourceVersion=start, allowWatchBookmarks="true", labelSelector="i"
    )
    api.label("a", i=None)
    watch.bookmark()
    left, bookmark = (event["object"] for event in events(watch))
    assert set(left) == {"kind", "apiVersion", "metadata"}
    assert (left["kind"], left["metadata"]["labels"]) == ("PartialObjectMetadata", {"i": "1"})
    assert (bookmark["kind"], set(bookmark["metadata"])) == ("PartialObjectMetadata", {"resourceVersion"})


def test_the_first_event_of_a_watch_of_tables_defines_the_columns(api: Asked) -> None:
    api.create("a", "b")
    watch = api.watch(MAPS, accept=TABLE, allowWatchBookmarks="true")
    first, second, bookmark = (event["object"] for event in events(watch))
    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert (second["columnDefinitions"], bookmark["columnDefinitions"]) == (None, None)
    assert [table["rows"][0]["cells"][0] for table in (first, second, bookmark)] == ["a", "b", ""]
    assert bookmark["rows"][0]["object"]["metadata"]["annotations"] == END


def test_a_bookmark_in_a_table_of_custom_resources_has_an_empty_name(api: Asked) -> None:
    api.define()
    [bookmark] = events(api.watch(WIDGETS, accept=TABLE, allowWatchBookmarks="true"))
    assert bookmark["object"]["rows"][0]["cells"] == ["", None]


def test_a_watch_in_a_form_that_no_event_has_ends_without_a_word(api: Asked) -> None:
    api.create("a")
    watch = api.watch(MAPS, accept=METADATA_LIST)
    assert (events(watch), watch.ended) == ([], True)


def test_watches_of_different_forms_and_selectors_see_the_same_change_each_in_its_way(api: Asked) -> None:
    start = api.create("a", labels={"i": "1"})
    whole, narrow, metadata = (
        api.watch(ALL_MAPS, resourceVersion=start),
        api.watch(MAPS, resourceVersion=start, labelSelector="i=1"),
        api.watch(MAPS, accept=METADATA, resourceVersion=start),
    )
    api.label("a", i="2")
    assert [
        (event["type"], event["object"]["kind"])
        for watch in (whole, narrow, metadata)
        for event in events(watch)
    ] == [("MODIFIED", "ConfigMap"), ("DELETED", "ConfigMap"), ("MODIFIED", "PartialObjectMetadata")]


def test_watches_of_one_form_share_the_bytes_of_an_event(api: Asked) -> None:
    start = api.create("a")
    watches = [api.watch(ALL_MAPS, resourceVersion=start), api.watch(MAPS, resourceVersion=start)]
    api.label("a", i="2")
    [one], [other] = (watch.lines() for watch in watches)
    assert one is other


# ---- What the shell does with a watch.


def test_a_follower_is_woken_when_something_is_ready(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"))
    calls, wake = counted()
    watch.on_ready(wake)
    assert len(calls) == 0
    api.create("b")
    assert len(calls) == 1
    watch.close()
    assert len(calls) == 2


def test_whoever_follows_late_is_woken_at_once(api: Asked) -> None:
    api.create("a")
    calls, wake = counted()
    api.watch(MAPS).on_ready(wake)
    assert len(calls) == 1


def test_a_closed_watch_shows_nothing_more(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"), allowWatchBookmarks="true")
    watch.close()
    api.create("b")
    watch.bookmark()
    watch.catch_up()
    assert (events(watch), watch.ended) == ([], True)


def test_a_watch_can_be_ended_with_an_error(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"))
    watch.fail(expired("too old resource version: 1 (2)"))
    assert ([event["type"] for event in events(watch)], watch.ended) == (["ERROR"], True)


def test_a_broken_follower_harms_no_later_watch(api: Asked) -> None:
    bad = api.watch(MAPS)

    def broken() -> None:
        bad.on_ready(lambda: None)
        raise RuntimeError("of the test")

    bad.on_ready(broken)
    with pytest.raises(RuntimeError):
        api.create("a")
    api.create("b")
    api.delete("a")
    assert [event["object"]["metadata"]["name"] for event in events(api.watch(MAPS))] == ["b"]


def test_a_watch_of_a_client_that_does_not_read_ends_before_it_takes_all_memory(api: Asked) -> None:
    api.create("a")
    slow, quick = api.watch(MAPS), api.watch(MAPS)
    for number in range(40):
        api.ask("PATCH", f"{MAPS}/a", {"data": {"number": str(number), "big": "x" * 1_000_000}})
        quick.lines()
    assert (slow.ended, quick.ended) == (True, False)
    assert sum(map(len, slow.lines())) < 35_000_000


def test_a_watch_has_the_timeout_that_its_client_requests(api: Asked) -> None:
    assert api.watch(MAPS, timeoutSeconds="5").timeout == 5
    assert api.watch(MAPS).timeout is None


@pytest.mark.parametrize(
    "change",
    [
        lambda api: api.delete("widgets.example.com", path=DEFINITIONS),
        lambda api: api.ask(
            "PATCH",
            f"{DEFINITIONS}/widgets.example.com",
            [
                {
                    "op": "add",
                    "path": "/spec/versions/0/additionalPrinterColumns",
                    "value": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                }
            ],
            content_type="application/json-patch+json",
        ),
    ],
)
def test_a_watch_ends_with_the_definition_that_it_began_under(api: Asked, change: object) -> None:
    api.define()
    watch, other = api.watch(WIDGETS), api.watch(MAPS)
    assert callable(change)
    change(api)
    assert (watch.ended, other.ended) == (True, False)


# ---- A replica that lags behind.


def test_a_replica_shows_no_later_change_until_it_catches_up(api: Asked) -> None:
    seen = api.create("a")
    first = api.create("b")
    watch = api.watch(MAPS, seen=seen, allowWatchBookmarks="true")
    second = api.create("c")
    watch.bookmark()
    assert told(watch) == [("ADDED", "a", seen), ("BOOKMARK", "", seen), ("BOOKMARK", "", seen)]
    watch.catch_up()
    third = api.create("d")
    assert told(watch) == [("ADDED", "b", first), ("ADDED", "c", second), ("ADDED", "d", third)]
