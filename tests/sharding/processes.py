"""A fleet of operators as processes, and the judge of their log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

from kopf_selectcache.testing import EmbeddedCluster

OPERATOR = Path(__file__).with_name("operator.py")


class Processes:
    """Operators that run beside an API server."""

    def __init__(self, kubeconfig: Path, folder: Path, *, lease: float = 4.0) -> None:
        self.log = folder / "runs.log"
        self.log.touch()
        self._folder, self._lease = folder, lease
        self._kubeconfig = kubeconfig
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        output = (self._folder / f"{name}.out").open("ab")
        with output:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "kopf", "run", "-A", "--standalone", str(OPERATOR)],
                env={
                    **os.environ,
                    "KUBECONFIG": str(self._kubeconfig),
                    "POD_NAME": name,
                    "FLEET_LOG": str(self.log),
                    "FLEET_LEASE": str(self._lease),
                },
                stdout=output,
                stderr=output,
            )

    def kill(self, name: str) -> None:
        """End a process at once. Its runs are over from now on."""
        process = self.running.pop(name)
        process.send_signal(SIGKILL)
        process.wait()
        with self.log.open("a") as log:
            log.write(f"{name} {process.pid} killed\n")

    def end(self, name: str) -> int:
        """Ask a process to end; return its exit code."""
        process = self.running.pop(name)
        process.send_signal(SIGTERM)
        return process.wait()

    def output_of(self, name: str) -> str:
        return (self._folder / f"{name}.out").read_text()

    def runs_of(self, name: str) -> int:
        return sum(
            line.startswith(f"{name} ") and " begin " in line for line in self.log.read_text().splitlines()
        )


@contextmanager
def processes(cluster: EmbeddedCluster, folder: Path, *, lease: float = 4.0) -> Iterator[Processes]:
    found = Processes(cluster.kubeconfig(folder / "kubeconfig"), folder, lease=lease)
    try:
        yield found
    finally:
        for process in found.running.values():
            process.kill()
            process.wait()


def overlaps(log: str) -> list[str]:
    """Return each line at which a key was begun while another process ran it.

    >>> overlaps('a 1 begin k 1\\nb 2 begin k 1\\n')
    ['b 2 begin k 1: a 1 runs it']
    >>> overlaps('a 1 begin k 1\\na 1 killed\\nb 2 begin k 1\\nb 2 end k 1\\na 3 begin k 1\\n')
    []
    """
    running: dict[str, str] = {}
    found = []
    for line in log.splitlines():
        who, process, what, *rest = line.split(" ")
        me = f"{who} {process}"
        if what == "killed":
            running = {key: each for key, each in running.items() if each != me}
        elif what == "begin":
            if running.get(rest[0], me) != me:
                found.append(f"{line}: {running[rest[0]]} runs it")
            running[rest[0]] = me
        else:
            running.pop(rest[0], None)
    return found


def lease(name: str) -> dict[str, Any]:
    """Return the identity of the Lease of a replica."""
    metadata = {"name": f"fleet-shard-{name}", "namespace": "operators"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


def configmap(namespace: str, name: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"fleet": "yes"}},
        "data": {"number": str(number)},
    }
