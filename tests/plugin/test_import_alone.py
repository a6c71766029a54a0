"""An operator that imports the package and declares nothing does what it does without the import."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from ast import literal_eval
from collections import Counter
from pathlib import Path

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.plugin.reconciling import config

# It writes what it knows of itself where the object is handled: by then, all of it has started.
SOURCE = """
import asyncio
import kopf

REGISTRY = kopf.get_default_registry()

@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    settings.watching.server_timeout = 600

@kopf.index("pods")
def names(name, **_):
    return {name: None}

@kopf.on.probe()
def alive(**_):
    return 1

@kopf.on.create("configmaps")
async def create(memo, patch, names, **_):
    from kopf._core.engines.posting import settings_var
    registries = sorted(part for part in vars(REGISTRY) if part.startswith("_") and "selectcache" not in part)
    told = {
        "handlers": [
            str(handler.id) for part in registries for handler in getattr(REGISTRY, part).get_all_handlers()
        ],
        "settings": str(settings_var.get()),
        "tasks": [task.get_name() for task in asyncio.all_tasks() if "selectcache" in task.get_name()],
        "memo": str(memo),
        "indexed": sorted(names),
    }
    patch.metadata.annotations["told"] = str(told)
"""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "shop"},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}
DIFFERS = re.compile(r"0x[0-9a-f]+|Task-\d+|127[.]0[.]0[.]1:\d+|\[\d{4}-[^]]*\]|\d+[.]\d+ seconds")
"""The difference between two runs of the same operator."""


class Run:
    """The requests, logs and reports of an operator in one run on a cluster of its own."""

    def __init__(self, source: str, folder: Path) -> None:
        folder.mkdir()
        (folder / "app.py").write_text(source)
        with EmbeddedCluster(tls=False).in_thread() as cluster:
            cluster.namespace("shop")
            cluster.create(POD)
            command = ["-m", "kopf", "run", "--standalone", "-A", str(folder / "app.py")]
            running = subprocess.Popen(
                [sys.executable, *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig(folder / "kubeconfig"))},
            )
            try:
                cluster.create(made := config("ask"))
                done = cluster.wait_for(made, lambda now: "told" in now["metadata"].get("annotations", {}))
                watched = ("pods", "configmaps", "customresourcedefinitions")
                cluster.requests.when(
                    lambda: (
                        {*watched} <= {asked.resource for asked in cluster.requests if asked.verb == "watch"}
                    )
                ).result(60)
            finally:
                running.send_signal(signal.SIGTERM)
                output, _ = running.communicate(timeout=60)
            self.requests = Counter(
                f"{asked.verb} {asked.path} {sorted(asked.query)}" for asked in cluster.requests
            )
        self.told = literal_eval(DIFFERS.sub("", done["metadata"]["annotations"]["told"]))
        self.log = Counter(
            DIFFERS.sub("", line) for line in output.partition("Signal SIGTERM")[0].splitlines()
        )
        self.code = running.returncode


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    folder = tmp_path_factory.mktemp("operators")
    return Run(SOURCE, folder / "plain"), Run(f"import kopf_selectcache\n{SOURCE}", folder / "importing")


@pytest.mark.parametrize("what", ["told", "requests", "log", "code"])
def test_20_an_import_alone_changes_nothing(what: str, runs: tuple[Run, Run]) -> None:
    plain, importing = runs
    assert plain.told["tasks"] == []
    assert getattr(importing, what) == getattr(plain, what)
