"""A server that streams changes of pods as fast as they are read, or at a pace. It measures how many a peer
can receive, which no real server can saturate.

It supports lists and watches of all pods, and the requests that clients send before them. It must not be the
bottleneck.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice, takewhile
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from bench.data import ROUND, VERSION, encoded, round_of, version_of
from bench.filling import ASK
from tests.apiserver.client import ApiError, Client

CHUNK = 1 << 20
SEEN_TO_END = 0.05  # Seconds: the longest delay until it notices its end.
AT = b'"resourceVersion":"%d"'
PODS, CONFIGMAPS = "/api/v1/pods", "/api/v1/configmaps"


def discovery(server: Client) -> dict[str, bytes]:
    """Return a real server's discovery of its kinds, by path."""
    found: dict[str, Any] = {
        path: server.request("GET", path) for path in ("/version", "/api", "/apis", "/api/v1")
    }
    for group in found["/apis"]["groups"]:
        found[f"/apis/{group['name']}"] = group
        for version in group["versions"]:
            path = f"/apis/{version['groupVersion']}"
            try:
                found[path] = server.request("GET", path)
            except ApiError:  # It is listed and not served; clients accept that.
                continue
    return {path: encoded(answer) for path, answer in found.items()}


def changes(pods: Sequence[bytes], rounds: int) -> Iterator[bytes]:
    """Yield a change of every pod in each round, each with a newer version, as lines of a watch."""
    version, before = int(VERSION), f'"{ROUND}":"{round_of(0)}"'.encode()
    for turn in range(1, rounds + 1):
        after = f'"{ROUND}":"{round_of(turn)}"'.encode()
        for number, pod in enumerate(pods):
            version += 1
            yield b'{"type":"MODIFIED","object":%s}\n' % pod.replace(before, after, 1).replace(
                AT % int(version_of(number)), AT % version, 1
            )


class Synthetic:
    """The server, in threads of this process; use it in a `with` statement.

    Each of its pods changes in each round: at a pace, per second, or as fast as the changes are read.
    """

    def __init__(
        self,
        pods: Sequence[bytes],
        *,
        rounds: int,
        answers: Mapping[str, bytes],
        pace: float | None = None,
        first_changes: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.pods = pods
        self.rounds = rounds
        self.answers = answers
        self.stopped, self._begin = threading.Event(), threading.Event()
        self._pace = pace
        self._first_changes = first_changes
        self.requests: Counter[str] = Counter()
        """The lists and watches of pods."""
        self.bytes = 0
        """The bytes of all pods that were sent."""
        # Generated before the measurement, as the machine has few processors; at a pace there is time for it.
        self._events = b"" if pace is not None else b"".join(changes(pods, rounds))
        self._server = _Server(("127.0.0.1", 0), self)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.sent: list[float] = []
        """The times at which changes were sent, if they are sent at a pace."""

    @property
    def place(self) -> tuple[str, str]:
        """The namespace and the name of the pod that changes last."""
        metadata = json.loads(self.pods[-1])["metadata"]
        return metadata["namespace"], metadata["name"]

    @property
    def last(self) -> str:
        """The last value of the annotation of every pod."""
        return round_of(self.rounds)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def begin(self) -> None:
        """Start the changes."""
        self._begin.set()

    def events(self) -> Iterator[bytes]:
        """Yield the lines of a watch of the pods, once it is started."""
        self._begin.wait()
        if self._pace is not None:
            for line in takewhile(
                lambda _: not self.stopped.is_set(),
                paced(islice(changes(self.pods, self.rounds), self._first_changes), self._pace),
            ):
                self.sent.append(time.monotonic())
                yield line
            return
        for index in range(0, len(self._events), CHUNK):
            yield self._events[index : index + CHUNK]

    def kubeconfig(self, path: Path) -> Path:
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "bench",
                    "clusters": [{"name": "bench", "cluster": {"server": self.url}}],
                    "users": [{"name": "bench", "user": {"token": "none"}}],
                    "contexts": [
                        {
                            "name": "bench",
                            "context": {"cluster": "bench", "user": "bench", "namespace": "default"},
                        }
                    ],
                }
            )
        )
        return path

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(SEEN_TO_END,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        self._begin.set()
        self._server.shutdown()
        self._server.server_close()


def paced(
    lines: Iterable[bytes],
    pace: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """Yield a number of lines per second: each when it is due, or at once if it is late."""
    began = clock()
    for number, line in enumerate(lines):
        if (early := began + number / pace - clock()) > 0:
            sleep(early)
        yield line


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], synthetic: Synthetic) -> None:
        self.synthetic = synthetic
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a peer that is ended in the middle of a response is expected."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # Lines that are due are sent.
    server: _Server

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        path, query = address.path.rstrip("/"), parse_qs(address.query)
        if path in self.server.synthetic.answers:
            self._answer(self.server.synthetic.answers[path])
        elif (
            "Upgrade" in self.headers
        ):  # A WebSocket: clients that ask for one first fall back to a plain stream.
            self._answer(b"", 503)
        elif "sendInitialEvents" in query:  # Clients know servers without it, and list instead.
            self._answer(
                b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"sendInitialEvents:'
                b' Forbidden"}',
                422,
            )
        elif query.get("watch", ["0"])[0] in ("1", "true", "True"):
            self._count(path, "watch")
            self._watch(path)
        else:
            self._count(path, "list")
            self._list(
                path, limit=int(query.get("limit", ["0"])[0]), begin=int(query.get("continue", ["0"])[0])
            )

    def _count(self, path: str, verb: str) -> None:
        if path == PODS:
            self.server.synthetic.requests[verb] += 1

    def _list(self, path: str, *, limit: int, begin: int) -> None:
        """Answer this number of objects from this position, or all of them."""
        objects: Sequence[bytes] = {PODS: self.server.synthetic.pods, CONFIGMAPS: [ASK_BYTES]}.get(path, ())
        kind = {PODS: b"PodList", CONFIGMAPS: b"ConfigMapList"}.get(path, b"List")
        end = begin + limit if limit else len(objects)
        more = (
            b',"continue":"%d","remainingItemCount":%d' % (end, len(objects) - end)
            if end < len(objects)
            else b""
        )
        listed = b'{"kind":"%s","apiVersion":"v1","metadata":{"resourceVersion":"%s"%s},"items":[%s]}' % (
            kind,
            VERSION.encode(),
            more,
            b",".join(objects[begin:end]),
        )
        if path == PODS:
            self.server.synthetic.bytes += len(listed)
        self._answer(listed)

    def _watch(self, path: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if path == PODS:
            for chunk in self.server.synthetic.events():
                self.server.synthetic.bytes += len(chunk)
                self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self.server.synthetic.stopped.wait()

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # The name is given by the base class.  # noqa: A002
        """Log nothing."""


ASK_BYTES = encoded(
    {**ASK, "metadata": {**ASK["metadata"], "namespace": "default", "uid": "ask", "resourceVersion": "1"}}
)
