"""The API in which the recorders of an operator write its Events, by the permissions of the operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from kopf_selectcache.recorder.api import Api
from kopf_selectcache.settings.rights import Right

NOTE = "Recorders write Events in the core API; where they may use only events.k8s.io, they use that."


@dataclass(frozen=True)
class EventRights:
    """The API that recorders use, and the permissions that it needs and lacks."""

    api: Api
    needed: tuple[Right, ...]
    missing: tuple[Right, ...] = ()

    def __str__(self) -> str:
        return f"Events {'would be' if self.missing else 'are'} written in the API {self.api}"


async def choose(
    rights: Iterable[Right], lacks: Callable[[Right], Awaitable[Iterable[Right]]]
) -> EventRights:
    """Return the first API to which no permission is missing, as recorders do; the core API if there is none.

    `rights` are those of the core API, and `lacks` returns the part of a permission that an account lacks.
    """
    choices = list[EventRights]()
    for api in Api:
        needed = [replace(right, group=api.group) for right in rights]
        missing = [lack for right in needed for lack in await lacks(right)]
        choices.append(EventRights(api, tuple(needed), tuple(missing)))
    return next((each for each in choices if not each.missing), choices[0])
