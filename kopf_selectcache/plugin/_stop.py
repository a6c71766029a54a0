"""The stop of the operator whose code is running: its beginning and its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache.cache.blocking import Waits

STOPPING = "the operator is being stopped"


class Stop:
    """Ends what belongs to an operator in two steps, long before Kopf calls the cleanup handlers: it waits
    for its threads first, and a thread may wait for a cache.

    When Kopf begins to stop the operator, `waits` raise, and `begin` is called. At the deadline,
    `settings.queueing.exit_timeout` seconds later, no thread waits for a cache any more, and `end` is called.
    """

    def __init__(
        self,
        settings: kopf.OperatorSettings,
        *,
        begin: Callable[[], object] = lambda: None,
        end: Callable[[], object],
    ) -> None:
        self._settings, self._begin, self._end = settings, begin, end
        self._begun = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self.waits = Waits(stopped=self._begun, why=STOPPING)
        """The waits of handlers and threads."""
        # A stop begins when a root task ends: Kopf cancels the others then.
        roots = _kopf.root_tasks_var.get(())
        # Code that has awaited `kopf.operator()` has the tasks of an operator that has ended.
        self._roots = () if all(root.done() for root in roots) else roots
        for root in self._roots:
            root.add_done_callback(self.begin)

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    @property
    def is_of_caller(self) -> bool:
        """True if the running code belongs to the operator that has begun to stop."""
        return self.has_begun and bool(self._roots) and self._roots is _kopf.root_tasks_var.get(())

    def begin(self, _: object = None) -> None:
        """End the waits now, and the rest at the deadline. Further calls do nothing."""
        if self.has_begun:
            return
        self._begun.set()
        self._begin()
        seconds = self._settings.queueing.exit_timeout
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._reach_deadline)

    def _reach_deadline(self) -> None:
        self.waits.end(STOPPING)
        self._end()

    def close(self) -> None:
        """Forget the operator, after the end of what belongs to it."""
        for root in self._roots:
            root.remove_done_callback(self.begin)
        if self._deadline is not None:
            self._deadline.cancel()
