"""Watches: where they begin, what they show at the edges of a selector, bookmarks, and how they end."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.apiserver.cluster import Cluster

from .places import (
    INITIAL,
    METADATA,
    POD,
    TABLE,
    Place,
    fresh_group,
    refusal,
    short,
    since_watch_list,
    take,
)

END = {"k8s.io/initial-events-end": "true"}


def types(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


# ---- Changes.


def test_a_watch_shows_every_change_after_its_version(place: Place) -> None:
    start = place.create("before")["metadata"]["resourceVersion"]
    first = place.create("a")["metadata"]["resourceVersion"]
    with place.watch(resourceVersion=start) as watch:
        second = place.label("a", i="1")
        place.delete("a")
        third = place.create("last")["metadata"]["resourceVersion"]
        added, modified, deleted, last = short(take(watch, 4))
    assert (added, modified, last) == (
        ("ADDED", "a", first),
        ("MODIFIED", "a", second),
        ("ADDED", "last", third),
    )
    assert deleted[:2] == ("DELETED", "a")
    assert int(second) < int(deleted[2]) < int(third)


@pytest.mark.needs("all namespaces")
def test_a_watch_of_all_namespaces_shows_them_in_order(place: Place, api: Cluster) -> None:
    other = Place(api, api.namespace(prefix="conformance"))
    mine = {"mine": place.namespace}
    with place.watch(
        everywhere=True, labelSelector=f"mine={place.namespace}", resourceVersion=place.version
    ) as watch:
        for number in range(5):
            place.create(f"a{number}", labels=mine)
            other.create(f"b{number}", labels=mine)
        assert [name for _, name in types(take(watch, 10))] == [
            f"{letter}{number}" for number in range(5) for letter in "ab"
        ]


def test_one_name_can_be_watched(place: Place) -> None:
    with place.watch(fieldSelector="metadata.name=b", resourceVersion=place.version) as watch:
        place.create("a", "b", "c")
        place.delete("b")
        assert types(take(watch, 2)) == [("ADDED", "b"), ("DELETED", "b")]


@pytest.mark.parametrize("style", ["?watch=1", "?watch=true", "?watch=True", "?watch"])
def test_a_watch_is_asked_for_in_many_ways(place: Place, style: str) -> None:
    name, _, value = style[1:].partition("=")
    place.create("a")
    with place.api.watch(place.path(), query={name: value or ""}) as watch:
        assert types(take(watch, 1)) == [("ADDED", "a")]


# ---- The edges of a selector.

STEPS: dict[str, tuple[list[dict[str, str | None]], list[tuple[str, str | None]]]] = {
    # Labels that are set one after the other, and the events under app=web, with the label `app` as they show
    # it.
    "enters": ([{"app": "web"}], [("ADDED", "web")]),
    "enters and leaves": ([{"app": "web"}, {"app": "db"}], [("ADDED", "web"), ("DELETED", "web")]),
    "leaves without the label": ([{"app": "web"}, {"app": None}], [("ADDED", "web"), ("DELETED", "web")]),
    "enters twice": (
        [{"app": "web"}, {"app": "db"}, {"app": "web"}],
        [("ADDED", "web"), ("DELETED", "web"), ("ADDED", "web")],
    ),
    "changes inside": (
        [{"app": "web"}, {"x": "1"}, {"x": "2"}],
        [("ADDED", "web"), ("MODIFIED", "web"), ("MODIFIED", "web")],
    ),
    "changes outside": ([{"app": "db"}, {"x": "1"}, {"app": None}], []),
    "passes by": (
        [{"app": "db"}, {"app": "web", "x": "1"}, {"app": "db", "x": "2"}, {"x": "3"}],
        [("ADDED", "web"), ("DELETED", "web")],
    ),
}


@pytest.mark.parametrize("steps", STEPS)
def test_an_entering_object_is_added_and_a_leaving_one_is_deleted(place: Place, steps: str) -> None:
    changes, expected = STEPS[steps]
    start = place.create("a")["metadata"]["resourceVersion"]
    versions = [place.label("a", **labels) for labels in changes]
    place.create("last", labels={"app": "web"})
    with place.watch(labelSelector="app=web", resourceVersion=start) as watch:
        *events, last = watch.until(lambda event: event["object"]["metadata"]["name"] == "last")
    assert [(event["type"], event["object"]["metadata"]["labels"]["app"]) for event in events] == expected
    seen = [event["object"]["metadata"]["resourceVersion"] for event in events]
    assert seen == [
        version for version in versions if version in seen
    ]  # Each has the version of the change, leaving as well.
    assert last["type"] == "ADDED"


def test_a_leaving_object_is_shown_as_before_with_the_version_of_the_change(place: Place) -> None:
    before = place.create("a", labels={"app": "web", "x": "1"}, stringData={"k": "old"})
    with place.watch(labelSelector="app=web", resourceVersion=before["metadata"]["resourceVersion"]) as watch:
        after = place.patch(
            "a", {"metadata": {"labels": {"app": "db", "x": "2"}}, "stringData": {"k": "new"}}
        )
        event = next(watch)
    assert event["type"] == "DELETED"
    shown = event["object"]
    assert shown["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    assert (shown["metadata"]["labels"], shown["data"]) == (before["metadata"]["labels"], before["data"])


@pytest.mark.parametrize(
    "selector", [{}, {"labelSelector": "app=web"}, {"fieldSelector": "metadata.name=a"}], ids=str
)
def test_a_deleted_object_is_shown_in_its_last_state_with_a_version_of_its_own(
    place: Place, selector: dict[str, str]
) -> None:
    before = place.create("a", labels={"app": "web"}, stringData={"k": "v"})
    with place.watch(resourceVersion=before["metadata"]["resourceVersion"], **selector) as watch:
        place.delete("a")
        event = next(watch)
    assert (event["type"], event["object"]["data"], event["object"]["metadata"]["uid"]) == (
        "DELETED",
        before["data"],
        before["metadata"]["uid"],
    )
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


def test_finalizers_make_a_deletion_two_events(place: Place) -> None:
    start = place.create("a", metadata={"finalizers": ["example.com/f"]})["metadata"]["resourceVersion"]
    with place.watch(resourceVersion=start) as watch:
        place.delete("a")
        place.patch("a", {"metadata": {"finalizers": None}})
        marked, gone = take(watch, 2)
    assert (marked["type"], marked["object"]["metadata"]["finalizers"]) == ("MODIFIED", ["example.com/f"])
    assert "deletionTimestamp" in marked["object"]["metadata"]
    assert gone["type"] == "DELETED"
    assert int(gone["object"]["metadata"]["resourceVersion"]) > int(
        marked["object"]["metadata"]["resourceVersion"]
    )


@pytest.mark.needs("pods that nobody schedules")
@pytest.mark.parametrize(
    ("selector", "path", "change", "back"),
    [
        (
            "status.phase=Running",
            "it/status",
            {"status": {"phase": "Running"}},
            {"status": {"phase": "Failed"}},
        ),
        (
            "status.podIP!=",
            "it/status",
            {"status": {"podIP": "10.9.9.2", "podIPs": [{"ip": "10.9.9.2"}]}},
            {"status": {"podIP": None, "podIPs": None}},
        ),
        (
            "status.nominatedNodeName=n",
            "it/status",
            {"status": {"nominatedNodeName": "n"}},
            {"status": {"nominatedNodeName": None}},
        ),
    ],
)
def test_fields_have_edges_as_labels_have(
    place: Place, selector: str, path: str, change: Any, back: Any
) -> None:
    pods = place.of("pods")
    start = pods.create("it", **POD)["metadata"]["resourceVersion"]
    with pods.watch(fieldSelector=selector, resourceVersion=start) as watch:
        entered = pods.api.request("PATCH", pods.path(path), body=change)["metadata"]["resourceVersion"]
        left = pods.api.request("PATCH", pods.path(path), body=back)["metadata"]["resourceVersion"]
        first, second = take(watch, 2)
    assert short([first, second]) == [("ADDED", "it", entered), ("DELETED", "it", left)]
    assert second["object"]["status"] == first["object"]["status"]


# ---- Where a watch begins.


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"resourceVersion": "0"},
        pytest.param(
            {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan"}, marks=since_watch_list
        ),
    ],
    ids=str,
)
def test_a_watch_from_no_version_begins_with_existing_objects(place: Place, query: dict[str, Any]) -> None:
    first, second = (place.create(name)["metadata"]["resourceVersion"] for name in "ab")
    place.listed(resourceVersion=second)  # The server's memory may be a moment behind.
    with place.watch(**query) as watch:
        third = place.label("a", i="1")
        *initial, later = short(take(watch, 3))
    assert sorted(initial) == [("ADDED", "a", first), ("ADDED", "b", second)]
    assert later == ("MODIFIED", "a", third)


@since_watch_list
@pytest.mark.parametrize(
    "query",
    [
        INITIAL,
        INITIAL | {"resourceVersion": "0"},
        INITIAL | {"resourceVersion": "1"},
        INITIAL | {"resourceVersion": "NOW"},
        {"allowWatchBookmarks": True},
        {"allowWatchBookmarks": True, "resourceVersion": "0"},
    ],
    ids=str,
)
def test_the_end_of_the_initial_events_is_marked(place: Place, query: dict[str, Any]) -> None:
    first = place.create("a", labels={"i": "1"})["metadata"]["resourceVersion"]
    second = place.create("b")["metadata"]["resourceVersion"]
    place.listed(resourceVersion=second)
    with place.watch(
        labelSelector="i", **{key: second if value == "NOW" else value for key, value in query.items()}
    ) as watch:
        added, bookmark = take(watch, 2)
    assert short([added]) == [("ADDED", "a", first)]
    assert (bookmark["type"], bookmark["object"]["kind"], bookmark["object"]["apiVersion"]) == (
        "BOOKMARK",
        "Secret",
        "v1",
    )
    metadata = {key: value for key, value in bookmark["object"]["metadata"].items() if value is not None}
    assert metadata.pop("annotations") == END
    assert int(metadata.pop("resourceVersion")) >= int(second)
    assert metadata == {}


@since_watch_list
def test_a_watch_goes_on_from_the_end_of_the_initial_events(place: Place) -> None:
    place.create("a")
    with place.watch(**INITIAL) as watch:
        bookmark = watch.until(lambda event: event["type"] == "BOOKMARK")[-1]
    place.create("b")
    with place.watch(resourceVersion=bookmark["object"]["metadata"]["resourceVersion"]) as watch:
        assert types(take(watch, 1)) == [("ADDED", "b")]


@since_watch_list
@pytest.mark.parametrize("more", [{}, {"resourceVersion": "0"}], ids=str)
def test_without_initial_events_a_watch_begins_now(place: Place, more: dict[str, str]) -> None:
    version = place.create("a")["metadata"]["resourceVersion"]
    place.listed(resourceVersion=version)
    with place.watch(**INITIAL | {"sendInitialEvents": False} | more) as watch:
        place.create("b")
        assert types(take(watch, 1)) == [("ADDED", "b")]


def test_a_watch_resumes_at_the_version_of_any_of_its_events(place: Place) -> None:
    start = place.version
    for name in "abcdef":
        place.create(name)
    with place.watch(resourceVersion=start) as watch:
        events = short(take(watch, 6))
    for number, (_, _, version) in enumerate(events, 1):
        place.create(f"more-{number}")
        with place.watch(resourceVersion=version) as watch:
            assert [name for _, name in types(take(watch, 6))] == [
                *"abcdef"[number:],
                *(f"more-{one}" for one in range(1, number + 1)),
            ]


def test_a_watch_begins_at_the_version_of_a_list_without_a_gap(place: Place) -> None:
    place.create("a")
    listed = place.listed()
    place.create("b")
    place.delete("a")
    with place.watch(resourceVersion=listed["metadata"]["resourceVersion"]) as watch:
        assert types(take(watch, 2)) == [("ADDED", "b"), ("DELETED", "a")]


@since_watch_list
def test_initial_events_of_a_version_that_has_not_come_are_an_error(place: Place) -> None:
    future = int(place.version) + 1_000_000_000
    with place.watch(**INITIAL | {"resourceVersion": future}) as watch:
        [event] = list(watch)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 504, "Timeout")
    assert f"Too large resource version: {future}, current: " in event["object"]["message"]


def test_a_version_that_has_not_come_is_waited_for_in_silence(place: Place) -> None:
    future = int(place.version) + 1_000_000_000
    with place.watch(resourceVersion=future, timeoutSeconds=1) as watch:
        place.create("a")
        assert list(watch) == []


@pytest.mark.parametrize(
    ("query", "messages"),
    [
        (
            {"resourceVersion": "5", "resourceVersionMatch": "NotOlderThan"},
            ["Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"],
        ),
        (
            {"resourceVersion": "5", "resourceVersionMatch": "Exact"},
            [
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                'Unsupported value: "Exact": supported values: "NotOlderThan"',
            ],
        ),
        pytest.param(
            {"sendInitialEvents": "true"},
            ["Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"],
            marks=since_watch_list,
        ),
        pytest.param(
            {"continue": "x"},
            ["Forbidden: resourceVersionMatch is forbidden when continue is provided"],
            marks=since_watch_list,
        ),
    ],
    ids=str,
)
def test_options_without_sense_are_invalid(place: Place, query: dict[str, str], messages: list[str]) -> None:
    status = refusal(place.api, "GET", place.path(), query={"watch": True, **query})
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert [cause["message"] for cause in status["details"]["causes"]] == messages


def test_a_version_that_is_no_number_is_the_servers_own_fault(place: Place) -> None:
    status = refusal(place.api, "GET", place.path(), query={"watch": True, "resourceVersion": "x"})
    assert (status["code"], "reason" in status) == (500, False)
    assert (
        status["message"]
        == 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'
    )


# ---- Bookmarks.


def test_a_bookmark_comes_in_time_to_watches_that_ask_for_it(
    place: Place, bookmark: Callable[[], None]
) -> None:
    start = place.create("a")["metadata"]["resourceVersion"]
    version = place.of("configmaps").create("other")["metadata"]["resourceVersion"]
    with (
        place.watch(resourceVersion=start, allowWatchBookmarks=True, deadline=270) as wants,
        place.watch(
            accept=METADATA, resourceVersion=start, allowWatchBookmarks=True, deadline=270
        ) as wants_metadata,
        place.watch(resourceVersion=start, deadline=270) as wants_none,
    ):
        bookmark()
        for watch, kind, api_version in (
            (wants, "Secret", "v1"),
            (wants_metadata, "PartialObjectMetadata", "meta.k8s.io/v1"),
        ):
            event = next(watch)
            assert (event["type"], event["object"]["kind"], event["object"]["apiVersion"]) == (
                "BOOKMARK",
                kind,
                api_version,
            )
            assert {key for key, value in event["object"]["metadata"].items() if value is not None} == {
                "resourceVersion"
            }
            assert int(event["object"]["metadata"]["resourceVersion"]) >= int(version)
        place.create("last")
        assert types(take(wants_none, 1)) == [("ADDED", "last")]


# ---- The end.


@pytest.mark.parametrize("seconds", [1, 2])
def test_a_watch_ends_in_good_order_when_its_time_is_over(place: Place, seconds: int) -> None:
    place.create("a")
    with place.watch(timeoutSeconds=seconds, resourceVersion="0") as watch:
        assert types(list(watch)) == [("ADDED", "a")]


# ---- Forms.


@since_watch_list
@pytest.mark.needs("definitions of custom resources")
def test_events_of_custom_resources_name_their_kind(place: Place) -> None:
    group = fresh_group()
    place.api.create_crd(group, "v1", "Thing", "things")
    things = place.of("things", prefix=f"/apis/{group}/v1", kind="Thing")
    made = things.create("a", spec={"x": 1})
    with things.watch() as watch:
        assert next(watch) == {"type": "ADDED", "object": made}
    with things.watch(**INITIAL) as watch:
        bookmark = watch.until(lambda event: event["type"] == "BOOKMARK")[-1]["object"]
    assert (bookmark["kind"], bookmark["apiVersion"], bookmark["metadata"]["annotations"]) == (
        "Thing",
        f"{group}/v1",
        END,
    )


def test_a_watch_of_metadata_shows_metadata_alone(place: Place) -> None:
    start = place.create("a", labels={"i": "1"}, stringData={"k": "v"})["metadata"]["resourceVersion"]
    with place.watch(accept=METADATA, labelSelector="i", resourceVersion=start) as watch:
        version = place.label("a", i=None)
        event = next(watch)
    shown = event["object"]
    assert event["type"] == "DELETED"
    assert shown.keys() == {"kind", "apiVersion", "metadata"}
    assert (shown["kind"], shown["apiVersion"], shown["metadata"]["labels"]) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
        {"i": "1"},
    )
    assert shown["metadata"]["resourceVersion"] == version


@since_watch_list
def test_the_first_event_of_a_watch_of_tables_defines_the_columns(place: Place) -> None:
    place.create("a", "b")
    place.listed(resourceVersion=place.version)
    with place.watch(accept=TABLE, **INITIAL) as watch:
        first, second, bookmark = (event["object"] for event in take(watch, 3))
    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Type", "Data", "Age"]
    assert (second["columnDefinitions"], bookmark["columnDefinitions"]) == (None, None)
    assert [table["rows"][0]["cells"][0] for table in (first, second)] == ["a", "b"]
    assert bookmark["rows"][0]["object"]["metadata"]["annotations"] == END
