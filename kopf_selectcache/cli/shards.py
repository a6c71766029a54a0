"""`shards`: shows the replicas of a sharded operator, and which ranges and namespaces each of them handles.
Changes nothing in the cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby

from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.assignment.records import assignment_name
from kopf_selectcache.core.assignment.rendezvous import RANGES, desired_owners
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.settings.sharding import Sharding

from . import _login, operator_loader, output
from ._fleet import Fleet, Replica, fleets_in
from .output import PROBLEM, CommandError, CommandResult

NAME = "shards"
HELP = "Show which replica of a sharded operator handles which namespaces."
EXAMPLES = (
    "selectcache shards app.py",
    "selectcache shards --name webapps -n operators -o json",
    "selectcache shards --context staging",
)

NAMED = 5
"""The number of namespaces that a line names."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Operator (without: all that are sharded)")
    group.add_argument("paths", nargs="*", metavar="FILE", help="the operator's files, as in `kopf run`")
    group.add_argument("-m", "--module", action="append", default=[], help="a module of the operator")
    group.add_argument("--name", metavar="NAME", default="", help="its name, as in Sharding(name=...)")
    group.add_argument(
        "-n", "--namespace", metavar="NAMESPACE", help="the namespace of its replicas (default: all)"
    )
    _login.add_arguments(parser)
    output.add_arguments(parser)


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Return the replicas and ranges, with the exit code 1 if some range has no owner; raise CommandError."""
    name, namespace = arguments.name, arguments.namespace
    if not arguments.paths and not arguments.module:
        async with _login.connected(arguments) as transport:
            return await _answer(transport, name, namespace)
    async with operator_loader.loaded(_as_loaded(arguments), plain=True) as operator:
        if (sharding := operator.declared.sharding) is None:
            raise CommandError(
                "the operator isn't sharded",
                "To run several replicas: settings.selectcache.sharding = selectcache.Sharding()",
            )
        if sharding.static is not None:
            return _fixed(sharding, sharding.static[1])
        await operator.log_in()
        return await _answer(
            operator.transport, name or sharding.name, namespace or sharding.namespace or None
        )


def _as_loaded(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments with which the operator is loaded: where it would watch doesn't matter."""
    others = {"all_namespaces": True, "namespace": [], "peering": None, "standalone": True, "kind": []}
    return argparse.Namespace(**{**vars(arguments), **others})


async def _answer(transport: KopfTransport, name: str, namespace: str | None) -> CommandResult:
    try:
        fleets, notes = await fleets_in(transport, name, namespace, datetime.now(UTC))
    except Refused as error:
        if error.refusal.code != 403:
            raise
        hint = "It needs to list leases, and to get and list configmaps, in the namespace of the replicas"
        raise CommandError(
            f"permission is missing: {error.refusal.message}", hint if namespace else f"{hint}: -n NAMESPACE"
        ) from error
    except Garbled as error:
        raise CommandError(str(error)) from error
    if not fleets:
        named = f" named {name}" if name else ""
        where = f" in {namespace}" if namespace else ""
        raise CommandError(
            f"there is no sharded operator{named}{where}",
            "It makes its Leases when it starts. Give its name and namespace: --name webapps -n operators",
            code=PROBLEM,
        )
    text = "\n\n".join("\n".join(_lines(fleet)) for fleet in fleets)
    is_wrong = any(fleet.unowned or fleet.trouble for fleet in fleets)
    data = {"operators": [fleet.plain() for fleet in fleets]}
    return CommandResult(text, data, PROBLEM if is_wrong else 0, notes)


def _lines(fleet: Fleet) -> Iterable[str]:
    head = ("REPLICA", "STATE", "SINCE", "RENEWED", "NAMESPACES", "RANGES")
    rows = [head, *map(_row, fleet.replicas)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if fleet.replicas:
        for row in rows:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield from _moves(fleet)
    for name in fleet.idle:
        yield f"* {name} owns no range: it has just started, or it has another by= than the others."
    if fleet.trouble:
        yield (
            f"! No replica handles anything: the ConfigMap {assignment_name(fleet.name)} can't be used"
            f" ({fleet.trouble}). The replicas write another one."
            if fleet.replicas
            else f"! No replica of {fleet.name} runs in {fleet.namespace}."
        )
    elif fleet.unowned:
        what = "1 range" if len(fleet.unowned) == 1 else f"{len(fleet.unowned)} ranges"
        yield f"! No replica handles {what}: {spans(fleet.unowned)}.{_unserved(fleet)}"
    yield f"\n{_summary(fleet)}"


def _moves(fleet: Fleet) -> Iterable[str]:
    """Yield a line for each pair of replicas between which ranges move."""
    moving: dict[tuple[str, str], list[int]] = {}
    for range_, owner, taker in fleet.moving:
        moving.setdefault((owner, taker), []).append(range_)
    for (owner, taker), ranges in moving.items():
        what = "Range %s moves" if len(ranges) == 1 else "Ranges %s move"
        yield f"{what % spans(ranges)} from {owner or 'nobody'} to {taker}."


def _row(each: Replica) -> tuple[str, str, str, str, str, str]:
    renewed = "" if each.age is None else f"{max(0.0, each.age):.0f} s ago"
    namespaces = "?" if each.namespaces is None else f"{len(each.namespaces):,}"
    ranges = f"{len(each.ranges)}: {spans(each.ranges)}" if each.ranges else "0"
    return each.name, each.state, each.since, renewed, namespaces, ranges


def _unserved(fleet: Fleet) -> str:
    if not fleet.unserved:
        return "" if fleet.unserved is None else " No namespace is in them."
    more = len(fleet.unserved) - NAMED
    named = [*fleet.unserved[:NAMED], *([f"{more:,} more"] if more > 0 else [])]
    return f" Namespaces without a replica: {', '.join(named)}."


def _summary(fleet: Fleet) -> str:
    acting = sum(each.acts for each in fleet.replicas)
    alive = f"{acting} replica{'' if acting == 1 else 's'}"
    total = len(fleet.shares) or RANGES
    by = f" by {fleet.by}" if fleet.by else ""
    owned = f"{total - len(fleet.unowned)} of {total} ranges{by} have an owner that is alive"
    moves = f", {fleet.moves:,} moves so far" if fleet.shares else ""
    return f"{fleet.name} in {fleet.namespace}: {alive}, {owned}{moves}."


def spans(numbers: Sequence[int]) -> str:
    """Return sorted numbers as intervals.

    >>> spans([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    found = []
    for _, run in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        each = [number for _, number in run]
        found.append(str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}")
    return ", ".join(found)


def _fixed(sharding: Sharding, count: int) -> CommandResult:
    """Return the ranges of replicas that never change."""
    owners = desired_owners(frozenset(map(str, range(count))), RANGES)
    owned = {
        number: [range_ for range_, owner in enumerate(owners) if owner == str(number)]
        for number in range(count)
    }
    lines = [f"replica {number} of {count}: ranges {spans(ranges)}" for number, ranges in owned.items()]
    lines.append("Sharding(static=...): the ranges never move, and no Lease says which replicas are alive.")
    data = {
        "operators": [
            {
                "static": True,
                "by": sharding.by,
                "replicas": [{"name": str(number), "ranges": ranges} for number, ranges in owned.items()],
            }
        ]
    }
    return CommandResult("\n".join(lines), data)
