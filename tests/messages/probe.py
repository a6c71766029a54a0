"""The probe: the report of an operator's cache in each state, and the line of a probe that fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.informer.health import Condition
from kopf_selectcache.plugin.feed_safety import Decisions
from kopf_selectcache.plugin.operator import FedKinds, Operator, failing
from tests.messages.logs import LOGGER
from tests.messages.provoked import Lines, Provoked
from tests.messages.states import CONDITIONS, Subject


class Reported(Subject):
    """An informer of pods with app=web, in the condition that it is told of."""

    key = "v1/pods"

    def __init__(self, tell: Callable[[Condition], object]) -> None:
        self.store = Store()
        times = iter(range(0, 100_000, 100))
        self.condition = Condition(
            self,
            key=self.key,
            sync_timeout=60.0,
            clock=lambda: float(next(times)),
            report=lambda *_: None,
            unreadable=lambda: None,
        )
        for _ in range(3):
            tell(self.condition)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.condition, name)

    @property
    def state(self) -> Reported:
        return self

    def age(self) -> None:
        return None


class Reporting(Operator):
    """An operator that runs with these informers, or has not logged in yet, or could not start its caches."""

    def __init__(self, *informers: Any, error: Exception | None = None, is_ready: bool = True) -> None:
        keyed = {informer.key: informer for informer in informers}
        self.decisions, self.fed = Decisions(LOGGER), FedKinds()
        self.task = SimpleNamespace(done=lambda: False)  # type: ignore[assignment]
        self._runtime = SimpleNamespace(  # type: ignore[assignment]
            done=lambda: is_ready,
            exception=lambda: error,
            result=lambda: SimpleNamespace(informers=keyed),
        )


def _write(operator: Operator) -> str:
    return json.dumps(operator.report(), indent=2)


def _list(condition: Condition) -> None:
    condition.subject.version = "10"  # type: ignore[misc]
    condition.well()


def _list_and_fail(condition: Condition) -> None:
    _list(condition)
    condition.fail(Refusal(500, "InternalError"), verb="list")


def _report(tell: Callable[[Condition], object]) -> Callable[[], Lines]:
    async def write() -> Lines:  # Of an operator, which has a loop.
        informer = Reported(tell)
        report = _write(Reporting(informer))
        limits: dict[str, float] = {informer.state.health.value: 60.0}
        return Lines(f"{report}\n{failing([informer], limits)}")  # type: ignore[list-item]

    return lambda: asyncio.run(write())


def provoke(provoked: Provoked) -> None:
    states: dict[str, Callable[[Condition], object]] = {
        "a first list that has not come": lambda _: None,
        "synced": _list,
        "stale": _list_and_fail,
        **CONDITIONS,
    }
    for title, tell in states.items():
        provoked.add("Reports of the probe", title, _report(tell))
    operators: dict[str, dict[str, Any]] = {
        "no login yet": {"is_ready": False},
        "the caches cannot be started": {"error": ZeroDivisionError()},
    }
    for title, options in operators.items():
        provoked.add(
            "Reports of the probe",
            title,
            lambda options=options: Lines(_write(Reporting(**options))),  # type: ignore[misc]
        )
