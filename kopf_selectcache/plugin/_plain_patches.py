"""Makes plain JSON of the patches of handlers: Kopf cannot write the objects and views of a cache."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import kopf

from kopf_selectcache._errors import InvalidObject
from kopf_selectcache.cache.formats.plain import plain
from kopf_selectcache.core.redact import function_name

_logger = logging.getLogger("kopf_selectcache")


def make_plain(patch: object) -> InvalidObject | None:
    """Make plain JSON of a patch in place, and see to it that its functions leave plain JSON.

    Members that cannot be written are taken out, and the error of the first one is returned: Kopf applies the
    patch of a failed handler, too, and a timer whose patch cannot be written would never run again.
    """
    if not isinstance(patch, kopf.Patch):
        return None
    found: InvalidObject | None = None
    for name, part in tuple(patch.items()):
        try:
            patch[name] = plain("the patch", part, name)
        except InvalidObject as error:
            found = found or error
            patch[name] = _writable(part)
    patch.fns[:] = [each if isinstance(each, _Plain) else _Plain(each) for each in patch.fns]
    return found


def _writable(part: object) -> dict[str, Any]:
    """Return the members that can be written."""
    made: dict[str, Any] = {}
    for key, value in part.items() if isinstance(part, Mapping) else ():
        with suppress(InvalidObject):
            made |= plain("", {key: value})
    return made


@dataclass(frozen=True)
class _Plain:
    """A function of a patch that leaves plain JSON, or the object as it was: no timer survives an error."""

    function: Callable[[Any], object]

    def __call__(self, obj: Any) -> None:
        before = copy.deepcopy(obj)
        self.function(obj)
        try:
            for name, part in tuple(obj.items()):
                obj[name] = plain(f"{function_name(self.function)}() of patch.fns", part, name)
        except InvalidObject as error:
            obj.clear()
            obj.update(before)
            _logger.error("A part of the patch is not applied: %(error)s", {"error": error.line})  # noqa: TRY400  # It is no bug.
