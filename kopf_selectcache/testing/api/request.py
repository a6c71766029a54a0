"""What goes in and what comes out: a request as it came over the wire, and who asks; an answer, or a watch to
follow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class User:
    """Who asks, as the server knows them."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Headers are in lower case; of a query parameter given twice, the first counts, as in the
    server.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

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
    """What a request asks for, once its path is understood."""

    verb: str
    """As RBAC names it: get, list, watch, create, update, patch, delete, deletecollection."""
    group: str
    version: str
    resource: str
    """The plural: `pods`."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
