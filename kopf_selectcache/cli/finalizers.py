"""`finalizers`: takes a finalizer off objects by hand, such as Kopf's, which nobody takes off any more."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

import kopf

from kopf_selectcache.client.discovery import NotServed, resolve
from kopf_selectcache.client.partial_metadata import ONE, metadata_of
from kopf_selectcache.client.transport import KopfTransport, Refused
from kopf_selectcache.core.errors import BadText, Garbled
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.plugin.finalizers import finalizers_of, is_terminating, removal_of
from kopf_selectcache.selectors.kind_keys import checked_key, unserved

from . import operator_loader
from ._caches import metadata_in
from ._progress import Progress
from .operator_loader import PROBLEM, Unloadable
from .terminal import write

NAME = "finalizers"
HELP = "Remove a finalizer from objects. Shows what it would do, and does it with --yes."

DEFAULT = "default"
TRIES = 3
"""How often an object is read and patched, if others change it in between."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["remove"])
    parser.add_argument("kind", metavar="KIND", help="such as pods, jobs.batch or example.com/v1/webapps")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the objects")
    parser.add_argument(
        "-n", "--namespace", metavar="NAMESPACE", help=f"their namespace (default: {DEFAULT}; of --all: all)"
    )
    parser.add_argument(
        "--all", action="store_true", help="all objects of the kind that have the finalizer, instead of names"
    )
    parser.add_argument(
        "--finalizer",
        metavar="FINALIZER",
        default=kopf.OperatorSettings().persistence.finalizer,
        help="default: %(default)s, which Kopf adds",
    )
    parser.add_argument("--yes", action="store_true", help="remove it, instead of showing what would be done")


def run(arguments: argparse.Namespace) -> int:
    """Remove the finalizer, or show where it is; return the exit code: 0 if that is done, 1 if objects do not
    exist or could not be changed.
    """
    if bool(arguments.names) is arguments.all:
        arguments.command.error("give the names of the objects, or --all")
    lines, code = asyncio.run(_removed(arguments, errors=sys.stderr, clock=time.monotonic))
    write(sys.stdout, "".join(f"{line}\n" for line in lines))
    return code


class Done(NamedTuple):
    """The result for one object."""

    text: str
    has_finalizer: bool = False
    failed: bool = False


async def _removed(
    arguments: argparse.Namespace, *, errors: TextIO, clock: Callable[[], float]
) -> tuple[list[str], int]:
    async with operator_loader.connected() as transport:
        try:
            resource = await resolve(transport, checked_key(arguments.kind))
        except NotServed as error:
            raise Unloadable(f"{error}. {unserved(arguments.kind, None)}") from error
        except (SelectCacheError, Garbled) as error:
            raise Unloadable(str(error)) from error
        if resource.kind.namespaced is False and arguments.namespace is not None:
            raise Unloadable(f"{resource} are cluster-scoped: leave out -n")
        remover = Remover(transport, resource, arguments.finalizer, does_it=arguments.yes)
        total = None if arguments.all else len(arguments.names)
        done = list[Done]()
        with Progress(f"finalizers of {resource}", total, file=errors, clock=clock) as progress:
            async for each in remover.of(arguments.names, arguments.namespace, progress.step):
                done.append(each)
    return [*(each.text for each in done), remover.summary(done)], PROBLEM if any(
        each.failed for each in done
    ) else 0


class Remover:
    """Removes one finalizer from objects of one kind, or shows which have it."""

    def __init__(
        self, transport: KopfTransport, resource: Resource, finalizer: str, *, does_it: bool
    ) -> None:
        self._transport, self._resource = transport, resource
        self._finalizer, self._does_it = finalizer, does_it

    async def of(
        self, names: Iterable[str], namespace: str | None, step: Callable[[], None]
    ) -> AsyncIterator[Done]:
        """Yield the result for each of these objects; without names, for all that have the finalizer."""
        resource = self._resource
        if names:
            place = None if resource.kind.namespaced is False else namespace or DEFAULT
            for name in names:
                try:
                    path = resource.path(place, name)
                except BadText as error:
                    raise Unloadable(f"{name!r}: {error}") from error
                yield await self._of(path, "/".join(filter(None, (place, name))), None)
                step()
            return
        async for record in metadata_in(self._transport, resource, resource.path(namespace), {}):
            step()
            if self._finalizer in finalizers_of(record.decode()):
                path = resource.path(record.namespace or None, record.name)
                yield await self._of(path, "/".join(filter(None, record.key)), record)

    async def _of(self, path: str, place: str, record: Record | None) -> Done:
        text = f"{self._resource} {place}"
        try:
            for _ in range(TRIES):
                if record is None:
                    record = metadata_of(self._resource, await self._transport.get(path, {}, accept=ONE))
                obj = record.decode()
                if (changes := _removal(obj, self._finalizer)) is None:
                    return Done(f"{text} does not have {self._finalizer}.")
                others = [each for each in finalizers_of(obj) if each != self._finalizer]
                if not self._does_it:
                    return Done(f"{text} has {self._finalizer}{_meaning(obj, others)}.", has_finalizer=True)
                if await self._is_patched(path, changes):
                    left = f" Left: {', '.join(others)}." if others else ""
                    return Done(f"{text}: {self._finalizer} is removed.{left}", has_finalizer=True)
                record = None
        except Refused as refused:
            if refused.refusal.code == 404:  # It was deleted, or never existed.
                return Done(f"{text} does not exist.", failed=True)
            if refused.refusal.code not in (403, 422) and not self._does_it:
                raise  # Otherwise others may have been changed already, and the output must say which.
            return Done(f"{text}: {refused.refusal.message}.", failed=True)
        except Garbled as error:
            return Done(f"{text}: {error}.", failed=True)
        return Done(f"{text} was changed by others {TRIES} times meanwhile. Try again.", failed=True)

    async def _is_patched(self, path: str, changes: list[dict[str, Any]]) -> bool:
        """Patch an object; return False if it has changed since it was read."""
        body = json.dumps(changes).encode()
        try:
            await self._transport.send("PATCH", path, {}, body, "application/json-patch+json")
        except Refused as refused:
            if refused.refusal.code == 409 or (refused.refusal.code == 422 and not refused.refusal.causes):
                return False  # A test has failed.
            raise
        return True

    def summary(self, done: Iterable[Done]) -> str:
        """Return the last line."""
        count = sum(each.has_finalizer and not each.failed for each in done)
        objects = f"{count:,} {'object' if count == 1 else 'objects'}"
        if self._does_it:
            return f"{self._finalizer} is removed from {objects}."
        if not count:
            return f"No object has {self._finalizer}."
        return (
            f"{self._finalizer} would be removed from {objects}. Nothing was changed. If nobody has to clean"
            " up after them any more, add --yes."
        )


def _removal(obj: Mapping[str, Any], finalizer: str) -> list[dict[str, Any]] | None:
    """Return the JSON patch for exactly this version of an object; None if it lacks the finalizer."""
    if finalizer not in finalizers_of(obj):
        return None
    tests = [
        {"op": "test", "path": f"/metadata/{name}", "value": obj["metadata"][name]}
        for name in ("uid", "resourceVersion")
    ]
    return [*tests, *removal_of(obj, finalizer)]


def _meaning(obj: Mapping[str, Any], others: Sequence[str]) -> str:
    """Return what becomes of the object without the finalizer."""
    if not is_terminating(obj):
        return ""
    end = f"; {' and '.join(others)} would still keep it" if others else ": it would be gone"
    return f", and is being deleted{end}"
