"""The paths of `keep=` and `index=` that objects do not have."""

from __future__ import annotations

from contextlib import suppress

from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.projection import Keys
from kopf_selectcache.informer.checks import mistaken, shown
from kopf_selectcache.informer.memory import Samples
from kopf_selectcache.settings.declaration import Cached

from ._report import Problem

ENOUGH = 20
"""Minimum of objects for the conclusion that a function of an index finds nothing."""


async def looked_at(
    transport: Transport, resource: Resource, cached: Cached, samples: Samples, declared: str
) -> tuple[list[Problem], list[str]]:
    """Return a problem for each declared path that objects cannot have. If the server does not tell which
    fields there are, return a hint for each path at which no sample has a value. Raise Unreachable.
    """
    lacking = [("keep=", path) for path in samples.without_value(cached.own_paths)]
    hints = list[str]()
    for each in samples.without_key(cached.indexes):
        if each.path is not None:
            lacking.append((f"index {each.name!r}", each.path))
        elif len(samples) >= ENOUGH:
            hints.append(
                f"index={{{each}}} finds none of the {len(samples):,} objects in the sample. Look at its"
                " function"
            )
    mistakes, unclear = dict[Keys, str](), list[Keys]()
    if lacking:
        with suppress(Refused, Garbled):
            mistakes, unclear = await mistaken(transport, resource, [path for _, path in lacking])
    hints += [
        f"{option} names {shown(path)}, but none of {len(samples):,} {resource} has a value there. Check"
        f" the spelling: the server doesn't publish their fields"
        for option, path in (lacking if len(samples) else ())
        if path in unclear
    ]
    problems = [
        Problem(
            f"{resource}: {option} names {mistakes[path]}, but {resource} don't have that field",
            f"Correct it in {declared}",
        )
        for option, path in lacking
        if path in mistakes
    ]
    return problems, hints
