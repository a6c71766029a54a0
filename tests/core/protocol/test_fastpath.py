"""The fast path finds by bytes what the decoder finds: objects and pages are read the same, however they are
written.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol import decoder
from kopf_selectcache.core.protocol._decoding import split_list, without_managed
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Event, Page
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from tests.rows import each_row

PODS = Reader("v1", "Pod")
CAREFUL = Reader("v1", "Pod", accepts=lambda _: True)
"""Looks at each object in the slow way."""
METADATA = {"name": "web-1", "namespace": "shop", "uid": "u-1", "resourceVersion": "5"}
MANAGED = {
    "managedFields": [
        {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
        {"manager": "kubelet"},
    ]
}
BARE = b'{"metadata":{'


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def listed(*items: bytes) -> bytes:
    return (
        b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":['
        + b",".join(items)
        + b"]}\n"
    )


# ---- managedFields.


NESTED = {"template": {"metadata": {"name": "x", **MANAGED}}}
ODD_METADATA: list[dict[str, Any]] = [
    METADATA,
    METADATA | MANAGED,
    MANAGED | METADATA,
    METADATA | MANAGED | {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    METADATA | {"managedFields": []},
    METADATA | {"managedFields": None},
    METADATA | {"managedFields": [{}, []]},
    METADATA | {"managedFields": [{"manager": "}]", "fieldsV1": {'v:["a"]': {}, "k:]},": [{}]}}]},
    METADATA | {"annotations": {"last": dump({"metadata": METADATA | MANAGED}).decode()}} | MANAGED,
    METADATA | {"annotations": {',"managedFields":[{': ',"managedFields":[{}]'}},
    METADATA | {"odd": {"x": 1, **MANAGED}} | MANAGED,
    METADATA | {"odd": {"x": 1, **MANAGED}},
    METADATA | {"annotations": {"\u00e9": '\u00e9\\"', "}],": "]"}} | MANAGED,
]
SAID = {"kind": "Pod", "apiVersion": "v1"}


@each_row("said", [{}, SAID, dict(reversed(SAID.items())), {"kind": "Pod"}])
@each_row(
    "rest",
    [{}, {"spec": {"a": [1]}}, {"spec": NESTED}, {"spec": {"x": 1, **MANAGED}}, MANAGED, {"x": 1, **MANAGED}],
)
@each_row("metadata", ODD_METADATA)
def test_wherever_they_stand_only_those_of_the_metadata_are_cut_out(
    metadata: dict[str, Any], rest: dict[str, Any], said: dict[str, str]
) -> None:
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    record = PODS.record(dump({**said, "metadata": metadata, **rest}))
    assert record.decode() == {**SAID, "metadata": kept, **rest}
    assert record.labels == metadata.get("labels", {})


def test_only_a_whole_value_that_stands_in_the_metadata_is_cut_out() -> None:
    assert without_managed(b'{"metadata":{"a":1,"managedFields":[{"b":"]"}]}}', 12) is None
    assert without_managed(b'{"metadata":{"a":{"b":1,"managedFields":[{}]}}}', 12) is None
    assert without_managed(b'{"metadata":{,"managedFields":[{}]"a":1}}', 12) is None
    assert without_managed(b'{"metadata":{"a":1,"managedFields":[{' + b'"b":{' * 9, 12) is None
    assert (
        without_managed(b'{"metadata":{"a":1,"managedFields":[{}],"b":2}}', 12)
        == b'{"metadata":{"a":1,"b":2}}'
    )


# ---- Lists.


@each_row(
    "data",
    [
        b"",
        b"{}",
        b'{"items":null}',
        b'{"items":[',
        b']"items":[',
        b'{"items":[1]}',
        b'{"items":[ ]}',
        b'{"items":[{"spec":{},"metadata":{}}]}',
        b'{"it\\u0065ms":1,"items":[{"metadata":{}}]}',
        b'{"items":[{"metadata":{}}],"items":1}',
        b'{"items":[{"metadata":{}}],"it\\u0065ms":1}',
    ],
)
def test_an_uncertain_list_is_not_taken_apart(data: bytes) -> None:
    assert split_list(data, [BARE]) is None


# ---- What an object says last is what it says.


# ---- Slices.


# ---- Whatever comes.


def seen(record: Record) -> object:
    obj = record.decode() if not isinstance(record, UnreadableRecord) else None
    return record.key, record.uid, record.version, record.labels, record.owners, obj


def outcome(read: Callable[[bytes], Any], data: bytes) -> object:
    """Return what is read, in a form that can be compared; None if it is refused."""
    try:
        found = read(data)
    except Garbled:
        return None
    match found:
        case Record():
            return seen(found)
        case Event(type_, record):
            return type_, seen(record)
        case Page(version, token, records):
            return version, token, [seen(record) for record in records]
        case _:
            return found


WHOLE = [
    dump(
        {
            "metadata": METADATA
            | {"labels": {"a": "b", "c": "d"}, "ownerReferences": [{"uid": "o", "kind": "Job"}]}
            | MANAGED,
            "spec": {"n": [1, 2.5, {"k": "v", "t": True, "z": None}], "text": 'a\\"]},{\u00e9'},
        }
    ),
    dump({"metadata": METADATA | {"name": "b", "annotations": {"x": "y"}}, "spec": {"n": 1e5}, "status": {}}),
]
PIECES = [
    *(bytes([each]) for each in b'{}[],:"\\ 0e9n\xff'),
    b'"managedFields":[{}],',
    b',"managedFields":[{}]',
    b',{"metadata":{',
    b'"items":[]',
    b'"kind":"Pod",',
    b"1e999",
    b"9" * 400,
]


def damaged(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        piece = (
            rng.choice(PIECES)
            if rng.random() < 0.7
            else data[(start := rng.randrange(len(data))) : start + rng.randint(1, 30)]
        )
        data = data[:at] + piece + data[at + rng.choice([0, 0, 1, len(piece), rng.randint(1, 30)]) :]
    return data


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(5, 20))]
)
def test_whatever_is_damaged_is_read_or_refused_as_if_everything_was_looked_at_in_the_slow_way(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)  # The same each time.
    objects = WHOLE + [b'{"kind":"Pod","apiVersion":"v1",' + data[1:] for data in WHOLE]
    lines = [b'{"type":"MODIFIED","object":' + data + b"}" for data in objects]
    pages = [listed(*WHOLE), listed(*objects[2:])]
    kinds: list[tuple[list[bytes], Callable[[Reader], Callable[[bytes], Any]]]] = [
        (objects, lambda reader: reader.record),
        (lines, lambda reader: reader.line),
        (pages, lambda reader: reader.page),
    ]
    for whole, read in kinds:
        for _ in range(150):
            data = damaged(rng.choice(whole), rng)
            quick = outcome(read(PODS), data)
            with monkeypatch.context() as slow:
                slow.setattr(decoder, "split_list", lambda *_: None)
                assert quick == outcome(read(CAREFUL), data), data
