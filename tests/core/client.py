"""A client of the protocol that is fed by hand, and the few inputs that tests of it speak of. Does what it is
told, no more."""

from __future__ import annotations

from kopf_selectcache.core.protocol.machine import (
    Due,
    Effect,
    Idle,
    Input,
    Known,
    List,
    Lost,
    Opened,
    Start,
    State,
    Watching,
    step,
)
from kopf_selectcache.core.protocol.messages import Bookmark, Event, Page, Refusal
from kopf_selectcache.core.store.record import Record
from tests.core.diagram import TRANSITIONS

A, B, C = (
    Record("shop", name, f"uid-{name}", version, {}, (), b"{}")
    for name, version in (("a", "90"), ("b", "95"), ("c", "96"))
)
GONE = Refusal(410, "Expired")
CUT, GARBLED, LIVED = Lost("cut"), Lost("no JSON", garbled=True), Lost("end", lived=True)
ENDED, LASTED = Lost("end", clean=True), Lost("cut", lasted=True)


def seen(type_: str, version: str, name: str = "a") -> Event:
    record = Record("shop", name, f"uid-{name}", version, {}, (), b"{}")
    assert type_ in ("ADDED", "MODIFIED", "DELETED")
    return Event(type_, record)  # type: ignore[arg-type]  # See the line above.


def named(name: str) -> Record:
    return Record("shop", name, f"uid-{name}", "90", {}, (), b"{}")


def page(version: str, *records: Record, then: str = "") -> Page:
    return Page(version, then, records)


def more(token: str) -> List:
    return List(token=token)


class Client:
    """Feeds inputs in turn, and keeps the state."""

    def __init__(self, *inputs: Input, streaming: bool = False) -> None:
        self.state: State = Idle(Known(streaming=streaming))
        self.on(*inputs)

    def on(self, *inputs: Input) -> tuple[Effect, ...]:
        """Return the effects of the last input."""
        effects: tuple[Effect, ...] = ()
        for input_ in inputs:
            before, after = self.state, step(self.state, input_)
            assert type(after.state).__name__ in TRANSITIONS[type(before).__name__, type(input_).__name__]
            self.state, effects = after.state, after.effects
        return effects

    def fail(self, failure: Input, times: int = 1) -> tuple[Effect, ...]:
        """Let the same go wrong again and again; return what is asked for in the end."""
        self.on(*[failure, Due()] * (times - 1))
        return self.on(failure, Due())


def watching() -> Client:
    """A client that has listed and watches at the version 100, with no failures."""
    client = Client(Start(), page("99", A), Opened(), Bookmark("100"))
    assert client.state == Watching(Known(marked=True, floor="100"), "100", heard=True)
    return client


def filling() -> Client:
    return Client(Start(), Opened(), streaming=True)
