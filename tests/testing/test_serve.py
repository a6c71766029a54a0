"""The command `serve`: a server of its own process, from the kubeconfig that it writes to the signal that
ends it."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import json
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kopf_selectcache.__main__ import main
from kopf_selectcache.cli.output import Progress
from kopf_selectcache.cli.serve import serve as serve_until_told
from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.client import ApiError, Client
from tests.apiserver.waiting import wait_until

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start servers; those that still run are killed in the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-W",
            "error",
            "-m",
            "kopf_selectcache",
            "serve",
            "--kubeconfig",
            str(tmp_path / "config"),
        ]
        started.append(
            subprocess.Popen(
                [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def client_of(kubeconfig: Path, folder: Path) -> Client:
    """Give a client that knows nothing but the kubeconfig."""
    config = json.loads(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    ca_file = folder / "ca.pem"
    ca_file.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    return Client(cluster["server"], ca_file=ca_file, token=config["users"][0]["user"]["token"])


def ready(process: subprocess.Popen[str], kubeconfig: Path) -> None:
    wait_until(lambda: kubeconfig.exists() or process.poll() is not None, "the server is ready")
    assert process.poll() is None, process.communicate()


def test_it_serves_until_a_signal_ends_it(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "all.yaml").write_text(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: prod}}\n"
        "---\n{apiVersion: v1, kind: Namespace, metadata: {name: prod}}\n"
    )
    kubeconfig = tmp_path / "config"
    process = serve("--load", str(tmp_path / "manifests"))
    ready(process, kubeconfig)
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    client = client_of(kubeconfig, tmp_path)
    assert client.request("GET", "/api/v1/namespaces/prod/configmaps/a")["metadata"]["name"] == "a"
    client.close()
    process.send_signal(signal.SIGTERM)  # Others here: SIGINT.
    output, errors = process.communicate(timeout=60)
    shown = ("reading bytes: ", "loading objects: ")  # The progress, on a machine that is slow.
    assert process.returncode == 0
    assert [line for line in errors.splitlines() if not line.startswith(shown)] == []
    assert f"An API server with 2 loaded objects listens on {client.url}\n" in output
    assert f"kubectl --kubeconfig {kubeconfig} get" in output
    assert not kubeconfig.exists()


def test_it_prints_requests_where_that_is_asked_for_and_no_bodies(serve: Serve, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    process = serve("-v")
    ready(process, kubeconfig)
    client = client_of(kubeconfig, tmp_path)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a"},
        "stringData": {"key": "canary"},
    }
    client.request("POST", "/api/v1/namespaces/default/secrets", body=secret)
    client.request("POST", "/api/v1/namespaces/default/secrets", body={**secret, "metadata": {"name": "b"}})
    first = client.request(
        "GET", "/api/v1/secrets", query={"limit": "1", "labelSelector": "app in (web,db),!old"}
    )
    assert first["kind"] == "SecretList"
    page = client.request("GET", "/api/v1/secrets", query={"limit": "1"})
    client.request("GET", "/api/v1/secrets", query={"limit": "1", "continue": page["metadata"]["continue"]})
    with pytest.raises(ApiError):
        client.request("GET", "/api/v1/namespaces/default/secrets/nothing")
    client.close()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert output.partition("Press Ctrl-C to stop it.\n")[2].splitlines() == [
        "POST /api/v1/namespaces/default/secrets 201",
        "POST /api/v1/namespaces/default/secrets 201",
        "GET /api/v1/secrets?limit=1&labelSelector=app+in+(web,db),!old 200",
        "GET /api/v1/secrets?limit=1 200",
        "GET /api/v1/secrets?limit=1&continue=... 200",
        "GET /api/v1/namespaces/default/secrets/nothing 404",
    ]
    assert "canary" not in output


def test_as_json_it_prints_where_it_listens_and_each_request(serve: Serve, tmp_path: Path) -> None:
    process = serve("-v", "-o", "json")
    ready(process, tmp_path / "config")
    client = client_of(tmp_path / "config", tmp_path)
    client.request("GET", "/api/v1/pods", query={"labelSelector": "app=web"})
    client.close()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert [json.loads(line) for line in output.splitlines()] == [
        {"url": client.url, "kubeconfig": str(tmp_path / "config"), "objects": 0},
        {"method": "GET", "path": "/api/v1/pods", "query": {"labelSelector": "app=web"}, "code": 200},
    ]


@pytest.mark.parametrize("phase", ["reading", "loading"])
def test_it_can_be_ended_while_it_loads(tmp_path: Path, phase: str) -> None:
    class Interrupting(io.StringIO):
        def write(self, text: str) -> int:
            if phase in text:
                signal.raise_signal(signal.SIGINT)
            return super().write(text)

    (tmp_path / "all.yaml").write_text(
        "".join(
            f"---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a-{number}}}}}\n"
            for number in range(1000)
        )
    )
    seconds = itertools.count()
    output, errors = io.StringIO(), Interrupting()
    kubeconfig = tmp_path / "config"
    asyncio.run(
        serve_until_told(
            kubeconfig,
            port=0,
            manifests=[tmp_path / "all.yaml"],
            output=output,
            errors=errors,
            clock=lambda: float(next(seconds)),
        )
    )
    assert (output.getvalue(), kubeconfig.exists()) == ("", False)
    assert "100%" not in errors.getvalue().splitlines()[-1]


def test_it_refuses_the_kubeconfig_of_a_server_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "config"
    with EmbeddedCluster().in_thread() as cluster:
        written = cluster.kubeconfig(kubeconfig).read_bytes()
        assert main(["serve", "--kubeconfig", str(kubeconfig)]) == 1
        assert capsys.readouterr().err == (
            f"error: {kubeconfig} belongs to a server that runs at {cluster.url}\nhint: Give another file\n"
        )
        assert kubeconfig.read_bytes() == written


def test_it_replaces_a_kubeconfig_whose_port_another_server_uses_now_and_leaves_that_of_another_alone(
    serve: Serve, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "config"
    old = left_by_another_server(kubeconfig)
    with EmbeddedCluster().in_thread() as other:
        config = json.loads(old)
        config["clusters"][0]["cluster"]["server"] = other.url
        kubeconfig.write_text(json.dumps(config))
        written = kubeconfig.read_text()
        process = serve()
        wait_until(
            lambda: kubeconfig.exists() and kubeconfig.read_text() != written, "the second server is ready"
        )
    new = left_by_another_server(kubeconfig)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    assert kubeconfig.read_text() == new


def left_by_another_server(kubeconfig: Path) -> str:
    with EmbeddedCluster().in_thread() as cluster:
        return cluster.kubeconfig(kubeconfig).read_text()


def test_it_does_not_overwrite_a_file_of_somebody(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("current-context: production\n")
    assert main(["serve", "--kubeconfig", str(kubeconfig)]) == 1
    assert kubeconfig.read_text() == "current-context: production\n"


@pytest.mark.parametrize(
    "manifest",
    [
        "{kind: Widget, apiVersion: example.com/v1, metadata: {name: a}}",
        "{kind: ConfigMap, apiVersion: v1, metadata: {name: a, namespace: nowhere}}",
        "{kind: [",
        "{kind: ConfigMap, metadata: {name: a}}",
        "{kind: ConfigMap, apiVersion: v1}",
        "{kind: ConfigMap, apiVersion: v1, metadata: [1]}",
        "{kind: Secret, apiVersion: v1, metadata: {name: a}, data: {a: !!binary aGk=}}",
    ],
)
def test_a_manifest_that_cannot_be_loaded_ends_it(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "a.yaml").write_text(manifest)
    assert main(["serve", "--kubeconfig", str(tmp_path / "config"), "--load", str(tmp_path / "a.yaml")]) == 1
    assert not (tmp_path / "config").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestProgress:
    def test_short_work_shows_no_bar(self) -> None:
        file = Terminal()
        with Progress("loading", 2, file=file, clock=lambda: 0.0) as progress:
            progress.step()
        assert file.getvalue() == ""

    def test_long_work_redraws_a_bar_in_a_terminal(self) -> None:
        file, times = Terminal(), iter(range(100))
        with Progress("loading", 4, file=file, clock=lambda: next(times)) as progress:
            for _ in range(4):
                progress.step()
        assert file.getvalue().count("\r") == 4
        assert file.getvalue().endswith("\rloading: 4 of 4 (100%)\n")

    def test_elsewhere_it_is_a_line_now_and_then(self) -> None:
        file, times = io.StringIO(), iter(range(1000))
        with Progress("loading", 20, file=file, clock=lambda: next(times)) as progress:
            for _ in range(20):
                progress.step()
        lines = file.getvalue().splitlines()
        assert lines[-1] == "loading: 20 of 20 (100%)"
        assert 3 <= len(lines) <= 8

    def test_of_how_much_nobody_knows_it_shows_how_much_there_was(self) -> None:
        terminal, file, times = Terminal(), io.StringIO(), iter(range(1000))
        for shown in (terminal, file):
            with Progress("counting", None, file=shown, clock=lambda: next(times)) as progress:
                progress.step(1500)
                progress.step(500)
        assert terminal.getvalue() == "\rcounting: 1,500\rcounting: 2,000\n"
        assert file.getvalue().splitlines() == ["counting: 1,500", "counting: 2,000"]
