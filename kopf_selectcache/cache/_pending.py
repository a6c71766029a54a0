"""A read that waits, once it is called and until it is awaited: a coroutine to whoever awaits it, and an
error to who does not.

A plain coroutine is not `None` and is true, so that a handler which forgets to await would take it for an
object that is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from kopf_selectcache._errors import NoSuchRead, ReadError


class Pending(Coroutine[Any, Any, Any]):
    """The coroutine of a read. Dropped before it has begun, it tells `forgotten`; used as its answer, it
    raises `unawaited`.
    """

    __slots__ = ("_begin", "_forgotten", "_work", "unawaited")

    def __init__(
        self,
        begin: partial[Coroutine[Any, Any, Any]],
        *,
        unawaited: Callable[[], ReadError],
        forgotten: Callable[[ReadError], None],
    ) -> None:
        self._begin = begin
        self._work: Coroutine[Any, Any, Any] | None = (
            None  # Made when it begins: Python warns of one that never does.
        )
        self._forgotten = forgotten
        self.unawaited = unawaited
        """Make the error of one that nobody has awaited. Its words cost more than most reads, and are seldom
        needed."""

    def _begun(self) -> Coroutine[Any, Any, Any]:
        if self._work is None:
            self._work = self._begin()
        return self._work

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._begun().__await__()

    def send(self, value: Any, /) -> Any:
        return self._begun().send(value)

    def throw(self, *error: Any) -> Any:
        return self._begun().throw(*error)

    def close(self) -> None:
        self._begun().close()

    def __del__(self) -> None:
        if self._work is None:
            self._forgotten(self.unawaited())

    def _refuse(self, *_: object) -> NoReturn:
        raise self.unawaited()

    if not TYPE_CHECKING:  # Checkers know better what a coroutine has not.
        __len__ = __getitem__ = __iter__ = _refuse  # `in` asks these as well.

        def __bool__(self) -> bool:
            """Refuse, but to asyncio: to show a task, as of Python 3.12 it asks whether there is a
            coroutine.
            """
            return (
                sys._getframe(1).f_globals.get("__name__") == "asyncio.base_tasks" or self._refuse()  # noqa: SLF001
            )  # A name of sys that is documented.

        def __getattr__(self, name: str) -> Any:
            """Show what asyncio asks of a coroutine, to show its task; all else is asked of the answer."""
            if name in ("__name__", "__qualname__"):
                return getattr(self._begin.func, name)
            if name.startswith("cr_"):
                return getattr(self._work, name)
            if name.startswith("_"):
                raise AttributeError(name)
            error = self.unawaited()
            raise NoSuchRead(error.what, remedy=error.remedy)
