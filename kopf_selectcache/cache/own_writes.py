"""Read your writes: hands the server's answers to writes over to the informers, which lay them over reads.

Each answer is compared with the whole filter: an object in it is shown, and one outside of it hides the
stored one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from kopf_selectcache._errors import ReadError
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled, Untransformed
from kopf_selectcache.core.json_text import with_room
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.redact import shown
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.claims import OwnWrite, OwnWrites
from kopf_selectcache.core.store.record import is_older
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.state import InformerState
from kopf_selectcache.selectors.selecting import selects

from .formats.given import as_dict


def remember_answer(runtime: Runtime, resource: Resource, answer: bytes) -> None:
    """Show an object as the server answered a write, until the streams have passed its version."""
    for informer in informers_of(runtime, resource):
        if informer.state.resource is not None and informer.state.resource.version == resource.version:
            _add(informer, resource, answer)


async def read_written(
    runtime: Runtime,
    resource: Resource,
    namespace: str | None,
    answer: bytes,
    seconds: float,
    *,
    is_whole: bool,
) -> None:
    """Read a written object again in each version of its API that is cached, and show it there. `is_whole` is
    true if the answer is the object in its own version.

    Only the server converts objects. If the object cannot be read, it is shown when its event arrives.
    """
    known = [informer.state.resource for informer in informers_of(runtime, resource)]
    shown = resource.version if is_whole else None
    others = {each.version: each for each in known if each is not None and each.version != shown}
    name = metadata_in(answer).name if others else ""
    for other in others.values() if name else ():
        with suppress(Refused, Unreachable, Garbled, TimeoutError):
            async with asyncio.timeout(seconds):
                found = await runtime.fetches.get(other.path(namespace, name), {})
            remember_answer(runtime, other, found)


def shown_uids(runtime: Runtime, resource: Resource, namespace: str | None, name: str) -> frozenset[str]:
    """Return the uids of the objects that are stored or laid over under a name, also outside of a split cache
    and for the next filter. If an object of another uid is deleted after this, they are gone.
    """
    key, found = (namespace or "", name), set[str]()
    for informer in informers_of(runtime, resource):
        for state in informer.states:
            with state.own_writes.lock:
                known = (state.union.store.locate(*key)[0], state.own_writes.get(key))
            found |= {each.uid for each in known if each}
    return frozenset(found)


def remember_deletion(
    runtime: Runtime,
    resource: Resource,
    namespace: str | None,
    name: str,
    uid: str,
    answer: bytes = b"",
    *,
    before: frozenset[str] = frozenset(),
) -> None:
    """Hide a deleted object, and those of the name that were shown before the deletion was sent. If the
    server's answer is the object, which waits for its finalizers or the end of its grace period, show that.
    """
    last = metadata_in(answer)
    if last.is_there:
        remember_answer(runtime, resource, answer)
        return
    for informer in informers_of(runtime, resource):
        _add_deletion(informer, (namespace or "", name), uid, before, last.resource_version)


def remember(runtime: Runtime, call: str, source: object, *, deleted: bool = False) -> None:
    """Show or hide the object that another client has received; raise ReadError if it is no such object."""
    obj = as_dict(source) or {}
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        raise ReadError(
            f"{call}: {shown(source)} isn't a Kubernetes object",
            remedy="Give the object that the client returned",
        )
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    needed = {"apiVersion": api_version, "kind": kind} | {
        f"metadata.{key}": metadata.get(key)
        for key in ("name", "uid", *(() if deleted else ("resourceVersion",)))
    }
    if lacking := [path for path, value in needed.items() if not isinstance(value, str) or not value]:
        raise ReadError(
            f"{call}: the object has no {lacking[0]}",
            remedy="Give the object that the server returned, not the one that you sent",
        )
    group = str(api_version).rpartition("/")[0]
    name, uid, namespace = metadata["name"], metadata["uid"], metadata.get("namespace") or ""
    for informer in list(runtime.informers.values()):
        resource = informer.state.resource
        if resource is None or (resource.kind.group, resource.kind.kind) != (group, kind):
            continue
        if deleted:
            # Whatever is older was gone before, also under another uid that no stream has reported.
            version = metadata.get("resourceVersion")
            floor = version if isinstance(version, str) else ""
            _add_deletion(informer, (namespace, name), uid, floor=floor)
        elif api_version == resource.api_version:  # Only the server converts objects.
            # The caller's dict may change later.
            _add(informer, resource, with_room(partial(msgspec.json.encode, obj)))


def informers_of(runtime: Runtime, resource: Resource) -> Iterator[Informer]:
    """Return the informers of a resource, in any version of its API."""
    for informer in list(runtime.informers.values()):
        known = informer.state.resource
        if known is not None and (known.kind.group, known.kind.plural) == (
            resource.kind.group,
            resource.kind.plural,
        ):
            yield informer


def _add(informer: Informer, resource: Resource, answer: bytes) -> None:
    """Show an object that was created or changed, by the present filter and by the next one."""
    for state in _states_of(informer):
        if (write := _write_of(informer, state, resource, answer)) is not None:
            informer.pending_writes.add(write, state)


def _states_of(informer: Informer) -> Iterator[InformerState]:
    """Yield the present state, and the next one while the filter changes; also one that begins meanwhile."""
    seen: list[OwnWrites] = []
    while state := next((each for each in informer.states if each.own_writes not in seen), None):
        seen.append(state.own_writes)
        yield state


def _add_deletion(
    informer: Informer,
    key: tuple[str, str],
    uid: str,
    before: frozenset[str] = frozenset(),
    floor: str = "",
) -> None:
    for state in _states_of(informer):
        informer.pending_writes.add(_deletion_of(informer, state, key, uid, before, floor), state)


def _write_of(informer: Informer, state: InformerState, resource: Resource, answer: bytes) -> OwnWrite | None:
    """Return the write of an object that was created or changed; None if it is not known whether the filter
    selects it, or if the operator's own function fails for it, as it will for the event of its stream.
    """
    try:
        reader = Reader.of(resource, state.projection, indexes=state.indexes.values())
        record = reader.record(answer, kindless=False)
    except (Garbled, Untransformed):
        return None
    selected = selects(state.filter, record, resource, state.projection)
    if selected is None:
        return None
    return OwnWrite(
        record.key,
        record.uid,
        record.version,
        record if selected else None,
        informer.environment.clock(),
        expected=selected or state.store.peek(*record.key) is not None,
        outside=None if selected else record,
    )


def _deletion_of(
    informer: Informer,
    state: InformerState,
    key: tuple[str, str],
    uid: str,
    before: frozenset[str],
    floor: str,
) -> OwnWrite:
    held, gone = state.store.peek(*key), before | {uid}
    expected = held is not None and held.uid in gone
    if held is not None and expected and (not floor or is_older(floor, held.version)):
        floor = held.version
    at = informer.environment.clock()
    return OwnWrite(key, uid, "", None, at, expected=expected, floor=floor, deleted=gone)


def metadata_in(answer: bytes) -> _WrittenMetadata:
    """Return the metadata in an answer, which is an object, a Status, or empty."""
    try:
        return msgspec.json.decode(answer, type=_Answer).metadata
    except msgspec.DecodeError:
        return _WrittenMetadata()


class _WrittenMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None

    @property
    def is_there(self) -> bool:
        """True if the object exists until others let it go."""
        return self.deletion_timestamp is not None and bool(
            self.finalizers or self.deletion_grace_period_seconds
        )


class _Answer(msgspec.Struct):
    metadata: _WrittenMetadata = msgspec.field(default_factory=_WrittenMetadata)
