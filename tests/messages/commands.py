"""Commands: the exit code, the output, and the lines on standard error."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kopf

from kopf_selectcache.__main__ import main
from kopf_selectcache._kopf import SmartOperatorRegistry
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.cache.environment import pod
from tests.cli.conftest import HEAD
from tests.cli.test_check_peering import of_namespaces
from tests.cli.test_shards import CONFIGMAP, OPERATORS, RECONCILING, SHARDED, assignment, lease
from tests.messages.provoked import Lines, Provoked
from tests.plugin.test_embedding import PEERINGS

WEB = "select['v1/pods'] = 'app=web'"
CUT = [
    (r"can't connect to [0-9.]+:\d+", "can't connect to 127.0.0.1:..."),
    (r"(?s)Traceback \(most recent call last\):.*\n(?=\w+(Error|Exit)\b)", "Traceback ...\n"),
    (r"\b\d[\d,.]* ?(Ki|Mi|KiB|B|ms|s)\b", "..."),
    (r"\b20\d\d-\d\d-\d\dT[\d:]+Z", "..."),
]
"""What differs from run to run, and what stands for it in the table."""


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables, and restore all that an operator changes when it is loaded."""
    before, path, modules = dict(os.environ), [*sys.path], {*sys.modules}
    registry = kopf.get_default_registry()
    os.environ.update(values)
    kopf.set_default_registry(SmartOperatorRegistry())  # It chooses its login by the environment.
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        sys.path[:] = path
        kopf.set_default_registry(registry)
        for name in {*sys.modules} - modules:
            if name == "web":  # The operator of the next command has the same name.
                del sys.modules[name]


def run(
    command: str,
    *arguments: str,
    source: str = "",
    declared: str = WEB,
    kubeconfig: str = "",
    prepare: Callable[[EmbeddedCluster], object] = lambda _: None,
    files: Mapping[str, str] | None = None,
) -> Callable[[], Lines]:
    """Return a function that runs a command on an operator and a cluster with one pod."""

    def provoke() -> Lines:
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            lines = "".join(f"    {line}\n" for line in declared.splitlines())
            for name, text in {"web.py": source or f"{HEAD}{lines}", **(files or {})}.items():
                (folder / name).write_text(text)
            cluster = stack.enter_context(EmbeddedCluster().in_thread())
            cluster.namespace("ns")
            cluster.create(pod("web-1", version="", app="web"))
            found = kubeconfig or str(cluster.kubeconfig(folder / "kubeconfig"))
            prepare(cluster)
            stack.enter_context(_environment(KUBECONFIG=found, HOME="/nowhere", COLUMNS="100", NO_COLOR="1"))
            stack.enter_context(contextlib.redirect_stdout(output))
            stack.enter_context(contextlib.redirect_stderr(errors))
            code = main([command, *(each.replace("FOLDER", str(folder)) for each in arguments)])
        text = "\n".join(
            f"{title}:\n{stream.getvalue().strip()}"
            for title, stream in (("output", output), ("errors", errors))
            if stream.getvalue().strip()
        ).replace(str(folder), "...")
        for pattern, stand_in in CUT:
            text = re.sub(pattern, stand_in, text)
        return Lines("\n".join(line.rstrip() for line in f"exit code: {code}\n{text}".splitlines()))

    return provoke


def load(manifest: str | None, name: str = "a.yaml") -> Callable[[], Lines]:
    """Return a function that serves a manifest; None if there is no such file."""
    files = {} if manifest is None else {name: manifest}
    return run("serve", "--kubeconfig", "FOLDER/new", "--load", f"FOLDER/{name}", files=files)


def _refuse(cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Refuse(503, message="the server is shutting down"), verb="list", times=1)


def _forbid(cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Refuse(403), verb="list", resource="pods")


def _own(cluster: EmbeddedCluster) -> None:
    """Let web-1 own a pod without labels, and one with another label."""
    web = cluster.get(pod("web-1", version=""))["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": web["uid"]}
    for made in (pod("lost-1", version=""), pod("db-1", version="", app="db")):
        cluster.create({**made, "metadata": {**made["metadata"], "ownerReferences": [owner]}})


def _own_controlled(cluster: EmbeddedCluster) -> None:
    """Let web-1 own a pod that a node controls."""
    web = cluster.get(pod("web-1", version=""))["metadata"]
    (node,) = cluster.create({"kind": "Node", "metadata": {"name": "n1"}})
    owners = [
        {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": web["uid"]},
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "n1",
            "uid": node["metadata"]["uid"],
            "controller": True,
        },
    ]
    made = pod("lost-1", version="")
    cluster.create({**made, "metadata": {**made["metadata"], "ownerReferences": owners}})


def _own_unpatched(cluster: EmbeddedCluster) -> None:
    _own(cluster)
    cluster.faults.add(Refuse(403, message="you may not patch pods"), verb="patch")


def _forbid_peerings(cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Refuse(403, message="no"), where=lambda asked: "peerings" in asked.path)


def _name_a_node(cluster: EmbeddedCluster) -> None:
    cluster.create({"kind": "Node", "metadata": {"name": "n1"}})
    cluster.create(pod("web-2", version="", app="web") | {"spec": {"nodeName": "n1"}})


def _replicas(*, age: float = 3.0, changes: Mapping[str, Any] | None = None) -> Callable[..., None]:
    """Return a function that creates two replicas, of which each owns half of the ranges. The second has
    renewed its Lease some seconds ago.
    """

    def prepare(cluster: EmbeddedCluster) -> None:
        cluster.namespace(OPERATORS)
        cluster.create(lease("web-1"), lease("web-2", age=age), assignment(dict.fromkeys(range(32), "web-2")))
        if changes is not None:
            cluster.patch(CONFIGMAP, changes)

    return prepare


def _of_replicas(*more: str) -> str:
    """Return the source of a sharded operator."""
    lines = "".join(f"    {line}\n" for line in SHARDED.splitlines())
    return "\n".join([f"{HEAD}{lines}{RECONCILING}", *more])


OPERATOR = "FOLDER/web.py"
COMMANDS: dict[str, Callable[[], Lines]] = {
    "check: nothing is wrong": run("check", OPERATOR),
    "check: a write that is not awaited": run(
        "check",
        OPERATOR,
        source=f"{HEAD}    {WEB}\n\nasync def f(cache): cache.live.delete('pods', 'a', namespace='b')\n",
    ),
    "check: a handler of a misspelt kind": run(
        "check",
        OPERATOR,
        source=f"{HEAD}    {WEB}\n\n@selectcache.on.change('configmapz')\ndef f(**_): ...\n",
    ),
    "check: a fetch whose kind is not written out": run(
        "check",
        OPERATOR,
        source=f"{HEAD}    {WEB}\n\nasync def f(cache, kind): await cache.fetch(kind, 'a')\n",
    ),
    "rbac: a fetch whose kind the command line has": run(
        "rbac",
        OPERATOR,
        "--fetch",
        "nodes",
        source=f"{HEAD}    {WEB}\n\nasync def f(cache, kind): await cache.fetch(kind, 'a')\n",
    ),
    "check: a peering that does not exist": run(
        "check", OPERATOR, "--peering", "ours", prepare=lambda cluster: cluster.create(PEERINGS)
    ),
    "check: a peering of a namespace": run(
        "check",
        OPERATOR,
        "-n",
        "ns",
        "--peering=ours",
        prepare=lambda cluster: cluster.create(of_namespaces(PEERINGS)),
    ),
    "check: a peering whose kind is not served": run("check", OPERATOR, "-P", "ours"),
    "check: a peering beside --standalone": run("check", OPERATOR, "-P", "ours", "--standalone"),
    "check: a peering that may not be listed": run("check", OPERATOR, "-P", "ours", prepare=_forbid_peerings),
    "check: a filter that selects nothing": run("check", OPERATOR, declared="select['v1/pods'] = 'app=none'"),
    "check: a namespace that does not exist": run(
        "check", OPERATOR, declared="select['v1/pods'] = Selector('app=web', namespaces=['ns', 'other'])"
    ),
    "check: the namespace of the operator does not exist": run("check", OPERATOR, "-n", "other"),
    "why: the namespace does not exist": run("why", OPERATOR, "pods/other/web-1"),
    "check: a kept path that the kind does not have": run(
        "check", OPERATOR, declared="select['v1/pods'] = Cached('app=web', keep=['spec.nodeNam'])"
    ),
    "check: a kept path that no object has, of a server without schemas": run(
        "check",
        OPERATOR,
        declared="select['v1/pods'] = Cached('app=web', keep=['spec.nodeNam'])",
        prepare=lambda cluster: cluster.faults.add(
            Refuse(403), where=lambda asked: asked.path.startswith("/openapi")
        ),
    ),
    "check: a kind that is not served": run("check", OPERATOR, declared="select['x.io/v1/things'] = 'a=b'"),
    "check: a selector with a mistake": run("check", OPERATOR, declared="select['v1/pods'] = 'app in'"),
    "check: no caches are declared": run(
        "check",
        OPERATOR,
        source="import kopf, kopf_selectcache\n\n@kopf.on.event('v1', 'pods')\ndef f(**_): ...\n",
    ),
    "check: the operator cannot be imported": run("check", OPERATOR, source="import kopf\n1 / 0\n"),
    "check: the operator ends itself": run("check", OPERATOR, source="raise SystemExit(0)"),
    "check: a startup handler fails": run("check", OPERATOR, declared="raise ValueError('no database')"),
    "check: no file": run("check", "FOLDER/gone.py"),
    "check: no credentials": run("check", OPERATOR, kubeconfig="/nowhere"),
    "check: no answer": run("check", OPERATOR, prepare=lambda cluster: cluster.stop_listening()),
    "check: a busy server": run("check", OPERATOR, prepare=_refuse),
    "check: an account that lacks permissions": run("check", OPERATOR, "--account", "operators/web"),
    "check: an account without a namespace": run("check", OPERATOR, "--account", "web"),
    "check: kinds of the command line": run(
        "check", OPERATOR, "--kind", "v1/configmaps", "--filter", "Cached('app=web', keep=['data'])"
    ),
    "check: a kind without a filter": run("check", OPERATOR, "--kind", "v1/configmaps"),
    "check: a filter with a mistake": run("check", OPERATOR, "--kind", "nodes", "--filter", "app in"),
    "check: a filter that is no literal": run(
        "check", OPERATOR, "--kind", "nodes", "--filter", "Selector(names=[name])"
    ),
    "check: a filter that cannot be parsed": run(
        "check", OPERATOR, "--kind", "nodes", "--filter", "Selector('app=web'"
    ),
    "check: another filter of a declared kind": run(
        "check", OPERATOR, "--kind", "pods", "--filter", "app in (db,web)"
    ),
    "check: calls that declare a kind": run(
        "check",
        OPERATOR,
        "--account",
        "operators/web",
        declared="async def f(cache, name):\n    await cache.declare('v1/nodes', 'app=web')\n"
        "    await cache.declare(name, 'app=web', replace=True)",
    ),
    "rbac: a call that declares a kind with a mistake": run(
        "rbac", OPERATOR, declared="async def f(cache):\n    await cache.declare('v1/nodes', 'app in')"
    ),
    "rbac: manifests": run("rbac", OPERATOR),
    "rbac: permissions are missing": run("rbac", OPERATOR, "--check", "--account", "operators/web"),
    "rbac: nothing is missing": run("rbac", OPERATOR, "--check"),
    "rbac: no file of manifests": run("rbac", OPERATOR, "--check", "FOLDER/gone.yaml"),
    "rbac: no caches are declared": run("rbac", OPERATOR, source="import kopf, kopf_selectcache\n"),
    "outside: nothing is hidden": run("outside", OPERATOR),
    "outside: an object that a cached one names": run(
        "outside",
        OPERATOR,
        declared=f"{WEB}\nselect['v1/nodes'] = 'app=web'\nselect['v1/secrets'] = ''",
        prepare=_name_a_node,
    ),
    "outside: a kind that may not be listed": run("outside", OPERATOR, prepare=_forbid),
    "outside: no caches are declared": run("outside", OPERATOR, source="import kopf, kopf_selectcache\n"),
    "outside: a misspelt command": run("outsid", OPERATOR),
    "adopt: nothing is owned": run("adopt", OPERATOR),
    "adopt: what would be done": run("adopt", OPERATOR, prepare=_own),
    "adopt: what was done": run("adopt", OPERATOR, "--apply", prepare=_own),
    "adopt: a missing permission": run("adopt", OPERATOR, prepare=_own_unpatched),
    "adopt: an object of another controller": run("adopt", OPERATOR, prepare=_own_controlled),
    "adopt: labels to choose from": run(
        "adopt", OPERATOR, declared="select['v1/pods'] = ['app=web', 'a=b,tier=gold']", prepare=_own
    ),
    "why: an object without the label": run(
        "why", OPERATOR, "pod/web-1", "-n", "ns", declared="select['v1/pods'] = 'app=db'"
    ),
    "why: an object without the label, and a field": run(
        "why",
        OPERATOR,
        "pod/web-1",
        "-n",
        "ns",
        declared="select['v1/pods'] = Selector('app=db', fields='spec.nodeName=n1')",
    ),
    "why: no object": run("why", OPERATOR),
    "why: a misspelt kind": run("why", OPERATOR, "podz/web-1"),
    "check: a misspelt option": run("check", OPERATOR, "--fliter", "app=web"),
    "check: a misspelt form of output": run("check", OPERATOR, "-o", "jsn"),
    "check: a context that does not exist": run("check", OPERATOR, "--context", "embeded"),
    "check: a kubeconfig that does not exist": run("check", OPERATOR, "--kubeconfig", "FOLDER/gone"),
    "check: a kubeconfig that is none": run("check", OPERATOR, "--kubeconfig", OPERATOR),
    "shards: nothing is wrong": run("shards", OPERATOR, source=_of_replicas(), prepare=_replicas()),
    "shards: a late replica": run("shards", prepare=_replicas(age=31.0)),
    "shards: a ConfigMap that somebody edited": run(
        "shards", prepare=_replicas(changes={"data": {"seal": "0"}})
    ),
    "shards: no replicas": run("shards", OPERATOR, source=_of_replicas()),
    "shards: nothing is sharded": run("shards"),
    "shards: an operator that is not sharded": run("shards", OPERATOR),
    "shards: a missing permission": run(
        "shards", prepare=lambda cluster: cluster.faults.add(Refuse(403), verb="list", resource="leases")
    ),
    "why: an object of a replica": run(
        "why",
        OPERATOR,
        "pods/ns/web-1",
        "--standalone",
        source=_of_replicas(),
        prepare=_replicas(),
    ),
    "check: a sharded operator": run(
        "check", OPERATOR, "--standalone", source=_of_replicas(), prepare=_replicas()
    ),
    "check: a sharded operator with Kopf's peering": run("check", OPERATOR, source=_of_replicas()),
    "check: a sharded operator with handlers of Kopf": run(
        "check",
        OPERATOR,
        "--standalone",
        source=_of_replicas("@kopf.on.create('v1', 'pods')", "def f(**_): ..."),
    ),
    "check: permissions of replicas are missing": run(
        "check", OPERATOR, "--standalone", "--account", "operators/web", source=_of_replicas()
    ),
    "finalizers: a kind without names": run("finalizers", "remove", "pods"),
    "finalizers: names beside --all": run("finalizers", "remove", "pods", "web-1", "--all"),
    "finalizers: a misspelt kind": run("finalizers", "remove", "podz", "web-1"),
    "finalizers: an object without the finalizer": run("finalizers", "remove", "pods/ns/web-1"),
    "serve: a kubeconfig of somebody": run(
        "serve", "--kubeconfig", "FOLDER/theirs", files={"theirs": "apiVersion: v1\nkind: Config\n"}
    ),
    "serve: no folder for the kubeconfig": run("serve", "--kubeconfig", "FOLDER/gone/kubeconfig"),
    "serve: a port that is none": run("serve", "--port", "70000"),
    "serve: no kubeconfig": run("serve"),
    "serve: no folder of manifests": load(None),
    "serve: a file that is no YAML": load(
        "import kopf\n\n@kopf.on.startup()\ndef f(**_):\n    pass\n", "op.py"
    ),
    "serve: a manifest of an unknown kind": load(
        "{kind: Widget, apiVersion: example.com/v1, metadata: {name: a}}"
    ),
    "serve: a manifest of an unknown namespace": load(
        "{kind: ConfigMap, apiVersion: v1, metadata: {name: a, namespace: nowhere}}"
    ),
    "serve: a manifest without an apiVersion": load("{kind: ConfigMap, metadata: {name: a}}"),
    "serve: a manifest without a name": load("{kind: ConfigMap, apiVersion: v1}"),
    "serve: a manifest whose metadata is a list": load("{kind: ConfigMap, apiVersion: v1, metadata: [1]}"),
    "serve: a manifest with bytes": load(
        "{kind: Secret, apiVersion: v1, metadata: {name: a}, data: {a: !!binary aGk=}}"
    ),
}


def provoke(provoked: Provoked) -> None:
    for title, command in COMMANDS.items():
        provoked.add("Commands", title, command)
