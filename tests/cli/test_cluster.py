"""`--context` and `--kubeconfig`: which cluster a command talks to, and what of this process changes."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from kopf_selectcache.__main__ import main
from kopf_selectcache.cli._cluster import _merged, is_of_library
from kopf_selectcache.testing import EmbeddedCluster
from tests.cli.conftest import Command, parsed, pod

WEB = "select['v1/pods'] = 'app=web'"


@pytest.fixture
def staging(cluster: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """A second cluster; the first one has one pod of the web, and this one has two."""
    cluster.create(pod("web-0", "web"))
    with EmbeddedCluster().in_thread() as other:
        other.create(pod("web-1", "web"), pod("web-2", "web"))
        yield other


@pytest.fixture
def both(cluster: EmbeddedCluster, staging: EmbeddedCluster, tmp_path: Path) -> Path:
    """A kubeconfig with both clusters, whose current context is the first."""
    return kubeconfig_of(tmp_path, production=cluster, staging=staging)


def kubeconfig_of(folder: Path, **clusters: EmbeddedCluster) -> Path:
    """Write a kubeconfig with a context for each cluster; the first is the current one."""
    merged: dict[str, Any] = {"current-context": next(iter(clusters))}
    for name, each in clusters.items():
        config = yaml.safe_load(each.kubeconfig(folder / name).read_text())
        config["contexts"][0]["context"] = {"cluster": name, "user": name}
        for part in ("clusters", "users", "contexts"):
            config[part][0]["name"] = name
            merged.setdefault(part, []).extend(config[part])
    (folder / "both").write_text(json.dumps(merged))
    return folder / "both"


def counted(command: Command, *arguments: str) -> int:
    said = command("check", WEB, "-o", "json", *arguments)
    found: int = parsed(said)["caches"][0]["cached"]["objects"]
    return found


def test_a_context_chooses_the_cluster_for_the_command_only(
    both: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(os.environ)
    assert counted(command) == 1
    assert counted(command, "--kubeconfig", str(both)) == 1
    assert counted(command, "--kubeconfig", str(both), "--context", "staging") == 2
    assert dict(os.environ) == before
    monkeypatch.setenv("KUBECONFIG", str(both))
    assert [counted(command, "--context", each) for each in ("staging", "production")] == [2, 1]
    assert os.environ["KUBECONFIG"] == str(both)
    monkeypatch.delenv("KUBECONFIG")
    assert main(["finalizers", "remove", "pods/web-0", "--kubeconfig", str(both)]) == 0
    assert "KUBECONFIG" not in os.environ


@pytest.mark.parametrize("name", ["check", "why", "outside", "rbac"])
def test_each_command_with_an_operator_takes_a_context(both: Path, command: Command, name: str) -> None:
    words = {"why": ["pods/web-2"], "rbac": ["--check"]}.get(name, [])
    said = command(name, WEB, *words, "--kubeconfig", str(both), "--context", "staging")
    assert (said.code, said.errors) == (0, ""), said


def test_20_finalizers_are_removed_in_the_chosen_cluster_only(
    both: Path, cluster: EmbeddedCluster, staging: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default", "finalizers": ["example.com/a"]},
    }
    for each in (cluster, staging):
        each.create(odd)
    chosen = ["--kubeconfig", str(both), "--context", "staging", "--finalizer", "example.com/a", "--yes"]
    assert main(["finalizers", "remove", "cm/a", *chosen]) == 0
    assert "removed example.com/a" in capsys.readouterr().out
    assert [each.get(odd)["metadata"].get("finalizers") for each in (cluster, staging)] == [
        ["example.com/a"],
        None,
    ]


def test_20_a_login_handler_of_the_operator_that_ignores_the_context_is_an_error(
    both: Path, cluster: EmbeddedCluster, staging: EmbeddedCluster, command: Command
) -> None:
    server = cluster.url
    handlers = f"""
@kopf.on.login()
def log_in(**_):
    return kopf.ConnectionInfo(server={server!r}, insecure=True)
"""
    said = command("check", WEB, "--kubeconfig", str(both), "--context", "staging", handlers=handlers)
    assert (said.code, said.output) == (2, "")
    assert f"error: the operator logs in to {server}, and not to {staging.url}\n" in said.errors


@pytest.mark.usefixtures("staging")
def test_a_login_handler_of_the_operator_gets_the_context(both: Path, command: Command) -> None:
    handlers = "\n@kopf.on.login()\ndef log_in(**options): return kopf.login_with_kubeconfig(**options)\n"
    chosen = ("--kubeconfig", str(both), "--context", "staging")
    said = command("check", WEB, "-o", "json", *chosen, handlers=handlers)
    assert parsed(said)["caches"][0]["cached"]["objects"] == 2


def test_a_client_that_was_imported_before_gets_the_context(
    both: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ModuleType("kube_config")
    monkeypatch.setattr(client, "KUBE_CONFIG_DEFAULT_LOCATION", "before", raising=False)
    monkeypatch.setitem(sys.modules, "kubernetes.config.kube_config", client)
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    handlers = """
@kopf.on.startup()
def look(**_):
    import os, sys
    client = sys.modules['kubernetes.config.kube_config']
    assert client.KUBE_CONFIG_DEFAULT_LOCATION == os.environ['KUBECONFIG'] != '/elsewhere'
"""
    said = command("check", WEB, "--kubeconfig", str(both), "--context", "staging", handlers=handlers)
    assert (said.code, said.errors) == (0, "")
    assert vars(client)["KUBE_CONFIG_DEFAULT_LOCATION"] == "/elsewhere"


def test_several_kubeconfigs_are_one_and_paths_stay_those_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    files = tmp_path / "folder/a", tmp_path / "b"
    user = {"client-key": "key.pem", "exec": {"command": "./login", "args": ["x"]}}
    files[0].write_text(
        yaml.safe_dump({"users": [{"name": "u", "user": user}], "clusters": [{"name": "c", "cluster": None}]})
    )
    files[1].write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "users": [
                    {"name": "u", "user": {}},
                    {"name": "v", "user": {"exec": {"command": "aws"}, "client-key": "/key"}},
                ],
            }
        )
    )
    merged = _merged(files)
    folder = tmp_path / "folder"
    assert merged["current-context"] == "x"
    assert merged["users"] == [
        {
            "name": "u",
            "user": {
                "client-key": str(folder / "key.pem"),
                "exec": {"command": str(folder / "login"), "args": ["x"]},
            },
        },
        {"name": "v", "user": {"exec": {"command": "aws"}, "client-key": "/key"}},
    ]
    assert merged["clusters"] == [{"name": "c", "cluster": {}}]


@pytest.mark.parametrize(
    ("config", "what", "hint"),
    [
        ({}, "has no current context", "Give one with --context: "),
        ({"current-context": "c"}, "has no context 'c'", "Give one with --context: "),
        (
            {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k"}}]},
            "has no server for the context c",
            "",
        ),
    ],
)
def test_a_kubeconfig_without_a_server_is_an_error(
    command: Command, tmp_path: Path, config: dict[str, Any], what: str, hint: str
) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(config))
    said = command("check", WEB, "--kubeconfig", str(file))
    lines = f"error: the kubeconfig {file} {what}\n" + (f"hint: {hint}\n" if hint else "")
    assert (said.code, said.output, said.errors) == (2, "", lines)


def test_20_a_failed_login_gives_its_reason_without_lines_of_kopf(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump({"clusters": [], "contexts": []}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KUBECONFIG", str(file))
        said = command("check", WEB)
    assert (said.code, said.errors.splitlines()) == (
        2,
        [
            "error: the operator can't log in: Current context is not set in kubeconfigs.",
            "hint: Give it a kubeconfig: --kubeconfig, $KUBECONFIG or ~/.kube/config",
        ],
    )


def test_without_a_kubeconfig_the_only_lines_are_the_error_and_the_hint(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    assert main(["finalizers", "remove", "pods/web-0"]) == 2
    assert [line.partition(" ")[0] for line in capsys.readouterr().err.splitlines()] == ["error:", "hint:"]
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_login_handler_of_the_operator_that_fails_shows_where(command: Command) -> None:
    handlers = "\n@kopf.on.login(retries=1)\ndef log_in(**_): raise kopf.PermanentError('no vault')\n"
    said = command("check", WEB, handlers=handlers)
    assert said.code == 2
    assert "error: the operator can't log in" in said.errors
    assert "no vault" in said.errors


def test_a_package_is_no_file_of_the_operator_wherever_python_has_found_it(tmp_path: Path) -> None:
    assert is_of_library(tmp_path / "lib" / "python3" / "site-packages" / "yaml" / "scanner.py")
    assert is_of_library(Path(yaml.__file__).resolve())
    assert not is_of_library(tmp_path / "operators" / "app.py")
