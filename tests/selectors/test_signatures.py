"""A call that does not fit a signature raises an error of this library; all other TypeErrors pass."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache import Cached, DeclarationError, Selector
from kopf_selectcache.selectors.signatures import check_call


@check_call(DeclarationError, "declare")
def declare(name: str, *, limit: int = 0) -> int:
    return len(name) + limit


def test_a_call_that_fits_returns_its_result() -> None:
    assert declare("pods", limit=2) == 6


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"limt": 1}, "Did you mean limit=?"),
        ({"x": 1}, "It takes name, limit="),
        ({}, "It takes name, limit="),
    ],
)
def test_a_call_that_does_not_fit_names_the_likely_argument_or_lists_them_all(
    options: dict[str, Any], remedy: str
) -> None:
    names = [] if not options else ["pods"]
    with pytest.raises(DeclarationError) as info:
        declare(*names, **options)
    assert info.value.remedy == remedy


def test_an_unknown_argument_is_named_before_one_that_is_missing() -> None:
    unknown: Any = {"x": 1}
    with pytest.raises(DeclarationError, match="got an unexpected keyword argument 'x'"):
        declare(**unknown)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"label": "app=web"}, "The filter comes first: Cached(Selector(labels=...), keep=[...])"),
        ({"label_selector": "app=web"}, "The filter comes first: Cached(Selector(labels=...), keep=[...])"),
        ({"fields": "a=b"}, "The filter comes first: Cached(Selector(fields=...), keep=[...])"),
        ({"keep": ["spec"]}, "The filter comes first: a label selector"),
        ({"filter": "app=web", "keeping": ["spec"]}, "Did you mean keep=?"),
        ({"filter": "app=web", "annotations": "a"}, "It takes filter, keep=, "),
    ],
)
def test_20_a_cached_that_is_given_no_filter_says_where_it_comes(given: Any, remedy: str) -> None:
    with pytest.raises(DeclarationError) as info:
        Cached(**given)
    assert info.value.remedy.startswith(remedy)


def test_a_type_error_of_the_function_itself_passes() -> None:
    unsized: Any = 1
    with pytest.raises(TypeError, match="len"):
        declare(unsized)


def test_a_selector_has_this_check() -> None:
    unknown: Any = {"lable": "app=web"}
    with pytest.raises(DeclarationError) as info:
        Selector(**unknown)
    assert "labels=" in info.value.remedy
