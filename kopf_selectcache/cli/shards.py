"""`shards`: shows the replicas of a sharded operator, and which ranges and namespaces each of them handles.
Changes nothing in the cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.assignment.records import (
    LABEL,
    LeaseRead,
    Share,
    assignment_name,
    read_assignment,
    read_lease,
    replica_of,
)
from kopf_selectcache.core.assignment.rendezvous import RANGES, desired_owners, range_of_key
from kopf_selectcache.core.assignment.replica import Options
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.redact import counted
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.settings.sharding import Sharding
from kopf_selectcache.sharding.replica import timing_of

from . import _cluster, operator_loader, output
from .operator_loader import metadata_in
from .output import PROBLEM, CommandError, CommandResult

NAME = "shards"
HELP = "Show which replica of a sharded operator handles which namespaces."
DETAILS = """\
It reads the ConfigMap and the Leases of the replicas. A replica is `alive`, `leaving`, `late` (its Lease
has expired), `left`, or `unreadable` (its Lease was edited). `!` marks ranges that no replica handles, and
the exit code is 1.

You need permission to list Leases and namespaces, and to get and list ConfigMaps.
"""
EXAMPLES = (
    "selectcache shards app.py",
    "selectcache shards --name webapps -n operators -o json",
    "selectcache shards --context staging",
)

NAMED_NAMESPACES = 5
"""The number of namespaces that a line names."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Operator (without: all that are sharded)")
    group.add_argument("paths", nargs="*", metavar="FILE", help="the operator's files, as in `kopf run`")
    group.add_argument("-m", "--module", action="append", default=[], help="a module of the operator")
    group.add_argument("--name", metavar="NAME", default="", help="its name, as in Sharding(name=...)")
    group.add_argument(
        "-n", "--namespace", metavar="NAMESPACE", help="the namespace of its replicas (default: all)"
    )
    _cluster.add_arguments(parser)
    output.add_arguments(parser)


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Return the replicas and ranges, with the exit code 1 if some range has no owner; raise CommandError."""
    name, namespace = arguments.name, arguments.namespace
    if not arguments.paths and not arguments.module:
        async with _cluster.connected(arguments) as transport:
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
    if fleet.replicas:
        head = ("REPLICA", "STATE", "SINCE", "RENEWED", "NAMESPACES", "RANGES")
        yield from output.table([head, *map(_row, fleet.replicas)])
    yield from _moves(fleet)
    for name in fleet.idle:
        yield f"* {name} owns no range: it has just started, or it has another by= than the others."
    if fleet.trouble and not fleet.replicas:
        yield f"! No replica of {fleet.name} runs in {fleet.namespace}."
    elif fleet.trouble:
        yield (
            f"! No replica handles anything: the ConfigMap {assignment_name(fleet.name)} can't be used"
            f" ({fleet.trouble}). The replicas write another one."
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
    more = len(fleet.unserved) - NAMED_NAMESPACES
    named = [*fleet.unserved[:NAMED_NAMESPACES], *([f"{more:,} more"] if more > 0 else [])]
    return f" Namespaces without a replica: {', '.join(named)}."


def _summary(fleet: Fleet) -> str:
    acting = sum(each.acts for each in fleet.replicas)
    alive = counted(acting, "replica")
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
        str(number): [range_ for range_, owner in enumerate(owners) if owner == str(number)]
        for number in range(count)
    }
    lines = [f"replica {number} of {count}: ranges {spans(ranges)}" for number, ranges in owned.items()]
    lines.append("Sharding(static=...): the ranges never move, and no Lease says which replicas are alive.")
    replicas = [{"name": number, "ranges": ranges} for number, ranges in owned.items()]
    data = {"operators": [{"static": True, "by": sharding.by, "replicas": replicas}]}
    return CommandResult("\n".join(lines), data)


# ---- The replicas of an operator, and the ranges that each of them owns.

CLOCK_AHEAD_SECONDS = 5.0
"""Seconds by which a clock may be ahead of ours before a note says so."""


class Replica(NamedTuple):
    """One replica, as its Lease says."""

    name: str
    state: str
    """`alive`; `leaving`; `late`, if it has stopped because it did not renew its Lease; `left`, if it has
    ended, and ranges of it wait for another owner; or `unreadable`, if somebody edited the Lease."""
    identity: str
    """Empty if the Lease can't be read."""
    since: str
    """When its Lease was created."""
    age: float | None
    """Seconds since it renewed its Lease, by our clock."""
    ranges: tuple[int, ...]
    namespaces: tuple[str, ...] | None
    """The namespaces in its ranges; None if they are unknown."""

    @property
    def acts(self) -> bool:
        """True if it handles its ranges."""
        return self.state in ("alive", "leaving")

    def plain(self) -> dict[str, Any]:
        """Return the replica as JSON has it."""
        return {
            "name": self.name,
            "state": self.state,
            "identity": self.identity or None,
            "since": self.since or None,
            "renewedSecondsAgo": None if self.age is None else round(self.age, 1),
            "ranges": list(self.ranges),
            "namespaces": None if self.namespaces is None else list(self.namespaces),
        }


class Fleet(NamedTuple):
    """The replicas of one operator, and their ranges."""

    name: str
    namespace: str
    replicas: tuple[Replica, ...]
    trouble: str
    """Why the assignment can't be used; empty if it can."""
    by: str
    shares: tuple[Share, ...]
    """The owner and epoch of each range; empty if the assignment can't be used."""
    unowned: tuple[int, ...]
    """The ranges that no replica handles."""
    unserved: tuple[str, ...] | None
    """The namespaces in these ranges; None if they are unknown."""

    @property
    def moves(self) -> int:
        """How many times a range has gone to another owner since the assignment was made."""
        return sum(max(0, share.epoch - 1) for share in self.shares)

    @property
    def moving(self) -> tuple[tuple[int, str, str], ...]:
        """The ranges that a replica is about to take from another one, with both."""
        return tuple(
            (range_, replica_of(share.owner), replica_of(share.warm))
            for range_, share in enumerate(self.shares)
            if share.warm and share.warm != share.owner
        )

    @property
    def idle(self) -> tuple[str, ...]:
        """The replicas that own no range and get none, although others do."""
        getting = {taker for _, _, taker in self.moving}
        idle = (each for each in self.replicas if each.state == "alive" and not each.ranges)
        return tuple(each.name for each in idle if self.shares and each.name not in getting)

    def owner(self, namespace: str | None, name: str, by: str) -> tuple[str, int]:
        """Return the replica that handles an object, and the number of its range; "" if none does."""
        range_ = range_of_key(namespace, name, by, len(self.shares) or RANGES)
        handles = bool(self.shares) and range_ not in self.unowned
        return (replica_of(self.shares[range_].owner) if handles else ""), range_

    def plain(self) -> dict[str, Any]:
        """Return the replicas and ranges as JSON has them."""
        ranges = [
            {
                "range": range_,
                "owner": replica_of(share.owner) or None,
                "epoch": share.epoch,
                "movesTo": replica_of(share.warm) or None,
            }
            for range_, share in enumerate(self.shares)
        ]
        namespaces = None if self.unserved is None else list(self.unserved)
        return {
            "name": self.name,
            "namespace": self.namespace,
            "by": self.by or None,
            "assignment": self.trouble or "ok",
            "replicas": [each.plain() for each in self.replicas],
            "ranges": ranges,
            "moves": self.moves,
            "unowned": {"ranges": list(self.unowned), "namespaces": namespaces},
        }


def fleet_of(
    name: str,
    namespace: str,
    leases: Iterable[object],
    configmap: object | None,
    namespaces: Sequence[str] | None,
    now: datetime,
) -> Fleet:
    """Return what the Leases and the ConfigMap of one operator say. `namespaces` are those of the cluster."""
    read = read_assignment(configmap)
    assignment, options = read.assignment, Options("", "")
    trouble = read.broken or ("it is absent" if assignment is None else "")
    if assignment is not None and assignment.hash != options.hash:
        trouble, namespaces = f"it divides by {assignment.hash}, which this version doesn't know", None
    by = assignment.by if assignment is not None else ""
    if by == "object":
        namespaces = None  # Each may have objects in all ranges.
    shares = assignment.shares if assignment is not None and not trouble else ()
    count = len(shares) or options.ranges
    by_range: dict[int, list[str]] = {}
    for each in namespaces or ():
        by_range.setdefault(range_of_key(each, "", by, count), []).append(each)

    def inside(ranges: Iterable[int]) -> tuple[str, ...] | None:
        if namespaces is None:
            return None
        return tuple(sorted(each for range_ in ranges for each in by_range.get(range_, ())))

    owned: dict[str, list[int]] = {}
    for range_, share in enumerate(shares):
        if share.owner:
            owned.setdefault(share.owner, []).append(range_)
    replicas = []
    for body in leases:
        if (lease := read_lease(body, name)) is not None:
            holder = lease.lease.holder if lease.lease is not None else ""
            if lease.lease is not None and not holder:
                continue  # It has left.
            ranges = tuple(owned.pop(holder, ()))
            state, age = _state(lease, body, now)
            since = _member(body, "metadata", "creationTimestamp")
            replicas.append(Replica(lease.name, state, holder, since, age, ranges, inside(ranges)))
    for identity, numbers in owned.items():  # Of processes that hold no Lease any more.
        replicas.append(
            Replica(replica_of(identity), "left", identity, "", None, tuple(numbers), inside(numbers))
        )
    acting = {range_ for each in replicas if each.acts for range_ in each.ranges}
    unowned = tuple(range_ for range_ in range(count) if range_ not in acting)
    replicas.sort(key=lambda each: (each.name, each.identity))
    return Fleet(name, namespace, tuple(replicas), trouble, by, shares, unowned, inside(unowned))


def _state(read: LeaseRead, body: object, now: datetime) -> tuple[str, float | None]:
    """Return the state of a replica, and the age of its last renewal."""
    lease = read.lease
    if lease is None:
        return "unreadable", None
    age = _age(_member(body, "spec", "renewTime"), now)
    seconds = _member(body, "spec", "leaseDurationSeconds", of=int) or Options("", "").timing.lease
    timing = timing_of(float(seconds))
    if age is None or age >= timing.lease - timing.margin:
        return "late", age
    return ("leaving" if lease.is_leaving else "alive"), age


def _age(text: str, now: datetime) -> float | None:
    with suppress(ValueError):
        found = datetime.fromisoformat(text)
        return (now - (found if found.tzinfo else found.replace(tzinfo=UTC))).total_seconds()
    return None


def _member(body: object, *path: str, of: type[Any] = str) -> Any:
    for each in path:
        body = body.get(each) if isinstance(body, Mapping) else None
    return body if isinstance(body, of) else of()


# ---- Reading.


async def fleets_in(
    transport: KopfTransport, name: str, namespace: str | None, now: datetime
) -> tuple[list[Fleet], list[str]]:
    """Return the sharded operators of a name, of all names if it is empty, in a namespace, or in all; and
    notes on what is unknown. Raise Refused, Unreachable or Garbled.
    """
    query = {"labelSelector": f"{LABEL}={name}" if name else LABEL}
    within = f"namespaces/{namespace}/" if namespace else ""
    leases = await _listed(transport, f"/apis/coordination.k8s.io/v1/{within}leases", query)
    maps = await _listed(transport, f"/api/v1/{within}configmaps", query)
    groups = {(namespace, name)} if name and namespace else set[tuple[str, str]]()
    groups |= {
        (_member(each, "metadata", "namespace"), _member(each, "metadata", "labels", LABEL))
        for each in (*leases, *maps)
    }
    namespaces, notes = await _namespaces(transport)
    found = []
    for where, group in sorted(groups):
        own = [each for each in leases if _member(each, "metadata", "namespace") == where]
        configmap = await _configmap(transport, where, group)
        fleet = fleet_of(group, where, own, configmap, namespaces, now)
        found.append(fleet)
        notes += [
            f"The clock of {each.name} is {-each.age:.0f} s ahead of this machine's, so its state may be"
            " wrong."
            for each in fleet.replicas
            if each.age is not None and each.age < -CLOCK_AHEAD_SECONDS
        ]
    return found, notes


async def _namespaces(transport: KopfTransport) -> tuple[list[str] | None, list[str]]:
    """Return the names of all namespaces; None, with a note, if they can't be listed."""
    kind = find("namespaces")
    assert kind is not None, "it is built in"
    resource = Resource(kind, "v1")
    try:
        records = metadata_in(transport, resource, resource.path(None), {})
        return [record.name async for record in records], []
    except (Refused, Garbled) as error:
        why = error.refusal.message if isinstance(error, Refused) else error
        return None, [f"The namespaces in the ranges are unknown: {why}."]


async def _configmap(transport: KopfTransport, namespace: str, group: str) -> object | None:
    """Return the ConfigMap of an operator, also if it has lost its label; None if there is none."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{assignment_name(group)}"
    try:
        return _decoded(await transport.get(path, {}))
    except Refused as refused:
        if refused.refusal.code != 404:
            raise
        return None


async def _listed(transport: KopfTransport, path: str, query: Mapping[str, str]) -> list[object]:
    items = _decoded(await transport.get(path, query)).get("items")
    return items if isinstance(items, list) else []


def _decoded(answer: bytes) -> dict[str, Any]:
    with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        if isinstance(found := msgspec.json.decode(answer), dict):
            return found
    raise Garbled("the answer is no object")
