"""Draws worlds. A world that was found here is kept as the list of its lines (`corpus`): a seed means another
world as soon as there is one more thing that can happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from .damage import ERRORS, LINES, PAGES, REASONS
from .history import LABELS, NAMESPACES
from .world import ENDS, KEYS, Run, World

FILTERS = (
    "web",
    "web|gold",
    "web@a|gold",
    "db|gold",
    "@a",
    "web@team=red",
    "web|gold|db",
    "web@team=red|gold@b",
    "web@a|gold|db#x",
    "web@team=red|gold|db@b",
    "web|gold@a,b|db@a",
    "web@a|gold@b",
    "@a|web@b",
    "web|outside",
    "web@a|outside",
    "web|gold|outside",
    "web@team=red|outside",
)
TIMES = (0.1, 0.5, 1.3, 4, 16, 40)
RARE = (
    "restore",
    "broken",
    "big",
    "pin",
    "cancel",
    "gone",
    "await",
    "tag",
    "none",
    "serve",
    "codes",
    "damage",
)
"""What happens in some worlds only, so that others are easier to understand."""


class Explorer:
    """Draws the steps of one world."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.filter = random.choice(FILTERS)
        self.filters = random.sample(FILTERS, 4)
        """The filters that it may change to."""
        self.rate = random.choice((0, 0.05, 0.1, 0.2))
        """The share of faults."""
        self.steps = random.choice((40, 80, 160))
        self.rare = {each for each in RARE if random.random() < 0.25}
        self.options = [each for each in ("streamed",) if random.random() < 0.25]
        self.options += [each for each in ("turns", "vague") if random.random() < 0.1]
        if "big" in self.rare:
            self.options.append("limited")
        if self.rare & {"restore", "loss"}:
            self.options.append("audited")

    def lines(self, world: World) -> Iterable[str]:
        for _ in range(self.steps):
            yield self._fault(world) if self.random.random() < self.rate else self._step(world)

    def _number(self, of: int) -> str:
        return str(self.random.randrange(max(1, of)))

    def _fault(self, world: World) -> str:
        which, stream = self._number(len(world.server.requests)), self._number(len(world.server.streams))
        ends = f"end {stream} {self.random.choice(ENDS)}", f"end all {self.random.choice(ENDS)}"
        code = f" {self.random.choice([*REASONS])}" if "codes" in self.rare else ""
        faults = f"lose {which}", f"drop {which}", f"refuse {which}{code}", f"lag {which}", f"replay {stream}"
        if "loss" in self.rare and self.random.random() < 0.2:
            return f"skip {stream}"
        if "damage" in self.rare and self.random.random() < 0.5:
            return self._damage(world, which, stream)
        return self.random.choice((*faults, *ends, "compact"))

    def _damage(self, world: World, which: str, stream: str) -> str:
        random, code = self.random, self.random.choice(ERRORS)
        lists = [str(at) for at, each in enumerate(world.server.requests) if each.verb == "get"]
        if lists and random.random() < 0.6:
            return f"spoil {random.choice(lists)} {random.choice(PAGES)}"
        line = f"mumble {stream} {random.choice(LINES)}"
        return random.choice((f"refuse {which} {code}", f"end {stream} {code}", line))

    def _step(self, world: World) -> str:
        random, waiting, streams = self.random, len(world.server.requests), len(world.server.streams)
        name = "/".join(random.choice(KEYS))
        labels = ",".join(f"{key}={value}" for key, value in random.choice(LABELS)) or "none"
        form = random.choice([each for each in ("broken", "big") if each in self.rare] or [""])
        verb = random.choice(("create", "patch", "patch", "update", "update", "delete"))
        team = random.choice(("red", "-", "gone") if "gone" in self.rare else ("red", "-"))
        tag = random.choice(("", "|tag=one", "|tag=two")) if "tag" in self.rare else ""
        moves: dict[str, float] = {
            f"answer {self._number(waiting)}": 6 if waiting else 0,
            f"execute {self._number(waiting)}": 2 if waiting else 0,
            f"advance {self._number(streams)}": 5 if streams else 0,
            f"flush {self._number(streams)}": 3 if streams else 0,
            f"write {name} {random.choice((labels, labels, '-'))}": 3,
            f"write {name} {labels} {form}".strip(): 1,
            f"own {verb} {name} {labels}": 2,
            f"other {name} {random.choice((labels, labels, '-'))}": 0.7,
            f"twin {name}": 0.7,
            "handle 0": 2,
            "handle all": 1,
            f"fetch {name}": 0.3,
            f"deleted {name}": 0.2,
            f"change {random.choice(self.filters)}{tag}{random.choice(('', '', ' 1'))}": 0.3,
            f"team {random.choice(NAMESPACES)} {team}": 0.25,
            f"move {random.choice(TIMES)}": 2,
            "rest": 0.1,
            "await": 0.7 * ("await" in self.rare),
            random.choice(("pin", "unpin")): 0.7 * ("pin" in self.rare),
            f"restore {random.randrange(12)}": 0.3 * ("restore" in self.rare),
            f"cancel {random.randrange(2)}": 0.3 * ("cancel" in self.rare),
            "change none": 0.2 * ("none" in self.rare),
            f"serve {random.choice(('no', 'yes'))}": 0.3 * ("serve" in self.rare),
        }
        return random.choices(list(moves), list(moves.values()))[0]


def of_seed(seed: int, note: Callable[[str], object] = lambda _: None) -> Run:
    """Play the world of a seed."""
    explorer = Explorer(seed)
    return Run(explorer.filter, explorer.options, note).play(explorer.lines)
