"""One contender and one embedded cluster: what a fault script does to them, and what the contender holds in
the end.

Must judge by comparing alone: what the server lists with the label is right.
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
"""Seconds between two looks."""

FIRM = 2.0
"""For so many seconds a contender must hold what is right: it may be about to lose it."""

STORM = 2.0
"""So many requests a second, for as long as it is looked, are told."""

ANSWER = 10.0
"""So long a contender may take to answer."""

ENOUGH = 15.0
"""A contender that holds what is right, and has not met a fault for so many seconds, will not meet it."""

EQUAL = "equal"
ENDED = "the process ended"
NOT_MET = "never asks so"

ACCOUNT = "operator"
ALL: Sequence[Mapping[str, Sequence[str]]] = ({"apiGroups": ("*",), "resources": ("*",), "verbs": ("*",)},)


@dataclass(frozen=True)
class Contender:
    """One of those that are compared."""

    name: str
    command: Sequence[str]
    operator: Sequence[str]
    """The command of an operator with the same cache, and with the handler that merges siblings."""
    options: Mapping[str, Any]
    shares_watch: bool = False
    """Whether the cache is filled by the watch that Kopf's handlers are called from."""


_KOPF = ("-m", "kopf", "run", "--standalone", "-n", NAMESPACE, "-m")
_CACHE = (*_KOPF, "bench.contenders.cache")
_INDEX = (*_KOPF, "bench.contenders.index")
_INFORMER = ("-m", "bench.contenders.informer")
_INFORMER_OPERATOR = (*_KOPF, "bench.contenders.informer_merges")
CONTENDERS = (
    Contender("cache", _CACHE, (*_CACHE, "-m", "bench.contenders.cache_merges"), {}),
    Contender("index", _INDEX, (*_INDEX, "-m", "bench.contenders.index_merges"), {}, shares_watch=True),
    Contender("informer", _INFORMER, _INFORMER_OPERATOR, {}),
    Contender("informer, resync", _INFORMER, _INFORMER_OPERATOR, {"resync": 10}),
)


class Over(Exception):
    """The script ends here: there is no more to see than these words say."""


def pod(name: str, *, app: str = "web") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    }


class Staging:
    """A cluster with pods, and a contender that is to hold some of them."""

    def __init__(
        self, cluster: EmbeddedCluster, contender: Contender, folder: Path, *, patience: float
    ) -> None:
        self.cluster = cluster
        self.patience = patience
        self._contender = contender
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = 0
        self._read = b""
        self._trust = ssl.create_default_context(cafile=str(cluster.ca_file))
        self.log_file = folder / "log"
        cluster.namespace(NAMESPACE)
        # As in most clusters, the first by name is not the first by version.
        self.create(*(f"web-{number}" for number in range(5, 0, -1)))
        cluster.create(
            pod("db-1", app="db"),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ask", "namespace": NAMESPACE}},
        )
        self._token = ""
        self.rotate()

    # ---- What scripts do.

    def fault(self, fault: Fault, verb: str = "watch", **match: Any) -> Planned:
        """Plan a fault for the contender's requests for pods."""
        return self.cluster.faults.add(fault, verb=verb, resource="pods", user=ACCOUNT, **match)

    def release(self, planned: Planned) -> None:
        """End a fault that was planned."""
        planned.release()

    def inject(self, fault: Fault) -> Planned:
        """Let it happen to the contender's watch that is open."""
        return self.cluster.inject(fault, "pods", user=ACCOUNT)

    def start(self, *, page: int = 0, stream: bool = False) -> None:
        self._run(self._contender.command, {"page": page, "stream": stream, **self._contender.options})

    def _run(self, command: Sequence[str], told: Mapping[str, Any]) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # It is one of ours.  # noqa: S603
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
        """Give the contender another token, where it reads the first, and take that back."""
        old, self._token = self._token, self.cluster.user(ACCOUNT, ALL)
        self.cluster.kubeconfig(self._folder / "kubeconfig", token=self._token, namespace=NAMESPACE)
        (self._folder / "ca.crt").write_bytes(self.cluster.ca_file.read_bytes())
        (self._folder / "token").write_text(self._token)
        if old:
            self.cluster.revoke(old)

    def agrees(self) -> None:
        """Wait until the contender holds what is right; if it never does, that is what there is to see."""
        if (seen := self.verdict(firm=0)) != EQUAL:
            raise Over(f"{seen}, before the fault")

    def met(self, planned: Planned, times: int = 1) -> None:
        """Wait until the fault has happened; if it does not, and all is well, it cannot happen to this
        contender.
        """
        soon, end = time.monotonic() + ENOUGH, time.monotonic() + self.patience
        while len(planned.hits) < times and not self.ended:
            if time.monotonic() > end:
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
        self.cluster.requests.wait("watch", "pods", user=ACCOUNT, timeout=self.patience)

    def read(self, name: str) -> str:
        answer = self._ask(name)
        return f"raises `{answer['raised']}`" if "raised" in answer else str(answer["read"])

    # ---- What comes of it.

    def verdict(self, *, firm: float = FIRM) -> str:
        """Look until the contender holds what is right and keeps it, has ended, or patience has; say what it
        holds.
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
            if now - begun > self.patience:
                rate = (self._requests() - asked) / (now - begun)
                return seen if rate < STORM else f"{seen}; asks {rate:.0f} times a second"
            time.sleep(BETWEEN)

    def difference(self) -> str:
        """Say how what is held differs from what is right."""
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
        request = Request(  # It is our own server.  # noqa: S310
            f"{self.cluster.url}/api/v1/namespaces/{NAMESPACE}/pods?{query}",
            headers={"Authorization": f"Bearer {self.cluster.token}"},
        )
        with urlopen(request, context=self._trust, timeout=60) as answer:  # As above.  # noqa: S310
            return {
                item["metadata"]["name"]: identity(item["metadata"]) for item in json.load(answer)["items"]
            }

    def _ask(self, word: str) -> dict[str, Any]:
        """Ask, and wait for the answer for a while; those to earlier questions are left out."""
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
    """Say how what is held differs from what the server lists, of which there is more outside of the
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
