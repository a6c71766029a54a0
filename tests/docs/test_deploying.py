"""docs/deploying.md and examples/deploy: with its manifests, image and permissions alone, the operator works.

tests/real/test_deploy.py asks the real API server about what kustomize and Helm render.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kopf
import yaml

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.process import free_port

from .pages import DOCS, ROOT, fences
from .test_metrics import PREFIX, documented

PAGE = DOCS / "deploying.md"
EXAMPLE = ROOT / "examples/deploy"
DOCKERFILE = EXAMPLE / "Dockerfile"
ACCOUNT = "system:serviceaccount:operators:webapps"
WRITES = """\
import os, sys

def hear(event, arguments):
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if (writes and arguments[0] != os.devnull) or event in ("os.mkdir", "os.rename", "os.remove"):
        print("wrote", arguments[0], file=sys.stderr)

sys.addaudithook(hear)
print("writes are shown", file=sys.stderr)
"""
"""A sitecustomize.py that tells which files a process writes."""


def webapp(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "WebApp",
        "metadata": {"name": "front", "namespace": namespace},
    }


def manifest(kind: str) -> dict[str, Any]:
    """Return the manifest of this kind in the kustomize base."""
    documents = [
        each for file in (EXAMPLE / "base").glob("*.yaml") for each in yaml.safe_load_all(file.read_text())
    ]
    (found,) = (each for each in documents if each["kind"] == kind)
    assert isinstance(found, dict)
    return found


def pod() -> dict[str, Any]:
    """Return the pod that the Deployment makes."""
    template = manifest("Deployment")["spec"]["template"]["spec"]
    assert isinstance(template, dict)
    return template


def container() -> dict[str, Any]:
    (only,) = pod()["containers"]
    assert isinstance(only, dict)
    return only


def instructions(name: str) -> list[str]:
    """Return what follows this instruction of the Dockerfile, in each place."""
    return re.findall(rf"^{name} (.*)$", DOCKERFILE.read_text(), re.MULTILINE)


def entrypoint() -> list[str]:
    (found,) = instructions("ENTRYPOINT")
    words = json.loads(found)
    assert isinstance(words, list)
    return words


@contextmanager
def deployed(
    cluster: EmbeddedCluster, folder: Path, *scope: str, program: Sequence[str] = ()
) -> Iterator[Mapping[str, str]]:
    """Run the container of the Deployment as a process, under its account; yield the URLs of its ports.

    The ports are replaced by free ones, and `-A` by the scope of a test. The program is this Python's kopf,
    unless a test gives another one.
    """
    kopf_itself, *words = entrypoint()
    ports = {port["name"]: free_port() for port in container()["ports"]}
    arguments = [
        word.replace("0.0.0.0:8080", f"127.0.0.1:{ports['healthz']}")
        for each in container()["args"]
        for word in (scope if scope and each == "-A" else [each])
    ]
    source = (EXAMPLE / "app.py").read_text()
    assert "ready_port=8081" in source
    (folder / "app.py").write_text(source.replace("ready_port=8081", f"ready_port={ports['ready']}"))
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(WRITES)
    kubeconfig = cluster.kubeconfig(folder / "its.kubeconfig", token=cluster.user(ACCOUNT))
    constants = dict(each.split("=", 1) for line in instructions("ENV") for each in shlex.split(line))
    del constants["PATH"]
    environment = {
        **os.environ,
        **constants,
        **{each["name"]: "webapps-1" for each in container()["env"]},
        "PYTHONPATH": str(folder / "site"),
        "POD_NAMESPACE": "operators",  # In a pod, a file says it.
        "KUBECONFIG": str(kubeconfig),
        "METRICS_PORT": str(ports["metrics"]),
    }
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            [*(program or [sys.executable, "-m", kopf_itself]), *words, *arguments],
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


def test_with_the_manifests_alone_the_operator_works_and_its_probes_and_metrics_answer(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    cluster.apply(ROOT / "examples/webapps.yaml")
    for file in yaml.safe_load((EXAMPLE / "base/kustomization.yaml").read_text())["resources"]:
        cluster.apply(EXAMPLE / "base" / file)
    with deployed(cluster, tmp_path) as urls:
        counted(cluster, tmp_path, "default")
        told = json.loads(read(urls["healthz"] + container()["livenessProbe"]["httpGet"]["path"]))
        assert read(urls["ready"] + container()["readinessProbe"]["httpGet"]["path"])
        seen = exported(read(urls["metrics"]))
    assert told["selectcache.probe"]["v1/pods"]["health"] == "synced"
    assert refused(cluster) == []
    known = {name: labels for name, labels in documented().items() if name.startswith(PREFIX)}
    assert seen.keys() == known.keys()
    assert {name: labels - known[name] for name, labels in seen.items() if labels - known[name]} == {}
    assert seen[f"{PREFIX}reads_total"] == known[f"{PREFIX}reads_total"]
    asked = {each.resource for each in cluster.requests.where(user=ACCOUNT)}
    rules = manifest("ClusterRole")["rules"] + manifest("Role")["rules"]
    assert {resource for rule in rules for resource in rule["resources"]} - asked == set()
    log = (tmp_path / "log").read_text()
    assert "writes are shown" in log
    assert "wrote" not in log, "the root file system is read-only"


def exported(metrics: str) -> dict[str, set[str]]:
    """Return the exported metrics, with their labels."""
    names = {name: set[str]() for name in re.findall(rf"^# TYPE ({PREFIX}\w+) ", metrics, re.MULTILINE)}
    for name, labels in re.findall(rf"^({PREFIX}\w+)\{{(.*)\}} ", metrics, re.MULTILINE):
        names[name] |= set(re.findall(r'(\w+)="', labels))
    return names


def test_for_one_namespace_the_permissions_that_are_printed_for_it_will_do(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    cluster.apply(ROOT / "examples/webapps.yaml")
    cluster.namespace("operators")
    cluster.namespace("shop")
    options = ["-n", "shop", "--account", "operators/webapps"]
    printed = subprocess.run(
        [sys.executable, "-P", "-m", "kopf_selectcache", "rbac", str(EXAMPLE / "app.py"), *options],
        env={**os.environ, "METRICS_PORT": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    cluster.apply(printed.stdout)
    with deployed(cluster, tmp_path, "-n", "shop"):
        counted(cluster, tmp_path, "shop")
    assert refused(cluster) == []


# ---- What the page shows is what the example has.


def test_the_page_shows_the_container_of_the_deployment() -> None:
    (shown,) = (fence.text for fence in fences(PAGE, "yaml"))
    assert shown in textwrap.dedent(
        (EXAMPLE / "base/deployment.yaml").read_text().partition("containers:\n")[2]
    )


def test_the_page_shows_the_dockerfile_but_its_comments() -> None:
    (shown,) = (fence.text for fence in fences(PAGE, "dockerfile"))
    assert shown == re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)


def test_the_operator_of_the_example_has_the_lines_that_the_page_shows() -> None:
    (shown,) = (fence.text for fence in fences(PAGE, "python"))
    source = (EXAMPLE / "app.py").read_text()
    assert [line for line in shown.splitlines()[1:] if line not in source] == []


# ---- The image, the manifests and the chart fit each other.


def test_the_permissions_of_the_chart_are_those_of_the_base() -> None:
    base = (EXAMPLE / "base/rbac.yaml").read_text()
    chart = (EXAMPLE / "chart/rbac.yaml").read_text()
    assert chart.replace("my-namespace", "operators").replace("my-operator", "webapps") == base
    template = (EXAMPLE / "chart/templates/rbac.yaml").read_text()
    assert re.findall(r'replace "(.*)" (\S+)', template) == [
        ("my-namespace", ".Release.Namespace"),
        ("my-operator", ".Release.Name"),
    ]


def rendered(template: str, given: Mapping[str, object]) -> str:
    """Return the template as Helm renders it: `given` has the value of each of its expressions."""
    lines, shown = list[str](), [True]
    for line in template.splitlines():
        if condition := re.search(r"\{\{- if (not )?(.*) \}\}", line):
            shown.append(bool(given[condition[2]]) != bool(condition[1]))
        elif "{{- else }}" in line:
            shown[-1] = not shown[-1]
        elif "{{- end }}" in line:
            shown.pop()
        elif all(shown):
            lines.append(re.sub(r"\{\{-? (.*?) \}\}", lambda found: str(given[found[1]]), line))
    return "\n".join(lines)


def test_the_chart_makes_the_deployment_of_the_base() -> None:
    """`make test-deploy` asks Helm itself."""
    values = yaml.safe_load((EXAMPLE / "chart/values.yaml").read_text())
    chart = yaml.safe_load((EXAMPLE / "chart/Chart.yaml").read_text())
    options = "\n".join(f"            - {each}" for each in values["options"])
    given = {
        ".Release.Name": "webapps",
        ".Release.Namespace": "operators",
        ".Values.sharding": values["sharding"],
        ".Values.replicas": values["replicas"],
        ".Values.image.repository": values["image"]["repository"],
        ".Values.image.tag | default .Chart.AppVersion": values["image"]["tag"] or chart["appVersion"],
        "toYaml .Values.resources | nindent 12": json.dumps(values["resources"]),
        "toYaml .Values.options | nindent 12": f"\n{options}",
    }
    template = (EXAMPLE / "chart/templates/deployment.yaml").read_text()
    assert yaml.safe_load(rendered(template, given)) == manifest("Deployment")
    alone = yaml.safe_load(rendered(template, given | {".Values.sharding": False}))["spec"]
    assert (alone["replicas"], alone["strategy"]) == (1, {"type": "Recreate"})


def test_the_image_runs_as_the_user_of_the_pod_on_one_version_of_python() -> None:
    assert instructions("USER") == [f"{pod()['securityContext']['runAsUser']}:1000"]
    assert len({words.split()[0] for words in instructions("FROM")}) == 1
    copied = {
        word
        for words in instructions("COPY")
        for word in words.split()[:-1]
        if not word.startswith(("/", "--")) and "*" not in word
    }
    assert {file for file in copied if not (EXAMPLE / file).is_file()} == set()


def test_the_pod_is_as_restricted_as_its_namespace_asks_for() -> None:
    assert pod()["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert manifest("Namespace")["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


def test_a_pod_has_longer_to_end_than_its_handlers_need() -> None:
    assert pod()["terminationGracePeriodSeconds"] >= kopf.OperatorSettings().queueing.exit_timeout + 10


def test_the_chart_has_the_permissions_of_the_base_under_names_of_its_own() -> None:
    template = (EXAMPLE / "chart/templates/rbac.yaml").read_text()
    replaced = dict(re.findall(r'replace "([\w-]+)" (\S+)', template))
    assert replaced == {"my-namespace": ".Release.Namespace", "my-operator": ".Release.Name"}
    permissions = (EXAMPLE / "chart/rbac.yaml").read_text()
    for placeholder, name in zip(replaced, ("operators", "webapps"), strict=True):
        permissions = permissions.replace(placeholder, name)
    assert permissions == (EXAMPLE / "base/rbac.yaml").read_text()


def test_the_base_leaves_roles_in_the_namespaces_that_they_name() -> None:
    """A `namespace:` of kustomize would move all of them, as those of `rbac -n shop`, to the operator's."""
    kustomization = yaml.safe_load((EXAMPLE / "base/kustomization.yaml").read_text(encoding="utf-8"))
    assert "namespace" not in kustomization
    for file in kustomization["resources"]:
        for each in yaml.safe_load_all((EXAMPLE / "base" / file).read_text(encoding="utf-8")):
            if each["kind"] not in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
                assert each["metadata"]["namespace"] == "operators", each["kind"]
