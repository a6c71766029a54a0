"""Values as plain JSON, for patches, return values and writes."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec
import pytest

from kopf_selectcache.cache.formats.given import plain
from kopf_selectcache.errors import InvalidObject


def test_a_value_that_is_nested_deeper_than_the_encoder_goes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How deep it goes depends on the version of Python."""

    def fail(_: Any) -> NoReturn:
        raise RecursionError

    monkeypatch.setattr(msgspec.json, "encode", fail)
    with pytest.raises(InvalidObject, match="nested too deeply"):
        plain("the patch", [[]])
