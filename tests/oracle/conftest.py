"""Gives the live tests the Go toolchain, or says what is missing."""

import os

import pytest

from tests.apiserver.build import Go
from tests.oracle.golang import NoGo, find_go


@pytest.fixture(scope="session")
def go() -> Go:
    try:
        return find_go()
    except NoGo as error:
        missing = str(error)
    # Where every test is meant to run, a skipped one would look like a passed one.
    if os.environ.get("CI") == "true":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)
