import pytest

from .asking import Asked


@pytest.fixture
def api() -> Asked:
    return Asked()
