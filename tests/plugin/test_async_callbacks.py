"""Async callbacks, whose coroutines nobody awaits, and which would count as true."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import kopf
import pytest

from kopf_selectcache import DeclarationError, Watch, with_cache
from kopf_selectcache.plugin.hooks import checked
from kopf_selectcache.reactions.mapping import Function
from kopf_selectcache.reactions.predicates import predicate_of
from kopf_selectcache.settings.options import settings_of
from tests.kopf_operators import declaring


async def later(*_: Any, **__: Any) -> Any:
    return False


def now(*_: Any, **__: Any) -> Any:
    return False


class Later:
    async def __call__(self, *_: Any, **__: Any) -> Any:
        return False

    async def method(self, **_: Any) -> bool:
        return False


LATER: Any = later  # Type checkers would find the mistake.
ASYNC: dict[str, Any] = {
    "a function": later,
    "a partial": partial(later, extra=1),
    "an object": Later(),
    "a partial of an object": partial(Later(), extra=1),
    "a method": Later().method,
    "one that reads a cache": with_cache(later),
    "a partial of one that reads a cache": partial(with_cache(later), extra=1),
    "one of all": kopf.all_([now, LATER]),
    "one of any": kopf.any_([now, kopf.all_([LATER])]),
    "the opposite": kopf.not_(LATER),
    "none of": kopf.none_([LATER]),
}
CALLBACKS: dict[str, Callable[[Any, kopf.OperatorRegistry], object]] = {
    "when": lambda fn, registry: kopf.on.create("pods", when=fn, registry=registry),
    "when of a timer": lambda fn, registry: kopf.timer("pods", when=fn, interval=5, registry=registry),
    "when of an index": lambda fn, registry: kopf.index("pods", when=fn, registry=registry),
    "when of admission": lambda fn, registry: kopf.on.validate("pods", when=fn, registry=registry),
    "labels": lambda fn, registry: kopf.on.event("pods", labels={"app": fn}, registry=registry),
    "value": lambda fn, registry: kopf.on.event("pods", field="spec.x", value=fn, registry=registry),
    "old": lambda fn, registry: kopf.on.update("pods", field="spec.x", old=fn, registry=registry),
}


def registered(callback: str, fn: Any) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    decorate: Any = CALLBACKS[callback](fn, registry)
    decorate(with_cache(now))
    return registry


@pytest.mark.parametrize("fn", ASYNC.values(), ids=ASYNC)
def test_20_an_async_when_is_refused_in_each_form(fn: Any) -> None:
    with pytest.raises(DeclarationError, match=r"its when= is async \(test_async_callbacks\.py:\d+\)"):
        checked(declaring(nodes=""), registered("when", fn))


@pytest.mark.parametrize("callback", CALLBACKS)
def test_20_an_async_callback_is_refused_wherever_kopf_calls_one(callback: str) -> None:
    with pytest.raises(DeclarationError, match=rf"its {callback.partition(' ')[0]}= is async"):
        checked(declaring(nodes=""), registered(callback, later))


def test_20_an_operator_without_caches_is_warned_of_an_async_when(caplog: pytest.LogCaptureFixture) -> None:
    settings = kopf.OperatorSettings()
    with caplog.at_level(logging.WARNING):
        assert checked(settings, registered("when", later)) is None
        settings_of(settings)
        assert checked(settings, registered("when", later)) is None
    assert len(caplog.messages) == 2
    assert "its when= is async (test_async_callbacks.py:" in caplog.messages[0]


@pytest.mark.parametrize("fn", [later, partial(later), Later(), partial(Later())])
def test_20_an_async_predicate_is_refused_in_each_form(fn: Any) -> None:
    with pytest.raises(DeclarationError, match="a sync function that takes"):
        predicate_of(fn)
    with pytest.raises(DeclarationError, match="a sync function that takes"):
        Watch("pods", predicates=[fn])


@pytest.mark.parametrize("fn", [later, partial(later), Later(), partial(Later())])
def test_20_an_async_map_is_awaited_in_each_form(fn: Any) -> None:
    assert Function(fn).is_async
    assert not Function(now).is_async


@pytest.mark.parametrize("fn", [later, partial(later), Later(), partial(Later())])
def test_20_an_async_alert_is_refused_in_each_form(fn: Any) -> None:
    with pytest.raises(DeclarationError, match="is not async"):
        settings_of(kopf.OperatorSettings()).on_watch_error = fn
