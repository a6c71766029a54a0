"""The functions that `with_cache` refuses to decorate, and the advice."""

from __future__ import annotations

from collections.abc import Callable
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
        lambda: WITH_CACHE(5),
        lambda: WITH_CACHE(with_cache(lambda **_: None)),
        lambda: WITH_CACHE(property(lambda _: None)),
        lambda: WITH_CACHE(kind=["pods"]),
        lambda: WITH_CACHE(Handlers.create, ["pods"]),
        lambda: WITH_CACHE(kinds=["v1/pods/status"]),
        lambda: WITH_CACHE(kinds=[5]),
        lambda: WITH_CACHE(kinds="pods"),
    ],
)
def test_an_invalid_handler_is_refused_where_it_stands(decorate: Callable[[], Any]) -> None:
    with pytest.raises(DeclarationError):
        decorate()


def _takes_cache(cache: Any, **_: Any) -> Any:
    return cache


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
