"""The shapes that the decoder reads JSON into, as far as it reads it. The rest is `Raw`."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

_NULL = msgspec.Raw(b"null")
_Undecoded: TypeAlias = msgspec.Raw | msgspec.UnsetType


class Owner(msgspec.Struct, gc=False):
    uid: str = ""


class Metadata(msgspec.Struct, gc=False, rename={"version": "resourceVersion", "owners": "ownerReferences"}):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = ""
    labels: msgspec.Raw = _NULL
    owners: msgspec.Raw = _NULL


class Object(msgspec.Struct, rename={"api_version": "apiVersion"}):
    api_version: str = ""
    kind: str = ""
    metadata: Metadata | None = None


class UsualMetadata(
    msgspec.Struct,
    gc=False,
    rename={"version": "resourceVersion", "owners": "ownerReferences", "managed": "managedFields"},
):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = ""
    labels: _Undecoded = msgspec.UNSET
    owners: _Undecoded = msgspec.UNSET
    managed: _Undecoded = msgspec.UNSET


class UsualObject(msgspec.Struct, gc=False, rename={"api_version": "apiVersion"}):
    """The kind and metadata of an object. The decoder skips the rest, which is then certainly JSON."""

    api_version: str = ""
    kind: str = ""
    metadata: UsualMetadata | None = None


class UsualPartial(
    msgspec.Struct, gc=False, forbid_unknown_fields=True, rename={"api_version": "apiVersion"}
):
    """An object of which only the metadata is received, and nothing else."""

    api_version: str = ""
    kind: str = ""
    metadata: UsualMetadata | None = None


class Marked(msgspec.Struct, rename={"version": "resourceVersion"}):
    version: str = ""
    annotations: dict[str, str] | None = None


class Mark(msgspec.Struct, rename={"api_version": "apiVersion"}):
    metadata: Marked
    api_version: str = ""
    kind: str = ""


class AnswerMetadata(msgspec.Struct, rename={"version": "resourceVersion", "token": "continue"}):
    version: str = ""
    token: str = ""


class Details(msgspec.Struct, rename={"retry_after": "retryAfterSeconds"}):
    retry_after: float | None = None
    causes: msgspec.Raw = _NULL


class StatusCause(msgspec.Struct):
    field: str = ""
    reason: str = ""
    message: str = ""


class ListOrStatus(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """A list or a Status: the same request may be answered by either."""

    api_version: str = ""
    kind: str = ""
    metadata: AnswerMetadata | None = None
    items: list[msgspec.Raw] | None = None
    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


class Line(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
