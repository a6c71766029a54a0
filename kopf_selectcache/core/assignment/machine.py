"""The rules of ownership as a state machine: `step(state, input, at)` returns the next state and the effects.
No I/O.

Theory of operation
-------------------
Each replica has a Lease. All ranges are in one object, the assignment, which says who owns each. Both change
by compare-and-swap only. At no time do two replicas act on a range, because of these rules:

1. *Whoever acts has renewed.* A replica acts until `margin` before its Lease can expire, measured from before
   the last renewal that succeeded was sent. Then it stops, and begins a new life under a new identity: an
   answer that comes later changes nothing.
2. *Only the owner frees a range, and only a taker takes it.* The owner frees it once nothing runs for it, and
   says whether a write of a run that it has cancelled may still arrive.
3. *A range is taken from the dead only.* An identity is dead once its Lease names another holder. To declare
   it dead, a replica swaps its Lease, at the version that it has seen unchanged for as long as a Lease lasts.
   So either the owner's renewal fails, or the swap does.
4. *What was not freed may still be written.* Whoever takes a range that its owner has not freed, or not
   cleanly, waits for the longest time of a write.
5. *An assignment that somebody deleted, edited or put back is made anew* under a new nonce, with all ranges
   free. A replica takes ranges after its own Lease says by which nonce it acts. It acts once a list of all
   Leases, begun after it saw the nonce, has shown that nobody acts by another one.
6. *No answer is not no.* A swap without an answer may still be done. What it frees is not used any more, and
   what it takes is found by reading.

A range moves between living replicas without a gap: the desired owner warms it and marks it, the owner drains
and frees it, the desired owner takes it. It starts once its caches have caught up with what the owner wrote.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from .knowledge import Turn
from .records import Assignment, AssignmentRead, Lease, LeaseRead, Share, fresh, replica_of
from .rendezvous import desired_owners
from .replica import (
    NEVER,
    CatchUp,
    Clear,
    Cool,
    Decline,
    DeleteLease,
    Drain,
    Effect,
    Hold,
    Input,
    LeaseListing,
    LeaseRequest,
    Left,
    ListLeases,
    Other,
    Phase,
    ReadAssignment,
    Reading,
    Stage,
    State,
    SwapAssignment,
    SwapLease,
    SwapRequest,
    Warm,
    Warmth,
    assignment_of,
    identity_of,
    is_own,
    starts_at,
)


class Transition(Struct, frozen=True):
    state: State
    effects: tuple[Effect, ...]


def step(state: State, input_: Input, at: float) -> Transition:
    """Take an input in, at a time of the local clock. The given state stays as it is."""
    turn = _Pursuit(state, at)
    turn.take(input_)
    turn.pursue()
    return Transition(turn.state, tuple(turn.effects))


class _Pursuit(Turn):
    """The second half of a step: whatever follows from what is known now."""

    def pursue(self) -> None:
        """Want whatever follows from what is known now."""
        state = self.state
        if state.phase in (Phase.LEFT, Phase.REFUSED):
            return
        if state.is_leaving and state.phase is Phase.JOINING:
            state.phase, state.renewal = Phase.LEFT, None
            self.effects.append(Left())
            return
        self._pursue_assignment()
        self._pursue_lease()
        if state.met_at != NEVER:
            self._note_absent()
        if state.phase is Phase.MEMBER:
            self._bury()
        self._ask()

    def _pursue_lease(self) -> None:
        """Get a Lease, renew it, or give it back."""
        state, mine = self.state, self.state.mine
        if mine is None:
            state.wants_list = True
            return
        if state.renewal is not None or self.now < state.renew_after or state.phase is Phase.REFUSED:
            return
        me, nonce = identity_of(state), self._nonce()
        if state.phase is Phase.JOINING:
            lease = mine.lease
            is_free = not mine.uid or (
                lease is not None and (not lease.holder or is_own(state, lease.holder))
            )
            if not is_free and self.now < state.mine_since + self.timing.lease:
                return
            wanted = Lease(me, "", written=self.now)
        elif state.is_leaving and not state.holds and state.swap is None:
            wanted = Lease()
        else:
            lease, assignment = mine.lease or Lease(), assignment_of(state)
            follows = lease.follows if assignment is None or self._is_other(assignment) else nonce
            is_changed = (lease.follows, lease.is_leaving) != (follows, state.is_leaving)
            if not is_changed and self.now < state.renewed_at + self.timing.renew:
                return
            wanted = Lease(me, follows, state.is_leaving, self.now)
        state.renewal = LeaseRequest(self._number(), self.now, replace(mine, lease=wanted))
        self.effects.append(SwapLease(state.renewal.number, state.renewal.read))

    def _pursue_assignment(self) -> None:
        """Make the assignment, or own the right ranges in it."""
        state, seen = self.state, self.state.seen
        if seen is None:
            state.wants_read = True
            return
        if state.phase is not Phase.MEMBER:
            return
        assignment = seen.assignment
        if assignment is None:
            self._make_anew(seen)
        elif self._is_other(assignment):
            self._settle_dispute(seen, assignment)
        elif (
            state.mine is not None
            and state.mine.lease is not None
            and state.mine.lease.follows == assignment.nonce
        ):
            self._latch_clear(assignment)
            self._propose(seen, assignment, self._pursue_ranges(assignment))

    def _make_anew(self, seen: AssignmentRead) -> None:
        state, options = self.state, self.state.options
        if state.is_leaving or not self._may_swap():
            return
        number, me = self._number(), identity_of(state)
        nonce = f"{options.nonce}-{state.life}-{number}"
        self._swap(number, seen, fresh(options.by, options.hash, nonce, options.ranges, me))

    def _settle_dispute(self, seen: AssignmentRead, assignment: Assignment) -> None:
        """Replace an assignment that divides the work in another way, unless somebody lives by it."""
        state = self.state
        rivals = [
            other for other in state.others if other.last.holder and other.last.follows == assignment.nonce
        ]
        if state.listed != assignment.nonce:
            return
        if any(rival.has_renewed for rival in rivals):
            names = ", ".join(rival.read.name for rival in rivals)
            verb = "divides" if len(rivals) == 1 else "divide"
            state.refusal = (
                f"{names} {verb} {len(assignment.shares)} ranges by {assignment.by!r} ({assignment.hash});"
                f" this replica divides {state.options.ranges} by {state.options.by!r} ({state.options.hash})"
            )
            state.phase = Phase.REFUSED
            self.effects.append(Decline(state.refusal))
        elif not rivals:
            self._make_anew(seen)

    def _latch_clear(self, assignment: Assignment) -> None:
        """Note when it has turned out that nobody acts by another assignment."""
        state = self.state
        is_blocked = any(self._blocks(other, assignment.nonce) for other in state.others)
        if state.clear is None and state.listed == assignment.nonce and not is_blocked:
            state.clear = Clear(assignment.nonce, self.now)

    def _blocks(self, other: Other, nonce: str) -> bool:
        """Return True if a replica may still act by another assignment."""
        is_over = not other.read.uid and self.now >= other.since + self.timing.lease
        return bool(other.last.holder) and other.last.follows not in ("", nonce) and not is_over

    def _live(self, nonce: str) -> dict[str, str]:
        """Return the identities that can own ranges, by the names of their replicas."""
        state, found = self.state, dict[str, str]()
        if not state.is_leaving:
            found[state.options.name] = identity_of(state)
        for other in state.others:
            lease = other.read.lease
            if lease is None or not lease.holder or lease.follows != nonce or lease.is_leaving:
                continue
            if self.now < other.since + self.timing.lease:
                found[other.read.name] = lease.holder
        return found

    def _pursue_ranges(self, assignment: Assignment) -> dict[int, Share]:
        """Warm, prepare and drain ranges. Return the shares that the assignment should have."""
        state, me = self.state, identity_of(self.state)
        live = self._live(assignment.nonce)
        desired = desired_owners(frozenset(live), len(assignment.shares))
        holds = {hold.range: hold for hold in state.holds}
        warmths = {each.range: each for each in state.warmths}
        warming = sum(not each.is_warm and each.range not in holds for each in state.warmths)
        wanted: dict[int, Share] = {}
        for range_, share in enumerate(assignment.shares):
            hold, warmth = holds.get(range_), warmths.get(range_)
            if hold is not None:
                if warmth is None and not state.is_leaving:
                    warmths[range_] = self._warm(range_)
                heir = desired[range_]
                is_heir_warm = heir in live and live[heir] == share.warm != me
                holds[range_] = hold = self._pursue_hold(hold, warmth, frees=state.is_leaving or is_heir_warm)
                if hold.stage is Stage.DRAINED:
                    wanted[range_] = Share("", share.epoch, me, hold.is_clean, share.warm)
            elif (
                not state.is_leaving
                and live[state.options.name] == me
                and desired[range_] == state.options.name
            ):
                is_free = self._is_free(share)
                if warmth is None and (is_free or warming < state.options.warm_at_once):
                    warmths[range_] = self._warm(range_)
                    warming += not is_free
                if is_free:
                    wanted[range_] = Share(me, share.epoch + 1, me)
                elif warmth is not None and warmth.is_warm and share.warm not in live.values():
                    wanted[range_] = replace(share, warm=me)
            else:
                if warmth is not None:
                    self.effects.append(Cool(range_, warmth.ticket))
                    del warmths[range_]
                if share.warm == me:
                    wanted[range_] = replace(share, warm="")
        state.holds = tuple(holds.values())
        state.warmths = tuple(warmths.values())
        return wanted

    def _is_free(self, share: Share) -> bool:
        """Return True if nobody acts on a range any more, or can begin to."""
        state, owner = self.state, share.owner
        return not owner or owner in state.gone or replica_of(owner) == state.options.name

    def _warm(self, range_: int) -> Warmth:
        warmth = Warmth(range_, self._number())
        self.effects.append(Warm(range_, warmth.ticket))
        return warmth

    def _pursue_hold(self, hold: Hold, warmth: Warmth | None, *, frees: bool) -> Hold:
        """Prepare or drain a range that this replica owns."""
        if hold.stage in (Stage.WAITING, Stage.CATCHING_UP) and frees:
            return replace(hold, stage=Stage.DRAINED)
        if hold.stage is Stage.WAITING:
            if warmth is not None and warmth.is_warm and self.now >= starts_at(self.state, hold):
                self.effects.append(CatchUp(hold.range, hold.term))
                return replace(hold, stage=Stage.CATCHING_UP, is_clean=True)
        elif hold.stage is Stage.ACTING and frees:
            self.effects.append(Drain(hold.range, hold.term))
            return replace(hold, stage=Stage.DRAINING)
        return hold

    def _propose(self, seen: AssignmentRead, assignment: Assignment, wanted: Mapping[int, Share]) -> None:
        """Ask for all changes of the assignment by one swap."""
        state, me = self.state, identity_of(self.state)
        if not wanted or not self._may_swap():
            return
        if all(share.owner == assignment.shares[range_].owner for range_, share in wanted.items()):
            # Replicas that see other members could put their marks on a range in turn, without an end.
            if self.now < state.mark_after:
                return
            state.mark_after = self.now + self.timing.retry
        state.taken |= {
            (range_, share.epoch, assignment.shares[range_].is_clean and not assignment.shares[range_].owner)
            for range_, share in wanted.items()
            if share.owner == me
        }
        shares = tuple(wanted.get(range_, share) for range_, share in enumerate(assignment.shares))
        self._swap(self._number(), seen, replace(assignment, serial=assignment.serial + 1, shares=shares))

    def _may_swap(self) -> bool:
        state = self.state
        is_known = not state.wants_read and state.reading is None
        return is_known and state.swap is None and self.now >= state.swap_after

    def _swap(self, number: int, seen: AssignmentRead, assignment: Assignment) -> None:
        self.state.swap = SwapRequest(number, assignment)
        self.effects.append(SwapAssignment(number, seen.version, seen.uid, assignment))

    # ---- The dead.

    def _note_absent(self) -> None:
        """Note owners that have no Lease: they are dead once that has lasted."""
        for owner in self._owners():
            if all(other.read.name != replica_of(owner) for other in self.state.others):
                absent = LeaseRead(replica_of(owner))
                self._note(Other(absent, self.now, last=Lease(owner, self._nonce())))

    def _bury(self) -> None:
        """Declare a replica dead whose Lease has not changed in time, or clear its Lease away."""
        state, owners = self.state, self._owners()
        if state.burial is not None or self.now < state.bury_after:
            return
        for other in state.others:
            name, read = other.read.name, other.read
            if self.now < other.since + self.timing.lease:
                continue
            owned = {owner for owner in owners if replica_of(owner) == name}
            if read.uid and read.lease is not None and not read.lease.holder:
                if not owned and name != state.options.name:
                    state.burial = LeaseRequest(self._number(), self.now, replace(read, lease=None, uid=""))
                    self.effects.append(DeleteLease(state.burial.number, read))
                    return
            elif read.uid or owned:
                buried = replace(read, lease=Lease(written=self.now))
                dead = frozenset({other.last.holder, *owned})
                state.burial = LeaseRequest(self._number(), self.now, buried, dead)
                self.effects.append(SwapLease(state.burial.number, buried))
                return
            else:
                state.others = tuple(each for each in state.others if each is not other)

    def _owners(self) -> frozenset[str]:
        """Return the identities of other replicas that own ranges, as far as they aren't known to be dead."""
        state, assignment = self.state, assignment_of(self.state)
        owners = {share.owner for share in assignment.shares} if assignment is not None else set[str]()
        state.gone &= owners
        return frozenset(
            owner
            for owner in owners
            if owner and owner not in state.gone and replica_of(owner) != state.options.name
        )

    # ---- Lists and reads.

    def _ask(self) -> None:
        """Ask for what must be known for sure."""
        state, nonce, owners = self.state, self._nonce(), self._owners()
        if state.phase is Phase.MEMBER:
            holders = {other.read.name: other.read.lease for other in state.others}
            state.wants_list |= bool(nonce) and state.listed != nonce
            state.wants_list |= any(
                (lease := holders.get(replica_of(owner))) is not None and lease.holder != owner
                for owner in owners
            )
        if state.wants_list and state.listing is None and self.now >= state.list_after:
            mine = state.mine.version if state.mine is not None else ""
            state.listing = LeaseListing(self._number(), self.now, mine, nonce, owners)
            self.effects.append(ListLeases(state.listing.number))
        if state.wants_read and state.reading is None and self.now >= state.read_after:
            version = state.seen.version if state.seen is not None else ""
            state.reading = Reading(self._number(), version)
            self.effects.append(ReadAssignment(state.reading.number))
