"""The defaults as users assign them: which values are refused, and which namespaces may be declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import (
    ALL_OTHERS,
    EVERYTHING,
    UNSET,
    BadSelector,
    Cached,
    DeclarationError,
    Defaults,
    Selector,
)
from kopf_selectcache.errors import ConflictingSelectors, NotSelectable
from kopf_selectcache.settings.options import SelectCacheSettings
from tests.rows import each_row

# What mypy would not let through.
WRONG: Any = 5


@each_row(
    ("name", "value"),
    [
        ("labels", "app in web"),
        ("labels", None),
        ("labels", WRONG),
        ("fields", {}),
        ("namespaces", "shop"),
        ("namespaces", WRONG),
        ("namespaces", ["Shop"]),
        ("namespaces", []),
        ("namespaces", ()),
        ("namespaces", [WRONG]),
        ("namespaces", {"shop": Selector(namespaces=["shop"])}),
        ("namespaces", {"shop": Cached("app=web", keep=["spec"])}),
        ("namespaces", {"shop": None}),
        ("keep", "spec"),
        ("drop", ["metadata.name"]),
        ("drop", EVERYTHING),
        ("transform", WRONG),
        ("storage", "small"),
        ("max_bytes", "200"),
        ("page_limit", 0),
        ("audit_interval", 1),
        ("label", "app=web"),
        ("bogus", 1),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(name: str, value: Any) -> None:
    defaults = Defaults()
    with pytest.raises(DeclarationError) as caught:
        setattr(defaults, name, value)
    assert f"settings.selectcache.defaults.{name}" in caught.value.what or "no option" in caught.value.what
    assert repr(defaults) == "Defaults()"


def test_an_option_that_does_not_exist_cannot_be_read() -> None:
    defaults: Any = Defaults()
    with pytest.raises(DeclarationError):
        _ = defaults.label
    with pytest.raises(AttributeError):
        _ = defaults._hidden


def test_defaults_cannot_be_replaced() -> None:
    settings: Any = SelectCacheSettings()
    for other in ({"labels": "app=web"}, Defaults(labels="app=web")):
        with pytest.raises(DeclarationError):
            settings.defaults = other
    settings.defaults = settings.defaults
    given = SelectCacheSettings(defaults=Defaults(labels="app=web"))
    with given.selectors.in_use(), pytest.raises(DeclarationError):
        given.defaults.labels = "app=db"


def test_defaults_are_final_once_the_operator_has_started() -> None:
    settings = SelectCacheSettings()
    settings.defaults.labels = "app=web"
    copied = settings.with_defaults(page_limit=7)
    assert copied.defaults is settings.defaults
    with settings.selectors.in_use():
        settings.defaults.labels = "app=web"  # The same again changes nothing.
        with pytest.raises(DeclarationError):
            settings.defaults.labels = "app=db"
    settings.defaults.labels = "app=db"


@each_row(
    ("declare", "error"),
    [
        (lambda select: select.update(nodes=Cached("", namespaces=["shop"])), ConflictingSelectors),
        (lambda select: select.update(nodes=Cached("", namespaces={})), ConflictingSelectors),
        (lambda select: select.update(nodes=Selector(namespaces=["shop"])), ConflictingSelectors),
        (
            lambda select: select.update(pods=Cached(Selector(namespaces=["a"]), namespaces=["b"])),
            BadSelector,
        ),
        (lambda select: select.update(pods=Cached("", namespaces=[])), BadSelector),
        (lambda select: select.update(pods=Cached("", namespaces={"a": "x=1,x=2"})), ConflictingSelectors),
        (
            lambda select: select.update(pods=Cached("", namespaces={"a": Selector(fields="spec.bogus=1")})),
            NotSelectable,
        ),
    ],
)
def test_namespaces_of_a_kind_that_make_no_sense_are_refused(
    declare: Callable[[Any], None], error: type[Exception]
) -> None:
    with pytest.raises(error):
        declare(SelectCacheSettings().selectors)


def test_a_default_that_does_not_fit_a_kind_is_refused_at_the_start() -> None:
    settings = SelectCacheSettings()
    settings.defaults.fields = "spec.nodeName=n1"
    settings.selectors["pods"] = "app=web"
    settings.selectors["secrets"] = "app=web"
    assert settings.effective("pods").filter == Selector("app=web", fields="spec.nodeName=n1")
    with pytest.raises(NotSelectable) as caught:
        settings.effective("secrets")
    assert "secrets" in caught.value.what
    assert "settings.selectcache.defaults" in caught.value.what


def test_namespaces_are_a_list_or_a_dict() -> None:
    defaults = Defaults()
    defaults.namespaces = ["b", "a", ALL_OTHERS]
    assert str(defaults.namespaces) == "['a', 'b', ALL_OTHERS]"
    defaults.namespaces = {"b": {"app": "web"}, ALL_OTHERS: EVERYTHING, "a": UNSET}
    assert (
        str(defaults.namespaces)
        == "{'a': UNSET, 'b': labels='app=web', ALL_OTHERS: labels=EVERYTHING, fields=EVERYTHING}"
    )
    defaults.namespaces = {}
    assert str(defaults.namespaces) == "{}"
    assert [str(each) for each in (UNSET, EVERYTHING, ALL_OTHERS)] == ["UNSET", "EVERYTHING", "ALL_OTHERS"]


def test_20_the_paths_of_a_kind_are_its_own_without_those_of_the_defaults_and_the_identity() -> None:
    settings = SelectCacheSettings()
    settings.defaults.keep = ["data"]
    settings.selectors["v1/pods"] = "app=web"
    settings.selectors["v1/secrets"] = Cached("app=web", keep=["metadata.labels.app", "type"])
    assert settings.effective("v1/pods").projection.keep == (("data",),)
    assert settings.effective("v1/pods").own_paths == ()
    assert settings.effective("v1/secrets").own_paths == (("type",),)
    assert Cached("app=web", keep=["type"]).own_paths == (("type",),)
