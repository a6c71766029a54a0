"""What users see when something is wrong. Each error says what happened, and in `remedy` the one thing to
change.

    SelectCacheError
    ├── DeclarationError       what the operator declares is wrong; also a kopf.PermanentError: `kopf run` ends at once
    │   ├── BadSelector            text, name or namespace that Kubernetes would refuse
    │   ├── UnknownKind            no such resource
    │   ├── NotSelectable          the server cannot select objects of this kind by that field
    │   └── ConflictingSelectors   no object can satisfy the declared filter
    └── ReadError              what a read of the cache can raise
        ├── NotDeclared            no cache is declared for this kind
        ├── NotSynced              the cache has not seen its first complete list yet
        ├── OutsideFilter          the answer is not known here: the read asks for more than the filter holds
        ├── NotFound               the object is absent: proved, as of a version
        ├── NotKept                the path that is asked for was dropped before storing
        ├── Unreadable             an object that is asked for exists, and cannot be decoded
        ├── Stale                  the answer would be older than the reader allows
        ├── NoSuchRead             there is no read of this name; also an AttributeError
        ├── ReadOnly               a view of an object is changed; also a TypeError
        ├── NoClient               an object that was read from a cache has no client to write with; also an AttributeError
        └── StateError             the cache of this kind cannot be kept, and for what reason:
            ├── Unauthorized           the server accepts no credentials of the operator, or no login gives any
            ├── Forbidden              a right is missing
            ├── Missing                the cluster does not serve the kind
            ├── Rejected               the cluster refuses the declared selector
            ├── Stalled                the server has stopped answering
            └── Oversized              it grew beyond `max_bytes`, and was let go

Read errors are plain exceptions, never a kopf.PermanentError: that would drop a creation for good because of
a read. docs/errors.md has a real message of each, what it usually comes from, and how to get rid of it.
"""  # noqa: E501

from __future__ import annotations

from ._errors import (
    BadSelector,
    Cause,
    ConflictingSelectors,
    DeclarationError,
    Forbidden,
    Missing,
    NoClient,
    NoSuchRead,
    NotDeclared,
    NotSelectable,
    NotSynced,
    Oversized,
    ReadError,
    ReadOnly,
    Rejected,
    SelectCacheError,
    Stale,
    Stalled,
    StateError,
    Unauthorized,
    UnknownKind,
)
from .cache.errors import NotFound, NotKept, OutsideFilter, Reason, Unreadable

__all__ = [
    "BadSelector",
    "Cause",
    "ConflictingSelectors",
    "DeclarationError",
    "Forbidden",
    "Missing",
    "NoClient",
    "NoSuchRead",
    "NotDeclared",
    "NotFound",
    "NotKept",
    "NotSelectable",
    "NotSynced",
    "OutsideFilter",
    "Oversized",
    "ReadError",
    "ReadOnly",
    "Reason",
    "Rejected",
    "SelectCacheError",
    "Stale",
    "Stalled",
    "StateError",
    "Unauthorized",
    "UnknownKind",
    "Unreadable",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # Tracebacks and pickles name the module that users import from.

del _name
