"""Informers by any name of their kind: the declared key, and the other names that the cluster has for it."""

from __future__ import annotations

from collections.abc import Mapping

from kopf_selectcache._errors import NotSynced, ReadError
from kopf_selectcache.core.selection.kinds import KindKey, find, parse_key
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.selectors.kind_keys import not_declared, text_of

from .ending import Ending, ended
from .health import Health
from .informer import Informer


class Found:
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
    """The informers of one operator by name. Reads use it in any thread."""

    def __init__(self, informers: Mapping[KindKey, Informer], ending: Ending) -> None:
        self.informers = informers
        self.ending = ending
        self.quick: dict[KindKey, Informer] = {}
        """The informers found by key, until the cluster resolves another key. Reads look here first."""
        self._found = Found()

    def informer(self, key: KindKey) -> Informer:
        """Return the informer of this kind, by any of its names.

        The declared key comes first. The name of a built-in kind means that kind and no custom resource, as
        with kubectl. Raise NotSynced while keys are not resolved that could change the result.
        """
        # If a key is resolved meanwhile, the result is stored in a dict that nobody uses any more.
        quick = self.quick
        if self.ending.reached:
            raise ended()
        if (exact := self.informers.get(key)) is not None:
            quick[key] = exact
            return exact
        known = self._found.by([informer.resource or informer.health for informer in self.informers.values()])
        if (found := known.get(key)) is None:
            found = known[key] = self._named(key)
        quick[key] = found
        return found

    def forget(self) -> None:
        """Forget the lookups: the cluster has resolved a key, or the operator has ended."""
        self.quick = {}

    def _named(self, key: KindKey) -> Informer:
        asked = parse_key(key)
        if same := next(
            (informer for declared, informer in self.informers.items() if parse_key(declared) == asked), None
        ):
            return same
        meant = {declared: _means(key, declared, informer) for declared, informer in self.informers.items()}
        if unknown := [declared for declared, answer in meant.items() if answer is None]:
            raise NotSynced(
                f"what {text_of(key)} means is not known yet: the cluster has not said what"
                f" {text_of(unknown[0])} is",
                remedy=(
                    "Wait for it: await cache.wait_synced(); or name the kind as it is declared, such as"
                    f" {unknown[0]!r}"
                ),
            )
        found = [declared for declared, answer in meant.items() if answer] or [
            declared
            for declared, informer in self.informers.items()
            if informer.kind is None and find(key) is None and _alike(asked, parse_key(declared))
        ]
        if len(found) > 1:
            raise ReadError(
                f"{text_of(key)} may be any of {', '.join(map(text_of, found))}",
                remedy=f"Name the kind as it is declared, such as {found[0]!r}",
            )
        if not found:
            raise not_declared(key, self.informers)
        return self.informers[found[0]]


def _means(key: KindKey, declared: KindKey, informer: Informer) -> bool | None:
    """Return True if the key names the kind of the informer; None while the cluster must resolve that."""
    known, (group, version, name) = find(key), parse_key(key)
    _, in_version, _ = parse_key(declared)
    if informer.resource is not None:
        in_version = informer.resource.version
    waiting = informer.resource is None and informer.health is Health.SYNCING
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


def _alike(asked: tuple[str | None, str | None, str], declared: tuple[str | None, str | None, str]) -> bool:
    """Return True if a key may be another spelling of a declared key that is not served: the error of a read
    must not depend on the spelling.
    """
    (*_, name), (*_, called) = asked, declared
    within = all(None in pair or pair[0] == pair[1] for pair in zip(asked[:2], declared[:2], strict=True))
    return within and name.lower().removesuffix("s") == called.lower().removesuffix("s")
