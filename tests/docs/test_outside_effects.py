"""The reconcilers of docs/reconcile.md that call a service do so only if something differs, or is overdue."""

import asyncio
from collections.abc import Callable
from typing import Any

import kopf
import pytest

from .pages import DOCS, fences

PARTS = [fence for fence in fences(DOCS / "reconcile.md", "python") if "hash_of(" in fence.text]
"""The second one reconciles with the functions of the first."""

pytestmark = pytest.mark.usefixtures("registry")


class Service:
    """The reconciler of the page, for one object whose status is as the last call has left it."""

    def __init__(self, up_to: int) -> None:
        self.calls: list[tuple[str, Any]] = []
        made: dict[str, Any] = {}
        for fence in PARTS[:up_to]:
            exec(fence.text, made)  # A reader runs it, too.  # noqa: S102
        made |= {"put": self.put, "drop": self.drop}
        self._reconcile: Callable[..., Any] = made["reconcile"]
        self.status: dict[str, Any] = {}

    async def put(self, name: str, values: Any) -> None:
        self.calls.append((name, values))

    async def drop(self, name: str) -> None:
        self.calls.append((name, None))

    def call(self, plan: str = "small", *, deleting: bool = False) -> float | None:
        patch = kopf.Patch()
        called = self._reconcile(
            deleting=deleting, uid="1", spec={"plan": plan}, status=self.status, patch=patch
        )
        again: float | None = asyncio.run(called)
        self.status |= patch.get("status", {})
        return again


@pytest.mark.parametrize("up_to", [1, 2], ids=["first", "sent again"])
def test_the_service_is_called_once_for_each_change(up_to: int) -> None:
    service = Service(up_to)
    for plan in ("small", "small", "large", "large"):
        service.call(plan)
    service.call(deleting=True)
    assert service.calls == [("1", {"plan": "small"}), ("1", {"plan": "large"}), ("1", None)]


def test_an_overdue_call_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(2)
    now = 1_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    assert service.call() == 3600
    now += 3599
    assert service.call() == 1
    assert len(service.calls) == 1
    now += 1
    assert service.call() == 3600
    assert len(service.calls) == 2
