"""examples/deploy: the real API server takes what kustomize and Helm render, and the Dockerfile's commands
make an environment in which the operator works.

`make test-deploy` builds helm and the wheel first; without them, those tests are skipped. No image is built:
the RUN lines of the Dockerfile run in a folder that stands for its root, on a Python of this machine.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.cluster import Cluster
from tests.apiserver.helm import path_of_helm
from tests.docs.test_deploying import DOCKERFILE, EXAMPLE, container, counted, deployed, instructions, refused

ROOT = EXAMPLE.parents[1]
CHART = EXAMPLE / "chart"
BASE = EXAMPLE / "base"

Run = Callable[..., str]
Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command, with a home of its own; return what it prints."""

    def command(program: Path, *words: str, given: str = "", **environ: str) -> str:
        done = subprocess.run(
            [program, *words],
            env={**os.environ, "HOME": str(tmp_path), **environ},
            check=False,
            text=True,
            timeout=120,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return command


@pytest.fixture
def helm() -> Path:
    path = path_of_helm()
    if not path.exists():
        pytest.skip("helm is not built: make test-deploy")
    return path


def by_name(rendered: str) -> Objects:
    return {
        (each["kind"], each["metadata"]["name"]): each
        for each in yaml.safe_load_all(rendered)
        if each is not None
    }


def is_taken(run: Run, assets: Path, cluster: Cluster, folder: Path, rendered: str, namespace: str) -> None:
    """Apply it by a dry run of the server, and a pod of the Deployment as well, in a namespace that enforces
    the Pod Security Standard `restricted`."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace, "labels": labels}})
    objects = by_name(rendered)
    (deployment,) = (each for (kind, _), each in objects.items() if kind == "Deployment")
    template = deployment["spec"]["template"]
    # A controller would make the account's pod; it is the account itself that a server asks for.
    cluster.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts",
        body={"metadata": {"name": template["spec"]["serviceAccountName"]}},
    )
    metadata = {**template["metadata"], "name": "webapps-1", "namespace": namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    said = run(
        assets / "kubectl",
        *("apply", "--dry-run=server", "--validate=strict", "--filename=-"),
        given=f"{rendered}\n---\n{yaml.safe_dump(pod)}",
        KUBECONFIG=str(cluster.kubeconfig(folder / "admin")),
    )
    lines = [line for line in said.splitlines() if "last-applied-configuration" not in line]
    assert len(lines) == len(objects) + 1, said
    assert [line for line in lines if not line.endswith("(server dry run)")] == []


def test_the_server_accepts_the_objects_of_kustomize(
    run: Run, assets: Path, real_api: Cluster, tmp_path: Path
) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    kustomization = {
        "namespace": "operators-kustomize",
        "resources": [os.path.relpath(BASE, overlay)],
        "images": [{"name": "images.example.com/webapps", "newTag": "2"}],
        "replicas": [{"name": "webapps", "count": 3}],
    }
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    rendered = run(assets / "kubectl", "kustomize", str(overlay))
    assert "images.example.com/webapps:2" in rendered
    is_taken(run, assets, real_api, tmp_path, rendered, "operators-kustomize")


@pytest.mark.aside
def test_the_server_accepts_the_objects_of_helm(
    run: Run, assets: Path, helm: Path, real_api: Cluster, tmp_path: Path
) -> None:
    run(helm, "lint", "--strict", str(CHART))
    options = ["--namespace=operators-helm", "--set=replicas=3", "--set=options={-n,shop}"]
    rendered = run(helm, "template", "counting", str(CHART), *options)
    assert "my-" not in rendered
    deployment = by_name(rendered)["Deployment", "counting"]["spec"]
    assert deployment["replicas"] == 3
    assert deployment["template"]["spec"]["containers"][0]["args"][:2] == ["-n", "shop"]
    is_taken(run, assets, real_api, tmp_path, rendered, "operators-helm")


@pytest.mark.aside
def test_helm_renders_the_objects_of_the_base(run: Run, assets: Path, helm: Path) -> None:
    chart = by_name(run(helm, "template", "webapps", str(CHART), "--namespace=operators"))
    base = by_name(run(assets / "kubectl", "kustomize", str(BASE)))
    del base["Namespace", "operators"]  # helm makes it: --create-namespace.
    assert chart == base


def test_an_operator_without_sharding_runs_as_one_replica_that_needs_no_readiness(
    run: Run, assets: Path, real_api: Cluster, tmp_path: Path
) -> None:
    rendered = run(assets / "kubectl", "kustomize", str(EXAMPLE / "single"))
    assert "PodDisruptionBudget" not in {kind for kind, _ in by_name(rendered)}
    spec = by_name(rendered)["Deployment", "webapps"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    (only,) = spec["template"]["spec"]["containers"]
    assert "readinessProbe" not in only
    assert [port["name"] for port in only["ports"]] == ["healthz", "metrics"]
    assert only["args"] == ["--standalone", *container()["args"]]
    is_taken(run, assets, real_api, tmp_path, rendered, "operators")


@pytest.mark.aside
def test_helm_renders_the_objects_of_the_overlay_without_sharding(run: Run, assets: Path, helm: Path) -> None:
    options = ["--namespace=operators", "--set=sharding=false"]
    chart = by_name(run(helm, "template", "webapps", str(CHART), *options))
    single = by_name(run(assets / "kubectl", "kustomize", str(EXAMPLE / "single")))
    del single["Namespace", "operators"]
    assert chart == single


@pytest.mark.aside
def test_one_replica_has_no_budget_that_would_keep_a_node_from_being_drained(run: Run, helm: Path) -> None:
    rendered = by_name(run(helm, "template", "webapps", str(CHART), "--set=replicas=1"))
    assert {kind for kind, _ in rendered} == {
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Deployment",
    }


# ---- The image.


def interpreter() -> Path:
    """Return the Python of the image if this machine has it, else that of the tests."""
    found = re.match(r"python:(\d+\.\d+)-slim", instructions("FROM")[0])
    assert found is not None
    for path in subprocess.check_output([ROOT / "tests/pythons"], text=True).split():
        if f"{found[1]}." in subprocess.check_output([path, "--version"], text=True):
            return Path(path)
    return Path(sys.executable)


@pytest.mark.aside
def test_the_operator_works_in_the_environment_of_the_dockerfile(
    cluster: EmbeddedCluster, tmp_path: Path, run: Run
) -> None:
    wheels = list((ROOT / "dist").glob("*.whl"))
    if not wheels:
        pytest.skip("there is no wheel: make test-deploy")
    root, context = tmp_path / "root", tmp_path / "context"
    root.mkdir()
    # The image's `python` comes first on its PATH.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(interpreter())
    context.mkdir()
    for file in [*wheels, *EXAMPLE.iterdir()]:
        if file.is_file():
            (context / file.name).write_bytes(file.read_bytes())

    def inside(words: str) -> str:
        """Let absolute paths begin in the folder that stands for the image's root."""
        return re.sub(r"(?<![\w:/.])/(?=\w)", f"{root}/", words)

    for line in DOCKERFILE.read_text().splitlines():
        name, _, rest = line.partition(" ")
        if name == "COPY" and rest.startswith("--from="):
            _, source, target = rest.split()
            # Else the programs of the environment would name a Python that isn't there.
            assert source == target
        elif name == "COPY":
            *sources, folder = rest.split()
            into = Path(inside(folder))
            into.mkdir(parents=True, exist_ok=True)
            for source in sources:
                for file in context.glob(source):
                    (into / file.name).write_bytes(file.read_bytes())
        elif name == "RUN":
            run(
                Path("/bin/sh"),
                "-ec",
                inside(rest),
                PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}",
                PIP_DISABLE_PIP_VERSION_CHECK="1",
            )
    (path,) = (
        inside(word.partition("=")[2].partition(":")[0])
        for line in instructions("ENV")
        for word in shlex.split(line)
        if word.startswith("PATH=")
    )
    assert (root / "app/app.py").is_file()
    cluster.apply(ROOT / "examples/webapps.yaml")
    for kustomized in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]:
        cluster.apply(BASE / kustomized)
    with deployed(cluster, tmp_path, program=[f"{path}/kopf"]):
        counted(cluster, tmp_path, "default")
    assert refused(cluster) == []
    installed = run(Path(path) / "python", "-Ic", "import kopf_selectcache as it; print(it.__file__)")
    assert installed.startswith(str(root))
