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

FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
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


def event_messages(environment: Environment, name: str = "w") -> list[str]:
    listed = environment.api.request(
        "GET",
        f"/api/v1/namespaces/{environment.namespace}/events",
        query={"fieldSelector": f"involvedObject.name={name}"},
    )
    return [item["message"] for item in listed["items"]]


@pytest.mark.parametrize("everywhere", [False, True], ids=["one namespace", "all namespaces"])
def test_an_object_is_followed_from_creation_to_deletion(
    environment: Environment, widgets: str, run: Run, told: Told, *, everywhere: bool
) -> None:
    @kopf.on.create(widgets, id="created")
    def created(spec: Any, body: Any, **_: Any) -> Any:
        kopf.info(body, reason="Painted", message=f"It is {spec['color']}.")
        told("created", spec["color"])
        return {"color": spec["color"]}

    @kopf.on.update(widgets)
    def updated(diff: Any, **_: Any) -> None:
        told("updated", [tuple(item) for item in diff])

    @kopf.on.field(widgets, field="spec.color")
    def painted(old: Any, new: Any, **_: Any) -> None:
        told("painted", old, new)

    @kopf.on.delete(widgets)
    def deleted(name: str, **_: Any) -> None:
        told("deleted", name)

    with run("--standalone", *(["-A"] if everywhere else [])):
        environment.create(environment.widget("w"))
        assert {told.next(), told.next()} == {("created", "red"), ("painted", None, "red")}
        wait_until(lambda: settled(environment), "Kopf has noted what it has handled")
        assert meta(environment)["finalizers"] == [FINALIZER]
        wait_until(lambda: environment.get("Widget", "w").get("status"), "it has written the result as well")
        assert environment.get("Widget", "w")["status"]["created"] == {"color": "red"}
        wait_until(lambda: event_messages(environment) == ["It is red."], "the event is posted")

        environment.patch("Widget", "w", {"spec": {"color": "blue"}})
        change = ("change", ("spec", "color"), "red", "blue")
        words = [told.next(), told.next()]
        assert ("updated", [change]) in words
        assert ("painted", "red", "blue") in words

        environment.delete("Widget", "w")
        assert told.next() == ("deleted", "w")
        wait_until(lambda: gone(environment), "the object has gone with its finalizer")
    assert told.is_empty


def test_changes_that_handlers_make_are_written(environment: Environment, widgets: str, run: Run) -> None:
    @kopf.on.create(widgets)
    def created(patch: kopf.Patch, **_: Any) -> None:
        patch.metadata.labels["made-by"] = "kopf"
        patch.metadata.annotations["example.com/note"] = "x"
        patch.spec["size"] = 2
        patch.status["phase"] = "Made"

    with run():
        environment.create(environment.widget("w"))
        wait_until(
            lambda: settled(environment) and "phase" in environment.get("Widget", "w").get("status", {}),
            "it is handled, in two writes",
        )
        widget = environment.get("Widget", "w")
    assert (widget["spec"], widget["status"]["phase"]) == ({"color": "red", "size": 2}, "Made")
    assert (widget["metadata"]["labels"], widget["metadata"]["annotations"]["example.com/note"]) == (
        {"made-by": "kopf"},
        "x",
    )
    assert widget["metadata"].get("finalizers") is None  # Nothing of it must be done before the object goes.


def test_a_daemon_runs_until_its_object_goes_and_holds_it_so_long(
    environment: Environment, widgets: str, run: Run, told: Told
) -> None:
    @kopf.daemon(widgets)
    async def serve(stopped: Any, name: str, **_: Any) -> None:
        told("began", name)
        try:
            await stopped.wait()
        finally:
            told("ended", name, gone(environment))

    with run():
        environment.create(environment.widget("w"))
        assert told.next() == ("began", "w")
        wait_until(lambda: meta(environment).get("finalizers") == [FINALIZER], "the object is held")
        environment.delete("Widget", "w")
        assert told.next() == ("ended", "w", False)
        wait_until(lambda: gone(environment), "the object has gone with its daemon")


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


@pytest.mark.parametrize(
    "streaming",
    [
        pytest.param(False, id="pages"),
        pytest.param(
            True,
            id="initial events",
            marks=pytest.mark.since(
                "1.34", "1.33 has the feature WatchList off by default, and Kopf does not do without it"
            ),
        ),
    ],
)
def test_an_operator_gets_all_that_there_is_and_no_more_than_it_selects(
    environment: Environment,
    widgets: str,
    run: Run,
    told: Told,
    *,
    streaming: bool,
) -> None:
    environment.create(
        *(environment.widget(f"w{number}", app="web") for number in range(5)),
        environment.widget("x", app="db"),
    )
    settings = kopf.OperatorSettings()
    settings.watching.chunk_size = 2
    settings.watching.initial_streaming = streaming
    settings.watching.label_selectors[(environment.group, "v1", "widgets")] = "app=web"

    @kopf.on.event(widgets)
    # Kopf passes it by this name.
    def seen(type: str | None, name: str, **_: Any) -> None:  # noqa: A002
        told(type, name)

    with run(settings=settings):
        found = [told.next() for _ in range(5)]
        assert sorted(name for _, name in found) == [f"w{number}" for number in range(5)]
        environment.relabel("Widget", "x", app="web")
        assert told.next() == ("ADDED", "x")
        environment.relabel("Widget", "x", app="db")
        assert told.next() == ("DELETED", "x")


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


@pytest.mark.parametrize(
    "forgotten", [False, True], ids=["cut off", "cut off, and what it has missed forgotten"]
)
def test_an_operator_that_is_cut_off_goes_on(
    defined: EmbeddedCluster, tmp_path: Path, told: Told, *, forgotten: bool
) -> None:
    @kopf.on.create("widgets")
    def created(name: str, **_: Any) -> None:
        told(name)

    def handled(name: str) -> None:
        assert told.next() == name
        defined.wait_for(widget(name), lambda obj: HANDLED in obj["metadata"].get("annotations", {}))

    (tmp_path / "empty.py").write_text("")
    with KopfRunner(["run", "--standalone", "-A", str(tmp_path / "empty.py")], timeout=60):
        defined.create(widget("a"))
        handled("a")
        defined.requests.wait("watch", "widgets")
        if forgotten:
            defined.create(widget("b"))
            handled("b")
            defined.stop_listening()
            defined.create(widget("c"))
            defined.compact()
            defined.listen_again()
        else:
            assert defined.cut() > 0
            defined.create(widget("c"))
        assert told.next() == "c"


def _listed(cluster: EmbeddedCluster, plural: str) -> list[Any]:
    return cluster.api.history.keys(("example.com", plural))
