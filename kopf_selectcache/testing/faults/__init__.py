"""Every fault that a server or a network can produce, as data: `cluster.faults.add(Refuse(429), verb="list")`."""
from .fault import End, Fault
from .injector import BrokenFault, Faults, Planned
from .payloads import (
    BigObjects,
    EmptyPage,
    EmptyVersion,
    Inserted,
    MalformedJSON,
    NoMetadata,
    TableInstead,
    UnknownEventType,
    WrongKind,
)
from .refusals import (
    BadGateway,
    ErrorEvent,
    ExpiredToken,
    Gone,
    LeaderChanged,
    NotServed,
    NoWatchList,
    Refuse,
    TooLargeVersion,
    Unauthorized,
)
from .streams import (
    BufferingProxy,
    Delay,
    Disconnect,
    DropEvents,
    DuplicateEvents,
    EarlyBookmark,
    EndlessLine,
    EndStream,
    GzipWatch,
    IdleCut,
    IgnoredInitialEvents,
    IgnoredLimit,
    IgnoreSelectors,
    Lag,
    NoBookmarks,
    NoEndBookmark,
    OldVersionOnDelete,
    RecreatedAsModified,
    ReorderInitialEvents,
    ReplayEvents,
    Reset,
    Silence,
)

__all__ = [
    "BadGateway", "BigObjects", "BrokenFault", "BufferingProxy", "Delay", "Disconnect", "DropEvents", "DuplicateEvents", "EarlyBookmark",
    "EmptyPage", "EmptyVersion", "End", "EndStream", "EndlessLine", "ErrorEvent", "ExpiredToken", "Fault", "Faults", "Gone",
    "GzipWatch", "IdleCut", "IgnoreSelectors", "IgnoredInitialEvents", "IgnoredLimit", "Inserted", "Lag", "LeaderChanged", "MalformedJSON", "NoBookmarks",
    "NoEndBookmark", "NoMetadata", "NoWatchList", "NotServed", "OldVersionOnDelete", "Planned", "RecreatedAsModified",
    "Refuse", "ReorderInitialEvents", "ReplayEvents", "Reset", "Silence", "TableInstead", "TooLargeVersion",
    "Unauthorized", "UnknownEventType", "WrongKind",
]
