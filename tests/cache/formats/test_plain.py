"""Values as plain JSON, for patches, return values and writes."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NoReturn

import msgspec
import pytest

from kopf_selectcache.cache.formats.given import plain
from kopf_selectcache.errors import InvalidObject


class Number(IntEnum):
    ONE = 1


def test_numbers_of_another_class_and_json_that_is_not_decoded_become_plain() -> None:
    values = [Number.ONE, *map(msgspec.Raw, (b"true", b"null", b"1"))]
    found = plain("the patch", values)
    assert [(type(each), each) for each in found] == [(int, 1), (bool, True), (type(None), None), (int, 1)]
    assert plain("it", {"a": None, "b": [2.5, (1e308, None), -0.0]}) == {
        "a": None,
        "b": [2.5, [1e308, None], -0.0],
    }


def test_a_value_that_is_nested_deeper_than_the_encoder_goes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How deep it goes depends on the version of Python."""

    def fail(_: Any) -> NoReturn:
        raise RecursionError

    monkeypatch.setattr(msgspec.json, "encode", fail)
    with pytest.raises(InvalidObject, match="nested too deeply"):
        plain("the patch", [[]])
