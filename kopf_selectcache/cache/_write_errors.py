"""Writes: the types of their arguments, and their errors: the server's refusals, and answers that were lost.

A server quotes values in its messages, so those about Secrets are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from kopf_selectcache._errors import (
    NO_CAUSE,
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    InvalidObject,
    OutcomeUnknown,
    ReadError,
    ServerError,
    Unauthorized,
    call_of,
)
from kopf_selectcache.client.writer import Unsettled
from kopf_selectcache.core.protocol.messages import FieldCause, Refusal
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.informer.health import cause_of, row_of

from .errors import OWN_LOGIN, NotFound, forbidden_error, not_served_error, retry_remedy, target_of
from .request import Request

Changes: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The changes of a patch: a list of operations for a JSON patch, else a part of the object."""


PatchType: TypeAlias = Literal["merge", "json", "strategic"]


Propagation: TypeAlias = Literal["background", "foreground", "orphan"]


Edit: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any] | None]
"""A function that changes an object, or returns another one."""


class AnyOptions(TypedDict, total=False):
    """The options of every write, `delete` included."""

    dry_run: bool
    timeout: float


class WriteOptions(AnyOptions, total=False):
    """The options of every write except `delete`."""

    field_manager: str


class ApplyOptions(WriteOptions, total=False):
    """The options of `apply`."""

    force: bool


class EnsureOptions(WriteOptions, total=False):
    """The options of `ensure`."""

    adopt: bool


class ReplaceOptions(WriteOptions, total=False):
    """The options of `replace` and `update`."""

    subresource: str


class PatchOptions(ReplaceOptions, total=False):
    """The options of `patch`."""

    type: PatchType


class Patch(PatchOptions, total=False):
    """The same, with the namespace."""

    namespace: str | None


class Update(ReplaceOptions, total=False):
    """The options of `update`, with the namespace."""

    namespace: str | None


_MOST_CAUSES = 5
"""The causes that a message names."""

_INVALID = 422


_OF_SECRETS = ("", "secrets")


def refused_write(
    request: Request, verb: str, resource: Resource, refusal: Refusal
) -> ServerError | ReadError:
    """Return the error of a write that the server refuses."""
    cause, about = cause_of(refusal), _about(request, verb, resource, refusal)
    answer = f"the server answers {refusal.code} {refusal.reason}".rstrip()
    message, causes = about["message"], about["causes"]
    says = f": {message}" if message not in ("", refusal.reason) else ""
    error: type[ServerError] = ServerError
    match refusal.code, refusal.reason:
        case 401, _:
            row, facts = row_of(refusal), {"resource": request.subject, **OWN_LOGIN}
            return Unauthorized(row.sentence % facts, remedy=row.asked % facts, **about)
        # Admission and quotas answer 403 as well; a missing permission is said with these words.
        case 403, _ if says and not ('User "' in refusal.message and '" cannot ' in refusal.message):
            error, why, remedy = (
                Forbidden,
                f": the server forbids it{says}",
                "Fix the cause that the server names",
            )
        case 403, _:
            namespaces = (request.namespace,) if request.namespace else None
            return forbidden_error(verb, resource, namespaces, request.text and f"{request.text}: ", **about)
        case 404, "NotFound" if verb == "create" or request.verb == "live.apply":
            missing = message or "something that the object needs"
            why = f"{request.subject} can't be created: {missing} does not exist".replace(
                " not found does", " does"
            )
            return NotFound(request, "", why=why, remedy="Create that first")
        case 404, "NotFound":
            create = "Create it first\nIf it may not exist, catch NotFound"
            remedy = "If it may be deleted already, catch NotFound" if verb == "delete" else create
            return NotFound(request, "", remedy=remedy)
        case 404, _:
            return not_served_error(request, cause)
        case 409, "AlreadyExists":
            error, why = AlreadyExists, " already exists"
            remedy = f"To create it, or get the existing object: {call_of('live.ensure')}"
        case 409, _ if owned := tuple(each for each in causes if each.reason == "FieldManagerConflict"):
            error, why = Conflict, f": other field managers own {_describe(owned)}"
            remedy = "Leave these fields out\nTo take them over: apply(..., force=True)"
        case 409, _:
            error, why = Conflict, f" has changed since it was read, or is another object{says}"
            remedy = f"To read it again and repeat: {call_of('live.update')}"
            if verb == "delete":
                remedy = "Read it again before deleting it"
        case 410, _:
            error, why = Expired, f": the version in the request has expired{says}"
            remedy = "Read the object again, and write it with its new version"
        case code, _ if code == _INVALID or refusal.is_of_schema:
            fields = f": {_describe(causes)}" if causes else says
            error, why = Invalid, f": the server refuses the object{fields}"
            remedy = "Correct these fields" if causes else "Correct the object"
        case _:
            why = f": {answer}{says}"
            remedy = (
                retry_remedy(cause)
                if cause.transient
                else "Correct the request, or the component that refuses it"
            )
    return error(f"{request.subject}{why}", remedy=remedy, **about)


def _about(request: Request, verb: str, resource: Resource, refusal: Refusal) -> dict[str, Any]:
    """Return the data of an error: the messages of the server are left out for a Secret."""
    message, causes = refusal.message, refusal.causes
    if (resource.kind.group, resource.kind.plural) == _OF_SECRETS:
        message, causes = "", tuple(each._replace(message="") for each in causes)
    if request.text:  # The log has it at each attempt.
        message = _brief(message)
        causes = tuple(each._replace(message=_brief(each.message)) for each in causes)
    target = target_of(request, verb, resource)
    return {"cause": cause_of(refusal), "target": target, "message": message, "causes": causes}


def _brief(message: str) -> str:
    """Return a message of the server up to the first object that it quotes."""
    said, found, _ = message.partition("{")
    return f"{said}…" if found else said


def _describe(causes: tuple[FieldCause, ...]) -> str:
    texts = [
        " ".join(filter(None, (each.field, f"({each.message or each.reason})")))
        for each in causes[:_MOST_CAUSES]
    ]
    more = [f"{len(causes) - _MOST_CAUSES} more"] if len(causes) > _MOST_CAUSES else []
    return clipped("; ".join([*texts, *more]), 1_000)


def unknown_outcome(request: Request, verb: str, resource: Resource, lost: Unsettled) -> OutcomeUnknown:
    """Return the error of a write that may have been executed."""
    about = _about(request, verb, resource, lost.refusal or Refusal(0))
    about["cause"] = NO_CAUSE if lost.refusal is None else about["cause"]._replace(transient=False)
    answer = "" if lost.refusal is None else f"{lost.refusal.code} {about['message'] or lost.refusal.reason}"
    says = f"the server answers {answer.rstrip()}; " if answer else ""
    why = f"the write may or may not have been executed: {says}{lost.why}"
    remedy = f"Read the object before you write it again: {call_of('live.get')}"
    if request.verb == "live.create" and request.name:
        remedy = f"To get the object, whoever created it: {call_of('live.ensure')}"
    return OutcomeUnknown(f"{request.subject}: {why}", remedy=remedy, **about)


def not_writable(request: Request, why: str, remedy: str) -> InvalidObject:
    """Return the error of a write that is not sent."""
    return InvalidObject(f"{request.subject}: {why}", remedy=remedy)
