"""Filters that choose namespaces by label: their streams, rights and declarations, without a server."""

from __future__ import annotations

from typing import Any, cast

import kopf
import pytest

from kopf_selectcache import (
    EVERYTHING,
    UNSET,
    BadSelector,
    Cached,
    DeclarationError,
    Key,
    LabelSelector,
    OutsideFilter,
    Selector,
    settings_of,
)
from kopf_selectcache.core.selection.kinds import Kind, Resource, find
from kopf_selectcache.errors import ConflictingSelectors
from kopf_selectcache.selectors.selector import labels_of_namespaces
from kopf_selectcache.settings.declaration import checked, select_alike
from kopf_selectcache.settings.namespaces import assemble, namespaces_in
from kopf_selectcache.settings.planner import of_cache, plan
from kopf_selectcache.testing import FakeCache
from tests.rows import each_row

TENANT, TRIAL = LabelSelector.parse("tenant=yes"), LabelSelector.parse("trial")
PODS = find("pods")
assert PODS is not None
RESOURCE = Resource(PODS, "v1")


def streams(filter_: Any, *, namespaces: Any = None, **labelled: set[str]) -> list[str]:
    """Return the streams of a filter, where `tenant` and `trial` are the namespaces with the labels."""
    sets = {TENANT: labelled.get("tenant", set()), TRIAL: labelled.get("trial", set())}
    planned = plan(filter_, RESOURCE, namespaces=namespaces, labelled=sets)
    return sorted(str(each.selector) for each in planned.streams)


def test_1_only_watched_namespaces_are_served() -> None:
    found = streams(Selector(namespaces=TENANT), namespaces=["blog", "infra"], tenant={"shop", "blog"})
    assert found == ["namespaces=['blog']"]


def test_the_filter_of_no_namespace_covers_nothing_and_names_the_label() -> None:
    planned = plan(Selector("app=web", namespaces=TENANT), RESOURCE, labelled={TENANT: ()})
    assert not planned.filter.covers(Selector("app=web", namespaces=["shop"]))
    assert planned.filter.disjoint(Selector())
    assert str(planned.filter) == "labels='app=web', namespaces=[] (those with tenant=yes)"
    assert repr(planned.filter) == "Selector(labels='app=web', namespaces=LabelSelector.parse('tenant=yes'))"
    assert planned.labels == (TENANT,)
    assert planned.filter.contradiction() is None


def test_the_rights_are_those_of_all_namespaces_and_to_follow_them() -> None:
    planned = plan(Selector("app=web", namespaces=TENANT), RESOURCE)
    assert [str(right) for right in of_cache(RESOURCE, planned)] == [
        "list, watch namespaces",
        "list, watch pods",
    ]
    confined = plan(Selector(namespaces=TENANT), RESOURCE, namespaces=["shop"])
    assert [str(right) for right in of_cache(RESOURCE, confined)] == [
        "list, watch namespaces",
        "list, watch pods in shop",
    ]


def test_an_unresolved_selector_is_compared_with_nothing() -> None:
    by_label = Selector("app=web", namespaces=TENANT)
    for compare in (
        lambda: by_label.covers(Selector()),
        lambda: Selector().covers(by_label),
        lambda: by_label.disjoint(Selector()),
        lambda: by_label.matches(name="a"),
        by_label.query,
    ):
        with pytest.raises(BadSelector, match="only the cluster knows"):
            compare()
    assert by_label.contradiction() is None


def test_selectors_are_equal_if_their_labels_are() -> None:
    assert Selector(namespaces=TENANT) == Selector(namespaces=LabelSelector.from_dict({"tenant": "yes"}))
    assert Selector(namespaces=TENANT) != Selector(namespaces=TRIAL) != Selector()
    alike = [Cached([Selector(namespaces=each), "app=web"]) for each in (TENANT, TRIAL)]
    assert not select_alike(*alike, kind=PODS)
    assert select_alike(alike[0], Cached(["app=web", Selector(namespaces=TENANT)]), kind=PODS)


# ---- Declarations.


def test_a_kind_may_choose_namespaces_by_label_in_each_place() -> None:
    for declared in (
        Selector("app=web", namespaces=TENANT),
        Cached("app=web", namespaces=TENANT),
        Cached(Selector("app=web", namespaces=TENANT)),
    ):
        settings = settings_of(kopf.OperatorSettings())
        settings.selectors["pods"] = declared
        assert settings.effective("pods").filter == Selector("app=web", namespaces=TENANT)


def test_default_namespaces_by_label_are_inherited_but_by_cluster_scoped_kinds() -> None:
    settings = settings_of(kopf.OperatorSettings())
    settings.defaults.namespaces = TENANT
    assert str(settings.defaults) == "Defaults(namespaces=LabelSelector.parse('tenant=yes'))"
    settings.selectors["pods"] = "app=web"
    settings.selectors["secrets"] = Cached("", namespaces=["shop"])
    settings.selectors["configmaps"] = Cached("", namespaces=EVERYTHING)
    settings.selectors["nodes"] = Selector(fields="metadata.name!=a")
    settings.selectors["services"] = Selector(fields="metadata.namespace=shop")
    settings.selectors["example.com/v1/things"] = Selector()
    labels = {key: labels_of_namespaces(settings.effective(key).filter) for key in settings.selectors}
    assert {key for key, found in labels.items() if found} == {"pods", "example.com/v1/things"}
    wide = Resource(Kind.unknown("example.com", "Thing", "things", namespaced=False), "v1")
    planned = settings.effective("example.com/v1/things").plan(wide, namespaces=None)
    assert (planned.labels, len(planned.streams)) == ((), 1)


@each_row(
    ("declare", "error"),
    [
        (lambda: Selector(namespaces=LabelSelector.parse("")), BadSelector),
        (lambda: Cached("", namespaces=cast("Any", {TENANT: "app=web"})), BadSelector),
        (lambda: Cached("", namespaces=cast("Any", ["shop", TENANT])), BadSelector),
        (lambda: Cached("", namespaces={"shop": Selector(namespaces=TENANT)}), BadSelector),
        (lambda: checked("pods", PODS, Cached(Selector(namespaces=TENANT), namespaces=["a"])), BadSelector),
        (lambda: checked("nodes", find("nodes"), Selector(namespaces=TENANT)), ConflictingSelectors),
        (lambda: checked("pods", PODS, Selector("a,!a", namespaces=TENANT)), ConflictingSelectors),
    ],
)
def test_other_combinations_are_refused(declare: Any, error: type[DeclarationError]) -> None:
    with pytest.raises(error):
        declare()


def test_default_entries_with_selectors_are_refused_beside_a_label() -> None:
    entries = namespaces_in({"shop": "app=web"})
    with pytest.raises(ConflictingSelectors, match="by name"):
        assemble(Selector(namespaces=TENANT), default_namespaces=entries, kind=PODS)
    names = namespaces_in({"shop": UNSET})
    assembled = assemble(Selector(namespaces=TENANT), default_namespaces=names, kind=PODS)
    assert assembled.filter == Selector(namespaces=TENANT)


# ---- The fake cache.


def pod(name: str, namespace: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def namespace(name: str, **labels: str | None) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def test_a_fake_cache_follows_the_labels_of_its_namespaces() -> None:
    objects = [namespace("shop", tenant="yes"), pod("a", "shop"), pod("b", "blog")]
    cache = FakeCache(objects, {"pods": Selector(namespaces=TENANT)})
    assert cache.list_cached("pods").keys() == [Key("a", namespace="shop")]
    cache.cluster.patch(namespace("blog"), {"metadata": {"labels": {"tenant": "yes"}}})
    assert sorted(cache.list("pods", namespace=["shop", "blog"]).keys()) == [
        Key("b", namespace="blog"),
        Key("a", namespace="shop"),
    ]
    cache.cluster.patch(namespace("shop"), {"metadata": {"labels": {"tenant": None}}})
    with pytest.raises(OutsideFilter):
        cache.get("pods", "a", namespace="shop")
    cache.cluster.delete(pod("b", "blog"))
    cache.cluster.delete(namespace("blog"))
    with pytest.raises(OutsideFilter):
        cache.list_cached("pods")
    cache.blocking.declare("pods", Selector(namespaces=TRIAL), replace=True)
    cache.cluster.patch(namespace("shop"), {"metadata": {"labels": {"trial": ""}}})
    assert cache.list_cached("pods").keys() == [Key("a", namespace="shop")]
    assert "(those with trial)" in str(cache.info("pods").filter)
    cache.blocking.undeclare("pods")
    cache.blocking.declare("pods", Cached("app=web", namespaces=TRIAL))
    assert cache.list_cached("pods").keys() == []


def test_a_read_in_a_namespace_with_the_label_that_is_not_watched_is_outside() -> None:
    objects = [namespace("shop", tenant="yes"), namespace("blog", tenant="yes"), pod("a", "shop")]
    declared = {"pods": [Selector("app=web", namespaces=TENANT), Selector("app=db", namespaces=["infra"])]}
    cache = FakeCache(objects, declared, namespaces=["shop"])
    for space in ("blog", "infra"):
        with pytest.raises(OutsideFilter):
            cache.get("pods", "a", namespace=space)
    with pytest.raises(OutsideFilter):
        cache.list_cached("pods", namespace=["x", "y"])
    with pytest.raises(OutsideFilter):
        cache.list_cached("pods", labels="app=db", namespace=["shop", "blog"])
