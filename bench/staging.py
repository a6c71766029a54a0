"""One contender and one embedded cluster: the effects of a fault script on them, and the contents of the
contender at the end.

The judgement is a comparison: the server's list with the label is right.
"""

from __future__ import annotations

import json
import os
import select
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from bench.contenders.asking import LABEL, NAMESPACE, OPTIONS, Held, identity
from kopf_selectcache.testing import EmbeddedCluster, Fault, Planned

BETWEEN = 0.2
"""Seconds between two checks."""

FIRM = 2.0
"""The seconds for which a contender must stay right: it may be about to change."""

STORM = 2.0
"""The rate of requests per second, over the whole check, that is reported."""

ANSWER = 10.0
"""The seconds that a contender may take to answer."""

BEFORE = 60.0
"""Seconds until a contender must be right before the fault, at least. A slow machine is not a result."""

ENOUGH = 15.0
"""A contender that is right, and has not met a fault for this number of seconds, will not meet it."""

EQUAL = "equal"
ENDED = "the process ended"
NOT_MET = "never asks so"

ACCOUNT = "operator"
ALL: Sequence[Mapping[str, Sequence[str]]] = ({"apiGroups": ("*",), "resources": ("*",), "verbs": ("*",)},)


@dataclass(frozen=True)
class Contender:
    """One of the compared caches."""

    name: str
    command: Sequence[str]
    operator: Sequence[str]
    """The command of an operator with the same cache, and with the handler that merges siblings."""
    options: Mapping[str, Any]
    has_one_watch: bool = False
    """True if the operator has one watch for pods: Kopf's own one fills the cache, or Kopf has none."""
    selects: bool = True
    """True if that one watch asks for the pods with the label; otherwise it asks for all pods."""


_KOPF = ("-m", "kopf", "run", "--standalone", "-n", NAMESPACE, "-m")
_CACHE = (*_KOPF, "bench.contenders.cache")
_INDEX = (*_KOPF, "bench.contenders.index")
_INFORMER = ("-m", "bench.contenders.informer")
_INFORMER_OPERATOR = (*_KOPF, "bench.contenders.informer_merges")
CONTENDERS = (
    Contender("cache", _CACHE, (*_CACHE, "-m", "bench.contenders.cache_merges"), {}),
    Contender("index", _INDEX, (*_INDEX, "-m", "bench.contenders.index_merges"), {}, has_one_watch=True),
    Contender("informer", _INFORMER, _INFORMER_OPERATOR, {}),
    Contender("informer, resync", _INFORMER, _INFORMER_OPERATOR, {"resync": 10}),
)


class Over(Exception):
    """The script ends here: this text is the result."""


def pod(name: str, *, app: str = "web") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    }


class Staging:
    """A cluster with pods, and a contender that should hold some of them."""

    def __init__(
        self, cluster: EmbeddedCluster, contender: Contender, folder: Path, *, patience: float
    ) -> None:
        self.cluster = cluster
        self.patience = patience
        self.patience_before = max(patience, BEFORE)
        self._contender = contender
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = 0
        self._read = b""
        self._trust = ssl.create_default_context(cafile=str(cluster.ca_file))
        self.log_file = folder / "log"
        cluster.namespace(NAMESPACE)
        # As in most clusters, the order of names differs from the order of versions.
        self.create(*(f"web-{number}" for number in range(5, 0, -1)))
        cluster.create(
            pod("db-1", app="db"),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ask", "namespace": NAMESPACE}},
        )
        self._token = ""
        self.rotate()

    # ---- Functions for scripts.

    def fault(self, fault: Fault, verb: str = "watch", **match: Any) -> Planned:
        """Plan a fault for the contender's requests for pods."""
        return self.cluster.faults.add(fault, verb=verb, resource="pods", user=ACCOUNT, **match)

    def release(self, planned: Planned) -> None:
        """End a fault that was planned."""
        planned.release()

    def inject(self, fault: Fault) -> Planned:
        """Let the fault affect the open watch of the contender."""
        return self.cluster.inject(fault, "pods", user=ACCOUNT)

    def start(self, *, page: int = 0, stream: bool = False) -> None:
        self._run(self._contender.command, {"page": page, "stream": stream, **self._contender.options})

    def _run(self, command: Sequence[str], told: Mapping[str, Any]) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # The command is one of CONTENDERS.  # noqa: S603
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=Path(__file__).parent.parent,
                start_new_session=True,
                env={
                    **os.environ,
                    OPTIONS: json.dumps(told),
                    "KUBECONFIG": str(self._folder / "kubeconfig"),
                    "ACCOUNT": str(self._folder),
                    "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                    "KUBERNETES_SERVICE_PORT": str(self.cluster.port),
                },
            )

    def create(self, *names: str) -> None:
        self.cluster.create(*(pod(name) for name in names))

    def delete(self, *names: str) -> None:
        self.cluster.delete(*(pod(name) for name in names))

    def label(self, name: str, app: str) -> None:
        self.cluster.patch(pod(name), {"metadata": {"labels": {"app": app}}})

    def rotate(self) -> None:
        """Give the contender another token where it reads the first, and revoke the first."""
        old, self._token = self._token, self.cluster.user(ACCOUNT, ALL)
        self.cluster.kubeconfig(self._folder / "kubeconfig", token=self._token, namespace=NAMESPACE)
        (self._folder / "ca.crt").write_bytes(self.cluster.ca_file.read_bytes())
        (self._folder / "token").write_text(self._token)
        if old:
            self.cluster.revoke(old)

    def kill(self) -> None:
        """End the contender's process, as a node that fails does."""
        assert self._process is not None, "it is started first"
        self._process.kill()
        self._process.wait()

    def agrees(self) -> None:
        """Wait until the contender is right; otherwise the difference is the result."""
        if (seen := self.verdict(firm=0, patience=self.patience_before)) != EQUAL:
            raise Over(f"{seen}, before the fault")

    def met(self, planned: Planned, times: int = 1) -> None:
        """Wait until the fault has happened. If it does not happen, and the contender is right, it cannot
        happen to this contender.
        """
        begun = time.monotonic()
        soon = begun + ENOUGH
        while len(planned.hits) < times and not self.ended:
            if time.monotonic() - begun > (self.patience if planned.hits else self.patience_before):
                if planned.hits:
                    raise Over(
                        f"{self.difference()} (asks {len(planned.hits)} times within {self.patience:g} s)"
                    )
                raise Over(f"{self.difference()}, before the fault")
            if time.monotonic() > soon and not planned.hits and self.difference() == EQUAL:
                raise Over(NOT_MET)
            time.sleep(BETWEEN)

    def watches(self) -> None:
        """Wait until the contender has a watch for pods."""
        self.cluster.requests.wait("watch", "pods", user=ACCOUNT, timeout=self.patience_before)

    def read(self, name: str) -> str:
        answer = self._ask(name)
        return f"raises `{answer['raised']}`" if "raised" in answer else str(answer["read"])

    # ---- Results.

    def verdict(self, *, firm: float = FIRM, patience: float | None = None) -> str:
        """Wait until the contender is right and stays right, has ended, or the time is over; describe its
        contents.
        """
        begun, asked = time.monotonic(), self._requests()
        since: float | None = None
        while True:
            seen, now = self.difference(), time.monotonic()
            since = (now if since is None else since) if seen == EQUAL else None
            if self.ended:
                return ENDED
            if since is not None and now - since >= firm:
                return seen
            if now - begun > (self.patience if patience is None else patience):
                rate = (self._requests() - asked) / (now - begun)
                return seen if rate < STORM else f"{seen}; asks {rate:.0f} times a second"
            time.sleep(BETWEEN)

    def difference(self) -> str:
        """Describe how the contents differ from the right ones."""
        try:
            answer = self._ask("held")
        except TimeoutError:
            return "does not answer"
        except EOFError:
            return ENDED
        if "raised" in answer:
            return f"its reads raise `{answer['raised']}`"
        return self._compared(answer["held"])

    def _compared(self, held: Held) -> str:
        return compared(held, right=self._listed(LABEL), there=self._listed(""))

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def _requests(self) -> int:
        return len(self.cluster.requests.where(resource="pods", user=ACCOUNT))

    def _listed(self, selector: str) -> Held:
        query = urlencode({"labelSelector": selector})
        request = Request(  # The server is our own.  # noqa: S310
            f"{self.cluster.url}/api/v1/namespaces/{NAMESPACE}/pods?{query}",
            headers={"Authorization": f"Bearer {self.cluster.token}"},
        )
        with urlopen(request, context=self._trust, timeout=60) as answer:  # The server is our own.  # noqa: S310
            return {
                item["metadata"]["name"]: identity(item["metadata"]) for item in json.load(answer)["items"]
            }

    def _ask(self, word: str) -> dict[str, Any]:
        """Ask, and wait for the answer for a while; answers to earlier questions are skipped."""
        process = self._process
        assert process is not None, "it is started first"
        assert process.stdin is not None, "it is a pipe"
        self._asked += 1
        try:
            process.stdin.write(f"{self._asked} {word}\n".encode())
        except BrokenPipeError:
            raise EOFError from None
        end = time.monotonic() + ANSWER
        while True:
            answer = self._answer(process, end)
            if answer["number"] == self._asked:
                return answer

    def _answer(self, process: subprocess.Popen[bytes], end: float) -> dict[str, Any]:
        assert process.stdout is not None, "it is a pipe"
        while b"\n" not in self._read:
            if not select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError
            if not (read := os.read(process.stdout.fileno(), 1 << 16)):
                raise EOFError
            self._read += read
        line, _, self._read = self._read.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        process = self._process
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None, "both are pipes"
            pipe.close()


def compared(held: Held, *, right: Held, there: Held) -> str:
    """Describe how the contents differ from the list of the server, which has more objects outside of the
    filter.
    """
    lacks = right.keys() - held.keys()
    old = [name for name in held.keys() & right.keys() if held[name] != right[name]]
    extra = held.keys() - right.keys()
    wrong = {
        "keeps {} deleted": len(extra - there.keys()),
        "keeps {} that left the filter": len(extra & there.keys()),
        "lacks {}": len(lacks),
        "has an old version of {}": len(old),
    }
    if right and not held:
        return "holds nothing"
    said = [words.format(count) for words, count in wrong.items() if count]
    return f"stale: {', '.join(said)}" if said else EQUAL
