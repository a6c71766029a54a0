"""Reads answer from inside the filter, or say why they cannot: the table of reads, its messages, and what
reads return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import AnyOf, FieldSelector, Key, LabelSelector, OutsideFilter, Selector
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.store.packing import Packing
from kopf_selectcache.errors import Stalled
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import Reason
from tests.rows import each_row

from .environment import Environment, names, pod, reading

WEB = pod("web-1", app="web")
GOLD = pod("web-2", app="web", tier="gold")
HELD = {"web-1", "web-2"}

Read = Callable[[Cache], Any]


def web() -> Cache:
    return reading("app=web", WEB, GOLD)


def outside(read: Callable[[], Any]) -> OutsideFilter:
    with pytest.raises(OutsideFilter) as info:
        read()
    return info.value


# ---- The table: which read is answered in which case.

HARD = AnyOf(
    [
        Selector(f"p{one}=h{hole},p{two}=h{hole}")
        for one in range(8)
        for two in range(one)
        for hole in range(7)
    ]
)
"""Pigeons in holes: whether they cover this request would take more boxes than are allowed."""
PIGEONS = ",".join(f"p{pigeon} in ({','.join(f'h{hole}' for hole in range(7))})" for pigeon in range(8))


@each_row(
    ("label", "expected"),
    [
        ("app=web,tier=gold", {"web-2"}),  # Covered.
        ("app=web,app=db", set()),  # Covered: nothing can be so.
        ("app=db", Reason.EXCLUDED),  # Disjoint.
        ("tier=gold", Reason.OVERLAPS),
        ("app in (web,db)", Reason.OVERLAPS),
        (None, Reason.OVERLAPS),
    ],
)
def test_list_is_complete_or_an_error(label: str | None, expected: set[str] | Reason) -> None:
    if isinstance(expected, set):
        assert set(names(web().list("pods", labels=label))) == expected
        assert web().count("pods", labels=label) == len(expected)
    else:
        for read in (web().list, web().count):
            # Mypy infers no lambda with a default.
            error = outside(lambda read=read: read("pods", labels=label))  # type: ignore[misc]
            assert error.reason is expected
            assert error.witness is not None


@each_row(
    ("label", "expected"),
    [
        ("app=web,tier=gold", {"web-2"}),
        ("app=web,app=db", set()),
        ("app=db", Reason.EXCLUDED),
        ("tier=gold", {"web-2"}),
        ("app in (web,db)", HELD),
        (None, HELD),
    ],
)
def test_held_is_the_held_part_unless_there_can_be_none(
    label: str | None, expected: set[str] | Reason
) -> None:
    if isinstance(expected, set):
        assert set(names(web().list_cached("pods", labels=label))) == expected
    else:
        assert outside(lambda: web().list_cached("pods", labels=label)).reason is expected


def test_an_undecided_list_is_refused_and_names_the_bound() -> None:
    cache = reading(HARD)
    error = outside(lambda: cache.list("pods", labels=PIGEONS))
    assert (error.reason, error.witness) == (Reason.UNDECIDED, None)
    assert cache.list_cached("pods", labels=PIGEONS) == []


def test_an_undecided_get_is_refused_and_names_the_bound() -> None:
    """With a branch for each pigeon that sits elsewhere, everything is covered; and to see that takes too
    many boxes."""
    elsewhere = [Selector(f"p{pigeon} notin (h0,h1,h2,h3,h4,h5,h6)") for pigeon in range(8)]
    error = outside(lambda: reading(AnyOf([*HARD.branches, *elsewhere])).get("pods", "x", namespace="ns"))
    assert error.reason is Reason.UNDECIDED


# ---- The literal outcomes.


@pytest.mark.parametrize("name", ["db-1", "nope"])
def test_get_cannot_tell_absent_from_hidden_and_says_so(name: str) -> None:
    error = outside(lambda: web().get("pods", name, namespace="ns"))
    assert error.reason is Reason.HIDDEN
    assert error.witness is not None
    assert (error.witness.name, error.witness.namespace) == (name, "ns")


def test_a_default_does_not_stand_for_a_hidden_object() -> None:
    error = outside(lambda: web().get("pods", "db-1", namespace="ns", default=None))
    assert error.reason is Reason.HIDDEN


# ---- Messages in other cases.


@each_row("several", [False, True], ids=["one watch", "several"])
@each_row("name", ["a/b", "web-*", "", "x" * 300])
def test_an_object_that_no_object_can_be_called_is_never_there(name: str, several: bool) -> None:
    environment = Environment()
    environment.declare(Selector(namespaces=["ns"])).hold(WEB).has_several_streams = several
    assert environment.cache().get("pods", name, namespace="ns", default=None) is None
    assert not environment.cache().exists("pods", name, namespace="ns")


# ---- What reads return.


def test_a_caller_gets_objects_of_its_own() -> None:
    cache = reading(Selector(), WEB)
    for _ in range(2):
        for taken in (
            cache.get("pods", "web-1", namespace="ns"),
            *cache.list("pods"),
            *cache.list_cached("pods"),
        ):
            assert taken == WEB
            taken["metadata"]["labels"]["app"] = "spoilt"
            taken["spec"].clear()


def test_selectors_are_texts_dicts_or_objects() -> None:
    cache = reading("app=web", WEB, GOLD)
    labels = (
        "app=web,tier=gold",
        {"app": "web", "tier": ["gold", "silver"]},
        LabelSelector.parse("app=web,tier=gold"),
    )
    for label in labels:
        assert names(cache.list("pods", labels=label)) == ["web-2"]
    fields = ("metadata.name=web-1", {"metadata.name": "web-1"}, FieldSelector.parse("metadata.name=web-1"))
    for field in fields:
        assert names(cache.list_cached("pods", fields=field)) == ["web-1"]


def test_a_post_filter_does_not_make_a_read_complete() -> None:
    cache = web()
    assert (
        outside(lambda: cache.list("pods", where={"metadata.labels": {"app": "web"}})).reason
        is Reason.OVERLAPS
    )
    assert names(cache.list("pods", labels="app=web", where={"metadata.labels.tier": "gold"})) == ["web-2"]


def test_a_limit_of_zero_returns_no_object_and_checks_the_read_as_any_other() -> None:
    environment = Environment()
    informer = environment.declare(Selector("app=web")).hold(WEB, GOLD)
    cache = environment.cache()
    for sort_by in (None, "metadata.name"):
        assert cache.list("pods", labels="app=web", sort_by=sort_by, limit=0) == []
        assert cache.list_cached("pods", sort_by=sort_by, limit=0) == []
        with pytest.raises(OutsideFilter):
            cache.list("pods", sort_by=sort_by, limit=0)
    informer.fail(Stalled("it is stalled", remedy="Wait"))
    with pytest.raises(Stalled):
        cache.list_cached("pods", limit=0)


def test_exists_is_false_only_where_it_is_proved() -> None:
    cache = reading(Selector(namespaces=["ns"]), WEB)
    assert cache.exists("pods", "web-1", namespace="ns") is True
    assert cache.exists("pods", "nope", namespace="ns") is False
    assert outside(lambda: web().exists("pods", "nope", namespace="ns")).reason is Reason.HIDDEN


# ---- Asking about the cache.


def test_age_is_that_of_the_last_word_of_the_server() -> None:
    assert web().info("pods").age == 1.5


def test_the_info_shows_the_filter_the_state_and_the_memory() -> None:
    info = reading(Selector("app=web", namespaces=["a"]), pod("x", "a", app="web")).info("pods")
    assert info.filter == Selector("app=web", namespaces=["a"])
    assert (info.state, info.trouble, info.objects, info.version) == ("synced", "", 1, "10")
    assert info.memory.objects == 1
    assert info.bytes > info.memory.stored > 0
    assert str(info) == "pods with labels='app=web', namespaces=['a']: 1 object, 2 s old, synced"


def test_explain_shows_the_requests_of_a_read() -> None:
    assert (
        str(web().explain("pods", labels="tier=gold"))
        == "labels='tier=gold' is not covered by labels='app=web': default/example (tier=gold) would fail"
        " app=web; labels='app=web,tier=gold' would be covered.\nThe cache looks at 2 cached"
        " objects.\nfetch_list asks the server: GET /api/v1/pods?labelSelector=tier=gold."
        "\nThe cache is at version 10, confirmed 1.5 s ago."
    )
    assert web().explain("pods").asks == ("/api/v1/pods",)
    assert "\nThe cache looks at 1 cached object." in str(reading("app=web", WEB).explain("pods"))


def test_an_object_that_is_read_often_is_unpacked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FakeCache([WEB], {"pods": ""})
    key, packing = Key.of(WEB), Packing(always=True)
    (record,) = cache._access.runtime.informer("pods").state.store.records()[0]
    record.replace(packing.pack(record.data + b" " * 200), packing)
    found = [cache.get("pods", key) for _ in range(2)]
    monkeypatch.setattr(packing, "unpack", lambda _: pytest.fail("it is unpacked again"))
    assert [cache.get("pods", key), *found] == 3 * [found[0]]
    assert found[0] is not found[1]
