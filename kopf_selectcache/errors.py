"""All errors of this library. The text of an error is what happened; `remedy` is the one thing to change.

    SelectCacheError
    ├── DeclarationError       an error in a declaration; also a kopf.PermanentError: `kopf run` ends at once
    │   ├── BadSelector            text, name or namespace that Kubernetes would refuse
    │   ├── UnknownKind            no such resource
    │   ├── NotSelectable          the server cannot select objects of this kind by that field
    │   └── ConflictingSelectors   no object can satisfy the declared filter
    ├── ServerError            the server refused a request of `cache.live`
    │   ├── AlreadyExists          there is an object of this name already
    │   │   └── HiddenByFilter         and the declared filter does not hold it
    │   ├── Conflict               the object is in another version, or another field manager owns a field
    │   ├── Invalid                the server refuses the contents of the object
    │   ├── Expired                the version of the request is too old
    │   └── OutcomeUnknown         the answer was lost: the write may have been executed
    ├── InvalidObject          an object lacks a part that a write needs
    ├── Superseded             a newer change of a filter came before this one was complete
    └── ReadError              the base of all errors of reads
        ├── NotDeclared            no cache is declared for this kind
        ├── NotSynced              the cache has not seen its first complete list yet
        ├── OutsideFilter          the read asks for more than the filter covers, so the answer is unknown here
        ├── NotFound               the object is absent: proved, as of a version
        ├── NotKept                the path that is asked for was dropped before storing
        ├── Unreadable             an object that is asked for exists, and cannot be decoded
        ├── Stale                  the answer would be older than the reader allows
        ├── ReadOnly               a view of an object is changed; also a TypeError
        ├── NoClient               an object that was read from a cache has no client to write with; also an AttributeError
        └── StateError             the cache of this kind cannot be read, or a request has failed:
            ├── Unauthorized           the server accepts no credentials of the operator, or no login handler returns any; also a ServerError
            ├── Forbidden              a permission is missing; also a ServerError
            ├── Missing                the cluster does not serve the kind
            ├── Rejected               the cluster refuses the declared selector
            ├── Stalled                the server has stopped answering
            └── Oversized              it exceeded `max_bytes`, and was dropped

Errors of reads and writes are plain exceptions, not a kopf.PermanentError: Kopf would not call the handler again for that
event. Only a startup handler that reads ends the operator. docs/errors.md has a message of each, its usual cause, and its remedy.
"""  # The classes are in one column, their meanings in another.  # noqa: E501

from __future__ import annotations

from ._errors import (
    AlreadyExists,
    BadSelector,
    Cause,
    Conflict,
    ConflictingSelectors,
    DeclarationError,
    Expired,
    Forbidden,
    HiddenByFilter,
    Invalid,
    InvalidObject,
    Missing,
    NoClient,
    NotDeclared,
    NotKept,
    NotSelectable,
    NotSynced,
    OutcomeUnknown,
    Oversized,
    ReadError,
    ReadOnly,
    Rejected,
    SelectCacheError,
    ServerError,
    Stale,
    Stalled,
    StateError,
    Superseded,
    Unauthorized,
    UnknownKind,
)
from .cache.errors import NotFound, OutsideFilter, Reason, Unreadable

__all__ = [
    "AlreadyExists",
    "BadSelector",
    "Cause",
    "Conflict",
    "ConflictingSelectors",
    "DeclarationError",
    "Expired",
    "Forbidden",
    "HiddenByFilter",
    "Invalid",
    "InvalidObject",
    "Missing",
    "NoClient",
    "NotDeclared",
    "NotFound",
    "NotKept",
    "NotSelectable",
    "NotSynced",
    "OutcomeUnknown",
    "OutsideFilter",
    "Oversized",
    "ReadError",
    "ReadOnly",
    "Reason",
    "Rejected",
    "SelectCacheError",
    "ServerError",
    "Stale",
    "Stalled",
    "StateError",
    "Superseded",
    "Unauthorized",
    "UnknownKind",
    "Unreadable",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # Tracebacks and pickles name the module that users import from.

del _name
