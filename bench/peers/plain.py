"""A list of all pods once, in a dict, updated by one watch: `python -m bench.peers.plain`.

An operator without a cache does this. It handles no faults, and its results are shared objects.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from bench.peers.asking import Answers, Key, Order, Read, serve
from bench.peers.held import reader

PAGE = 500


class Plain:
    """The dict."""

    def __init__(self) -> None:
        config = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
        cluster = config["clusters"][0]["cluster"]
        self._address, self._token = urlsplit(cluster["server"]), config["users"][0]["user"]["token"]
        self._trust = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
        self._listing, self._watching = self._connection(), self._connection()
        self._held: dict[Key, dict[str, Any]] = {}

    def sync(self) -> None:
        more, version = "", ""
        while True:
            page = json.load(self._open(self._listing, limit=PAGE, **{"continue": more} if more else {}))
            for pod in page["items"]:
                self._held[_key(pod)] = pod
            more, version = page["metadata"].get("continue", ""), page["metadata"]["resourceVersion"]
            if not more:
                break
        threading.Thread(target=self._follow, args=[version], daemon=True).start()

    def _follow(self, version: str) -> None:
        for event in self._events(version):
            if event["type"] == "DELETED":
                self._held.pop(_key(event["object"]), None)
            else:
                self._held[_key(event["object"])] = event["object"]

    def _events(self, version: str) -> Iterator[dict[str, Any]]:
        return map(json.loads, self._open(self._watching, watch=1, resourceVersion=version))

    def _connection(self) -> HTTPConnection:
        if self._address.scheme == "http":
            return HTTPConnection(str(self._address.hostname), self._address.port)
        return HTTPSConnection(str(self._address.hostname), self._address.port, context=self._trust)

    def _open(self, connection: HTTPConnection, **query: object) -> HTTPResponse:
        connection.request(
            "GET", f"/api/v1/pods?{urlencode(query)}", headers={"Authorization": f"Bearer {self._token}"}
        )
        return connection.getresponse()

    def count(self) -> int:
        return len(self._held)

    def read(self, order: Order) -> Read | None:
        return reader(
            order,
            get=self._held.__getitem__,
            objects=self._held.values,
            namespace=lambda pod: str(pod["metadata"]["namespace"]),
            label=_label,
        )

    def annotation(self, key: Key, name: str) -> str | None:
        found: str | None = self._held[key]["metadata"]["annotations"].get(name)
        return found


def _key(pod: dict[str, Any]) -> Key:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _label(pod: dict[str, Any], name: str) -> str | None:
    found: str | None = pod["metadata"]["labels"].get(name)
    return found


if __name__ == "__main__":
    serve(Plain(), Answers())
