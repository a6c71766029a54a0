"""`adopt`: adds labels to the objects that an operator's objects own and its filters leave out, so that the
filters select them. Without `--apply`, the server checks the patches and stores nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from kopf_selectcache.cache.why import BranchResult, MetadataRequest
from kopf_selectcache.client.fetcher import metadata_of
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.redact import clipped, counted
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.selector import Selector

from . import _cluster, _code, operator_loader, output
from .output import PROBLEM, UNKNOWN, CommandError, CommandResult, Progress
from .outside import Outside, Search, SearchResult

NAME = "adopt"
HELP = (
    "Label the objects that your resources own but the filters leave out. Only shows what would change, until"
    " you add --apply."
)
DETAILS = """\
It adds the labels that the filter asks for and an owned object lacks. Without --apply, the server checks
each patch in a dry run. Both need permission to `get` and `patch`.

It never changes a label's value. It leaves an object, and says why, if the filter also needs a field, a
name or a namespace, if several labels would do, or another controller owns it.

The exit code is 1 if objects are left or a patch fails, and 2 if a kind can't be listed.
"""
EXAMPLES = (
    "selectcache adopt app.py",
    "selectcache adopt app.py -n shop --apply",
    "selectcache adopt app.py -n shop -o json",
)

TRIES = 3
"""How often an object is read and patched, if others change it in between."""


class AdoptionOutcome(StrEnum):
    """The outcome for one object."""

    ADOPTABLE = "adoptable"
    ADOPTED = "adopted"
    SELECTED = "selected"
    ABSENT = "absent"
    LEFT = "left"
    FAILED = "failed"


_SETTLED = (
    AdoptionOutcome.ADOPTABLE,
    AdoptionOutcome.ADOPTED,
    AdoptionOutcome.SELECTED,
    AdoptionOutcome.ABSENT,
)
"""The results after which nothing is left to do, except to apply them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    operator_loader.add_arguments(parser)
    group = parser.add_argument_group("Changes")
    group.add_argument("--apply", action="store_true", help="add the labels, instead of a dry run")
    output.add_arguments(parser)


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Add the labels, or let the server try it. The exit code is 0 if the filters select all objects then, 1
    if some are left, and 2 if some kinds could not be looked at; raise CommandError. What was done is part of
    the answer, whatever happens later.
    """
    late = _code.given_caches(arguments)
    async with operator_loader.loaded(arguments) as operator:
        await operator.log_in()
        found = await Search(operator, late).result()
        owned = [each for each in found.objects if each.owners]
        adoption = Adoption(operator.transport, applies=arguments.apply)
        done, failure = list[AdoptionResult](), None
        with Progress("adopt", len(owned), file=sys.stderr, clock=time.monotonic) as progress:
            try:
                for each in owned:
                    done.append(await adoption.of(each))
                    progress.step()
            except (Refused, Unreachable, Garbled) as error:
                failure = _cluster.unanswered(error)
    return _answer(found, done, failure, applies=arguments.apply)


class AdoptionResult(NamedTuple):
    """The result for one object."""

    outside: Outside
    result: AdoptionOutcome
    labels: Mapping[str, str]
    text: str

    def plain(self) -> dict[str, Any]:
        """Return the result as JSON has it."""
        more = {"labels": dict(self.labels), "result": str(self.result), "text": self.text}
        return self.outside.plain() | more


class Adoption:
    """Adds to objects the labels that their filters require."""

    def __init__(self, transport: KopfTransport, *, applies: bool) -> None:
        self._transport, self._applies = transport, applies

    async def of(self, outside: Outside) -> AdoptionResult:
        """Read an object again, and add the labels that it lacks now; raise Refused, Unreachable or Garbled
        if it can't be read.
        """
        resource, namespace, name = outside.target
        request = MetadataRequest(self._transport, resource, namespace or None, name)

        def answer(
            result: AdoptionOutcome, text: str, labels: Mapping[str, str] | None = None
        ) -> AdoptionResult:
            return AdoptionResult(outside, result, labels or {}, f"{outside.target}{text}")

        for _ in range(TRIES):
            record = await request.record()
            if record is None or record.uid != outside.uid:
                return answer(AdoptionOutcome.ABSENT, " was deleted meanwhile.")
            sufficient, failed = await _sufficient_labels(request, outside, record)
            if {} in sufficient:
                return answer(AdoptionOutcome.SELECTED, ": the filter selects it now.")
            if (controller := _controller_of(record)) and controller.get("uid") not in outside.owners:
                who = clipped(f"{controller.get('kind')} {controller.get('name')}", 300)
                return answer(AdoptionOutcome.LEFT, f" is left as it is, because {who} controls it.")
            if len(sufficient) != 1:
                return answer(AdoptionOutcome.LEFT, _left(sufficient, failed))
            (labels,) = sufficient
            try:
                patched = await self._patched(resource.path(namespace, name), record, labels)
            except Refused as refused:
                if refused.refusal.code == 409:
                    continue  # It has changed since it was read.
                return answer(
                    AdoptionOutcome.FAILED, f" can't get {_text(labels)}: {refused.refusal.message}.", labels
                )
            if not labels.items() <= metadata_of(resource, patched).labels.items():
                return answer(
                    AdoptionOutcome.FAILED,
                    f" does not keep {_text(labels)}: the server changes it back.",
                    labels,
                )
            why = ", ".join(outside.reasons)
            if self._applies:
                return answer(AdoptionOutcome.ADOPTED, f" got {_text(labels)}: {why}.", labels)
            return answer(AdoptionOutcome.ADOPTABLE, f" would get {_text(labels)}: {why}.", labels)
        return answer(AdoptionOutcome.FAILED, f" was changed by others {TRIES} times meanwhile. Try again.")

    async def _patched(self, path: str, record: Record, labels: Mapping[str, str]) -> bytes:
        """Add the labels to exactly this version of the object, and return the server's answer."""
        metadata = {"uid": record.uid, "resourceVersion": record.version, "labels": labels}
        body = json.dumps({"metadata": metadata}).encode()
        query = {} if self._applies else {"dryRun": "All"}
        return await self._transport.send("PATCH", path, query, body, "application/merge-patch+json")


async def _sufficient_labels(
    request: MetadataRequest, outside: Outside, record: Record
) -> tuple[list[dict[str, str]], list[BranchResult]]:
    """Return the labels with which an alternative of the filter selects the object, once each; and what it
    fails of the others, with the labels that they require.
    """
    sufficient, failed = list[dict[str, str]](), list[BranchResult]()
    for branch in outside.cache.planned.filter.branches:
        labels = _missing(branch, record)
        labelled = msgspec.structs.replace(record, labels={**record.labels, **labels})
        (result,) = await request.results(branch, labelled)
        if result.fails:
            declared = outside.cache.cached.filter_for(outside.target.resource)
            failed.append(result.as_declared(declared))
        elif labels not in sufficient:
            sufficient.append(labels)
    return sufficient, failed


def _controller_of(record: Record) -> Mapping[str, Any]:
    """Return the reference to the controller that owns an object, empty if none does."""
    owners = record.decode().get("metadata", {}).get("ownerReferences") or ()
    return next((each for each in owners if each.get("controller") is True), {})


def _missing(branch: Selector, record: Record) -> dict[str, str]:
    """Return the labels that the object lacks, and for which the alternative leaves one value."""
    return {
        each.key: each.values[0]
        for each in branch.requirements
        if each.operator in ("=", "==", "in") and len(each.values) == 1 and each.key not in record.labels
    }


def _left(sufficient: Sequence[Mapping[str, str]], failed: Sequence[BranchResult]) -> str:
    """Return why an object is left as it is."""
    if sufficient:
        return f" is left as it is, because you have a choice: {'; or '.join(map(_text, sufficient))}."
    reasons = "".join(f"\n  {each}" for each in failed)
    return f" is left as it is, because it needs more than additional labels:{reasons}"


def _text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _answer(
    found: SearchResult, done: Sequence[AdoptionResult], failure: CommandError | None, *, applies: bool
) -> CommandResult:
    """Return all results, and their number."""
    count = sum(each.result in (AdoptionOutcome.ADOPTABLE, AdoptionOutcome.ADOPTED) for each in done)
    of = f"{count} of {counted(len(done), 'object')}"
    if applies:
        summary = f"Labelled {of}."
    else:
        summary = f"Would label {of}. Nothing was changed."
        summary += " To do it, add --apply." if count else ""
    if not done:
        where = " in the kinds that could be listed" if found.notes else ""
        summary = f"Your resources own nothing outside the filters{where}."
    lines = [each.text for each in done]
    if failure is None or done:
        lines += [summary, *found.searched()]
    data = {
        "applied": applies,
        "count": count,
        "objects": [each.plain() for each in done],
        **found.plain(),
    }
    is_wrong = failure is not None or any(each.result not in _SETTLED for each in done)
    code = PROBLEM if is_wrong else UNKNOWN if found.notes else 0
    return CommandResult("\n".join(lines), data, code, found.notes, failure)
