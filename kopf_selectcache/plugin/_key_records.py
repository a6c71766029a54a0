"""Key records: what a reconciler remembers of each key, until the object is gone and all is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kopf_selectcache.cache.formats.views import BodyView
from kopf_selectcache.cache.noting import Path
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.selectors.object_key import Key

from ._calls import Attempts


@dataclass(frozen=True)
class Write:
    """A patch that the server has accepted: the version that it has led to, and its effect on an object."""

    version: str
    effect: Callable[[Any], Any]


@dataclass(slots=True)
class Departure:
    """An object that has departed, and for which the reconciler is still to be called."""

    body: BodyView
    is_gone: bool
    """True if that is proved."""


@dataclass(slots=True)
class KeyRecord:
    """The memory of one key."""

    attempts: dict[str, Attempts] = field(default_factory=dict)
    """The attempts that have failed so far, by phase: those for the object, for its cleanup, and for a
    departed object by its uid."""
    unapplied: dict[str, int] = field(default_factory=dict)
    """The patches in a row that were not applied, less one, by phase."""
    departures: dict[str, Departure] = field(default_factory=dict)
    """The departed objects, by uid. Their runs are still to come."""
    cleaned: str = ""
    """The uid of the object, if the last call for it has cleaned up after it."""
    writes: list[Write] = field(default_factory=list)
    """The patches whose changes have not arrived, the oldest first."""
    waiting: list[tuple[Change, bool]] | None = None
    """The changes that wait for the answer to a patch, and if other predicates admit them; None while no
    patch is sent."""
    rounds: dict[Path, int] = field(default_factory=dict)
    """The paths that the server has not taken over, with the number of patches in a row."""

    def forget_object(self) -> None:
        """Forget the object that the key had: it has departed."""
        self.attempts = {phase: each for phase, each in self.attempts.items() if phase in self.departures}
        self.unapplied.clear()
        self.cleaned = ""
        self.writes.clear()
        self.rounds.clear()

    def forget_departure(self, uid: str) -> None:
        """Forget a departed object: the reconciler was called for it, or need not be."""
        del self.departures[uid]
        self.attempts.pop(uid, None)

    @property
    def is_empty(self) -> bool:
        return self.waiting is None and not (
            self.attempts or self.unapplied or self.departures or self.cleaned or self.writes or self.rounds
        )


class KeyRecords(dict[Key, KeyRecord]):
    """The records of the keys of which something is remembered."""

    def __missing__(self, key: Key) -> KeyRecord:
        record = self[key] = KeyRecord()
        return record

    def tidy(self, key: Key) -> None:
        """Forget a key if nothing of it is remembered."""
        record = self.get(key)
        if record is not None and record.is_empty:
            del self[key]
