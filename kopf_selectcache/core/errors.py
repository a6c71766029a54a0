"""The core's own errors: facts without advice. What users see is made from them in `kopf_selectcache.errors`.

Problem
├── BadText        selector text (or a part given as text) that Kubernetes would refuse
├── BadField       a field label that the kind's objects cannot be selected by
├── BadPath        a path that cannot be kept or dropped
├── BadTransform   what a transform made of an object is not that object any more
├── BadIndex       what the function of a declared index made of an object is no text, or nothing came of it
├── TooManyBoxes   a question about regions that would cost more than its bound
└── Garbled        bytes from a server that are not what its API promises
    ├── TooLarge        an answer with more bytes than are read
    ├── Undecodable     the decoder gives up on them: an object may still be known by its metadata
    └── Untransformed   what it sent is as promised, and the operator's own function failed for it
        └── Unindexed       that of a declared index
"""

from __future__ import annotations

from .redact import printable

LONGEST_REASON = 2_000
"""How many characters the reason of a problem may have that a server caused."""


class Problem(Exception):
    """The base of all that the core raises on purpose."""


class BadText(Problem):
    """Text that does not follow the grammar; `column` counts from 1 and points at what was not expected."""

    def __init__(self, reason: str, *, text: str, column: int) -> None:
        super().__init__(reason, text, column)
        self.reason = reason
        self.text = text
        self.column = column

    def __str__(self) -> str:
        return f"{self.reason} (column {self.column} of {self.text!r})"


class BadField(Problem):
    """A field label by which the server cannot select objects of this kind, with those by which it can."""

    def __init__(self, label: str, *, kind: str, selectable: tuple[str, ...]) -> None:
        super().__init__(label, kind, selectable)
        self.label = label
        self.kind = kind
        self.selectable = selectable

    def __str__(self) -> str:
        return f"{self.kind} cannot be selected by {self.label!r}, only by {', '.join(self.selectable)}"


class BadPath(Problem):
    """A path that cannot be kept or dropped, and why."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{'.'.join(self.path)!r} {self.reason}"


class BadTransform(Problem):
    """What a transform made of an object is not that object any more. Says what it did, quoting no values."""


NO_VALUE = "it is to return a text, a list of texts, or None for an object without a value"
"""What to write for whom the function of an index fails."""


class BadIndex(Problem):
    """What the function of a declared index returned is no text, or it failed. Says what it did, quoting no
    values.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"the function of the index {self.name!r} {self.reason}"


class TooManyBoxes(Problem):
    """The question whether a union contains a region was given up after `limit` boxes."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"undecided after {self.limit:,} boxes"


class Garbled(Problem):
    """A server, or something on the way, sent what the API does not promise. Says what is wrong, quoting no
    values.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason, LONGEST_REASON))


class TooLarge(Garbled):
    """An answer has more bytes than are read of one. A page may be asked for again with a smaller limit."""


class Undecodable(Garbled):
    """The decoder gives up on some bytes. `why` is a clause, such as `it is nested too deeply`, and quotes no
    values.
    """

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(reason)
        self.why = why


class Untransformed(Garbled):
    """An object cannot be taken in, and the server is not to blame: the operator's own `transform` failed for
    it.
    """

    argument = "transform="
    """Where the function was declared."""
    besides = ""
    """What to write after what is to be corrected."""


class Unindexed(Untransformed):
    """An object cannot be taken in, since the function of a declared index failed for it."""

    argument = "index="
    besides = f"; {NO_VALUE}"
