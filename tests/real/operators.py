"""Operators under `kopf run`, as processes of their own, that tests can put questions to. Starts and ends
them.

The operator file under test declares its caches as any user's does. To it a handler is added which answers: a
test creates a ConfigMap with an expression, the handler evaluates it with its `cache`, and what comes of it,
value or error, is written where the test reads it. So each answer has gone through Kopf, the plugin, the
cache and the API server."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until
from tests.canaries import traced

ASKED = """

import inspect, json, os, pathlib
import kopf, kopf_selectcache

@kopf.on.event('configmaps', labels={'ask': os.environ['ASKED_BY']})
@kopf_selectcache.with_cache(kinds=[])
async def answer_the_test(cache, body, name, type, **kwargs):
    path = pathlib.Path(os.environ['ANSWERS'], name)
    if type == 'DELETED' or path.exists():
        return
    try:
        value = eval(body['data']['ask'], globals() | {'cache': cache, 'body': body, 'kwargs': kwargs})
        answer = {'value': await value if inspect.isawaitable(value) else value}
    except Exception as error:
        reason = getattr(error, 'reason', None)
        answer = {'error': type_of(error), 'text': getattr(error, 'line', str(error)),
                  'reason': getattr(reason, 'value', None),
                  'witness': dict(getattr(getattr(error, 'witness', None), 'labels', {}) or {})}
    path.with_suffix('.new').write_text(json.dumps(answer))
    path.with_suffix('.new').rename(path)

def type_of(error):
    return type(error).__name__
"""


@dataclass(frozen=True)
class Answer:
    """What an expression came to: a value, or an error by its name, with its text, ways out and reason."""

    value: Any = None
    error: str = ""
    text: str = ""
    reason: str | None = None
    witness: Mapping[str, str] | None = None


class Operator:
    """One `kopf run`. It ends with the `with` block, by SIGTERM first, as in a cluster."""

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        source: str,
        *,
        namespaces: Sequence[str],
        options: Sequence[str] = (),
        token: str | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
        server: str | None = None,
        asked: bool = True,
        peering: str = "",
    ) -> None:
        self.folder = folder
        self._cluster = cluster
        self._token = token
        self._asked_in = namespaces[0]
        self._count = 0
        self.answers = folder / "answers"
        self.answers.mkdir(parents=True)
        for name, content in (files or {}).items():
            (folder / name).write_text(content)
        file = folder / "operator.py"
        file.write_text(source + (ASKED if asked else ""))
        self.kubeconfig = cluster.kubeconfig(folder / "kubeconfig", token=token)
        if server is not None:  # A proxy before the cluster.
            self.kubeconfig.write_text(self.kubeconfig.read_text().replace(cluster.url, server))
        self.log_file = folder / "log"
        where = (
            [part for namespace in namespaces for part in ("-n", namespace)] if "-A" not in options else []
        )
        alone = [f"--peering={peering}"] if peering else ["--standalone"]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kopf", "run", str(file), *alone, *where, *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                start_new_session=True,
                env={
                    **os.environ,
                    "KUBECONFIG": str(self.kubeconfig),
                    "ANSWERS": str(self.answers),
                    "ASKED_BY": folder.name,
                    **(env or {}),
                },
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def ask(self, expression: str, *, deadline: float = 120) -> Answer:
        """Evaluate an expression in a handler, where `cache` is the handler's own, and give what comes of
        it."""
        self._count += 1
        name = f"{self.folder.name}-{self._count}"
        self._cluster.request(
            "POST",
            f"/api/v1/namespaces/{self._asked_in}/configmaps",
            body={
                "metadata": {"name": name, "labels": {"ask": self.folder.name}},
                "data": {"ask": expression},
            },
        )
        path = self.answers / name
        wait_until(
            lambda: path.exists() or self.ended, f"the operator to answer {expression}", deadline=deadline
        )
        assert path.exists(), f"the operator ended:\n{self.log}"
        return Answer(**json.loads(path.read_text()))

    def until(self, expression: str, value: object, *, deadline: float = 120) -> None:
        """Ask again and again until the expression, or the name of its error, is the value."""
        seen: list[Answer] = []

        def is_so() -> bool:
            seen[:] = [self.ask(expression)]
            return value in (seen[0].value, seen[0].error or None)

        try:
            wait_until(is_so, f"{expression} to be {value!r}", deadline=deadline)
        except Exception as error:
            raise AssertionError(f"{error}; at last it was {seen}; the log:\n{self.log}") from error

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> int:
        """End the operator as a cluster would, and give its exit code. No secret may be in its log (contract
        10)."""
        if not self.ended:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise AssertionError(f"the operator did not end within 60 s of SIGTERM:\n{self.log}") from None
        assert not traced(self.log), "a canary is in the log"
        assert self._token is None or self._token not in self.log, "the token is in the log"
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        elif not self.ended:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if error is not None:
            error.add_note(f"The operator's log:\n{self.log[-8000:]}")
