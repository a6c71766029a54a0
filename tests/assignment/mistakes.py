"""Mistakes: small changes of the rules, each against one of their sentences. The exploration must find each.

The first ones are what went wrong for others (docs/dev/decisions.md, 0040); the last ones are ours."""

# ruff: noqa: E501

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

from msgspec import Struct

from kopf_selectcache.core.assignment import knowledge, machine, replica

from .world import Rules


class Mistake(NamedTuple):
    """A change of the text of a module."""

    name: str
    scope: str
    """The name of the scope that finds it."""
    says: str
    """A part of the judge's sentence."""
    of: ModuleType
    before: str
    """It occurs once."""
    after: str
    seen_at: str = ""
    """Where it happened to others, and what went wrong there."""
    also: tuple[str, str] = ("", "")
    """Another text of the module, and what replaces it."""


EARLY = "before its last write has arrived"
TWO = "on range"
UNSERVED = "is not served"

MISTAKES = (
    # ---- What went wrong for others.
    Mistake(
        "take from a replica whose Lease has expired, without swapping it",
        "no watch of a",
        TWO,
        machine,
        """                self.effects.append(SwapLease(state.burial.number, buried))
                return
""",
        """                state.gone |= state.burial.buries
                state.burial = None
                return
""",
        "the plain expiry of leader elections",
    ),
    Mistake(
        "count members that can't own ranges",
        "crashes",
        UNSERVED,
        machine,
        "if lease is None or not lease.holder or lease.follows != nonce or lease.is_leaving:",
        "if lease is None or lease.is_leaving:",
        "argo-cd#29476, knative/pkg#3384: ranges had no owner for hours, and all was healthy",
    ),
    Mistake(
        "don't replay the keys of a range that was handed over",
        "parts",
        UNSERVED,
        knowledge,
        "                        self.effects.append(StartRange(hold.range, hold.term))\n",
        "                        if hold.term.epoch == 1:\n"
        "                            self.effects.append(StartRange(hold.range, hold.term))\n",
        "knative/pkg#2473, #1835: keys that came without a leader were never queued again",
    ),
    Mistake(
        "start before the caches have what the last owner wrote",
        "parts",
        "before its caches have caught up",
        machine,
        "                self.effects.append(CatchUp(hold.range, hold.term))\n"
        "                return replace(hold, stage=Stage.CATCHING_UP, is_clean=True)\n",
        "                from kopf_selectcache.core.assignment.replica import StartRange\n"
        "                self.effects.append(StartRange(hold.range, hold.term))\n"
        "                return replace(hold, stage=Stage.ACTING, is_clean=True)\n",
    ),
    Mistake(
        "go on draining after the deadline",
        "a stops while it drains",
        TWO,
        replica,
        "            return max(0.0, deadline_of(state) - at) if is_acting else 0.0",
        "            if hold.stage is Stage.DRAINING:\n"
        "                return state.options.timing.write\n"
        "            return max(0.0, deadline_of(state) - at) if is_acting else 0.0",
        "cilium#42920: a shutdown ran past the deadline of its renewal: two leaders",
    ),
    Mistake(
        "make the assignment anew under the same nonce",
        "strangers",
        "from an earlier term",
        machine,
        'nonce = f"{options.nonce}-{state.life}-{number}"',
        'nonce = "same"',
        "golem#3834: a wiped record handed out an old epoch again",
    ),
    Mistake(
        "fence by the range alone",
        "strangers",
        "from an earlier term",
        replica,
        "is_acting = hold.term == term and hold.stage in (Stage.ACTING, Stage.DRAINING)",
        "is_acting = hold.stage in (Stage.ACTING, Stage.DRAINING)",
        "multicluster-runtime#172: one path of writes bypassed ownership",
    ),
    Mistake(
        "take the Drained of an earlier term for this one",
        "a late acknowledgement",
        EARLY,
        knowledge,
        "if (hold.range, hold.term, hold.stage) == (range_, term, Stage.DRAINING)",
        "if hold.range == range_",
        "Akka.NET#8146, #8147: a late acknowledgement of an old owner counted",
    ),
    Mistake(
        "judge the age of a Lease by the time written in it",
        "other clocks",
        UNSERVED,
        knowledge,
        "self._note(Other(read, self.now, has_renewed=True, last=read.lease or known.last))",
        "self._note(Other(read, read.lease.written if read.lease else self.now, has_renewed=True, last=read.lease or known.last))",
        "talon#165: a Lease was judged by another's clock",
    ),
    Mistake(
        "read no answer to a free as no",
        "a drains without a watch",
        "from an earlier term",
        knowledge,
        "                state.wants_read, state.swap_after = True, self.now + self.timing.retry\n",
        "                state.wants_read, state.swap_after = True, self.now + self.timing.retry\n"
        "                state.holds = tuple(replace(each, stage=Stage.ACTING) for each in state.holds)\n",
        "mitos#930: no answer was taken for no",
    ),
    Mistake(
        "measure a renewal from its answer",
        "slow answers",
        TWO,
        knowledge,
        "state.renewed_at = max(state.renewed_at, request.sent_at)",
        "state.renewed_at = self.now",
        "k/k#23731: a window was measured from the answer, not from the request",
    ),
    Mistake(
        "prepare all ranges at once",
        "few ranges at a time",
        "ranges at once",
        machine,
        "                    warming += not is_free\n",
        "",
        "timebertt#672, rancher#53097, akka#26012: each roll moved everything",
    ),
    Mistake(
        "believe the watch about who is dead",
        "b has no watch of Leases",
        TWO,
        machine,
        "return not owner or owner in state.gone or replica_of(owner) == state.options.name",
        "holders = {other.read.lease.holder for other in state.others if other.read.lease}\n"
        "        return owner not in holders or replica_of(owner) == state.options.name",
        also=("lease.holder != owner\n", "False\n"),
    ),
    # ---- The rest.
    Mistake(
        "mark ranges again and again without a pause",
        "two that see other members",
        "a hot loop",
        machine,
        "if self.now < state.mark_after:",
        "if False:",
        also=("share.warm not in live.values():", "share.warm != me:"),
    ),
    Mistake(
        "act until the Lease can expire",
        "a is cut off, b is fast",
        TWO,
        replica,
        "return state.renewed_at + timing.lease - timing.margin",
        "return state.renewed_at + timing.lease",
    ),
    Mistake(
        "act right after taking a range from the dead",
        "a stopped server",
        EARLY,
        replica,
        "return since if hold.is_clean else since + state.options.timing.write",
        "return since",
    ),
    Mistake(
        "believe that every range was freed by its owner",
        "a stopped server",
        EARLY,
        knowledge,
        "self.now, all(ways))",
        "self.now, True)",
    ),
    Mistake(
        "free a range that was never acted on as clean",
        "a stopped server while one joins",
        EARLY,
        machine,
        "return replace(hold, stage=Stage.DRAINED)",
        "return replace(hold, stage=Stage.DRAINED, is_clean=True)",
    ),
    Mistake(
        "free a range cleanly whose handlers were cancelled",
        "a cancels what it drains",
        EARLY,
        knowledge,
        "replace(hold, stage=Stage.DRAINED, is_clean=is_clean)",
        "replace(hold, stage=Stage.DRAINED)",
    ),
    Mistake(
        "free a range before its handlers have ended",
        "hand-over",
        EARLY,
        machine,
        "return replace(hold, stage=Stage.DRAINING)",
        "return replace(hold, stage=Stage.DRAINED)",
    ),
    Mistake(
        "don't notice that an earlier assignment was put back",
        "strangers while a drains without a watch",
        EARLY,
        knowledge,
        "is_earlier = went_back or new.serial <= old.serial",
        "is_earlier = False",
    ),
    Mistake(
        "act by a new assignment while others act by an earlier one",
        "no watch of a",
        TWO,
        machine,
        "if state.clear is None and state.listed == assignment.nonce and not is_blocked:",
        "if state.clear is None and state.listed == assignment.nonce:",
    ),
    Mistake(
        "take a deleted Lease for a dead replica",
        "b starts, and a has no watch",
        TWO,
        knowledge,
        """            if (listed := by_name.get(replica_of(owner))) is not None
            and listed.lease is not None
            and listed.lease.holder != owner
""",
        """            if (listed := by_name.get(replica_of(owner))) is None
            or (listed.lease is not None and listed.lease.holder != owner)
""",
    ),
    Mistake(
        "bury a replica although its Lease has changed",
        "no watch of a",
        TWO,
        knowledge,
        "self._note(Other(read, self.now, has_renewed",
        "self._note(Other(read, known.since, has_renewed",
    ),
    Mistake(
        "wait forever for a dead replica whose Lease was deleted",
        "strangers and crashes",
        UNSERVED,
        machine,
        "            elif read.uid or owned:\n",
        "            elif read.uid:\n",
    ),
)


def with_mistake(mistake: Mistake) -> Rules:
    """Return the rules with a mistake. Structs and enums stay those of the product."""
    source = Path(str(mistake.of.__file__)).read_text(encoding="utf-8")
    found = source.count(mistake.before)
    assert found == 1, f"{mistake.name!r} changes {found} places"
    assert mistake.also[0] in source, f"{mistake.name!r} changes less than it says"
    originals = (replica, knowledge, machine)
    copies: dict[str, ModuleType] = {}
    try:
        for original in originals:
            text = Path(str(original.__file__)).read_text(encoding="utf-8")
            if original is mistake.of:
                text = text.replace(mistake.before, mistake.after)
                text = text.replace(*mistake.also) if mistake.also[0] else text
            copy = ModuleType(original.__name__)
            copy.__package__ = original.__package__
            # The text is that of the product, but for one sentence.
            exec(compile(text, f"<{original.__name__}, {mistake.name}>", "exec"), copy.__dict__)  # noqa: S102
            for name, value in vars(original).items():
                if isinstance(value, type) and issubclass(value, (Struct, Enum)):
                    setattr(copy, name, value)
            copies[original.__name__] = sys.modules[original.__name__] = copy
    finally:
        for original in originals:
            sys.modules[original.__name__] = original
    rules, questions = copies[machine.__name__], copies[replica.__name__]
    return SimpleNamespace(step=rules.step, begin=questions.begin, time_left=questions.time_left)
