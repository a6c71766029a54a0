"""`outside`: lists objects that an operator's objects own or refer to, but its filters leave out, with the
requirements that each fails. Changes nothing in the cluster, and reads no Secret as a whole.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from kopf_selectcache.cache.estimates import PAGE_OBJECTS, PATIENCE_SECONDS
from kopf_selectcache.cache.why import compare
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import ask_in_size
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.selection.kinds import KindKey, Resource
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.kind_keys import text_of

from . import _code, operator_loader, output
from ._cluster import Target
from ._rights import kinds_with_handlers
from .operator_loader import Loaded, PlannedCache, declared_in, metadata_in, plan_of, resource_of
from .output import PROBLEM, UNKNOWN, CommandError, CommandResult

NAME = "outside"
HELP = "List objects that your resources own or refer to, but the filters leave out."
DETAILS = """\
Your resources are all objects in the caches, and of the kinds that the operator handles. They refer to
others by fields such as `secretName`, or by `kind` and `name`. Only the metadata of Secrets is read.

The exit code is 1 if there are such objects, and 2 if a kind can't be listed.
"""
EXAMPLES = (
    "selectcache outside app.py",
    "selectcache outside app.py -n shop -o json",
    "selectcache outside app.py --kind v1/pods --filter app=web",
)

_UNREAD = "secrets"
"""The objects of this kind are never read as a whole: they are looked for, and not looked into."""

_NAMING = ("name", "names", "ref", "refs")
"""The ends of keys whose value is the name of an object. The kind itself is another end."""

_OF_EACH_POD = {("configmap", "kube-root-ca.crt"), ("serviceaccount", "default")}
"""Objects that the cluster itself lets each pod name: filters leave them out on purpose."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    operator_loader.add_arguments(parser)
    output.add_arguments(parser)


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Return the objects, with the exit code 0 if there are none, 1 if there are some, and 2 if some kinds
    could not be looked at; raise CommandError.
    """
    late = _code.given_caches(arguments)
    async with operator_loader.loaded(arguments) as operator:
        await operator.log_in()
        return _answer(await Search(operator, late).result())


class Outside(NamedTuple):
    """One object that the filter leaves out."""

    target: Target
    reasons: tuple[str, ...]
    """The objects that own or name it."""
    fails: tuple[str, ...]
    """For each alternative of the filter, the requirements that it fails."""
    owners: frozenset[str]
    """The uids of the operator's objects that own it."""
    uid: str
    cache: PlannedCache
    """The cache of its kind."""

    def __str__(self) -> str:
        fails = "; or ".join(self.fails)
        return f"{self.target}: {', '.join(self.reasons)}, but it fails {fails}"

    def plain(self) -> dict[str, Any]:
        """Return the object as JSON has it."""
        return self.target.plain() | {"reasons": list(self.reasons), "fails": list(self.fails)}


class SearchResult(NamedTuple):
    """The objects that a search has found, and where it has searched."""

    objects: Sequence[Outside]
    whole: Collection[str]
    """The kinds that were searched for owners and references."""
    others: Collection[str]
    """The kinds that were searched for owners alone."""
    notes: Sequence[str]
    """The kinds that could not be searched."""

    def searched(self) -> list[str]:
        """Return the lines that name the kinds."""
        lines = [f"Searched: {', '.join(sorted(self.whole))}."] if self.whole else []
        if self.others:
            lines.append(f"Searched without their references: {', '.join(sorted(self.others))}.")
        return lines

    def plain(self) -> dict[str, Any]:
        """Return the kinds as JSON has them."""
        return {
            "searched": sorted(self.whole),
            "searchedMetadata": sorted(self.others),
            "notes": list(self.notes),
        }


def _answer(found: SearchResult) -> CommandResult:
    objects, notes = found.objects, found.notes
    nothing = (
        "No hidden objects in the kinds that could be listed."
        if notes
        else "No hidden objects: your resources own nothing outside the filters, and no field such as"
        " secretName names anything there."
    )
    lines = [str(each) for each in objects] or [nothing]
    data = {"objects": [each.plain() for each in objects], **found.plain()}
    code = PROBLEM if objects else UNKNOWN if notes else 0
    return CommandResult("\n".join([*lines, *found.searched()]), data, code, notes)


class Search:
    """Lists the operator's own objects, and then those of its caches that the filters leave out."""

    def __init__(self, operator: Loaded, late: Sequence[_code.Late]) -> None:
        self._operator = operator
        self._late = late
        self._notes: list[str] = []
        self._owners: dict[str, str] = {}
        """The operator's objects, as text, by uid."""
        self._named: dict[tuple[str, str, str], str] = {}
        """The objects that name another one: by its kind, in lower case, its namespace, and its name."""
        self._whole_kinds: set[str] = set()
        self._metadata_kinds: set[str] = set()
        self._kinds: list[Resource] = []
        """The cached kinds."""

    async def result(self) -> SearchResult:
        """Ask the cluster; raise CommandError, Refused or Unreachable."""
        caches = [
            await plan_of(self._operator, resource, cached)
            for key, cached, _ in declared_in(self._operator, self._late)
            if (resource := await self._resource(key)) is not None
        ]
        self._kinds = [cache.resource for cache in caches]
        handled = dict[tuple[str, str], Resource]()
        for key in kinds_with_handlers(self._operator.registry):
            if (resource := await self._resource(key)) is not None:
                handled[resource.kind.group, resource.kind.plural] = resource
        for resource in handled.values():
            await self._look_into(resource)
        selected = [await self._selected(cache) for cache in caches]
        outside = [
            each
            for cache, keys in zip(caches, selected, strict=True)
            for each in await self._outside(cache, keys)
        ]
        notes = tuple(dict.fromkeys(self._notes))
        return SearchResult(outside, self._whole_kinds, self._metadata_kinds, notes)

    async def _resource(self, key: KindKey) -> Resource | None:
        """Return the resource of a key, None if the cluster does not tell: the others can be looked at."""
        try:
            return await resource_of(self._operator, key)
        except CommandError as error:
            self._notes.append(str(error))
        except Refused as error:
            answer = f"{error.refusal.code} {error.refusal.reason}"
            self._notes.append(f"{text_of(key)} can't be found: the server answers {answer}")
        return None

    async def _look_into(self, resource: Resource) -> None:
        """Note the objects of a handled kind, and the objects of the cached kinds that they name."""
        with self._noting(resource):
            for path in self._paths(resource):
                async for _ in self._read(resource, path, {}):
                    pass

    async def _read(
        self, resource: Resource, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[tuple[str, str]]:
        """Yield the keys of the objects of a list; note the objects, and those of the cached kinds that they
        name. Nothing else of them is kept.
        """
        is_unread = False
        if resource.kind.plural == _UNREAD:
            is_unread, records = True, metadata_in(self._operator.transport, resource, path, query)
        else:
            records = self._whole(resource, path, query)
        async for record in records:
            target = str(Target(resource, *record.key))
            self._owners.setdefault(record.uid, target)
            if not is_unread and record.stored:  # It can be decoded.
                for each in _named_in(record.decode(), self._kinds, record.namespace):
                    self._named[each] = target
            yield record.key
        (self._metadata_kinds if is_unread else self._whole_kinds).add(str(resource))

    async def _whole(self, resource: Resource, path: str, query: Mapping[str, str]) -> AsyncIterator[Record]:
        """Yield the objects of a list, as a whole, page by page."""
        reader, paging = (
            Reader.of(resource, ALL),
            Paging(query, page_limit=PAGE_OBJECTS, patience=PATIENCE_SECONDS),
        )
        get, size = self._operator.transport.get, paging.size
        while not paging.is_complete:
            if pause := paging.take_pause(1.0):
                await asyncio.sleep(pause)
            page = reader.page(await ask_in_size(size, lambda: get(path, paging.query, most=size.most_bytes)))
            if isinstance(page, Refusal):
                raise Refused(page)
            paging.turn(page)
            for record in page.records:
                yield record

    def _paths(self, resource: Resource) -> list[str]:
        """Return the paths of all objects in the namespaces that the operator watches."""
        watched = self._operator.watched if resource.kind.namespaced is not False else None
        return [resource.path(namespace) for namespace in watched or (None,)]

    async def _selected(self, cache: PlannedCache) -> set[tuple[str, str]]:
        """Return the namespace and name of each object that the filter selects, and look into them."""
        found, resource = set[tuple[str, str]](), cache.resource
        with self._noting(resource):
            for stream in cache.planned.streams:
                if stream.is_outside:
                    continue  # A split cache knows the labels of these, and leaves them out.
                found |= {key async for key in self._read(resource, stream.path(resource), stream.query())}
        return found

    async def _outside(self, cache: PlannedCache, selected: Collection[tuple[str, str]]) -> list[Outside]:
        resource, found = cache.resource, list[Outside]()
        with self._noting(resource):
            for path in self._paths(resource):
                async for record in metadata_in(self._operator.transport, resource, path, {}):
                    if record.key in selected:
                        continue
                    if reasons := tuple(dict.fromkeys(self._reasons(resource, record))):
                        fails = _fails(cache, record)
                        owners = frozenset(self._owners.keys() & record.owners)
                        target = Target(resource, *record.key)
                        found.append(Outside(target, reasons, fails, owners, record.uid, cache))
        return found

    def _reasons(self, resource: Resource, record: Record) -> Iterator[str]:
        for uid in record.owners:
            if (owner := self._owners.get(uid)) is not None:
                yield f"{owner} owns it"
        kind = (resource.kind.kind or "").lower()
        if (kind, record.name) in _OF_EACH_POD:
            return
        if (by := self._named.get((kind, *record.key))) is not None and self._owners.get(record.uid) != by:
            yield f"{by} refers to it"

    @contextmanager
    def _noting(self, resource: Resource) -> Iterator[None]:
        """Note a kind that cannot be listed, and go on."""
        try:
            yield
        except (Refused, Garbled) as error:
            why = f"{error.refusal.code} {error.refusal.reason}" if isinstance(error, Refused) else error
            self._notes.append(f"{resource} can't be listed, so some objects may be missing here: {why}")


def _fails(cache: PlannedCache, record: Record) -> tuple[str, ...]:
    """Return the requirements that an object fails, for each branch."""
    found = list[str]()
    for branch in cache.planned.filter.branches:
        result = compare(branch, record, cache.resource)
        found.append(" and ".join(result.fails or tuple(map(str, branch.terms))))
    return tuple(dict.fromkeys(found))


def _named_in(obj: Mapping[str, Any], kinds: Sequence[Resource], own: str) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, in lower case, the namespace and the name of each object of these kinds that an object
    names: in a `secretName`, `secret` or list of `secrets`, in a `configMapRef: {name: ...}`, or in a
    reference with `kind` and `name`. `own` is the namespace of the object.
    """
    of_cluster = {(each.kind.kind or "").lower() for each in kinds if each.kind.namespaced is False}
    known = {(resource.kind.kind or "").lower(): resource.kind.plural for resource in kinds}
    known.pop("", None)

    def key_of_named(kind: str, namespace: str, name: str) -> tuple[str, str, str]:
        return kind, "" if kind in of_cluster else namespace or own, name

    def search(value: object, key: str) -> Iterator[tuple[str, str, str]]:
        if isinstance(value, list):
            for each in value:
                yield from search(each, key)
        elif isinstance(value, Mapping):
            name, namespace, kind = (value.get(each) for each in ("name", "namespace", "kind"))
            if isinstance(name, str):
                of = {kind.lower()} & known.keys() if isinstance(kind, str) else _kinds_in(key, known)
                for each in of:
                    yield key_of_named(each, namespace if isinstance(namespace, str) else "", name)
            for inner, each in value.items():
                yield from search(each, str(inner))
        elif isinstance(value, str):
            for each in _kinds_in(key, known):
                if key.lower().endswith((*_NAMING, each, known[each])):
                    namespace, _, name = value.rpartition("/")
                    yield key_of_named(each, namespace, name)

    for part, value in obj.items():
        if part not in ("metadata", "apiVersion", "kind"):
            yield from search(value, part)


def _kinds_in(key: str, kinds: Mapping[str, str]) -> set[str]:
    """Return the kinds that the key of a reference names, such as `secretKeyRef`; the longest ones only.
    `kinds` has the plural of each.
    """
    found = {kind for kind, plural in kinds.items() if kind in key.lower() or plural in key.lower()}
    return {kind for kind in found if not any(kind != other and kind in other for other in found)}
