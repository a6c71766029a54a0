"""Errors of writes: the server's refusals, and answers that were lost.

A server quotes values in its messages, so those about Secrets are left out.
"""

from __future__ import annotations

from typing import Any

from kopf_selectcache._errors import (
    NO_CAUSE,
    AlreadyExists,
    Cause,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotWritable,
    OutcomeUnknown,
    ReadError,
    ServerError,
    Unauthorized,
)
from kopf_selectcache.client.writer import Unsettled
from kopf_selectcache.core.protocol.messages import FieldCause, Refusal
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.informer.causes import cause_of

from .errors import NotFound, again, not_served, target_of
from .request import Request, call_of

_MOST_CAUSES = 5
"""The causes that a message names."""

_OF_SECRETS = ("", "secrets")


def refused_write(
    request: Request, verb: str, resource: Resource, refusal: Refusal
) -> ServerError | ReadError:
    """Return the error of a write that the server refuses."""
    cause, target = cause_of(refusal), target_of(request, verb, resource)
    is_secret = (resource.kind.group, resource.kind.plural) == _OF_SECRETS
    message = "" if is_secret else refusal.message
    causes = tuple(each._replace(message="") for each in refusal.causes) if is_secret else refusal.causes
    about: dict[str, Any] = {"cause": cause, "target": target, "message": message, "causes": causes}
    says = f": {message}" if message not in ("", refusal.reason) else ""
    match refusal.code, refusal.reason:
        case 401, _:
            return Unauthorized(
                f"{request!r}: the server accepts no credentials of the operator",
                remedy="Correct the operator's login",
                **about,
            )
        case 403, _:
            return _forbidden(request, verb, resource, refusal, says, **about)
        case 404, "NotFound":
            if verb == "create":
                why = f"the server lacks what it needs{says}"
                return NotFound(request, "", why=why, remedy="Create that first")
            return NotFound(request, "", remedy="Create it first; or catch NotFound if it may be absent")
        case 404, _:
            return not_served(request, cause)
        case 409, "AlreadyExists":
            return AlreadyExists(
                f"{request!r}: there is an object of this name",
                remedy=f"To create it or read what is there: {call_of('live.ensure')}",
                **about,
            )
        case 409, _:
            return _conflict(request, says, **about)
        case 410, _:
            return Gone(
                f"{request!r}: what it refers to is too old{says}",
                remedy="Read the object again, and write what follows from it",
                **about,
            )
        case 422, _:
            fields = _describe(causes)
            return Invalid(
                f"{request!r}: the server refuses the object{f': {fields}' if fields else says}",
                remedy="Correct these fields" if fields else "Correct the object",
                **about,
            )
    return ServerError(
        f"{request!r}: the server answers {refusal.code} {refusal.reason}".rstrip() + says,
        remedy=again(cause) if cause.transient else "Correct the request, or what refuses it",
        **about,
    )


def _forbidden(
    request: Request, verb: str, resource: Resource, refusal: Refusal, says: str, **about: Any
) -> Forbidden:
    within = f" in {request.namespace}" if request.namespace else ""
    grant = f"apiGroups: [{resource.kind.group!r}], resources: [{resource.kind.plural!r}]"
    # Admission and quotas answer 403 as well; a missing right is said with these words.
    if says and not ('User "' in refusal.message and '" cannot ' in refusal.message):
        return Forbidden(
            f"{request!r}: the server forbids it{says}", remedy="Correct what the server names", **about
        )
    return Forbidden(
        f"{request!r}: the operator may not {verb} {resource}{within}",
        remedy=f"Grant it the verb {verb}{within}: {grant}",
        **about,
    )


def _conflict(request: Request, says: str, **about: Any) -> Conflict:
    owned = [each for each in about["causes"] if each.reason == "FieldManagerConflict"]
    if owned:
        return Conflict(
            f"{request!r}: other field managers own {_describe(tuple(owned))}",
            remedy="Leave these fields out; or take them over: apply(..., force=True)",
            **about,
        )
    return Conflict(
        f"{request!r}: the object is another one, or in another version, than the write expects{says}",
        remedy=f"To read it again and repeat: {call_of('live.update')}",
        **about,
    )


def _describe(causes: tuple[FieldCause, ...]) -> str:
    texts = [
        " ".join(filter(None, (each.field, f"({each.message or each.reason})")))
        for each in causes[:_MOST_CAUSES]
    ]
    more = [f"{len(causes) - _MOST_CAUSES} more"] if len(causes) > _MOST_CAUSES else []
    return clipped("; ".join([*texts, *more]), 1_000)


def unknown_outcome(request: Request, verb: str, resource: Resource, lost: Unsettled) -> OutcomeUnknown:
    """Return the error of a write that may have been executed."""
    refusal = lost.refusal
    is_secret = (resource.kind.group, resource.kind.plural) == _OF_SECRETS
    message = refusal.message if refusal is not None and not is_secret else ""
    answer = f"the server answers {refusal.code} {refusal.reason}".rstrip() if refusal is not None else ""
    said = (
        f"{answer}{f': {message}' if message not in ('', refusal.reason) else ''}; "
        if refusal is not None
        else ""
    )
    cause = (
        Cause(refusal.code, refusal.reason, refusal.retry_after, transient=False)
        if refusal is not None
        else NO_CAUSE
    )
    return OutcomeUnknown(
        f"{request!r}: the write may have been executed: {said}{lost.why}",
        remedy=f"Read the object before writing it again: {call_of('live.get')}",
        cause=cause,
        target=target_of(request, verb, resource),
        message=message,
    )


def not_writable(request: Request, why: str, remedy: str) -> NotWritable:
    """Return the error of a write that is not sent."""
    return NotWritable(f"{request!r}: {why}", remedy=remedy)
