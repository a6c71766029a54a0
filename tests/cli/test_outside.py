"""The command `hidden`: objects that an operator's objects own or name, and that the filters hide."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.cli.conftest import DEFINITION, Command, pod

HANDLERS = """
@kopf.on.create('example.com', 'v1', 'widgets')
def create(**_): ...
"""
NOTHING = (
    "No hidden objects: your resources own nothing outside the filters, and no field such as secretName names"
    " anything there.\n"
)
UNKNOWN = "No hidden objects in the kinds that could be listed.\n"
LOST = "pods/lost-1 in default: widgets.example.com/mine in default owns it, but it fails app=web\n"
LOOKED = "Searched: pods, widgets.example.com.\n"
PODS = "select['v1/pods'] = 'app=web'"


def config(name: str, kind: str = "ConfigMap", **labels: str) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "namespace": "default", "labels": labels}}


def widget(cluster: EmbeddedCluster, **spec: Any) -> dict[str, Any]:
    """Create a widget, and the definition of widgets."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition: Any = copy.deepcopy(DEFINITION)
    definition["spec"]["versions"][0]["schema"] = schema
    cluster.create(definition)
    metadata = {"name": "mine", "namespace": "default"}
    (made,) = cluster.create(
        {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec}
    )
    return made


def api_version(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, **obj}


def owned(obj: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
    ]
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": references}}


def test_an_owned_object_without_the_label_is_listed(cluster: EmbeddedCluster, command: Command) -> None:
    mine = widget(cluster)
    cluster.create(
        owned(pod("web-1", "web"), mine),
        owned(pod("lost-1", "db"), mine),
        pod("foreign", "db"),
        pod("held", "web"),
    )
    said = command("outside", PODS, handlers=HANDLERS)
    assert said == (
        1,
        f"{LOST}{LOOKED}",
        "",
    )


def test_an_object_that_a_split_cache_has_the_labels_of_is_hidden_as_well(
    cluster: EmbeddedCluster, command: Command
) -> None:
    mine = widget(cluster)
    cluster.create(owned(pod("web-1", "web"), mine), owned(pod("lost-1", "db"), mine))
    said = command("outside", "select['v1/pods'] = Cached('app=web', outside='metadata')", handlers=HANDLERS)
    assert said.output == (f"{LOST}{LOOKED}")


def test_objects_that_are_named_are_listed(cluster: EmbeddedCluster, command: Command) -> None:
    names = ("by-key", "by-ref", "by-kind", "in-list", "elsewhere", "unnamed")
    cluster.create(*(config(name, app="db") for name in names), config("held", app="web"))
    cluster.create(*(config(name, "Secret", app="db") for name in ("token", "pull")))
    widget(
        cluster,
        configMapName="by-key",
        other={"configMapRef": {"name": "by-ref"}, "target": {"kind": "ConfigMap", "name": "by-kind"}},
        volumes=[{"name": "unnamed", "configMap": {"name": "in-list"}}, {"configMap": {"name": "held"}}],
        config={"kind": "ConfigMap", "name": "elsewhere", "namespace": "infra"},
        secretName="token",
        imagePullSecrets=[{"name": "pull"}],
        number=5,
    )
    declared = "select['v1/configmaps'] = 'app=web'\nselect['v1/secrets'] = 'app=web'"
    said = command("outside", declared, handlers=HANDLERS)
    *lines, _, _ = said.output.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        *(f"configmaps/{name} in default" for name in sorted(names[:4])),
        "secrets/pull in default",
        "secrets/token in default",
    ]
    assert all(
        line.endswith(": widgets.example.com/mine in default refers to it, but it fails app=web")
        for line in lines
    )


def test_a_filter_with_fields_is_decided_by_the_server(cluster: EmbeddedCluster, command: Command) -> None:
    mine = widget(cluster)
    cluster.create(
        *(
            owned(pod(name, "web") | {"spec": pod(name, "web")["spec"] | {"nodeName": name}}, mine)
            for name in ("n1", "n2")
        )
    )
    said = command("outside", "select['v1/pods'] = Selector(fields='spec.nodeName=n1')", handlers=HANDLERS)
    assert said.output == (
        f"pods/n2 in default: widgets.example.com/mine in default owns it, but it fails"
        f" spec.nodeName=n1\n{LOOKED}"
    )


def test_only_the_namespaces_of_the_operator_are_looked_at(
    cluster: EmbeddedCluster, command: Command
) -> None:
    mine = widget(cluster)
    cluster.create(owned(pod("lost-1", "db"), mine))
    cluster.namespace("shop")
    assert command("outside", PODS, "-n", "shop", handlers=HANDLERS).output == NOTHING + LOOKED
    assert command("outside", PODS, "-n", "default", handlers=HANDLERS).code == 1


def test_a_kind_that_may_not_be_listed_is_named(cluster: EmbeddedCluster, command: Command) -> None:
    widget(cluster)
    for resource, other in (("widgets", "pods"), ("pods", "widgets.example.com")):
        cluster.faults.clear()
        cluster.faults.add(Refuse(403), verb="list", resource=resource)
        said = command("outside", PODS, handlers=HANDLERS)
        assert (said.code, said.output) == (2, f"{UNKNOWN}Searched: {other}.\n")
        assert f"{resource}" in said.errors
        assert "can't be listed, so some objects may be missing here: 403" in said.errors


def test_a_kind_that_is_not_served_is_named_and_the_rest_is_looked_at(
    cluster: EmbeddedCluster, command: Command
) -> None:
    mine = widget(cluster)
    cluster.create(owned(pod("lost-1", "db"), mine))
    declared = f"{PODS}\nselect['example.com/v1/gadgets'] = ''"
    handlers = f"{HANDLERS}\n@kopf.on.event('example.com', 'v1', 'gizmos')\ndef follow(**_): ...\n"
    said = command("outside", declared, handlers=handlers)
    assert (said.code, said.output.partition(":")[0]) == (1, "pods/lost-1 in default")
    assert "the cluster does not serve example.com/v1/gadgets" in said.errors
    assert "the cluster does not serve example.com/v1/gizmos" in said.errors


def test_a_kind_that_is_not_served_leaves_it_open_if_anything_is_hidden(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.create(pod("web-1", "web"))
    said = command("outside", f"{PODS}\nselect['example.com/v1/gadgets'] = ''")
    assert (said.code, said.output) == (2, f"{UNKNOWN}Searched: pods.\n")


def test_a_group_that_is_down_leaves_the_rest_to_be_looked_at(
    cluster: EmbeddedCluster, command: Command
) -> None:
    (web,) = cluster.create(pod("web-1", "web"))
    cluster.create(owned(pod("lost-1", "db"), api_version(web, "Pod")))
    cluster.faults.add(Refuse(503), where=lambda asked: asked.path == "/apis/example.com")
    said = command("outside", f"{PODS}\nselect['example.com/v1/gadgets'] = ''")
    assert (said.code, said.output.partition(":")[0]) == (1, "pods/lost-1 in default")
    assert "example.com/v1/gadgets can't be found: the server answers 503" in said.errors


def test_no_secret_is_read_as_a_whole(
    cluster: EmbeddedCluster, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = f"{HANDLERS}\n@kopf.on.event('v1', 'secrets')\ndef follow(**_): ...\n"
    data = {"data": {"password": "aHVudGVyMg=="}}
    (secret,) = cluster.create(config("owner", "Secret", app="web") | data)
    widget(cluster)
    cluster.create(owned(config("lost", "Secret", app="db") | data, api_version(secret, "Secret")))
    get, accepted = KopfTransport.get, list[str]()

    async def recorded(self: Any, path: str, query: Any, **options: Any) -> bytes:
        accepted.extend([options.get("accept", "")] if path.endswith("/secrets") else [])
        return await get(self, path, query, **options)

    monkeypatch.setattr(KopfTransport, "get", recorded)
    said = command("outside", "select['v1/secrets'] = 'app=web'", handlers=handlers)
    assert said.output == (
        "secrets/lost in default: secrets/owner in default owns it, but it fails app=web\n"
        "Searched: widgets.example.com.\n"
        "Searched without their references: secrets.\n"
    )
    assert len(accepted) >= 3
    assert all("PartialObjectMetadata" in each for each in accepted)


def test_20_an_object_that_a_cached_one_names_is_listed_without_handlers(
    cluster: EmbeddedCluster, command: Command
) -> None:
    volumes = [{"name": "config", "configMap": {"name": "settings"}}]
    cluster.create(
        *(config(name, app="db") for name in ("settings", "foreign", "kube-root-ca.crt")),
        pod("web-1", "web") | {"spec": pod("", "")["spec"] | {"volumes": volumes}},
        pod("db-1", "db") | {"spec": {"containers": [{"name": "main", "envFrom": from_map("foreign")}]}},
        pod("web-2", "web")
        | {"spec": {"containers": [{"name": "main", "envFrom": from_map("kube-root-ca.crt")}]}},
    )
    said = command("outside", f"{PODS}\nselect['v1/configmaps'] = 'app=web'")
    assert (said.code, said.output) == (
        1,
        (
            "configmaps/settings in default: pods/web-1 in default refers to it, but it fails app=web\n"
            "Searched: configmaps, pods.\n"
        ),
    )


def test_20_an_object_without_a_namespace_that_a_cached_one_names_is_listed(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.create({"kind": "Node", "metadata": {"name": "n1"}})
    cluster.create(pod("web-1", "web") | {"spec": pod("", "")["spec"] | {"nodeName": "n1"}})
    said = command("outside", f"{PODS}\nselect['v1/nodes'] = 'app=web'")
    assert said.output.splitlines()[0] == "nodes/n1: pods/web-1 in default refers to it, but it fails app=web"


def from_map(name: str) -> list[dict[str, Any]]:
    return [{"configMapRef": {"name": name}}]


@pytest.mark.parametrize(
    "spec",
    [
        {"secret": "tls"},
        {"tls": {"caSecret": "tls"}},
        {"secrets": ["other", "tls"]},
        {"secretRef": "tls"},
        {"secretNames": ["tls"]},
        {"secret": "default/tls"},
    ],
)
def test_20_an_object_is_named_by_a_text_under_its_kind(
    cluster: EmbeddedCluster, command: Command, spec: dict[str, Any]
) -> None:
    widget(cluster, **spec)
    cluster.create(config("tls", "Secret"), config("unnamed", "Secret"))
    said = command("outside", "select['v1/secrets'] = 'app=web'", handlers=HANDLERS)
    assert said.output.splitlines()[0] == (
        "secrets/tls in default: widgets.example.com/mine in default refers to it, but it fails app=web"
    )
    assert "unnamed" not in said.output


def test_20_a_text_that_is_no_name_of_the_kind_names_nothing(
    cluster: EmbeddedCluster, command: Command
) -> None:
    widget(cluster, secretKey="tls", secret="infra/tls", kind="tls")
    cluster.create(config("tls", "Secret"))
    assert command("outside", "select['v1/secrets'] = 'app=web'", handlers=HANDLERS).code == 0


def test_cached_objects_are_read_page_by_page(cluster: EmbeddedCluster, command: Command) -> None:
    cluster.create(*(config(f"web-{number}", app="web") for number in range(501)))
    command("outside", "select['v1/configmaps'] = 'app=web'")
    whole = [each for each in cluster.requests.where("list", "configmaps") if "labelSelector" in each.query]
    assert [each.query["limit"] for each in whole] == ["500", "500"]
