"""Split: the streams that a change of the filter keeps, opens and ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan, Stream

from .reflector import Reflector
from .state import InformerState


def are_stored_alike(declared: Cached, other: Cached, present: Mapping[str, Indexed]) -> bool:
    """Return True if both store the same part of each object in the same form, and the stored objects have
    all values of the indexes, or can give them. `present` has the indexes of the other one, by name.
    """
    return (declared.projection, declared.storage) == (
        other.projection,
        other.storage,
    ) and not _needs_whole_objects(declared, present)


def _needs_whole_objects(declared: Cached, present: Mapping[str, Indexed]) -> bool:
    """Return True if an index that is not present reads a part of the objects that is not stored."""
    return not all(
        each.late or _has_values(each, present.get(each.name)) or can_be_read(each, declared.projection)
        for each in declared.indexes
    )


def can_be_read(index: Indexed, projection: Projection) -> bool:
    """Return True if the stored part of each object has the values of an index."""
    return not projection.partial or (index.path is not None and projection.exact(index.path))


def _has_values(index: Indexed, present: Indexed | None) -> bool:
    """Return True if the stored objects have its values, read off whole objects."""
    return present is not None and not present.late and present.is_like(index)


class Relist(StrEnum):
    """Why a change opens a stream, and does not keep one."""

    NEW = "new selector"
    PROJECTION = "another part of each object is stored"
    STORAGE = "objects are stored in another form"
    INDEX = "an index reads a part of each object that is not stored"
    INCOMPLETE = "the present list is not complete"


@dataclass(frozen=True)
class Split:
    """The streams of a change."""

    kept: Mapping[Stream, Reflector]
    """The present streams that the next filter keeps."""
    opened: Mapping[Stream, Relist]
    """The streams that it opens, with the reason for each."""
    ended: tuple[Reflector, ...]
    """The present streams that it ends."""

    def __str__(self) -> str:
        opened = ", ".join(f"{stream.selector} ({why})" for stream, why in self.opened.items())
        new = f"{len(self.opened)} new{f', {clipped(opened)}' if opened else ''}"
        return f"watches: {new}; {len(self.kept)} kept, {len(self.ended)} closed"


def split_streams(state: InformerState, before: Cached, declared: Cached, planned: Plan) -> Split:
    """Return the streams that a change from one declaration to another keeps, opens and ends."""
    present = {each.stream: each for each in state.reflectors}
    kept: dict[Stream, Reflector] = {}
    opened: dict[Stream, Relist] = {}
    for stream in planned.streams:
        reflector = present.get(stream)
        if reflector is None:
            opened[stream] = Relist.NEW
        elif declared.projection != before.projection:
            opened[stream] = Relist.PROJECTION
        elif declared.storage != before.storage:
            opened[stream] = Relist.STORAGE
        elif _needs_whole_objects(declared, state.indexes):
            opened[stream] = Relist.INDEX
        elif not (state.union.has_one_epoch and _is_complete(reflector)):
            opened[stream] = Relist.INCOMPLETE
        else:
            kept[stream] = reflector
    return Split(kept, opened, tuple(each for each in state.reflectors if each.stream not in kept))


def _is_complete(reflector: Reflector) -> bool:
    substore = reflector.substore
    return reflector.goes_on and bool(substore.version) and substore.view.stages_nothing
