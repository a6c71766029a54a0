"""A plugin of pytest for one mutant: writes what failed, and whether it was a test's assertion. No crash and
no timeout is one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


def pytest_exception_interact(node: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    assert call.excinfo is not None
    error, place = call.excinfo.value, Path(str(call.excinfo.traceback[-1].path))
    # What a test was to see raised, and was not, is what it asserts.
    asserted = isinstance(error, AssertionError) or (
        isinstance(error, pytest.fail.Exception) and str(error).startswith("DID NOT RAISE")
    )
    said = next(iter(str(error).splitlines()), "")
    # An assertion of the product's own is a crash.
    asserted = asserted and "kopf_selectcache" not in place.parts[-3:]
    told = {"test": node.nodeid, "asserted": asserted, "error": type(error).__name__, "said": said}
    with Path(os.environ["MUTANT_OUTCOME"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")
    if asserted:
        node.session.shouldfail = "it is caught"
