"""Whatever ends a change of a filter before it is in force, everything is as it was: one table of causes and
of caches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kopf_selectcache import Cached, Forbidden, NotSynced, Selector
from kopf_selectcache.core.store.claims import OwnWrites
from kopf_selectcache.errors import Oversized, Stalled
from kopf_selectcache.informer.reach import Prober
from kopf_selectcache.informer.swap import Swap
from kopf_selectcache.testing.faults import Refuse, Silence
from tests.faults.environment import until
from tests.informer.test_filter_change import Follower, change, names
from tests.informer.test_filter_change_options import (
    AND_THERE,
    BOTH,
    EITHER,
    GOLD,
    WEB,
    large,
    nothing_is_left,
)
from tests.secrets import Environment, caching, labelled, secret

DB = [secret("db", app="db"), *(large(f"db-{number}", app="db") for number in range(5))]
CACHES: dict[str, Any] = {
    "two streams that share objects": Cached(EITHER, max_bytes="1Mi"),
    "two groups": Cached(AND_THERE, max_bytes="1Mi"),
}
Ends = Callable[[Environment, Any], Awaitable[object]]


def of_db(asked: Any) -> bool:
    return "db" in asked.query.get("labelSelector", "")


@contextmanager
def patched(holder: Any, name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder, name, value)
        yield


def answered_with(fault: Callable[[], Any], seconds: float = 3600.0) -> Ends:
    """The lists of the next filter meet a fault."""

    async def end(environment: Environment, filter_: Any) -> None:
        planned = environment.cluster.faults.add(fault(), verb="list", where=of_db)
        try:
            await change(environment.informer, filter_, timeout=seconds, max_bytes="1Mi", storage="packed")
        finally:
            planned.release()

    return end


async def cancelled(environment: Environment, filter_: Any) -> None:
    """The caller is cancelled while a list has no answer, after a change of an object."""
    silence = environment.cluster.faults.add(Silence(), verb="list", where=of_db)
    informer = environment.informer
    changing = asyncio.create_task(change(informer, filter_, max_bytes="1Mi"))
    await until(lambda: informer.filter_change.prepared is not None)
    environment.cluster.patch(WEB, labelled(seen="yes"))
    await until(lambda: informer.state.store.get("shop", "web")[0].labels.get("seen"))  # type: ignore[union-attr]
    changing.cancel()
    try:
        await changing
    finally:
        silence.release()


def mistaken(holder: Any, name: str, value: Any, seconds: float = 3600.0) -> Ends:
    """A part of the change does something else."""

    async def end(environment: Environment, filter_: Any) -> None:
        with patched(holder, name, value):
            await change(environment.informer, filter_, timeout=seconds, max_bytes="1Mi")

    return end


async def unreachable(environment: Environment, filter_: Any) -> None:
    """There is a mistake where the watches of the next filter are brought to the same version."""

    async def reach(*_: object) -> None:
        raise ZeroDivisionError

    with patched(Prober, "reach", reach), patched(Swap, "has_reached", lambda *_: False):
        await change(environment.informer, filter_, max_bytes="1Mi")


async def too_large(environment: Environment, filter_: Any) -> None:
    await change(environment.informer, filter_, max_bytes="128Ki")


def no_value(_: Any) -> str:
    raise ValueError("no value")


async def unindexable(environment: Environment, filter_: Any) -> None:
    await change(environment.informer, filter_, max_bytes="1Mi", index={"app": no_value})


async def out_of_time(environment: Environment, filter_: Any) -> None:
    """The timeout is that of a function of the user."""

    async def compute(*_: Any, **__: Any) -> None:
        raise TimeoutError("of the function")

    with patched(environment.informer.swapper, "index", compute):
        await change(environment.informer, filter_, max_bytes="1Mi")


CAUSES: dict[str, tuple[Ends, type[BaseException], str]] = {
    "a list is forbidden": (answered_with(lambda: Refuse(403)), Forbidden, "app=db"),
    "a list is refused for long": (answered_with(lambda: Refuse(503), 1.0), Stalled, ""),
    "a list is not answered": (answered_with(Silence, 0.05), NotSynced, ""),
    "the caller is cancelled": (cancelled, asyncio.CancelledError, ""),
    "the next filter selects too much": (too_large, Oversized, ""),
    "the watches never meet": (
        mistaken(Swap, "has_reached", lambda *_: False, 2.0),
        NotSynced,
        "the watches have not reached the same version",
    ),
    "a mistake at the beginning": (mistaken(OwnWrites, "inherit", lambda *_: 1 / 0), ZeroDivisionError, ""),
    "a mistake while the watches meet": (unreachable, ZeroDivisionError, ""),
    "a function of an index fails": (unindexable, Stalled, "can't be indexed"),
    "a function of the user takes too long": (out_of_time, TimeoutError, "of the function"),
}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("cause", CAUSES)
async def test_16_a_change_that_fails_leaves_everything_as_it_was(cause: str, cache: str) -> None:
    end, error, text = CAUSES[cause]
    async with caching(CACHES[cache], WEB, GOLD, BOTH, *DB) as environment:
        informer, share = environment.informer, environment.informer.swapper.share
        await until(lambda: informer.state.is_synced)
        follower, tasks = Follower(informer), asyncio.all_tasks()
        state, declared, stored = informer.state, informer.declared, share.bytes
        with pytest.raises(error, match=text or None):
            await end(environment, [Selector("app=db"), Selector("tier=gold")])
        assert informer.state is state
        assert informer.declared is declared
        assert not share.is_suspended
        assert cause == "the caller is cancelled" or share.bytes == stored
        assert {each for _, each, _ in follower.causes} <= {"updated"}
        nothing_is_left(environment, tasks)
        environment.cluster.patch(secret("web"), labelled(app="none"))
        await until(lambda: "web" not in names(environment))
        await change(informer, "app=db", max_bytes="2Mi")
        assert names(environment) == {each["metadata"]["name"] for each in DB}
