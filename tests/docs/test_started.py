"""docs/getting-started.md: its steps have the results that it shows."""

import asyncio
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kopf
import kopf.testing
import pytest

from kopf_selectcache import OutsideFilter
from kopf_selectcache.testing import EmbeddedCluster, FakeCache

from .pages import DOCS, fences, saved

PAGE = DOCS / "getting-started.md"
SHOP = {
    "apiVersion": "example.com/v1",
    "kind": "WebApp",
    "metadata": {"name": "shop", "namespace": "default"},
}
DB = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-1", "namespace": "default"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder with the files of the page, as its reader saves them."""
    saved(PAGE, tmp_path)
    return tmp_path


@pytest.fixture
def texts() -> list[str]:
    """Return the outputs that the page shows."""
    return [fence.text for fence in fences(PAGE, "text")]


def measureless(text: str) -> str:
    """Remove the seconds and bytes, which differ from run to run."""
    return re.sub(r"[\d.]+ (s|B)\b", r"some \1", text)


def test_the_operator_logs_the_lines_shown_and_follows_a_label(
    cluster: EmbeddedCluster, folder: Path, texts: list[str]
) -> None:
    operator = folder / "app.py"
    cluster.apply(folder / "crd.yaml")
    cluster.apply(folder / "objects.yaml")
    with kopf.testing.KopfRunner(["run", "-A", str(operator)]) as runner:
        cluster.wait_for(SHOP, lambda now: now.get("status") == {"pods": 2})
        cluster.patch(DB, {"metadata": {"labels": {"app": "web"}}})
        cluster.wait_for(SHOP, lambda now: now["status"] == {"pods": 3})
    assert runner.exit_code == 0
    (shown,) = (text for text in texts if "The cache of" in text)
    assert [line for line in shown.splitlines() if measureless(line) not in measureless(runner.output)] == []


def test_its_commands_run_it_without_a_cluster(folder: Path) -> None:
    serve, run = (
        next(
            shlex.split(line)
            for fence in fences(PAGE, "shell")
            for line in fence.text.splitlines()
            if begin in line
        )
        for begin in ("serve", "kopf run -A")
    )
    with started([str(Path(sys.executable).with_name(serve[0])), *serve[1:]], folder) as server:
        said(server, "listens on")
        with started([sys.executable, "-m", *run], folder, KUBECONFIG="demo.kubeconfig") as operator:
            said(operator, "It has 2 pods.")


@contextmanager
def started(command: list[str], folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, **variables}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def said(process: subprocess.Popen[str], words: str) -> None:
    """Wait until a process prints this; fail if it ends before."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return
    raise AssertionError("".join(lines))


def test_the_wider_read_fails_with_the_words_that_are_shown(
    folder: Path, texts: list[str], registry: kopf.OperatorRegistry
) -> None:
    operator, wider = (
        (folder / "app.py"),
        next(fence.text for fence in fences(PAGE, "python") if "the labels" in fence.text),
    )
    narrow = next(line for line in operator.read_text().splitlines() if "labels = {'app': 'web'" in line)
    operator.write_text(operator.read_text().replace(narrow, wider.splitlines()[-1]))
    made, settings = runpy.run_path(str(operator)), kopf.OperatorSettings()
    made["configure"](settings=settings)
    with pytest.raises(OutsideFilter) as info:
        asyncio.run(
            made["count"](
                cache=FakeCache([], settings),
                name="shop",
                namespace="default",
                patch=kopf.Patch(),
                logger=None,
            )
        )
    assert registry is kopf.get_default_registry()
    (shown,) = (text for text in texts if "may be incomplete" in text)
    told = [str(info.value), *getattr(info.value, "__notes__", [])]
    assert " ".join(told).split() == shown.split()


def test_its_test_passes(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout
