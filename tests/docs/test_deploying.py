"""docs/deploying.md: its manifests are enough for its operator, and its metrics, alerts and board use
exported metrics.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.process import free_port
from tests.rows import each_row

from .pages import DOCS, fences, saved

PAGE = DOCS / "deploying.md"
BOARD = DOCS / "grafana.json"
ACCOUNT = "system:serviceaccount:my-operator:my-operator"
PREFIX = "kopf_selectcache_"
METRIC = re.compile(rf"(?:{PREFIX}|workqueue_)\w+")
OF_EACH = {"group", "version", "resource"}
OF_PROMETHEUS = {"le", "job", "instance"}


def webapp(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "WebApp",
        "metadata": {"name": "shop", "namespace": namespace},
    }


def container(folder: Path) -> dict[str, Any]:
    """The container of the page's Deployment."""
    deployment = yaml.safe_load((folder / "deployment.yaml").read_text())
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


@pytest.fixture
def folder(tmp_path: Path, cluster: EmbeddedCluster) -> Path:
    """The folder with the files of the page, as its reader saves them; the definition of its custom resource
    is applied.
    """
    saved(PAGE, tmp_path)
    (definition,) = (fence.text for fence in fences(DOCS / "getting-started.md") if fence.name == "crd.yaml")
    cluster.apply(definition)
    return tmp_path


@contextmanager
def deployed(
    cluster: EmbeddedCluster,
    folder: Path,
    changed: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Mapping[str, str]]:
    """Run the container of the page's Deployment as a process, under its account; yield the URLs of its
    ports.

    The ports are replaced by free ones, and arguments by those of a test.
    """
    ports = {port["name"]: free_port() for port in container(folder)["ports"]}
    arguments = [
        changed.get(each, each).replace("0.0.0.0:8080", f"127.0.0.1:{ports['healthz']}")
        for each in container(folder)["args"]
    ]
    kubeconfig = cluster.kubeconfig(folder / "its.kubeconfig", token=cluster.user(ACCOUNT))
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "METRICS_PORT": str(ports["metrics"])}
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            [sys.executable, "-m", *" ".join(arguments).split()],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        yield {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    finally:
        running.terminate()
        running.wait()


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def counted(cluster: EmbeddedCluster, folder: Path, namespace: str) -> None:
    """Wait until the operator has written the number of pods."""
    cluster.create(webapp(namespace))
    try:
        cluster.wait_for(webapp(namespace), lambda now: now.get("status") == {"pods": 0})
    except TimeoutError:
        raise AssertionError((folder / "log").read_text()) from None


def refused(cluster: EmbeddedCluster) -> list[str]:
    return [
        f"{asked.verb} {asked.resource}"
        for asked in cluster.requests.where(user=ACCOUNT)
        if asked.code == 403
    ]


def test_with_the_manifests_alone_the_operator_works_and_its_probe_and_metrics_answer(
    cluster: EmbeddedCluster, folder: Path
) -> None:
    cluster.apply(folder / "rbac.yaml")
    cluster.apply(folder / "deployment.yaml")
    with deployed(cluster, folder) as urls:
        counted(cluster, folder, "default")
        told = json.loads(read(urls["healthz"] + container(folder)["livenessProbe"]["httpGet"]["path"]))
        seen = exported(read(urls["metrics"]))
    assert told["selectcache.probe"]["v1/pods"]["health"] == "synced"
    assert refused(cluster) == []
    of_replicas = {name for name in documented() if name.startswith(f"{PREFIX}sharding_")}
    assert seen.keys() == documented().keys() - of_replicas
    assert {
        name: labels - documented()[name] for name, labels in seen.items() if labels - documented()[name]
    } == {}
    assert seen[f"{PREFIX}reads_total"] == documented()[f"{PREFIX}reads_total"]
    asked = {each.resource for each in cluster.requests.where(user=ACCOUNT)}
    assert {resource for rule in rules(folder) for resource in rule["resources"]} - asked == set()


def test_for_one_namespace_the_rights_of_that_namespace_will_do(
    cluster: EmbeddedCluster, folder: Path
) -> None:
    cluster.apply(folder / "rbac-of-one-namespace.yaml")
    with deployed(cluster, folder, {"-A": "-n shop"}):
        counted(cluster, folder, "shop")
    assert refused(cluster) == []


def rules(folder: Path) -> list[dict[str, Any]]:
    (role,) = (
        each
        for each in yaml.safe_load_all((folder / "rbac.yaml").read_text())
        if each["kind"] == "ClusterRole"
    )
    found: list[dict[str, Any]] = role["rules"]
    return found


def exported(metrics: str) -> dict[str, set[str]]:
    """Return the exported metrics, with their labels."""
    names = {name: set[str]() for name in re.findall(rf"^# TYPE ({PREFIX}\w+) ", metrics, re.MULTILINE)}
    for name, labels in re.findall(rf"^({PREFIX}\w+)\{{(.*)\}} ", metrics, re.MULTILINE):
        names[name] |= set(re.findall(r'(\w+)="', labels))
    return names


def documented() -> dict[str, set[str]]:
    """Return the metrics of the page's table, with their labels."""
    rows = re.findall(rf"^\| `({PREFIX}\w+)` \| (.+?) \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    return {
        name: set(re.findall(r"`(\w+)`", labels)) | (set() if "without those three" in text else OF_EACH)
        for name, text, labels in rows
    }


def queues() -> dict[str, set[str]]:
    """Return the metrics of the queues of reconcilers in the page's table, with their label."""
    return {name: {"name"} for name in re.findall(r"`(workqueue_\w+)`", PAGE.read_text())}


def test_the_table_of_reasons_has_each_reason() -> None:
    table = PAGE.read_text().partition("The values of `reason`")[2].partition("###")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(MetricReason)


def queries() -> list[str]:
    """Yield all queries to Prometheus: of the alerts, and of the board."""
    alerts = yaml.safe_load(next(fence.text for fence in fences(PAGE, "yaml") if fence.name == "alerts.yaml"))
    asked = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    return asked + [
        target["expr"] for panel in json.loads(BOARD.read_text())["panels"] for target in panel["targets"]
    ]


@each_row("query", queries())
def test_alerts_and_board_use_documented_names(query: str) -> None:
    known = documented() | queues()
    names = [each.removesuffix("_bucket") for each in METRIC.findall(query)]
    labels = re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", query) + [
        each.strip() for inner in re.findall(r"by \((.*?)\)", query) for each in inner.split(",")
    ]
    assert names
    assert set(names) <= known.keys()
    assert all(set(labels) - {"le"} <= known[name] for name in names)


def test_each_metric_is_on_the_board() -> None:
    shown = {each.removesuffix("_bucket") for each in METRIC.findall(BOARD.read_text())}
    assert shown == documented().keys() | queues().keys()


def test_legends_and_words_of_the_board_and_alerts_name_labels_that_there_are() -> None:
    named = set(re.findall(r"\{\{(\w+)\}\}", BOARD.read_text())) | set(
        re.findall(r"\$labels\.(\w+)", PAGE.read_text())
    )
    assert named - OF_PROMETHEUS <= set().union(*documented().values(), *queues().values())
