"""Applies the patches of reconcilers as Kopf applies those of its handlers: a merge patch, one of the status
if that is a subresource, then the functions as a JSON patch for the version that they have seen.

A part that changes nothing of the cached object is not sent.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jsonpatch
import kopf

from kopf_selectcache._errors import Conflict, Invalid, ServerError, StateError
from kopf_selectcache.cache import writes
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.errors import NotFound
from kopf_selectcache.cache.noting import Path, paths_of
from kopf_selectcache.cache.request import Request
from kopf_selectcache.client.discovery import has_subresource
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.object_key import Key

from ._key_records import OwnPatches, Write, lost_paths, merged, stored_part, version_of
from .finalizers import finalizers_of, removal_of

_logger = logging.getLogger("kopf_selectcache")


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
