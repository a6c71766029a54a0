"""Says which API servers there are, and gives them to tests: `--api`, the real one built, the embedded one
started.

Tests that need the real one are marked `real`: they run where that is asked for, and never in the default
run."""

import gc
import inspect
import os
import signal
import sys
from asyncio import selector_events
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from kopf_selectcache.testing import EmbeddedCluster
from tests import certificates
from tests.apiserver.build import AssetsError, NoServer, find_assets, version_of
from tests.apiserver.cluster import Cluster
from tests.apiserver.server import ApiServer
from tests.canaries import Canaries
from tests.conformance.kubeconfig import from_environment
from tests.faults.environment import run
from tests.faults.hurried import VirtualTime

# How long it takes is no matter of a test: machines are shared.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")
if os.environ.get("CI"):
    # Its examples are the same in each run there, but for constants of whichever of our modules are loaded.
    providers._get_local_constants = lambda: providers._local_constants
certificates.leave_out(os.environ)

OUTCOME = pytest.StashKey[Path | NoServer | AssetsError]()
VERSION = pytest.StashKey[tuple[int, int]]()  # Of the real API server, where there is one.
KOPF = version("kopf")
FOLDER = Path(__file__).parent
REAL_FOLDERS = {"clients", "conformance", "differential", "feed", "real"}
SERVERS = {"embedded": pytest.param("embedded"), "real": pytest.param("real", marks=pytest.mark.real)}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--api",
        choices=["embedded", "real", "kubeconfig"],
        help=(
            "Run what holds on any API server on this one alone: the embedded one, the real one of the tests,"
            " or (of tests/conformance/) the cluster of $KUBECONFIG, where they make namespaces of their own."
            " Without it: on the embedded one, and with `-m real` on the real one."
        ),
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "since(version, why): skipped on a real API server that is older than this version of Kubernetes.",
    )
    config.addinivalue_line(
        "markers", "since_kopf(version, why): skipped with a Kopf that is older than this version."
    )
    # Here, since tests elsewhere import what bears it.
    config.addinivalue_line(
        "markers",
        "needs(what): more of a cluster than a namespace that the test makes: not with --api=kubeconfig.",
    )
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts jobs in the background so, and all that tests start would ignore Ctrl-C as well.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    canaries, patch = Canaries(), pytest.MonkeyPatch()
    canaries.settle(patch)
    config.pluginmanager.register(canaries, "canaries")
    config.add_cleanup(patch.undo)


@hypothesis.settings(max_examples=1, database=None)
@hypothesis.given(hypothesis.strategies.none())
def _draw(_: None) -> None:
    """Draw something."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Put what is collected out of reach of the garbage collector: many tests ask it to run, and would have
    it look at all the others."""
    gc.disable()  # Modules and tests stay.
    try:
        return (yield)
    finally:
        _draw()  # Hypothesis asks the collector once for its source of randomness, and must find it.
        gc.collect()
        gc.freeze()
        gc.enable()
        # What tests write themselves and load is often another text in the same second, of the same size:
        # bytecode would be the former's.
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on a loop of its own, or in the virtual time of a fixture."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    limit = pyfuncitem.get_closest_marker("timeout")
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    test = pyfuncitem.obj(**given)
    if times := [each for each in pyfuncitem.funcargs.values() if isinstance(each, VirtualTime)]:
        times[0].run(test)
    elif limit is not None:
        run(test, seconds=limit.args[0])
    else:
        run(test)
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        only = metafunc.config.getoption("--api")
        both = [SERVERS[each] for each in getattr(metafunc.module, "RUNS_ON", SERVERS)]
        metafunc.parametrize("server", [only] if only else both, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)  # Before pytest deselects by markers.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test of the real server that `make test-real` would not find. A soak may take an hour."""
    for item in items:
        if item.get_closest_marker("soak") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))
        if item.get_closest_marker("real") and item.path.relative_to(FOLDER).parts[0] not in REAL_FOLDERS:
            raise pytest.UsageError(f"{item.nodeid}: add its folder to REAL of the Makefile, and here")


def without_server(reason: str, environ: Mapping[str, str] = os.environ) -> NoReturn:
    """Skip where a developer has no server; fail in CI, where that would go unnoticed for ever."""
    if environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the servers here: a build takes longer than a test may, and the user sees its progress."""
    if session.config.option.collectonly or not any(map(_is_real, session.items)):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            assets = find_assets()
            session.config.stash[VERSION] = version_of(assets)
            session.config.stash[OUTCOME] = assets
        except (NoServer, AssetsError) as outcome:
            session.config.stash[OUTCOME] = outcome


@pytest.hookimpl(tryfirst=True)  # Before any fixture starts a server.
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("since_kopf"):
        needed, why = mark.args
        if is_older(KOPF, needed):
            pytest.skip(f"needs Kopf {needed}, and this is {KOPF}: {why}")
    kubernetes = item.config.stash.get(VERSION, None)
    if kubernetes is None or not _is_real(item):
        return
    for mark in item.iter_markers("since"):
        needed, why = mark.args
        if kubernetes < tuple(map(int, needed.split("."))):
            pytest.skip(f"needs Kubernetes {needed}: {why}")


def is_older(version: str, needed: str) -> bool:
    """Return True if a released version comes before another one.

    >>> is_older("1.44.6", "1.45"), is_older("1.45.0", "1.45"), is_older("1.100", "1.45")
    (True, False, False)
    """
    return tuple(map(int, version.split("."))) < tuple(map(int, needed.split(".")))


def _is_real(item: pytest.Item) -> bool:
    return item.get_closest_marker("real") is not None or item.config.getoption("--api") == "real"


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
def kubernetes(assets: Path) -> tuple[int, int]:
    """The version of the real API server: `(1, 36)`."""
    return version_of(assets)


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> str:
    """Which API server it is: `embedded`, `real` or `kubeconfig`."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def api(server: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A client of the server, as its admin. All tests share it: use fresh namespaces and groups, expire
    nothing."""
    if server == "real":
        yield request.getfixturevalue("real_api")
    elif server == "kubeconfig":
        with from_environment() as cluster:
            yield cluster
    else:
        with closing(client_of(request.getfixturevalue("embedded"))) as cluster:
            yield cluster


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedCluster]:
    """The embedded server that all tests share. Like the real one here, it has no controllers."""
    with EmbeddedCluster(garbage_collection=False).in_thread() as cluster:
        yield cluster


def client_of(embedded: EmbeddedCluster) -> Cluster:
    return Cluster(embedded.url, ca_file=embedded.ca_file, token=embedded.token)


@pytest.fixture(scope="session")
def real_api(assets: Path) -> Iterator[ApiServer]:
    """The API server that all tests share: use fresh namespaces, restart nothing, expire nothing."""
    with ApiServer(assets=assets) as server:
        yield server


@pytest.fixture
def start_api(assets: Path) -> Iterator[Callable[..., ApiServer]]:
    """Start servers of the test's own, with the parameters of ApiServer; they end with the test."""
    servers: list[ApiServer] = []

    def start(
        *, feature_gates: Mapping[str, bool] | None = None, flags: Mapping[str, str] | None = None
    ) -> ApiServer:
        servers.append(ApiServer(feature_gates=feature_gates, flags=flags, assets=assets))
        return servers[-1]

    try:
        yield start
    finally:
        for server in servers:
            server.stop()


@pytest.fixture(autouse=True)
def _collect_sockets() -> Iterator[None]:
    """Collect garbage after a test that leaves a file open: an unclosed socket fails this test, and not a
    later one.

    What still belongs to a loop that is closed is closed here: Kopf's runner for tests leaves sockets, and
    threads that know of them."""
    before = _open_files()
    yield
    if _open_files() - before:
        gc.collect()
        for transport in [
            each
            for each in gc.get_objects()
            if type(each) is selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
        ]:
            if transport._sock is not None and transport._loop.is_closed():
                transport._sock.close()
                transport._sock = None


def _open_files() -> set[tuple[str, int]]:
    """The files that this process has open, by number and inode: a number is used again."""
    found = set()
    for each in Path("/dev/fd").iterdir():  # On Linux and macOS.
        with suppress(OSError):  # The listing itself is closed by now.
            found.add((each.name, each.stat().st_ino))
    return found


@pytest.fixture
def counted(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Takes a line that is to stand in the summary of the run, whether or not the test passes: how much was
    tried."""
    return lambda line: record_property("counted", line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    lines = [
        str(value)
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == "counted"
    ]
    if lines:
        terminalreporter.section("counted")
    for line in lines:
        terminalreporter.write_line(line)
