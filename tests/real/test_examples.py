"""The manifests of examples/ on the real API server, which refuses unknown fields, and the operators without
tests beside them, under `kopf run`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until
from tests.docs.pages import fences
from tests.real.operators import Operator
from tests.real.stages import EmbeddedStage, RealStage

RUNS_ON = ["real"]  # The examples' own tests run on the embedded server.

EXAMPLES = Path(__file__).parents[2] / "examples"
README = EXAMPLES.parent / "README.md"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Start = Callable[..., Operator]


@pytest.fixture(scope="module")
def cluster(server: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A server with the custom resources of all examples."""
    with EmbeddedStage() if server == "embedded" else RealStage(request.getfixturevalue("assets")) as stage:
        for file in sorted(EXAMPLES.glob("*/crd.yaml")):
            define(stage.api, file)
        yield stage.api


def define(cluster: Cluster, file: Path) -> None:
    for definition in yaml.safe_load_all(file.read_text()):
        cluster.request("POST", DEFINITIONS, query={"fieldValidation": "Strict"}, body=definition)
        spec = definition["spec"]

        def is_served(
            path: str = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}",
        ) -> bool:
            try:
                cluster.request("GET", path)
            except ApiError as error:
                if error.status in {404, 429, 503}:
                    return False
                raise
            return True

        wait_until(is_served, f"{definition['metadata']['name']} is served")


def load(cluster: Cluster, example: str, file: str, namespace: str = "default") -> dict[str, str]:
    """Create the objects of a manifest, with their status as `serve --load` does; give their paths, by kind
    and name.

    Those that name no namespace are created in the given one, as by `kubectl apply -n`.
    """
    paths = {}
    for obj in yaml.safe_load_all((EXAMPLES / example / file).read_text()):
        root = f"/apis/{obj['apiVersion']}" if "/" in obj["apiVersion"] else f"/api/{obj['apiVersion']}"
        served = next(
            each
            for each in cluster.request("GET", root)["resources"]
            if each["kind"] == obj["kind"] and "/" not in each["name"]
        )
        within = f"/namespaces/{obj['metadata'].get('namespace', namespace)}" if served["namespaced"] else ""
        cluster.request(
            "POST", f"{root}{within}/{served['name']}", query={"fieldValidation": "Strict"}, body=obj
        )
        path = f"{root}{within}/{served['name']}/{obj['metadata']['name']}"
        if "status" in obj:
            cluster.request("PATCH", f"{path}/status", body={"status": obj["status"]})
        paths[f"{obj['kind']} {obj['metadata']['name']}"] = path
    return paths


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    started: list[Operator] = []

    def run(
        example: str, namespace: str, env: Mapping[str, str] | None = None, *, options: Sequence[str] = ()
    ) -> Operator:
        source = (
            (EXAMPLES / example / "example.py").read_text().replace("interval=5)", "interval=0.5)")
        )  # Nobody is to wait for the next count.
        started.append(
            Operator(
                tmp_path / "operator",
                cluster,
                source,
                namespaces=[namespace],
                options=options,
                env=env,
                asked=False,
            )
        )
        return started[-1]

    try:
        yield run
    except BaseException as error:
        for operator in started:
            error.add_note(operator.log[-8000:])
        raise
    finally:
        for operator in started:
            operator.stop()


def said(operator: Operator, text: str, *, touch: Callable[[int], object] | None = None) -> None:
    """Wait until the operator logs this. Touch an object meanwhile, if its handler reads another kind: that
    may be behind."""
    touches = count()

    def is_said() -> bool:
        if touch is not None:
            touch(next(touches))
        return text in operator.log or operator.ended

    try:
        wait_until(is_said, f"the operator to say {text!r}", deadline=60)
    except TimeoutError as error:
        error.add_note(operator.log)
        raise
    assert text in operator.log, operator.log


def custom(cluster: Cluster, namespace: str, plural: str, name: str, **body: Any) -> str:
    path = f"/apis/example.com/v1/namespaces/{namespace}/{plural}"
    cluster.request(
        "POST",
        path,
        body={
            "apiVersion": "example.com/v1",
            "kind": plural.rstrip("s").capitalize(),
            "metadata": {"name": name, **body.pop("metadata", {})},
            **body,
        },
    )
    return f"{path}/{name}"


@pytest.mark.parametrize(
    ("example", "files"),
    [
        ("01-job-observer", ["sample.yaml", "retry.yaml"]),
        ("04-application", ["sample.yaml"]),
        ("05-tenants", ["sample.yaml", "street.yaml"]),
        ("06-adoption", ["sample.yaml"]),
        ("07-cronjobs", ["sample.yaml"]),
        ("09-outside-effects", ["sample.yaml"]),
        ("10-copied-secrets", ["sample.yaml"]),
    ],
)
def test_each_manifest_is_one_that_the_server_takes(cluster: Cluster, example: str, files: list[str]) -> None:
    namespace = cluster.namespace()
    for file in files:
        assert load(cluster, example, file, namespace)


def test_02_a_secret_is_created_if_it_is_missing_and_that_of_somebody_else_is_left_alone(
    cluster: Cluster, start: Start
) -> None:
    namespace = cluster.namespace()
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    ours = {"example.com/managed-by": "issuer"}
    cluster.request("POST", secrets, body={"metadata": {"name": "ours", "labels": ours}})
    paths = load(cluster, "02-certificates", "sample.yaml", namespace)
    before = {name: cluster.request("GET", f"{secrets}/{name}") for name in ("ours", "theirs")}
    start("02-certificates", namespace)

    def certified(path: str, state: str) -> None:
        wait_until(
            lambda: cluster.request("GET", path).get("status", {}).get("state") == state,
            f"{path} to be {state}",
        )

    def certify(name: str, secret: str) -> str:
        return custom(
            cluster,
            namespace,
            "certificates",
            name,
            spec={"secretName": secret, "host": f"{name}.example.com"},
        )

    certified(paths["Certificate shop"], "Issued")
    certified(paths["Certificate clash"], "Refused: the secret is somebody else's")
    new = cluster.request("GET", f"{secrets}/shop-tls")
    assert (new["type"], new["metadata"]["labels"]) == ("kubernetes.io/tls", ours)
    certified(certify("ours", "ours"), "Issued")
    certified(certify("again", "shop-tls"), "Issued")
    assert cluster.request("GET", f"{secrets}/shop-tls") == new, "nothing is created that exists"
    assert {name: cluster.request("GET", f"{secrets}/{name}") for name in before} == before


def test_03_an_agent_caches_its_own_node_pods_and_volumes(cluster: Cluster, start: Start) -> None:
    namespace = cluster.namespace()
    objects = load(cluster, "03-node-agent", "node.yaml", namespace)
    objects |= load(cluster, "03-node-agent", "sample.yaml", namespace)

    def touch(number: int) -> None:
        cluster.request(
            "PATCH", objects["Volume disk-1"], body={"metadata": {"annotations": {"touched": str(number)}}}
        )

    operator = start("03-node-agent", namespace, {"NODE_NAME": "node01"})
    said(operator, "disk-1 is attached; on node01: 1 volumes, 1 pods", touch=touch)
    cluster.request("DELETE", objects["Pod here"], query={"gracePeriodSeconds": 0})
    said(operator, "disk-1 is attached; on node01: 1 volumes, 0 pods", touch=touch)
    cluster.request("PATCH", objects["Node node01"], body={"spec": {"unschedulable": True}})
    said(operator, "disk-1 waits: node01 is being emptied", touch=touch)
    assert "disk-2" not in operator.log
    assert "tape-1" not in operator.log


def test_the_quickstart_of_readme_counts_again_when_a_pod_changes(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace()
    define(cluster, EXAMPLES / "webapps.yaml")
    objects = (EXAMPLES / "web.yaml").read_text().partition("---\n")[2]  # Without their namespace.
    manifest = tmp_path / "web.yaml"
    manifest.write_text(objects.replace("namespace: shop", f"namespace: {namespace}"))
    paths = load(cluster, "", str(manifest))
    (source,) = (fence.text for fence in fences(README, "python") if fence.name == "app.py")

    def shown(pods: int) -> None:
        wait_until(
            lambda: cluster.request("GET", paths["WebApp front"]).get("status") == {"pods": pods},
            f"{pods} pods in the status",
        )

    with Operator(tmp_path / "operator", cluster, source, namespaces=[namespace], asked=False):
        shown(2)
        cluster.request("PATCH", paths["Pod db-1"], body={"metadata": {"labels": {"app": "web"}}})
        shown(3)
