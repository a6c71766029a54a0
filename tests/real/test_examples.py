"""The five operators of examples/, each under `kopf run`, on the real API server and the embedded one, doing what its README says."""
import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until
from tests.real.operators import Operator
from tests.real.stages import EmbeddedStage, RealStage
from tests.real.test_skeleton import create, pod

EXAMPLES = Path(__file__).parents[2] / "examples"
LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

Start = Callable[..., Operator]


@pytest.fixture(scope="module")
def cluster(server: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A server with the custom resources of all examples."""
    with EmbeddedStage() if server == "embedded" else RealStage(request.getfixturevalue("assets")) as stage:
        for kind in ("Certificate", "Application", "Request"):
            stage.api.create_crd("example.com", "v1", kind, f"{kind.lower()}s", schema=LOOSE)
        stage.api.create_crd(
            "example.com", "v1", "Volume", "volumes", selectable_fields=[".spec.node"],
            schema={"type": "object", "properties": {"spec": {"type": "object", "properties": {"node": {"type": "string"}}}}},
        )
        yield stage.api


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    started: list[Operator] = []

    def run(example: str, namespace: str, env: Mapping[str, str] | None = None) -> Operator:
        source = (EXAMPLES / example / "example.py").read_text()
        started.append(Operator(tmp_path / "operator", cluster, source, namespaces=[namespace], env=env, asked=False))
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


def said(operator: Operator, text: str) -> None:
    try:
        wait_until(lambda: text in operator.log or operator.ended, f"the operator to say {text!r}", deadline=60)
    except TimeoutError as error:
        error.add_note(operator.log)
        raise
    assert text in operator.log, operator.log


def custom(cluster: Cluster, namespace: str, plural: str, name: str, **body: Any) -> str:
    path = f"/apis/example.com/v1/namespaces/{namespace}/{plural}"
    cluster.request("POST", path, body={
        "apiVersion": "example.com/v1", "kind": plural.rstrip("s").capitalize(), "metadata": {"name": name, **body.pop("metadata", {})}, **body})
    return f"{path}/{name}"


def test_01_a_failed_run_is_explained_and_a_retried_one_is_told_apart(cluster: Cluster, start: Start) -> None:
    namespace = cluster.namespace()
    operator = start("01-job-observer", namespace)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    run = {"example.com/run-id": "7"}

    def job(name: str, **status: Any) -> None:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
        cluster.request("POST", jobs, body={"metadata": {"name": name, "labels": run}, "spec": {"template": template}})
        cluster.request("PATCH", f"{jobs}/{name}/status", body={"status": {"startTime": "2026-01-01T00:00:00Z", **status}})

    create(cluster, namespace, pod("first-x", **run, **{"job-name": "first"}))
    ended = {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0,
             "state": {"terminated": {"exitCode": 3}}}
    cluster.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/first-x/status", body={"status": {"containerStatuses": [ended]}})
    job("first", failed=1)
    said(operator, "run 7: first-x ended with 3")
    said(operator, "run 7: failed for good")
    job("second", active=1)
    cluster.request("PATCH", f"{jobs}/first", body={"metadata": {"annotations": {"touched": "yes"}}})
    said(operator, "run 7: retried by another job")


def test_02_a_secret_is_created_if_it_is_missing_and_that_of_somebody_else_is_left_alone(cluster: Cluster, start: Start) -> None:
    namespace = cluster.namespace()
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    ours = {"example.com/managed-by": "issuer"}
    cluster.request("POST", secrets, body={"metadata": {"name": "ours", "labels": ours}})
    cluster.request("POST", secrets, body={"metadata": {"name": "theirs"}})
    before = {name: cluster.request("GET", f"{secrets}/{name}") for name in ("ours", "theirs")}
    start("02-certificates", namespace)

    def certify(name: str, secret: str, state: str) -> None:
        path = custom(cluster, namespace, "certificates", name, spec={"secretName": secret, "host": f"{name}.example.com"})
        wait_until(lambda: cluster.request("GET", path).get("status", {}).get("state") == state, f"{name} to be {state}")

    certify("ours", "ours", "Issued")
    certify("theirs", "theirs", "Refused: the secret is somebody else's")
    certify("new", "new", "Issued")
    new = cluster.request("GET", f"{secrets}/new")
    assert (new["type"], new["metadata"]["labels"]) == ("kubernetes.io/tls", ours)
    certify("again", "new", "Issued")
    assert cluster.request("GET", f"{secrets}/new") == new, "nothing is created that exists"
    assert {name: cluster.request("GET", f"{secrets}/{name}") for name in before} == before


def test_03_an_agent_holds_its_own_node_and_volumes(cluster: Cluster, start: Start) -> None:
    namespace = cluster.namespace()
    for node in ("node01", "node02"):
        cluster.request("POST", "/api/v1/nodes", body={"metadata": {"name": node}})
    driver = {"labels": {"example.com/driver": "disk"}}
    custom(cluster, namespace, "volumes", "mine", metadata=driver, spec={"node": "node01"})
    custom(cluster, namespace, "volumes", "not-mine", metadata=driver, spec={"node": "node02"})
    operator = start("03-node-agent", namespace, {"NODE_NAME": "node01"})
    said(operator, "mine is attached; node01 has 1 volumes")
    cluster.request("PATCH", "/api/v1/nodes/node01", body={"spec": {"unschedulable": True}})
    custom(cluster, namespace, "volumes", "later", metadata=driver, spec={"node": "node01"})
    said(operator, "later waits: node01 is being emptied")
    assert "not-mine" not in operator.log


def test_04_an_application_counts_its_own_pods(cluster: Cluster, start: Start) -> None:
    namespace = cluster.namespace()
    path = custom(cluster, namespace, "applications", "shop")
    uid = cluster.request("GET", path)["metadata"]["uid"]
    owned = {"ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Application", "name": "shop", "uid": uid}]}
    for name, owner in {"shop-1": owned, "shop-2": owned, "other": {}}.items():
        body = pod(name, **{"example.com/app": "shop"})
        body["metadata"] |= owner
        create(cluster, namespace, body)
    cluster.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/shop-1/status",
                body={"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body={"metadata": {"name": "shop"}})
    start("04-application", namespace)
    wait_until(lambda: cluster.request("GET", path).get("status") == {"configured": True, "ready": "1/2"}, "the status to be right")


def test_05_a_tenant_is_served_from_what_it_marked(cluster: Cluster, start: Start) -> None:
    namespace = cluster.namespace()
    configs = f"/api/v1/namespaces/{namespace}/configmaps"
    cluster.request("POST", configs, body={"metadata": {"name": "price", "labels": {"example.com/tenant": "yes"}}, "data": {"value": "7"}})
    cluster.request("POST", configs, body={"metadata": {"name": "secret-price"}, "data": {"value": "6"}})
    start("05-tenants", namespace, {"TENANT_NAMESPACE": namespace})
    for about, answer in {"price": "7", "secret-price": "nothing is known of it"}.items():
        path = custom(cluster, namespace, "requests", about, spec={"about": about})
        wait_until(lambda: cluster.request("GET", path).get("status", {}).get("answer") == answer, f"{about} to be answered")  # noqa: B023


EACH = pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/example.py")), ids=lambda file: file.parent.name)


@EACH
def test_each_is_short_and_explained_and_needs_no_rescue(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) < 60
    assert "OutsideFilter" not in text
    assert (file.parent / "README.md").is_file()


@EACH
def test_no_example_writes_down_a_filter_twice(file: Path) -> None:
    """Not the keys of labels and fields in it: what a filter says stands in one place, be it under a name."""
    tree = ast.parse(file.read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    keys = {key_of(text) for text in filters_of(tree)}
    assert keys
    assert [key for key in keys if [key_of(text) for text in texts].count(key) > 1] == []


def key_of(text: str) -> str:
    return text.partition("=")[0]


def filters_of(tree: ast.AST) -> list[str]:
    """The texts of all that is assigned to selectors, of dicts the keys; of names, those that they stand for."""
    assigns = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    named = {target.id: node.value for node in assigns for target in node.targets if isinstance(target, ast.Name)}
    values = [node.value for node in assigns if ast.unparse(node.targets[0]).startswith(("select[", "selected.selectors["))]
    values += [named[node.id] for value in values for node in ast.walk(value) if isinstance(node, ast.Name) and node.id in named]
    of_dicts = {id(item) for value in values for node in ast.walk(value) if isinstance(node, ast.Dict) for item in node.values}
    return [node.value for value in values for node in ast.walk(value)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in of_dicts]
