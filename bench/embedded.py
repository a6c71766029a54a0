"""Compare the embedded API server with the real one: creating, listing and watching objects, and memory.

`python -m bench.embedded` measures both in one run, with the same clients and objects, and prints a table.
Compare ratios: the times belong to one machine at one moment.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import itertools
import json
import os
import platform
import re
import select
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

from kopf_selectcache.testing.sample_objects import Population
from tests.apiserver.server import ApiServer

CLIENTS = 8
WATCHES = 50
REPEATS = 5
PAGE = 500
PODS = "/api/v1/namespaces/bench/pods"
EVENT = b'{"type":"MODIFIED"'


@dataclass
class Server:
    """One of the two servers, and its measurements."""

    name: str
    url: str
    token: str
    ca_file: Path
    pids: Sequence[int]
    figures: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def connect(self) -> http.client.HTTPSConnection:
        address = urlsplit(self.url)
        return http.client.HTTPSConnection(
            str(address.hostname), address.port, context=self.context(), timeout=120
        )

    def head(self, *, content_type: str = "application/json", encoding: str = "identity") -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json",
            "Content-Type": content_type,
            "Accept-Encoding": encoding,
        }

    @property
    def memory(self) -> float:
        """Return the memory of all its processes, in MB."""
        return sum(_resident(pid) for pid in self.pids)


def _resident(pid: int) -> float:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


@contextmanager
def embedded() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [
            sys.executable,
            "-m",
            "kopf_selectcache",
            "serve",
            "--kubeconfig",
            str(folder / "kubeconfig"),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # The command is a constant.  # noqa: S603
            assert process.stdout is not None
            process.stdout.readline()  # The server prints a line when it is ready.
            config = yaml.safe_load((folder / "kubeconfig").read_text())
            cluster = config["clusters"][0]["cluster"]
            ca_file = folder / "ca.pem"
            ca_file.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
            try:
                yield Server(
                    "embedded", cluster["server"], config["users"][0]["user"]["token"], ca_file, [process.pid]
                )
            finally:
                process.terminate()


@contextmanager
def real() -> Iterator[Server]:
    with ApiServer() as server:
        pids = [pid for pid in (server.apiserver.pid, server.etcd.pid) if pid is not None]
        yield Server("real", server.url, server.token, server.ca_file, pids)


# ---- Clients.


def request(
    connection: http.client.HTTPSConnection,
    server: Server,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    content_type: str = "application/json",
    encoding: str = "identity",
) -> bytes:
    connection.request(method, path, body, server.head(content_type=content_type, encoding=encoding))
    response = connection.getresponse()
    data = response.read()
    if response.status >= 300:
        raise RuntimeError(f"{method} {path}: {response.status} {data[:400]!r}")
    return data


def in_parallel(
    server: Server, work: Sequence[tuple[str, str, bytes]], *, content_type: str = "application/json"
) -> float:
    """Send these requests by several clients, each with its own connection; return the seconds."""
    connections = [server.connect() for _ in range(CLIENTS)]
    for connection in connections:
        connection.connect()
    todo = iter(work)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def send(connection: http.client.HTTPSConnection) -> None:
        try:
            while True:
                with lock:
                    item = next(todo, None)
                if item is None:
                    return
                request(connection, server, *item, content_type=content_type)
        except BaseException as error:  # The failure is raised in the thread that waits.  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=send, args=[connection]) for connection in connections]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    for connection in connections:
        connection.close()
    if failures:
        raise failures[0]
    return took


def median_of(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def listed(server: Server, *, limit: int = 0, encoding: str = "identity") -> int:
    """List all pods, in pages if there is a limit, without parsing them; return the bytes."""
    connection = server.connect()
    query: dict[str, object] = {"limit": limit} if limit else {}
    size = 0
    while True:
        data = request(connection, server, "GET", f"{PODS}?{urlencode(query)}", encoding=encoding)
        size += len(data)
        head = (
            zlib.decompressobj(wbits=31).decompress(data, 4096)
            if data.startswith(b"\x1f\x8b")
            else data[:4096]
        )
        found = re.search(rb'"continue":"([^"]+)"', head) if limit else None
        if found is None:
            connection.close()
            return size
        query["continue"] = found[1].decode()


class Watches:
    """Open watches, read by one thread that only counts events."""

    def __init__(self, server: Server, queries: Sequence[Mapping[str, object]]) -> None:
        self.events = [0] * len(queries)
        self._sockets: dict[ssl.SSLSocket, int] = {}
        self._rest = [b""] * len(queries)
        for index, query in enumerate(queries):
            connection = server.connect()
            connection.request("GET", f"{PODS}?{urlencode({'watch': '1', **query})}", headers=server.head())
            assert isinstance(connection.sock, ssl.SSLSocket)
            self._sockets[connection.sock] = index
            self._wait_for_head(connection.sock, index)
            connection.sock.setblocking(False)

    def _wait_for_head(self, sock: ssl.SSLSocket, index: int) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += sock.recv(65536)
        self._rest[index] = head.partition(b"\r\n\r\n")[2]

    def until(self, wanted: int) -> None:
        """Read until this number of events has arrived on all of them together."""
        poller = select.epoll()
        by_number = {sock.fileno(): sock for sock in self._sockets}
        for number in by_number:
            poller.register(number, select.EPOLLIN)
        while sum(self.events) < wanted:
            for number, _ in poller.poll(60) or [(0, 0)]:
                if not number:
                    raise TimeoutError(f"{sum(self.events)} of {wanted} events came")
                self._read(by_number[number])
        poller.close()

    def _read(self, sock: ssl.SSLSocket) -> None:
        index = self._sockets[sock]
        try:
            while data := sock.recv(1 << 18):
                data = self._rest[index] + data
                self.events[index] += data.count(EVENT)
                self._rest[index] = data[-len(EVENT) + 1 :]
        except ssl.SSLWantReadError:
            return
        raise ConnectionError("a watch was closed")

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


# ---- Measurements.


def measure(server: Server, pods: Sequence[Mapping[str, Any]], changes: int) -> None:
    connection = server.connect()
    request(
        connection, server, "POST", "/api/v1/namespaces", json.dumps({"metadata": {"name": "bench"}}).encode()
    )
    server.figures["memory at the start, MB"] = server.memory
    work = [("POST", PODS, json.dumps(pod).encode()) for pod in pods]
    took = in_parallel(server, work)
    server.figures[f"create by {CLIENTS} clients, s"] = took
    server.figures["memory with the objects, MB"] = server.memory

    server.notes["bytes of the list"] = f"{listed(server):,}"
    server.figures["list whole, s"] = median_of(lambda: listed(server))
    server.figures["list whole, gzip, s"] = median_of(lambda: listed(server, encoding="gzip"))
    server.figures[f"list in pages of {PAGE}, s"] = median_of(lambda: listed(server, limit=PAGE))
    server.figures[f"list in pages of {PAGE}, gzip, s"] = median_of(
        lambda: listed(server, limit=PAGE, encoding="gzip")
    )
    server.figures["list one label of fifty, s"] = median_of(
        lambda: request(connection, server, "GET", f"{PODS}?labelSelector=shard%3D7")
    )

    version = json.loads(request(connection, server, "GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
    connection.close()
    own = [{"labelSelector": f"shard={index}", "resourceVersion": version} for index in range(WATCHES)]
    server.figures[f"{changes} changes, each to 1 of {WATCHES} watches, s"] = watched(
        server, pods[:changes], own, changes
    )
    everything = [
        {"resourceVersion": "0", "sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    ] * WATCHES
    count = changes // 4
    server.figures[f"{count} changes, each to {WATCHES} of {WATCHES} watches, s"] = watched(
        server, pods[:count], everything, count * WATCHES
    )
    server.figures["memory at the end, MB"] = server.memory


def watched(
    server: Server, pods: Sequence[Mapping[str, Any]], queries: Sequence[Mapping[str, object]], wanted: int
) -> float:
    """Change pods, and return the seconds until every watch has received its events."""
    watches = Watches(server, queries)
    number = next(_NUMBERS)
    work = [
        (
            "PATCH",
            f"{PODS}/{pod['metadata']['name']}",
            b'{"metadata":{"annotations":{"changed":"%d"}}}' % number,
        )
        for pod in pods
    ]
    writer = threading.Thread(
        target=in_parallel, args=[server, work], kwargs={"content_type": "application/merge-patch+json"}
    )
    began = time.perf_counter()
    writer.start()
    watches.until(wanted)
    took = time.perf_counter() - began
    writer.join()
    watches.close()
    return took


_NUMBERS = itertools.count()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.embedded", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--objects", type=int, default=5000)
    parser.add_argument(
        "--changes", type=int, default=1000, help="how many objects are changed while all watch"
    )
    parser.add_argument("--only", choices=["embedded", "real"])
    arguments = parser.parse_args()
    pods = []
    for number, pod in enumerate(Population(seed=5, namespaces=["bench"]).pods(arguments.objects)):
        del pod["metadata"]["ownerReferences"]  # The owners do not exist: the pods would be collected.
        pod["metadata"]["labels"]["shard"] = str(number % WATCHES)
        pods.append(pod)
    size = sum(len(json.dumps(pod)) for pod in pods) / len(pods)
    servers = []
    for start in (embedded, real):
        if arguments.only in (None, start.__name__):
            with start() as server:
                measure(server, pods, min(arguments.changes, len(pods)))
                servers.append(server)
    print(
        f"{len(pods):,} pods, {size:,.0f} bytes on average; {os.cpu_count()} CPUs, {platform.machine()}, "
        f"Python {platform.python_version()}; load {os.getloadavg()[0]:.1f}"
    )
    for server in servers:
        print(f"{server.name}: a list is {server.notes['bytes of the list']} bytes")
    print(table(servers))


def table(servers: Sequence[Server]) -> str:
    lines = [["", *(server.name for server in servers), *(["embedded / real"] if len(servers) == 2 else [])]]
    for what in servers[0].figures:
        values = [server.figures[what] for server in servers]
        ratio = [f"{values[0] / values[1]:.2f}"] if len(values) == 2 else []
        lines.append(
            [what, *(f"{value:,.0f}" if value >= 100 else f"{value:.3f}" for value in values), *ratio]
        )
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not index else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


if __name__ == "__main__":
    main()
