"""The command `rbac`: the rights that calls of `cache.live` need."""

from __future__ import annotations

import pytest

from kopf_selectcache.cli._rights import LIVE, SETTLING
from tests.cli.conftest import Command
from tests.cli.test_rbac import rules

pytestmark = pytest.mark.usefixtures("nowhere")


@pytest.mark.parametrize(
    ("call", "resource", "verbs"),
    [
        ("await cache.live.get('configmaps', 'a', namespace='b')", "configmaps", ["get"]),
        ("cache.blocking.live.list(kind='configmaps')", "configmaps", ["list"]),
        (
            "await cache.live.create({'apiVersion': 'v1', 'kind': 'ConfigMap'})",
            "configmaps",
            ["get", "create"],
        ),
        (
            "await cache.live.replace(obj={**x, 'apiVersion': 'v1', 'kind': 'ConfigMap'})",
            "configmaps",
            ["get", "update"],
        ),
        (
            "await cache.live.apply({'apiVersion': 'v1', 'kind': 'ConfigMap'})",
            "configmaps",
            ["get", "create", "patch"],
        ),
        ("await cache.live.patch('configmaps', 'a', {}, namespace='b')", "configmaps", ["get", "patch"]),
        (
            "await cache.live.patch('pods', 'a', {}, namespace='b', subresource='status')",
            "pods/status",
            ["patch"],
        ),
        ("await cache.live.delete('configmaps', 'a', namespace='b')", "configmaps", ["get", "delete"]),
        ("await cache.live.update('configmaps', 'a', f, namespace='b')", "configmaps", ["get", "update"]),
        (
            "await cache.live.update('pods', 'a', f, namespace='b', subresource='status')",
            "pods/status",
            ["update"],
        ),
        ("await cache.live.update('pods', 'a', f, namespace='b', subresource='status')", "pods", ["get"]),
        (
            "await cache.live.update('deployments', 'a', f, namespace='b', subresource='scale')",
            "deployments/scale",
            ["get", "update"],
        ),
        (
            "await cache.live.replace({**x, 'apiVersion': 'v1', 'kind': 'Pod'}, subresource='status')",
            "pods/status",
            ["update"],
        ),
        (
            "await cache.live.ensure({'apiVersion': 'v1', 'kind': 'ConfigMap'})",
            "configmaps",
            ["get", "create"],
        ),
        ("await cache.live.ensure(CONFIG, adopt=True)", "configmaps", ["get", "create", "patch"]),
        ("await cache.live.ensure(CONFIG, adopt=False)", "configmaps", ["get", "create"]),
        (
            "await cache.live.replace({**cache.get('configmaps', 'a'), 'data': d})",
            "configmaps",
            ["get", "update"],
        ),
        ("await cache.live.replace(await cache.fetch(kind='po', name='a'))", "pods", ["get", "update"]),
        (
            "await cache.live.replace(dict(await cache.live.get(('', 'v1', 'pods'), 'a')))",
            "pods",
            ["get", "update"],
        ),
        ("await cache.live.replace(copied(cache))", "configmaps", ["get", "update"]),
        ("await selectcache.current().live.delete('pods', 'a', namespace='b')", "pods", ["get", "delete"]),
    ],
)
def test_20_calls_of_live_that_are_written_out_are_found(
    command: Command, call: str, resource: str, verbs: list[str]
) -> None:
    made = (
        "\nCONFIG = {'apiVersion': 'v1', 'kind': 'ConfigMap'}\n"
        "def copied(cache):\n    copy = deepcopy(cache.get('configmaps', 'a'))\n"
        "    return {**copy, 'data': {}}\n"
    )
    handlers = f"{made}async def helper(cache): return {call}\n"
    said = command("rbac", "select['v1/secrets'] = 'app=web'", "-n", "shop", handlers=handlers)
    assert said.code == 0, said.errors
    group = "apps" if resource.startswith("deployments") else ""
    assert {"apiGroups": [group], "resources": [resource], "verbs": verbs} in rules(said.output)["shop"]


def test_the_right_to_settle_lost_answers_is_marked(command: Command) -> None:
    handlers = "\nasync def helper(cache): return await cache.live.delete('configmaps', 'a', namespace='b')\n"
    said = command("rbac", "select['v1/secrets'] = 'app=web'", handlers=handlers)
    assert f"# {LIVE}, {SETTLING}\n" in said.output


@pytest.mark.parametrize(
    "call",
    [
        "await cache.live.create(made())",
        "await cache.live.create(obj)",
        "await cache.live.create({'kind': 'Pod'})",
        "await cache.live.create()",
        "await cache.live.create({**cache.get('pods', 'a'), **kind})",
        "await cache.live.create(cache.get('gadgets.example.com', 'a'))",
        "await cache.live.create(kind.get('pods', 'a'))",
        "await cache.live.delete(kind, 'a', namespace='b')",
    ],
)
def test_calls_of_live_that_are_not_written_out_are_reported(command: Command, call: str) -> None:
    handlers = (
        "\nobj = {'apiVersion': 'v1', 'kind': 'ConfigMap'}\nobj = {'apiVersion': 'v1', 'kind': 'Pod'}\n"
        f"async def helper(cache, kind): return {call}\n"
        "async def other(live, cache): return live.create({}), cache.live.other()\n"
    )
    said = command("rbac", "select['v1/pods'] = 'app=web'", handlers=handlers)
    assert said.output.count("is not written out. Add its permissions yourself") == 1
