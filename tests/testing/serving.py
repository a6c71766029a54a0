"""An embedded cluster over real sockets, and a client of it: for tests of the shell and of faults."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.client import ApiError, Client

PODS = "/api/v1/namespaces/default/pods"
FOLLOWED = {"timeoutSeconds": 600}
INITIAL = {
    "sendInitialEvents": True,
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": True,
    **FOLLOWED,
}


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "example.com/app"}]},
    }


class Served(Client):
    """A client that speaks of pods."""

    def __init__(self, cluster: EmbeddedCluster, *, token: str = "") -> None:
        super().__init__(cluster.url, ca_file=Path("no-tls"), token=token or cluster.token)

    def listed(self, **query: object) -> Any:
        return self.request("GET", PODS, query=query)

    def names(self, **query: object) -> list[str]:
        return [item["metadata"]["name"] for item in self.listed(**query)["items"]]

    def refused(self, path: str = PODS, **query: object) -> ApiError:
        with pytest.raises(ApiError) as caught:
            self.request("GET", path, query=query)
        return caught.value


def told(events: Iterator[dict[str, Any]], count: int) -> list[tuple[str, str]]:
    """Return the types and names of the next `count` events."""
    taken = [next(events) for _ in range(count)]
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in taken]


class RawRequest:
    """A request on a bare socket: every byte that comes, and how the connection ends."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        path: str = PODS,
        *,
        headers: dict[str, str] | None = None,
        **query: object,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", cluster.port), timeout=60)
        if cluster.url.startswith("https"):
            trust = ssl.create_default_context(cafile=str(cluster.ca_file))
            self.socket = trust.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.data = b""
        self._token = cluster.token
        self.send(path, headers=headers, **query)

    def send(self, path: str, *, headers: dict[str, str] | None = None, **query: object) -> None:
        """Send a request, the first one or one more."""
        words = {
            key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()
        }
        lines = [
            f"GET {path}?{urlencode(words)} HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {self._token}",
        ]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Go away without reading what has come, and without a word."""
        # To linger for no time is what makes the kernel send an RST.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def until(self, end: bytes) -> bytes:
        """Read until this has come; return all that came."""
        while end not in self.data:
            chunk = self.socket.recv(65536)
            assert chunk, self.data
            self.data += chunk
        return self.data

    def to_the_end(self) -> bytes:
        """Read until the connection is closed; ConnectionResetError, if it is reset. `data` has what came."""
        while chunk := self.socket.recv(65536):
            self.data += chunk
        return self.data


def lines_in(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines() if line.startswith(b'{"type"')]


def unchunked(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(parts)
