"""Errors of reads of a cache that is not declared, not synced, too old or cannot be kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kopf_selectcache.core.protocol.machine import Lost, Silent
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.informer.health import Condition, Failure
from kopf_selectcache.informer.memory import Evicted, Excess
from kopf_selectcache.selectors.selector import Selector
from tests.cache.environment import PODS, Environment, pod
from tests.messages.provoked import Provoked


class Subject:
    """The pods of a cache that holds nothing."""

    kind = PODS.kind
    filter = Selector("app=web")
    version = ""

    def __str__(self) -> str:
        return "pods"

    def held(self) -> int:
        return 0


def _read(tell: Callable[[Condition], object], subject: Subject) -> Any:
    """Read a cache in the condition that it is told of until reads raise."""
    times = iter(range(0, 10_000, 100))
    condition = Condition(
        subject,
        key="v1/pods",
        sync_timeout=60.0,
        clock=lambda: float(next(times)),
        report=lambda *_: None,
        unreadable=lambda: None,
    )
    for _ in range(3):
        tell(condition)
    environment = Environment()
    environment.declare("app=web").error = condition.error()
    return environment.cache().list("pods", labels="app=web")


def _failing(failure: Failure, verb: str = "list") -> Callable[[Condition], object]:
    return lambda condition: condition.fail(failure, verb=verb)


CONDITIONS: dict[str, Callable[[Condition], object]] = {
    "a missing permission": _failing(Refusal(403, "Forbidden", "the server's reason")),
    "a missing permission to watch": _failing(Refusal(403, "Forbidden", "the server's reason"), "watch"),
    "a missing permission to discover": _failing(Refusal(403, "Forbidden", "the server's reason"), "get"),
    "a kind that is not served": _failing(Refusal(404)),
    "a refused selector": _failing(Refusal(400, "BadRequest", "the server's reason")),
    "a refused method": _failing(Refusal(405)),
    "refused credentials": _failing(Refusal(401, "Unauthorized", "the server's reason")),
    "no credentials": _failing(Lost("no login handler returned valid credentials", unauthorized=True)),
    "a server that answers 500": _failing(Refusal(500, "InternalError")),
    "a server that does not answer": _failing(Lost("connection refused")),
    "a server that is silent": _failing(Silent()),
    "an answer that is too large": _failing(Lost("more than 1,000 bytes", too_large=True)),
    "objects that were not selected": _failing(Lost("web-1 has no label app", outside=True)),
    "a transform that fails": _failing(Lost("transform= failed", transform=True, argument="transform=")),
    "too many bytes": _failing(Evicted(Excess(400, 2_000_000, 1_000_000), Selector("app=web"))),
    "too many bytes of all caches": _failing(
        Evicted(Excess(400, 2_000_000, "10M", total=11_000_000), Selector("app=web"))
    ),
    "too many bytes of the next filter": _failing(
        Evicted(Excess(400, 2_000_000, 1_000_000), Selector("app=web"), is_next=True)
    ),
}


def _environment(hold: Callable[[Environment], object]) -> Environment:
    environment = Environment()
    hold(environment)
    return environment


async def _wait() -> None:
    environment = Environment(asyncio.get_running_loop())
    environment.declare("app=web")
    await environment.cache().wait_synced(timeout=0)


def provoke(provoked: Provoked) -> None:
    add = provoked.add
    chapter = "States of a cache"
    add(chapter, "no cache is declared", lambda: Environment().cache().list("pods"))
    add(
        chapter,
        "no cache is declared, for one object",
        lambda: Environment().cache().get("pods", "a", namespace="ns"),
    )
    add(chapter, "no cache is declared, for figures of it", lambda: Environment().cache().info("pods").memory)
    add(
        chapter,
        "another cache is declared",
        lambda: (
            _environment(lambda environment: environment.declare("a", PODS, "v1/pods"))
            .cache()
            .get("podz", "x", namespace="ns")
        ),
    )
    add(
        chapter,
        "no complete list yet",
        lambda: (
            _environment(lambda environment: environment.declare("app=web"))
            .cache()
            .list("pods", labels="app=web")
        ),
    )
    add(
        chapter,
        "confirmed too long ago",
        lambda: (
            _environment(lambda environment: environment.declare("app=web").hold(pod("web-1", app="web")))
            .cache()
            .list("pods", labels="app=web", max_age=1)
        ),
    )
    add(chapter, "no complete list in time", lambda: asyncio.run(_wait()))
    for title, tell in CONDITIONS.items():
        add(chapter, title, lambda tell=tell: _read(tell, Subject()))  # type: ignore[misc]
    refused = _failing(Refusal(403, "Forbidden", "the server's reason"))
    for title, namespaces in {"in a namespace": ["shop"], "in joined namespaces": ["blog", "shop"]}.items():
        subject = Subject()
        subject.filter = Selector("app=web", namespaces=namespaces)
        add(chapter, f"a missing permission {title}", lambda subject=subject: _read(refused, subject))  # type: ignore[misc]
