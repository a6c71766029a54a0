"""A call that does not fit a signature raises an error of this library; all other TypeErrors pass."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache import DeclarationError, Selector
from kopf_selectcache.selectors.signatures import check_call


@check_call(DeclarationError, "declare")
def declare(name: str, *, limit: int = 0) -> int:
    return len(name) + limit


def test_a_call_that_fits_returns_its_result() -> None:
    assert declare("pods", limit=2) == 6


@pytest.mark.parametrize(
    ("options", "suggestion"), [({"limt": 1}, "Did you mean limit=? "), ({"x": 1}, ""), ({}, "")]
)
def test_a_call_that_does_not_fit_lists_the_arguments(options: dict[str, Any], suggestion: str) -> None:
    names = [] if not options else ["pods"]
    with pytest.raises(DeclarationError) as info:
        declare(*names, **options)
    assert info.value.remedy == f"{suggestion}It takes name, limit="


def test_a_type_error_of_the_function_itself_passes() -> None:
    unsized: Any = 1
    with pytest.raises(TypeError, match="len"):
        declare(unsized)


def test_a_selector_has_this_check() -> None:
    unknown: Any = {"lable": "app=web"}
    with pytest.raises(DeclarationError) as info:
        Selector(**unknown)
    assert "label=" in info.value.remedy
