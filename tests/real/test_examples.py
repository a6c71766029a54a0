"""The five operators of examples/, each under `kopf run` against the real API server, doing what its README says."""
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.server import ApiServer
from tests.apiserver.waiting import wait_until
from tests.real.operators import Operator
from tests.real.test_skeleton import create, pod

EXAMPLES = Path(__file__).parents[2] / "examples"
LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

Start = Callable[..., Operator]


@pytest.fixture(scope="module")
def api(assets: Path) -> Iterator[ApiServer]:
    """A server with the custom resources of all examples."""
    with ApiServer(assets=assets) as server:
        for kind in ("Certificate", "Application", "Request"):
            server.create_crd("example.com", "v1", kind, f"{kind.lower()}s", schema=LOOSE)
        server.create_crd(
            "example.com", "v1", "Volume", "volumes", selectable_fields=[".spec.node"],
            schema={"type": "object", "properties": {"spec": {"type": "object", "properties": {"node": {"type": "string"}}}}},
        )
        yield server


@pytest.fixture
def start(api: ApiServer, tmp_path: Path) -> Iterator[Start]:
    started: list[Operator] = []

    def run(example: str, namespace: str, env: Mapping[str, str] | None = None) -> Operator:
        source = (EXAMPLES / example / "example.py").read_text()
        started.append(Operator(tmp_path / "operator", api, source, namespaces=[namespace], env=env, asked=False))
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


def custom(api: ApiServer, namespace: str, plural: str, name: str, **body: Any) -> str:
    path = f"/apis/example.com/v1/namespaces/{namespace}/{plural}"
    api.request("POST", path, body={
        "apiVersion": "example.com/v1", "kind": plural.rstrip("s").capitalize(), "metadata": {"name": name, **body.pop("metadata", {})}, **body})
    return f"{path}/{name}"


def test_01_a_failed_run_is_explained_and_a_retried_one_is_told_apart(api: ApiServer, start: Start) -> None:
    namespace = api.namespace()
    operator = start("01-job-observer", namespace)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    run = {"example.com/run-id": "7"}

    def job(name: str, **status: Any) -> None:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
        api.request("POST", jobs, body={"metadata": {"name": name, "labels": run}, "spec": {"template": template}})
        api.request("PATCH", f"{jobs}/{name}/status", body={"status": {"startTime": "2026-01-01T00:00:00Z", **status}})

    create(api, namespace, pod("first-x", **run, **{"job-name": "first"}))
    ended = {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0,
             "state": {"terminated": {"exitCode": 3}}}
    api.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/first-x/status", body={"status": {"containerStatuses": [ended]}})
    job("first", failed=1)
    said(operator, "run 7: first-x ended with 3")
    said(operator, "run 7: failed for good")
    job("second", active=1)
    api.request("PATCH", f"{jobs}/first", body={"metadata": {"annotations": {"touched": "yes"}}})
    said(operator, "run 7: retried by another job")


def test_02_a_secret_of_somebody_else_is_left_alone(api: ApiServer, start: Start) -> None:
    namespace = api.namespace()
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    api.request("POST", secrets, body={"metadata": {"name": "ours", "labels": {"example.com/managed-by": "certificates"}}})
    api.request("POST", secrets, body={"metadata": {"name": "theirs"}})
    start("02-certificates", namespace)
    for name, state in {"ours": "Issued", "theirs": "Refused: the secret is somebody else's", "none": "Issuing"}.items():
        path = custom(api, namespace, "certificates", name, spec={"secretName": name})
        wait_until(lambda: api.request("GET", path).get("status", {}).get("state") == state, f"{name} to be {state}")  # noqa: B023


def test_03_an_agent_holds_its_own_node_and_volumes(api: ApiServer, start: Start) -> None:
    namespace = api.namespace()
    for node in ("node01", "node02"):
        api.request("POST", "/api/v1/nodes", body={"metadata": {"name": node}})
    driver = {"labels": {"example.com/driver": "disk"}}
    custom(api, namespace, "volumes", "mine", metadata=driver, spec={"node": "node01"})
    custom(api, namespace, "volumes", "not-mine", metadata=driver, spec={"node": "node02"})
    operator = start("03-node-agent", namespace, {"NODE_NAME": "node01"})
    said(operator, "mine is attached; node01 has 1 volumes")
    api.request("PATCH", "/api/v1/nodes/node01", body={"spec": {"unschedulable": True}})
    custom(api, namespace, "volumes", "later", metadata=driver, spec={"node": "node01"})
    said(operator, "later waits: node01 is being emptied")
    assert "not-mine" not in operator.log


def test_04_an_application_counts_its_own_pods(api: ApiServer, start: Start) -> None:
    namespace = api.namespace()
    path = custom(api, namespace, "applications", "shop")
    uid = api.request("GET", path)["metadata"]["uid"]
    owned = {"ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Application", "name": "shop", "uid": uid}]}
    for name, owner in {"shop-1": owned, "shop-2": owned, "other": {}}.items():
        body = pod(name, **{"example.com/app": "shop"})
        body["metadata"] |= owner
        create(api, namespace, body)
    api.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/shop-1/status",
                body={"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    api.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body={"metadata": {"name": "shop"}})
    start("04-application", namespace)
    wait_until(lambda: api.request("GET", path).get("status") == {"configured": True, "ready": "1/2"}, "the status to be right")


def test_05_a_tenant_is_served_from_what_it_marked(api: ApiServer, start: Start) -> None:
    namespace = api.namespace()
    configs = f"/api/v1/namespaces/{namespace}/configmaps"
    api.request("POST", configs, body={"metadata": {"name": "price", "labels": {"example.com/tenant": "yes"}}, "data": {"value": "7"}})
    api.request("POST", configs, body={"metadata": {"name": "secret-price"}, "data": {"value": "6"}})
    start("05-tenants", namespace, {"TENANT_NAMESPACE": namespace})
    for about, answer in {"price": "7", "secret-price": "nothing is known of it"}.items():
        path = custom(api, namespace, "requests", about, spec={"about": about})
        wait_until(lambda: api.request("GET", path).get("status", {}).get("answer") == answer, f"{about} to be answered")  # noqa: B023


def test_each_is_short_and_repeats_no_filter() -> None:
    for file in sorted(EXAMPLES.glob("*/example.py")):
        text = file.read_text()
        assert len(text.splitlines()) < 60, file
        assert "OutsideFilter" not in text, file
        assert (file.parent / "README.md").is_file(), file
