"""`selectcache adopt` on both servers: the dry run stores nothing, and `--apply` lets the filter select."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kopf
import pytest

from kopf_selectcache.__main__ import main
from kopf_selectcache._kopf import SmartOperatorRegistry

from .places import POD, Place

OPERATOR = """
import kopf
import kopf_selectcache as selectcache

@kopf.on.startup()
def configure(settings, **_):
    select = settings.selectcache.selectors
    select['v1/configmaps'] = 'app=web'
    select['v1/pods'] = selectcache.Selector('app=web', fields='spec.nodeName=n1')
"""


@pytest.fixture
def adopt(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run the command in the namespace; return its exit code, and the result of each object by name."""
    (file := tmp_path / "web.py").write_text(OPERATOR)
    monkeypatch.setenv("KUBECONFIG", str(place.api.kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = kopf.get_default_registry()

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        kopf.set_default_registry(SmartOperatorRegistry())
        try:
            code = main(["adopt", str(file), "-n", place.namespace, "-o", "json", *arguments])
        finally:
            kopf.set_default_registry(before)
        output = capsys.readouterr().out
        return code, {each["name"]: each for each in json.loads(output)["objects"]}

    return run


def test_b7_owned_objects_that_the_filter_leaves_out_are_shown_and_adopted(
    place: Place, adopt: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    configs, pods = place.of("configmaps"), place.of("pods")
    web = configs.create("web", labels={"app": "web"})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": web["metadata"]["uid"]}
    configs.create("lost", labels={"tier": "gold"}, metadata={"ownerReferences": [owner]})
    configs.create("other", labels={"app": "db"}, metadata={"ownerReferences": [owner]})
    configs.create("foreign")
    pods.create("nowhere", metadata={"ownerReferences": [owner]}, **POD)
    before = configs.get("lost")

    code, shown = adopt()
    assert (code, {name: each["result"] for name, each in shown.items()}) == (
        1,
        {"lost": "adoptable", "other": "left", "nowhere": "left"},
    )
    assert shown["lost"]["labels"] == {"app": "web"}
    assert shown["nowhere"]["text"].endswith("it fails spec.nodeName=n1")
    assert configs.get("lost") == before

    code, done = adopt("--apply")
    assert (code, {name: each["result"] for name, each in done.items()}) == (
        1,
        {"lost": "adopted", "other": "left", "nowhere": "left"},
    )
    labelled = configs.get("lost")["metadata"]
    assert labelled["labels"] == {"app": "web", "tier": "gold"}
    assert labelled["uid"] == before["metadata"]["uid"]
    assert configs.get("other")["metadata"]["labels"] == {"app": "db"}
    assert configs.names(labelSelector="app=web") == ["lost", "web"]
    assert adopt()[1].keys() == {"other", "nowhere"}
