"""Removal: the end of the cache of one kind while the operator runs, and the errors of its later reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from kopf_selectcache._errors import NotDeclared, ReadError, awaited_call
from kopf_selectcache.core.selection.kinds import Kind, KindKey, find, parse_key
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.kind_keys import text_of

from .informer import Informer
from .phrase import LOOKED_FOR
from .state import Derived


class Removal(NamedTuple):
    """The removal of a cache, for the errors of later reads."""

    key: KindKey
    kind: Kind | None
    at: str
    """The time, in UTC."""
    place: str
    """The file and line of the call."""

    @classmethod
    def now(cls, key: KindKey, informer: Informer, place: str, time: datetime) -> Removal:
        """Return the removal of an informer at this time."""
        at = time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return cls(key, informer.kind, at, place)

    def error(self) -> NotDeclared:
        """Return the error of a read after the removal."""
        return NotDeclared(
            f"the cache of {text_of(self.key)} was undeclared at {self.at} by {self.place}",
            remedy=f"To declare it again: {awaited_call(f'declare({self.key!r}, ...)')}",
        )

    def concerns(self, key: KindKey) -> bool:
        """Return True if the key names the removed kind."""
        if parse_key(key) == parse_key(self.key) or (find(key) or self) is self.kind:
            return True
        group, _, name = parse_key(key)
        return self.kind is not None and name in self.kind.names and group in (None, self.kind.group)


def remedy_of_withdrawn(remedy: str) -> str:
    """Return the remedy of a declaration that has failed, and is withdrawn."""
    return f"{remedy.removesuffix(LOOKED_FOR)}\nThen declare it again" if LOOKED_FOR in remedy else remedy


def withdrawn(key: KindKey) -> NotDeclared:
    """Return the error of a read of a kind whose declaration has failed."""
    return NotDeclared(
        f"the declaration of {text_of(key)} failed and was withdrawn",
        remedy=f"To declare it again: {awaited_call(f'declare({key!r}, ...)')}",
    )


def close(informer: Informer, error: Callable[[], ReadError]) -> None:
    """End all waits with this error, and give back the budget. Cancel the informer's task next."""
    informer.ending.end(error)
    informer.share.release()


def drop(informer: Informer) -> None:
    """Drop the stored objects, after the end of the task. Reads that hold the previous state are answered
    from it.
    """
    state = informer.state
    informer.state = replace(state, is_resolving=True, union=Union(), reflectors=(), derived=Derived())
    for reflector in state.reflectors:
        reflector.forget()
    informer.awaited.wake()
