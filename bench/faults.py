"""The fault scripts of the comparison. Each does the same to every contender.

A script describes the fault and the changes of the cluster meanwhile. After it one more pod is created, so
that only a contender that has recovered can hold the right contents.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.staging import Staging, pod
from kopf_selectcache.testing import Asked, Fault
from kopf_selectcache.testing.faults import (
    BigObjects,
    DropEvents,
    EarlyBookmark,
    EmptyPage,
    EndlessLine,
    EndStream,
    ErrorEvent,
    ExpiredToken,
    Gone,
    MalformedJSON,
    NoMetadata,
    NoWatchList,
    OldVersionOnDelete,
    RecreatedAsModified,
    Refuse,
    Reset,
    Silence,
    UnknownEventType,
)


@dataclass(frozen=True)
class Row:
    """A fault and its consequence."""

    numbers: str
    """The numbers in the list of faults in docs/dev/protocol.md."""
    words: str
    script: Callable[[Staging], str | None]
    """Returns the text to show; empty if the contents of the contender are compared."""
    patience: float = 60.0
    noticed_late: bool = False
    """True if no watch delivers the fault, so that a handler can be right only after the cache has found it.
    """
    is_read: bool = False
    """True if the row is about a read: there is no outcome of a handler to compare."""


REVOKED = 15.0
"""Seconds."""


def _initial(asked: Asked) -> bool:
    return "sendInitialEvents" in asked.query


# ---- Lists.


def expired_token(stage: Staging) -> None:
    expired = stage.fault(ExpiredToken(), "list", times=1)
    stage.start(page=2)
    stage.met(expired)


def empty_page(stage: Staging) -> None:
    empty = stage.fault(EmptyPage(), "list", times=1, nth=2)
    stage.start(page=2)
    stage.met(empty)


def throttled_list(stage: Staging) -> None:
    throttled = stage.fault(Refuse(429, retry_after=1), "list", times=2)
    stage.start()
    stage.met(throttled, 2)


def unreachable_list(stage: Staging) -> None:
    failing = stage.fault(Refuse(503), "list", times=2)
    stage.start()
    stage.met(failing, 2)


# ---- Initial streams.


def no_initial_streams(stage: Staging) -> None:
    refused = stage.fault(NoWatchList())
    stage.start(stream=True)
    stage.met(refused)


def _streamed(stage: Staging, fault: Fault) -> None:
    planned = stage.fault(fault, times=1, where=_initial)
    stage.start(stream=True)
    stage.met(planned)


def initial_stream_cut(stage: Staging) -> None:
    _streamed(stage, EndStream(after_events=2))


def plain_bookmark_first(stage: Staging) -> None:
    stage.fault(EarlyBookmark(after_events=1), times=1, where=_initial)
    _streamed(stage, EndStream(after_events=3))


def initial_stream_silent(stage: Staging) -> None:
    _streamed(stage, Silence(after_events=2))


# ---- Watches.


def synced(stage: Staging) -> None:
    """Start the contender, and wait until it is right and watches."""
    stage.start()
    stage.agrees()
    stage.watches()


def _in_the_stream(fault: Fault) -> Callable[[Staging], None]:
    """Make a script: the fault affects the open watch, and with it the deletion of a pod."""

    def script(stage: Staging) -> None:
        synced(stage)
        planned = stage.inject(fault)
        stage.delete("web-1")
        stage.met(planned)

    return script


def deleted_in_a_gap(stage: Staging) -> None:
    synced(stage)
    stage.cluster.stop_listening()
    stage.delete("web-1")
    stage.cluster.compact()
    stage.cluster.listen_again()


def gone_as_200(stage: Staging) -> None:
    synced(stage)
    stage.cluster.stop_listening()
    stage.delete("web-1")
    compacted = stage.cluster.compact()
    gone = stage.fault(
        Gone(http=200), where=lambda asked: 0 < int(asked.query.get("resourceVersion") or 0) < compacted
    )
    stage.cluster.listen_again()
    stage.met(gone)


def throttled_watch(stage: Staging) -> None:
    synced(stage)
    throttled = stage.fault(Refuse(429, retry_after=1), times=3)
    stage.cluster.cut("watch", "pods")
    stage.delete("web-1")
    stage.met(throttled, 3)


def silent_for_good(stage: Staging) -> None:
    stage.fault(Silence())
    stage.start()
    stage.agrees()
    stage.watches()
    stage.delete("web-1")


def big_object(stage: Staging) -> None:
    synced(stage)
    big = stage.inject(BigObjects())
    stage.cluster.patch(pod("web-1"), {"metadata": {"annotations": {"example.com/changed": "yes"}}})
    stage.met(big)


def recreated(stage: Staging) -> None:
    synced(stage)
    merged = stage.inject(RecreatedAsModified())
    stage.delete("web-1")
    stage.create("web-1")
    stage.met(merged)


def leaves_by_label(stage: Staging) -> None:
    synced(stage)
    stage.label("web-1", "db")
    stage.label("web-2", "db")
    stage.label("web-2", "web")


# ---- Permissions, logins, restores; reads.


def rotated_token(stage: Staging) -> None:
    synced(stage)
    stage.rotate()
    stage.cluster.cut("watch", "pods")
    stage.delete("web-1")


def revoked_for_a_while(stage: Staging) -> None:
    synced(stage)
    revoked = [stage.fault(Refuse(403), verb) for verb in ("watch", "list")]
    stage.cluster.cut("watch", "pods")
    stage.delete("web-1")
    stage.met(revoked[0])
    time.sleep(REVOKED)
    for each in revoked:
        stage.release(each)


def restored(stage: Staging) -> None:
    synced(stage)
    backup = stage.cluster.backup()
    stage.create(*(f"more-{number}" for number in range(20)))
    stage.agrees()
    stage.cluster.restore(backup)


def outside(stage: Staging) -> str:
    synced(stage)
    return stage.read("db-1")


ROWS = (
    Row("6", "410 for the second page of a list", expired_token),
    Row("7", "a page without items, and with a token", empty_page),
    Row("16", "two lists in a row refused with 429 and Retry-After", throttled_list),
    Row("17", "two lists in a row refused with 503", unreachable_list),
    Row("8", "the server knows no initial streams (422)", no_initial_streams),
    Row("9", "the initial stream ends after 2 of 5 objects", initial_stream_cut),
    Row(
        "9",
        "a plain bookmark after 1 of 5 initial objects, and the stream ends after the next",
        plain_bookmark_first,
    ),
    Row("8", "the initial stream falls silent after 2 of 5 objects", initial_stream_silent),
    Row("3", "a watch ends cleanly", _in_the_stream(EndStream())),
    Row("3", "a watch is reset in the middle of a line", _in_the_stream(Reset(mid_line=True))),
    Row("2", "a watch falls silent, and stays open", _in_the_stream(Silence())),
    Row("2, 25", "no watch ever says anything", silent_for_good, patience=120),
    Row("17", "an ERROR of 500 in the stream", _in_the_stream(ErrorEvent(Refuse(500)))),
    Row("4", "an ERROR of 410 in the stream", _in_the_stream(ErrorEvent(Refuse(410, "Expired")))),
    Row("15", "a pod is deleted in a gap of which the server forgets the history", deleted_in_a_gap),
    Row("4", "the same, and the 410 comes as a plain 200 with a Status", gone_as_200),
    Row("16", "three watches in a row refused with 429 and Retry-After", throttled_watch),
    Row("18", "a line of the stream isn't JSON", _in_the_stream(MalformedJSON())),
    Row("18", "an object in the stream has no metadata", _in_the_stream(NoMetadata())),
    Row(
        "18",
        "an event of a type that nobody knows, instead of DELETED",
        _in_the_stream(UnknownEventType(instead_of="DELETED")),
    ),
    Row("19", "a line of the stream never ends", _in_the_stream(EndlessLine())),
    Row("19", "an object of 2 MiB", big_object),
    Row("13", "DELETED comes with the version that the pod had", _in_the_stream(OldVersionOnDelete())),
    Row("13", "a pod is deleted and created again, and the watch sends MODIFIED", recreated),
    Row("14", "a pod leaves by its label, another does and comes back", leaves_by_label),
    Row(
        "11",
        "the server loses a deletion",
        _in_the_stream(DropEvents(names=frozenset({"web-1"}))),
        patience=120,
        noticed_late=True,
    ),
    Row("22", "the token is rotated", rotated_token, patience=120),
    Row("21", f"403 to everything for {REVOKED:g} s", revoked_for_a_while),
    Row("24", "the server is restored from a backup", restored, patience=120),
    Row("–", "a read of a pod outside the filter", outside, is_read=True),
)
