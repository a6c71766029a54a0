"""`Cached(..., outside='metadata')`: outer streams have the identity of all other objects in the namespaces
of the filter, and each `get` there has an exact answer."""

from __future__ import annotations

import asyncio
from itertools import combinations, product
from typing import Any

import pytest

from kopf_selectcache import AnyOf, Cached, NotFound, OutsideFilter, ReadError, Selector
from kopf_selectcache.cache.snapshots import Snapshot
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.errors import DeclarationError
from kopf_selectcache.settings.declaration import Selectors
from kopf_selectcache.settings.namespaces import MOST_NAMES, outer_streams
from kopf_selectcache.settings.planner import Stream, plan
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import Reason
from tests.both_sides import on_both_sides
from tests.gated import gated
from tests.rows import each_row

Obj = dict[str, Any]
PODS = find("pods")
assert PODS is not None
RESOURCE = Resource(PODS, "v1")


def pod(name: str, node: str = "n1", namespace: str = "shop", **labels: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    }


def cache_of(filter_: Any = "app=web", **options: Any) -> FakeCache:
    objects = [pod("web-1", app="web"), pod("db-1", node="n2", app="db"), pod("other", namespace="blog")]
    return FakeCache(objects, {"v1/pods": Cached(filter_, outside="metadata", **options)})


def where_is(cache: Any, name: str, namespace: str = "shop") -> str:
    try:
        cache.get("pods", name, namespace=namespace)
    except NotFound:
        return "absent"
    except OutsideFilter as error:
        return str(error.reason)
    return "inside"


# ---- The plan.


@each_row(
    ("filter_", "opposite"),
    [
        ("app=web", "app!=web"),
        ("app!=web", "app=web"),
        ("app in (web,www)", "app notin (web,www)"),
        ("app notin (web,www)", "app in (web,www)"),
        ("app", "!app"),
        ("!app", "app"),
        (Selector(fields="status.phase=Running"), "status.phase!=Running"),
        (Selector(fields="status.phase!=Running"), "status.phase=Running"),
        (Selector(names=["a", "b"]), "metadata.name!=a,metadata.name!=b"),
        (Selector(fields="metadata.name=a"), "metadata.name!=a"),
        (["app=web", "app=db"], "app!=web,app!=db"),
        (["app=web", "!tier"], "app!=web,tier"),
    ],
)
def test_a_filter_of_single_requirements_has_the_opposite_selector(filter_: Any, opposite: str) -> None:
    (outer,) = outer_streams(Cached(filter_).filter)
    assert str(outer.selector.labels or outer.selector.fields) == opposite
    assert outer.others == ()


@each_row(
    "filter_",
    [
        "app=web,tier=gold",
        "size>5",
        ["app=web", "app=db,tier=gold"],
        ["app=web", Selector(names=[f"n-{number}" for number in range(MOST_NAMES + 1)])],
        Selector("app=web", names=["a"]),
        Selector(names=[f"n-{number}" for number in range(MOST_NAMES + 1)]),
    ],
)
def test_any_other_filter_has_a_stream_of_all_metadata_without_its_objects(filter_: Any) -> None:
    filter_ = Cached(filter_).filter
    (outer,) = outer_streams(filter_)
    assert outer.selector == Selector()
    assert len(outer.others) == len(filter_.branches)


@each_row(
    ("filter_", "outer"),
    [
        (
            Selector("app=web", fields="status.phase=Running"),
            ["labels='app!=web'", "labels='app=web', fields='status.phase!=Running'"],
        ),
        (
            Selector("app=web,tier=gold", fields="status.phase=Running"),
            ["everything", "labels='app=web,tier=gold', fields='status.phase!=Running'"],
        ),
        (
            [Selector("app=web"), Selector(fields="status.phase=Running")],
            ["labels='app!=web', fields='status.phase!=Running'"],
        ),
        (
            Selector(fields="status.phase=Running,spec.nodeName!=n1"),
            ["fields='spec.nodeName=n1'", "fields='spec.nodeName!=n1,status.phase!=Running'"],
        ),
        (
            [
                Selector("app=web", fields="status.phase=Running"),
                Selector("app=db", fields="status.phase=Failed"),
            ],
            [
                "labels='app!=web,app!=db'",
                "labels='app=db,app!=web', fields='status.phase!=Failed'",
                "labels='app=web,app!=db', fields='status.phase!=Running'",
            ],
        ),
        (
            Selector(fields="status.phase=Running", names=["a", "b"]),
            [
                "fields='metadata.name!=a,metadata.name!=b'",
                "fields='status.phase!=Running', names=['a', 'b']",
            ],
        ),
        (
            [Selector("app", fields="status.phase=Running", names=[name]) for name in "ab"],
            [
                "everything",
                "labels='app', fields='status.phase!=Running', names=['b']",
                "labels='app', fields='status.phase!=Running', names=['a']",
            ],
        ),
    ],
)
def test_a_field_beside_other_requirements_has_a_stream_of_the_objects_that_fail_it(
    filter_: Any, outer: list[str]
) -> None:
    found = outer_streams(Cached(filter_).filter)
    assert [str(each.selector) for each in found] == outer


BRANCHES: list[Selector] = [
    Selector("app=web"),
    Selector("app=web,tier=gold"),
    Selector("tier", namespaces=["shop"]),
    Selector(names=["a"]),
    Selector("app!=web", names=["a"], namespaces=["shop", "blog"]),
    Selector(fields="status.phase=Running"),
    Selector("app=web", fields="status.phase=Running"),
    Selector("app in (web,db)", fields="status.phase!=Running,spec.nodeName=n1"),
    Selector("!tier", fields="spec.nodeName=n1", namespaces=["shop"]),
    Selector(fields="status.phase=Running", names=["a"], namespaces=["blog"]),
    Selector(fields="metadata.name=b,spec.nodeName!=n1"),
]


@pytest.mark.parametrize("joined", [False, True])
def test_each_object_is_in_the_filter_or_in_an_outer_stream(joined: bool) -> None:
    objects = [
        ({"app": app, "tier": tier}, {"status.phase": phase, "spec.nodeName": node}, namespace, name)
        for app, tier, phase, node, namespace, name in product(
            ("web", "db", ""), ("gold", ""), ("Running", "Failed"), ("n1", "n2"), ("shop", "blog"), "ab"
        )
    ]
    known = [
        (
            Record(space, name, "u", "5", {key: value for key, value in labels.items() if value}, (), b""),
            {**fields, "metadata.name": name, "metadata.namespace": space},
        )
        for labels, fields, space, name in objects
    ]
    for number in (1, 2):
        for branches in combinations(BRANCHES, number):
            split = Cached([*branches]).filter
            planned = plan(split, RESOURCE, is_split=True)
            filter_ = planned.filter
            outer = [
                Stream(each.selector, True, each.others) for each in outer_streams(filter_, joined=joined)
            ]
            for record, fields in known:
                inside = any(each.failed(record.labels, fields) is None for each in split.branches)
                held = [each for each in outer if holds(each, record, fields)]
                expected = not inside and planned.proves(record.namespace)
                assert bool(held) is expected, (branches, record, fields, held)


def holds(stream: Stream, record: Record, fields: dict[str, str]) -> bool:
    sent = stream.selector.in_namespaces(None)
    return (
        sent.failed(record.labels, fields) is None
        and stream.keys.have(record.key)
        and not stream.keys.is_other(record)
    )


def test_outer_streams_count_among_the_streams() -> None:
    spaces = [f"ns-{number}" for number in range(60)]
    filter_ = Selector("app=web", namespaces=spaces)
    planned = plan(filter_, RESOURCE, is_split=True)
    (outer,) = [each for each in planned.streams if each.is_outside]
    assert (outer.namespace, outer.keys.namespaces, len(planned.streams)) == (None, frozenset(spaces), 61)
    assert planned.joined == (outer,)
    assert len(plan(filter_, RESOURCE, is_split=True, joins=False).streams) == 120


@each_row(
    ("filter_", "options"),
    [
        ([Selector(f"app-{number}", fields=f"spec.nodeName=n{number}") for number in range(5)], {}),
        ("app=web", {"outside": "all"}),
    ],
)
def test_a_filter_that_takes_too_many_streams_cannot_be_split(filter_: Any, options: Any) -> None:
    with pytest.raises(DeclarationError, match="outside"):
        Cached(filter_, **({"outside": "metadata"} | options))


# ---- Reads.


FILTERS: list[Any] = [
    "app=web",
    "app=web,app!=x",
    Selector(fields="spec.nodeName=n1", namespaces=["shop"]),
    Selector("app=web", namespaces=["shop", *(f"ns-{number}" for number in range(60))]),
    [Selector("app=web", namespaces=["shop"]), Selector("app=www", namespaces=["shop"])],
    Selector("app=web", fields="spec.nodeName=n1"),
    [Selector("app", fields="spec.nodeName=n1"), Selector("app=www", names=["web-1"])],
]


@each_row("filter_", FILTERS)
def test_each_object_is_inside_outside_or_absent(filter_: Any) -> None:
    cache = cache_of(filter_)
    assert [where_is(cache, name) for name in ("web-1", "db-1", "none")] == ["inside", "outside", "absent"]
    assert [cache.exists("pods", name, namespace="shop") for name in ("web-1", "db-1", "none")] == [
        True,
        True,
        False,
    ]
    assert [each["metadata"]["name"] for each in cache.list_cached("pods")] == ["web-1"]
    cache.cluster.delete(pod("db-1"), grace_period=0)
    assert where_is(cache, "db-1") == "absent"
    cache.cluster.delete(pod("web-1"), grace_period=0)
    assert where_is(cache, "web-1") == "absent"


def test_the_error_has_the_labels_and_those_that_the_filter_requires() -> None:
    with pytest.raises(OutsideFilter) as raised:
        cache_of("app=web,tier=gold").get("pods", "db-1", namespace="shop", default=None)
    error = raised.value
    assert (error.reason, error.labels, error.wanted) == (Reason.OUTSIDE, {"app": "db"}, ("app=web",))
    assert error.uid
    plain = FakeCache([pod("db-1", app="db")], {"v1/pods": "app=web"})
    with pytest.raises(OutsideFilter) as raised:
        plain.get("pods", "db-1", namespace="shop")
    assert (raised.value.reason, raised.value.labels, raised.value.uid) == (Reason.HIDDEN, None, "")
    with pytest.raises(OutsideFilter):
        plain.exists("pods", "db-1", namespace="shop")


@each_row(
    ("filter_", "wanted"),
    [
        (Selector("app=db", fields="spec.nodeName=n1"), ("spec.nodeName=n1",)),
        (
            Selector("app=db", fields="spec.nodeName=n1,status.phase!=x"),
            ("spec.nodeName=n1,status.phase!=x",),
        ),
        (Selector(fields="spec.nodeName=n1"), ("spec.nodeName=n1",)),
        (Selector("app=web", fields="spec.nodeName=n1"), ("app=web",)),
        (
            [Selector("app=web"), Selector("app=db", fields="spec.nodeName=n1")],
            ("app=web", "spec.nodeName=n1"),
        ),
        (Selector(fields="spec.nodeName=n1,metadata.name=x"), ("name=x",)),
    ],
)
def test_a_field_that_no_metadata_shows_is_required_if_the_labels_fit(
    filter_: Any, wanted: tuple[str, ...]
) -> None:
    with pytest.raises(OutsideFilter) as raised:
        cache_of(filter_).get("pods", "db-1", namespace="shop")
    assert (raised.value.reason, raised.value.wanted) == (Reason.OUTSIDE, wanted)


def test_outside_of_its_namespaces_nothing_is_known() -> None:
    cache = cache_of(Selector("app=web", namespaces=["shop"]))
    assert where_is(cache, "other", "blog") == "excluded"
    with pytest.raises(OutsideFilter):
        on_both_sides(cache, "pods")
    assert on_both_sides(cache, "pods", namespace="shop") == 2
    with pytest.raises(OutsideFilter):
        on_both_sides(cache, "pods", namespace="blog")


def test_hidden_objects_are_found_by_owner_and_labels_with_the_terms_they_fail() -> None:
    cache = cache_of("app=web,tier!=old")
    owner = cache.get("pods", "web-1", namespace="shop")
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": owner["metadata"]["uid"]}
    child = pod("child", app="web", tier="old")
    child["metadata"]["ownerReferences"] = [reference]
    cache.cluster.create(child)
    (found,) = cache.list_outside("pods", owner=owner)
    assert (found.namespace, found.name, found.labels) == ("shop", "child", {"app": "web", "tier": "old"})
    assert (found.wanted, found.owners) == (("tier!=old",), (owner["metadata"]["uid"],))
    assert found.version == cache.cluster.get(child)["metadata"]["resourceVersion"]
    assert sorted(each.name for each in cache.list_outside("pods")) == ["child", "db-1", "other"]
    assert [each.name for each in cache.list_outside("pods", names=["db-1", "web-1"])] == ["db-1"]
    assert [each.name for each in cache.list_outside("pods", namespace="blog")] == ["other"]
    assert cache.list_outside("pods", labels="app=none") == []
    with cache.snapshot("pods") as now:
        cache.cluster.patch(pod("db-1"), {"metadata": {"labels": {"app": "web"}}})
        assert [each.name for each in cache.list_outside("pods", namespace="shop")] == ["child"]
        assert sorted(each.name for each in now.list_outside("pods", namespace="shop")) == ["child", "db-1"]
    with pytest.raises(ReadError):
        cache.list_outside("pods", owner={"metadata": {}})
    with pytest.raises(OutsideFilter):
        FakeCache([], {"v1/pods": "app=web"}).list_outside("pods")
    with pytest.raises(OutsideFilter):
        cache_of(Selector("app=web", namespaces=["shop"])).list_outside("pods")


def test_an_object_that_left_is_not_gone() -> None:
    cache = cache_of()
    uid = cache.get("pods", "web-1", namespace="shop")["metadata"]["uid"]
    cache.cluster.patch(pod("web-1"), {"metadata": {"labels": {"app": "db"}}})
    assert not cache.blocking.is_deleted("pods", "web-1", namespace="shop", uid=uid)
    assert not cache.blocking.is_deleted("pods", "web-1", namespace="shop")
    cache.cluster.delete(pod("web-1"), grace_period=0)
    assert cache.blocking.is_deleted("pods", "web-1", namespace="shop", uid=uid)


def test_own_writes_are_shown_on_the_side_where_they_are() -> None:
    cache = cache_of()
    live = cache.blocking.live
    live.create(pod("db-2", app="db"))
    assert where_is(cache, "db-2") == "outside"
    assert on_both_sides(cache, "pods") == 4
    live.patch("pods", "db-2", {"metadata": {"labels": {"app": "web"}}}, namespace="shop")
    assert where_is(cache, "db-2") == "inside"
    live.delete("pods", "db-2", namespace="shop", grace_period=0)
    assert where_is(cache, "db-2") == "absent"


async def test_an_own_write_that_fails_a_field_is_outside() -> None:
    declared = Cached(Selector("app=db", fields="spec.nodeName=n1"), outside="metadata")
    async with gated(declared, pod("db-1", app="db")) as environment:
        await environment.cut()
        environment.cache.remember(*environment.cluster.create(pod("db-2", node="n2", app="db")))
        with pytest.raises(OutsideFilter) as raised:
            environment.cache.get("pods", "db-2", namespace="shop")
        assert (raised.value.reason, raised.value.wanted) == (Reason.OUTSIDE, ("spec.nodeName=n1",))


def test_a_snapshot_has_both_sides_as_they_were() -> None:
    cache = cache_of()
    with cache.snapshot("pods") as now:
        cache.cluster.delete(pod("web-1"), pod("db-1"), grace_period=0)
        assert (where_is(cache, "web-1"), where_is(cache, "db-1")) == ("absent", "absent")
        assert (where_is(now, "web-1"), where_is(now, "db-1"), where_is(now, "x")) == (
            "inside",
            "outside",
            "absent",
        )
        assert (on_both_sides(now, "pods"), on_both_sides(cache, "pods")) == (3, 1)


async def test_a_cache_is_split_and_joined_by_a_change() -> None:
    cache = FakeCache([pod("web-1", app="web"), pod("db-1", app="db")], {"v1/pods": "app=web"})
    assert where_is(cache, "db-1") == "hidden"
    await cache.declare("pods", "app=web", outside="metadata", replace=True)
    assert where_is(cache, "db-1") == "outside"
    await cache.declare("pods", "app=db", replace=True)
    assert [where_is(cache, name) for name in ("web-1", "db-1")] == ["outside", "inside"]
    await cache.declare("pods", "app=db", outside=None, replace=True)
    assert where_is(cache, "web-1") == "hidden"


@pytest.mark.parametrize("wanted", [{}, {"labels": "app=web"}])
@pytest.mark.parametrize("is_split", [True, False])
async def test_6_a_departure_is_known_from_the_streams_that_there_were(
    is_split: bool, wanted: dict[str, Any]
) -> None:
    """The filter is split, or joined, before the departure is delivered."""
    split, plain = Cached("app=web", outside="metadata"), Cached("app=web")
    before, after = (split, plain) if is_split else (plain, split)
    cache = FakeCache([pod("web-1", app="web"), pod("web-2", app="web")], {"v1/pods": before})
    changes = cache.changes("pods", **wanted, initial=False)
    first = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    cache.cluster.patch(pod("web-1"), {"metadata": {"labels": {"app": "db"}}})
    cache.cluster.delete(pod("web-2"), grace_period=0)
    assert not cache.list_cached("pods")
    await cache.declare("pods", after, replace=True)
    seen = [await first, await anext(changes)]
    assert [(each.name, str(each.cause), each.known_by) for each in seen] == (
        [("web-1", "left", "metadata"), ("web-2", "deleted", "metadata")]
        if is_split
        else [("web-1", "left", None), ("web-2", "left", None)]
    )


async def test_6_an_object_that_the_next_filter_finds_outside_is_known_to_exist() -> None:
    cache = FakeCache([pod("web-1", app="web"), pod("db-1", app="db")], {"v1/pods": "app=web"})
    changes = cache.changes("pods", initial=False)
    first = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    await cache.declare("pods", "app=db", outside="metadata", replace=True)
    left = await first
    assert (left.name, str(left.cause), left.filter_changed, left.known_by) == (
        "web-1",
        "left",
        True,
        "metadata",
    )
    await anext(changes)
    await cache.declare("pods", "app=web", outside=None, replace=True)
    left = await anext(changes)
    assert (left.name, str(left.cause), left.filter_changed, left.known_by) == (
        "db-1",
        "left",
        True,
        None,
    )


@pytest.mark.parametrize("outside", ["metadata", None])
async def test_6_an_object_that_does_not_match_any_more_is_known_to_exist_because_it_is_held(
    outside: Any,
) -> None:
    gold = pod("web-1", app="web", tier="gold")
    cache = FakeCache([gold], {"v1/pods": Cached("app=web", outside=outside)})
    changes = cache.changes("pods", labels="tier=gold", initial=False)
    first = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    cache.cluster.patch(gold, {"metadata": {"labels": {"tier": "iron"}}})
    left = await first
    assert (str(left.cause), left.known_by, len(cache.list_cached("pods"))) == ("left", "cache", 1)


# ---- With streams.


async def test_each_namespace_has_its_own_sides() -> None:
    declared = Cached(Selector("app=web", namespaces=["shop", "infra"]), outside="metadata")
    objects = [pod("web-1", app="web"), pod("db-1", app="db"), pod("db-1", namespace="infra", app="db")]
    async with gated(declared, *objects) as environment:
        cache = environment.cache
        names = ("web-1", "db-1", "none")
        assert [where_is(cache, name) for name in names] == ["inside", "outside", "absent"]
        assert on_both_sides(cache, "pods", namespace="shop") == 2


def test_an_object_that_enters_between_two_looks_is_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Snapshot, "get", lambda *_: (None, "1"))
    assert cache_of().exists("pods", "web-1", namespace="shop", max_age=60)


def test_a_split_cache_stays_one_with_a_filter_that_is_added() -> None:
    selectors = Selectors()
    selectors.add("v1/pods", Cached("app=web", outside="metadata"))
    selectors.add("v1/pods", "app=db")
    assert selectors["v1/pods"] == AnyOf(["app=web", "app=db"])
    assert selectors.cached("v1/pods").outside == "metadata"
