"""What `with_cache` refuses to decorate, and what it says to write instead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import kopf
import pytest

from kopf_selectcache import DeclarationError, with_cache
from tests.kopf_operators import declaring, started
from tests.rows import each_row

WITH_CACHE: Any = with_cache  # What mypy would not let through.


class Handlers:
    def create(self, **_: Any) -> None: ...


@each_row(
    "decorate",
    [
        lambda: WITH_CACHE(Handlers),
        lambda: WITH_CACHE("pods"),
        lambda: WITH_CACHE(["pods", "nodes"]),
        lambda: WITH_CACHE(property(lambda _: None)),
        lambda: WITH_CACHE(kind=["pods"]),
        lambda: WITH_CACHE(Handlers.create, ["pods"]),
        lambda: WITH_CACHE(kinds=["v1/pods/status"]),
        lambda: WITH_CACHE(kinds=[5]),
    ],
)
def test_what_is_no_handler_is_refused_where_it_stands(decorate: Callable[[], Any]) -> None:
    with pytest.raises(DeclarationError):
        decorate()


KOPFS: dict[str, Callable[..., Any]] = {
    "startup": kopf.on.startup,
    "cleanup": kopf.on.cleanup,
    "login": kopf.on.login,
    "probe": kopf.on.probe,
    "field": functools.partial(kopf.on.field, "pods", field="spec"),
    "timer": functools.partial(kopf.timer, "pods", interval=1),
    "create": functools.partial(kopf.on.create, "pods"),
    "update": functools.partial(kopf.on.update, "pods"),
    "delete": functools.partial(kopf.on.delete, "pods"),
    "resume": functools.partial(kopf.on.resume, "pods"),
    "event": functools.partial(kopf.on.event, "pods"),
    "index": functools.partial(kopf.index, "pods"),
    "validate": functools.partial(kopf.on.validate, "pods"),
    "mutate": functools.partial(kopf.on.mutate, "pods"),
    "daemon": functools.partial(kopf.daemon, "pods"),
}


@pytest.fixture
def _default_registry() -> Iterator[None]:
    before = kopf.get_default_registry()
    kopf.set_default_registry(kopf.OperatorRegistry())
    yield
    kopf.set_default_registry(before)


@pytest.mark.usefixtures("_default_registry")
@pytest.mark.parametrize("decorator", KOPFS.values(), ids=KOPFS)
def test_it_stands_below_every_decorator_of_kopf(decorator: Callable[..., Any]) -> None:
    with pytest.raises(
        DeclarationError,
    ):
        with_cache(decorator()(lambda **_: None))


def _takes_cache(cache: Any, **_: Any) -> Any:
    return cache


def _wrapped(cache: Any, **_: Any) -> Any:
    return cache


def _may_take_cache(cache: Any = None, **_: Any) -> Any:
    return cache


def _takes_index(index: Any, **_: Any) -> Any:
    return index


def _wraps_and_passes(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(**kwargs: Any) -> Any:
        return fn(cache=5, **kwargs)

    return call


@each_row(
    "decorator",
    [
        lambda registry: kopf.on.create("pods", id="h", registry=registry),
        lambda registry: kopf.on.validate("pods", id="h", registry=registry),
        lambda registry: kopf.index("pods", id="h", registry=registry),
        lambda registry: kopf.on.probe(id="h", registry=registry),
    ],
)
def test_a_handler_that_takes_a_cache_and_gets_none_is_refused_at_the_start(
    decorator: Callable[..., Any],
) -> None:
    registry = kopf.OperatorRegistry()
    decorator(registry)(_takes_cache)
    with pytest.raises(DeclarationError):
        started(registry, declaring(pods=""))


@each_row(
    "fn",
    [
        with_cache(_wrapped),
        _may_take_cache,
        _takes_index,
        lambda **_: None,
        functools.partial(_takes_cache, cache=5),
        _wraps_and_passes(_takes_cache),
        functools.partial(with_cache(_wrapped)),
        print,
    ],
)
def test_a_handler_that_can_be_called_is_taken(fn: Callable[..., Any]) -> None:
    registry = kopf.OperatorRegistry()
    kopf.on.create("pods", id="h", registry=registry)(fn)
    started(registry, declaring(pods=""))


def test_an_index_may_be_named_cache() -> None:
    registry = kopf.OperatorRegistry()
    kopf.index("pods", id="cache", registry=registry)(lambda **_: None)
    # Kopf's types know of no indices.
    kopf.on.create("pods", id="h", registry=registry)(_takes_cache)  # type: ignore[arg-type]
    started(registry, declaring(pods=""))


def test_where_it_stands_above_in_a_registry_of_its_own_the_start_ends_with_it() -> None:
    registry = kopf.OperatorRegistry()
    with_cache(kopf.on.create("pods", registry=registry, id="above")(lambda **_: None))
    with pytest.raises(DeclarationError):
        started(registry, declaring(pods=""))
