"""Lists: order, selectors and their mistakes, pages over one snapshot, and which versions can be asked
for."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.testing.api import builtin
from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster

from .places import POD, Place, fresh_group, fresh_place, names_of, pages, refusal

SERVED = [served.fields for served in builtin.BUILT_IN]
NONSENSE = [
    "name",
    "kind",
    "metadata",
    "metadata.uid",
    "metadata.labels.app",
    ".metadata.name",
    "spec",
    "spec.Host",
    "status",
]


def path_of(kind: Kind) -> str:
    [version] = {served.version for served in builtin.BUILT_IN if served.fields is kind}
    return f"/apis/{kind.group}/{version}/{kind.plural}" if kind.group else f"/api/{version}/{kind.plural}"


# ---- What is listed.


def test_a_list_names_its_kind_but_items_of_built_in_kinds_do_not(place: Place) -> None:
    place.create("a")
    listed = place.listed()
    assert (listed["kind"], listed["apiVersion"]) == ("SecretList", "v1")
    assert listed["items"][0].keys().isdisjoint({"kind", "apiVersion"})


@pytest.mark.needs("definitions of custom resources")
def test_items_of_custom_kinds_name_their_kind(place: Place) -> None:
    group = fresh_group()
    place.api.create_crd(group, "v1", "Thing", "things")
    things = place.of("things", prefix=f"/apis/{group}/v1", kind="Thing")
    things.create("a")
    listed = things.listed()
    assert (listed["kind"], listed["apiVersion"]) == ("ThingList", f"{group}/v1")
    assert (listed["items"][0]["kind"], listed["items"][0]["apiVersion"]) == ("Thing", f"{group}/v1")


def test_a_list_has_the_version_of_the_whole_cluster(place: Place) -> None:
    place.create("a")
    version = int(place.of("configmaps").create("b")["metadata"]["resourceVersion"])
    assert int(place.listed()["metadata"]["resourceVersion"]) >= version


@pytest.mark.needs("two namespaces whose names begin alike")
def test_namespaces_are_listed_as_etcd_keeps_them(place: Place) -> None:
    other = f"{place.namespace}-2"
    place.api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": other}})
    label = {"of": place.namespace}
    place.create("a", "b", labels=label)
    Place(place.api, other).create("a", labels=label)
    listed = place.listed(everywhere=True, labelSelector=f"of={place.namespace}")["items"]
    assert [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed] == [
        (other, "a"),
        (place.namespace, "a"),
        (place.namespace, "b"),
    ]
    assert place.names() == ["a", "b"]


def test_a_list_of_a_namespace_that_is_not_there_is_empty(api: Cluster) -> None:
    assert api.request("GET", "/api/v1/namespaces/nowhere/secrets")["items"] == []


# ---- Label selectors.

LABELLED: dict[str, dict[str, str]] = {
    "none": {},
    "one": {"i": "1"},
    "two": {"i": "2", "tier": "gold"},
    "three": {"i": "3", "tier": ""},
    "six": {"i": "06"},
    "word": {"i": "x", "a.b/c": "1"},
}


@pytest.fixture(scope="module")
def labelled(api: Cluster) -> Iterator[Place]:
    with fresh_place(api) as place:
        for name, labels in LABELLED.items():
            place.create(name, labels=labels)
        yield place


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "none one six three two word"),
        ("i", "one six three two word"),
        ("!i", "none"),
        ("i=1", "one"),
        ("i!=1", "none six three two word"),
        ("i in (1,2)", "one two"),
        ("i notin (1,2)", "none six three word"),
        ("i in ()", ""),
        ("i in (,1)", "one"),
        ("i=", ""),
        ("tier=", "three"),
        ("tier!=", "none one six two word"),
        ("i>1", "six three two"),
        ("i>1,i<6", "three two"),
        ("i>5", "six"),
        ("i,!tier", "one six word"),
        ("i in (1,2),tier", "two"),
        ("a.b/c=1", "word"),
        ("!none", "none one six three two word"),
        (" i = 1 ", "one"),
        ("i  in  ( 1 , 2 )", "one two"),
        ("i notin ()", "none one six three two word"),
        ("tier in (gold,)", "three two"),
        ("i=06", "six"),
    ],
)
def test_a_label_selector_selects(labelled: Place, selector: str, names: str) -> None:
    assert sorted(labelled.names(labelSelector=selector)) == names.split()


@pytest.mark.parametrize(
    "selector",
    [
        "i=1,",
        ",i=1",
        "a b",
        "i in 1",
        "i in (1",
        "i>x",
        "i<",
        "i>",
        "=1",
        "!",
        "!i=1",
        "i=-x",
        "-i=1",
        "i=a b",
        "i===1",
        "i in (a b)",
        "i notin",
        "a/b/c=1",
        "/a=1",
        "i=" + "x" * 64,
        "x" * 64,
        "i in (-x)",
    ],
)
def test_an_invalid_label_selector_is_refused(labelled: Place, selector: str) -> None:
    status = refusal(labelled.api, "GET", labelled.path(), query={"labelSelector": selector})
    assert (status["code"], status["reason"]) == (400, "BadRequest")


# ---- Field selectors.


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=one", "one"),
        ("metadata.name==one", "one"),
        ("metadata.name!=one", "none six three two word"),
        ("metadata.name=one,metadata.name=two", ""),
        ("metadata.name!=one,metadata.name!=two", "none six three word"),
        ("type=Opaque", "none one six three two word"),
        ("type!=Opaque", ""),
        ("metadata.namespace=other", ""),
        ("metadata.namespace!=other", "none one six three two word"),
        ("", "none one six three two word"),
        ("metadata.name=", ""),
        ("metadata.name=o\\,e", ""),
        ("metadata.name=one,", "one"),
        ("metadata.name=one,,type=Opaque", "one"),
    ],
)
def test_a_field_selector_selects(labelled: Place, selector: str, names: str) -> None:
    assert sorted(labelled.names(fieldSelector=selector)) == names.split()


@pytest.mark.parametrize("kind", SERVED, ids=[kind.plural + "." + kind.group for kind in SERVED])
def test_the_server_accepts_the_field_labels_of_the_table_and_no_nonsense(api: Cluster, kind: Kind) -> None:
    def accepts(label: str) -> bool:
        try:
            api.request("GET", path_of(kind), query={"fieldSelector": f"{label}=x", "limit": 1})
        except ApiError as error:
            if (error.status, error.body["reason"]) != (400, "BadRequest"):
                raise
            return False
        return True

    assert {label for label in [*kind.fields, *NONSENSE] if accepts(label)} == set(kind.fields)


@pytest.mark.parametrize(
    ("path", "selector", "message"),
    [
        ("/api/v1/pods", "spec.x=1", "field label not supported: spec.x"),
        ("/api/v1/secrets", "data=x", "field label not supported: data"),
        (
            "/apis/events.k8s.io/v1/events",
            "involvedObject.name=x",
            "field label not supported: involvedObject.name",
        ),
        ("/apis/batch/v1/jobs", "spec.x=1", 'field label "spec.x" not supported for Job'),
        (
            "/apis/apps/v1/deployments",
            "spec.x=1",
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("/api/v1/pods", "spec.x", "invalid selector: 'spec.x'; can't understand 'spec.x'"),
        ("/api/v1/pods", "metadata.name=a,b", "invalid selector: 'metadata.name=a,b'; can't understand 'b'"),
        ("/api/v1/pods", "metadata.name=1,spec.y=1,spec.x=1", "field label not supported: spec.x"),
    ],
)
def test_a_field_label_that_a_kind_has_not_got_is_refused(
    api: Cluster, path: str, selector: str, message: str
) -> None:
    status = refusal(api, "GET", path, query={"fieldSelector": selector})
    assert (status["code"], status["reason"], status["message"]) == (400, "BadRequest", message)


@pytest.fixture(scope="module")
def pods(api: Cluster) -> Place:
    """Pods that differ in each field that pods can be selected by."""
    pods = Place(api, api.namespace(prefix="conformance"), "pods")
    base = POD["spec"]
    for name, spec, status in (
        ("plain", {}, {}),
        (
            "on-node",
            {"nodeName": "n1"},
            {"phase": "Running", "podIP": "10.9.9.1", "podIPs": [{"ip": "10.9.9.1"}]},
        ),
        (
            "host",
            {
                "hostNetwork": True,
                "restartPolicy": "Never",
                "schedulerName": "own",
                "serviceAccountName": "robot",
            },
            {"phase": "Succeeded"},
        ),
        ("nominated", {"hostNetwork": False}, {"phase": "Pending", "nominatedNodeName": "n2"}),
    ):
        pods.create(name, spec={**base, **spec})
        if status:
            api.request("PATCH", pods.path(f"{name}/status"), body={"status": status})
    return pods


@pytest.mark.needs("pods that nobody schedules")
@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.nodeName=n1", "on-node"),
        ("spec.nodeName=", "host nominated plain"),
        ("spec.nodeName!=", "on-node"),
        ("status.phase=Running", "on-node"),
        ("status.phase=Pending", "nominated plain"),
        ("spec.restartPolicy=Never", "host"),
        ("spec.schedulerName=own", "host"),
        ("spec.serviceAccountName=robot", "host"),
        ("spec.hostNetwork=true", "host"),
        ("spec.hostNetwork=false", "nominated on-node plain"),
        ("status.podIP=10.9.9.1", "on-node"),
        ("status.podIP=", "host nominated plain"),
        ("status.nominatedNodeName=n2", "nominated"),
        ("spec.hostNetwork=", ""),
        ("metadata.name=host,status.phase=Succeeded", "host"),
    ],
)
def test_pods_are_selected_by_their_fields(pods: Place, selector: str, names: str) -> None:
    assert pods.names(fieldSelector=selector) == names.split()


@pytest.fixture(scope="module")
def events(api: Cluster) -> Iterator[Place]:
    with fresh_place(api) as place:
        yield with_events(place.of("events"))


def with_events(events: Place) -> Place:
    about = {
        "kind": "Pod",
        "name": "p",
        "namespace": events.namespace,
        "uid": "u1",
        "apiVersion": "v1",
        "resourceVersion": "7",
        "fieldPath": "spec",
    }
    events.create(
        "full",
        involvedObject=about,
        reason="Started",
        type="Warning",
        source={"component": "me"},
        reportingComponent="rc",
    )
    events.create("bare", involvedObject={"namespace": events.namespace})
    return events


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("involvedObject.kind=Pod", "full"),
        ("involvedObject.name=p", "full"),
        ("involvedObject.uid=", "bare"),
        ("involvedObject.resourceVersion=7", "full"),
        ("involvedObject.fieldPath=spec", "full"),
        ("reason=Started", "full"),
        ("reason=", "bare"),
        ("type!=Warning", "bare"),
        ("reportingComponent=rc", "full"),
        ("source=me", "full"),
    ],
)
def test_events_are_selected_by_their_fields(events: Place, selector: str, names: str) -> None:
    assert events.names(fieldSelector=selector) == names.split()


# ---- Pages.


def test_pages_are_of_one_snapshot_whatever_happens_meanwhile(place: Place) -> None:
    place.create("a", "b", "c", "d", "e")
    first = place.listed(limit=2)
    assert names_of(first) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    place.create("bb", "z")
    place.delete("c")
    place.label("d", new="label")
    second = place.listed(limit=2, **{"continue": first["metadata"]["continue"]})
    assert names_of(second) == ["c", "d"]
    assert "labels" not in second["items"][1]["metadata"]
    assert second["metadata"]["remainingItemCount"] == 1
    third = place.listed(limit=2, **{"continue": second["metadata"]["continue"]})
    assert names_of(third) == ["e"]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert third["metadata"].keys() == {"resourceVersion"}


@pytest.mark.parametrize("limit", [2, 100])
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"labelSelector": "i in (1,2,3)"}, ["one", "three", "two"]),
        ({"fieldSelector": "metadata.name!=one"}, ["none", "six", "three", "two", "word"]),
        ({"labelSelector": "none"}, []),
        ({"labelSelector": "i", "fieldSelector": "metadata.name=two"}, ["two"]),
    ],
    ids=str,
)
def test_pages_of_a_selection_together_are_the_selection(
    labelled: Place, limit: int, query: dict[str, str], names: list[str]
) -> None:
    seen = list(pages(labelled, limit=limit, **query))
    assert [name for page in seen for name in names_of(page)] == names
    assert all("remainingItemCount" not in page["metadata"] for page in seen)


def test_a_token_goes_on_with_whatever_selector_is_given_with_it(labelled: Place) -> None:
    first = labelled.listed(limit=1)
    rest = labelled.names(labelSelector="tier", **{"continue": first["metadata"]["continue"]})
    assert rest == ["three", "two"]


def token(version: int, start: str, word: str = "meta.k8s.io/v1") -> str:
    return (
        base64.urlsafe_b64encode(json.dumps({"v": word, "rv": version, "start": start}).encode())
        .decode()
        .rstrip("=")
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("abc", None),
        ("=", None),
        (token(0, "a\0"), "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        (token(1, ""), "encoded start key empty (version meta.k8s.io/v1)"),
        (token(1, "a\0", "v2"), "server does not recognize this encoded version v2"),
    ],
)
def test_an_invalid_continue_token_is_refused(place: Place, given: str, message: str | None) -> None:
    status = refusal(place.api, "GET", place.path(), query={"continue": given})
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    start = "invalid continue token: continue key is not valid: "
    assert status["message"].startswith(start)
    assert message is None or status["message"] == start + message


def test_a_token_comes_with_no_version(place: Place) -> None:
    place.create("a", "b")
    first = place.listed(limit=1)
    status = refusal(
        place.api,
        "GET",
        place.path(),
        query={
            "continue": first["metadata"]["continue"],
            "resourceVersion": first["metadata"]["resourceVersion"],
        },
    )
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert status["message"] == "specifying resource version is not allowed when using continue"


# ---- Versions: what is listed of `old` (there at the version asked for) and `new` (made since).


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["new"]),
        ({"resourceVersion": ""}, ["new"]),
        ({"limit": 5}, ["new"]),
        ({"resourceVersion": "THEN"}, ["new"]),
        ({"resourceVersion": "THEN", "resourceVersionMatch": "NotOlderThan"}, ["new"]),
        ({"resourceVersion": "THEN", "resourceVersionMatch": "NotOlderThan", "limit": 5}, ["new"]),
        ({"resourceVersion": "THEN", "resourceVersionMatch": "Exact"}, ["old"]),
        ({"resourceVersion": "THEN", "resourceVersionMatch": "Exact", "limit": 5}, ["old"]),
        ({"resourceVersion": "THEN", "limit": 5}, ["old"]),
        ({"resourceVersion": "NOW"}, ["new"]),
        ({"resourceVersion": "NOW", "resourceVersionMatch": "Exact"}, ["new"]),
        ({"resourceVersion": "NOW", "limit": 1}, ["new"]),
    ],
    ids=str,
)
def test_which_state_is_listed(place: Place, query: dict[str, Any], names: list[str]) -> None:
    then = place.create("old")["metadata"]["resourceVersion"]
    place.create("new")
    place.delete("old")
    words = {"THEN": then, "NOW": place.version}
    listed = place.listed(
        **{key: words.get(value, value) if isinstance(value, str) else value for key, value in query.items()}
    )
    assert names_of(listed) == names
    if names == ["old"]:
        assert listed["metadata"]["resourceVersion"] == then
    else:
        assert int(listed["metadata"]["resourceVersion"]) >= int(words["NOW"])


@pytest.mark.parametrize("match", [{}, {"resourceVersionMatch": "NotOlderThan"}])
def test_from_version_zero_anything_goes_and_in_one_page(place: Place, match: dict[str, str]) -> None:
    place.create("a", "b")
    with place.watch(
        resourceVersion="0"
    ) as watch:  # Once both are in the watch cache, which the list is taken from.
        next(watch), next(watch)
    listed = place.listed(resourceVersion="0", limit=1, **match)
    assert names_of(listed) == ["a", "b"]
    assert "continue" not in listed["metadata"]


@pytest.mark.parametrize("limit", [{}, {"limit": 1}])
def test_pages_of_an_exact_version_are_of_that_version(place: Place, limit: dict[str, int]) -> None:
    place.create("a", "b")
    then = place.version
    place.delete("b")
    seen = []
    query: dict[str, Any] = {"resourceVersion": then, "resourceVersionMatch": "Exact", **limit}
    while True:
        page = place.listed(**query)
        seen += names_of(page)
        if not (goes_on := page["metadata"].get("continue")):
            break
        query = {**limit, "continue": goes_on}
    assert seen == ["a", "b"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"resourceVersionMatch": "NotOlderThan"},
        {"resourceVersionMatch": "NotOlderThan", "limit": 2},
        pytest.param(
            {"resourceVersionMatch": "Exact"},
            marks=pytest.mark.since("1.34", "such a list comes from etcd before, and is a 500"),
        ),
    ],
)
def test_a_version_that_has_not_come_is_a_timeout(place: Place, more: dict[str, str]) -> None:
    future = int(place.create("a")["metadata"]["resourceVersion"]) + 1_000_000_000
    status = refusal(place.api, "GET", place.path(), query={"resourceVersion": future, **more})
    assert (status["code"], status["reason"]) == (504, "Timeout")
    assert f"Too large resource version: {future}, current: " in status["message"]
    assert status["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (
            {"resourceVersionMatch": "Exact"},
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "5", "continue": "abc"},
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            {"resourceVersionMatch": "Foo", "resourceVersion": "5"},
            'Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", ""',
        ),
    ],
)
def test_matches_without_sense_are_invalid(place: Place, query: dict[str, str], told: str) -> None:
    status = refusal(place.api, "GET", place.path(), query=query)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"] == f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: {told}'


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"limit": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"timeoutSeconds": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            {"resourceVersion": "x"},
            (
                'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing'
                ' "x": invalid syntax'
            ),
        ),
        (
            {"resourceVersion": "-1"},
            (
                'invalid resource version: resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing'
                ' "-1": invalid syntax'
            ),
        ),
    ],
)
def test_an_invalid_number_is_refused(place: Place, query: dict[str, str], message: str) -> None:
    status = refusal(place.api, "GET", place.path(), query=query)
    assert (status["code"], status["reason"], status["message"]) == (400, "BadRequest", message)
