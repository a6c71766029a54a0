"""A replica in cases that the model of tests/assignment doesn't have: clocks that jump, names that two pods
share, disputes, restores, garbage. Each is a clear state, and nothing is handled twice."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from kopf_selectcache.core.assignment.machine import step
from kopf_selectcache.core.assignment.records import Assignment, AssignmentRead, Lease, LeaseRead, Share
from kopf_selectcache.core.assignment.replica import (
    Answered,
    AssignmentSeen,
    CatchUp,
    CaughtUp,
    Decline,
    DeleteLease,
    Drained,
    Effect,
    Input,
    LeaseSeen,
    LeasesListed,
    ListLeases,
    Options,
    Outcome,
    Phase,
    ReadAssignment,
    StartRange,
    State,
    Stop,
    SwapAssignment,
    SwapLease,
    Term,
    Tick,
    Warm,
    Warmed,
    begin,
    deadline_of,
    due,
    identity_of,
    starts_at,
    status,
    time_left,
)


class Replica:
    """One replica, and a server that does at once what it asks for."""

    def __init__(
        self, name: str = "web-1", nonce: str = "aa", *, ranges: int = 2, by: str = "namespace"
    ) -> None:
        self.state: State = begin(Options(name, nonce, by, ranges=ranges), 0.0)
        self.at = 0.0
        self.version = 100
        self.leases: dict[str, LeaseRead] = {}
        self.assignment = AssignmentRead()
        self.effects: list[Effect] = []
        self.is_up = True

    def give(self, *inputs: Input) -> list[Effect]:
        """Give inputs to the replica, and answer all that follows. Return all effects."""
        seen: list[Effect] = []
        waiting = [*inputs]
        while waiting:
            stepped = step(self.state, waiting.pop(0), self.at)
            self.state = stepped.state
            seen += stepped.effects
            waiting += [answer for effect in stepped.effects if (answer := self.answer(effect)) is not None]
        self.effects += seen
        return seen

    def answer(self, effect: Effect) -> Input | None:
        match effect:
            case ListLeases(number) if self.is_up:
                return LeasesListed(number, tuple(self.leases.values()))
            case ReadAssignment(number) if self.is_up:
                return AssignmentSeen(self.assignment, number)
            case SwapLease(number, read) if self.is_up:
                known = self.leases.get(read.name, LeaseRead(read.name))
                if (known.version if known.uid else "", known.uid) != (
                    read.version if read.uid else "",
                    read.uid,
                ):
                    return Answered(number, Outcome.REFUSED)
                self.write(read.name, read.lease)
                return Answered(number, Outcome.YES, str(self.version), "u")
            case DeleteLease(number, read) if self.is_up:
                del self.leases[read.name]
                return Answered(number, Outcome.YES)
            case SwapAssignment(number, version, uid, assignment) if self.is_up:
                if (self.assignment.version, self.assignment.uid) != (version, uid):
                    return Answered(number, Outcome.REFUSED)
                self.version += 1
                self.assignment = AssignmentRead(str(self.version), "u", assignment)
                return Answered(number, Outcome.YES, str(self.version), "u")
            case Warm(range_, ticket):
                return Warmed(range_, ticket)
            case CatchUp(range_, term):
                return CaughtUp(((range_, term),))
            case ListLeases(number) | ReadAssignment(number) | SwapLease(number) | SwapAssignment(number):
                return Answered(number, Outcome.NO_ANSWER)
            case _:
                return None

    def write(self, name: str, lease: Lease | None) -> LeaseRead:
        """Let somebody write a Lease."""
        self.version += 1
        self.leases[name] = LeaseRead(name, str(self.version), "u", lease)
        return self.leases[name]

    def run(self, until: float) -> None:
        """Let time go by, as the replica itself wants to be woken."""
        while (at := due(self.state)) <= until:
            assert at > self.at or self.give(Tick()), "it wants to be woken for nothing"
            self.at = max(self.at, at)
            self.give(Tick())
        self.at = until

    def acting(self) -> list[int]:
        holds = self.state.holds
        return [each.range for each in holds if time_left(self.state, each.range, each.term, self.at) > 0.0]

    @property
    def condition(self) -> str:
        return status(self.state, self.at).condition


def working() -> Replica:
    replica = Replica()
    replica.give(Tick())
    replica.run(6.0)
    assert replica.acting() == [0, 1]
    return replica


def test_21_after_a_clock_has_jumped_it_begins_anew_and_buries_nobody() -> None:
    replica = working()
    replica.give(LeaseSeen(replica.write("web-2", Lease("web-2/bb-1", "aa-1-4"))))
    replica.at += 3600.0
    replica.effects.clear()
    replica.give(Tick())
    assert identity_of(replica.state) == "web-1/aa-2"
    written = [each.read.name for each in replica.effects if isinstance(each, SwapLease)]
    assert {*written} == {"web-1"}
    assert replica.acting() == []


def test_21_two_pods_of_one_name_are_distinguished() -> None:
    replica = Replica()
    for each in range(20):
        replica.at = 10.0 * each
        read = replica.write("web-1", Lease("web-1/zz-1", "n", written=float(each)))
        replica.give(LeaseSeen(read))
    assert replica.acting() == []
    assert replica.condition.startswith("another process, web-1/zz-1, holds the Lease of this name: two pods")
    assert not any(isinstance(each, (SwapLease, SwapAssignment)) for each in replica.effects)


def test_a_pod_that_comes_back_under_its_name_waits_for_the_old_lease() -> None:
    replica = Replica()
    replica.write("web-1", Lease("web-1/zz-1", "n"))
    replica.give(Tick())
    replica.run(39.9)
    assert replica.state.phase is Phase.JOINING
    replica.run(46.0)
    assert replica.acting() == [0, 1]


def other_way() -> Assignment:
    return Assignment("object", "fnv1a-64", "n", 1, (Share("web-2/bb-1", 1, "web-2/bb-1"),) * 2)


def test_21_a_replica_that_divides_in_another_way_does_not_start_beside_others() -> None:
    replica = Replica()
    replica.assignment = AssignmentRead("50", "u", other_way())
    replica.write("web-2", Lease("web-2/bb-1", "n"))
    replica.give(Tick())
    assert replica.acting() == []
    replica.at = 10.0
    replica.give(LeaseSeen(replica.write("web-2", Lease("web-2/bb-1", "n", written=1.0))), Tick())
    assert isinstance(replica.effects[-1], Decline)
    assert replica.condition == (
        "web-2 divides 2 ranges by 'object' (fnv1a-64);"
        " this replica divides 2 by 'namespace' (mixed-fnv1a-64)"
    )
    assert due(replica.state) == inf


def test_an_assignment_of_another_kind_that_nobody_lives_by_is_replaced() -> None:
    replica = Replica()
    replica.assignment = AssignmentRead("50", "u", other_way())
    replica.write("web-2", Lease("web-2/bb-1", "n"))
    replica.give(Tick())
    replica.run(100.0)
    assert replica.acting() == [0, 1]
    assert replica.assignment.assignment is not None
    assert replica.assignment.assignment.by == "namespace"


@pytest.mark.parametrize(("range_", "owner"), [(0, "web-9/zz-1"), (1, "")])
def test_21_it_stops_when_somebody_gives_its_range_away(range_: int, owner: str) -> None:
    replica = working()
    assignment = replica.assignment.assignment
    assert assignment is not None
    shares = [*assignment.shares]
    shares[range_] = replace(shares[range_], owner=owner)
    replica.version += 1
    replica.assignment = AssignmentRead(
        str(replica.version), "u", replace(assignment, serial=assignment.serial + 1, shares=tuple(shares))
    )
    replica.effects.clear()
    replica.is_up = False
    replica.give(AssignmentSeen(replica.assignment))
    assert [type(each) for each in replica.effects[:2]] == [Stop, Stop]
    assert replica.condition == (
        f"the assignment can't be used: somebody gave range {range_} to {owner or 'nobody'}"
    )
    replica.effects.clear()
    replica.give(AssignmentSeen(replica.assignment))
    assert replica.acting() == [], "the same is not believed when it is seen again"
    replica.is_up = True
    replica.run(replica.at + 10.0)
    assert replica.acting() == [0, 1], "it has made the assignment anew"


def test_21_it_does_not_act_on_a_range_that_somebody_gave_it() -> None:
    replica = working()
    assignment = replica.assignment.assignment
    assert assignment is not None
    given = replace(assignment.shares[1], epoch=7)
    replica.version += 1
    replica.assignment = AssignmentRead(
        str(replica.version),
        "u",
        replace(assignment, serial=assignment.serial + 1, shares=(assignment.shares[0], given)),
    )
    replica.state.holds = replica.state.holds[:1]  # As if the other range had never been its own.
    replica.is_up = False
    replica.give(AssignmentSeen(replica.assignment))
    assert replica.condition == "the assignment can't be used: somebody gave range 1 to web-1/aa-1"
    assert replica.acting() == []


def test_21_a_renewal_whose_lease_was_taken_right_after_it_begins_a_new_life() -> None:
    """The watch tells of the taking before the answer to the renewal comes."""
    replica = working()
    replica.at += replica.state.options.timing.renew
    (renewal,) = step(replica.state, Tick(), replica.at).effects
    assert isinstance(renewal, SwapLease)
    replica.state = step(replica.state, Tick(), replica.at).state
    replica.state.mine = LeaseRead("web-1", "900", "u", Lease())
    replica.effects.clear()
    replica.give(Answered(renewal.request, Outcome.YES, "899", "u"))
    assert [type(each) for each in replica.effects[:2]] == [Stop, Stop]
    assert identity_of(replica.state) == "web-1/aa-2"


def test_possible_faults_are_reported_in_order() -> None:
    replica = working()
    seen = replica.state.seen
    assert seen is not None
    replica.state.seen = None
    assert replica.condition == "it hasn't read the assignment yet"
    replica.state.seen = AssignmentRead()
    assert replica.condition == "there is no assignment"
    replica.state.seen, replica.state.clear = seen, None
    assert replica.condition == "others may still act by an earlier assignment"
    assert starts_at(replica.state, replica.state.holds[0]) == inf
    replica.at = deadline_of(replica.state)
    assert replica.condition == "it has not renewed its Lease in time"


@pytest.mark.parametrize("is_known", [True, False])
def test_of_an_owner_without_a_lease_one_waits_for_the_time_of_a_lease(*, is_known: bool) -> None:
    """Somebody has deleted the Lease of a replica that owns a range, before or after it was seen."""
    replica = working()
    assignment = replica.assignment.assignment
    assert assignment is not None
    other = Replica("web-2", "bb")
    other.leases, other.assignment, other.version = replica.leases, replica.assignment, replica.version
    if is_known:
        other.give(Tick())
    del other.leases["web-1"]
    before = other.at
    other.give(Tick())
    other.run(before + 120.0)
    assert other.acting() == [0, 1]
    taken = [each for each in other.effects if isinstance(each, StartRange)]
    assert len(taken) == 2
    assert all(hold.since >= before + other.state.options.timing.lease for hold in other.state.holds)
    other.run(before + 200.0)
    assert ({*other.leases}, [*other.state.others]) == ({"web-2"}, []), "it is forgotten"


def test_an_older_event_of_a_watch_changes_nothing() -> None:
    replica = working()
    before = replica.state
    replica.give(AssignmentSeen(AssignmentRead("5", "u", broken="old")))
    replica.give(LeaseSeen(LeaseRead("web-1", "5", "u", Lease())))
    assert replica.acting() == [0, 1]
    assert (replica.state.seen, replica.state.mine) == (before.seen, before.mine)


def test_21_it_stops_after_a_restore_of_the_server() -> None:
    """The versions go back, and its next renewal is refused."""
    replica = working()
    replica.leases["web-1"] = LeaseRead("web-1", "20", "u", Lease("web-1/aa-1", ""))
    replica.version = 20
    replica.assignment = AssignmentRead("19", "u", broken="edited")
    replica.effects.clear()
    replica.run(20.0)
    assert [type(each) for each in replica.effects if isinstance(each, Stop)] == [Stop, Stop]
    replica.run(60.0)
    assert identity_of(replica.state) == "web-1/aa-2"
    assert replica.acting() == [0, 1]


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    replica = working()
    replica.give(Tick())
    before = replica.state
    replica.give(Answered(9999, Outcome.YES, "7", "u"), Drained(0, Term("old", 1)), Warmed(0, 9999))
    replica.give(LeasesListed(9999, ()), AssignmentSeen(AssignmentRead(), 9999))
    assert replica.state == before
