"""Informers by any name of their kind: the declared key, and the other names that the cluster has for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from kopf_selectcache._errors import NotDeclared, NotSynced, ReadError, awaited_call, call_of
from kopf_selectcache.core.selection.kinds import Kind, KindKey, find, parse_key
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.selectors.kind_keys import SETTINGS, Site, are_alike, not_declared, text_of

from ._messages import LOOKED_FOR
from .ending import Ending
from .health import Health
from .informer import Informer


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
    informer.swapper.share.release()


MOST_REMOVALS = 100
"""The number of removed caches that are remembered for messages."""


class InformerLookups:
    """Memoised lookups of informers by name. Reads use it in any thread."""

    def __init__(self) -> None:
        self._by: tuple[list[Resource | Health], dict[KindKey, Informer]] = [], {}

    def by(self, known: list[Resource | Health]) -> dict[KindKey, Informer]:
        """Return the lookups that are valid for this knowledge: the resource of each informer, or its health
        while that is not resolved.
        """
        by = self._by
        if by[0] != known:
            by = self._by = known, {}
        return by[1]


class InformersByName:
    """The informers of one operator by name. Reads use it in any thread, while the operator's loop adds and
    discards informers.
    """

    def __init__(self, ending: Ending, site: Site = SETTINGS) -> None:
        self.informers: Mapping[KindKey, Informer] = {}
        """The informers by declared key. The mapping is replaced in one assignment, and never changed."""
        self.ending = ending
        self._site = site
        self.pending: dict[Informer, int] = {}
        """Informers that no call of `declare` has seen synced yet, with the number of calls that wait."""
        self.quick: dict[KindKey, Informer] = {}
        """The informers found by key, until the cluster resolves another key, or another informer is added or
        discarded. Reads look here first."""
        self.changed = asyncio.Event()
        """Set once an informer is added, changed or discarded; then there is another event."""
        self._found = InformerLookups()
        self._removals: tuple[Removal, ...] = ()

    def add(self, key: KindKey, informer: Informer) -> None:
        """Find this informer from now on."""
        self.informers = {**self.informers, key: informer}
        self._removals = tuple(each for each in self._removals if not each.concerns(key))
        self._forget_all()

    def key_of(self, informer: Informer) -> KindKey:
        """Return the declared key of an informer."""
        return next(key for key, each in self.informers.items() if each is informer)

    def discard(self, informer: Informer, removal: Removal | None = None) -> None:
        """Find this informer no more; reads of its kind raise the error of the removal, if there is one."""
        self.informers = {key: each for key, each in self.informers.items() if each is not informer}
        self.pending.pop(informer, None)
        if removal is not None:
            self._removals = (removal, *self._removals)[:MOST_REMOVALS]
        self._forget_all()

    def _forget_all(self) -> None:
        # The order matters: a lookup takes these before it takes the mapping, so it cannot fill the new ones
        # from an old mapping.
        self._found = InformerLookups()
        self.forget()
        self.note_change()

    def note_change(self) -> None:
        """Wake those who wait until other objects are cached."""
        self.changed.set()
        self.changed = asyncio.Event()

    def informer(self, key: KindKey) -> Informer:
        """Return the informer of this kind, by any of its names.

        The declared key comes first. The name of a built-in kind means that kind and no custom resource, as
        with kubectl. Raise NotSynced while keys are not resolved that could change the result.
        """
        # If a key is resolved meanwhile, or the mapping is replaced, the result is stored in a dict that
        # nobody uses any more.
        quick, memory = self.quick, self._found
        if self.ending.reached:
            raise self.ending.error()
        informers = self.informers
        if (exact := informers.get(key)) is not None:
            quick[key] = exact
            return exact
        known = memory.by(
            [informer.state.resource or informer.state.health for informer in informers.values()]
        )
        if (found := known.get(key)) is None:
            found = known[key] = self._named(key, informers)
        quick[key] = found
        return found

    def forget(self) -> None:
        """Forget the lookups: the cluster has resolved a key, or the operator has ended."""
        self.quick = {}

    def _named(self, key: KindKey, informers: Mapping[KindKey, Informer]) -> Informer:
        asked = parse_key(key)
        if same := next(
            (informer for declared, informer in informers.items() if parse_key(declared) == asked), None
        ):
            return same
        meant = {declared: _means(key, declared, informer) for declared, informer in informers.items()}
        if unknown := [declared for declared, answer in meant.items() if answer is None]:
            raise NotSynced(
                f"{text_of(key)} may be the declared {text_of(unknown[0])}: the cluster has not answered yet"
                " which"
                " resource that is",
                remedy=(
                    f"To wait for it: {call_of('wait_synced')}\nName the kind as it is declared, such as"
                    f" {unknown[0]!r}"
                ),
            )
        found = [declared for declared, answer in meant.items() if answer] or [
            declared
            for declared, informer in informers.items()
            if informer.kind is None and find(key) is None and are_alike(key, declared)
        ]
        if len(found) > 1:
            raise ReadError(
                f"{text_of(key)} may be any of {', '.join(map(text_of, found))}",
                remedy=f"Name the kind as it is declared, such as {found[0]!r}",
            )
        if not found:
            removal = next((each for each in self._removals if each.concerns(key)), None)
            raise removal.error() if removal is not None else not_declared(key, informers, self._site)
        return informers[found[0]]


def _means(key: KindKey, declared: KindKey, informer: Informer) -> bool | None:
    """Return True if the key names the kind of the informer; None while the cluster must resolve that."""
    known, (group, version, name) = find(key), parse_key(key)
    _, in_version, _ = parse_key(declared)
    if informer.state.resource is not None:
        in_version = informer.state.resource.version
    waiting = informer.state.resource is None and informer.state.health is Health.SYNCING
    if (kind := informer.kind) is None:  # A custom resource that is not resolved.
        within = parse_key(declared)[0]
        compatible = (
            known is None
            and (group is None or within in (None, group))
            and (version is None or in_version in (None, version))
        )
        return None if waiting and compatible else False
    same = kind is known if known is not None else name in kind.names and group in (None, kind.group)
    if not same or version is None or version == in_version:
        return same
    if in_version is not None:
        return False
    # A built-in kind that is declared without a version has the version that the cluster prefers.
    return True if kind.versions == (version,) or not waiting else None
