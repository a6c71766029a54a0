"""What tests of commands need: an operator in a file, a cluster that it finds, and the command, run in this
process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kopf
import pytest

from kopf_selectcache.__main__ import main
from kopf_selectcache.cli.output import Progress
from kopf_selectcache.testing import EmbeddedCluster
from tests.canaries import traced

HEAD = """
import kopf
import kopf_selectcache as selectcache
from kopf_selectcache import Cached, LabelSelector, Selector

@kopf.on.startup()
def configure(settings, **_):
    select = settings.selectcache.selectors
"""


class Outcome(NamedTuple):
    """What a command came to."""

    code: int
    output: str
    errors: str


Command = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terminals of tests have their own width, whatever the terminal of the developer exports."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster to be asked."""
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.setenv("HOME", "/nowhere")


@pytest.fixture
def command(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    registry: kopf.OperatorRegistry,
) -> Iterator[Command]:
    """Run a command on an operator that declares this, and perhaps has handlers.

    The operator has a registry of its own, without the handlers that other tests left in this process.
    """
    assert kopf.get_default_registry() is registry
    monkeypatch.setattr(sys, "path", [*sys.path])
    # However slow the machine is, no progress is among the errors.
    monkeypatch.setitem(vars(Progress)["__init__"].__kwdefaults__, "soon", 3600.0)
    before = {*sys.modules}

    def run(
        name: str, declared: str, *arguments: str, handlers: str = "", source: str | None = None
    ) -> Outcome:
        file = tmp_path / "web.py"
        lines = "".join(f"    {line}\n" for line in declared.splitlines())
        file.write_text(source if source is not None else f"{HEAD}{lines}{handlers}")
        capsys.readouterr()
        if name == "check":  # Each run is an operator of its own.
            kopf.set_default_registry(type(registry)())
        code = main([name, str(file), *arguments])
        said = Outcome(code, *capsys.readouterr())
        assert not traced(said.output + said.errors)
        return said

    yield run
    for each in {*sys.modules} - before:
        if (getattr(sys.modules[each], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[each]


def pod(name: str, app: str, *, namespace: str = "default", size: int = 10) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": app},
            "annotations": {"note": "x" * size},
        },
        "spec": {"containers": [{"name": "main", "image": "web"}]},
    }


DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


def parsed(said: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said.output)
    return found


@pytest.fixture
def busy(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """Three pods of the web, and two others."""
    cluster.create(
        *(pod(f"web-{number}", "web") for number in range(3)),
        *(pod(f"db-{number}", "db") for number in range(2)),
    )
    return cluster
