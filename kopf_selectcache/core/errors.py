"""Errors of the core, which are facts without advice, and the reasons that metrics count. Users see those of
`kopf_selectcache.errors`.

Problem
├── BadText        selector text (or a part given as text) that Kubernetes would refuse
├── BadField       a field label that the kind's objects cannot be selected by
├── BadPath        a path that cannot be kept or dropped
├── BadTransform   a transform returned another object, or none
├── BadIndex       the function of a declared index failed, or returned no text
├── TooManyBoxes   a question about regions that would cost more than its bound
└── Garbled        bytes from a server that break the promises of its API
    ├── TooLarge        an answer with more bytes than its limit
    ├── Undecodable     the decoder fails; the object may still be identified by its metadata
    └── Untransformed   the object is valid, and the operator's own transform failed for it
        └── Unindexed       the function of a declared index failed
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType, TypeAlias

from .redact import printable

REASON_CHARACTERS = 2_000
"""Limit in characters of a reason that comes from a server."""


class Problem(Exception):
    """Base of the core's errors."""


class BadText(Problem):
    """Text that does not follow the grammar. `column` counts from 1, and points at the unexpected part."""

    def __init__(self, reason: str, *, text: str, column: int) -> None:
        super().__init__(reason, text, column)
        self.reason = reason
        self.text = text
        self.column = column

    def __str__(self) -> str:
        return f"{self.reason} (column {self.column} of {self.text!r})"


class BadField(Problem):
    """A field label by which the server cannot select objects of this kind, with the supported labels."""

    def __init__(self, label: str, *, kind: str, selectable: tuple[str, ...]) -> None:
        super().__init__(label, kind, selectable)
        self.label = label
        self.kind = kind
        self.selectable = selectable

    def __str__(self) -> str:
        return f"{self.kind} can't be selected by {self.label!r}, only by {', '.join(self.selectable)}"


class BadPath(Problem):
    """A path that cannot be kept or dropped, with the reason."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{'.'.join(self.path)!r} {self.reason}"


class BadTransform(Problem):
    """A transform returned another object, or none. The text quotes no values."""


NO_VALUE = (
    "it must return a text, a list of texts, a dict as for @kopf.index, or None for an object without a value"
)
"""The remedy if the function of an index fails."""


class BadIndex(Problem):
    """The function of a declared index failed, or returned no text. The text quotes no values."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"the function of the index {self.name!r} {self.reason}"


class TooManyBoxes(Problem):
    """The check of a region against a union was given up after `limit` boxes."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"undecided after {self.limit:,} boxes"


class Garbled(Problem):
    """A server, or a proxy, sent bytes that break the promises of the API. The text quotes no values."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason, REASON_CHARACTERS))


def let_exit(error: BaseException) -> None:
    """Raise an exception that ends the process again. Anything else that a function of the operator's author
    raises is an error of that function, `CancelledError` too: it is called without `await`, so nobody has
    cancelled it.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error


class TooLarge(Garbled):
    """An answer has more bytes than its limit. A page can be requested again with a smaller `limit`."""


class Undecodable(Garbled):
    """The decoder fails. `why` is a clause, such as `it is nested too deeply`, and quotes no values."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(reason)
        self.why = why


class Untransformed(Garbled):
    """An object cannot be stored because the operator's own `transform` failed for it."""

    argument = "transform="
    """The argument that declares the function."""
    besides = ""
    """Text that follows the name of the argument in the remedy."""


class Unindexed(Untransformed):
    """An object cannot be stored because the function of a declared index failed for it."""

    argument = "index="
    besides = f": {NO_VALUE}"


# ---- Reasons of relists and failures: the values of the label `reason` of metrics.

StatusCode = NewType("StatusCode", str)
"""A status code of HTTP as text, such as `410`."""


class MetricReason(StrEnum):
    """The reasons that are no status codes. docs/metrics.md explains each."""

    AUDIT = "audit"
    BEHIND = "behind"
    GARBLED = "garbled"
    LOST = "lost"
    MISSED = "missed"
    OUTSIDE = "outside"
    REFUSED = "refused"
    RESTART = "restart"
    RESTORED = "restored"
    SILENT = "silent"
    TRANSFORM = "transform"


ReasonLabel: TypeAlias = MetricReason | StatusCode

CODES = range(100, 600)
"""The numbers that are status codes. Others are `refused`, so that the label has few values."""


def reason_of_code(code: int) -> ReasonLabel:
    """Return the reason for an answer with a status code.

    >>> reason_of_code(410), str(reason_of_code(99_999))
    ('410', 'refused')
    """
    return StatusCode(str(code)) if code in CODES else MetricReason.REFUSED
