"""Keeps the tests of this folder out of the default run, but for those that are of the embedded API server as
well."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.client import Client
from tests.canaries import seeded

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # Before pytest deselects by markers.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER) and not _is_of_any_server(item):
            item.add_marker(pytest.mark.real)


@pytest.fixture(autouse=True)
def _canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the canary into the Secrets that tests create, which on a real server nobody else does."""

    def request(client: Client, method: str, path: str, *, body: object = None, **options: Any) -> Any:
        if method == "POST" and path.endswith("/secrets") and isinstance(body, Mapping):
            body = {**seeded({**body, "kind": "Secret"}), "apiVersion": "v1"}
        return send(client, method, path, body=body, **options)

    send = Client.request
    monkeypatch.setattr(Client, "request", request)


def _is_of_any_server(item: pytest.Item) -> bool:
    """Whether it says for itself on which server it runs."""
    return isinstance(item, pytest.Function) and "server" in item.fixturenames
