"""Sharding: the handlers of a replica run for the keys that it owns (`sharding.shards`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.store.changes import ChangeCause
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.reactions.engine import Function, RunAgain, Worker
from kopf_selectcache.reactions.queue import Run
from kopf_selectcache.selectors.object_key import Key

if TYPE_CHECKING:
    from kopf_selectcache.sharding.shards import Shards

_logger = logging.getLogger("kopf_selectcache")


class HandlerCalls(Protocol):
    """The calls of one handler."""

    async def run(self, run: Run) -> RunAgain | None:
        """Call it for a key."""

    def replay(self, has: Callable[[ObjectKey], bool]) -> None:
        """Call it for the keys for which a function returns True, and for those of kept departures."""

    def forget(self, key: Key, *, keeps_departures: bool) -> None:
        """Forget what is known of a key that another replica handles."""

    def known(self) -> Collection[Key]:
        """Return the keys of which something is known."""


class _Handling:
    """The runs of one handler (`sharding.shards.Handling`)."""

    def __init__(self, worker: Worker, calls: HandlerCalls) -> None:
        self.running, self._calls = worker.running, calls

    def replay(self, has: Callable[[ObjectKey], bool]) -> None:
        self._forget(has, keeps_departures=True)  # It is from an earlier term.
        self._calls.replay(has)

    def forget(self, has: Callable[[ObjectKey], bool]) -> None:
        self._forget(has, keeps_departures=False)

    def release(self, has: Callable[[ObjectKey], bool]) -> None:
        """Runs of ours end by themselves."""

    def _forget(self, has: Callable[[ObjectKey], bool], *, keeps_departures: bool) -> None:
        for key in self._calls.known():
            if has(key.pair):
                self._calls.forget(key, keeps_departures=keeps_departures)


@contextmanager
def divided(shards: Shards | None, worker: Worker, calls: HandlerCalls) -> Iterator[None]:
    """Have the calls of a worker follow the ranges of this replica meanwhile."""
    with nullcontext() if shards is None else shards.handling(_Handling(worker, calls)):
        yield


def if_handled(shards: Shards | None, calls: HandlerCalls) -> Function:
    """Return what runs only the keys of this replica. Of others, it keeps the departures if this replica may
    get them, and forgets the rest.
    """
    if shards is None:
        return calls.run
    told = False

    async def run(run: Run) -> RunAgain | None:
        pair = run.key.pair
        with shards.run_of(pair) as is_handled:
            try:
                if is_handled:
                    return await calls.run(run)
            except asyncio.CancelledError:
                if shards.handles(pair):
                    raise
                _logger.info(
                    "The run of %(key)s was cancelled: this replica does not handle it any more.",
                    {"key": printable_name(*pair)},
                )
        nonlocal told
        sent = [cause.source for cause in run.causes if cause.event == ChangeCause.SENT]
        if sent and not told:
            told = True
            _logger.info(
                "What %(source)s sends here for keys of other replicas is dropped, such as %(key)s, which"
                " replica %(owner)s handles. Send it in each replica.",
                {"source": sent[0], "key": printable_name(*pair), "owner": shards.owner_of(pair) or "?"},
            )
        calls.forget(run.key, keeps_departures=shards.keeps(pair))
        return None

    return run
