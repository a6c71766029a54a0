"""Endless work beside the streams of an informer. A bug in it restarts it, and affects nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from kopf_selectcache.core.protocol.backoff import delay

from .environment import Environment

Work: TypeAlias = Callable[[], Awaitable[None]]


async def run_again(
    work: Work, environment: Environment, resource: object, context: Callable[[], dict[str, str]]
) -> None:
    """Run endless work. If it fails, log that, and start it again half a minute later.

    `str(resource)` is the name of the resource. `context` returns the attributes of log records.
    """
    while True:
        try:
            await work()
        except Exception:
            environment.logger.exception(
                "A background task of the cache of %(resource)s failed because of a bug in kopf_selectcache,"
                " and starts again.",
                {"resource": str(resource)},
                extra=context(),
            )
            await environment.sleep(delay(6, environment.chance()))
