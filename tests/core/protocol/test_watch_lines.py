"""Lines of a watch, refusals, and chunks to lines: bytes that the decoder accepts or refuses."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

import pytest

from kopf_selectcache.client.reading import Lines
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol._decoding import MOST_SAID
from kopf_selectcache.core.protocol.decoder import Reader, read_refusal
from kopf_selectcache.core.protocol.messages import Bookmark, Event, Message, Refusal
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement, Sent
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.projection import ALL
from tests.cache.environment import builtin
from tests.rows import each_row

from .decoding import CANARY, METADATA, PODS, dump, event, garbled, listing, written

# ---- Lines of a watch.


@each_row(
    ("annotations", "complete"),
    [
        ({}, False),
        ({"annotations": None}, False),
        ({"annotations": {}}, False),
        ({"annotations": {"k8s.io/initial-events-end": "true"}}, True),
        ({"annotations": {"k8s.io/initial-events-end": "false"}}, False),
    ],
)
def test_only_a_bookmark_with_the_end_marker_ends_the_initial_state(
    annotations: dict[str, Any], complete: bool
) -> None:
    bookmark = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "12", "creationTimestamp": None, **annotations},
    }
    assert PODS.line(event("BOOKMARK", bookmark)) == Bookmark("12", complete=complete)


@each_row("object_", [{}, {"metadata": None}, {"metadata": {}}, {"metadata": {"resourceVersion": ""}}])
def test_a_bookmark_without_a_version_is_refused(object_: Any) -> None:
    garbled(PODS.line, event("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", **object_}))


SELECTING = Reader.of(
    Resource(builtin("pods"), "v1"),
    ALL,
    sent=Sent.of(
        builtin("pods"), [LabelRequirement("app", "=", ("web",))], [FieldTerm("spec.nodeName", "n1")]
    ),
)
NOT_SELECTED = [
    ({"labels": {"app": "db"}}, {"nodeName": "n1"}, "app=web does not select: its label app is 'db'"),
    ({}, {"nodeName": "n1"}, "app=web does not select: it has no"),
    ({"labels": {"app": "web"}}, {"nodeName": CANARY}, "spec.nodeName=n1 does not select"),
    ({"labels": {"app": "web"}}, {}, "spec.nodeName=n1 does not select"),
]


@each_row("usual", [True, False])
@each_row(("metadata", "spec", "why"), NOT_SELECTED)
def test_contract_8_an_object_that_the_selector_does_not_select_is_refused_unless_it_leaves(
    metadata: dict[str, Any],
    spec: dict[str, str],
    why: str,
    usual: bool,  # A parameter of the test.
) -> None:
    obj = written(
        {"kind": "Pod", "apiVersion": "v1", "metadata": METADATA | metadata, "spec": spec}, usual=usual
    )
    for type_ in ("ADDED", "MODIFIED"):
        told = garbled(SELECTING.line, event(type_, obj))
        assert f"the object 'shop/web-1' came, which {why}" in told
        assert CANARY not in told
    garbled(SELECTING.page, listing(written({"metadata": METADATA | metadata, "spec": spec}, usual=usual)))
    left: Message | None = None
    with suppress(Garbled):
        left = SELECTING.line(event("DELETED", obj))
    assert isinstance(left, Event)
    assert left.record.labels == metadata.get("labels", {})


@each_row(
    ("status", "refusal"),
    [
        (
            {"code": 410, "reason": "Expired", "message": "too old resource version"},
            Refusal(410, "Expired", "too old resource version"),
        ),
        (
            {"code": 500, "reason": "InternalError", "message": "etcd leader changed"},
            Refusal(500, "InternalError", "etcd leader changed"),
        ),
        ({"code": 429, "details": {"retryAfterSeconds": 7}}, Refusal(429, retry_after=7.0)),
        ({"code": 410, "metadata": {"continue": "fresh"}, "details": None}, Refusal(410, token="fresh")),
        ({}, Refusal(0)),
    ],
)
def test_an_error_in_the_stream_is_a_refusal(status: dict[str, Any], refusal: Refusal) -> None:
    assert (
        PODS.line(
            event(
                "ERROR", {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **status}
            )
        )
        == refusal
    )


STATUS = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "reason": "Expired",
    "code": 410,
}


def test_a_status_may_stand_in_a_watch_by_itself() -> None:
    assert PODS.line(dump(STATUS)) == PODS.rest(dump(STATUS)) == Refusal(410, "Expired")


# ---- Refusals of requests.


@pytest.mark.parametrize("length", [MOST_SAID + 1, 2 * MOST_SAID, 2_000_000])
def test_a_long_message_of_a_server_is_cut(length: int) -> None:
    said = {"kind": "Status", "code": 500, "reason": "M" * length, "message": "M" * length}
    for refusal in (
        PODS.rest(dump(said)),
        PODS.line(dump({"type": "ERROR", "object": said})),
        read_refusal(500, dump(said)),
    ):
        assert refusal == Refusal(500, "M" * MOST_SAID + "…", "M" * MOST_SAID + "…")
    short = said | {"reason": "", "message": "M" * MOST_SAID}
    assert PODS.rest(dump(short)) == Refusal(500, "", "M" * MOST_SAID)
    assert PODS.rest(dump(said | {"reason": "", "message": " " * length})) in (
        Refusal(500),
        Refusal(500, "", "…"),
    )


# ---- Chunks to lines.


STREAM = b"".join(
    event("ADDED", {"kind": "Pod", "metadata": METADATA | {"name": f"p-{i}", "labels": {"x": "\u00e9"}}})
    + b"\n"
    for i in range(4)
)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n \n"])
def test_wherever_the_chunks_are_cut_the_lines_are_the_same(end: bytes) -> None:
    stream = STREAM.replace(b"\n", end)
    expected: list[Message] = [PODS.line(line) for line in STREAM.splitlines()]
    for cut in range(len(stream) + 1):
        lines = Lines()
        found = [*lines.feed(stream[:cut]), *lines.feed(stream[cut:])]
        assert [repr(PODS.line(line)) for line in found] == list(map(repr, expected))


def test_half_a_line_is_held_back() -> None:
    lines = Lines()
    assert list(lines.feed(b'{"whole":1}\n{"half"')) == [b'{"whole":1}']
    assert list(lines.feed(b"")) == []
    assert list(lines.feed(b":2}")) == []
    assert lines.rest == b'{"half":2}'
    assert list(lines.feed(b"\n")) == [b'{"half":2}']


def endless(start: bytes, *, size: int = 7) -> str:
    lines, data = Lines(limit=1000), start + b"x" * 2000
    with pytest.raises(Garbled, match="longer than 1,000 bytes") as info:
        deque(line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size]))
    return str(info.value)


@each_row(
    "start",
    [
        b'{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-1","namespace":"shop"},"data":{"x":"',
        (
            b'{"type":"ADDED", "object" :'
            # The text is one line.
            b' {"apiVersion":"v1","data":{"name":"canary"},"kind":"Pod","metadata":{"annotations":{"name":"canary","q":"\\"\\\\\\"name\\":{"},"labels":{"name":"canary"},"managedFields":[{"name":"canary"}],"name":'  # noqa: E501
            b' "web-1","uid":"'
        ),
    ],
)
@each_row("size", [7, 10_000])
def test_an_endless_line_is_refused_with_the_name_of_the_object_and_no_other_value(
    start: bytes, size: int
) -> None:
    assert endless(start, size=size) == "a line of a watch is longer than 1,000 bytes; the object is 'web-1'"


@each_row(
    "start",
    [
        b"canary",
        b'{"name":"canary"',
        b'{"object":{"name":"canary","data":{"name":"canary"},"metadata":["name","canary",{"name":"canary"}]',
        b'{"object":{"metadata":{"name":"canary',
        b'}}]]{"object":[{"metadata":{"name":"canary"',
    ],
)
def test_where_the_name_is_uncertain_none_is_shown(start: bytes) -> None:
    assert endless(start) == "a line of a watch is longer than 1,000 bytes"


def test_the_work_is_linear_in_the_bytes_however_small_the_chunks() -> None:
    # Counted, not timed: what is kept back is put together once, when its line ends, and not with each chunk.
    lines = Lines()
    for count in range(1, 1000):
        assert list(lines.feed(b"abc")) == []
        assert lines._parts == [b"abc"] * count
    assert list(lines.feed(b"\n")) == [b"abc" * 999]
    assert lines._parts == [b""]
