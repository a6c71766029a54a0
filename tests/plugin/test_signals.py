"""`kopf run` as a process, ended by SIGTERM as in a cluster, whatever its caches are doing: at once, clean,
with exit code 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse, Silence
from tests.secrets import secret

OPERATOR = """
import kopf, kopf_selectcache

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['v1/secrets'] = 'app=web'
    settings.selectcache.sync_timeout = SYNC_TIMEOUT

@kopf.on.event('secrets')
@kopf_selectcache.with_cache
def handle(cache, **_):
    print('a thread waits', flush=True)
    cache.blocking.wait_for('secrets', lambda _: False)
"""


def syncing(cluster: EmbeddedCluster) -> None:
    # Kopf lists secrets as well, for the handler.
    cluster.faults.add(
        Silence(), verb="list", resource="secrets", where=lambda asked: "labelSelector" in asked.query
    )


def stalled(cluster: EmbeddedCluster) -> None:
    cluster.faults.add(
        Refuse(503), verb="list", resource="secrets", where=lambda asked: "labelSelector" in asked.query
    )


def waiting(cluster: EmbeddedCluster) -> None:
    cluster.create(secret("web-1", "default", app="web"))


CASES: dict[str, tuple[Callable[[EmbeddedCluster], None], float, str]] = {
    "while it syncs": (syncing, 600, ""),
    "while it is stalled": (stalled, 0.001, "meanwhile, await cache.fetch(...)"),
    "while a thread waits": (waiting, 600, "a thread waits"),
}
"""What to do to the cluster, how long a first list may fail to come, and the sign in the log that it is so
far."""


@contextmanager
def process(
    folder: Path, cluster: EmbeddedCluster, *, sync_timeout: float
) -> Iterator[subprocess.Popen[str]]:
    """Run an operator that is told of every resource that is left to the garbage collector."""
    file = folder / "operator.py"
    file.write_text(OPERATOR.replace("SYNC_TIMEOUT", str(sync_timeout)))
    command = [
        sys.executable,
        "-W",
        "always::ResourceWarning",
        "-m",
        "kopf",
        "run",
        "--standalone",
        "-A",
        str(file),
    ]
    started = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env={
            **os.environ,
            "KUBECONFIG": str(cluster.kubeconfig(folder / "kubeconfig")),
            "PYTHONUNBUFFERED": "1",
        },
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sigterm_ends_an_operator_clean(
    case: tuple[Callable[[EmbeddedCluster], None], float, str], tmp_path: Path
) -> None:
    prepare, sync_timeout, sign = case
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        prepare(cluster)
        with process(tmp_path, cluster, sync_timeout=sync_timeout) as running:
            assert running.stdout is not None
            log = ""
            for planned in cluster.faults:
                planned.wait()
            # Who is stopped while Kopf finds out what there is, waits for Kopf.
            cluster.requests.wait("watch", "secrets", where=lambda asked: "labelSelector" not in asked.query)
            while sign not in log:
                line = running.stdout.readline()
                assert line, f"it ended:\n{log}"
                log += line
            running.send_signal(signal.SIGTERM)
            rest, _ = running.communicate(timeout=120)
            assert running.returncode == 0, log + rest
            assert [
                sign
                for sign in ("Traceback", "ResourceWarning", "never retrieved", "was destroyed", "Unclosed")
                if sign in rest
            ] == [], rest
