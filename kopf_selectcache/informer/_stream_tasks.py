"""StreamTasks: the tasks of the streams of one informer, and of the work beside them. A change of the filter
exchanges some of them while the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from kopf_selectcache._errors import context_of_loop

from ._beside import Work, run_again
from .environment import Environment
from .reflector import Reflector


class StreamTasks:
    """The running tasks of one informer."""

    def __init__(
        self, key: str, environment: Environment, resource: object, context: Callable[[], dict[str, str]]
    ) -> None:
        self._key = key
        self._environment = environment
        self._resource = resource  # `str` returns the name of the resource.
        self._context = context  # Returns the attributes of log records.
        self._streams: dict[Reflector, asyncio.Task[None]] = {}
        self._confirming: asyncio.Task[None] | None = None
        self._exchanged = asyncio.Event()
        self._must_end = False
        self._cancelled = set[asyncio.Task[None]]()
        """The tasks of streams that `end` has cancelled."""

    def start(self, reflector: Reflector) -> asyncio.Task[None]:
        """Start to run a stream."""
        name = f"selectcache: {self._key}, {reflector.filter}"
        return asyncio.create_task(reflector.run(), name=name, context=context_of_loop())

    def start_beside(self, name: str, work: Work) -> asyncio.Task[None]:
        """Start endless work beside the streams. A bug in it restarts it, and does not affect the streams."""
        endless = run_again(work, self._environment, self._resource, self._context)
        return asyncio.create_task(endless, name=f"selectcache: {self._key}, {name}")

    def start_confirming(self, work: Work) -> asyncio.Task[None]:
        return self.start_beside("unconfirmed leaves", work)

    async def run(
        self,
        reflectors: Collection[Reflector],
        confirm: Work | None,
        beside: Collection[asyncio.Task[None]],
        ends: Callable[[], None],
    ) -> None:
        """Run the streams until one of them ends, or a task beside them; raise its error. `ends` is called
        before the others are ended: no exchange may start streams meanwhile.
        """
        self._must_end = False
        self._streams = {each: self.start(each) for each in reflectors}
        del reflectors  # An exchange may end them.
        self._confirming = None if confirm is None else self.start_confirming(confirm)
        try:
            await self._wait_for_end(beside)
        finally:
            ends()
            tasks = [*beside, *self._streams.values()]
            if self._confirming is not None:
                tasks.append(self._confirming)
            self._streams, self._confirming = {}, None
            for task in tasks:
                if task not in self._cancelled:  # A second time would interrupt how it ends.
                    task.cancel()
            self._cancelled = set()
            await asyncio.gather(*tasks, return_exceptions=True)

    def exchange(
        self,
        retired: Collection[Reflector],
        new: Mapping[Reflector, asyncio.Task[None]],
        confirming: asyncio.Task[None] | None,
    ) -> None:
        """Cancel the tasks of some streams, and take over those of new ones, which run already."""
        for each in retired:
            if (task := self._streams.pop(each, None)) is not None:
                task.cancel()
        if self._confirming is not None:
            self._confirming.cancel()
        self._streams |= new
        self._confirming = confirming
        self._exchanged.set()

    def end(self) -> None:
        """End all streams, to run those of another declaration. They apply no further input."""
        self._must_end = True
        self._cancelled = {*self._streams.values()}
        for task in self._cancelled:
            task.cancel()
        self._exchanged.set()

    async def _wait_for_end(self, beside: Collection[asyncio.Task[None]]) -> None:
        while True:
            self._exchanged.clear()
            exchanged = asyncio.create_task(self._exchanged.wait())
            try:
                await asyncio.wait(
                    {*beside, *self._streams.values(), exchanged}, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                exchanged.cancel()
            if self._must_end:
                return
            # Without those that an exchange has cancelled.
            ended = [task for task in (*beside, *self._streams.values()) if task.done()]
            for task in ended:
                if task.cancelled():  # By what it has awaited: this informer was not told to end.
                    raise RuntimeError(f"{task.get_name()} was cancelled")
                task.result()
            if ended:
                return
