"""kubectl works as it does with a real server: it watches, waits, patches in every way, and describes what it
has never seen.

(tests/real/test_embedded_kubectl.py has its other commands.)
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .environment import Environment

Kubectl = Callable[..., str]

pytestmark = pytest.mark.real  # It is built as the real server is.


@pytest.fixture
def environ(environment: Environment) -> dict[str, str]:
    return {**os.environ, "HOME": str(environment.folder), "KUBECONFIG": str(environment.kubeconfig())}


@pytest.fixture
def kubectl(assets: Path, environ: dict[str, str]) -> Kubectl:
    """Run kubectl as the admin, in the environment's namespace, with a home of its own; give what it prints,
    errors included."""

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

    return run


@pytest.fixture
def following(assets: Path, environ: dict[str, str]) -> Callable[..., Any]:
    """Run a kubectl that goes on; give the words of its lines, one after the other."""

    @contextmanager
    def run(*words: str) -> Iterator[Iterator[list[str]]]:
        with subprocess.Popen(
            [assets / "kubectl", *words], env=environ, text=True, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            try:
                yield (line.split() for line in process.stdout)
            finally:
                process.terminate()

    return run


def test_it_watches(environment: Environment, following: Callable[..., Any]) -> None:
    environment.create(environment.config_map("a", app="web"), environment.config_map("b", app="db"))
    with following("get", "configmaps", "--watch", "--output-watch-events", "-l", "app=web") as lines:
        assert next(lines) == ["EVENT", "NAME", "DATA", "AGE"]
        assert next(lines)[:3] == ["ADDED", "a", "1"]
        environment.relabel("ConfigMap", "b", app="web")
        assert next(lines)[:2] == ["ADDED", "b"]
        environment.patch("ConfigMap", "b", {"data": {"more": "x"}})
        assert next(lines)[:3] == ["MODIFIED", "b", "2"]
        environment.delete("ConfigMap", "b")
        assert next(lines)[:2] == ["DELETED", "b"]


def test_it_waits_for_conditions_values_and_deletion(
    environment: Environment, kubectl: Kubectl, following: Callable[..., Any]
) -> None:
    environment.create(environment.widget("w"))
    assert kubectl(
        "patch",
        "widget",
        "w",
        "--subresource=status",
        "--type=merge",
        "-p",
        '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}',
    ) == (f"widget.{environment.group}/w patched")
    assert (
        kubectl("wait", "widget/w", "--for=condition=Ready") == f"widget.{environment.group}/w condition met"
    )
    assert (
        kubectl("wait", "widget/w", "--for=jsonpath={.spec.color}=red")
        == f"widget.{environment.group}/w condition met"
    )
    with following("wait", "widget/w", "--for=delete", "--timeout=60s") as lines:
        environment.delete("Widget", "w")
        assert next(lines, None) in ([f"widget.{environment.group}/w", "condition", "met"], None)


def test_it_describes_a_kind_it_has_never_seen_with_its_events(
    environment: Environment, kubectl: Kubectl
) -> None:
    environment.create(environment.widget("w"))
    widget = environment.get("Widget", "w")
    environment.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": "w-", "namespace": environment.namespace},
            "involvedObject": {
                "apiVersion": f"{environment.group}/v1",
                "kind": "Widget",
                "name": "w",
                "namespace": environment.namespace,
                "uid": widget["metadata"]["uid"],
            },
            "type": "Normal",
            "reason": "Polished",
            "message": "It shines.",
            "source": {"component": "test"},
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "count": 1,
        }
    )
    described = kubectl("describe", "widget", "w")
    assert "Color:  red" in described
    assert "Polished" in described
    assert "It shines." in kubectl("events", "--for", "widget/w")
    assert "It shines." in kubectl("get", "events", "--field-selector", "involvedObject.name=w")


@pytest.mark.since("1.36", "kubectl 1.33 does not name the namespace of what it deletes")
def test_it_applies_shows_the_difference_and_deletes_by_file(
    environment: Environment, kubectl: Kubectl
) -> None:
    widget = environment.widget("w")
    assert kubectl("apply", "-f", "-", given=widget) == f"widget.{environment.group}/w created"
    assert kubectl("diff", "-f", "-", given=widget) == ""
    changed = {**widget, "spec": {"color": "blue"}}
    assert "+  color: blue" in kubectl("diff", "-f", "-", given=changed)
    assert kubectl("apply", "-f", "-", given=changed) == f"widget.{environment.group}/w configured"
    assert environment.get("Widget", "w")["spec"] == {"color": "blue"}
    assert "spec.color" in kubectl("apply", "-f", "-", given={**widget, "spec": {"color": 5}})
    assert (
        kubectl("delete", "-f", "-", given=widget)
        == f'widget.{environment.group} "w" deleted from {environment.namespace} namespace'
    )


@pytest.mark.since("1.36", "kubectl 1.33 does not name the namespace of what it deletes")
def test_it_deletes_many_and_waits_for_finalizers(environment: Environment, kubectl: Kubectl) -> None:
    environment.create(
        environment.widget("w", app="web", finalizers=["example.com/hold"]),
        environment.widget("x", app="web"),
        environment.widget("y"),
    )
    assert len(kubectl("delete", "widgets", "-l", "app=web", "--wait=false").splitlines()) == 2
    assert environment.names("Widget") == ["w", "y"]
    environment.patch("Widget", "w", {"metadata": {"finalizers": []}})
    assert (
        kubectl("delete", "widgets", "--all")
        == f'widget.{environment.group} "y" deleted from {environment.namespace} namespace'
    )
    assert (
        kubectl("get", "widget", "y")
        == f'Error from server (NotFound): widgets.{environment.group} "y" not found'
    )
