"""`check` and a mandatory peering: without its object, Kopf calls no handler."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import MalformedJSON, Refuse
from tests.cli.conftest import Command
from tests.plugin.test_embedding import PEERING, PEERINGS

WEB = "select['v1/pods'] = 'app=web'"
MANDATORY = f"{WEB}\nsettings.peering.mandatory, settings.peering.name = True, 'ours'"
INSTEAD = "or run the operator with --standalone and without --peering"


def of_namespaces(obj: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    """Return the definition of peerings of namespaces, or such a peering."""
    made = deepcopy(obj)
    if obj is PEERING:
        return made | {"kind": "KopfPeering", "metadata": made["metadata"] | {"namespace": namespace}}
    made["metadata"]["name"] = "kopfpeerings.kopf.dev"
    made["spec"] |= {"scope": "Namespaced", "names": {"kind": "KopfPeering", "plural": "kopfpeerings"}}
    return made


@pytest.mark.parametrize(
    ("declared", "arguments"),
    [
        (WEB, ["--peering=ours"]),
        (WEB, ["-P", "ours", "-A"]),
        (MANDATORY, []),
        (f"{WEB}\nsettings.peering.clusterwide = True", ["-P", "ours", "-n", "default"]),
    ],
)
def test_20_check_tells_of_a_peering_that_does_not_exist_with_one_request(
    cluster: EmbeddedCluster, command: Command, declared: str, arguments: list[str]
) -> None:
    cluster.create(PEERINGS)
    cluster.requests.clear()
    said = command("check", declared, *arguments)
    assert said.code == 1
    assert (
        "! Kopf calls no handler: the peering clusterkopfpeerings.kopf.dev/ours does not exist. Create it:"
        f" {{apiVersion: kopf.dev/v1, kind: ClusterKopfPeering, metadata: {{name: ours}}}}, {INSTEAD}."
        in said.output
    )
    assert len([each for each in cluster.requests if "peerings" in each.path]) == 1
    cluster.create(PEERING)
    assert command("check", declared, *arguments).code == 0


def test_20_check_looks_for_the_peering_in_each_namespace(cluster: EmbeddedCluster, command: Command) -> None:
    cluster.namespace("shop")
    cluster.create(of_namespaces(PEERINGS), of_namespaces(PEERING, "default"))
    said = command("check", WEB, "-n", "default", "-n", "shop", "--peering", "ours")
    assert "the peering kopfpeerings.kopf.dev/ours in shop does not exist. Create it: {" in said.output
    assert "kind: KopfPeering, metadata: {name: ours, namespace: shop}}" in said.output
    assert command("check", WEB, "-n", "default", "--peering", "ours").code == 0


@pytest.mark.usefixtures("cluster")
def test_20_check_tells_of_peerings_that_are_not_served(command: Command) -> None:
    said = command("check", WEB, "--peering", "ours")
    assert said.code == 1
    assert (
        "the peering ours is mandatory, but the cluster does not serve clusterkopfpeerings.kopf.dev"
        in said.output
    )


@pytest.mark.parametrize("arguments", [[], ["--standalone"]])
def test_20_check_asks_for_no_peering_that_may_be_absent(
    cluster: EmbeddedCluster, command: Command, arguments: list[str]
) -> None:
    assert command("check", WEB, *arguments).code == 0
    assert not [each for each in cluster.requests if "peerings" in each.path]


def test_20_check_tells_that_a_peering_and_none_exclude_each_other(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.create(PEERINGS, PEERING)
    said = command("check", WEB, "--standalone", "--peering", "ours")
    assert said.code == 1
    assert "Kopf calls no handler: the peering is mandatory, but --standalone turns it off." in said.output


@pytest.mark.parametrize(("refused", "code"), [(403, 0), (503, 2)])
def test_20_a_peering_that_cannot_be_looked_for_is_reported(
    cluster: EmbeddedCluster, command: Command, refused: int, code: int
) -> None:
    cluster.create(PEERINGS)
    cluster.faults.add(Refuse(refused, message="not now"), where=lambda asked: "peerings" in asked.path)
    said = command("check", WEB, "--peering", "ours")
    assert said.code == code
    assert ("* Whether the peering ours exists is unknown: not now." in said.output) is (code == 0)


def test_20_a_damaged_answer_about_a_peering_is_a_hint(cluster: EmbeddedCluster, command: Command) -> None:
    cluster.create(PEERINGS)
    cluster.faults.add(MalformedJSON(), where=lambda asked: "peerings" in asked.path)
    said = command("check", WEB, "--peering", "ours")
    assert (said.code, "* Whether the peering ours exists is unknown: " in said.output) == (0, True)
