"""The fast path finds by bytes what the decoder finds: objects and pages are read the same, however they are
written.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache.core.errors import Garbled, Untransformed
from kopf_selectcache.core.protocol import decoder
from kopf_selectcache.core.protocol._decoding import split_list, without_managed
from kopf_selectcache.core.protocol.decoder import OBJECT_COST_BYTES, SLICE_BYTES, Reader
from kopf_selectcache.core.protocol.messages import Event, Page
from kopf_selectcache.core.store.projection import Projection
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


@pytest.mark.parametrize("escaped", [b'"managed\\u0046ields"', b'"managedFields" '])
def test_keys_that_are_written_otherwise_are_cut_out_as_well(escaped: bytes) -> None:
    written = dump({"metadata": METADATA | {"odd": {"x": 1, **MANAGED}} | MANAGED})
    start, _, end = written.rpartition(b'"managedFields"')
    assert PODS.record(start + escaped + end).decode() == SAID | {
        "metadata": METADATA | {"odd": {"x": 1, **MANAGED}}
    }


def test_only_a_whole_value_that_stands_in_the_metadata_is_cut_out() -> None:
    assert without_managed(b'{"metadata":{"a":1,"managedFields":[{"b":"]"}]}}', 12) is None
    assert without_managed(b'{"metadata":{"a":{"b":1,"managedFields":[{}]}}}', 12) is None
    assert without_managed(b'{"metadata":{,"managedFields":[{}]"a":1}}', 12) is None
    assert without_managed(b'{"metadata":{"a":1,"managedFields":[{' + b'"b":{' * 9, 12) is None
    assert (
        without_managed(b'{"metadata":{"a":1,"managedFields":[{}],"b":2}}', 12)
        == b'{"metadata":{"a":1,"b":2}}'
    )


def test_cut_fields_that_make_no_sense_are_refused() -> None:
    whole = dump({"metadata": METADATA | MANAGED})
    for bad in (b"[nothing", b'[{"manager":}', b"[{{"):
        with pytest.raises(Garbled):
            PODS.record(whole.replace(b"[{", bad, 1))


# ---- Lists.


def test_a_list_is_taken_apart_wherever_its_items_stand() -> None:
    items = [dump({"metadata": {"name": name}}) for name in "abc"]
    for form in (
        b'{"kind":"x","items":[%s],"metadata":{}}',
        b'{"kind":"x","items":[%s]}',
        b'{"items":[%s],"kind":"x"} \n',
    ):
        parts = split_list(form % b",".join(items), [b"{nothing", BARE])
        assert parts is not None
        assert (parts.envelope, list(parts.items)) == (form % b"", items)
        empty = split_list(form % b"", [BARE])
        assert empty is not None
        assert list(empty.items) == []


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


@each_row(
    "spec",
    [
        [{"metadata": {}}, {"metadata": {"name": "x"}}],
        ',{"metadata":{',
        {"items": [{"metadata": {"a": 1}}, {"metadata": {}}]},
        {"a]": "]}"},
    ],
)
def test_items_with_contents_like_those_of_lists_stay_whole(spec: Any) -> None:
    objects = [{"metadata": METADATA | {"name": name}, "spec": spec} for name in "abc"]
    page = PODS.page(listed(*map(dump, objects)))
    assert isinstance(page, Page)
    assert [record.decode() for record in page.records] == [SAID | obj for obj in objects]


def test_a_list_within_the_list_is_not_taken_for_it() -> None:
    around = {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "9", "items": [{"metadata": METADATA}]},
    }
    rests: list[dict[str, Any]] = [{}, {"items": []}, {"items": None}]
    for rest in rests:
        page = PODS.page(dump(around | rest))
        assert isinstance(page, Page)
        assert page.records == ()


# ---- What an object says last is what it says.


@pytest.mark.parametrize("said", [b'{"kind":"Pod","apiVersion":"v1",', b"{"])
def test_an_object_that_says_in_the_end_that_it_is_another_is_refused(said: bytes) -> None:
    data = said + dump({"metadata": METADATA})[1:-1]
    for end in (b',"kind":"Service"}', b',"apiVersion":"v2"}', b',"metadata":{}}'):
        with pytest.raises(Garbled):
            PODS.record(data + end)
    assert (
        PODS.record(data + b',"kind":"Pod"}').decode()
        == PODS.record(data + b"}").decode()
        == SAID | {"metadata": METADATA}
    )


def test_a_line_ends_with_its_object() -> None:
    line = b'{"type":"ADDED","object":' + dump(SAID | {"metadata": METADATA})
    assert isinstance(PODS.line(line + b"}"), Event)
    for end in (b"", b"]", b"}}", b",}", b"} {"):
        with pytest.raises(Garbled):
            PODS.line(line + end)


def test_nothing_is_stored_of_an_object_not_accepted() -> None:
    one = Reader("v1", "Pod", accepts=lambda key: key != ("shop", "web-1")).record(
        dump(SAID | {"metadata": METADATA})
    )
    assert (one.key, one.data) == (("shop", "web-1"), b"")


def test_a_transform_that_fails_is_called_once() -> None:
    called = []

    def transform(obj: dict[str, Any]) -> dict[str, Any]:
        called.append(obj)
        raise ValueError

    with pytest.raises(Untransformed):
        Reader("v1", "Pod", Projection.of(transform=transform)).page(listed(*WHOLE))
    assert len(called) == 1


# ---- Slices.


def page_of(count: int, size: int) -> bytes:
    return listed(
        *(
            dump({"metadata": METADATA | {"name": f"p-{number}"}, "spec": "x" * size})
            for number in range(count)
        )
    )


@each_row(("count", "size"), [(40, 100_000), (1000, 10), (3, SLICE_BYTES)])
@each_row("space", [b"", b" "])
def test_a_page_is_read_in_slices_of_so_many_bytes_or_objects(count: int, size: int, space: bytes) -> None:
    data = page_of(count, size).replace(
        b'"items":', b'"items":' + space
    )  # With it, it is decoded as a whole.
    *pauses, answer = PODS.slices(data)
    assert isinstance(answer, Page)
    assert [record.name for record in answer.records] == [f"p-{number}" for number in range(count)]
    assert pauses
    assert set(pauses) == {None}
    most = max(1, -(-SLICE_BYTES // (size + OBJECT_COST_BYTES)))  # Objects in a slice.
    assert len(pauses) >= count // (most + 1) - 1


def test_a_slice_that_makes_no_sense_refuses_the_page() -> None:
    with pytest.raises(Garbled):
        list(PODS.slices(page_of(1000, 10).replace(b'"p-999"', b'""')))


def test_a_few_objects_are_one_slice() -> None:
    (answer,) = PODS.slices(page_of(3, 10))
    assert isinstance(answer, Page)


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
