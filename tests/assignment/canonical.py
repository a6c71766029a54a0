"""Worlds that differ only in what nobody can tell are one: in the time, in how high versions, epochs and
numbers of requests have come, and in names of identities."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kopf_selectcache.core.assignment import records, replica
from kopf_selectcache.core.assignment.replica import NEVER, Phase, State

from .world import Node, Scope, World


class _Writer:
    """Writes a world as a list of plain values."""

    def __init__(self, scope: Scope, world: World) -> None:
        self.scope, self.world = scope, world
        self.out: list[Any] = []
        self.versions: list[int] = []
        self.epochs: list[tuple[int, int]] = []
        self.serials: list[int] = []
        self.nonces: dict[str, int] = {"": 0, "?": 1}
        self.numbers: dict[int, int] = {}
        self.clock = 0.0
        self.lives = [0 if node.state is None else node.state.life for node in world.nodes]

    def version(self, text: str) -> None:
        if text:
            self.versions.append(len(self.out))
            self.out.append(int(text))
        else:
            self.out.append(-1)

    def number(self, number: int) -> None:
        self.out.append(self.numbers.setdefault(number, len(self.numbers)))

    def nonce(self, text: str) -> None:
        self.out.append(self.nonces.setdefault(text, len(self.nonces)))

    def identity(self, text: str) -> None:
        name, _, rest = text.partition("/")
        if not rest:
            self.out.append(text)
            return
        process, _, life = rest.partition("-")
        each = "abcdefgh".index(name)
        age = self.world.nodes[each].starts - int(process[1:])
        self.out.append((name, age, int(life) - self.lives[each] if age == 1 else int(life)))

    def epoch(self, range_: int, epoch: int) -> None:
        self.epochs.append((len(self.out), range_))
        self.out.append(epoch)

    def past(self, at: float, most: float) -> None:
        """Write how long ago something was; all that is older than `most` is the same."""
        self.out.append(max(at - self.clock, -most))

    def future(self, at: float) -> None:
        self.out.append(max(at - self.clock, 0.0))

    def lease(self, lease: records.Lease | None) -> None:
        if lease is None:
            self.out.append(None)
            return
        self.identity(lease.holder)
        self.nonce(lease.follows)
        self.out.append(lease.is_leaving)

    def read(self, read: records.LeaseRead) -> None:
        self.out.append(read.name)
        self.version(read.version)
        self.version(read.uid)
        self.lease(read.lease)

    def assignment(self, assignment: records.Assignment | None) -> None:
        if assignment is None:
            self.out.append(None)
            return
        self.nonce(assignment.nonce)
        self.serials.append(len(self.out))
        self.out.append(assignment.serial)
        for range_, share in enumerate(assignment.shares):
            self.identity(share.owner)
            self.epoch(range_, share.epoch)
            self.out.append(share.is_clean)
            self.identity(share.warm)

    def seen(self, read: records.AssignmentRead | None) -> None:
        if read is None:
            self.out.append(None)
            return
        self.version(read.version)
        self.version(read.uid)
        self.assignment(read.assignment)

    def term(self, range_: int, term: replica.Term) -> None:
        self.nonce(term.nonce)
        self.epoch(range_, term.epoch)

    def message(self, message: Struct) -> None:
        """Write an effect or input that is on its way."""
        self.out.append(type(message).__name__)
        for field in message.__struct_fields__:
            value = getattr(message, field)
            match field:
                case "request" | "ticket":
                    self.number(value)
                case "read" if isinstance(value, records.LeaseRead):
                    self.read(value)
                case "read":
                    self.seen(value)
                case "reads":
                    self.out.append(len(value))
                    for read in value:
                        self.read(read)
                case "assignment":
                    self.assignment(value)
                case "version" | "uid":
                    self.version(value)
                case "term":
                    self.term(message.range, value)  # type: ignore[attr-defined]
                case "why":
                    pass
                case _:
                    self.out.append(value)

    def lease_request(self, request: replica.LeaseRequest | None) -> None:
        if request is None:
            self.out.append(None)
            return
        self.number(request.number)
        self.past(request.sent_at, self.scope.timing.lease + 1)
        self.read(request.read)
        for dead in sorted(request.buries):
            self.identity(dead)

    def state(self, state: State) -> None:
        out, timing = self.out, self.scope.timing
        out += state.phase, state.is_leaving, state.wants_list, state.wants_read
        if state.phase in (Phase.LEFT, Phase.REFUSED):
            return
        if state.mine is None:
            out.append(None)
        else:
            self.read(state.mine)
        self.past(state.mine_since, timing.lease)
        self.past(state.renewed_at, timing.lease)
        self.past(state.met_at, timing.lease)
        self.lease_request(state.renewal)
        self.lease_request(state.burial)
        for at in (
            state.renew_after,
            state.bury_after,
            state.list_after,
            state.swap_after,
            state.mark_after,
            state.read_after,
        ):
            self.future(at)
        for other in state.others:
            self.read(other.read)
            self.past(other.since, timing.lease)
            self.lease(other.last)
        for gone in sorted(state.gone):
            self.identity(gone)
        listing = state.listing
        if listing is not None:
            self.number(listing.number)
            self.version(listing.mine)
            self.nonce(listing.nonce)
            for owner in sorted(listing.owners):
                self.identity(owner)
            out.append(tuple(other.since < listing.sent_at for other in state.others))
        self.seen(state.seen)
        if state.swap is not None:
            self.number(state.swap.number)
            self.assignment(state.swap.assignment)
        if state.reading is not None:
            self.number(state.reading.number)
            self.version(state.reading.version)
        self.nonce(state.listed)
        self.past(state.clear.at if state.clear is not None else NEVER, timing.write + 1)
        out.append(state.clear is None)
        for range_, epoch, is_clean in sorted(state.taken):
            out.append((range_, is_clean))
            self.epoch(range_, epoch)
        for hold in state.holds:
            out += hold.range, hold.is_clean, hold.stage
            self.term(hold.range, hold.term)
            self.past(hold.since, timing.write + 1)
        for warmth in state.warmths:
            out += warmth.range, warmth.is_warm
            self.number(warmth.ticket)

    def node(self, node: Node) -> None:
        self.numbers = {0: 0}
        self.clock = float(self.world.time + node.offset)
        self.out.append("node")
        if node.state is not None:
            self.state(node.state)
            for version in node.leases:
                self.version(version)
            self.version(node.assignment)
        self.out.append(tuple(item.is_orphan for item in node.requests))
        for item in node.requests:
            self.message(item.effect)
        for answer in node.answers:
            self.message(answer)
        for number, age in node.waiting:
            self.number(number)
            self.out.append(min(age, self.scope.client_patience))
        for effect in (*node.work, *node.ends):
            self.message(effect)
        for thread in node.threads:
            self.out += thread.range, thread.is_over
            self.term(thread.range, thread.term)

    def write(self) -> tuple[Any, ...]:
        world = self.world
        out = self.out
        out += (
            world.hot,
            world.faults,
            world.unserved,
            tuple(sorted(world.blocks)),
            tuple(sorted(world.unread)),
        )
        for lease in world.leases:
            self.read(lease)
        self.seen(world.assignment)
        for node in world.nodes:
            self.node(node)
        ranks = {version: rank for rank, version in enumerate(sorted({out[at] for at in self.versions}))}
        for at in self.versions:
            out[at] = ranks[out[at]]
        least: dict[int, int] = {}
        for at, range_ in self.epochs:
            least[range_] = min(out[at], least.get(range_, out[at]))
        for at, range_ in self.epochs:
            out[at] -= least[range_]
        first = min((out[at] for at in self.serials), default=0)
        for at in self.serials:
            out[at] -= first
        return tuple(out)


def key_of(scope: Scope, world: World) -> int:
    """Return a number that worlds share if nobody can tell them apart."""
    return hash(_Writer(scope, world).write())
