"""The runner never dies, whatever goes wrong, and leaves nothing behind when it is told to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.informer.background import DictionaryTraining
from kopf_selectcache.informer.health import Health
from tests.faults.environment import Time, nothing_left, operating, until
from tests.faults.server import (
    PODS,
    Answer,
    Server,
    answer,
    bookmark,
    ended,
    error,
    event,
    listed,
    pod,
    refused,
    streamed,
)
from tests.rows import each_row

LISTED = listed("100", pod("a", "90"))


@pytest.mark.parametrize(
    "discovery",
    [answer(b"{"), refused(500, "InternalError"), Answer((b"no HTTP\r\n\r\n",))],
    ids=["garbled", "refused", "broken"],
)
async def test_a_failure_before_the_kind_is_known_is_reported_and_retried(discovery: Answer) -> None:
    async with Server(lists=[LISTED]) as server:
        server.scripts["/api/v1"].lists[:2] = [discovery] * 2
        async with operating(server) as environment:
            await until(lambda: environment.informer.state.message)
            assert environment.informer.state.message.startswith("pods: ")
            assert environment.informer.state.health is Health.SYNCING
            await environment.synced()
            assert environment.time.slept == [0.5, 1.0]


async def test_a_mistake_of_ours_costs_a_list_and_is_logged_and_ends_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, mistakes = KopfTransport.get, [1, 2]

    async def mistaken(self: KopfTransport, path: str, query: Mapping[str, str], **options: Any) -> bytes:
        if path == PODS and mistakes:
            raise KeyError(mistakes.pop())
        return await get(self, path, query, **options)

    monkeypatch.setattr(KopfTransport, "get", mistaken)
    lists = [LISTED, listed("200", pod("b", "150"))]
    async with (
        Server(lists=lists, watches=[streamed(error(410))]) as server,
        operating(server) as environment,
    ):
        await until(lambda: environment.informer.state.message)
        assert environment.informer.state.message == "pods: a bug in kopf_selectcache: KeyError"
        await environment.holds("a@90")
        mistakes.append(3)
        await environment.holds("b@150")
        assert environment.time.slept[:2] == [30.0, 30.0]
        assert caplog.text.count("failed because of a bug in kopf_selectcache, and starts again") == 3
        assert environment.informer.counts.relists == {"410": 1}, "for which the list was due"


async def test_a_mistake_in_packing_is_logged_and_packing_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = 0

    async def mistaken(*_: object) -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise ZeroDivisionError
        await asyncio.Event().wait()

    def packing_tasks() -> list[str]:
        return [name for task in asyncio.all_tasks() if (name := task.get_name()).endswith("packing")]

    monkeypatch.setattr(DictionaryTraining, "run", mistaken)
    async with Server(lists=[LISTED]) as server, operating(server) as environment:
        await environment.synced()
        await until(lambda: begun == 3 or not packing_tasks())
        assert begun == 3
        assert environment.names() == ["a@90"]
        assert environment.time.slept[:2] == [30.0, 30.0]
        assert environment.informer.counts.lists == 1
    assert caplog.text.count("A background task of the cache of pods failed because of a bug") == 2


async def test_a_stream_is_closed_before_anything_else_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to the garbage collector, which would come when it likes, and close it in a task of its
    own."""
    notes, watch, sleep = list[str](), KopfTransport.watch, Time.sleep

    @asynccontextmanager
    async def noted(self: KopfTransport, *given: Any, **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async with watch(self, *given, **options) as chunks:
            notes.append("opened")
            try:
                yield chunks
            finally:
                notes.append("closed")

    async def note_wait(self: Time, seconds: float) -> None:
        notes.append("waited")
        await sleep(self, seconds)

    monkeypatch.setattr(KopfTransport, "watch", noted)
    monkeypatch.setattr(Time, "sleep", note_wait)
    async with Server(lists=[LISTED], watches=[streamed(error(500))]) as server:
        async with operating(server):
            await until(lambda: notes.count("opened") == 2)
        assert notes == ["opened", "closed", "waited", "opened", "closed"]


SCENES: dict[str, Callable[[], dict[str, Any]]] = {
    "pages": lambda: {
        "lists": [listed("100", then="1"), refused(500), LISTED],
        "watches": [ended(), streamed(bookmark("101"))],
    },
    "a relist": lambda: {"lists": [LISTED, refused(410), LISTED], "watches": [streamed(error(410))]},
    "an initial stream": lambda: {
        "watches": [streamed(event("ADDED", pod("a", "90")), bookmark("100", end=True), error(410))]
    },
    "trouble": lambda: {"lists": [refused(403), refused(404), refused(401)]},
}


@each_row("cycles", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377])
@each_row("scene", SCENES)
async def test_wherever_it_is_cancelled_nothing_is_left(scene: str, cycles: int) -> None:
    async with Server(**SCENES[scene]()) as server:
        before = asyncio.all_tasks()
        async with operating(server, initial="stream" if scene == "an initial stream" else "pages"):
            for _ in range(cycles):
                await asyncio.sleep(0)
        await nothing_left(before, server)
        await until(lambda: server.open == 0)
