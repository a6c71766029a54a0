"""Sharding: the handlers of a replica run for the keys that it owns (`sharding.shards`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.reactions.engine import Function, RunAgain, Worker
from kopf_selectcache.reactions.queue import Run
from kopf_selectcache.selectors.object_key import Key

if TYPE_CHECKING:
    from kopf_selectcache.sharding.shards import Shards

_logger = logging.getLogger("kopf_selectcache")


class _Runs:
    """The runs of one handler."""

    def __init__(self, worker: Worker, replay: Callable[[Callable[[ObjectKey], bool]], None]) -> None:
        self.replay, self.running = replay, worker.running


@contextmanager
def divided(
    shards: Shards | None, worker: Worker, replay: Callable[[Callable[[ObjectKey], bool]], None]
) -> Iterator[None]:
    """Have the runs of a worker follow the ranges of this replica meanwhile. `replay` runs the keys of which
    a function returns True.
    """
    with nullcontext() if shards is None else shards.handling(_Runs(worker, replay)):
        yield


def if_handled(shards: Shards | None, function: Function, forget: Callable[[Key], None]) -> Function:
    """Return a function that runs only the keys of this replica, and forgets all others."""
    if shards is None:
        return function

    async def run(run: Run) -> RunAgain | None:
        pair = run.key.pair
        with shards.run_of(pair) as is_handled:
            if not is_handled:
                forget(run.key)
                return None
            try:
                return await function(run)
            except asyncio.CancelledError:
                if shards.handles(pair):
                    raise
                _logger.info(
                    "The run of %(key)s was cancelled: this replica does not handle it any more.",
                    {"key": printable_name(*pair)},
                )
                forget(run.key)
                return None

    return run
