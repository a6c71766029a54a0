"""kubectl works on the embedded server: it discovers, validates, writes, and asks for rights."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kopf_selectcache.testing.cluster import EmbeddedCluster

Kubectl = Callable[..., str]
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "foos.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Foo", "plural": "foos", "singular": "foo", "shortNames": ["fo"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


@pytest.fixture
def kubectl(assets: Path, tmp_path: Path) -> Iterator[Kubectl]:
    """Run kubectl as the admin of a fresh cluster, with a home of its own; give what it prints, errors
    included."""
    with EmbeddedCluster().in_thread() as cluster:
        environ = {
            **os.environ,
            "HOME": str(tmp_path),
            "KUBECONFIG": str(cluster.kubeconfig(tmp_path / "config")),
        }

        def run(*words: str, given: Any = None) -> str:
            done = subprocess.run(
                [assets / "kubectl", *words],
                env=environ,
                check=False,
                text=True,
                timeout=60,
                input=json.dumps(given),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            return done.stdout.strip()

        yield run


def _foo(color: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Foo",
        "metadata": {"name": "f"},
        "spec": {"color": color},
    }


def _config_map(value: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": value}}


def test_objects_are_applied_on_the_server(kubectl: Kubectl) -> None:
    applied = ("apply", "--server-side", "-f", "-")
    assert kubectl(*applied, given=_config_map("1")) == "configmap/m serverside-applied"
    conflict = kubectl(*applied, "--field-manager=other", given=_config_map("2"))
    assert "Apply failed with 1 conflict" in conflict
    assert ".data.k" in conflict
    forced = kubectl(*applied, "--field-manager=other", "--force-conflicts", given=_config_map("2"))
    assert forced == "configmap/m serverside-applied"
    managers = kubectl("get", "cm", "m", "--show-managed-fields", "-o", "jsonpath={..manager}")
    assert managers == "other"
    assert kubectl(*applied, given=DEFINITION).endswith("serverside-applied")
    assert kubectl(*applied, given=_foo("red")) == "foo.example.com/f serverside-applied"


def test_an_object_applied_by_kubectl_itself_is_applied_on_the_server(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", given=_config_map("1")) == "configmap/m created"
    changed = kubectl("apply", "--server-side", "-f", "-", given=_config_map("2"))
    assert changed == "configmap/m serverside-applied"
    managers = kubectl("get", "cm", "m", "--show-managed-fields", "-o", "jsonpath={..manager}")
    assert managers == "kubectl-last-applied kubectl"
    assert kubectl("get", "cm", "m", "-o", "jsonpath={.data.k}") == "2"


def test_resources_are_listed(kubectl: Kubectl) -> None:
    lines = [line.split() for line in kubectl("api-resources", "--no-headers").splitlines()]
    assert ["pods", "po", "v1", "true", "Pod"] in lines
    assert ["selfsubjectreviews", "authentication.k8s.io/v1", "false", "SelfSubjectReview"] in lines
    assert "batch/v1" in kubectl("api-versions").splitlines()


def test_rights_are_asked_for(kubectl: Kubectl) -> None:
    assert (
        kubectl("auth", "can-i", "delete", "nodes")
        == "Warning: resource 'nodes' is not namespace scoped\n\nyes"
    )
    assert kubectl("auth", "can-i", "get", "pods", "--as", "joe") == "no"
    assert kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", "--as", "joe") == "joe"
    assert "selfsubjectreviews.authentication.k8s.io" in kubectl("auth", "can-i", "--list", "--as", "joe")
    assert kubectl("create", "serviceaccount", "robot") == "serviceaccount/robot created"
    assert (
        kubectl("create", "role", "reader", "--verb=get", "--resource=pods")
        == "role.rbac.authorization.k8s.io/reader created"
    )
    assert (
        kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:robot")
        == "rolebinding.rbac.authorization.k8s.io/reader created"
    )
    token = kubectl("create", "token", "robot")
    assert kubectl("auth", "can-i", "get", "pods", "--as", "system:serviceaccount:default:robot") == "yes"
    assert (
        kubectl("get", "pods", "--as", "joe")
        == 'Error from server (Forbidden): pods is forbidden: User "joe" cannot list resource "pods" in API'
        ' group "" in the namespace "default"'
    )
    assert len(token.split(".")) == 3


def test_small_things_are_created_by_their_commands(kubectl: Kubectl) -> None:
    assert kubectl("create", "namespace", "n") == "namespace/n created"
    assert kubectl("create", "configmap", "c", "--from-literal=a=b", "-n", "n") == "configmap/c created"
    assert kubectl("create", "secret", "generic", "s", "--from-literal=a=b", "-n", "n") == "secret/s created"
    assert (
        kubectl("get", "configmap/c", "secret/s", "-n", "n", "-o", "jsonpath={.items[*].data.a}") == "b Yg=="
    )
    assert kubectl("delete", "namespace", "n") == 'namespace "n" deleted'
