"""Take in an input: the first half of a step of `core.assignment.machine`."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from msgspec.structs import replace

from kopf_selectcache.core.store.record import is_older

from .records import Assignment, AssignmentRead, Lease, LeaseRead, replica_of
from .replica import (
    NEVER,
    Answered,
    AssignmentSeen,
    CaughtUp,
    Drained,
    Effect,
    Hold,
    Input,
    LeaseRequest,
    LeaseSeen,
    LeasesListed,
    Left,
    Other,
    Outcome,
    Phase,
    Resign,
    Stage,
    StartRange,
    State,
    Stop,
    Term,
    Tick,
    Warmed,
    assignment_of,
    deadline_of,
    identity_of,
)


class Turn:
    """One step: a copy of the state that changes, and the effects."""

    def __init__(self, state: State, at: float) -> None:
        self.state = copy(state)
        self.state.now = max(at, state.now)
        self.effects: list[Effect] = []
        self.timing = state.options.timing
        self._expire()

    @property
    def now(self) -> float:
        return self.state.now

    def _number(self) -> int:
        self.state.numbers += 1
        return self.state.numbers

    # ---- Stopping.

    def _expire(self) -> None:
        if self.state.phase is Phase.MEMBER and self.now >= deadline_of(self.state):
            self._begin_anew("the Lease was not renewed in time")

    def _begin_anew(self, why: str) -> None:
        """Stop, and live on under another identity."""
        state = self.state
        self._stop_all(why)
        state.phase = Phase.JOINING
        state.life += 1
        state.renewed_at = state.met_at = NEVER
        state.renewal = state.burial = state.listing = state.swap = state.clear = None
        state.taken, state.listed = frozenset(), ""
        state.wants_list = state.wants_read = True

    def _stop_all(self, why: str) -> None:
        for hold in self.state.holds:
            if hold.stage not in (Stage.WAITING, Stage.CATCHING_UP):
                self.effects.append(Stop(hold.range, hold.term, why))
        self.state.holds = ()

    # ---- Inputs.

    def take(self, input_: Input) -> None:
        match input_:
            case Tick():
                pass
            case LeaseSeen(read):
                self._see_lease(read)
            case LeasesListed(request, reads):
                self._take_list(request, reads)
            case AssignmentSeen(read, request):
                self._see_assignment(read, request)
            case Answered():
                self._answer(input_)
            case Warmed(range_, ticket):
                self.state.warmths = tuple(
                    replace(each, is_warm=True) if (each.range, each.ticket) == (range_, ticket) else each
                    for each in self.state.warmths
                )
            case CaughtUp(ranges):
                for hold in self.state.holds:
                    if hold.stage is Stage.CATCHING_UP and (hold.range, hold.term) in ranges:
                        self._replace(replace(hold, stage=Stage.ACTING))
                        self.effects.append(StartRange(hold.range, hold.term))
            case Drained(range_, term, is_clean):
                for hold in self.state.holds:
                    if (hold.range, hold.term, hold.stage) == (range_, term, Stage.DRAINING):
                        self._replace(replace(hold, stage=Stage.DRAINED, is_clean=is_clean))
            case Resign():
                self.state.is_leaving = True

    def _replace(self, hold: Hold) -> None:
        self.state.holds = tuple(hold if each.range == hold.range else each for each in self.state.holds)

    def _see_lease(self, read: LeaseRead, *, is_newest: bool = False) -> None:
        """Note what a Lease says. `is_newest` if an older version means that the server was restored."""
        if read.name == self.state.options.name:
            self._see_mine(read)
            return
        known = next((each for each in self.state.others if each.read.name == read.name), None)
        if known is None:
            if read.uid:
                self._note(Other(read, self.now, last=read.lease or Lease("?", "?")))
        elif known.read != read and (is_newest or not is_older(read.version, known.read.version)):
            self._note(Other(read, self.now, has_renewed=True, last=read.lease or known.last))
        if read.lease is not None and read.lease.follows not in ("", self._nonce()):
            self.state.wants_read = True

    def _note(self, other: Other) -> None:
        others = {each.read.name: each for each in self.state.others} | {other.read.name: other}
        self.state.others = tuple(others[name] for name in sorted(others))

    def _see_mine(self, read: LeaseRead, *, is_newest: bool = False) -> None:
        state = self.state
        if state.mine is not None and is_older(read.version, state.mine.version) and not is_newest:
            return
        if state.mine is None or state.mine != read:
            state.mine_since = self.now
        state.mine = read
        if state.phase is Phase.MEMBER and (read.lease is None or read.lease.holder != identity_of(state)):
            self._begin_anew("the Lease was taken, edited or deleted")

    def _take_list(self, number: int, reads: Iterable[LeaseRead]) -> None:
        """Note what all Leases say, which was true after the list was sent."""
        state, listing = self.state, self.state.listing
        if listing is None or listing.number != number:
            return
        state.listing, state.wants_list = None, False
        if listing.nonce == self._nonce() != "":  # The next one has no other question, so it can wait.
            state.list_after = self.now + self.timing.retry
        state.met_at = self.now if state.met_at == NEVER else state.met_at
        by_name = {read.name: read for read in reads}
        mine = by_name.pop(state.options.name, LeaseRead(state.options.name))
        if state.mine is None or (mine.uid and not is_older(mine.version, listing.mine)):
            self._see_mine(mine)
        elif state.mine.version == listing.mine:  # It was deleted, or the server was restored.
            self._see_mine(mine, is_newest=True)
            if mine.uid and state.phase is Phase.MEMBER:
                self._begin_anew("the server went back to an earlier state")
        for other in state.others:
            if other.read.name not in by_name and other.read.uid and other.since <= listing.sent_at:
                self._see_lease(replace(other.read, uid="", lease=None))
        for read in by_name.values():
            known = next((each for each in state.others if each.read.name == read.name), None)
            self._see_lease(read, is_newest=known is not None and known.since < listing.sent_at)
        state.gone |= {
            owner
            for owner in listing.owners
            if (listed := by_name.get(replica_of(owner))) is not None
            and listed.lease is not None
            and listed.lease.holder != owner
        }
        if listing.nonce and listing.nonce == self._nonce():
            state.listed = listing.nonce

    def _see_assignment(self, read: AssignmentRead, request: int) -> None:
        state, known, reading = self.state, self.state.seen, self.state.reading
        if not request:
            if known is None or not is_older(read.version, known.version):
                self._adopt(read)
            return
        if reading is None or reading.number != request:
            return
        state.reading, state.wants_read = None, False
        if known is None or known.version == reading.version:
            self._adopt(read, went_back=is_older(read.version, reading.version))
        elif read.uid and not is_older(read.version, known.version):
            self._adopt(read)

    def _answer(self, answer: Answered) -> None:
        """Take in the answer to a swap, or the failure of a list or read."""
        state = self.state
        if state.renewal is not None and state.renewal.number == answer.request:
            request, state.renewal = state.renewal, None
            self._renewed(request, answer)
        elif state.burial is not None and state.burial.number == answer.request:
            request, state.burial = state.burial, None
            self._buried(request, answer)
        elif state.swap is not None and state.swap.number == answer.request:
            swap, state.swap = state.swap, None
            if answer.outcome is not Outcome.YES:
                # Whoever lost a race tries again as soon as the newer state is read.
                state.wants_read, state.swap_after = True, self.now + self.timing.retry
            elif state.seen is None or not is_older(answer.version, state.seen.version):
                self._adopt(AssignmentRead(answer.version, answer.uid, swap.assignment))
        elif state.listing is not None and state.listing.number == answer.request:
            state.listing, state.list_after = None, self.now + self.timing.retry
            state.wants_list = True
        elif state.reading is not None and state.reading.number == answer.request:
            state.reading, state.read_after = None, self.now + self.timing.retry
            state.wants_read = True

    def _renewed(self, request: LeaseRequest, answer: Answered) -> None:
        state = self.state
        if answer.outcome is not Outcome.YES:
            state.renew_after = self.now + self.timing.retry
            state.wants_list |= answer.outcome is Outcome.REFUSED
            return
        mine = replace(request.read, version=answer.version, uid=answer.uid)
        if state.mine is None or not is_older(mine.version, state.mine.version):
            state.mine, state.mine_since = mine, self.now
        elif state.mine.lease != mine.lease:
            self._begin_anew("the Lease was taken, edited or deleted")
            return
        if mine.lease is None or not mine.lease.holder:
            state.phase = Phase.LEFT
            self.effects.append(Left())
            return
        if state.phase is Phase.JOINING:
            state.phase = Phase.MEMBER
            # It may have watched nobody before it reached the server in this life.
            state.met_at = self.now if state.met_at == NEVER else state.met_at
            state.others = tuple(replace(each, since=max(each.since, state.met_at)) for each in state.others)
        state.renewed_at = max(state.renewed_at, request.sent_at)
        self._expire()

    def _buried(self, request: LeaseRequest, answer: Answered) -> None:
        state = self.state
        if answer.outcome is not Outcome.YES:
            state.wants_list, state.bury_after = True, self.now + self.timing.retry
            return
        state.gone |= request.buries
        self._see_lease(replace(request.read, version=answer.version, uid=answer.uid))

    # ---- The assignment.

    def _nonce(self) -> str:
        assignment = assignment_of(self.state)
        return assignment.nonce if assignment is not None else ""

    def _adopt(self, read: AssignmentRead, *, went_back: bool = False) -> None:
        """Go by a newer state of the assignment."""
        state, old, new = self.state, assignment_of(self.state), read.assignment
        if state.seen is not None and state.seen.broken and state.seen.version == read.version:
            return
        if old is not None and new is not None and old.nonce == new.nonce and new != old:
            is_earlier = went_back or new.serial <= old.serial
            new = None if is_earlier else new
        if new is not read.assignment:
            read = replace(read, assignment=None, broken="somebody put back an earlier state")
        if state.seen is None or state.seen.version != read.version:
            state.swap_after = NEVER
        state.seen = read
        if old is not None and (new is None or new.nonce != old.nonce):
            self._stop_all(read.broken or "the assignment was deleted or made anew")
            state.clear, state.listed, state.taken = None, "", frozenset()
        if new is not None and not self._is_other(new):
            self._compare(new)

    def _compare(self, assignment: Assignment) -> None:
        """Compare what this replica holds with what the assignment says it owns."""
        state, me = self.state, identity_of(self.state)
        holds = {hold.range: hold for hold in state.holds}
        for range_, share in enumerate(assignment.shares):
            hold = holds.get(range_)
            if hold is not None and (share.owner, share.epoch) == (me, hold.term.epoch):
                continue
            if hold is not None:
                if hold.stage is not Stage.DRAINED:
                    self._break(f"somebody gave range {range_} to {share.owner or 'nobody'}")
                    return
                del holds[range_]
            if share.owner == me:
                ways = {
                    is_clean
                    for taken, epoch, is_clean in state.taken
                    if (taken, epoch) == (range_, share.epoch)
                }
                if not ways:
                    self._break(f"somebody gave range {range_} to {me}")
                    return
                holds[range_] = Hold(range_, Term(assignment.nonce, share.epoch), self.now, all(ways))
        state.holds = tuple(holds[range_] for range_ in sorted(holds))
        state.taken = frozenset(each for each in state.taken if each[1] >= assignment.shares[each[0]].epoch)

    def _break(self, why: str) -> None:
        """Don't go by this assignment: it has to be made anew."""
        state = self.state
        self._stop_all(why)
        assert state.seen is not None
        state.seen = replace(state.seen, assignment=None, broken=why)
        state.clear, state.listed, state.taken = None, "", frozenset()

    def _is_other(self, assignment: Assignment) -> bool:
        """Return True if an assignment divides the work in another way."""
        options = self.state.options
        return (assignment.by, assignment.hash, len(assignment.shares)) != (
            options.by,
            options.hash,
            options.ranges,
        )
