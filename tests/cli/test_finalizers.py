"""The command `finalizers`: what it would remove, and what it removes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import yaml

from kopf_selectcache.__main__ import main
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.cli.conftest import Command, Outcome, parsed

KOPFS, OTHER = "kopf.zalando.org/KopfFinalizerMarker", "example.com/other"


class Run(NamedTuple):
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Outcome:
        self.capsys.readouterr()
        code = main(["finalizers", "remove", *arguments])
        return Outcome(code, *self.capsys.readouterr())


@pytest.fixture
def remove(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


def config(name: str, *finalizers: str, namespace: str = "default") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def finalizers(cluster: EmbeddedCluster, name: str) -> list[str]:
    found: list[str] = cluster.get(config(name))["metadata"].get("finalizers", [])
    return found


def test_20_a_finalizer_is_only_shown_without_yes(cluster: EmbeddedCluster, remove: Run) -> None:
    cluster.create(config("a", OTHER, KOPFS), config("b"))
    cluster.delete(config("a"))
    said = remove("cm", "a", "b")
    assert (said.code, said.errors) == (0, "")
    assert said.output.splitlines()[:2] == [
        f"configmaps/a in default has {KOPFS}, and is being deleted; {OTHER} would still keep it.",
        f"configmaps/b in default does not have {KOPFS}.",
    ]
    assert f"Would remove {KOPFS} from 1 object. Nothing was changed." in said.output
    assert finalizers(cluster, "a") == [OTHER, KOPFS]
    assert not cluster.requests.where(verb="patch")


def test_20_removals_are_shown_although_the_server_fails_later(cluster: EmbeddedCluster, remove: Run) -> None:
    cluster.create(config("a", KOPFS), config("b", KOPFS))
    cluster.faults.add(Refuse(500), verb="patch", name="b")
    said = remove("cm", "a", "b", "--yes")
    assert said.code == 1
    assert said.output.splitlines() == [
        f"configmaps/a in default: removed {KOPFS}.",
        "configmaps/b in default: InternalError.",
        f"Removed {KOPFS} from 1 object.",
    ]


def test_20_exactly_the_named_finalizer_is_removed(cluster: EmbeddedCluster, remove: Run) -> None:
    cluster.create(config("a", OTHER, KOPFS, "example.com/third"), config("b", KOPFS))
    cluster.delete(config("b"))
    said = remove("v1/configmaps", "a", "b", "--yes")
    assert (said.code, said.errors) == (0, "")
    assert said.output.splitlines() == [
        f"configmaps/a in default: removed {KOPFS}. Left: {OTHER}, example.com/third.",
        f"configmaps/b in default: removed {KOPFS}.",
        f"Removed {KOPFS} from 2 objects.",
    ]
    assert finalizers(cluster, "a") == [OTHER, "example.com/third"]
    assert remove("cm", "b", "--yes") == (
        1,
        f"configmaps/b in default does not exist.\nRemoved {KOPFS} from 0 objects.\n",
        "",
    )
    assert remove("cm", "a", "--finalizer", OTHER, "--yes").code == 0
    assert finalizers(cluster, "a") == ["example.com/third"]


def test_20_all_objects_with_the_finalizer_are_found(cluster: EmbeddedCluster, remove: Run) -> None:
    cluster.namespace("shop")
    cluster.create(config("a", KOPFS), config("b"), config("c", KOPFS, namespace="shop"))
    said = remove("configmaps", "--all")
    assert said.output.startswith(
        f"configmaps/a in default has {KOPFS}.\nconfigmaps/c in shop has {KOPFS}.\n"
    )
    assert remove("configmaps", "--all", "-n", "shop", "--yes").code == 0
    assert (
        finalizers(cluster, "a"),
        cluster.get(config("c", namespace="shop"))["metadata"].get("finalizers"),
    ) == (
        [KOPFS],
        None,
    )
    assert remove("configmaps", "--all", "-n", "shop").output == f"No object has {KOPFS}.\n"


def test_20_an_object_that_has_changed_meanwhile_is_read_again(cluster: EmbeddedCluster, remove: Run) -> None:
    cluster.create(config("a", KOPFS))
    cluster.faults.add(Refuse(409), where=lambda asked: asked.verb == "patch", times=1)
    assert remove("cm", "a", "--yes").code == 0
    assert not finalizers(cluster, "a")
    assert len(cluster.requests.where(verb="patch")) == 2
    cluster.create(config("b", KOPFS))
    cluster.faults.add(Refuse(409), where=lambda asked: asked.verb == "patch")
    said = remove("cm", "b", "--yes")
    assert (said.code, "configmaps/b in default was changed by others 3 times meanwhile." in said.output) == (
        1,
        True,
    )


def test_20_options_may_be_between_the_names(cluster: EmbeddedCluster, remove: Run) -> None:
    cluster.create(config("a", KOPFS), config("b", KOPFS))
    assert "from 2 objects" in remove("cm", "a", "-n", "default", "b").output


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["widgets", "a"], "the cluster does not serve widgets"),
        (["nodes", "a", "-n", "shop"], "nodes are cluster-scoped\nhint: Leave out -n"),
        (["cm", "a/b"], "'a/b': no object can have this name"),
    ],
)
def test_20_an_impossible_target_is_an_error(remove: Run, arguments: list[str], text: str) -> None:
    said = remove(*arguments)
    assert (said.code, said.output, text in said.errors) == (2, "", True), said


@pytest.mark.parametrize("arguments", [["cm"], ["cm", "a", "--all"]])
def test_20_names_or_all_are_needed(remove: Run, arguments: list[str]) -> None:
    said = remove(*arguments)
    assert (said.code, said.output, said.errors.count("hint: Write")) == (2, "", 1)


# ---- What `check` and `rbac` say of finalizers.

SELECT = "select['v1/configmaps'] = selectcache.EVERYTHING"
FOLLOW = """
@selectcache.reconcile('v1/configmaps'{})
async def follow(name, **_): ...
"""


def test_20_check_names_objects_with_the_finalizer_of_kopf(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.create(*(config(name, KOPFS) for name in "abcd"), config("e", OTHER))
    (found,) = parsed(command("check", SELECT, "-o", "json", handlers=FOLLOW.format("")))["caches"]
    hint = " ".join(found["hints"])
    assert hint.startswith("4 of the objects (default/a, default/b, default/c, ...) can't be deleted")
    assert (
        "give Reconciler 'follow' finalizer=True or finalizer=False, or run: selectcache finalizers" in hint
    )
    own = FOLLOW.format(", finalizer='example.com/done'")
    (found,) = parsed(command("check", SELECT, "-o", "json", handlers=own))["caches"]
    assert "If earlier handlers have left it, run: selectcache finalizers" in found["hints"][0]


@pytest.mark.parametrize(
    "handlers",
    [
        FOLLOW.format(", finalizer=False"),
        FOLLOW.format(", finalizer=True"),
        f"{FOLLOW.format('')}\n@kopf.on.delete('v1', 'configmaps')\ndef gone(**_): ...\n",
        "",
    ],
)
def test_20_check_names_none_that_somebody_takes_off(
    cluster: EmbeddedCluster, command: Command, handlers: str
) -> None:
    cluster.create(config("a", KOPFS))
    (found,) = parsed(command("check", SELECT, "-o", "json", handlers=handlers))["caches"]
    assert not [each for each in found["hints"] if KOPFS in each]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("finalizer", ["'example.com/done'", "True", "False"])
def test_20_rbac_adds_the_right_to_patch_the_objects_and_nothing_else(
    command: Command, finalizer: str
) -> None:
    handlers = FOLLOW.format(f", finalizer={finalizer}")
    printed = command("rbac", SELECT, "-A", "--standalone", handlers=handlers).output
    (role,) = (each for each in yaml.safe_load_all(printed) if each["kind"] == "ClusterRole")
    of_configs = [each for each in role["rules"] if "configmaps" in str(each["resources"])]
    assert of_configs == [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "patch"]}
    ]
