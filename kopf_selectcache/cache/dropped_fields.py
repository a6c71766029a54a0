"""Warns of what the server has left out of a write: unknown fields, or a status without subresource."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import jsonpatch
import msgspec

from kopf_selectcache import _kopf
from kopf_selectcache.client.discovery import Server, has_subresource
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.json_text import decoded
from kopf_selectcache.core.protocol.lost_answer import Verb, Write, contains
from kopf_selectcache.core.redact import printable
from kopf_selectcache.core.selection.kinds import Resource

_logger = logging.getLogger("kopf_selectcache")

MAX_WARNINGS = 1_000
"""The warnings of one operator. Names that are made up at run time would have no end."""

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_UNKNOWN = re.compile(r'unknown field "(.*)"')
_INDEX = re.compile(r"\[\d+\]")

_CHANGING = (Verb.REPLACE, Verb.MERGE, Verb.STRATEGIC, Verb.JSON)
"""The writes of an object that exists, which may name a subresource."""

_OF_ALL = ("apiVersion", "kind", "metadata")
"""The parts that are written with and without a subresource."""


def fields_in(header: str) -> Iterator[str]:
    r"""Yield the paths of the dropped fields that a `Warning` header of a server names.

    >>> list(fields_in(r'299 - "v1 Endpoints is deprecated", 299 - "unknown field \"status.nope\""'))
    ['status.nope']
    """
    for text in _WARNING.findall(header):
        if found := _UNKNOWN.fullmatch(_ESCAPED.sub(r"\1", text)):
            yield printable(found[1], 200)


def ignored_parts(write: Write, answer: Mapping[str, Any]) -> list[str]:
    """Return the parts of a write that its path does not write, and that the answer of the server has with
    other values.

    >>> ignored_parts(Write(Verb.MERGE, {"spec": {"a": 1}, "status": {"b": 2}}), {"spec": {}, "status": {}})
    ['status']
    """
    if write.verb is Verb.JSON:
        parts = [(each["path"].split("/")[1], _is_done(each, answer)) for each in write.body if each["path"]]
    else:
        parts = [
            (part, _is_taken(answer.get(part), value))
            for part, value in write.body.items()
            if _is_elsewhere(part, write)
        ]
    return sorted({part for part, is_there in parts if not is_there and _is_elsewhere(part, write)})


def _is_elsewhere(part: str, write: Write) -> bool:
    """Return True if the path of a write does not write a part."""
    return (write.subresource == "status") is not (part == "status") and part not in _OF_ALL


def _is_done(operation: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Return True if an operation that the server has accepted changes nothing, or is in the answer."""
    if operation["op"] in ("add", "replace"):
        found = jsonpatch.JsonPointer(operation["path"]).resolve(answer, None)
        return bool(found == operation["value"])
    return bool(operation["op"] == "test")


def _is_taken(found: Any, sent: Any) -> bool:
    """Return True if an answer has what was sent; None if it has nothing there."""
    todo = [(found, sent)]
    while todo:
        there, wanted = todo.pop()
        if isinstance(wanted, Mapping):
            inner = there if isinstance(there, Mapping) else {}
            todo += [(inner.get(key), value) for key, value in wanted.items()]
        elif (wanted is None and there) or not contains({"": there}, {"": wanted}):
            return False
    return True


class DroppedFields:
    """The dropped fields of which the log of one operator has warned."""

    def __init__(self, _: object) -> None:
        self._warned = set[tuple[str, str, str]]()

    def close(self) -> None:
        """There is nothing to end."""

    def warn(self, header: str, resource: Resource, by: str) -> None:
        """Log the dropped fields that a `Warning` header names, each once for a kind and its writer."""
        for field in fields_in(header):
            key = by, str(resource), _INDEX.sub("[]", field)
            if key not in self._warned and len(self._warned) < MAX_WARNINGS:
                self._warned.add(key)
                _logger.warning(
                    "The server dropped %(field)s from %(by)s: %(resource)s don't have that field. Correct"
                    " the name of the field, or the schema of the custom resource.",
                    {"field": field, "by": by, "resource": str(resource)},
                )

    async def warn_of_ignored(
        self, server: Server, resource: Resource, write: Write, data: bytes, by: str
    ) -> None:
        """Log the parts of a write that the server has ignored, each once for a kind and its writer."""
        if write.verb not in _CHANGING or write.subresource not in ("", "status"):
            return
        named = (
            (each["path"][1:].split("/")[0] for each in write.body) if write.verb is Verb.JSON else write.body
        )
        if not any(_is_elsewhere(part, write) for part in named):
            return  # Most writes are as they should be, and their answers need no decoding.
        parts = list[str]()
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError, AttributeError):
            parts = ignored_parts(write, decoded(data))  # An answer that is no object fails where it is read.
        for part in parts:
            key = by, str(resource), f"{part}/{write.subresource}"
            if key not in self._warned and len(self._warned) < MAX_WARNINGS:
                with suppress(Refused, Unreachable, Garbled):  # The next write asks again.
                    await self._warn_of(part, write, server, resource, by)
                    self._warned.add(key)

    async def _warn_of(self, part: str, write: Write, server: Server, resource: Resource, by: str) -> None:
        names = {"part": printable(part, 200), "by": by, "resource": str(resource)}
        if write.subresource:
            _logger.warning(
                "The server ignored %(part)s in %(by)s: subresource='status' only writes the status of"
                " %(resource)s. To write %(part)s, leave subresource= out.",
                names,
            )
        elif await has_subresource(server, resource, "status"):
            _logger.warning(
                "The server ignored the status in %(by)s: the status of %(resource)s is a subresource. To"
                " write it, give subresource='status'.",
                names,
            )


def writer_of(verb: str) -> str:
    """Return a call of `cache.live` for the log, with the handler that makes it."""
    handler = _kopf.handler_var.get(None)
    return f"cache.{verb}()" if handler is None else f"cache.{verb}() of {handler}"
