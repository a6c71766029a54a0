"""Functions of the operator's author that fail: no change is lost, and no source ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kopf_selectcache import Key
from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.core.errors import let_exit
from kopf_selectcache.plugin.reconcile import Watch
from kopf_selectcache.reactions.queue import WorkQueue
from kopf_selectcache.reactions.sources import Kind, Source
from kopf_selectcache.testing import FakeCache
from tests.faults.environment import reached, until
from tests.reactions.test_sources import keys_in, pod, queue_of, sleep_briefly


async def start(source: Kind, queue: WorkQueue) -> None:
    try:
        await source.start(queue)
    except BaseException as error:  # It is what the function has raised.
        raise AssertionError(f"the source has ended: {error!r}") from error


class Interrupt(BaseException):
    """Not an Exception, as some libraries have them."""


RAISED = pytest.mark.parametrize("raised", [ValueError, asyncio.CancelledError, Interrupt])
"""Errors of functions of the operator's author. Nobody has cancelled a function that is not awaited."""


@RAISED
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_map_that_raises_anything_is_called_again(
    is_async: bool, raised: type[BaseException]
) -> None:
    errors = [raised("no"), raised("no")]

    def mapping(obj: Any) -> Any:
        if errors:
            raise errors.pop()
        return [Key(obj["metadata"]["name"], namespace="shop")]

    async def mapping_async(obj: Any) -> Any:
        return mapping(obj)

    cache = FakeCache([pod("web-1")], {"pods": "app=web"})
    chosen = mapping_async if is_async else mapping
    queue, source = queue_of(), Kind("pods", cache=cache, map=chosen, sleep=sleep_briefly)
    await start(source, queue)
    await until(lambda: len(queue) == 1)
    cache.cluster.create(pod("web-2"))
    await until(lambda: len(queue) == 2)
    await source.stop()


@RAISED
async def test_a_predicate_that_fails_drops_nothing(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> bool:
        raise raised("no")

    cache = FakeCache([pod("web-1"), pod("web-2")], {"pods": "app=web"})
    queue, source = queue_of(), Kind("pods", cache=cache, predicates=[fail])
    await start(source, queue)
    assert len(keys_in(queue)) == 2
    await source.stop()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "A function in predicates= of the source pods fails, so the change is not dropped."
    ]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_an_exit_of_the_process_is_not_an_error_of_a_function(raised: type[BaseException]) -> None:
    let_exit(ValueError("no"))
    with pytest.raises(raised):
        let_exit(raised())


class Endless(Source):
    async def follow(self, deliveries: Any) -> None:
        await asyncio.get_running_loop().create_future()


class Silent(Source):
    pass


class Plain(Source):
    def follow(self, deliveries: Any) -> None:  # type: ignore[override]  # It is what a user writes.
        raise NotImplementedError


class Bare(Source):
    def __init__(self) -> None:
        pass

    async def follow(self, deliveries: Any) -> None:
        raise NotImplementedError


async def test_20_a_source_that_does_not_return_from_follow_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    starting = asyncio.create_task(Endless(sleep=sleep).start(queue_of()))
    assert await reached(warnings)
    starting.cancel()
    await asyncio.wait({starting})
    assert pauses == [10.0]
    assert warnings() == ["The source Endless has not returned from follow(). Put its loop into a task."]


@pytest.mark.parametrize(
    ("source", "what", "remedy"),
    [
        (Silent, "the source Silent has no follow()", "Write: async def follow(...)"),
        (Plain, "the source Plain has a follow() that is not async", "Write: async def follow(...)"),
    ],
)
def test_20_a_source_that_cannot_be_followed_is_refused_where_it_is_declared(
    source: type[Source], what: str, remedy: str
) -> None:
    with pytest.raises(DeclarationError) as raised:
        Watch(source)
    assert raised.value.line.lower() == f"{what}. {remedy}.".lower()


async def test_20_a_source_without_the_init_of_its_base_class_says_so_at_its_start() -> None:
    with pytest.raises(DeclarationError, match=r"Call super\(\).__init__\(\) in its __init__\(\)"):
        await Bare().start(queue_of())
