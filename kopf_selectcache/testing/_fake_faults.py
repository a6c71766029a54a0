"""Faults of a fake cache: they affect the requests of reads and writes to the server. Faults that need a
connection are refused.
"""

from __future__ import annotations

from collections.abc import Callable

from .api.request import Answer, Request
from .faults.fault import Fault
from .faults.injector import Faults, Planned
from .request_log import Asked

OF_ANSWERS = ("asked", "instead", "answered")
"""The steps of a fault that change a request or its response. All others change connections, or the lines of
watches.
"""


class OfflineFaults(Faults):
    """The type of `FakeCache.cluster.faults`."""

    def add(
        self,
        fault: Fault,
        *,
        verb: str = "",
        resource: str = "",
        namespace: str | None = None,
        name: str = "",
        user: str = "",
        where: Callable[[Asked], bool] | None = None,
        nth: int = 1,
        times: int | None = None,
    ) -> Planned:
        """Plan a fault for the requests, such as those of `fetch` and `cache.live`, that match all arguments;
        raise TypeError if it needs a connection.
        """
        of = type(fault)
        if all(getattr(of, step) is getattr(Fault, step) for step in OF_ANSWERS):
            raise TypeError(
                f"{of.__name__} happens to connections and watches, and a fake cache has none: use the"
                " fixture `cluster`, or EmbeddedCluster"
            )
        return super().add(
            fault,
            verb=verb,
            resource=resource,
            namespace=namespace,
            name=name,
            user=user,
            where=where,
            nth=nth,
            times=times,
        )

    def answer(self, request: Request, user: str, answer: Callable[[Request], Answer]) -> Answer:
        """Answer a request with its faults; raise BrokenFault if code of the test has raised."""
        asked = Asked.of(request, user)
        planned = self.meeting(asked, request)
        made: Answer | None = None
        for plan in planned:
            made = plan.fault.instead(request)
            if made is not None:
                break
            request = plan.fault.asked(request)
        made = made if made is not None else answer(request)
        for plan in planned:
            made = plan.fault.answered(request, made)
        asked.code = made.code
        for plan in planned:
            plan.hits.add(asked)
        return made
