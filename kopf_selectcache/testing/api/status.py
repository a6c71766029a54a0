"""Refusals with the texts of the API server: a Status. It may quote the body, as the server does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Problem(Exception):
    """A refused request; `status()` is the body of the response, and of an ERROR event in a watch."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        continuation: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.continuation = continuation
        """A fresh token, by which an expired list may continue in the present state."""

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continuation} if self.continuation else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        return body | {"code": self.code}


def _named(resource: str, name: str, group: str = "") -> dict[str, Any]:
    return {key: value for key, value in {"name": name, "group": group, "kind": resource}.items() if value}


def _full(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def no_such_path() -> Problem:
    return Problem(404, "NotFound", "the server could not find the requested resource", details={})


def not_found(resource: str, name: str, *, group: str = "") -> Problem:
    return Problem(
        404, "NotFound", f'{_full(resource, group)} "{name}" not found', details=_named(resource, name, group)
    )


def already_exists(resource: str, name: str, *, group: str = "") -> Problem:
    message = f'{_full(resource, group)} "{name}" already exists'
    return Problem(409, "AlreadyExists", message, details=_named(resource, name, group))


def conflict(resource: str, name: str, why: str, *, group: str = "") -> Problem:
    message = f'Operation cannot be fulfilled on {_full(resource, group)} "{name}": {why}'
    return Problem(409, "Conflict", message, details=_named(resource, name, group))


CHANGED = "the object has been modified; please apply your changes to the latest version and try again"


def bad_request(message: str) -> Problem:
    return Problem(400, "BadRequest", message)


def invalid(kind: str, name: str, causes: Sequence[Mapping[str, str]], *, group: str = "") -> Problem:
    """Refuse an object: each cause has a reason, a message and a field."""
    # The server checks some things twice, lists both findings as causes, and reports them once.
    told = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in causes))
    listed = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    return Problem(
        422,
        "Invalid",
        f'{_full(kind, group)} "{name}" is invalid: {listed}',
        details={**_named(kind, name, group), "causes": [dict(cause) for cause in causes]},
    )


def expired(message: str, *, continuation: str = "") -> Problem:
    return Problem(410, "Expired", message, continuation=continuation)


def too_large(version: int, current: int) -> Problem:
    """Refuse to wait any longer for a future version."""
    message = "Too large resource version"
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": message}], "retryAfterSeconds": 1}
    return Problem(504, "Timeout", f"Timeout: {message}: {version}, current: {current}", details=details)


def method_not_allowed() -> Problem:
    return Problem(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def not_acceptable(message: str) -> Problem:
    return Problem(406, "NotAcceptable", message)


def unauthorized() -> Problem:
    return Problem(401, "Unauthorized", "Unauthorized")


def unsupported_media_type(given: str, accepted: Sequence[str]) -> Problem:
    message = (
        "the body of the request was in an unknown format - accepted media types include:"
        f" {', '.join(accepted)}"
    )
    return Problem(415, "UnsupportedMediaType", message) if given else bad_request(message)


def not_implemented(what: str) -> Problem:
    """Refuse a feature that the embedded server lacks: operators and caches work without it."""
    return Problem(
        501,
        "NotImplemented",
        f"the embedded API server does not have {what}: a cluster has it, or the real kube-apiserver",
    )
