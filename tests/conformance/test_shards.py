"""Shards (KEP-5866): lists and watches of the objects whose hash lies in a range.

The servers have the feature gate, which is off by default. The last test asks the servers of all other tests,
which do not have it."""

import itertools
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.cluster import Cluster
from tests.apiserver.server import ApiServer
from tests.conftest import client_of

from .places import (
    INITIAL,
    METADATA_LIST,
    TABLE,
    Place,
    fresh_group,
    fresh_place,
    names_of,
    pages,
    refusal,
    take,
)

pytestmark = [
    pytest.mark.since("1.36", "older servers do not know shards"),
    pytest.mark.needs("a server with the feature gate ShardedListAndWatch"),
]
UID, NAMESPACE = "object.metadata.uid", "object.metadata.namespace"
FIRST, HALF, LAST, END = (
    "0x0000000000000000",
    "0x8000000000000000",
    "0xffffffffffffffff",
    "0x10000000000000000",
)
NAMES = [f"o{number:02}" for number in range(40)]


def of(start: str, end: str, field: str = UID) -> str:
    return f"shardRange({field}, '{start}', '{end}')"


LOWER, UPPER = of(FIRST, HALF), of(HALF, END)


def hashed(text: str) -> int:
    """FNV-1a with 64 bits, written once more: both servers are held to it."""
    value = 14695981039346656037
    for byte in text.encode():
        value = ((value ^ byte) * 1099511628211) % 2**64
    return value


def bound(number: int) -> str:
    return f"{number:#018x}"


def is_lower(obj: dict[str, Any]) -> bool:
    return hashed(obj["metadata"]["uid"]) < 2**63


@pytest.fixture(scope="module")
def sharded(server: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A client of a server with the feature gate."""
    if server == "real":
        assets = request.getfixturevalue("assets")
        with ApiServer(feature_gates={"ShardedListAndWatch": True}, assets=assets) as real:
            yield real
    else:
        with (
            EmbeddedCluster(garbage_collection=False, sharded_lists=True).in_thread() as cluster,
            closing(client_of(cluster)) as client,
        ):
            yield client


@pytest.fixture
def shop(sharded: Cluster) -> Iterator[Place]:
    """A fresh namespace on it."""
    with fresh_place(sharded) as place:
        yield place


@pytest.fixture(scope="module")
def stocked(sharded: Cluster) -> Iterator[Place]:
    """A namespace with 40 objects, which nobody changes."""
    with fresh_place(sharded) as place:
        for number, name in enumerate(NAMES):
            place.create(name, labels={"third": str(number % 3)})
        yield place


def selected(place: Place) -> list[str]:
    """Names of the objects of the lower half."""
    return [obj["metadata"]["name"] for obj in place.listed()["items"] if is_lower(obj)]


# ---- Lists.


def test_a_list_has_the_objects_whose_hash_is_in_the_range(stocked: Place) -> None:
    lower = selected(stocked)
    assert 0 < len(lower) < len(NAMES)
    assert stocked.names(shardSelector=LOWER) == lower
    assert stocked.names(shardSelector=UPPER) == [name for name in NAMES if name not in lower]


def test_a_range_has_its_start_but_not_its_end(stocked: Place) -> None:
    obj = stocked.get(NAMES[0])
    at = hashed(obj["metadata"]["uid"])
    assert stocked.names(shardSelector=of(bound(at), bound(at + 1))) == [NAMES[0]]
    assert NAMES[0] not in stocked.names(shardSelector=of(FIRST, bound(at)))


def test_several_ranges_are_one_selection(stocked: Place) -> None:
    quarters = [0, 1 << 62, 2 << 62, 3 << 62, 1 << 64]
    ranges = [of(bound(start), bound(end)) for start, end in itertools.pairwise(quarters)]
    found = [stocked.names(shardSelector=each) for each in ranges]
    assert sorted(name for names in found for name in names) == NAMES
    assert stocked.names(shardSelector=" || ".join(ranges)) == NAMES
    assert stocked.names(shardSelector=f"{ranges[0]} || {ranges[2]}") == sorted(found[0] + found[2])
    assert stocked.names(shardSelector=f"{ranges[0]} || {ranges[0]}") == found[0]


def test_objects_are_divided_by_their_namespaces_as_well(stocked: Place) -> None:
    at = hashed(stocked.namespace)
    mine = of(bound(at), bound(at + 1), NAMESPACE)
    others = f"{of(FIRST, bound(at), NAMESPACE)} || {of(bound(at + 1), END, NAMESPACE)}"
    found = stocked.listed(everywhere=True, shardSelector=mine)["items"]
    assert [obj["metadata"]["name"] for obj in found] == NAMES
    assert {obj["metadata"]["namespace"] for obj in found} == {stocked.namespace}
    assert stocked.names(shardSelector=others) == []


def test_all_selectors_must_hold(stocked: Place) -> None:
    lower, third = selected(stocked), stocked.names(labelSelector="third=1")
    both = stocked.names(shardSelector=LOWER, labelSelector="third=1")
    assert both == [name for name in lower if name in third]
    [name, *_] = lower
    assert stocked.names(shardSelector=LOWER, fieldSelector=f"metadata.name={name}") == [name]
    assert stocked.names(shardSelector=UPPER, fieldSelector=f"metadata.name={name}") == []


@pytest.mark.parametrize("match", ["", "0", "NotOlderThan", "Exact"])
def test_each_version_of_a_list_is_divided(stocked: Place, match: str) -> None:
    version = "0" if match == "0" else stocked.version if match else ""
    how = {"resourceVersionMatch": match} if match not in ("", "0") else {}
    assert stocked.names(shardSelector=LOWER, resourceVersion=version, **how) == selected(stocked)


@pytest.mark.parametrize(
    "selector",
    [
        f" {LOWER}\n",
        f"(({LOWER}))",
        LOWER.replace("'", '"'),
        LOWER.replace(" ", ""),
        LOWER.replace("(", " ( ").replace(",", " , "),
        f"{LOWER} // comment",
        f"object.{LOWER}",
    ],
    ids=["space", "parentheses", "quotes", "dense", "wide", "comment", "method"],
)
def test_a_list_repeats_the_selector_in_one_form(stocked: Place, selector: str) -> None:
    assert stocked.listed(shardSelector=selector, limit=1)["metadata"]["shardInfo"] == {"selector": LOWER}


@pytest.mark.parametrize("accept", [METADATA_LIST, TABLE], ids=["metadata", "table"])
def test_other_forms_are_divided_and_do_not_say_so(stocked: Place, accept: str) -> None:
    listed = stocked.listed(accept=accept, shardSelector=LOWER)
    found = [each.get("object", each)["metadata"]["name"] for each in listed.get("rows", listed.get("items"))]
    assert found == selected(stocked)
    assert "shardInfo" not in listed["metadata"]


def test_lists_and_watches_of_custom_resources_are_divided_and_do_not_say_so(shop: Place) -> None:
    group = fresh_group()
    shop.api.create_crd(group, "v1", "Thing", "things")
    things = shop.of("things", prefix=f"/apis/{group}/v1", kind="Thing")
    things.create(*NAMES)
    listed = things.listed(shardSelector=LOWER)
    assert names_of(listed) == selected(things)
    assert "shardInfo" not in listed["metadata"]
    with things.watch(shardSelector=LOWER, **INITIAL) as watch:
        *events, end = watch.until(lambda event: event["type"] == "BOOKMARK")
    assert sorted(event["object"]["metadata"]["name"] for event in events) == selected(things)
    assert "shardInfo" not in str(end)


# ---- Pages.


def test_pages_are_full_and_count_objects_of_all_shards_as_remaining(stocked: Place) -> None:
    lower, found, rest = selected(stocked), [], NAMES
    for page in pages(stocked, shardSelector=LOWER, limit=3):
        names = names_of(page)
        found += names
        assert page["metadata"]["shardInfo"] == {"selector": LOWER}
        if "continue" in page["metadata"]:
            assert len(names) == 3
            assert page["metadata"]["remainingItemCount"] == len(rest) - 3
            rest = rest[rest.index(names[-1]) + 1 :]
    assert found == lower


def test_a_token_is_not_bound_to_its_shard(stocked: Place) -> None:
    first = stocked.listed(shardSelector=LOWER, limit=3)
    rest = NAMES[NAMES.index(names_of(first)[-1]) + 1 :]
    token = {"continue": first["metadata"]["continue"]}
    assert stocked.names(**token) == rest
    lower = selected(stocked)
    assert stocked.names(shardSelector=UPPER, **token) == [name for name in rest if name not in lower]


# ---- Watches.


def seen(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def test_initial_events_are_those_of_the_shard_and_nothing_marks_them(stocked: Place) -> None:
    with stocked.watch(shardSelector=LOWER, **INITIAL) as watch:
        *events, end = watch.until(lambda event: event["type"] == "BOOKMARK")
    assert sorted(seen(events)) == [("ADDED", name) for name in selected(stocked)]
    assert "shardInfo" not in str(events) + str(end)
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_shows_the_changes_of_its_shard(shop: Place) -> None:
    start = shop.version
    expected: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for name in NAMES[:10]:
        made = shop.create(name)
        shop.label(name, i="1")
        shop.delete(name)
        expected[is_lower(made)] += [("ADDED", name), ("MODIFIED", name), ("DELETED", name)]
    for selector, is_of_it in ((LOWER, True), (UPPER, False)):
        if expected[is_of_it]:
            with shop.watch(shardSelector=selector, resourceVersion=start) as watch:
                assert seen(take(watch, len(expected[is_of_it]))) == expected[is_of_it]


def test_within_a_shard_objects_enter_and_leave_the_other_selectors(shop: Place) -> None:
    made = shop.create("a")
    own, other = (LOWER, UPPER) if is_lower(made) else (UPPER, LOWER)
    shop.label("a", app="web")
    shop.label("a", app="db")
    asked = {"labelSelector": "app=web", "resourceVersion": made["metadata"]["resourceVersion"]}
    with shop.watch(shardSelector=own, **asked) as watch:
        assert seen(take(watch, 2)) == [("ADDED", "a"), ("DELETED", "a")]
    with shop.watch(shardSelector=other, timeoutSeconds=1, **asked) as watch:
        assert list(watch) == []


# ---- Other requests.


def test_a_deletion_of_many_deletes_those_of_the_shard(shop: Place) -> None:
    shop.create(*NAMES)
    lower = selected(shop)
    deleted = shop.api.request("DELETE", shop.path(), query={"shardSelector": LOWER})
    assert names_of(deleted) == lower
    assert deleted["metadata"]["shardInfo"] == {"selector": LOWER}
    assert shop.names() == [name for name in NAMES if name not in lower]


# ---- Mistakes.

MISTAKES = [
    " ",
    "x",
    "x.y",
    "'x'",
    "x()",
    "||",
    ")",
    "@",
    "shardrange()",
    "shardRange()",
    f"shardRange({UID})",
    f"shardRange({UID}",
    f"shardRange({UID}, '{FIRST}', '{HALF}', 'x')",
    f"shardRange({UID}, {UID}, '{HALF}')",
    f"{LOWER} || x",
    f"{LOWER} ||",
    f"{LOWER}, {UPPER}",
    f"{LOWER} {UPPER}",
    f"{LOWER} && {UPPER}",
    f"!{LOWER}",
    f"x({LOWER})",
    "(" * 300 + LOWER + ")" * 299,
    of(FIRST, HALF, "object.metadata.name"),
    of(FIRST, HALF, "metadata.uid"),
    of(FIRST, HALF, "'x'"),
    of("0x0", HALF),
    of(FIRST, "0xff"),
    of("", HALF),
    of("0X0000000000000000", HALF),
    of("0x", HALF),
    of("0x000000000000000A", HALF),
    of(FIRST, "0x10000000000000001"),
    of(FIRST, "0x000000000000000000"),
    of(HALF, HALF),
    of(LAST, FIRST),
    f"{LOWER} || {of(HALF, END, NAMESPACE)}",
]


@pytest.mark.parametrize("verb", ["list", "watch", "delete"])
def test_a_mistake_is_an_error_of_the_server_without_a_reason(stocked: Place, verb: str) -> None:
    method = "DELETE" if verb == "delete" else "GET"
    for selector in MISTAKES:
        query = {"shardSelector": selector, **({"watch": "1"} if verb == "watch" else {})}
        status = refusal(stocked.api, method, stocked.path(), query=query)
        message = status.pop("message")
        assert message.startswith("invalid shard selector: "), (selector, message)
        failure = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500}
        assert status == failure, selector


# ---- Servers without the feature gate.


@pytest.mark.parametrize("selector", [of(FIRST, bound(1)), "wrong"])
def test_without_the_feature_gate_shards_are_ignored_in_silence(place: Place, selector: str) -> None:
    place.create("a", "b")
    listed = place.listed(shardSelector=selector)
    assert names_of(listed) == ["a", "b"]
    assert listed["metadata"].keys() == place.listed()["metadata"].keys()
    with place.watch(shardSelector=selector, **INITIAL) as watch:
        *events, _ = watch.until(lambda event: event["type"] == "BOOKMARK")
    assert sorted(seen(events)) == [("ADDED", "a"), ("ADDED", "b")]
    with place.watch(shardSelector=selector, resourceVersion=listed["metadata"]["resourceVersion"]) as watch:
        place.delete("a")
        assert seen(take(watch, 1)) == [("DELETED", "a")]
    assert names_of(place.api.request("DELETE", place.path(), query={"shardSelector": selector})) == ["b"]
    assert place.names() == []
