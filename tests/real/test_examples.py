"""The operators of examples/, each under `kopf run`, on the real API server and the embedded one, doing
what its README says.

They work with the very manifests that lie beside them, so that nobody who follows a README meets what was
never tried."""

import asyncio
import runpy
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until
from tests.docs.pages import fences
from tests.real.operators import Operator
from tests.real.stages import EmbeddedStage, RealStage
from tests.real.test_skeleton import create, pod

RUNS_ON = ["real"]  # Other tests show the same on the embedded server.

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


def test_01_a_failed_run_is_explained_and_a_retried_one_is_distinguished(
    cluster: Cluster, start: Start
) -> None:
    namespace = cluster.namespace()
    paths = load(cluster, "01-job-observer", "sample.yaml", namespace)
    operator = start("01-job-observer", namespace)
    said(operator, "run 7: first-x ended with 3")
    said(operator, "run 7: failed for good")
    paths |= load(cluster, "01-job-observer", "retry.yaml", namespace)
    cluster.request(
        "PATCH",
        f"{paths['Job second']}/status",
        body={"status": {"startTime": "2026-01-01T00:00:00Z", "active": 1}},
    )
    # Once is enough: the handler finds the jobs as new as the one that it is called for.
    cluster.request("PATCH", paths["Job first"], body={"metadata": {"annotations": {"touched": "once"}}})
    said(operator, "run 7: retried by another job")


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


def test_06_a_hidden_object_is_adopted_where_that_is_allowed(cluster: Cluster, start: Start) -> None:
    namespace = cluster.namespace()
    paths = load(cluster, "06-adoption", "sample.yaml", namespace)
    start("06-adoption", namespace)

    def settled(name: str, state: str) -> None:
        path = paths[f"Website {name}"]
        wait_until(
            lambda: cluster.request("GET", path).get("status", {}).get("state") == state,
            f"{path} to be {state}",
        )

    settled("shop", "Ready")
    settled("blog", "Ready")
    settled("wiki", "Blocked: the ConfigMap lacks example.com/managed-by=websites")
    blog = cluster.request("GET", paths["ConfigMap blog"])
    assert blog["data"] == {"title": "Blog", "theme": "dark"}
    assert blog["metadata"]["labels"] == {"example.com/managed-by": "websites"}
    assert [each["name"] for each in blog["metadata"]["ownerReferences"]] == ["blog"]
    assert cluster.request("GET", paths["ConfigMap wiki"])["data"] == {"title": "Old wiki"}
    cluster.request("PATCH", paths["Website wiki"], body={"spec": {"adopt": True}})
    settled("wiki", "Ready")


def test_03_an_agent_holds_its_own_node_and_volumes(cluster: Cluster, start: Start) -> None:
    namespace = cluster.namespace()
    node = load(cluster, "03-node-agent", "node.yaml")["Node node01"]
    volumes = load(cluster, "03-node-agent", "sample.yaml", namespace)
    operator = start("03-node-agent", namespace, {"NODE_NAME": "node01"})
    said(operator, "disk-1 is attached; node01 has 1 volumes")
    cluster.request("PATCH", node, body={"spec": {"unschedulable": True}})
    said(
        operator,
        "disk-1 waits: node01 is being emptied",
        touch=lambda number: cluster.request(
            "PATCH", volumes["Volume disk-1"], body={"metadata": {"annotations": {"touched": str(number)}}}
        ),
    )
    assert "disk-2" not in operator.log
    assert "tape-1" not in operator.log


def test_04_an_application_counts_its_own_pods(cluster: Cluster, start: Start) -> None:
    namespace = cluster.namespace()
    paths = load(cluster, "04-application", "sample.yaml", namespace)
    shop = paths["Application shop"]
    start("04-application", namespace)

    def shown(**status: object) -> None:
        wait_until(lambda: cluster.request("GET", shop).get("status") == status, f"the status to be {status}")

    shown(currency="USD", ready="0/0")
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Application",
        "name": "shop",
        "controller": True,
        "uid": cluster.request("GET", shop)["metadata"]["uid"],
    }
    other = pod("shop-2", **{"example.com/app": "shop"})
    other["metadata"]["ownerReferences"] = [owner]
    create(cluster, namespace, other)
    cluster.request("PATCH", paths["Pod shop-1"], body={"metadata": {"ownerReferences": [owner]}})
    cluster.request(
        "PATCH",
        f"{paths['Pod shop-1']}/status",
        body={"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    )
    shown(currency="USD", ready="1/2")


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


def test_05_tenants_are_served_as_they_come_and_go(cluster: Cluster, start: Start) -> None:
    def answered(where: str, answer: str) -> None:
        path = f"/apis/example.com/v1/namespaces/{where}"
        wait_until(
            lambda: cluster.request("GET", path).get("status", {}).get("answer") == answer,
            f"{where} to be answered",
        )

    load(cluster, "05-tenants", "sample.yaml")
    start("05-tenants", "shop", options=["-A"])
    answered("shop/requests/price", "7")
    answered("shop/requests/cost", "nothing is known of it")
    answered("office/requests/hours", "9 to 5")
    answered("office/requests/currency", "euro")
    answered("street/requests/price", "not served here, but in office, shop")
    load(cluster, "05-tenants", "street.yaml")
    answered("street/requests/again", "8")
    cluster.request("DELETE", "/apis/example.com/v1/tenants/shop")
    request = {
        "apiVersion": "example.com/v1",
        "kind": "Request",
        "metadata": {"name": "late"},
        "spec": {"about": "price"},
    }
    cluster.request("POST", "/apis/example.com/v1/namespaces/shop/requests", body=request)
    answered("shop/requests/late", "not served here, but in office, street")


def test_07_a_cron_job_runs_jobs_and_tells_people(cluster: Cluster, start: Start) -> None:
    namespace = cluster.namespace()
    path = load(cluster, "07-cronjobs", "sample.yaml", namespace)["CronJob clock"]
    cluster.request("PATCH", path, body={"spec": {"period": 2}})
    start("07-cronjobs", namespace)
    jobs, events = f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/events"
    done: set[str] = set()

    def has_run() -> bool:
        for job in cluster.request("GET", jobs)["items"]:
            if (name := job["metadata"]["name"]) not in done:
                times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z"}
                conditions = [{"type": each, "status": "True"} for each in ("SuccessCriteriaMet", "Complete")]
                status = times | {"succeeded": 1, "conditions": conditions}
                cluster.request("PATCH", f"{jobs}/{name}/status", body={"status": status})
                done.add(name)
        seen = {each["reason"] for each in cluster.request("GET", events)["items"]}
        return len(done) >= 2 and {"JobCreated", "Waiting", "JobComplete"} <= seen

    wait_until(has_run, "two Jobs and their Events")
    for event in cluster.request("GET", events)["items"]:
        assert (event["involvedObject"]["name"], event["source"]["component"]) == ("clock", "kopf")


@pytest.fixture
def service() -> Iterator[tuple[str, dict[str, Any]]]:
    """The address of the service of example 09, and the databases that it has."""
    made = runpy.run_path(str(EXAMPLES / "09-outside-effects" / "service.py"))["Service"]()
    listening, loop = socket.create_server(("localhost", 0)), asyncio.new_event_loop()
    runner = web.AppRunner(made.app())

    def run() -> None:
        loop.run_until_complete(runner.setup())
        loop.run_until_complete(web.SockSite(runner, listening).start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()  # Who connects earlier waits: it listens already.
    yield f"http://localhost:{listening.getsockname()[1]}", made.databases
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def test_09_a_database_follows_its_object_and_its_secret_and_is_dropped_with_it(
    cluster: Cluster, start: Start, service: tuple[str, dict[str, Any]]
) -> None:
    address, databases = service
    namespace = cluster.namespace()
    paths = load(cluster, "09-outside-effects", "sample.yaml", namespace)
    shop = paths["Database shop"]
    uid = cluster.request("GET", shop)["metadata"]["uid"]
    start("09-outside-effects", namespace, {"SERVICE": address})

    def kept(**expected: str) -> None:
        wait_until(
            lambda: databases == ({uid: expected} if expected else {}), f"the service to have {expected}"
        )

    kept(plan="small", password="hunter2")
    cluster.request("PATCH", shop, body={"spec": {"plan": "large"}})
    kept(plan="large", password="hunter2")
    cluster.request("PATCH", paths["Secret shop"], body={"stringData": {"password": "hunter3"}})
    kept(plan="large", password="hunter3")
    blog = paths["Database blog"]
    wait_until(
        lambda: "Waiting" in cluster.request("GET", blog).get("status", {}).get("state", ""),
        "the database without a password to say so",
    )
    cluster.request("DELETE", shop)
    kept()

    def is_gone() -> bool:
        try:
            cluster.request("GET", shop)
        except ApiError as error:
            return error.status == 404
        return False

    wait_until(is_gone, "the object to be gone")


def test_10_secrets_are_copied_into_the_namespaces_that_match(cluster: Cluster, start: Start) -> None:
    paths = load(cluster, "10-copied-secrets", "sample.yaml")

    def has(where: str, name: str) -> bool:
        return any(
            each["metadata"]["name"] == name
            for each in cluster.request("GET", f"/api/v1/namespaces/{where}/secrets")["items"]
        )

    def message() -> str:
        return str(
            cluster.request("GET", paths["ClusterSecret authority"]).get("status", {}).get("message", "")
        )

    start("10-copied-secrets", "default", options=["-A"])
    wait_until(message, "the Secret of somebody else is told of")
    wait_until(lambda: has("team-blue", "registry") and has("team-red", "registry"), "the copies")
    assert "team-red has another Secret" in message()
    assert has("team-blue", "authority")
    assert not has("team-test", "registry")
    cluster.request("DELETE", paths["ClusterSecret authority"])
    wait_until(lambda: not has("team-blue", "authority"), "the copies to go with their ClusterSecret")
    kept = cluster.request("GET", "/api/v1/namespaces/team-red/secrets/authority")
    assert kept["data"]["theirs"] == "eWVz"
