"""An attack as data: what the server does, and what must hold meanwhile and afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .server import Attacking, Connecting

MOST_REQUESTS = 242
"""Requests of one list and watch in any minute, whatever the server does: docs/dev/protocol.md."""

MOST_MEMORY = 64
"""MB that the process may take on top of what it takes before the attack, unless the attack says
otherwise."""


@dataclass(frozen=True)
class Attack:
    """One attack: `held` and `fresh` are the worst states that the attacked caches may have in its second
    half."""

    name: str
    what: str
    """The attack in a line, for the table."""
    play: Attacking | None = None
    verbs: tuple[str, ...] = ("list",)
    """The requests that are attacked."""
    held: str = "stale"
    """The state of the cache that was synced before the attack."""
    fresh: str = "stalled"
    """The state of the cache that the attack finds without objects."""
    reason: str = ""
    """A part of the message that one of them reports."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """Objects of the attack that readers may see: names with versions, besides or instead of the known ones;
    an empty version stands for any."""
    error: str = ""
    """The error that `list` may raise of a cache that is synced."""
    most: int = MOST_REQUESTS
    memory: int = MOST_MEMORY
    connect: Connecting | None = None
    """The attack on each new connection."""
    tls: bool = False
    jump: float = 0.0
    """The seconds by which the clock of the caches jumps."""
    host: str = "127.0.0.1"
    """By which name the server is called: cookies of an address count nowhere."""
    keep: bool = False
    """Whether an attacked connection has further requests."""
    every: float = 2.5
    """The seconds between two looks: each reads all objects several times."""
    relists: int = 1
    """The lists that each cache may need after the attack."""
    patience: float = 90.0
    """The seconds after the attack within which all caches must be synced and right."""

    @property
    def attacks_connections(self) -> bool:
        return self.connect is not None


@dataclass
class Attacks:
    """A list of attacks, filled by decorators."""

    attacks: list[Attack] = field(default_factory=list)

    def __call__(self, name: str, *verbs: str, **others: object) -> Callable[[Attacking], Attacking]:
        """Add the decorated function; its docstring is the line for the table."""

        def add(play: Attacking) -> Attacking:
            what = " ".join((play.__doc__ or "").split()).rstrip(".")
            attack = Attack(name, what, play, verbs or ("list",), **others)  # type: ignore[arg-type]
            self.attacks.append(attack)
            return play

        return add
