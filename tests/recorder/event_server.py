"""A server of Events in memory, and recordings in front of it. Time is that of the loop, which is virtual."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

import pytest

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import JSON
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.recorder.correlator import Limits
from kopf_selectcache.recorder.events import EventType, Occurrence, Reference, Reporter
from kopf_selectcache.recorder.recording import Recording
from tests.faults.hurried import HurriedLoop

EPOCH = 1_800_000_000.0
"""The wall-clock time at the start of a loop."""

SOURCE = Reporter("webapps", "", "webapps", "webapps")
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
GROUP = "events.k8s.io"


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test in virtual time."""
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(main)


async def passed(seconds: float) -> None:
    """Let virtual time pass."""
    await asyncio.sleep(seconds)


def now() -> float:
    return asyncio.get_running_loop().time()


def occurrence(
    name: str = "web",
    message: str = "It is deployed.",
    *,
    reason: str = "Deployed",
    type_: str = "Normal",
    **other: Any,
) -> Occurrence:
    about = Reference("v1", "Pod", "shop", name, f"uid-{name}")
    return Occurrence(SOURCE, about, EventType(type_), reason, message, **other)


class Request(NamedTuple):
    at: float
    method: str
    name: str
    """The name of the Event; empty for a creation."""
    body: dict[str, Any]
    path: str


class EventServer:
    """Keeps Events of both APIs as they are sent. `fail` may raise before a write is executed, `lose` after
    it."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.requests: list[Request] = []
        self.reviews: list[str] = []
        self.fail: Callable[[Request], None] = lambda _: None
        self.lose: Callable[[Request], None] = lambda _: None
        self.allowed: Callable[[Mapping[str, str]], bool] = lambda _: True
        self.served = True
        """True if it serves events.k8s.io."""
        self.took = 0.0
        """Seconds until a write is answered."""

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        content_type: str = JSON,
        warned: object = None,
    ) -> bytes:
        assert content_type == (JSON if method == "POST" else "application/merge-patch+json")
        sent = json.loads(body)
        await asyncio.sleep(self.took)
        if path == REVIEW:
            attributes = sent["spec"]["resourceAttributes"]
            self.reviews.append(f"{attributes['verb']} {attributes['group']}".rstrip())
            return json.dumps({"status": {"allowed": self.allowed(attributes)}}).encode()
        assert query == {"fieldManager": "kopf-selectcache"}
        request = Request(now(), method, path.partition("/events/")[2], sent, path)
        self.requests.append(request)
        self.fail(request)
        event = self._create(sent) if method == "POST" else self._patch(request)
        self.lose(request)
        return json.dumps(event).encode()

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON, most: int | None = None
    ) -> bytes:
        assert (path, query, accept, most) == (f"/apis/{GROUP}/v1", {}, JSON, None)
        if not self.served:
            raise refused(404, "NotFound")
        return b"{}"

    def watch(
        self, path: str, query: Mapping[str, str], **_: object
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError("a recorder watches nothing")

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        if name in self.events:
            raise refused(409, "AlreadyExists")
        metadata = body["metadata"] | {"resourceVersion": str(len(self.requests))}
        self.events[name] = body | {"metadata": metadata}
        return self.events[name]

    def _patch(self, request: Request) -> dict[str, Any]:
        if request.name not in self.events:
            raise refused(404, "NotFound")
        changed = self.events[request.name] | request.body
        self.events[request.name] = {key: value for key, value in changed.items() if value is not None}
        return self.events[request.name]

    @property
    def writes(self) -> list[str]:
        """The methods of the writes, in order; `read` for an empty patch."""
        return [request.method if request.body else "read" for request in self.requests]

    def counts(self) -> dict[str, int]:
        """Return the counts of the Events by the names of their objects and their messages."""
        return {
            f"{event['involvedObject']['name']}: {event['message']}": event["count"]
            for event in self.events.values()
        }


def refused(
    code: int, reason: str = "", *, retry_after: float | None = None, causes: Any = (), message: str = ""
) -> Refused:
    return Refused(Refusal(code, reason, message, retry_after, causes=causes))


def down(_: object) -> None:
    raise Unreachable("there is no connection", may_have_arrived=False)


def no_answer(_: object) -> None:
    raise Unreachable("the connection broke off")


def make(server: EventServer, limits: Limits | None = None, **options: Any) -> Recording:
    loop = asyncio.get_running_loop()
    given: dict[str, Any] = {
        "source": SOURCE,
        "api": "v1",
        "chance": lambda: 0.5,
        "logger": logging.getLogger("kopf_selectcache"),
    }
    return Recording(
        server,
        limits if limits is not None else Limits(),
        clock=loop.time,
        wall_clock=lambda: EPOCH + loop.time(),
        sleep=asyncio.sleep,
        **(given | options),
    )


@asynccontextmanager
async def recording(
    server: EventServer, limits: Limits | None = None, **options: Any
) -> AsyncIterator[Recording]:
    """Run a recording; afterwards its counts add up, and no task is left."""
    before = asyncio.all_tasks()
    made = make(server, limits, **options)
    made.start()
    try:
        yield made
    finally:
        await made.end()
        check(made)
        assert asyncio.all_tasks() <= before


def check(recording: Recording) -> None:
    """Check that each Event is counted once."""
    stats = recording.stats()
    assert stats.emitted == sum(stats.outcomes.values()) + stats.waiting, stats


async def written(recording: Recording) -> None:
    """Wait until nothing waits."""
    # It may be woken by a thread, or by nothing but time.
    while recording.stats().waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


def outcomes(recording: Recording) -> dict[str, int]:
    """Return the counts that are not zero."""
    stats = recording.stats()
    counts = {**stats.outcomes, "waiting": stats.waiting, "summaries": stats.summaries}
    return {name: count for name, count in counts.items() if count}


def raise_(error: Exception) -> Any:
    def fail(_: object) -> None:
        raise error

    return fail


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]
