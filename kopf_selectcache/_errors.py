"""All errors that users see, except for what reads add to theirs. `errors` draws them as a tree, and is where
users import them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import kopf

from .core.redact import MOST_SHOWN, clipped, printable
from .core.selection.witness import Witness


class SelectCacheError(Exception):
    """The base of all errors of this library."""

    def __init__(self, what: str, *, remedy: str) -> None:
        self.what = printable(clipped(what), 2 * MOST_SHOWN)
        self.remedy = printable(clipped(remedy), 2 * MOST_SHOWN)
        super().__init__(self.what)

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process pools: they are made again of what they hold, not of their arguments."""
        return _again, (type(self), self.args, self.__dict__)


def _again(cls: type[SelectCacheError], args: tuple[Any, ...], state: dict[str, Any]) -> SelectCacheError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class DeclarationError(SelectCacheError, kopf.PermanentError):
    """The base of errors in what an operator declares: they end `kopf run` at once instead of after
    retries.
    """


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
    """The base of all that a read of the cache can raise."""


class NotDeclared(ReadError):
    """No cache is declared for this kind."""


class NotSynced(ReadError):
    """The cache of this kind has not seen its first complete list yet."""


class Reason(StrEnum):
    """Why a read falls outside the filter."""

    EXCLUDED = "excluded"
    """Nothing that is asked for can ever be held."""
    HIDDEN = "hidden"
    """The object is absent, or it exists and fails the filter: from here the two look the same."""
    OVERLAPS = "overlaps"
    """Some of what is asked for may be held, and some of it cannot be."""
    UNDECIDED = "undecided"
    """Whether the filter holds all that is asked for would cost too much to find out."""


class OutsideFilter(ReadError):
    """The read asks for something that the declared filter does not hold, so that "not found" would be a
    guess.
    """

    def __init__(self, what: str, *, remedy: str, reason: Reason, witness: Witness | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.reason = reason
        self.witness = witness


class NotFound(ReadError):
    """The object is absent: the filter would hold it, and as of `version` it does not exist."""

    def __init__(self, what: str, *, remedy: str, version: str) -> None:
        super().__init__(what, remedy=remedy)
        self.version = version


class NotKept(ReadError):
    """The path that is asked for was dropped before storing."""


class Unreadable(ReadError):
    """An object that is asked for exists, and cannot be decoded: it is nested too deeply, is not UTF-8, or
    has a number out of range.
    """

    def __init__(self, what: str, *, remedy: str, keys: tuple[tuple[str, str], ...]) -> None:
        super().__init__(what, remedy=remedy)
        self.keys = keys
        """The namespace, empty for a cluster-scoped kind, and the name of each such object."""


class Stale(ReadError):
    """The answer would be older than the reader allows."""


class NoSuchRead(ReadError, AttributeError):
    """There is no read of this name: both what a mistake in a read is, and what `hasattr` expects."""


class ReadOnly(ReadError, TypeError):
    """A view is changed: both what a mistake in a read is, and what Python raises for what cannot be
    changed.
    """


class NoClient(ReadError, AttributeError):
    """An object of a cache has no client: both what a mistake with it is, and what `hasattr` expects."""


class Cause(NamedTuple):
    """What the server did, as data."""

    code: int | None = None
    reason: str = ""
    retry_after: float | None = None
    transient: bool = False


NO_CAUSE = Cause()
"""No request has failed."""


class StateError(ReadError):
    """The cache of this kind cannot be kept at present, or a request has failed; the subclass says why."""

    def __init__(self, what: str, *, remedy: str, cause: Cause = NO_CAUSE) -> None:
        super().__init__(what, remedy=remedy)
        self.cause = cause

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
        """True if the same request may succeed later without a change by a person."""
        return self.cause.transient


class Unauthorized(StateError):
    """The server accepts no credentials of the operator, or no login gives any."""


class Forbidden(StateError):
    """The operator lacks a right on this resource."""


class Missing(StateError):
    """The cluster does not serve this resource."""


class Rejected(StateError):
    """The cluster refuses the declared selector of this resource."""


class Stalled(StateError):
    """The server has stopped answering for this resource."""


class Oversized(StateError):
    """The cache of this resource grew beyond `max_bytes`, and was let go: nothing of it is held."""
