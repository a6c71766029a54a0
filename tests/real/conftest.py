"""Keeps the tests of this folder out of the default run, but for those that are of the embedded API server as well."""
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)   # Before pytest deselects by markers.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER) and not _is_of_any_server(item):
            item.add_marker(pytest.mark.real)


def _is_of_any_server(item: pytest.Item) -> bool:
    """Whether it says for itself on which server it runs."""
    return isinstance(item, pytest.Function) and "server" in item.fixturenames
