"""Warns of fields that the server has dropped from a write, since the kind has no such fields."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from kopf_selectcache import _kopf
from kopf_selectcache.core.redact import printable
from kopf_selectcache.core.selection.resource import Resource

_logger = logging.getLogger("kopf_selectcache")

MOST = 1_000
"""The warnings of one operator. Names that are made up at run time would have no end."""

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_UNKNOWN = re.compile(r'unknown field "(.*)"')
_INDEX = re.compile(r"\[\d+\]")


def fields_in(header: str) -> Iterator[str]:
    r"""Yield the paths of the dropped fields that a `Warning` header of a server names.

    >>> list(fields_in(r'299 - "v1 Endpoints is deprecated", 299 - "unknown field \"status.nope\""'))
    ['status.nope']
    """
    for text in _WARNING.findall(header):
        if found := _UNKNOWN.fullmatch(_ESCAPED.sub(r"\1", text)):
            yield printable(found[1], 200)


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
            if key not in self._warned and len(self._warned) < MOST:
                self._warned.add(key)
                _logger.warning(
                    "The server has dropped %(field)s from %(by)s: %(resource)s have no such field. Correct"
                    " its name, or the schema of a custom resource.",
                    {"field": field, "by": by, "resource": str(resource)},
                )


def writer_of(verb: str) -> str:
    """Return a call of `cache.live` for the log, with the handler that makes it."""
    handler = _kopf.handler_var.get(None)
    return f"cache.{verb}()" if handler is None else f"cache.{verb}() of {handler}"
