"""The steps of a cache whose declaration changes: changes, writes, faults, restarts and time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kopf_selectcache.core.reasons import MetricReason
from kopf_selectcache.informer import _dictionary_training
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings

from .filter_change_server import Fault, ModelServer
from .filter_change_world import FILTERS, KEYS, KIND, LABELS, OPTIONS, SMALL, World

Step = tuple[str, int, int, int]
STEPS = (
    *["change"] * 4,
    *["foreign"] * 5,
    *["tick"] * 3,
    *["time"] * 3,
    "own",
    "own",
    "cancel",
    "declare",
    "remove",
    "gone",
    "hold",
    "release",
    "cut",
    "expire",
    "refuse",
    "refuse",
    "lose",
    "clear",
    "relist",
    "missing",
    "latency",
    "bookmark",
    "rest",
)
CALM = {"change", "foreign", "tick", "own", "cancel", "declare", "remove", "gone", "bookmark", "latency"}
"""The steps in which nothing fails."""
TIMES = (0.1, 1.0, 5.0, 40.0, 130.0)
CODES = (500, 403, 410, 429, "lost", "silent")


async def take(world: World, step: Step) -> None:
    """Take one step; the numbers choose what is meant."""
    verb, first, second, third = step
    server, informer = world.server, world.informer
    if verb not in CALM and not (verb == "time" and TIMES[first % len(TIMES)] <= 1.0):
        world.is_calm = False
    key = KEYS[first % len(KEYS)]
    match verb:
        case "declare":
            world.declare(FILTERS[first % len(FILTERS)], OPTIONS[second % len(OPTIONS)])
        case "change":
            options = OPTIONS[second % len(OPTIONS)]
            if options.get("max_bytes") == SMALL:
                world.is_calm = False
            world.change(FILTERS[first % len(FILTERS)], options, within=(30.0, 1.0, 300.0)[third % 3])
        case "remove":
            world.call("remove", lambda _: world.cache.undeclare(KIND))
        case "cancel" if world.calls:
            world.calls[first % len(world.calls)].task.cancel()
        case "foreign":
            server.write(key, LABELS[second % len(LABELS)])
        case "own":
            world.call("own", lambda _: world.write(key, LABELS[second % len(LABELS)]))
        case "gone":
            world.call("gone", lambda _: world.ask_gone(key, server.now(key).uid))
        case "time":
            for _ in range(4):
                await asyncio.sleep(TIMES[first % len(TIMES)] / 4)
                world.look()
        case "tick":
            for _ in range(first):
                await asyncio.sleep(0)
                world.look()
            return
        case "hold":
            server.held.add(("", "app=web", "tier=gold", "app=db")[first % 4])
        case "release":
            server.release()
        case "cut" if server.watches:
            server.watches[first % len(server.watches)].end(("end", "lost")[second % 2])
        case "expire":
            server.expire()
        case "refuse":
            verbs = ("list", "watch", "get")
            wanted = verbs[second % 3]
            times = (1, 3, 1_000_000)[third % 3]
            server.faults.append(Fault(CODES[first % len(CODES)], lambda asked: asked.verb == wanted, times))
        case "lose":
            for watch in server.watches:
                watch.end("lost")
        case "clear":
            server.faults.clear()
            server.is_served = True
        case "relist" if informer is not None and informer.reflectors:
            informer.reflectors[first % len(informer.reflectors)].relist(MetricReason.AUDIT)
        case "missing":
            server.is_served = False
            for watch in server.watches:
                watch.end("end")
        case "latency":
            server.latency = (0.0, 0.3, 2.0)[first % 3]
        case "bookmark":
            server.bookmark()
        case "rest":
            await world.rest()
    if third % 2:
        await world.settle()
    else:
        await asyncio.sleep(0)


@asynccontextmanager
async def operating(*, initial: str = "pages", page_limit: int = 2) -> AsyncIterator[World]:
    """Run an operator before a server with a few objects. Nothing is declared yet."""
    server, loop = ModelServer(), asyncio.get_running_loop()
    settings = SelectCacheSettings(
        page_limit=page_limit, audit_interval=0, storage="raw", initial=cast("Any", initial)
    )
    runtime = Runtime(
        settings,
        server,
        namespaces=None,
        chance=lambda: 0.5,
        logger=logging.getLogger("kopf_selectcache"),
        clock=loop.time,
        sleep=asyncio.sleep,
    )
    world = World(server, runtime)
    running = asyncio.create_task(runtime.run())
    try:
        for key, labels in zip(KEYS, LABELS, strict=False):
            server.write(key, labels)
        await world.settle()
        world.tasks_before = len(asyncio.all_tasks())
        yield world
    finally:
        for call in world.calls:
            call.task.cancel()
        running.cancel()
        await asyncio.gather(running, *(call.task for call in world.calls), return_exceptions=True)


async def play(steps: list[Step], *, initial: str = "pages") -> None:
    """Play the steps, and then rest."""
    async with operating(initial=initial) as world:
        world.declare(FILTERS[0], {})
        await world.settle()
        for step in steps:
            await take(world, step)
            world.reap()
            world.look()
        await world.rest()


class _Inline:
    """A thread that runs within its start, so that its end is no chance."""

    def __init__(self, *, target: Callable[[], None], **_: Any) -> None:
        self.start = target


def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dictionary_training, "Thread", _Inline)
    monkeypatch.setattr(_dictionary_training, "trim_heap", lambda: None)
