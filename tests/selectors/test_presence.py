"""`kopf.PRESENT` and `kopf.ABSENT` as values of labels and fields, and values that only Kopf itself takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import (
    BadSelector,
    FieldSelector,
    LabelSelector,
    Objects,
    ReadError,
    SelectCacheError,
    Selector,
    predicates,
)
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.errors import ConflictingSelectors
from kopf_selectcache.plugin.on import change_handlers
from kopf_selectcache.settings.options import Defaults
from kopf_selectcache.testing import FakeCache
from tests.cache.environment import pod
from tests.rows import each_row

MIXED: dict[str, Any] = {"app": "web", "tier": ["a", "b"], "team": kopf.PRESENT, "old": kopf.ABSENT}
AS_TEXT = "app=web,tier in (a,b),team,!old"
ON_A_NODE = {"spec.nodeName": kopf.PRESENT}
ON_NO_NODE = {"spec.nodeName": kopf.ABSENT}

FITS = pod("fits", app="web", tier="b", team="")


def names(found: Objects[Any]) -> list[str]:
    return sorted(key.name for key in found.keys())  # noqa: SIM118  # It is no dict.


PODS = [
    FITS,
    pod("another-app", app="db", tier="b", team="x"),
    pod("another-tier", app="web", tier="c", team="x"),
    pod("no-team", app="web", tier="a"),
    pod("old", app="web", tier="a", team="x", old=""),
]


def test_a_selector_of_a_dict_is_that_of_its_text() -> None:
    assert Selector(labels=MIXED) == Selector(labels=AS_TEXT)
    assert LabelSelector.from_dict(MIXED) == LabelSelector.parse(AS_TEXT)
    assert FieldSelector.from_dict(ON_A_NODE) == FieldSelector.parse("spec.nodeName!=")
    assert FieldSelector.from_dict(ON_NO_NODE) == FieldSelector.parse("spec.nodeName=")
    assert Selector(MIXED, fields=ON_A_NODE).query() == {
        "labelSelector": "app=web,!old,team,tier in (a,b)",
        "fieldSelector": "spec.nodeName!=",
    }


def test_1_filters_and_reads_select_by_present_or_absent_labels() -> None:
    cache = FakeCache(PODS, {"v1/pods": MIXED})
    assert names(cache.list("pods", labels=MIXED)) == ["fits"] == names(cache.list_cached("pods"))
    cache = FakeCache(PODS, {"v1/pods": ""})
    assert names(cache.list("pods", labels=MIXED)) == ["fits"]
    assert names(cache.blocking.fetch_list("pods", labels=MIXED)) == ["fits"]
    assert names(cache.list_cached("pods", labels={"team": kopf.ABSENT})) == ["no-team"]
    assert cache.count("pods", labels={"old": kopf.PRESENT}) == 1
    assert len(cache.blocking.live.list("pods", labels={"old": kopf.ABSENT})) == 4
    with pytest.raises(selectcache.OutsideFilter):
        FakeCache(PODS, {"v1/pods": {"team": kopf.PRESENT}}).list("pods", labels={"team": kopf.ABSENT})


def test_1_fields_that_are_present_or_absent_are_selected_as_by_the_server() -> None:
    placed = pod("placed") | {"spec": {"nodeName": "node01"}}
    cache = FakeCache([placed, pod("waiting") | {"spec": {}}], {"v1/pods": ""})
    for fields, name in ((ON_A_NODE, "placed"), (ON_NO_NODE, "waiting")):
        assert names(cache.list("pods", fields=fields)) == [name]
        found = cache.blocking.live.list("pods", fields=fields)
        assert [each["metadata"]["name"] for each in found] == [name]


@pytest.mark.parametrize("never", [{"spec.hostNetwork": kopf.ABSENT}, {"metadata.name": kopf.ABSENT}])
def test_a_filter_by_the_absence_of_a_field_that_always_has_a_value_is_refused(never: Any) -> None:
    with pytest.raises(ConflictingSelectors):
        FakeCache([], {"v1/pods": Selector(fields=never)})


def test_handlers_predicates_and_defaults_take_them_as_well() -> None:
    registry = kopf.OperatorRegistry()

    @selectcache.on.change("pods", labels=MIXED, fields=ON_A_NODE, registry=registry)
    def follow(**_: Any) -> None: ...

    assert [each.selector for each in change_handlers(registry)] == [
        Selector(AS_TEXT, fields="spec.nodeName!=")
    ]
    found = predicates.labelled(MIXED)
    assert [found.admits(Change.of("updated", each, each)) for each in PODS] == [
        True,
        False,
        False,
        False,
        False,
    ]
    defaults = Defaults()
    defaults.labels, defaults.fields = MIXED, ON_NO_NODE
    assert "labels='app=web,!old,team,tier in (a,b)', fields='spec.nodeName='" in repr(defaults)


# ---- What only Kopf's filters take.


def _is_web(value: str, **_: Any) -> bool:
    return value == "web"


@pytest.mark.parametrize("value", [None, _is_web, str], ids=["None", "a callback", "a class"])
@each_row(
    ("error", "give"),
    [
        (BadSelector, lambda each: Selector(labels={"app": each})),
        (BadSelector, lambda each: Selector(fields={"spec.nodeName": each})),
        (ReadError, lambda each: FakeCache([], {"v1/pods": ""}).list("pods", labels={"app": each})),
        (ReadError, lambda each: FakeCache([], {"v1/pods": ""}).list("pods", fields={"spec.nodeName": each})),
        (BadSelector, lambda each: selectcache.on.change("pods", labels={"app": each})),
        (BadSelector, lambda each: predicates.labelled({"app": each})),
        (SelectCacheError, lambda each: setattr(Defaults(), "labels", {"app": each})),
    ],
)
def test_20_a_callback_or_none_as_a_value_names_where(
    error: type[SelectCacheError], give: Callable[[Any], Any], value: Any
) -> None:
    with pytest.raises(error) as info:
        give(value)
    assert "where=" in info.value.remedy
    assert "kopf.ABSENT" in info.value.remedy
