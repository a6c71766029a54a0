"""Every fault of the test kit, drawn by chance, with the requests that it can sensibly happen to. Plans
nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kopf_selectcache.testing import faults
from kopf_selectcache.testing.faults import End, Fault, Refuse
from kopf_selectcache.testing.request_log import Asked

LOSABLE = frozenset(f"s-{number}" for number in range(8))
"""Objects of which events may be lost: nobody relies on them."""


@dataclass(frozen=True)
class Mishap:
    """A kind of fault: how one of it is drawn, and what it happens to."""

    fault: Callable[[Random], Fault]
    verb: str = ""
    """`list`, `watch`, or any; `initial` is a watch that begins with all objects."""
    unheard: bool = False
    """Whether it makes the server lose what only an audit can find."""

    def meets(self, asked: Asked) -> bool:
        if self.verb == "initial":
            return "sendInitialEvents" in asked.query
        return self.verb in ("", asked.verb) and bool(asked.resource)


def few(chance: Random) -> int:
    return chance.randint(0, 4)


def _bytes(chance: Random) -> int:
    return chance.choice((0, 1, 40, 700))


MISHAPS = (
    # Refusals.
    Mishap(lambda chance: Refuse(chance.choice((400, 403, 422, 500, 503, 504)))),
    Mishap(lambda chance: Refuse(429, retry_after=chance.choice((0, 1, 7)))),
    Mishap(lambda _: faults.BadGateway()),
    Mishap(lambda _: faults.LeaderChanged()),
    Mishap(lambda _: faults.TooLargeVersion()),
    Mishap(lambda chance: faults.Gone(http=chance.choice((None, 200)))),
    Mishap(lambda chance: faults.ExpiredToken(fresh=chance.random() < 0.5), "list"),
    Mishap(lambda _: faults.Unauthorized()),
    Mishap(lambda _: faults.NotServed()),
    Mishap(lambda chance: faults.NoWatchList(before_1_27=chance.random() < 0.5), "initial"),
    Mishap(
        lambda chance: faults.ErrorEvent(
            Refuse(chance.choice((403, 410, 429, 500))), after_events=few(chance)
        ),
        "watch",
    ),
    # What breaks off, or stands still.
    Mishap(lambda chance: faults.EndStream(few(chance), mid_line=chance.random() < 0.5), "watch"),
    Mishap(lambda chance: faults.Disconnect(few(chance), mid_line=chance.random() < 0.5), "watch"),
    Mishap(lambda chance: faults.Disconnect(after_bytes=_bytes(chance))),
    Mishap(lambda chance: faults.Reset(few(chance), mid_line=chance.random() < 0.5), "watch"),
    Mishap(lambda chance: faults.Reset(after_bytes=_bytes(chance))),
    Mishap(lambda chance: faults.Silence(few(chance)), "watch"),
    Mishap(lambda chance: faults.Silence(after_bytes=_bytes(chance))),
    Mishap(lambda _: faults.Delay(0.01)),
    Mishap(lambda _: faults.IdleCut(0.01), "watch"),
    Mishap(lambda _: faults.BufferingProxy(), "watch"),
    Mishap(lambda _: faults.GzipWatch(), "watch"),
    Mishap(lambda chance: faults.EndlessLine(few(chance)), "watch"),
    # What comes otherwise than it happened.
    Mishap(lambda _: faults.DuplicateEvents(), "watch"),
    Mishap(lambda chance: faults.ReplayEvents(1 + few(chance)), "watch"),
    Mishap(lambda chance: faults.DropEvents(names=LOSABLE, skip=few(chance)), "watch", unheard=True),
    Mishap(lambda _: faults.ReorderInitialEvents(), "initial"),
    Mishap(lambda _: faults.NoBookmarks(), "watch"),
    Mishap(lambda _: faults.NoEndBookmark(), "initial"),
    Mishap(lambda chance: faults.EarlyBookmark(1 + few(chance)), "initial"),
    Mishap(lambda _: faults.OldVersionOnDelete(), "watch"),
    Mishap(lambda _: faults.RecreatedAsModified(), "watch"),
    Mishap(lambda _: faults.IgnoredLimit(), "list"),
    Mishap(
        lambda chance: faults.IgnoreSelectors(
            labels=(label := chance.random() < 0.7), fields=not label or chance.random() < 0.5
        )
    ),
    Mishap(lambda _: faults.IgnoredInitialEvents(), "initial"),
    # Contents.
    Mishap(lambda _: faults.NoMetadata()),
    Mishap(lambda _: faults.EmptyVersion()),
    Mishap(lambda _: faults.WrongKind()),
    Mishap(lambda chance: faults.BigObjects(chance.choice((100_000, 2_000_000)), names=frozenset({"big"}))),
    # Objects that cannot be decoded stay unreadable until they change: see tests/cache/test_unreadable.py.
    Mishap(lambda _: faults.Inserted(b"1", names=frozenset({"big"}))),
    Mishap(lambda chance: faults.MalformedJSON(few(chance))),
    Mishap(
        lambda chance: faults.UnknownEventType(instead_of=chance.choice(("ADDED", "MODIFIED", "DELETED"))),
        "watch",
    ),
    Mishap(lambda _: faults.TableInstead()),
    Mishap(lambda _: faults.EmptyPage(), "list"),
)
"""All but the one that depends on the server's version: see `lag`."""


def lag(version: int) -> Mishap:
    """A replica has seen nothing for a while."""
    return Mishap(lambda chance: faults.Lag(max(version - 3 * few(chance), 1)))


ENDS = (End.END, End.CLOSE, End.RESET)
