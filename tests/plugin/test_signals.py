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
from kopf_selectcache.testing.faults import Silence
from tests.secrets import secret

OPERATOR = """
import kopf, kopf_selectcache

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['v1/secrets'] = 'app=web'
    settings.selectcache.sync_timeout = 600

@kopf.on.event('secrets')
@kopf_selectcache.with_cache
def handle(cache, **_):
    print('a thread waits', flush=True)
    cache.wait_for('secrets', lambda _: False)
"""

ALL_THREADS = """
import asyncio, threading, kopf, kopf_selectcache

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['v1/secrets'] = 'app=web'
    settings.execution.max_workers = 1

begun = threading.Event()

@kopf_selectcache.on.change('secrets')
def handle(cache, **_):
    begun.set()
    cache.wait_for('secrets', lambda _: False)

@kopf.on.event('secrets')
async def first(**_):
    await asyncio.to_thread(begun.wait)
    print('a handler of Kopf waits for a thread', flush=True)

@kopf.on.event('secrets')
def second(**_):
    pass
"""

HELD_UP = """
import asyncio, threading, kopf, kopf_selectcache

begun, refused = threading.Event(), threading.Event()

@kopf.on.startup()
async def configure(settings, memo, **_):
    settings.selectcache.selectors['v1/secrets'] = 'app=web'
    memo.task = asyncio.create_task(write(kopf_selectcache.cache_of(settings)))

async def write(cache):
    await cache.wait_synced()
    await asyncio.to_thread(begun.wait)
    print('a handler holds up the operator', flush=True)
    await until_refused(lambda: cache.live.patch('secrets', 'web-1', {'type': 'Opaque'}, namespace='default'))
    await until_refused(lambda: cache.declare('secrets', 'app=web', replace=True))
    refused.set()

async def until_refused(call):
    try:
        while True:
            await call()
            await asyncio.sleep(0)
    except kopf_selectcache.ReadError:
        pass

@kopf.on.event('secrets')
def hold(**_):
    begun.set()
    refused.wait()
"""


def syncing(cluster: EmbeddedCluster) -> None:
    # Kopf lists secrets as well, for the handler.
    cluster.faults.add(
        Silence(), verb="list", resource="secrets", where=lambda asked: "labelSelector" in asked.query
    )


def waiting(cluster: EmbeddedCluster) -> None:
    cluster.create(secret("web-1", "default", app="web"))


CASES: dict[str, tuple[Callable[[EmbeddedCluster], None], str]] = {
    "while it syncs": (syncing, ""),
    "while a thread waits": (waiting, "a thread waits"),
}
"""The changes of the cluster, and the sign in the log that it is so far."""


@contextmanager
def process(folder: Path, cluster: EmbeddedCluster, *, source: str) -> Iterator[subprocess.Popen[str]]:
    """Run an operator that is told of every resource that is left to the garbage collector."""
    file = folder / "operator.py"
    file.write_text(source)
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
    case: tuple[Callable[[EmbeddedCluster], None], str], tmp_path: Path
) -> None:
    prepare, sign = case
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        prepare(cluster)
        with process(tmp_path, cluster, source=OPERATOR) as running:
            for planned in cluster.faults:
                planned.wait()
            # Who is stopped while Kopf finds out what there is, waits for Kopf.
            cluster.requests.wait("watch", "secrets", where=lambda asked: "labelSelector" not in asked.query)
            end_clean(running, sign)


def test_2_sigterm_ends_an_operator_whose_caches_hold_all_threads(tmp_path: Path) -> None:
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        waiting(cluster)
        with process(tmp_path, cluster, source=ALL_THREADS) as running:
            end_clean(running, "a handler of Kopf waits for a thread")


def test_2_after_the_deadline_of_sigterm_nothing_is_written_though_a_thread_holds_up_the_operator(
    tmp_path: Path,
) -> None:
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        waiting(cluster)
        with process(tmp_path, cluster, source=HELD_UP) as running:
            end_clean(running, "a handler holds up the operator")


def end_clean(running: subprocess.Popen[str], sign: str) -> None:
    """End an operator by SIGTERM once its log has a sign, and see that it leaves nothing behind."""
    assert running.stdout is not None
    log = ""
    while sign not in log:
        line = running.stdout.readline()
        assert line, f"it ended:\n{log}"
        log += line
    running.send_signal(signal.SIGTERM)
    rest, _ = running.communicate(timeout=120)
    assert running.returncode == 0, log + rest
    signs = ("Traceback", "ResourceWarning", "never retrieved", "was destroyed", "Unclosed")
    assert [sign for sign in signs if sign in rest] == [], rest
