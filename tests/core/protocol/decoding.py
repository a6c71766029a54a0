"""Bytes that a server sends, and the decoders of pods and jobs, for the tests of the decoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache.core.errors import Garbled, Undecodable
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Page
from kopf_selectcache.core.store.record import Record, UnreadableRecord

PODS = Reader("v1", "Pod")
JOBS = Reader("batch/v1", "Job")
CANARY = "canary-7f3a"
METADATA: dict[str, Any] = {"name": "web-1", "namespace": "shop", "uid": "u-1", "resourceVersion": "5"}


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def listing(*items: Any, **others: Any) -> bytes:
    return dump(
        {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "9"},
            "items": list(items),
            **others,
        }
    )


def event(type_: str, object_: Any) -> bytes:
    return dump({"type": type_, "object": object_})


def page(data: bytes, reader: Reader = PODS) -> Page:
    read = reader.page(data)
    assert isinstance(read, Page)
    return read


def why_of(record: Record) -> str:
    """Return why an unreadable record is unreadable."""
    assert isinstance(record, UnreadableRecord)
    assert record.stored == b""
    for read in (record.decode, lambda: record.data):
        with pytest.raises(Undecodable, match=record.why):
            read()
    return record.why


def garbled(read: Callable[[bytes], object], data: bytes) -> str:
    with pytest.raises(Garbled) as info:
        read(data)
    return str(info.value)


def record_of(object_: Any, reader: Reader = PODS) -> Record:
    return reader.record(dump(object_))


def written(obj: dict[str, Any], *, usual: bool) -> dict[str, Any]:
    return obj if usual else dict(reversed(obj.items()))
