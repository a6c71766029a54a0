"""Names calls that nobody awaits: Python warns of them too, but on stderr and without the place."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

_logger = logging.getLogger("kopf_selectcache")
_T = TypeVar("_T")


class Call(Coroutine[Any, Any, _T]):
    """The call of an awaited method. The log names its place if it is thrown away."""

    __slots__ = ("_is_used", "_method", "_place", "_work")

    def __init__(self, work: Coroutine[Any, Any, _T], method: str, place: str) -> None:
        self._work, self._method, self._place = work, method, place
        self._is_used = False

    def __await__(self) -> Generator[Any, Any, _T]:
        self._is_used = True
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        self._is_used = True
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        self._is_used = True
        return self._work.throw(*error)

    def close(self) -> None:
        self._is_used = True
        self._work.close()

    def __del__(self) -> None:
        if not self._is_used:
            _logger.warning(
                "cache.%(method)s() in %(place)s was never awaited, and did nothing. Write: await"
                " cache.%(method)s(...)",
                {"method": self._method, "place": self._place},
            )
