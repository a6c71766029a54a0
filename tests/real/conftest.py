"""Gives the tests of this folder their real API server, and keeps them out of the default run."""
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from tests.apiserver.build import AssetsError, NoServer, find_assets
from tests.apiserver.server import ApiServer

FOLDER = Path(__file__).parent
OUTCOME = pytest.StashKey[Path | NoServer | AssetsError]()


def without_server(reason: str, environ: Mapping[str, str] = os.environ) -> NoReturn:
    """Skip where a developer has no server; fail in CI, where that would go unnoticed for ever."""
    if environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(tryfirst=True)   # Before pytest deselects by markers.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.real)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build here what must be built: it takes longer than any test may, and its progress is to be seen."""
    if session.config.option.collectonly or not any(item.path.is_relative_to(FOLDER) for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            session.config.stash[OUTCOME] = find_assets()
        except (NoServer, AssetsError) as outcome:
            session.config.stash[OUTCOME] = outcome


@pytest.fixture(scope="session")
def assets(pytestconfig: pytest.Config) -> Path:
    """The folder with kube-apiserver, etcd and kubectl."""
    match pytestconfig.stash[OUTCOME]:
        case NoServer() as outcome:
            without_server(str(outcome))
        case AssetsError() as outcome:
            raise outcome
        case folder:
            return folder


@pytest.fixture(scope="session")
def real_api(assets: Path) -> Iterator[ApiServer]:
    """The API server that all tests share: use fresh namespaces, restart nothing, expire nothing."""
    with ApiServer(assets=assets) as server:
        yield server


@pytest.fixture
def start_api(assets: Path) -> Iterator[Callable[..., ApiServer]]:
    """Start servers of the test's own, with the parameters of ApiServer; they end with the test."""
    servers: list[ApiServer] = []

    def start(*, feature_gates: Mapping[str, bool] | None = None, flags: Mapping[str, str] | None = None) -> ApiServer:
        servers.append(ApiServer(feature_gates=feature_gates, flags=flags, assets=assets))
        return servers[-1]

    try:
        yield start
    finally:
        for server in servers:
            server.stop()
