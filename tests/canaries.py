"""Puts a canary into the Secrets, annotations and tokens of all tests, and fails each test in whose output it
turns up (contract 10).

What is searched: the log of the library and of Kopf, down to what is told to debuggers, its errors, metrics
and probe answers, and whatever a test or a command writes. A test that puts a canary somewhere itself, or
asks for what has one, has it where it belongs: in objects that a handler reads."""

from __future__ import annotations

import base64
import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from functools import wraps
from typing import Any

import pytest

from kopf_selectcache import errors
from kopf_selectcache.informer import metrics
from kopf_selectcache.plugin import operator
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.admin import Admin

CANARY = "canary0in0a0coalmine"  # Letters and numbers alone: it may be a part of a token, too.


def _encoded(shift: int) -> str:
    """Return the base64 text that the canary has in each text where it follows 3 n + `shift` bytes."""
    text = base64.b64encode(b" " * shift + CANARY.encode()).decode().rstrip("=")
    return text[(0, 2, 3)[shift] : -1]


TRACES = (CANARY, *map(_encoded, range(3)))
"""How it may turn up: as it is, and in a longer text as the API has it."""


def traced(text: str) -> bool:
    return any(trace in text for trace in TRACES)


def seeded(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object with the canary in an annotation and, if it is a Secret, in a value."""
    metadata = obj.get("metadata") or {}
    given = {
        **obj,
        "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), "canary": CANARY}},
    }
    if obj.get("kind") == "Secret":
        given["data"] = {**(obj.get("data") or {}), "canary": base64.b64encode(CANARY.encode()).decode()}
    return given


class Canaries(logging.Handler):
    """The search, in one run of the tests."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.seeds: Counter[str] = Counter()
        """How many of what a canary was put into."""
        self._found: list[str] = []

    def look(self, where: str, text: str) -> None:
        if traced(text):
            self._found.append(f"{where}: {text[:1000]}")

    def emit(self, record: logging.LogRecord) -> None:
        self.look("the log", logging.Formatter().format(record))

    # ---- Where canaries go, and where they are looked for.

    def settle(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("kopf_selectcache", "kopf"):
            logging.getLogger(name).addHandler(self)
        logging.getLogger("kopf_selectcache").setLevel(logging.DEBUG)
        patch.setattr(Admin, "create", self._seeding(Admin.create))
        patch.setattr(EmbeddedCluster, "_token", self._prefixed(EmbeddedCluster._token))
        patch.setattr(errors.SelectCacheError, "__init__", self._initially(errors.SelectCacheError.__init__))
        patch.setattr(operator.Operator, "report", self._looking("probe answers", operator.Operator.report))
        patch.setattr(metrics.Collector, "collect", self._looking("metrics", metrics.Collector.collect, list))

    def _seeding(self, create: Callable[..., Any]) -> Callable[..., Any]:
        def seeding(admin: Admin, obj: Mapping[str, Any], **options: Any) -> Any:
            if isinstance(obj, Mapping):
                self.seeds["secrets"] += obj.get("kind") == "Secret"
                obj = seeded(obj)
            return create(admin, obj, **options)

        return seeding

    def _prefixed(self, token: Callable[[EmbeddedCluster], str]) -> Callable[[EmbeddedCluster], str]:
        def prefixed(cluster: EmbeddedCluster) -> str:
            self.seeds["tokens"] += 1
            return CANARY + token(cluster)

        return prefixed

    def _initially(self, init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def initially(error: errors.SelectCacheError, *args: Any, **kwargs: Any) -> None:
            init(error, *args, **kwargs)
            self.look("errors", f"{error.line} {error!r}")

        return initially

    def _looking(
        self, where: str, method: Callable[..., Any], held: Callable[[Any], Any] = lambda made: made
    ) -> Callable[..., Any]:
        def looking(*args: Any) -> Any:
            made = held(method(*args))
            self.look(where, repr(made))
            return made

        return looking

    # ---- What pytest asks.

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "call":
            self.look("output", report.capstdout + report.capstderr)
        if self._found and report.outcome == "passed":
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: a canary was found in " + "\n".join(self._found)
        self._found.clear()
        return report
