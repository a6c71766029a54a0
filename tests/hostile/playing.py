"""Plays one attack to one operator, and compares what readers saw with what must hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from math import inf, nan
from typing import Protocol

from kopf_selectcache.informer.health import Health

from .attack import Attack
from .objects import AFTER, BEFORE
from .server import Server
from .victim import FRESH, HELD, WITNESS, Seen

LASTS = 75.0
"""Seconds of an attack."""
SETTLED = 40.0
"""Seconds after which the states count: longer than the timeouts of the victim."""
LONGEST_START = 60.0


class Observed(Protocol):
    """An operator, in this process or another one."""

    async def look(self) -> dict[str, Seen]: ...
    async def jump(self, seconds: float) -> None: ...
    async def begin(self) -> None: ...
    async def measure(self) -> None: ...


@dataclass
class Outcome:
    """What an attack did."""

    states: dict[str, str] = field(default_factory=dict)
    """The worst state of each cache while the attack lasted, by kind."""
    messages: set[str] = field(default_factory=set)
    lies: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    recovery: float | None = None
    """Seconds until all caches were synced and right; None if they were not."""
    relists: int = 0
    """The lists of the most listed cache after the attack."""
    seen: dict[str, Seen] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    """Errors of the attack itself."""

    def complaints(self, attack: Attack) -> list[str]:
        """Return what does not hold that must."""
        said = [f"{what} ({times} times)" for what, times in self.lies.items()] + self.mistakes
        for kind, state in ((HELD, attack.held), (FRESH, attack.fresh)):
            if self.states.get(kind) != state:
                said.append(
                    f"the cache of {kind} was {self.states.get(kind)}, not {state}: {sorted(self.messages)}"
                )
        if not attack.attacks_connections and self.states.get(WITNESS) != "synced":
            said.append(f"the cache that was not attacked was {self.states.get(WITNESS)}")
        if attack.reason and not any(attack.reason in message for message in self.messages):
            said.append(f"no cache said {attack.reason!r}: {sorted(self.messages)}")
        if self.requests > attack.most:
            said.append(f"{self.requests} requests in a minute are more than {attack.most}")
        if self.recovery is None:
            said.append(f"not all is right {attack.patience:g} s after the attack: {self.seen}")
        elif self.relists > attack.relists:
            said.append(f"{self.relists} lists were needed after the attack")
        return said


async def play(attack: Attack, server: Server, victim: Observed, *, most_patience: float = inf) -> Outcome:
    """Let the victim sync, attack it for a while, and be honest again; do not wait for a recovery that may
    take longer than `most_patience`."""
    loop, outcome = asyncio.get_running_loop(), Outcome()
    began = loop.time()
    while {(first := await victim.look())[HELD].state, first[WITNESS].state} != {"synced"}:
        assert loop.time() < began + LONGEST_START, "the operator does not sync before the attack"
        await asyncio.sleep(attack.every)
    await victim.begin()
    await server.begin(attack.connect)
    await victim.jump(attack.jump)
    began, worst = loop.time(), dict.fromkeys((HELD, FRESH, WITNESS), Health.SYNCED)
    while (lasted := loop.time() - began) < LASTS:
        await asyncio.sleep(attack.every)
        for kind, seen in (await victim.look()).items():
            outcome.lies.update(lies(attack, kind, seen))
            if lasted >= SETTLED:
                worst[kind] = max(worst[kind], Health(seen.state), key=[*Health].index)
                outcome.messages |= {seen.message} - {""}
    await victim.measure()
    outcome.states = {kind: str(state) for kind, state in worst.items()}
    outcome.mistakes = [f"{type(error).__name__} in the server: {error}" for error in server.errors[:9]]
    outcome.requests = server.most_in_a_minute()
    if attack.patience > most_patience:
        outcome.recovery = nan
        return outcome
    before = dict(server.lists)
    await server.finish(*(name for name in attack.shown if name not in BEFORE))
    await _recover(attack, victim, outcome)
    outcome.relists = max(times - before[kind] for kind, times in server.lists.items())
    return outcome


async def _recover(attack: Attack, victim: Observed, outcome: Outcome) -> None:
    loop, every = asyncio.get_running_loop(), max(attack.every, attack.patience / 60)
    began = loop.time()
    while loop.time() < began + attack.patience:
        outcome.seen = await victim.look()
        outcome.lies.update({lie: 1 for seen in outcome.seen.values() for lie in seen.lies})
        if all(
            seen.state == "synced" and not seen.message and seen.objects == AFTER
            for seen in outcome.seen.values()
        ):
            outcome.recovery = loop.time() - began
            return
        await asyncio.sleep(every)


def lies(attack: Attack, kind: str, seen: Seen) -> list[str]:
    """Return each read that says other than the known truth while the attack lasts."""
    said, shown = list(seen.lies), attack.shown if kind != WITNESS else {}
    truths: list[dict[str, str]] = [dict(BEFORE), {**BEFORE, **shown}]
    if seen.objects is None:
        if seen.state in ("synced", "stale") and not (attack.error == seen.errors["*"] and kind != WITNESS):
            said.append(f"a list of {kind} raises {seen.errors['*']} though the cache is {seen.state}")
    elif {
        name: "" if shown.get(name) == "" else version for name, version in seen.objects.items()
    } not in truths:
        said.append(f"a list of {kind} returns {str(seen.objects)[:300]}")
    for name, version in [*seen.found.items(), *seen.came]:
        if version != BEFORE.get(name) and shown.get(name) not in (version, ""):
            said.append(f"readers saw {name[:50]!r}@{version[:50]} of {kind}")
    if seen.state in ("synced", "stale"):
        said += [
            f"get of {name} of {kind} raises {seen.errors[name]} though the cache is {seen.state}"
            for name in BEFORE
            if name not in seen.found
        ]
    said += [
        f"get says that {name} of {kind} is absent" for name in BEFORE if seen.errors.get(name) == "NotFound"
    ]
    return said
