"""The commands `check` and `rbac` on the real API server and the embedded one: what they say of an operator
is so when it runs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.cluster import USERS, Cluster
from tests.apiserver.waiting import wait_until
from tests.real.operators import Operator
from tests.real.stages import EmbeddedStage, RealStage

RUNS_ON = ["real"]  # Other tests show the same on the embedded server.

OPERATOR = """
import kopf
import kopf_selectcache as selectcache

@kopf.on.startup()
def configure(settings, **_):
    select = settings.selectcache.selectors
    select['v1/secrets'] = [selectcache.Selector(names=['ca']), selectcache.Selector('kind=key')]
    select['example.com/v1/notes'] = 'kind=key'

@kopf.on.create('configmaps', labels={'app': 'web'})
@selectcache.with_cache
async def count(cache, name, namespace, patch, **_):
    there = cache.exists('secrets', 'ca', namespace=namespace)
    other = await cache.fetch('secrets', 'other', namespace=namespace, default=None)
    patch.metadata.annotations['said'] = f'{there} {other is not None} {cache.count("notes.example.com", namespace=namespace, labels="kind=key")}'
"""  # The operator has long lines.  # noqa: E501
KINDS = {
    "Role": "roles",
    "ClusterRole": "clusterroles",
    "RoleBinding": "rolebindings",
    "ClusterRoleBinding": "clusterrolebindings",
}


@pytest.fixture(scope="module")
def cluster(server: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with EmbeddedStage() if server == "embedded" else RealStage(request.getfixturevalue("assets")) as stage:
        stage.api.create_crd("example.com", "v1", "Note", "notes")
        yield stage.api


class Commands:
    """The commands, as processes, with the admin's credentials."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig(folder / "admin"))}
        self.operator = folder / "web.py"
        self.operator.write_text(OPERATOR)
        (folder / "operator.py").write_text(
            OPERATOR
        )  # Python must not take it for its own module of this name.

    def run(self, name: str, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [Path(sys.executable).with_name("selectcache"), name, str(self.operator), *arguments],
            cwd=self.operator.parent,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout


@pytest.fixture
def commands(cluster: Cluster, tmp_path: Path) -> Commands:
    return Commands(cluster, tmp_path)


def apply(cluster: Cluster, printed: str) -> None:
    for obj in yaml.safe_load_all(printed):
        if obj["kind"] in KINDS:
            within = f"/namespaces/{obj['metadata']['namespace']}" if "namespace" in obj["metadata"] else ""
            cluster.request(
                "POST", f"/apis/rbac.authorization.k8s.io/v1{within}/{KINDS[obj['kind']]}", body=obj
            )


def create(cluster: Cluster, namespace: str, plural: str, name: str, **labels: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/{plural}"
    cluster.request("POST", path, body={"metadata": {"name": name, "labels": labels}})
    return f"{path}/{name}"


def annotation(cluster: Cluster, path: str) -> Any:
    return cluster.request("GET", path)["metadata"].get("annotations", {}).get("said")


def test_an_operator_with_the_printed_rights_and_no_others_does_its_work(
    cluster: Cluster, commands: Commands, tmp_path: Path
) -> None:
    namespace, user = cluster.namespace(), cluster.user()
    where = ("-n", namespace, "--account", f"{USERS}/{user.account}", "--standalone")
    code, missing = commands.run("rbac", *where, "--check")
    assert code == 1
    assert f"missing: get, list, watch secrets in {namespace}, for caches, fetches" in missing
    apply(cluster, commands.run("rbac", *where)[1])
    wait_until(
        lambda: (
            commands.run("rbac", *where, "--check") == (0, "Nothing is missing, and nothing is too much.\n")
        ),
        "the rights are in force",
    )
    create(cluster, namespace, "secrets", "ca")
    create(cluster, namespace, "secrets", "other")
    cluster.request(
        "POST",
        f"/apis/example.com/v1/namespaces/{namespace}/notes",
        body={
            "apiVersion": "example.com/v1",
            "kind": "Note",
            "metadata": {"name": "a", "labels": {"kind": "key"}},
        },
    )
    config = create(cluster, namespace, "configmaps", "web", app="web")
    with Operator(
        tmp_path / "operator", cluster, OPERATOR, namespaces=[namespace], token=user.token, asked=False
    ) as operator:
        wait_until(
            lambda: annotation(cluster, config) == "True True 1" or operator.ended,
            "the operator has done its work",
        )
        assert annotation(cluster, config) == "True True 1", operator.log
        assert "may not" not in operator.log
