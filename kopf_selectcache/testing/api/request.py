"""The inputs and outputs of the API: a parsed HTTP request and its user; a response, or a watch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Headers are in lower case; the first value of a query parameter counts, as
    on the server.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    code: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, body: object, *, code: int = 200, content_type: str = JSON, end: bytes = b"\n") -> Answer:
        return cls(
            code,
            json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(errors="replace") + end,
            content_type,
        )


@dataclass(frozen=True, slots=True)
class Call:
    """The meaning of a request, from its path and method."""

    verb: str
    """The verb of RBAC: get, list, watch, create, update, patch, delete, deletecollection."""
    group: str
    version: str
    resource: str
    """The plural: `pods`."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
