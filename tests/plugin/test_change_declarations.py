"""The declaration of handlers of changes: arguments, registries, and kinds that must be declared."""

from __future__ import annotations

import functools
from typing import Any, cast

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError
from kopf_selectcache.plugin.on import (
    check_change_handlers,
)
from kopf_selectcache.testing import FakeCache
from tests.kopf_operators import declaring, started
from tests.told import told


@pytest.mark.parametrize(
    ("declared", "options"),
    [
        ({"secrets": "app=web"}, {"labels": "app=db"}),
        ({"pods": "app=web"}, {"labels": "app=web,app=db"}),
        ({"pods": "app=web"}, {"kind": "nodes", "namespace": "shop"}),
        ({"secrets": "app=web"}, {"fields": "spec.nope=1"}),
    ],
)
def test_a_handler_that_would_never_be_called_is_refused_at_the_start(
    registry: kopf.OperatorRegistry, declared: Any, options: dict[str, Any]
) -> None:
    options = {"kind": "secrets"} | options

    @selectcache.on.change(options.pop("kind"), registry=registry, id="the-one", **options)
    async def follow(**_: Any) -> None: ...

    with pytest.raises(DeclarationError, match="the-one"):
        started(registry, declaring(**declared))


@pytest.mark.parametrize(
    "options",
    [
        {"entered": 1},
        {"initial": "no"},
        {"entered": False, "updated": False, "left": False, "deleted": False},
        {"labels": "app=("},
        {"where": {"": 1}},
        {"where": len},
        {"where": 5},
        {"where": {5: 1}},
        {"where": ["a"]},
        {"where": "text"},
        {"where": {"spec.x": [{"y": len}]}},
        {"where": {"spec.x": {1: 2}}},
        {"namespace": 5},
        {"namespace": []},
        {"namespace": "A_B"},
        {"id": 5},
        {"id": ""},
        {"errors": "permanent"},
        {"timeout": "5"},
        {"timeout": 0},
        {"retries": "5"},
        {"retries": 0},
        {"retries": True},
        {"retries": -1},
        {"backoff": "5"},
        {"backoff": -1},
        {"registry": 5},
        {"when": lambda **_: True},
        {"nope": True},
    ],
)
def test_wrong_arguments_are_refused_at_once(registry: kopf.OperatorRegistry, options: Any) -> None:
    with pytest.raises(DeclarationError):
        selectcache.on.change("secrets", **{"registry": registry, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"field": "spec.x"},
        {"field": "spec.x", "value": 1},
        {"annotations": {"a": "b"}},
        {"old": 1},
        {"new": 1},
    ],
)
def test_20_a_filter_of_kopf_by_values_names_where(options: Any) -> None:
    with pytest.raises(DeclarationError) as info:
        selectcache.on.change("secrets", **options)
    assert "where=" in info.value.remedy


@pytest.mark.parametrize("options", [{"field": "spec.x"}, {"field": "spec.x", "value": 1}])
@pytest.mark.parametrize(
    "call",
    [
        selectcache.Selector,
        functools.partial(selectcache.on.change, "secrets"),
        functools.partial(FakeCache().list, "secrets"),
        functools.partial(FakeCache().explain, "secrets"),
    ],
    ids=["Selector", "on.change", "list", "explain"],
)
def test_20_field_of_kopf_names_fields_and_where(call: Any, options: Any) -> None:
    with pytest.raises((TypeError, DeclarationError)) as raised:
        call(**options)
    shown = told(raised.value)
    assert "Did you mean" not in shown
    assert "fields= takes fields that the server can select by" in shown
    assert "where={'spec.replicas': 3}" in shown


def test_a_value_that_cannot_be_a_handler_is_refused(registry: kopf.OperatorRegistry) -> None:
    decorate = selectcache.on.change("secrets", registry=registry)
    with pytest.raises(DeclarationError):
        decorate(7)  # type: ignore[type-var]  # That is the mistake.
    with pytest.raises(DeclarationError):
        decorate(selectcache.with_cache(lambda **_: None))


@pytest.mark.parametrize("key", ["secrets", "wa", "webapps.example.org", "example.com/v2/webapps"])
def test_a_kind_that_is_not_declared_may_be_declared_later(registry: kopf.OperatorRegistry, key: str) -> None:
    @selectcache.on.change(key, registry=registry, labels="app=web", namespace="shop")
    async def follow(**_: Any) -> None: ...

    check_change_handlers(registry, {"example.com/v1/webapps": selectcache.Selector("app=db")})


def function_of(parameters: str, body: str = "pass") -> Any:
    """Return a function with these parameters."""
    made: dict[str, Any] = {}
    exec(f"async def made({parameters}): {body}", made)  # Its text is above and below.  # noqa: S102
    return made["made"]


@pytest.mark.parametrize(
    "fn",
    [
        function_of("**_", "yield 1"),
        functools.partial(function_of("x, **_", "yield 1"), x=1),
        lambda **_: (yield 1),
        *map(
            function_of,
            (
                "cause, name",
                "patch, **_",
                "diff, **_",
                "memo, **_",
                "self, **_",
                "other, **_",
                "cause, /, **_",
            ),
        ),
    ],
)
def test_functions_that_could_not_be_called_are_refused(registry: kopf.OperatorRegistry, fn: Any) -> None:
    with pytest.raises(DeclarationError):
        selectcache.on.change("secrets", registry=registry)(fn)


def test_a_function_whose_parameters_are_unknown_is_taken(registry: kopf.OperatorRegistry) -> None:
    selectcache.on.change("secrets", registry=registry, id="any")(dict)


def test_the_kind_must_be_given(registry: kopf.OperatorRegistry) -> None:
    with pytest.raises(DeclarationError):
        selectcache.on.change(lambda **_: None, registry=registry)  # type: ignore[arg-type]  # The mistake.
    with pytest.raises(DeclarationError):
        cast("Any", selectcache.on).change("apps", "v1", "deployments")


def test_there_is_one_decorator() -> None:
    assert not hasattr(selectcache.on, "changes")
    assert not hasattr(selectcache.on, "__wrapped__")
