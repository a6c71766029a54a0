"""Objects that exist and that the declared filter hides: the error that names the label, and the patch that
adds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kopf_selectcache._errors import AlreadyExists, HiddenByFilter, call_of
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.field_values import as_mapping
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.selecting import failures
from kopf_selectcache.selectors.selector import Branches

from .errors import target_of
from .formats.given import Given
from .request import Request


def require_selected(
    request: Request, resource: Resource, declared: Branches, record: Record, given: Given
) -> None:
    """Raise HiddenByFilter if the filter does not hold the object."""
    if failed := failures(declared, record, resource):
        adopted = _with(record, _missing_labels(declared, record, given))
        is_enough = not failures(declared, adopted, resource)
        remedy = f"Add it: {call_of('live.ensure', 'adopt=True')}" if is_enough else _relabel()
        raise _hidden(request, resource, record, failed, remedy)


def _relabel() -> str:
    patch = call_of("live.patch")
    return f"Give the object these labels\nTo change a label that has another value: {patch}"


def _with(record: Record, labels: Mapping[str, Any]) -> Record:
    return msgspec.structs.replace(record, labels={**record.labels, **labels})


def adoption_of(
    request: Request, resource: Resource, declared: Branches | None, record: Record, given: Given
) -> dict[str, Any] | None:
    """Return the merge patch that adds the labels and owners of the given object to the existing one, in this
    version; None if it has them.

    Raise AlreadyExists if another controller owns the existing object, and HiddenByFilter if the filter would
    not select it with these labels: labels with another value are not changed.
    """
    found = record.decode().get("metadata", {})
    _require_no_other_controller(request, resource, found, given)
    labels = _missing_labels(declared, record, given)
    if declared is not None and (failed := failures(declared, _with(record, labels), resource)):
        raise _hidden(request, resource, record, failed, _relabel())
    known = {each.get("uid") for each in _owners(found)}
    owners = [each for each in _owners(given.metadata) if each.get("uid") not in known]
    changes: dict[str, Any] = {"labels": labels} if labels else {}
    changes |= {"ownerReferences": [*_owners(found), *owners]} if owners else {}
    if not changes:
        return None
    return {"metadata": {**changes, "uid": record.uid, "resourceVersion": record.version}}


def _missing_labels(declared: Branches | None, record: Record, given: Given) -> dict[str, Any]:
    """Return the labels of the given object that the filter requires and the existing object lacks."""
    if declared is None:
        return {}
    wanted = as_mapping(given.metadata.get("labels"))
    keys = {each.key for branch in declared.branches for each in branch.requirements}
    return {key: wanted[key] for key in sorted(keys) if key in wanted and key not in record.labels}


def _require_no_other_controller(
    request: Request, resource: Resource, found: Mapping[str, Any], given: Given
) -> None:
    controller = next((each for each in _owners(found) if each.get("controller") is True), None)
    if controller is None or controller.get("uid") in {each.get("uid") for each in _owners(given.metadata)}:
        return
    owner = clipped(f"{controller.get('kind')} {controller.get('name')}", 300)
    what, target = (
        f"{request.subject} already exists, and {owner} controls it",
        target_of(request, "patch", resource),
    )
    raise AlreadyExists(what, remedy="Choose another name\nLet its owner delete it", target=target)


def _hidden(
    request: Request, resource: Resource, record: Record, failed: Sequence[str], remedy: str
) -> HiddenByFilter:
    lacks = tuple(dict.fromkeys(failed))
    fails = clipped(" and ".join(lacks), 500)
    what = f"{request.subject} already exists, but the filter leaves it out: it fails {fails}"
    target = target_of(request, "create", resource)._replace(name=record.name)
    return HiddenByFilter(what, remedy=remedy, lacks=lacks, target=target)


def _owners(metadata: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    owners = metadata.get("ownerReferences")
    return [each for each in owners if isinstance(each, Mapping)] if isinstance(owners, list) else []
