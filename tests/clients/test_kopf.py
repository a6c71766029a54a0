"""Kopf itself: operators on the embedded API server do what they do on the real one.

Each runs in a thread of its own, as `kopf run`; its handlers tell the test what they were called for. What
comes of it is read from the server."""

import logging
import queue
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import kopf
import pytest
from kopf.testing import KopfRunner

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until
from tests.conformance.places import fresh_group

from .environment import SCHEMA, Environment

HANDLED = "kopf.zalando.org/last-handled-configuration"
PEERINGS = (("KopfPeering", "kopfpeerings", True), ("ClusterKopfPeering", "clusterkopfpeerings", False))

# A runner leaves the sockets of its loop to the garbage collector. (See conftest.py.)
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def environment(api: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """An environment with widgets of its own: operators with -A must not see those of other tests. Kopf
    finds it."""
    group = fresh_group("kopf")
    api.create_crd(
        group, "v1", "Widget", "widgets", schema=SCHEMA, selectable_fields=[".spec.color"], status=True
    )
    environment = Environment(api, api.namespace(prefix="kopf"), group, tmp_path)
    monkeypatch.setenv(
        "KUBECONFIG", str(environment.kubeconfig())
    )  # A registry looks for it when it is made.
    yield environment
    environment.clean_up()


@pytest.fixture
def widgets(environment: Environment) -> str:
    """The resource that the handlers are for."""
    return f"widgets.{environment.group}"


class Told:
    """The lines that handlers write, in order."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()

    def __call__(self, *words: Any) -> None:
        self._queue.put(words[0] if len(words) == 1 else words)

    def next(self, *, within: float = 60.0) -> Any:
        return self._queue.get(timeout=within)

    @property
    def is_empty(self) -> bool:
        return self._queue.empty()


@pytest.fixture
def told() -> Told:
    return Told()


Run = Callable[..., KopfRunner]


@pytest.fixture
def run(environment: Environment, registry: kopf.OperatorRegistry) -> Run:
    """Run an operator for the `with` block: of the registry's handlers, in the environment's namespace,
    unless options say otherwise."""
    empty = environment.folder / "operator.py"
    empty.write_text("")

    def runner(
        *options: str,
        registry: kopf.OperatorRegistry = registry,
        settings: kopf.OperatorSettings | None = None,
    ) -> KopfRunner:
        where = [] if {"-A", "-n"} & {*options} else ["-n", environment.namespace]
        settings = settings or kopf.OperatorSettings()
        settings.persistence.consistency_timeout = 60  # However slow the machine is.
        return KopfRunner(
            ["run", *where, *(options or ["--standalone"]), str(empty)],
            registry=registry,
            settings=settings,
            timeout=60,
        )

    return runner


def meta(environment: Environment, name: str = "w") -> Any:
    return environment.get("Widget", name)["metadata"]


def gone(environment: Environment, name: str = "w") -> bool:
    return name not in environment.names("Widget")


def settled(environment: Environment, name: str = "w") -> bool:
    """True once Kopf has written what follows the last handler."""
    return HANDLED in meta(environment, name).get("annotations", {})


def test_namespaces_that_match_a_pattern_are_served_as_they_come(
    environment: Environment, widgets: str, run: Run, told: Told
) -> None:
    @kopf.on.create(widgets)
    def created(namespace: str | None, **_: Any) -> None:
        told(namespace)

    with run("--standalone", "-n", f"{environment.namespace}*"):
        environment.create(environment.widget("w"))
        assert told.next() == environment.namespace
        other = Environment(
            environment.api,
            environment.api.namespace(prefix=environment.namespace),
            environment.group,
            environment.folder,
        )
        environment.api.request(
            "POST",
            f"/apis/{environment.group}/v1/namespaces/{environment.api.namespace(prefix='other')}/widgets",
            body={**environment.widget("w"), "metadata": {"name": "w"}},
        )
        other.create(other.widget("w"))
        # Kopf lists namespaces before it watches them: of one that comes in between, it hears with its next
        # change.
        heard = None
        while heard is None:
            environment.api.request(
                "PATCH",
                f"/api/v1/namespaces/{other.namespace}",
                body={"metadata": {"labels": {"heard": fresh_group("no")}}},
            )
            with suppress(queue.Empty):
                heard = told.next(within=2.0)
        assert heard == other.namespace


def test_a_kind_that_is_defined_later_is_served_as_it_comes(
    environment: Environment, run: Run, told: Told
) -> None:
    group = fresh_group("later")

    @kopf.on.create(group, "v1", "gadgets")
    def created(name: str, **_: Any) -> None:
        told(name)

    with run("--standalone", "-A"):
        environment.api.create_crd(group, "v1", "Gadget", "gadgets")
        environment.api.request(
            "POST",
            f"/apis/{group}/v1/namespaces/{environment.namespace}/gadgets",
            body={"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": "g"}},
        )
        # Kopf looks for kinds before it watches definitions: of one that comes in between, it hears with its
        # next change.
        heard = None
        while heard is None:
            environment.api.request(
                "PATCH",
                f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.{group}",
                body={"metadata": {"labels": {"heard": fresh_group("no")}}},
            )
            with suppress(queue.Empty):
                heard = told.next(within=2.0)
        assert heard == "g"


@pytest.mark.parametrize("everywhere", [False, True], ids=["KopfPeering", "ClusterKopfPeering"])
def test_of_two_operators_the_one_of_less_priority_pauses(
    environment: Environment,
    widgets: str,
    run: Run,
    told: Told,
    caplog: pytest.LogCaptureFixture,
    *,
    everywhere: bool,
) -> None:
    for kind, plural, namespaced in PEERINGS:
        with suppress(ApiError):  # It may have been defined before.
            environment.api.create_crd("kopf.dev", "v1", kind, plural, namespaced=namespaced)
    name = environment.namespace
    path = (
        "/apis/kopf.dev/v1/clusterkopfpeerings"
        if everywhere
        else f"/apis/kopf.dev/v1/namespaces/{name}/kopfpeerings"
    )
    kind = "ClusterKopfPeering" if everywhere else "KopfPeering"
    environment.api.request(
        "POST", path, body={"apiVersion": "kopf.dev/v1", "kind": kind, "metadata": {"name": name}}
    )

    def peers() -> set[int]:
        return {
            peer["priority"]
            for peer in environment.api.request("GET", f"{path}/{name}").get("status", {}).values()
            if peer
        }

    def operator(priority: int) -> KopfRunner:
        registry = type(kopf.get_default_registry())()

        @kopf.on.create(widgets, registry=registry)
        def created(name: str, **_: Any) -> None:
            told(priority, name)

        return run(
            "--priority", f"{priority}", "--peering", name, *(["-A"] if everywhere else []), registry=registry
        )

    def has_paused() -> bool:
        """Return True once an operator has closed its watches for the other one."""
        logged = [(each.thread, each.getMessage()) for each in caplog.records]
        for number, (thread, message) in enumerate(logged):
            if message.startswith("Pausing operations"):
                closed = (thread, "Pausing the watch-stream for widgets")
                return any((each, text[: len(closed[1])]) == closed for each, text in logged[number:])
        return False

    caplog.set_level(logging.DEBUG, logger="kopf._cogs.clients.watching")
    with operator(1):
        environment.create(environment.widget("a"))
        assert told.next() == (1, "a")
        wait_until(lambda: settled(environment, "a"), "it is handled")
        with operator(100):
            wait_until(lambda: peers() == {1, 100}, "both are there")
            wait_until(has_paused, "one has paused for the other")
            environment.create(environment.widget("b"))
            assert told.next() == (100, "b")
            wait_until(lambda: settled(environment, "b"), "it is handled")
        wait_until(lambda: peers() == {1}, "one has gone")
        environment.create(environment.widget("c"))
        assert told.next() == (1, "c")
    assert told.is_empty


# ---- What only the embedded server shows.


@pytest.fixture
def defined(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """A cluster of the test's own, which has widgets."""
    cluster.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
                ],
            },
        }
    )
    return cluster


def widget(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"color": "red"},
    }


@pytest.mark.parametrize("options", [["-A"], ["-n", "default"]], ids=" ".join)
def test_nothing_that_kopf_asks_for_is_missing(
    defined: EmbeddedCluster, tmp_path: Path, told: Told, options: list[str]
) -> None:
    @kopf.on.create("widgets")
    def created(name: str, body: Any, **_: Any) -> None:
        kopf.info(body, reason="Made")
        told(name)

    @kopf.on.delete("widgets")
    def deleted(**_: Any) -> None:
        pass

    (tmp_path / "empty.py").write_text("")
    with KopfRunner(["run", "--standalone", *options, str(tmp_path / "empty.py")], timeout=60) as runner:
        defined.create(widget("w"))
        assert told.next() == "w"
        defined.requests.wait("create", "events")
        defined.delete(widget("w"))
        defined.requests.wait("watch", "widgets", namespace="default" if "-n" in options else "")
        wait_until(lambda: not _listed(defined, "widgets"), "it has gone")
    assert runner.exit_code == 0
    assert {asked.code for asked in defined.requests} <= {200, 201}


def _listed(cluster: EmbeddedCluster, plural: str) -> list[Any]:
    return cluster.api.history.keys(("example.com", plural))
