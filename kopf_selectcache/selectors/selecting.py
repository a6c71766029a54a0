"""Compares stored objects with declared filters. Asks no cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kopf_selectcache.core.selection.kinds import Field as Column
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.projection import ALL, Projection
from kopf_selectcache.core.store.record import Record

from .selector import Branches, make_selector
from .text import FieldSelector


def value_of(field: Column, record: Record, obj: Mapping[str, Any]) -> str:
    """Return the value of a field label, where `obj` is what is kept of the object."""
    lost = record.lost()
    return lost[field.label] if field.label in lost else field.value(obj)


def selects(
    declared: Branches, record: Record, resource: Resource, projection: Projection = ALL
) -> bool | None:
    """Return True if the filter selects an object; None if only the server knows one of its fields."""
    failed = failures(declared, record, resource, projection)
    return None if failed is None else not failed


def failures(
    declared: Branches, record: Record, resource: Resource, projection: Projection = ALL
) -> tuple[str, ...] | None:
    """Return the first requirement that an object fails of each branch; None if only the server knows."""
    labels = {term.label for branch in declared.branches for term in branch.terms}
    if not labels <= resource.kind.fields.keys():
        return None
    if labels and not record.stored:
        return None
    if projection.metadata_only:
        read = record.lost()  # Of an own object, which came as a whole.
        if any(
            label not in read and not projection.has_field(resource.kind.field(label).value.paths)
            for label in labels
        ):
            return None
    obj = record.decode() if labels else {}
    fields = {label: value_of(resource.kind.field(label), record, obj) for label in labels}
    known = {**fields, "metadata.name": record.name, "metadata.namespace": record.namespace}
    failed = [branch.failed(record.labels, known) for branch in declared.branches]
    return () if None in failed else tuple(filter(None, failed))


def failures_outside(declared: Branches, record: Record) -> tuple[str, ...]:
    """Return what an object outside fails of each branch, by its metadata; else one of the fields."""
    known = {"metadata.name": record.name, "metadata.namespace": record.namespace}
    failed = []
    for branch in declared.branches:
        fields = ",".join(str(term) for term in branch.terms if term.label not in known)
        metadata = branch
        if fields:
            shown = FieldSelector(tuple(term for term in branch.terms if term.label in known))
            metadata = make_selector(branch.labels, shown, branch.names, branch.namespaces)
        failed.append(metadata.failed(record.labels, known) or fields)
    return tuple(failed)
