"""Server: the history of some objects, and what lists and watches have of it. Versions number the writes."""

from __future__ import annotations

from typing import NamedTuple

from .rule import Claim


class State(NamedTuple):
    """An object after a write."""

    selected: frozenset[int]
    """The streams that select it."""
    uid: int = 0
    """That of no other object."""
    is_readable: bool = True


class Write(NamedTuple):
    """A write to one of the objects."""

    name: int
    state: State | None
    """None if there is no such object any more."""


class Change(NamedTuple):
    """What a watch has next."""

    version: int
    name: int
    has_it: bool
    """True if the stream selects the object now: ADDED or MODIFIED, else DELETED."""
    uid: int
    is_readable: bool
    before: int
    """The version of the object that leaves."""


History = tuple[Write, ...]


def now(history: History) -> int:
    """Return the newest version."""
    return len(history) - 1


def state_of(history: History, name: int, version: int) -> tuple[State | None, int]:
    """Return the state of an object as of a version, and the version of its last write."""
    for at in range(version, -1, -1):
        write = history[at]
        if write.name == name:
            return write.state, at
    return None, -1


def claim_of(history: History, name: int, version: int, stream: int, outer: int) -> Claim | None:
    """Return the object as the list of a stream has it. `outer` is the stream of metadata outside of the
    filter."""
    state, written = state_of(history, name, version)
    if state is None or stream not in state.selected:
        return None
    return Claim(written, state.uid, stream != outer, state.is_readable)


def truth_of(history: History, name: int, version: int, streams: tuple[int, ...], outer: int) -> Claim | None:
    """Return what readers of some streams should see as of a version."""
    state, written = state_of(history, name, version)
    if state is None:
        return None
    for stream in streams:
        if stream in state.selected:
            return Claim(written, state.uid, stream != outer, state.is_readable)
    return None


def next_change(history: History, stream: int, after: int) -> Change | None:
    """Return the first change after a version that a watch of the stream has."""
    for at in range(after + 1, len(history)):
        name, state = history[at]
        before, written = state_of(history, name, at - 1)
        had = before is not None and stream in before.selected
        if state is not None and stream in state.selected:
            if had and before is not None and before.uid != state.uid:
                raise AssertionError("an object is deleted before another of its name is created")
            return Change(at, name, True, state.uid, state.is_readable, written)
        if had and before is not None:
            return Change(at, name, False, before.uid, before.is_readable, written)
    return None
