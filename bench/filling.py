"""Write the objects into the cluster, once for all peers: directly into etcd, as JSON, which the API server
accepts.

It begins with an API server without the objects, and ends with one that serves all of them.
"""

from __future__ import annotations

import base64
import http.client
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from bench.data import NAMESPACES, encoded
from tests.apiserver.server import ApiServer
from tests.apiserver.waiting import wait_until

ASK: Mapping[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "ask", "labels": {"bench": "ask"}},
}
"""The object that calls the handlers of Kopf's operators."""
AT_ONCE = 100
"""The default limit of etcd for the objects of one transaction: 128."""
IDLE = 0.1
"""The CPU seconds that an idle API server and its etcd use in one second at most."""
LONGEST = 700_000
"""The bytes of one transaction: at most 1.5 MB, and they grow by a third on the way."""


def prepare(server: ApiServer) -> None:
    """Create the namespaces, and the objects of the handlers."""
    for namespace in NAMESPACES:
        server.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
    server.request("POST", "/api/v1/namespaces/default/configmaps", body=ASK)


def fill(
    server: ApiServer,
    pods: Iterable[bytes],
    *,
    place_of: Callable[[int], tuple[str, str]],
    begin: int = 0,
    step: Callable[[int], None],
) -> int:
    """Write these pods, the first of which has the number `begin`; return the new total."""
    address = urlsplit(
        next(
            option.partition("=")[2]
            for option in server.etcd.command
            if option.startswith("--listen-client-urls=")
        )
    )
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    number = begin
    # While etcd writes a part, the next one is generated, which takes longer.
    with ThreadPoolExecutor(1) as writer, closing(connection):
        writing: Future[None] | None = None
        for batch in batches(pods):
            puts = []
            for pod in batch:
                key = "/".join(("/registry/pods", *place_of(number))).encode()
                puts.append({"requestPut": {"key": _text(key), "value": _text(pod)}})
                number += 1
            if writing is not None:
                writing.result()
            writing = writer.submit(_write, connection, encoded({"success": puts}))
            step(len(batch))
        if writing is not None:
            writing.result()
    wait_until(lambda: served(server) == number, f"the API server serves {number:,} pods", deadline=300)
    return number


def await_idle(cpu: Callable[[], float], *, sleep: Callable[[float], None]) -> bool:
    """Wait until the server uses little CPU: for a while, it works on what was written. Return False if it
    still does after two minutes.
    """
    before = cpu()
    for _ in range(120):
        sleep(1.0)
        if (now := cpu()) - before < IDLE:
            return True
        before = now
    return False


def _write(connection: http.client.HTTPConnection, transaction: bytes) -> None:
    connection.request("POST", "/v3/kv/txn", transaction)
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"etcd: {answer.status} {said[:400]!r}")


def served(server: ApiServer) -> int:
    answer = server.request("GET", "/api/v1/pods", query={"limit": 1})
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount", 0))


def batches(objects: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield all of them in the sizes of a transaction."""
    batch: list[bytes] = []
    size = 0
    for one in objects:
        if batch and (len(batch) == AT_ONCE or size + len(one) > LONGEST):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += len(one)
    if batch:
        yield batch


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
