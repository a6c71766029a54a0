"""An object that cannot be decoded is scanned once, and decoded at most once on each stack. The tests count
calls."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import current_thread
from typing import Any

import msgspec
import pytest

from kopf_selectcache.core import json_text
from kopf_selectcache.core.json_text import Unscannable, is_deeper, outline
from kopf_selectcache.core.protocol import decoder
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Event
from kopf_selectcache.core.store import projection
from kopf_selectcache.core.store.record import UnreadableRecord
from tests.rows import each_row

METADATA = b'"name":"a","namespace":"ns","uid":"u","resourceVersion":"5"'
MANAGED = b',"managedFields":[{"manager":"m","fieldsV1":{"f:spec":{}}}]'
DEEP = b"[" * 400_000 + b"]" * 400_000
ALTERNATING = b'[{"a":' * 200_000 + b"0" + b"}]" * 200_000
VALUES = {"lists": DEEP, "objects": ALTERNATING}
ATTEMPTS = [["MainThread"]]
if sys.version_info >= (3, 12):
    # The decoder reaches a depth at which the cheap check of the nesting does not decide: a thread with a
    # larger stack tries as well.
    ATTEMPTS.append(["MainThread", "selectcache"])
READER = Reader("v1", "Pod")


def written(value: bytes, *, managed: bytes = b"", said: bytes = b'"apiVersion":"v1","kind":"Pod",') -> bytes:
    return b'{%s"metadata":{%s%s},"spec":{"a":%s}}' % (said, METADATA, managed, value)


def event(obj: bytes, start: bytes = b'{"type":"MODIFIED","object":') -> bytes:
    return start + obj + b"}"


class Counts:
    """The calls that take long, in their order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.scans: list[int] = []
        self.decodes: list[str] = []
        scan, decode = json_text._whole, msgspec.json.Decoder().decode

        def scanned(data: bytes, *arguments: Any) -> Iterator[Any]:
            self.scans.append(len(data))
            return scan(data, *arguments)

        def decoded(data: bytes) -> Any:
            self.decodes.append(current_thread().name)
            return decode(data)

        patch.setattr(json_text, "_whole", scanned)

        def decoded_as_usual(data: bytes) -> Any:
            self.decodes.append(current_thread().name)
            return decode_usual(data)

        decode_usual = decoder._decode_usual
        patch.setattr(json_text, "decode_exactly", decoded)
        patch.setattr(projection, "decode_exactly", decoded)
        patch.setattr(decoder, "_decode_usual", decoded_as_usual)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


LINES = {
    "as servers write them": b'{"type":"MODIFIED","object":',
    "with blanks": b'{ "type": "MODIFIED", "object": ',
    "with the type twice": b'{"type":"ADDED","type":"MODIFIED","object":',
}


@pytest.mark.parametrize("managed", [b"", MANAGED])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("form", LINES)
def test_an_event_with_an_object_of_too_many_levels_is_scanned_once_decoded_once_and_needs_no_thread(
    counts: Counts,
    form: str,
    value: str,
    managed: bytes,
) -> None:
    line = event(written(VALUES[value], managed=managed), LINES[form])
    read = READER.line(line)
    assert isinstance(read, Event)
    assert isinstance(read.record, UnreadableRecord)
    assert (read.record.name, read.record.why) == ("a", "it is nested too deeply")
    assert counts.scans == [len(line)]
    assert counts.decodes in ATTEMPTS


def test_no_thread_tries_data_certainly_too_deep_for_an_empty_stack(
    counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_text, "STACK_BYTES", 400 * 4_000)  # Of a larger one, too few tokens are counted.
    with pytest.raises(RecursionError):
        json_text.decoded_again(b"[" * 5_000 + b"]" * 5_000)
    assert counts.decodes == []


# ---- The outline.


# ---- Many tokens at once.


def nested(levels: int, closing: bytes = b"]") -> bytes:
    return b"[" * levels + b"0" + closing * levels


@each_row("levels", [1, 2, 31, 32, 33, 100, 255, 256, 257, 300, 600, 5000])
def test_brackets_are_matched_however_many_levels_there_are(levels: int) -> None:
    each = [nested(levels), b'{"a":%s}' % nested(levels), b'["[{",[],{},[[[]]],{"b":{"c":[{}]}}]'] * 3
    good = b",".join(each)
    assert list(json_text.items(b"[%s]" % good)) == each
    assert outline(b'{"a":[%s],"b":0}' % good).members == {"a": b"[%s]" % good, "b": b"0"}
    for bad in (
        nested(levels, b"}"),
        nested(levels)[:-1],
        nested(levels) + b"]",
        nested(levels).replace(b"0", b"[}"),
        nested(levels).replace(b"0", b"1 2"),
    ):
        with pytest.raises(Unscannable):
            outline(b'{"a":[%s,%s,%s],"b":0}' % (good, bad, good))


def test_levels_are_counted_as_long_as_there_is_json_and_not_for_ever() -> None:
    assert is_deeper(DEEP, 1000)
    assert is_deeper(b"[" + b"[0]," * 3_000 + DEEP, 1000)
    assert not is_deeper(b"[" + b"[0]," * 50_000 + DEEP, 1000)
    assert not is_deeper(b"[1 2" + DEEP, 1000)
    assert not is_deeper(nested(900), 1000)
    assert not is_deeper(b'"' + DEEP + b'"', 1000)
