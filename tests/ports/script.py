"""What is played to an operator that copies Secrets: changes by people, restarts and faults, in stages. After
each stage the copies are judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kopf_selectcache.testing import Fault
from kopf_selectcache.testing.faults import MalformedJSON, NoMetadata, UnknownEventType
from tests.apiserver.waiting import PAUSE
from tests.ports.world import USER, EmbeddedWorld, World, clustersecret, encoded, secret, source
from tests.real.operators import Operator


class Player:
    """An operator in a world. It is started again if it ends by itself, as a cluster does it."""

    pause = PAUSE
    """Seconds between two judgements."""

    def __init__(self, world: World, text: str, folder: Path) -> None:
        self.world = world
        self._text = text
        self._folder = folder
        self._starts = 0
        self.operator: Operator | None = None
        self.ended = 0
        """How often it has ended by itself."""

    def start(self) -> None:
        self._starts += 1
        self.operator = Operator(
            self._folder / f"{self._starts}",
            self.world.api,
            self._text,
            namespaces=["default"],
            options=["-A"],
            token=self.world.token,
            server=self.world.address,
            asked=False,
        )

    def stop(self) -> None:
        """End the operator, as a cluster does it."""
        if (operator := self.operator) is not None:
            self.operator = None
            operator.stop()

    def wrong(self, *, patience: float = 60, firm: float = 0) -> list[str]:
        """Wait until nothing is wrong, and stays so, or the time is over; return what is wrong."""
        begun, since = time.monotonic(), None
        while True:
            if self.operator is not None and self.operator.ended:
                self.ended += 1
                self.start()
                begun = time.monotonic()
            found, now = self.world.wrong(), time.monotonic()
            since = (now if since is None else since) if not found else None
            if since is not None and now - since >= firm:
                return []
            if now - begun > patience:
                return found
            time.sleep(self.pause)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self.operator is not None:
            error.add_note(f"The operator's log:\n{self.operator.log[-8000:]}")
        self.stop()


@dataclass(frozen=True)
class Stage:
    words: str
    play: Callable[[Player], None]
    is_embedded: bool = False
    """True if only the embedded server can be made to do it."""


CA = clustersecret("ca", encoded(pem="1"), matchNamespace=["team-.*", "office"], avoidNamespaces=["team-x.*"])
REGISTRY = clustersecret("registry", source("registry", "infra"), labels={"example.com/for": "pulls"})
LATE = clustersecret("late", encoded(key="1"), matchNamespace=["team-.*"], type="example.com/key")


def begin(player: Player) -> None:
    world = player.world
    world.namespaces("infra", "office", "team-a", "team-b", "team-xy")
    world.create(secret("registry", "infra", user="us", password="1"), CA, REGISTRY)
    player.start()


def change(player: Player) -> None:
    world = player.world
    world.create(clustersecret("all", encoded(a="1", b="1")))
    world.patch(CA, {"data": {"pem": encoded(pem="2")["pem"]}, "type": "example.com/pem"})
    world.patch(CA, {"matchNamespace": ["team-.*"]})
    world.patch(REGISTRY, {"labels": {"example.com/for": "pushes"}})
    world.create(clustersecret("brief", encoded(key="1"), matchNamespace=["office"]))


def narrow(player: Player) -> None:
    player.world.patch(CA, {"avoidNamespaces": ["team-x.*", "team-b"]})


def change_source(player: Player) -> None:
    player.world.patch(secret("registry", "infra"), {"data": encoded(password="2")})


def come_before_source(player: Player) -> None:
    player.world.create(clustersecret("early", source("late-key", "infra"), matchNamespace=["office"]))
    player.world.create(secret("late-key", "infra", key="1"))


def replace_source(player: Player) -> None:
    player.world.delete(secret("registry", "infra"))
    player.world.create(secret("registry", "infra", user="them", password="3"))


def move_source(player: Player) -> None:
    player.world.create(secret("mirror", "office", user="mirror"))
    player.world.leave(secret("registry", "infra"))
    player.world.patch(REGISTRY, {"data": source("mirror", "office")})


def come_and_go(player: Player) -> None:
    player.world.namespaces("team-c", "team-xz")
    player.world.end_namespace("team-a")


def return_(player: Player) -> None:
    player.world.namespaces("team-a")


def edit(player: Player) -> None:
    world = player.world
    world.patch(secret("ca", "team-a"), {"data": encoded(pem="mine", more="mine")})
    world.delete(secret("registry", "team-c"), secret("all", "infra"))


def others(player: Player) -> None:
    player.world.others(secret("late", "team-a", theirs="1"), secret("late", "team-b", theirs="2"))
    player.world.create(LATE)


def others_go(player: Player) -> None:
    player.world.delete(secret("late", "team-a"))


def remove(player: Player) -> None:
    player.world.delete(clustersecret("all", {}))


def down(player: Player) -> None:
    world = player.world
    player.stop()
    world.patch(secret("mirror", "office"), {"data": encoded(user="down")})
    world.namespaces("team-d")
    world.end_namespace("team-c")
    world.delete(secret("ca", "team-a"))
    world.patch(secret("registry", "team-b"), {"data": encoded(user="mine")})
    world.delete(clustersecret("brief", {}))
    player.start()


def cut(player: Player) -> None:
    player.world.cut()
    player.world.create(clustersecret("short", encoded(key="1"), matchNamespace=["office"]))
    player.world.patch(secret("mirror", "office"), {"data": encoded(user="cut")})
    player.world.delete(secret("ca", "team-a"))
    player.world.namespaces("team-e")


def forget(player: Player) -> None:
    world = player.world
    with world.gap():
        world.patch(secret("mirror", "office"), {"data": encoded(user="forgotten")})
        world.delete(secret("ca", "team-a"))
        world.end_namespace("team-e")
        world.namespaces("team-f")
        world.delete(clustersecret("short", {}))
        world.delete(secret("late", "team-b"))


def _streamed(words: str, fault: Fault) -> Stage:
    """Make a stage: the fault affects the open watches of Secrets, and with them the deletion of a copy."""

    def play(player: Player) -> None:
        assert isinstance(player.world, EmbeddedWorld)
        player.world.cluster.inject(fault, "secrets", user=USER)
        player.world.delete(secret("ca", "team-d"))
        player.world.patch(secret("mirror", "office"), {"data": encoded(user=words)})

    return Stage(words, play, is_embedded=True)


CHANGES = (
    Stage("the operator starts", begin),
    Stage("ClusterSecrets are created and changed", change),
    Stage("a namespace matches no longer", narrow),
    Stage("a source changes", change_source),
    Stage("a ClusterSecret comes before its source", come_before_source),
    Stage("a source is deleted and created again", replace_source),
    Stage("another source is named", move_source),
    Stage("namespaces come and go", come_and_go),
    Stage("a namespace comes back", return_),
    Stage("copies are edited and deleted", edit),
    Stage("others have Secrets of that name", others),
    Stage("one of these is deleted", others_go),
    Stage("a ClusterSecret is deleted", remove),
    Stage("all of that while the operator is down", down),
)
FORGOTTEN = Stage("deletions in a gap that the server forgets (410)", forget)
FAULTS = (
    Stage("all watches end", cut),
    FORGOTTEN,
    _streamed("an object in the stream has no metadata", NoMetadata()),
    _streamed("a line of the stream isn't JSON", MalformedJSON()),
    _streamed(
        "an event of a type that nobody knows, instead of DELETED", UnknownEventType(instead_of="DELETED")
    ),
)
STAGES = (*CHANGES, *FAULTS)
"""All of them, in their order: each begins with what those before have left."""
