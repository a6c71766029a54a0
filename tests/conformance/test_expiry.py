"""Versions whose history is gone: 410 for lists, continue tokens and watches, and how clients go on from
there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.cluster import Cluster
from tests.apiserver.server import ApiServer

from .places import INITIAL, METADATA, METADATA_LIST, Place, names_of, refusal, since_watch_list, take

pytestmark = pytest.mark.needs("control of what the server remembers")
TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list"
    " without the continue parameter, or use the continue token in this response to retrieve the remainder of"
    " the results. Continuing with the provided token results in an inconsistent list - objects that were"
    " created, modified, or deleted between the time the first chunk was returned and now may show up in the"
    " list."
)


@dataclass(frozen=True)
class Past:
    """The answers from before all history was forgotten: there were a, b, c and d; bb came and c went."""

    place: Place
    page: dict[str, Any]
    """The first two of them."""
    version: str
    """Of that page."""


@pytest.fixture(scope="module")
def forgetful(server: str, request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Callable[[], object]]]:
    """A server of these tests' own, and what makes it forget its history."""
    if server == "real":
        with ApiServer(assets=request.getfixturevalue("assets")) as real:
            yield real, real.expire
    else:
        with EmbeddedCluster().in_thread() as embedded:
            cluster = Cluster(embedded.url, ca_file=embedded.ca_file, token=embedded.token)
            yield cluster, embedded.compact
            cluster.close()


@pytest.fixture(scope="module")
def past(forgetful: tuple[Cluster, Callable[[], object]]) -> Past:
    api, forget = forgetful
    place = Place(api, api.namespace(prefix="conformance"))
    place.create("a", "b", "c", "d", labels={"i": "1"})
    page = place.listed(limit=2)
    place.create("bb", labels={"i": "1"})
    place.delete("c")
    forget()
    return Past(place, page, page["metadata"]["resourceVersion"])


@pytest.mark.parametrize("accept", [None, METADATA_LIST])
@pytest.mark.parametrize(
    "selector", [{}, {"labelSelector": "i"}, {"fieldSelector": "metadata.name!=x"}], ids=str
)
def test_an_expired_token_is_gone_and_comes_with_one_for_the_rest_as_it_is_now(
    past: Past, selector: dict[str, str], accept: str | None
) -> None:
    query = {"limit": 2, "continue": past.page["metadata"]["continue"], **selector}
    status = refusal(past.place.api, "GET", past.place.path(), query=query, accept=accept)
    assert (status["code"], status["reason"], status["message"]) == (410, "Expired", TOO_OLD)
    rest = past.place.listed(
        accept=accept, limit=5, **selector, **{"continue": status["metadata"]["continue"]}
    )
    assert names_of(rest) == ["bb", "d"]
    assert int(rest["metadata"]["resourceVersion"]) > int(past.version)


def test_the_token_for_the_rest_goes_on_in_pages_as_well(past: Past) -> None:
    query: dict[str, Any] = {"limit": 1, "continue": past.page["metadata"]["continue"]}
    token = refusal(past.place.api, "GET", past.place.path(), query=query)["metadata"]["continue"]
    first = past.place.listed(limit=1, **{"continue": token})
    second = past.place.listed(limit=1, **{"continue": first["metadata"]["continue"]})
    assert (names_of(first), names_of(second), "continue" in second["metadata"]) == (["bb"], ["d"], False)


@pytest.mark.parametrize(
    "query",
    [{"resourceVersionMatch": "Exact"}, {"limit": 1}, {"resourceVersionMatch": "Exact", "limit": 1}],
    ids=str,
)
def test_a_forgotten_version_cannot_be_listed(past: Past, query: dict[str, Any]) -> None:
    status = refusal(
        past.place.api, "GET", past.place.path(), query={"resourceVersion": past.version, **query}
    )
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"] == "The resourceVersion for the provided list is too old."


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"resourceVersion": "0"},
        {"resourceVersion": "THEN"},
        {"resourceVersion": "THEN", "resourceVersionMatch": "NotOlderThan"},
        {"limit": 1},
    ],
    ids=str,
)
def test_all_other_lists_go_on(past: Past, query: dict[str, Any]) -> None:
    words = {key: past.version if value == "THEN" else value for key, value in query.items()}
    assert names_of(past.place.listed(**words)) == (["a"] if "limit" in query else ["a", "b", "bb", "d"])


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"labelSelector": "i"},
        {"allowWatchBookmarks": True},
        {"fieldSelector": "metadata.name=a"},
        {"accept": METADATA},
    ],
    ids=str,
)
def test_a_watch_of_a_forgotten_version_is_opened_says_that_it_is_gone_and_ends(
    past: Past, query: dict[str, Any]
) -> None:
    with past.place.watch(resourceVersion=past.version, **query) as watch:
        [event] = list(watch)
    error = event["object"]
    assert (event["type"], error["kind"], error["code"], error["reason"]) == (
        "ERROR",
        "Status",
        410,
        "Expired",
    )
    assert error["message"].startswith(f"too old resource version: {past.version} (")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"resourceVersion": "0"},
        *(
            pytest.param(query, marks=since_watch_list)
            for query in (INITIAL, {**INITIAL, "resourceVersion": "THEN"})
        ),
    ],
    ids=str,
)
def test_a_watch_with_initial_events_begins_all_the_same(past: Past, query: dict[str, Any]) -> None:
    words = {key: past.version if value == "THEN" else value for key, value in query.items()}
    with past.place.watch(**words) as watch:
        assert sorted(event["object"]["metadata"]["name"] for event in take(watch, 4)) == [
            "a",
            "b",
            "bb",
            "d",
        ]


def test_a_watch_of_now_goes_on(past: Past) -> None:
    listed = past.place.listed()
    with past.place.watch(
        resourceVersion=listed["metadata"]["resourceVersion"], labelSelector="late"
    ) as watch:
        past.place.label("a", late="yes")
        assert [event["object"]["metadata"]["name"] for event in take(watch, 1)] == ["a"]
    past.place.label("a", late=None)


def test_objects_keep_their_uids(past: Past) -> None:
    made = {item["metadata"]["name"]: item["metadata"]["uid"] for item in past.page["items"]}
    now = {item["metadata"]["name"]: item["metadata"]["uid"] for item in past.place.listed()["items"]}
    assert now.items() >= made.items()
