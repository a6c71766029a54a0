"""Warns once of the paths of `keep=` that objects of the kind cannot have.

The objects of the first list are looked at first. Only if none of them has a value at a path, the server is
asked for the schema of the kind: many fields are optional.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Protocol

from kopf_selectcache._errors import ReadError
from kopf_selectcache.client.schema import schema_of
from kopf_selectcache.client.transport import Refused, Transport, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.index_spec import without_value
from kopf_selectcache.core.store.projection import Keys, as_written
from kopf_selectcache.core.store.record import OutsideRecord, UnreadableRecord
from kopf_selectcache.selectors.suggestions import near
from kopf_selectcache.settings.declaration import Cached

from .environment import Environment
from .log import LoggedInformer, context_of

LOOKED_AT = 100
"""Maximum of objects that are looked at."""


class Declaring(LoggedInformer, Protocol):
    """The parts of an informer whose paths are looked at."""

    declared: Cached
    line: str

    @property
    def resource(self) -> Resource | None: ...

    async def wait_complete(self) -> None:
        """Wait until all lists are complete."""


async def look(informer: Declaring, environment: Environment) -> None:
    """Look at the paths of a cache once its first list is complete. It ends with the cache."""
    try:
        await informer.wait_complete()
        await _warn(informer, informer.declared.own_paths, environment)
    except (ReadError, Refused, Unreachable, Garbled):
        pass  # It is removed, or the server does not tell.


async def _warn(informer: Declaring, paths: Collection[Keys], environment: Environment) -> None:
    resource, records = informer.resource, informer.store.records()[0]
    readable = (each for each in records if not isinstance(each, OutsideRecord | UnreadableRecord))
    objects = [each.decode() for each in islice(readable, LOOKED_AT)]
    lacking = without_value(paths, objects)
    if not objects or not lacking or resource is None:
        return
    mistakes, unclear = await mistaken(environment.transport, resource, lacking)
    parts = {"resource": str(resource), "line": informer.line}
    if mistakes:
        environment.logger.warning(
            "keep= of %(line)s names %(paths)s, but %(resource)s don't have that field. Correct the path.",
            parts | {"paths": ", ".join(mistakes.values())},
            extra=context_of(informer),
        )
    if unclear:
        environment.logger.warning(
            "keep= of %(line)s names %(paths)s, but none of %(count)s %(resource)s has a value there. Check"
            " the"
            " spelling: the server doesn't publish their fields.",
            parts | {"paths": ", ".join(map(shown, unclear)), "count": f"{len(objects):,}"},
            extra=context_of(informer),
        )


async def mistaken(
    server: Transport, resource: Resource, paths: Collection[Keys]
) -> tuple[dict[Keys, str], list[Keys]]:
    """Return the paths that no object of a kind can have, each as a message names it, and those of which the
    server does not publish if objects can have them. Raise Refused, Unreachable or Garbled.
    """
    schema = await schema_of(server, resource)
    if schema is None:
        return {}, list(paths)
    found, unclear = dict[Keys, str](), list[Keys]()
    for path in paths:
        unknown = schema.unknown(path)
        if unknown is not None and not unknown.names:
            unclear.append(path)
        elif unknown is not None:
            depth, names = unknown
            meant = near(path[depth], names)
            asked = (
                ""
                if meant is None
                else f" (did you mean {shown((*path[:depth], meant, *path[depth + 1 :]))}?)"
            )
            found[path] = f"{shown(path)}{asked}"
    return found, unclear


def shown(path: Keys) -> str:
    """Return a path as messages show it."""
    return repr(as_written(path))
