"""Events, in the core API and in events.k8s.io: what each of them requires, refuses, and shows of the
other's."""

from typing import Any

import pytest

from tests.apiserver.cluster import Cluster

from .places import Place, refusal

CORE, GROUP = "/api/v1", "/apis/events.k8s.io/v1"
MERGE = "application/merge-patch+json"
FIRST, LAST = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
FIRST_MICRO, LAST_MICRO = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:05:00.500000Z"


def about(place: Place) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "namespace": place.namespace, "name": "a", "uid": "u"}


def core(place: Place, **other: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a.1"},
        "involvedObject": about(place),
        "type": "Normal",
        "reason": "Deployed",
        "message": "It is deployed.",
        "count": 1,
        "firstTimestamp": FIRST,
        "lastTimestamp": FIRST,
        "source": {"component": "webapps"},
        "reportingComponent": "webapps",
        "reportingInstance": "webapps",
    } | other


def group(place: Place, **other: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a.1"},
        "regarding": about(place),
        "type": "Normal",
        "reason": "Deployed",
        "note": "It is deployed.",
        "eventTime": FIRST_MICRO,
        "action": "Deploy",
        "reportingController": "webapps",
        "reportingInstance": "webapps",
    } | other


def path(place: Place, root: str, name: str = "") -> str:
    return f"{root}/namespaces/{place.namespace}/events{'/' if name else ''}{name}"


def create(place: Place, root: str, body: dict[str, Any]) -> Any:
    return place.api.request("POST", path(place, root), body=body)


def patch(place: Place, root: str, body: dict[str, Any]) -> Any:
    return place.api.request("PATCH", path(place, root, "a.1"), body=body, content_type=MERGE)


def read(place: Place, root: str) -> Any:
    return place.api.request("GET", path(place, root, "a.1"))


def refused(place: Place, root: str, body: dict[str, Any]) -> tuple[int, list[str]]:
    status = refusal(place.api, "POST", path(place, root), body=body)
    return status["code"], [each["field"] for each in status["details"]["causes"]]


def test_an_event_of_the_core_api_is_shown_in_the_group(place: Place) -> None:
    create(place, CORE, core(place))
    patch(place, CORE, {"count": 3, "lastTimestamp": LAST, "message": "Again."})
    shown = read(place, GROUP)
    wanted = {
        "note": "Again.",
        "deprecatedCount": 3,
        "deprecatedFirstTimestamp": FIRST,
        "deprecatedLastTimestamp": LAST,
        "deprecatedSource": {"component": "webapps"},
        "reportingController": "webapps",
        "eventTime": None,
    }
    assert {key: shown[key] for key in wanted} == wanted
    assert shown["regarding"] == about(place)


def test_an_event_of_the_group_is_shown_in_the_core_api(place: Place) -> None:
    create(place, GROUP, group(place))
    series = {"count": 2, "lastObservedTime": LAST_MICRO}
    patch(place, GROUP, {"series": series})
    shown = read(place, CORE)
    wanted = {
        "message": "It is deployed.",
        "eventTime": FIRST_MICRO,
        "series": series,
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "reportingComponent": "webapps",
        "reportingInstance": "webapps",
        "action": "Deploy",
    }
    assert {key: shown[key] for key in wanted} == wanted
    assert "count" not in shown


def test_an_event_of_one_api_is_continued_in_the_other(place: Place) -> None:
    create(place, CORE, core(place))
    series = {"count": 2, "lastObservedTime": LAST_MICRO}
    assert patch(place, GROUP, {"series": series})["series"] == series
    shown = patch(place, CORE, {"count": 3, "lastTimestamp": LAST, "series": None})
    assert ("series" in shown, shown["count"]) == (False, 3)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"eventTime": None}, ["eventTime"]),
        ({"reportingController": ""}, ["reportingController"] * 3),
        ({"reportingController": "web apps"}, ["reportingController"]),
        ({"reportingInstance": ""}, ["reportingInstance"]),
        ({"reportingInstance": "x" * 129}, ["reportingInstance"]),
        ({"action": ""}, ["action"]),
        ({"action": "x" * 129}, ["action"]),
        ({"reason": ""}, ["reason"]),
        ({"reason": "x" * 129}, ["reason"]),
        ({"note": "x" * 1025}, ["message"]),
        ({"note": "ä" * 513}, ["message"]),
        ({"type": "Error"}, ["type"]),
        ({"series": {"count": 1, "lastObservedTime": LAST_MICRO}}, ["series.count"]),
        ({"series": {"count": 2, "lastObservedTime": None}}, ["series.lastObservedTime"]),
        ({"deprecatedCount": 1}, ["count"]),
        ({"deprecatedFirstTimestamp": FIRST}, ["firstTimestamp"]),
        ({"deprecatedLastTimestamp": FIRST}, ["lastTimestamp"]),
        ({"deprecatedSource": {"component": "webapps"}}, ["source"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_new_event_of_the_group_is_checked(place: Place, change: dict[str, Any], fields: list[str]) -> None:
    assert refused(place, GROUP, group(place, **change)) == (422, fields)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"note": "Another one."}, ["message"]),
        ({"reason": "Other"}, ["reason", "reason"]),
        ({"type": "Warning"}, ["type"]),
        ({"action": "Other"}, ["action"]),
        ({"deprecatedCount": 2}, ["count"]),
        ({"deprecatedLastTimestamp": LAST}, ["lastTimestamp"]),
        ({"regarding": {"name": "b"}}, ["involvedObject"]),
        ({"reportingController": "other"}, ["reportingController"]),
        ({"reportingInstance": "other"}, ["reportingInstance"]),
        ({"eventTime": LAST_MICRO}, ["eventTime"]),
        ({"series": {"count": 1, "lastObservedTime": LAST_MICRO}}, ["series.count"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_group_lets_only_the_series_change(
    place: Place, change: dict[str, Any], fields: list[str]
) -> None:
    create(place, GROUP, group(place))
    status = refusal(place.api, "PATCH", path(place, GROUP, "a.1"), body=change, content_type=MERGE)
    assert (status["code"], [each["field"] for each in status["details"]["causes"]]) == (422, fields)


@pytest.mark.parametrize("root", [CORE, GROUP])
def test_an_event_about_an_object_of_the_cluster_is_in_the_namespace_default(api: Cluster, root: str) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    names = {"generateName": "n-"}
    place = Place(api, "default")
    body = (
        core(place, metadata=names, involvedObject=node)
        if root == CORE
        else group(place, metadata=names, regarding=node)
    )
    made = create(place, root, body)
    assert made["metadata"]["namespace"] == "default"
    api.request("DELETE", path(place, root, made["metadata"]["name"]))
