"""`finalizers`: takes a finalizer off objects by hand, such as Kopf's after its handlers are gone."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import kopf

from kopf_selectcache.client.fetcher import metadata_of
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import METADATA, KopfTransport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.redact import counted
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.plugin.patches import finalizers_of, is_terminating, removal_of

from . import _cluster, output
from ._cluster import DEFAULT, Target, kind_named, targets_of
from .operator_loader import metadata_in
from .output import PROBLEM, CommandError, CommandResult, Progress

NAME = "finalizers"
HELP = "Remove a finalizer from objects. Only shows what would change, until you add --yes."
DETAILS = """\
Use it if an object can't be deleted because no operator removes its finalizer. All Kopf operators share
one, so look first whether another one has to clean up. Stop a reconciler with this finalizer: it would put
it back.

You need permission to `get` and `patch` the kind, and to `list` it with --all. The exit code is 1 if an
object doesn't exist or can't be changed.
"""
EXAMPLES = (
    "selectcache finalizers remove webapp.example.com/web -n shop",
    "selectcache finalizers remove webapps.example.com web-1 web-2 -n shop --yes",
    "selectcache finalizers remove webapps.example.com --all --context staging",
)

TRIES = 3
"""How often an object is read and patched, if others change it in between."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Objects")
    group.add_argument("action", choices=["remove"])
    group.add_argument(
        "words",
        nargs="+",
        metavar="OBJECT",
        help="KIND NAME..., KIND/NAME or KIND/NAMESPACE/NAME, or only KIND with --all",
    )
    group.add_argument(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        help=f"their namespace (default: {DEFAULT}, or all with --all)",
    )
    group.add_argument("--all", action="store_true", help="all objects of the kind with the finalizer")
    group.add_argument(
        "--finalizer",
        metavar="FINALIZER",
        default=kopf.OperatorSettings().persistence.finalizer,
        help="the finalizer to remove (default: %(default)s)",
    )
    group.add_argument("--yes", action="store_true", help="remove it, instead of showing what would change")
    _cluster.add_arguments(parser)
    output.add_arguments(parser)


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Remove the finalizer, or show where it is. The exit code is 0 if that is done, and 1 if objects do not
    exist or could not be changed. What was done is part of the answer, whatever happens later.
    """
    words, is_all = arguments.words, arguments.all
    if is_all and len(words) > 1:
        raise CommandError("--all can't be combined with names of objects", f"Write: {words[0]} --all")
    if not is_all and len(words) == 1 and "/" not in words[0]:
        raise CommandError("no objects are given", f"Write {words[0]}/NAME, or: {words[0]} --all")
    async with _cluster.connected(arguments) as transport:
        within = arguments.namespace
        if is_all:
            targets = [Target(await kind_named(transport, words[0]), within, "")]
        else:
            targets = await targets_of(transport, words, within)
        for resource, *_ in targets:
            if within is not None and resource.kind.namespaced is False:
                raise CommandError(f"{resource} are cluster-scoped", "Leave out -n")
        remover = Remover(transport, arguments.finalizer, applies=arguments.yes)
        done, failure = list[FinalizerResult](), None
        total = None if is_all else len(targets)
        with Progress("finalizers", total, file=sys.stderr, clock=time.monotonic) as progress:
            try:
                for target in targets:
                    async for each in remover.results(target, progress.step):
                        done.append(each)
            except (Refused, Unreachable, Garbled) as error:
                failure = _cluster.unanswered(error)
    return remover.answer(done, failure)


class FinalizerResult(NamedTuple):
    """The result for one object."""

    target: Target
    result: str
    """One of `found`, `removed`, `absent` and `failed`."""
    text: str


class Remover:
    """Removes one finalizer from objects, or shows which have it."""

    def __init__(self, transport: KopfTransport, finalizer: str, *, applies: bool) -> None:
        self._transport = transport
        self._finalizer, self._applies = finalizer, applies

    async def results(self, target: Target, step: Callable[[], None]) -> AsyncIterator[FinalizerResult]:
        """Yield the result for an object, or for all of the kind that have the finalizer."""
        resource, namespace, name = target
        if name:
            yield await self._of(target, None)
            step()
            return
        async for record in metadata_in(self._transport, resource, resource.path(namespace), {}):
            step()
            if self._finalizer in finalizers_of(record.decode()):
                yield await self._of(Target(resource, record.namespace or None, record.name), record)

    async def _of(self, target: Target, record: Record | None) -> FinalizerResult:
        resource, namespace, name = target
        path = resource.path(namespace, name)

        def done(result: str, text: str) -> FinalizerResult:
            return FinalizerResult(target, result, f"{target}{text}")

        try:
            for _ in range(TRIES):
                if record is None:
                    record = metadata_of(resource, await self._transport.get(path, {}, accept=METADATA))
                obj = record.decode()
                if self._finalizer not in finalizers_of(obj):
                    return done("absent", f" does not have {self._finalizer}.")
                others = [each for each in finalizers_of(obj) if each != self._finalizer]
                if not self._applies:
                    return done("found", f" has {self._finalizer}{_meaning(obj, others)}.")
                # For exactly this version of the object.
                tests = [
                    {"op": "test", "path": f"/metadata/{each}", "value": obj["metadata"][each]}
                    for each in ("uid", "resourceVersion")
                ]
                if await self._is_patched(path, [*tests, *removal_of(obj, self._finalizer)]):
                    left = f" Left: {', '.join(others)}." if others else ""
                    return done("removed", f": removed {self._finalizer}.{left}")
                record = None
        except Refused as refused:
            if refused.refusal.code == 404:  # It was deleted, or never existed.
                return done("failed", " does not exist.")
            if refused.refusal.code not in (403, 422) and not self._applies:
                raise
            return done("failed", f": {refused.refusal.message}.")
        except Garbled as error:
            return done("failed", f": {error}.")
        return done("failed", f" was changed by others {TRIES} times meanwhile. Try again.")

    async def _is_patched(self, path: str, changes: Sequence[Mapping[str, Any]]) -> bool:
        """Patch an object; return False if it has changed since it was read."""
        body = json.dumps(changes).encode()
        try:
            await self._transport.send("PATCH", path, {}, body, "application/json-patch+json")
        except Refused as refused:
            if refused.refusal.code == 409 or (refused.refusal.code == 422 and not refused.refusal.causes):
                return False  # A test has failed.
            raise
        return True

    def answer(self, done: Sequence[FinalizerResult], failure: CommandError | None) -> CommandResult:
        """Return all results, and their number."""
        count = sum(each.result in ("found", "removed") for each in done)
        objects = counted(count, "object")
        summary = f"No object has {self._finalizer}."
        if self._applies:
            summary = f"Removed {self._finalizer} from {objects}."
        elif count:
            summary = (
                f"Would remove {self._finalizer} from {objects}. Nothing was changed. If no operator has to"
                " clean up after them, add --yes."
            )
        lines = [each.text for each in done]
        data = {
            "finalizer": self._finalizer,
            "removed": self._applies,
            "count": count,
            "objects": [each.target.plain() | {"result": each.result, "text": each.text} for each in done],
        }
        is_wrong = failure is not None or any(each.result == "failed" for each in done)
        if failure is None or done:
            lines.append(summary)
        return CommandResult("\n".join(lines), data, PROBLEM if is_wrong else 0, error=failure)


def _meaning(obj: Mapping[str, Any], others: Sequence[str]) -> str:
    """Return what becomes of the object without the finalizer."""
    if not is_terminating(obj):
        return ""
    end = f"; {' and '.join(others)} would still keep it" if others else ": it would be deleted"
    return f", and is being deleted{end}"
