"""Base classes of errors, the errors of declarations and states, and the calls that remedies name.

The text of an error is one sentence, and its notes (PEP 678) are the ways out: a traceback shows both.
Kopf logs, stores and posts the text only: errors that are raised to Kopf have both in their text.

Errors of reads that hold a request are in `cache.errors`. Users import all of them from `errors`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from inspect import currentframe
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import kopf

from .core.protocol.messages import FieldCause
from .core.redact import MOST_SHOWN_CHARACTERS, clipped, printable, shown, shown_by_type

_PACKAGE = str(Path(__file__).parent)


def caller(*, in_folder: bool = False) -> str:
    """Return the file and line of the innermost call from outside this package. With `in_folder`, the file
    has its path from the current folder, which tells files of one name apart, and takes longer.
    """
    frame = currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    assert frame is not None, "somebody calls this package"
    file = Path(frame.f_code.co_filename)
    shown = file.name
    if in_folder:
        with suppress(ValueError, OSError):  # The file is elsewhere, or the current folder was deleted.
            shown = str(file.relative_to(Path.cwd()))
    return f"{shown}:{frame.f_lineno}"


def in_one_line(*sentences: str) -> str:
    """Return sentences, such as an error and its ways out, as one text.

    >>> in_one_line("pods/a in ns is not in the cache", "To find out: await cache.fetch(...)")
    'pods/a in ns is not in the cache. To find out: await cache.fetch(...).'
    """
    return " ".join(map(_ended, sentences))


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


Text: TypeAlias = str | Callable[[], str]
"""A text, or a function that makes it when it is first asked for. Many errors are caught, and never shown."""


class SelectCacheError(Exception):
    """The base of all errors of this library. `str()` is one sentence, the notes are the ways out."""

    is_for_kopf = False
    """True if the text has the ways out as well, because Kopf shows no notes."""

    def __init__(self, what: Text, *, remedy: Text) -> None:
        super().__init__()
        self._what, self._remedy = what, remedy
        if isinstance(what, str):
            self.what = what
        if isinstance(remedy, str):
            self.remedy = remedy

    @property
    def what(self) -> str:
        """The sentence, without its full stop."""
        if not isinstance(self._what, str):
            self.what = self._what()
        return cast("str", self._what)

    @what.setter
    def what(self, what: str) -> None:
        self._what = _fit(what)
        self.args = (self._what,)

    @property
    def remedy(self) -> str:
        """The ways out, one in each line."""
        if not isinstance(self._remedy, str):
            self.remedy = self._remedy()
        return cast("str", self._remedy)

    @remedy.setter
    def remedy(self, remedy: str) -> None:
        self._remedy = "\n".join(map(_fit, remedy.splitlines()))

    @property
    def line(self) -> str:
        """The sentence and the ways out in one line, for what shows no notes."""
        return in_one_line(self.what, *self.remedy.splitlines())

    def __str__(self) -> str:
        return self.line if self.is_for_kopf else _ended(self.what)

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]  # Python reads it, and appends to it.
        """The ways out, and the notes that are added. Python reads it where it shows a traceback."""
        state = self.__dict__
        ways, known = [] if self.is_for_kopf else self.remedy.splitlines(), state.get("_ways", [])
        notes: list[str] = state.setdefault("_notes", [])
        if ways != known:
            notes[: len(known)] = state["_ways"] = ways
        return notes

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, for process pools: errors are recreated from their attributes, and their
        texts.
        """
        _ = self.line  # Makes both texts: the functions that make them cannot be pickled.
        return _again, (type(self), self.args, self.__dict__)


_NOT_OF_USERS = sys.stdlib_module_names | {"kopf", __package__}


def tell_kopf(error: BaseException) -> None:
    """Make an error of ours ready for Kopf: its text has the ways out, and its traceback ends in the user's
    own line.
    """
    if not isinstance(error, SelectCacheError):
        return
    error.is_for_kopf = True
    frame, last = error.__traceback__, None
    while frame is not None:
        if str(frame.tb_frame.f_globals.get("__name__")).partition(".")[0] not in _NOT_OF_USERS:
            last = frame
        frame = frame.tb_next
    if last is not None:
        last.tb_next = None


def require(
    fits: object, error: type[SelectCacheError], call: str, argument: str, given: object, wanted: str
) -> None:
    """Raise the error unless an argument fits. A text that a read is given may be the value of a Secret."""
    if not fits:
        show = shown_by_type if issubclass(error, ReadError) else shown
        raise error(f"{call}: {argument} is {show(given)}", remedy=f"Give {wanted}")


def _fit(text: str) -> str:
    if len(text) <= MOST_SHOWN_CHARACTERS and text.isprintable():
        return text
    return printable(clipped(text), 2 * MOST_SHOWN_CHARACTERS)


def _again(cls: type[SelectCacheError], args: tuple[Any, ...], state: dict[str, Any]) -> SelectCacheError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class DeclarationError(SelectCacheError, kopf.PermanentError):
    """The base of errors in declarations: they end `kopf run` at once instead of after retries."""

    is_for_kopf = True


class BadSelector(DeclarationError):
    """Text, or a part of a selector, that Kubernetes would refuse; `column` (from 1) points into `text`."""

    def __init__(self, what: str, *, remedy: str, text: str | None = None, column: int | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.text = text
        self.column = column


class UnknownKind(DeclarationError):
    """No resource goes by this name."""


class NotSelectable(DeclarationError):
    """The server cannot select objects of this kind by that field."""

    def __init__(self, what: str, *, remedy: str, field: str, selectable: tuple[str, ...]) -> None:
        super().__init__(what, remedy=remedy)
        self.field = field
        self.selectable = selectable


class ConflictingSelectors(DeclarationError):
    """The requirements of a declared filter contradict each other: no object can ever satisfy them all."""


class ReadError(SelectCacheError):
    """The base of all errors of reads."""


class NotDeclared(ReadError):
    """No cache is declared for this kind."""


class NotSynced(ReadError):
    """The cache of this kind has not seen its first complete list yet."""


class Stale(ReadError):
    """The answer would be older than the reader allows."""


class NotKept(ReadError):
    """The path that is asked for was dropped before storing."""


class ReadOnly(ReadError, TypeError):
    """A view is changed. It is also a TypeError, as Python raises for immutable objects."""


class NoClient(ReadError, AttributeError):
    """An object of a cache has no client. It is also an AttributeError, as `hasattr` expects."""


class Cause(NamedTuple):
    """The cause of an error as data: the status, reason and Retry-After of the server's last answer."""

    code: int | None = None
    reason: str = ""
    retry_after: float | None = None
    transient: bool = False


NO_CAUSE = Cause()
"""No request has failed."""


class _Answered:
    """The status of the server's answer, as attributes of an error with a `cause`."""

    cause: Cause

    @property
    def code(self) -> int | None:
        """The HTTP status of the server's last answer; None if no answer came, or none was an error."""
        return self.cause.code

    @property
    def reason(self) -> str:
        """The reason in the server's Status, such as `TooManyRequests`; empty if it gave none."""
        return self.cause.reason

    @property
    def retry_after(self) -> float | None:
        """The seconds that the server asks to wait; None if it does not say."""
        return self.cause.retry_after

    @property
    def transient(self) -> bool:
        """True if the same request may succeed later without a person's help."""
        return self.cause.transient


class StateError(ReadError, _Answered):
    """The cache of this kind cannot be read at present, or a request has failed; the subclass is
    the reason.
    """

    def __init__(self, what: str, *, remedy: str, cause: Cause = NO_CAUSE, **more: Any) -> None:
        super().__init__(what, remedy=remedy, **more)
        self.cause = cause


class Target(NamedTuple):
    """The object of a request of `cache.live`."""

    verb: str = ""
    """The verb of the request, as a Role has it, such as `create`."""
    kind: str = ""
    """The resource, such as `jobs.batch`."""
    name: str = ""
    """Empty for an object whose name the server makes, and for reads of several objects."""
    namespace: str | None = None


class ServerError(SelectCacheError, _Answered):
    """The server refused a request of `cache.live`; the subclass is the reason."""

    def __init__(
        self,
        what: str,
        *,
        remedy: str,
        cause: Cause = NO_CAUSE,
        target: Target = Target(),  # noqa: B008  # It is immutable.
        message: str = "",
        causes: tuple[FieldCause, ...] = (),
    ) -> None:
        super().__init__(what, remedy=remedy)
        self.cause = cause
        self.verb, self.kind, self.name, self.namespace = target
        self.message = message
        """The message in the server's Status; empty for Secrets, because servers quote values."""
        self.causes = causes
        """The causes in the server's Status: for `Invalid` the refused fields. Messages are empty for
        Secrets."""


class AlreadyExists(ServerError):
    """There is an object of this name already."""


class HiddenByFilter(AlreadyExists):
    """There is an object of this name, and the declared filter does not hold it."""

    def __init__(self, what: str, *, remedy: str, lacks: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(what, remedy=remedy, **more)
        self.lacks = lacks
        """For each alternative of the filter, the first requirement that the object fails."""


class Conflict(ServerError):
    """The object is in another version than the write expects, or another field manager owns a field."""


class Invalid(ServerError):
    """The server refuses the contents of the object; `causes` has the fields."""


class Expired(ServerError):
    """The version or the continuation that was asked for is too old."""


class OutcomeUnknown(ServerError):
    """The answer to a write was lost: it may have been executed, and cannot be repeated safely."""


class InvalidObject(SelectCacheError):
    """An object cannot be written: a part of it that a write needs is missing."""


class Superseded(SelectCacheError):
    """A change of a filter was not made, because a newer one came before it was complete."""


class Unauthorized(StateError, ServerError):
    """The server accepts no credentials of the operator, or no login handler returns any."""


class Forbidden(StateError, ServerError):
    """The operator lacks a permission on this resource."""


class Missing(StateError):
    """The cluster does not serve this resource."""


class Rejected(StateError):
    """The cluster refuses the declared selector of this resource."""


class Stalled(StateError):
    """The server has stopped answering for this resource."""


class Oversized(StateError):
    """The cache of this resource exceeded `max_bytes` and was dropped: it holds no object."""


# ---- Calls of a cache for remedies: as they are written where they are read.

IN_SYNC_HANDLER, IN_CALLBACK, _IN_THREAD = "cache.{}", "cache.{} in the handler", "cache.blocking.{}"
WRITTEN = ContextVar("WRITTEN", default="")


def call_of(verb: str, arguments: str = "") -> str:
    """Return the call of an awaited read, as it is written where this runs.

    >>> call_of("fetch")
    'cache.blocking.fetch(...)'
    >>> call_of("fetch", "whole=True")
    'cache.blocking.fetch(..., whole=True)'
    """
    # Without arguments, `wait_synced` waits for all caches.
    given = arguments if verb == "wait_synced" else ", ".join(filter(None, ("...", arguments)))
    return awaited_call(f"{verb}({given})")


def awaited_call(call: str) -> str:
    """Return a call that is awaited likewise.

    >>> awaited_call("undeclare('pods')")
    "cache.blocking.undeclare('pods')"
    """
    return (WRITTEN.get() or (_IN_THREAD if own_loop() is None else "await cache.{}")).replace("{}", call)


@contextmanager
def writing(calls: str) -> Iterator[None]:
    """Have remedies write calls like this; by default as in async handlers, and in a user's own threads."""
    token = WRITTEN.set(calls)
    try:
        yield
    finally:
        WRITTEN.reset(token)


def for_thread() -> AbstractContextManager[None]:
    """Write the calls of this task as the thread that waits for it writes them."""
    return writing(WRITTEN.get() or _IN_THREAD)


def own_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; None in the thread of a sync handler."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
