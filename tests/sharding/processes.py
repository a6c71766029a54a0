"""A fleet of operators as processes, writers beside them, and the judge of the operators' log."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from signal import SIGKILL, SIGTERM
from threading import Event
from typing import Any

from kopf_selectcache.core.assignment.records import assignment_name, lease_name, read_assignment, replica_of
from tests.apiserver.client import Client
from tests.apiserver.waiting import wait_until

OPERATOR = Path(__file__).with_name("operator.py")
GROUP = "fleet"
PAUSE = 0.05
"""Seconds between two changes of one writer."""
WRITERS = 2


class Processes:
    """Operators that run beside an API server."""

    def __init__(
        self, api: Client, folder: Path, *, namespace: str, lease: float, operator: Path = OPERATOR
    ) -> None:
        self._log = folder / "runs.log"
        self._log.touch()
        self._api, self._folder, self._namespace, self._operator = api, folder, namespace, operator
        self._env = {
            **os.environ,
            "KUBECONFIG": str(api.kubeconfig(folder / "kubeconfig")),
            "FLEET_LOG": str(self._log),
            "FLEET_LEASE": str(lease),
            "FLEET_NAMESPACE": namespace,
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        with (self._folder / f"{name}.out").open("ab") as output:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "kopf", "run", "-A", "--standalone", str(self._operator)],
                env={**self._env, "POD_NAME": name},
                stdout=output,
                stderr=output,
            )

    def kill(self, name: str) -> None:
        """End a process at once. Its runs are over from now on."""
        process = self.running.pop(name)
        process.send_signal(SIGKILL)
        process.wait()
        with self._log.open("a") as log:
            log.write(f"{name} {process.pid} killed\n")

    def end(self, name: str) -> int:
        """Ask a process to end; return its exit code."""
        process = self.running.pop(name)
        if process.poll() is None:
            process.send_signal(SIGTERM)
        return process.wait()

    def identity_of(self, name: str) -> str:
        """Return who lives on the Lease of a replica."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/{lease_name(GROUP, name)}"
        return str(self._api.request("GET", path)["spec"]["holderIdentity"])

    def owners(self) -> set[str]:
        """Return the identities that own ranges; one is empty if a range is free."""
        path = f"/api/v1/namespaces/{self._namespace}/configmaps/{assignment_name(GROUP)}"
        assignment = read_assignment(self._api.request("GET", path)).assignment
        assert assignment is not None
        return {each.owner for each in assignment.shares}

    def wait_owned(self, names: str, *, gone: str = "") -> None:
        """Wait until these replicas, each a letter, share all ranges, and an identity has none."""

        def is_so() -> bool:
            owners = self.owners()
            return gone not in owners and {replica_of(each) for each in owners} == {*names}

        wait_until(is_so, f"{names} own all ranges, and {gone or 'nobody'} none")

    def read(self) -> str:
        """Return the log of all runs so far."""
        return self._log.read_text()


@contextmanager
def processes(api: Client, folder: Path, *, namespace: str, lease: float = 4.0) -> Iterator[Processes]:
    found = Processes(api, folder, namespace=namespace, lease=lease)
    try:
        yield found
    finally:
        for process in found.running.values():
            process.kill()
            process.wait()


class Objects:
    """ConfigMaps in some namespaces. Each has the number of its last change."""

    def __init__(self, api: Client, namespaces: Sequence[str], names: str = "xy") -> None:
        self._api, self._changes = api, itertools.count(1)
        self.numbers = {f"{namespace}/{name}": 0 for namespace in namespaces for name in names}
        for key in self.numbers:
            namespace, name = key.split("/")
            api.request(
                "POST", f"/api/v1/namespaces/{namespace}/configmaps", body=configmap(namespace, name, 0)
            )

    def write(self, key: str) -> None:
        namespace, name = key.split("/")
        number = next(self._changes)
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._api.request("PATCH", path, body={"data": {"number": str(number)}})
        self.numbers[key] = number

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Have writers change them meanwhile."""
        stop = Event()

        def write(writer: int) -> None:
            chance, keys = Random(writer), [*self.numbers][writer::WRITERS]
            while not stop.wait(PAUSE):
                self.write(chance.choice(keys))

        with ThreadPoolExecutor(WRITERS) as threads:
            writing = [threads.submit(write, each) for each in range(WRITERS)]
            try:
                yield
            finally:
                stop.set()
            for each in writing:
                each.result()


def play(fleet: Processes, objects: Objects) -> str:
    """Start three replicas. While writers write, kill two and end one; each comes back. Return the log, once
    no key is left.
    """
    for each in "abc":
        fleet.start(each)
    wait_until(lambda: not left(fleet.read(), objects.numbers), "each object is handled")
    fleet.wait_owned("abc")
    with objects.changing():
        fleet.kill("a")
        killed = fleet.identity_of("a")
        fleet.start("a")  # As a StatefulSet does: a pod of the same name, at once.
        assert fleet.end("c") == 0
        fleet.wait_owned("ab", gone=killed)
        fleet.start("c")
        fleet.kill("b")
        killed = fleet.identity_of("b")
        fleet.wait_owned("ac", gone=killed)
        fleet.start("b")
        fleet.wait_owned("abc")
    wait_until(lambda: not left(fleet.read(), objects.numbers), "the last state of each object is handled")
    assert [fleet.end(each) for each in "abc"] == [0, 0, 0]
    return fleet.read()


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


def left(log: str, numbers: Mapping[str, int]) -> list[str]:
    """Return the keys whose last state no run has handled to its end.

    >>> left('a 1 begin k 1\\na 1 end k 1\\na 1 begin k 2\\na 1 killed\\n', {'k': 2})
    ['k']
    """
    ended = {line.partition(" end ")[2] for line in log.splitlines()}
    return [key for key, number in numbers.items() if f"{key} {number}" not in ended]


def handled_by(log: str) -> set[str]:
    """Return the names of the replicas that have begun a run."""
    return {line.split(" ")[0] for line in log.splitlines() if " begin " in line}


def lease(name: str) -> dict[str, Any]:
    """Return the identity of the Lease of a replica."""
    metadata = {"name": lease_name(GROUP, name), "namespace": "operators"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


def configmap(namespace: str, name: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"fleet": "yes"}},
        "data": {"number": str(number)},
    }
