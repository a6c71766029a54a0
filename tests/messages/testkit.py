"""Errors of the embedded cluster, the fake cache, the log of requests, manifests and planned faults."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from click.testing import CliRunner, Result

from kopf_selectcache.testing import EmbeddedCluster, FakeCache, ManifestError
from kopf_selectcache.testing._operator import OperatorRun, error_of
from kopf_selectcache.testing.faults import BigObjects, DropEvents, Refuse, Silence
from kopf_selectcache.testing.manifests import files_in, read_file
from kopf_selectcache.testing.request_log import Requests
from tests.cache.environment import pod
from tests.messages.provoked import Provoked

POD = pod("web-1", app="web")
BARE: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "a"}}


def _on_cluster(call: Callable[[EmbeddedCluster], object], *objects: dict[str, Any]) -> Callable[[], object]:
    """Return a function that makes a call on a cluster that does not run and has these objects."""

    def provoke() -> object:
        cluster = EmbeddedCluster(tls=False)
        cluster.create(*objects)
        return call(cluster)

    return provoke


def _wait(awaited: dict[str, Any], *objects: dict[str, Any]) -> Callable[[], object]:
    return _on_cluster(lambda cluster: cluster.wait_for(awaited, lambda _: False, timeout=0), *objects)


CLUSTER: dict[str, Callable[[], object]] = {
    "a port that is none": lambda: EmbeddedCluster(port=65536),
    "it does not run": _on_cluster(lambda cluster: cluster.stop_listening()),
    "it has no authority": lambda: EmbeddedCluster().ca_file,
    "an object that is text": _on_cluster(lambda cluster: cluster.get(cast("Any", "pods"))),
    "a list of objects": _on_cluster(lambda cluster: cluster.create(cast("Any", [POD]))),
    "an object without a kind": _on_cluster(lambda cluster: cluster.create({"metadata": {"name": "a"}})),
    "an object without a name": _on_cluster(
        lambda cluster: cluster.delete({"apiVersion": "v1", "kind": "Pod"})
    ),
    "an object that is no JSON": _on_cluster(lambda cluster: cluster.create({**BARE, "spec": {"a": {1}}})),
    "a manifest that is the name of a file": _on_cluster(lambda cluster: cluster.apply("crd.yaml")),
    "a manifest that is an object": _on_cluster(lambda cluster: cluster.apply(cast("Any", BARE))),
    "rules that are a dict": _on_cluster(lambda cluster: cluster.user("ann", cast("Any", {}))),
    "a wait for an object that does not exist": _wait(BARE),
    "a wait for an object with a status": _wait(
        {"kind": "Node", "metadata": {"name": "a"}},
        {"kind": "Node", "metadata": {"name": "a"}, "status": {"phase": "Pending"}},
    ),
    "a wait for an object of the cluster": _wait({"kind": "Node", "metadata": {"name": "a"}}),
    "a wait for an object of an unknown kind": _wait(
        {"kind": "Widget", "metadata": {"name": "a", "namespace": "shop"}}
    ),
    "a wait for an object without a status": _wait(
        {"kind": "ServiceAccount", "metadata": {"name": "a"}},
        {"kind": "ServiceAccount", "metadata": {"name": "a"}},
    ),
    "a wait for a ConfigMap": _wait(
        {"kind": "ConfigMap", "metadata": {"name": "a"}},
        {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"greeting": "Hello"}},
    ),
    "a wait for a ConfigMap without data": _wait(
        {"kind": "ConfigMap", "metadata": {"name": "a"}}, {"kind": "ConfigMap", "metadata": {"name": "a"}}
    ),
    "a wait for a Secret": _wait(
        {"kind": "Secret", "metadata": {"name": "a"}},
        {"kind": "Secret", "metadata": {"name": "a"}, "stringData": {"password": "canary"}},
    ),
}

RULES: dict[str, Any] = {
    "is text": "pods",
    "has resources that are text": {"apiGroups": [""], "resources": "pods", "verbs": ["list"]},
    "has verbs that are text": {"apiGroups": [""], "resources": ["pods"], "verbs": "list"},
    "has a resource that is a number": {"apiGroups": [""], "resources": [1], "verbs": ["list"]},
    "has a misspelt part": {"apiGroups": [""], "resource": ["pods"], "verbs": ["list"]},
    "has a verb in capitals": {"apiGroups": [""], "resources": ["pods"], "verbs": ["LIST"]},
    "has a method of HTTP": {"apiGroups": [""], "resources": ["pods"], "verbs": ["post"]},
    "has a resource in the singular": {"apiGroups": [""], "resources": ["pod/status"], "verbs": ["get"]},
    "has a kind": {"apiGroups": ["*"], "resources": ["Deployment"], "verbs": ["get"]},
    "has a resource with its group": {
        "apiGroups": [""],
        "resources": ["webapps.example.com"],
        "verbs": ["get"],
    },
    "has no verbs": {"apiGroups": [""], "resources": ["pods"]},
    "has no groups": {"resources": ["pods"], "verbs": ["list"]},
}

FAKE: dict[str, Callable[[], object]] = {
    "objects that are one": lambda: FakeCache(cast("Any", POD), {}),
    "an object that is text": lambda: FakeCache(cast("Any", ["web-1"]), {}),
    "an object without metadata": lambda: FakeCache([{**POD, "metadata": None}], {}),
    "an object without a version": lambda: FakeCache([BARE], {}),
    "an object without a kind": lambda: FakeCache([{"apiVersion": "v1", "metadata": {"name": "a"}}], {}),
    "an object twice": lambda: FakeCache([POD, POD], {}),
    "an object of an unknown kind": lambda: FakeCache([{**POD, "kind": "Widget"}], {}),
    "a kind whose plural nobody can guess": lambda: FakeCache(
        [{"apiVersion": "example.com/v1", "kind": "Child", "metadata": {"name": "a"}}],
        {"example.com/v1/children": ""},
    ),
    "a kind without a definition": lambda: FakeCache([], {"webapps.example.com": "app=web"}),
    "filters that are text": lambda: FakeCache([], cast("Any", "app=web")),
    "filters that are a list": lambda: FakeCache([], cast("Any", ["app=web"])),
    "own is no object": lambda: FakeCache(own={}),
    "own has no version": lambda: FakeCache(own=BARE),
    "own is text": lambda: FakeCache(own=cast("Any", "web-1")),
    "deleted without own": lambda: FakeCache(deleted=True),
    "a misspelt argument": lambda: cast("Any", FakeCache)(namespace="shop"),
    "a call that needs a server": lambda: FakeCache().cluster.requests,
    "a fault of connections": lambda: FakeCache().cluster.faults.add(Silence()),
    "an audit outside of a loop": lambda: FakeCache([POD], {"pods": "app=web"}).audit("pods"),
}


def _match(verb: str, resource: str = "") -> Callable[[], object]:
    return lambda: Requests().where(cast("Any", verb), resource)


REQUESTS: dict[str, Callable[[], object]] = {
    "a verb in capitals": _match("LIST"),
    "a method of HTTP": _match("POST"),
    "a misspelt verb": _match("lists"),
    "another method of HTTP": _match("put"),
    "a verb that is far from any": _match("pods"),
    "a verb that is a number": _match(cast("Any", 1)),
    "a resource in the singular": _match("list", "pod"),
    "a short name of a resource": _match("list", "po"),
    "a kind in the singular": _match("list", "Pod"),
    "a resource after its version": _match("list", "v1/pods"),
    "a resource before its version": _match("list", "pods.v1"),
    "a resource in the singular with its group": _match("list", "deployment.apps"),
    "a custom resource after its version": _match("list", "example.com/v1/webapps"),
    "a resource that is a number": _match("list", cast("Any", 1)),
    "a kind": _match("list", "ConfigMaps"),
    "a resource with a version": _match("list", "apps/v1/deployments"),
    "a resource with a version and a subresource": _match("list", "deploy/status"),
    "a custom resource with a version": _match("list", "webapps.v1.example.com"),
    "an unknown kind": _match("list", "WebApp"),
    "a wait in vain": lambda: Requests().wait("list", timeout=0),
    "a fault of a verb in capitals": _on_cluster(
        lambda cluster: cluster.faults.add(Refuse(503), verb=cast("Any", "LIST"))
    ),
    "a fault of names that are text": lambda: BigObjects(names=cast("Any", "big")),
    "a fault of names that are bytes": lambda: BigObjects(names=cast("Any", [b"big"])),
    "a fault of types that are text": lambda: DropEvents(cast("Any", "ADDED")),
}


def _read(text: str, name: str = "a.yaml") -> Callable[[], object]:
    """Return a function that reads a manifest from a file of this name."""

    def provoke() -> object:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, name)
            file.write_text(text)
            try:
                return list(read_file(file))
            except ManifestError as error:
                raise ManifestError(str(error).replace(folder, "...")) from None

    return provoke


MANIFESTS: dict[str, Callable[[], object]] = {
    "no file": lambda: list(files_in(Path("nowhere"))),
    "a document that is no YAML": _read("{kind: A}\n---\n{kind: ["),
    "a document that is text": _read("just text"),
    "a document without a kind": _read("{metadata: {name: a}}"),
    "a list of numbers": _read("{kind: List, items: [1]}"),
    "broken JSON": _read('{"kind": "A"}{"kind": ', "a.json"),
}


def _ended(code: int, error: BaseException | None = None) -> Callable[[], object]:
    """Return a function that raises the error of an operator that has ended so, and has written nothing."""

    def provoke() -> object:
        raise error_of(Result(CliRunner(), b"", b"", b"", None, code, error))

    return provoke


OPERATORS: dict[str, Callable[[], object]] = {
    "arguments that are a list": lambda: OperatorRun(cast("Any", ["app.py", "-A"])),
    "the output before the end": lambda: OperatorRun("app.py").output,
    "one that has ended without an error": _ended(0),
    "one that has ended without a word": _ended(3, SystemExit(3)),
    "one whose file has an error": _ended(1, ZeroDivisionError("division by zero")),
}


def provoke(provoked: Provoked) -> None:
    rules = {
        f"a rule that {title}": _on_cluster(lambda cluster, rule=rule: cluster.user("ann", [rule]))  # type: ignore[misc]
        for title, rule in RULES.items()
    }
    provoked.add_all(
        {
            "Embedded cluster": {**CLUSTER, **rules},
            "Fake cache": FAKE,
            "Operators of tests": OPERATORS,
            "Requests and faults": REQUESTS,
            "Manifests": MANIFESTS,
        }
    )
