"""Patches of reconcilers: how they are applied, and what is remembered of each key until its object is gone.

`OwnPatches` recognises the changes that patches of a reconciler have caused, so that they do not call it
again: by the version that the server has returned for the patch, never by the time. A change may have that of
somebody else with it, such as after a lost watch: then the patch, applied to the object before, does not
explain the object after, and the reconciler is called. Changes that arrive while a patch is sent wait for its
answer, which has the version.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jsonpatch
import kopf

from kopf_selectcache._errors import Conflict, Invalid, ServerError, StateError
from kopf_selectcache.cache import writes
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.errors import NotFound
from kopf_selectcache.cache.formats.views import BodyView
from kopf_selectcache.cache.noting import Path, paths_of
from kopf_selectcache.cache.request import Request
from kopf_selectcache.client.discovery import has_subresource
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.record import is_number, is_older
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.reactions.predicates import Obj, Predicate
from kopf_selectcache.selectors.object_key import Key

from .calls import Attempts

_logger = logging.getLogger("kopf_selectcache")


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
        self.departures.pop(uid, None)
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

    def forget_departures(self) -> None:
        """Forget all departed objects: nobody is called for them any more."""
        for key, record in list(self.items()):
            for uid in list(record.departures):
                record.forget_departure(uid)
            self.tidy(key)

    def tidy(self, key: Key) -> None:
        """Forget a key if nothing of it is remembered."""
        record = self.get(key)
        if record is not None and record.is_empty:
            del self[key]


ROUNDS = 3
"""Patches in a row of which the server has not taken over a path, until the log says so."""

MOST_WRITES = 20
"""The patches of one object whose changes have not arrived yet. Older ones are forgotten."""

_OF_SERVER = ("resourceVersion", "managedFields", "generation")
"""Metadata that the server changes with any patch."""

_REMOVED_IF_EMPTY = (("metadata", "annotations"), ("metadata", "finalizers"), ("metadata", "labels"))
"""Paths that the server removes if a patch makes them empty."""


class OwnPatches(Predicate):
    """Drops the changes that are explained by own patches of the object, and notes departures.

    `call` has the reconciler called with a key for a change. `depart` is called with each departure. Other
    changes count if `others` admits them, the predicates of the operator's author.
    """

    def __init__(
        self,
        records: KeyRecords,
        call: Callable[[Key, Change], object],
        depart: Callable[[Key, Change], object],
        others: Predicate,
    ) -> None:
        self._records, self._call, self._depart, self._others = records, call, depart, others
        self.paths = others.paths

    # ---- Patches.

    def begin(self, key: Key) -> None:
        """Note that a patch is sent."""
        record = self._records[key]
        record.waiting = record.waiting or []

    def note(self, key: Key, write: Write) -> None:
        """Note the answer to a patch."""
        writes = self._records[key].writes
        writes.append(write)
        del writes[:-MOST_WRITES]

    def end(self, key: Key) -> None:
        """Note that no patch is sent any more, and look at the changes that have waited."""
        record = self._records[key]
        waiting, record.waiting = record.waiting, None
        for change, is_admitted in waiting or ():
            if self._must_call(record, change, is_admitted=is_admitted):
                self._call(key, change)
        self._records.tidy(key)

    def note_lost(self, key: Key, paths: Sequence[Path]) -> list[Path]:
        """Note the paths of a patch that the server has not taken over; return those for which that is so for
        the third time in a row.
        """
        record = self._records[key]
        before = record.rounds
        record.rounds = {path: before.get(path, 0) + 1 for path in paths}
        return [path for path in paths if record.rounds[path] == ROUNDS]

    # ---- Changes.

    def admits(self, change: Change) -> bool:
        if change.after is None:
            self._depart(Key.stored(change.key), change)
        is_admitted = self._others.admits(change)
        if change.cause != "updated" or not self._records:
            return is_admitted
        key = Key.stored(change.key)
        if (record := self._records.get(key)) is None:
            return is_admitted
        if record.waiting is not None:
            record.waiting.append((change, is_admitted))
            return False
        must_call = self._must_call(record, change, is_admitted=is_admitted)
        self._records.tidy(key)
        return must_call

    def _must_call(self, record: KeyRecord, change: Change, *, is_admitted: bool) -> bool:
        """Return True if the reconciler must be called."""
        writes, version = record.writes, change.version
        index = next((index for index, write in enumerate(writes) if write.version == version), None)
        if index is None:
            record.writes = [write for write in writes if not _has_reached(version, write.version)]
            return is_admitted
        passed, record.writes = writes[: index + 1], writes[index + 1 :]
        if not is_admitted:
            return False
        old, new = change.old, change.new
        if old is None or new is None or not change.is_whole:
            return True
        since = version_of(old)
        expected: Any = {name: part for name, part in old.items()}  # noqa: C416  # Its own `copy` is not a dict.
        for write in passed:
            if not _has_reached(since, write.version):
                try:
                    expected = write.effect(expected)
                except Exception:  # The object before was another one than that of the patch.  # noqa: BLE001
                    return True
        return any(_differing(_without(expected), _without(new)))


# ---- Merge patches.


def merged(obj: Any, patch: Any) -> Any:
    """Return an object after a merge patch (RFC 7386); the object itself stays as it is.

    >>> merged({'a': 1, 'b': {'c': 2, 'd': 3}}, {'a': None, 'b': {'c': 4}})
    {'b': {'c': 4, 'd': 3}}
    """
    if not isinstance(patch, Mapping):
        return patch
    found = {name: obj[name] for name in obj} if isinstance(obj, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def stored_part(patch: Mapping[str, Any], stores: Callable[[Path], bool], path: Path = ()) -> dict[str, Any]:
    """Return the part of a merge patch that changes stored parts of an object."""
    parts = {}
    for name, value in patch.items():
        inner = (*path, name)
        if isinstance(value, Mapping) and value:
            if part := stored_part(value, stores, inner):
                parts[name] = part
        elif stores(inner):
            parts[name] = value
    return parts


def lost_paths(expected: Obj, answer: Obj, paths: Collection[Path]) -> list[Path]:
    """Return the paths, of those that a patch sets, at which the answer of the server is not as expected.

    >>> sent = {'metadata': {}, 'status': {'ready': 1, 'mode': 'x'}}
    >>> answer = {'metadata': {}, 'status': {'ready': 1}}
    >>> lost_paths(sent, answer, [('status', 'ready'), ('status', 'mode')])
    [('status', 'mode')]
    """
    return [path for path in _differing(expected, answer) if _is_within(path, paths)]


# ---- Comparing.


def finalizers_of(obj: Mapping[str, Any]) -> list[str]:
    return list(obj["metadata"].get("finalizers") or ())


def removal_of(obj: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the operations of a JSON patch that takes a finalizer off an object, if it is where it was."""
    path = f"/metadata/finalizers/{finalizers_of(obj).index(name)}"
    return [{"op": "test", "path": path, "value": name}, {"op": "remove", "path": path}]


def is_terminating(obj: Mapping[str, Any]) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def version_of(obj: Obj) -> str:
    return str(obj["metadata"].get("resourceVersion") or "")


def _has_reached(version: str, other: str) -> bool:
    """Return True if an object in a version has the effect of the write that has led to another one."""
    return version == other or (is_number(version) and is_number(other) and not is_older(version, other))


def _without(obj: Obj) -> dict[str, Any]:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _OF_SERVER}
    return {name: obj[name] for name in obj if name != "metadata"} | {"metadata": metadata}


def _differing(one: Any, other: Any, path: Path = ()) -> Iterator[Path]:
    if one == other:  # Most parts are, and this takes far less time.
        return
    # An object that is there on one side only is compared by its parts.
    before = {} if one is None and other else one
    after = {} if other is None and one else other
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        if one or other or path not in _REMOVED_IF_EMPTY:
            yield path
        return
    for name in {**before, **after}:
        yield from _differing(before.get(name), after.get(name), (*path, name))


def _is_within(path: Path, paths: Collection[Path]) -> bool:
    """Return True if one of these paths is above or below a path."""
    return any(path[: len(each)] == each or each[: len(path)] == path for each in paths)


# ---- Applies the patches of reconcilers as Kopf applies those of its handlers: a merge patch, one of the
# status if that is a subresource, then the functions as a JSON patch for the version that they have seen.


class Patcher:
    """Applies the patches of one reconciler."""

    def __init__(
        self,
        runtime: Runtime,
        resource: Resource,
        informer: Callable[[], Informer],
        own: OwnPatches,
        by: str,
        warn: Callable[[Key, list[str]], object],
    ) -> None:
        self._runtime, self._resource, self._informer, self._own = runtime, resource, informer, own
        self._kind = (resource.kind.group, resource.version, resource.kind.plural)
        self._by = by
        """Whose patches they are, for a warning."""
        self._warn = warn
        """Called with a key and the paths that the server does not take over."""
        self._live = Cache(runtime).live
        self._has_status: bool | None = None
        """True if the status is a subresource; None until the cluster is asked."""

    async def apply(
        self, key: Key, body: Mapping[str, Any], patch: kopf.Patch, *, is_exact: bool = False
    ) -> Mapping[str, Any] | None:
        """Apply a patch to an object, and return the object after it; None if functions of it, or with
        `is_exact` any part, have met a newer object: the handler must be called again. An object that does
        not exist any more is left alone.
        """
        if not patch:
            return body
        with self._sending(key):
            try:
                return await self._apply(key, body, patch, is_exact=is_exact)
            except NotFound:
                return body
            except Conflict:
                if not is_exact:
                    raise
                return None

    async def add_finalizer(self, key: Key, body: Mapping[str, Any], name: str) -> bool:
        """Put a finalizer on an object; return False if there is a newer object, or none."""
        before = finalizers_of(body)
        path, value = ("/metadata/finalizers/-", name) if before else ("/metadata/finalizers", [name])
        with self._sending(key):
            try:
                operations = [{"op": "add", "path": path, "value": value}]
                answer = await self._send_operations(key, body, operations)
            except NotFound:
                return False
        if answer is None or name in finalizers_of(answer):
            return answer is not None
        self._warn_if_lost(key, [("metadata", "finalizers")])
        return False

    async def remove_finalizer(self, key: Key, obj: Mapping[str, Any], name: str) -> bool:
        """Take a finalizer off an object; return False if there is a newer object."""
        if name not in finalizers_of(obj):
            return True
        with self._sending(key):
            try:
                return await self._send_operations(key, obj, removal_of(obj, name)) is not None
            except NotFound:
                return True

    @contextmanager
    def _sending(self, key: Key) -> Iterator[None]:
        """Let changes of an object wait meanwhile."""
        self._own.begin(key)
        try:
            yield
        finally:
            self._own.end(key)

    async def _apply(
        self, key: Key, body: Mapping[str, Any], patch: kopf.Patch, *, is_exact: bool
    ) -> Mapping[str, Any] | None:
        projection = self._informer().state.projection
        lost = list[Path]()
        newest: dict[str, Any] | None = None
        for subresource, part in await self._parts(patch):
            before = newest or body
            expected = merged(before, part)
            if not projection.partial and expected == before:
                continue
            version = {"metadata": {"resourceVersion": version_of(before)}}
            newest = await self._send(key, merged(part, version) if is_exact else part, subresource)
            effect = partial(merged, patch=stored_part(part, projection.stores))
            self._note(key, before, newest, effect)
            lost += lost_paths(expected, newest, frozenset(paths_of(part)))
        if patch.fns:
            if newest is None:
                newest = await self._whole(key) if projection.partial else copy.deepcopy(dict(body))
                if is_exact and version_of(newest) != version_of(body):
                    return None
            newest = await self._apply_functions(key, newest, patch, lost)
        self._warn_if_lost(key, lost)
        return newest or body

    def _warn_if_lost(self, key: Key, lost: Sequence[Path]) -> None:
        if names := [".".join(path) for path in self._own.note_lost(key, lost)]:
            self._warn(key, names)

    async def _parts(self, patch: kopf.Patch) -> list[tuple[str, dict[str, Any]]]:
        """Return the merge patches, each with its subresource."""
        main = dict(patch)
        if "status" not in main or not await self._is_status_apart():
            return [("", main)] if main else []
        status = {"status": main.pop("status")}
        return [*([("", main)] if main else []), ("status", status)]

    async def _is_status_apart(self) -> bool:
        if self._has_status is None:
            self._has_status = await has_subresource(self._runtime.fetches, self._resource, "status")
        return self._has_status

    async def _apply_functions(
        self,
        key: Key,
        base: dict[str, Any],
        patch: kopf.Patch,
        lost: list[Path],
    ) -> dict[str, Any] | None:
        operations: list[Any] = list(kopf.Patch(fns=patch.fns).as_json_patch(base))  # type: ignore[arg-type]  # It is one.
        of_status = [each for each in operations if f"{each['path']}/".startswith("/status/")]
        if not of_status or not await self._is_status_apart():
            parts = [("", operations)]
        else:
            parts = [("", [each for each in operations if each not in of_status]), ("status", of_status)]
        for subresource, part in parts:
            if not part:
                continue
            answer = await self._send_operations(key, base, part, subresource)
            if answer is None:
                return None
            lost += lost_paths(_after(base, part), answer, frozenset(map(_path_of, part)))
            base = answer
        return base

    async def _send_operations(
        self, key: Key, base: Mapping[str, Any], operations: list[Any], subresource: str = ""
    ) -> dict[str, Any] | None:
        """Send a JSON patch for the version of an object that was seen; return None if there is a newer."""
        tests = [
            {"op": "test", "path": f"/metadata/{each}", "value": base["metadata"][each]}
            for each in ("resourceVersion", "uid")  # The version first: only then a lost answer is repeated.
        ]
        try:
            answer = await self._send(key, [*tests, *operations], subresource, type_="json")
        except (Conflict, Invalid) as error:
            if error.causes or "denied the request" in error.message:  # Of an admission webhook.
                raise
            return None  # A test has failed.
        stores = self._informer().state.projection.stores
        stored = [each for each in operations if stores(_path_of(each))]
        self._note(key, base, answer, partial(_after, operations=stored))
        return answer

    async def _send(
        self, key: Key, changes: Any, subresource: str, *, type_: str = "merge"
    ) -> dict[str, Any]:
        name, namespace = key.name, key.namespace
        text = f"{self._by} for {self._resource} {printable_name(namespace or '', name)}"
        request = Request(verb="live.patch", kind=self._kind, name=name, namespace=namespace, text=text)
        write = writes.patch(
            self._runtime, request, changes, {}, type_=type_, subresource=subresource, by=self._by
        )
        answer: dict[str, Any] = await self._runtime.ending.limit(write)
        return answer

    async def _whole(self, key: Key) -> dict[str, Any]:
        found: dict[str, Any] = await self._live.get(self._kind, key)
        return found

    def _note(
        self,
        key: Key,
        before: Mapping[str, Any],
        answer: Mapping[str, Any],
        effect: Callable[[Any], Any],
    ) -> None:
        version = version_of(answer)
        if version != version_of(before):
            self._own.note(key, Write(version, effect))


def log_refused(error: ServerError | StateError, seconds: float) -> None:
    """Log that a patch was not applied, in one line for each attempt."""
    _logger.error(
        "A patch was not applied: %(error)s The reconciler is called again in %(seconds).3g s.",
        {"error": error.line, "seconds": seconds},
    )


def _path_of(operation: Mapping[str, Any]) -> Path:
    return tuple(jsonpatch.JsonPointer(operation["path"]).parts)


def _after(obj: Mapping[str, Any], operations: list[Any]) -> Any:
    return jsonpatch.apply_patch(copy.deepcopy(dict(obj)), operations)
