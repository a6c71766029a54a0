"""`why`: explains for one object whether the caches of an operator would hold it, and which requirement it
fails. Changes nothing in the cluster.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kopf_selectcache.cache.why import Standing, Why, ask_server
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.assignment.rendezvous import RANGES, desired_owners, range_of_key
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.settings.planner import Right, merged, of_cache

from . import _code, operator_loader, output
from ._cluster import EXAMPLES as HOW
from ._cluster import parts_of, targets_of
from ._rights import plain
from .operator_loader import Loaded, PlannedCache, declared_in, plan_of, resource_of
from .output import PROBLEM, UNKNOWN, CommandError, CommandResult
from .shards import fleets_in

NAME = "why"
HELP = "Explain why an object is in the cache, or isn't."
DETAILS = """\
Name the object as for kubectl: `pod/web-1`, `pod web-1`, or `pods/shop/web-1` with its namespace. `-n` is
the namespace of the object and of the operator.

The exit code is 0 if a cache would include the object, 1 if not, and 2 if the server doesn't answer.
"""
EXAMPLES = (
    "selectcache why app.py pod/db-1 -n shop",
    "selectcache why app.py pods/shop/db-1 -o json",
    "selectcache why -m my.operator example.com/v1/webapps web --context staging",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    operator_loader.add_arguments(parser)
    group = output.add_arguments(parser)
    operator_loader.add_account(group, "check its permissions, not yours")
    parser.usage = "%(prog)s [options] FILE... KIND/NAME | KIND/NAMESPACE/NAME | KIND NAME"


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Return the reason, with the exit code 0 if a cache would hold the object, 1 if none would, and 2 if
    that is unknown; raise CommandError.
    """
    arguments.paths, words = _split(arguments.paths, has_file=not arguments.module)
    parts_of(words)  # A mistake is an error before anything is loaded.
    late = _code.given_caches(arguments)
    async with operator_loader.loaded(arguments) as operator:
        await operator.log_in()
        watched = operator.watched or ()
        (target,) = await targets_of(operator.transport, words, watched[0] if len(watched) == 1 else None)
        resource, place, name = target
        caches = [cache async for cache in _caches_of(operator, late, resource)]
        replica, text = await _replica_of(operator, place, name)
        if not caches and text:
            found = {"object": target.plain(), "caches": []} | replica
            return CommandResult(f"The operator declares no cache of {resource}.\n{text}", found, PROBLEM)
        if not caches:
            raise CommandError(f"the operator declares no cache of {resource}", code=PROBLEM)
        reviewer = operator_loader.reviewer_of(operator.transport, operator_loader.user_of(arguments))
        texts, codes, data = list[str](), list[int](), list[dict[str, Any]]()
        for _, cached, planned in caches:
            asked = await ask_server(operator.transport, planned.filter, resource, place, name)
            why = asked.as_declared(cached.filter_for(resource))
            missing = await reviewer.missing(merged(of_cache(resource, planned)))
            lines, (remedy, unproven) = [str(why)], _labelling(why)
            if why.standing is Standing.ABSENT and place and not _names_place(arguments, words):
                lines.append("To look elsewhere: -n NAMESPACE")
            elif remedy:
                lines.append(f"To include it: {remedy}")
                lines += [f"That is enough only if it has {unproven}."] if unproven else []
            lines += [f"The cache lacks permission to {right}: {right.written()}" for right in missing]
            texts.append("\n".join(lines))
            is_held = why.standing is Standing.DUE and not missing
            codes.append(UNKNOWN if why.standing is Standing.UNKNOWN else 0 if is_held else PROBLEM)
            data.append(_plain(why, missing))
        texts += [text] if text else []
        found = {"object": target.plain(), "caches": data} | replica
        return CommandResult("\n".join(texts), found, min(codes))


async def _replica_of(operator: Loaded, namespace: str | None, name: str) -> tuple[dict[str, Any], str]:
    """Return which replica handles an object, as data and as text; nothing for an operator without
    sharding, and if the cluster doesn't tell.
    """
    sharding = operator.declared.sharding
    if sharding is None:
        return {}, ""
    by = "its namespace and name are" if namespace else "its name is"
    if namespace and sharding.by == "namespace":
        by = f"the namespace {namespace} is"
    if sharding.static is not None:
        range_ = range_of_key(namespace, name, sharding.by)
        replica = desired_owners(frozenset(map(str, range(sharding.static[1]))), RANGES)[range_]
        text = f"Replica {replica} of {sharding.static[1]} handles it: {by} in range {range_}."
        return {"replica": replica, "range": range_}, text
    with suppress(Refused, Garbled):
        where = sharding.namespace or None
        fleets, _ = await fleets_in(operator.transport, sharding.name, where, datetime.now(UTC))
        if len(fleets) == 1 and fleets[0].replicas:
            replica, range_ = fleets[0].owner(namespace, name, sharding.by)
            text = f"{f'Replica {replica}' if replica else 'No replica'} handles it: {by} in range {range_}."
            return {"replica": replica or None, "range": range_}, text
    return {}, ""


def _split(words: Sequence[str], *, has_file: bool) -> tuple[list[str], list[str]]:
    """Return the operator's files, and the words that name the object."""
    *files, last = words or [""]
    if Path(last).is_file() or not last:
        raise CommandError("no object is given", HOW)
    if "/" in last or len(files) <= has_file:
        return files, [last]
    return files[:-1], [files[-1], last]


def _names_place(arguments: argparse.Namespace, words: Sequence[str]) -> bool:
    """Return True if the namespace of the object is given, and is not the default."""
    return bool(arguments.namespace) or words[0].count("/") > 1


def _labelling(why: Why) -> tuple[str, str]:
    """Return the command that adds the labels an alternative of the filter lacks, and the fields that it
    needs besides, which were not compared; empty if the object fails more than labels. An alternative without
    fields comes first.
    """
    for each in sorted(why.branches, key=lambda each: len(each.filter.terms)):
        labels = [str(requirement) for requirement in each.filter.requirements]
        if each.fails and all(
            fail in labels and re.fullmatch(r"[^=!<> ]+=[^= ]*", fail) for fail in each.fails
        ):
            within = f" -n {why.namespace}" if why.namespace else ""
            command = f"kubectl{within} label {why.kind} {why.name} {' '.join(each.fails)} --overwrite"
            return command, " and ".join(map(str, each.filter.terms))
    return "", ""


def _plain(why: Why, missing: Sequence[Right]) -> dict[str, Any]:
    remedy, unproven = _labelling(why)
    return {
        "standing": str(why.standing),
        "alternatives": [
            {
                "filter": str(each.filter),
                "operatorNamespaces": list(each.operator_namespaces),
                "fails": list(each.fails),
                "has": list(each.has),
            }
            for each in why.branches
        ],
        "remedy": remedy or None,
        "remedyNeeds": unproven or None,
        "missingPermissions": [plain(right) for right in missing],
        "unanswered": why.unanswered or (f"missing permission to {why.missing}" if why.missing else None),
    }


async def _caches_of(
    operator: Loaded, late: Sequence[_code.Late], resource: Resource
) -> AsyncIterator[PlannedCache]:
    for key, cached, _ in declared_in(operator, late):
        try:
            of = await resource_of(operator, key)
        except Refused:
            continue  # Its API group is down, and that of this kind is not.
        except CommandError as error:
            if error.code != PROBLEM:
                raise
            continue  # It is not served, as this kind is.
        if (of.kind.group, of.kind.plural) == (resource.kind.group, resource.kind.plural):
            yield await plan_of(operator, of, cached)
