"""Notes the writes of one call of a handler: what each has found in the cache, and what it has left there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec

from kopf_selectcache.core.errors import Garbled, Untransformed
from kopf_selectcache.core.json_text import decoded
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.lost_answer import Verb, Write
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.object_key import Key

from .own_writes import informers_of, metadata_in

Path: TypeAlias = tuple[str, ...]


class WriteTarget(NamedTuple):
    """The object of a write. The name is empty if the server makes it."""

    resource: str
    namespace: str | None
    name: str
    subresource: str

    def __str__(self) -> str:
        return f"{self.resource} {printable_name(self.namespace or '', self.name or '(a new name)')}"

    def is_of(self, resource: str, key: Key) -> bool:
        """Return True if it is this object."""
        return (self.resource, self.namespace, self.name) == (resource, key.namespace, key.name)


class Written(NamedTuple):
    """A write that the server has accepted, and that has changed something."""

    target: WriteTarget
    name: str
    """The name of the object."""
    uid: str
    version: str
    is_deletion: bool
    found: frozenset[int]
    """The values that the cache had before, at the paths that the write sets, each as a hash."""
    left: frozenset[int]
    """The values that the server has answered there."""

    @property
    def obj(self) -> Key:
        """The key of the object."""
        return Key(self.name, namespace=self.target.namespace)

    def repeats(self, last: Written) -> bool:
        """Return True if it writes again what the last write has left: somebody has undone that."""
        if not self.target.name or self.is_deletion or last.is_deletion:
            return False
        if self.uid and last.uid and self.uid != last.uid:
            return True
        return bool((self.left - self.found) & last.left)


notes: ContextVar[Callable[[Written], object] | None] = ContextVar("kopf_selectcache.notes", default=None)
"""Called with each write of the running call."""


def noting(
    runtime: Runtime, resource: Resource, namespace: str | None, write: Write
) -> Callable[[bytes], object]:
    """Return what notes the answer to a write, which is not sent yet."""
    note = notes.get()
    if note is None:
        return lambda _: None
    informer = next(
        (each for each in informers_of(runtime, resource) if each.state.resource == resource), None
    )
    before = None if informer is None else _shown(informer, (namespace or "", write.name))
    target = WriteTarget(str(resource), namespace, write.name, write.subresource)
    return partial(_note, note, target, write, informer, before)


def _note(
    note: Callable[[Written], object],
    target: WriteTarget,
    write: Write,
    informer: Informer | None,
    before: Record | None,
    answer: bytes,
) -> None:
    metadata, is_deletion = metadata_in(answer), write.verb is Verb.DELETE
    if before is not None and before.version == metadata.resource_version and not is_deletion:
        return  # It has changed nothing.
    found = left = frozenset[int]()
    if informer is not None and before is not None and before.stored:
        paths = list(_paths_in(write.body))
        found, left = _values(before.decode(), paths), _values(_cached(informer, answer), paths)
    name = metadata.name or target.name
    note(Written(target, name, metadata.uid, metadata.resource_version, is_deletion, found, left))


def _shown(informer: Informer, key: tuple[str, str]) -> Record | None:
    """Return the object as the cache has it, own writes included."""
    state = informer.state
    with state.own_writes.lock:
        held, own = state.store.peek(*key), state.own_writes.get(key)
        return held if own is None else own.record if held is None else own.instead_of(held, "")


def _cached(informer: Informer, answer: bytes) -> Any:
    """Return an answer as it will be cached; None if it is no object that can be."""
    assert informer.state.resource is not None, "it was compared"
    try:
        if not informer.state.projection.partial:
            return decoded(answer)
        record = Reader.of(informer.state.resource, informer.state.projection).record(answer, kindless=False)
        return record.decode() if record.stored else None
    except (Garbled, Untransformed, msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _values(obj: Any, paths: Iterable[Path]) -> frozenset[int]:
    if obj is None:
        return frozenset()
    return frozenset(value for path in paths if (value := _value(obj, path)) is not None)


def _value(value: Any, path: Path) -> int | None:
    """Return the hash of what is at a path; None if nothing is. A list is a value as a whole."""
    for length, name in enumerate(path):
        if not isinstance(value, Mapping):
            path = path[:length]
            break
        if name not in value:
            return None
        value = value[name]
    return hash((path, msgspec.json.encode(value, order="deterministic")))


def _paths_in(body: Any) -> Iterator[Path]:
    if isinstance(body, Mapping):
        yield from paths_of(body)
    else:  # The operations of a JSON patch.
        for each in body:
            parts = each["path"].split("/")[1:]
            yield tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def paths_of(patch: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths that a merge patch sets or removes.

    >>> list(paths_of({'status': {'ready': 1, 'phase': None}}))
    [('status', 'ready'), ('status', 'phase')]
    """
    if isinstance(patch, Mapping) and patch:
        for name, value in patch.items():
            yield from paths_of(value, (*path, name))
    else:
        yield path
