"""Pages and objects: bytes that the decoder accepts or refuses. No error has a value of an object."""

from __future__ import annotations

import traceback
from typing import Any

import msgspec
import pytest

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.messages import Event, Page
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from tests.rows import each_row

from .decoding import (
    CANARY,
    METADATA,
    PODS,
    dump,
    event,
    garbled,
    listing,
    page,
    record_of,
    why_of,
    written,
)

# ---- Pages.


@each_row(
    "others",
    [
        {"kind": "Table", "items": None},
        {"kind": "ServiceList"},
        {"kind": "List", "apiVersion": "v2"},
        {"kind": "Pod"},
        {"kind": ""},
    ],
)
def test_anything_but_a_list_of_the_kind_is_refused(others: dict[str, Any]) -> None:
    data = dump({"apiVersion": "other/v1", "metadata": {"resourceVersion": "9"}, "items": [], **others})
    assert "came instead of a PodList" in garbled(PODS.page, data)


def test_a_list_with_an_endless_version_or_continue_token_is_refused() -> None:
    """A token becomes a part of a URL: to quote one of 15 million characters blocked the event loop for 1.7
    s."""
    assert (
        page(listing(metadata={"resourceVersion": "9" * 1024, "continue": "é" * 65_536})).token
        == "é" * 65_536
    )
    assert (
        garbled(PODS.page, listing(metadata={"resourceVersion": "9", "continue": "é" * 65_537}))
        == "a PodList came with a continue token of more than 65,536 characters"
    )
    assert (
        garbled(PODS.page, listing(metadata={"resourceVersion": "9" * 1025}))
        == "a PodList came with a resourceVersion of more than 1,024 characters"
    )


@pytest.mark.parametrize(
    "said", [{}, {"kind": "Pod", "apiVersion": "v1"}], ids=str
)  # The second is what the fast path reads.
def test_an_object_or_bookmark_with_an_endless_version_is_refused(said: dict[str, str]) -> None:
    short, long = (
        {**said, "metadata": METADATA | {"resourceVersion": "9" * length}} for length in (1024, 1025)
    )
    assert record_of(short).version == "9" * 1024
    why = "an object of kind Pod, shop/web-1, came with a resourceVersion of more than 1,024 characters"
    assert garbled(PODS.record, dump(long)) == why
    deep = dump(long)[:-1] + b',"spec":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert garbled(PODS.record, deep) == why
    assert (
        garbled(
            PODS.line,
            event(
                "BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "9" * 1025}}
            ),
        )
        == "a bookmark came with a resourceVersion of more than 1,024 characters"
    )


# ---- Objects.


@each_row(
    "object_",
    [
        {},
        {"metadata": None},
        *(
            {"metadata": {key: value for key, value in METADATA.items() if key != lost}}
            for lost in METADATA
            if lost != "namespace"
        ),
        *({"metadata": METADATA | {emptied: ""}} for emptied in METADATA if emptied != "namespace"),
    ],
)
def test_an_object_without_metadata_name_uid_or_version_is_refused(object_: Any) -> None:
    assert garbled(PODS.record, dump(object_)).endswith(" came without a name, uid or resourceVersion")


@each_row("usual", [True, False])
@each_row(
    "name",
    [".", "..", "../../x", "a/b", "a%2Fb", "a\0b", "\0" + "M" * 3_000_000],
    ids=lambda name: ascii(name[:9]),
)
@each_row("member", ["name", "namespace"])
def test_contract_8_an_object_with_a_name_that_no_request_can_have_is_refused(
    member: str, name: str, usual: bool
) -> None:  # A parameter of the test.
    obj = written({"kind": "Pod", "apiVersion": "v1", "metadata": METADATA | {member: name}}, usual=usual)
    for data, read in (
        (event("ADDED", obj), PODS.line),
        (event("DELETED", obj), PODS.line),
        (listing(obj), PODS.page),
    ):
        told = garbled(read, data)
        assert told.removesuffix(" (item 0 of the page)").endswith(
            " came with a name or namespace that no request can have"
        )
        assert len(told) < 500


@each_row("items", ['{"a":{}}', '"items"', "1", "true", '[{}],"items":1', "[1]", "[null]"])
@each_row("deep", [False, True])
def test_a_list_whose_items_are_no_list_is_not_taken_for_an_empty_one(items: str, deep: bool) -> None:
    spec = f',"deep":{"[" * 200_000}{"]" * 200_000}' if deep else ""
    with pytest.raises(Garbled):
        PODS.page(
            f'{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"5"}},"items":{items}{spec}}}'.encode()
        )


VALUES_OF_ALL_SORTS = [
    *(
        b"1e999",
        b"-1E400",
        b"1e-400",
        b"01",
        b"-",
        b"1.",
        b"1e",
        b"-0",
        b"-01",
        b"00",
        b"0x1",
        b"1_0",
        b".5",
        b"+1",
    ),
    *(
        b"9" * 400,
        b"9" * 5000,
        b"9" * 400 + b".0",
        b"nul",
        b"tru",
        b"NaN",
        b"[1,]",
        b'{"a":1,}',
        b"{1:2}",
        b"1 2",
        b"1}",
    ),
    *(
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\ud800\\u0041"',
        b'"\\ud83d\\ude00"',
        b'"\\q"',
        b'"\\u12g4"',
        b'"\\u0000"',
    ),
    *(
        b'"a\x01"',
        b'"a\nb"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\x7f"',
        b'{"\xff":1}',
        b"[" * 200_000 + b"]" * 200_000,
    ),
    *(b'1,"c":1e999', b'1e999,"c":NaN', b'1e999,"c":"\xff"', b'1e999,"c":"\x01"'),
]


@each_row("value", VALUES_OF_ALL_SORTS, ids=lambda value: ascii(value[:20]))
def test_contract_8_an_object_that_is_stored_can_be_decoded(value: bytes) -> None:
    """The metadata alone is decoded when an object comes: the rest must be proved in another way."""
    try:
        record = PODS.record(b'{"metadata":%s,"spec":{"a":%s}}' % (dump(METADATA), value))
    except Garbled:
        return
    assert isinstance(record, UnreadableRecord) or can_be_decoded(record)


def can_be_decoded(record: Record) -> bool:
    try:
        record.decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


@pytest.mark.parametrize(
    ("object_", "why"),
    [
        ({"kind": "Service", "metadata": METADATA}, "'Service' came instead of Pod"),
        ({"kind": "Table", "rows": []}, "'Table' came instead of Pod"),
        ({"kind": "Pod", "apiVersion": "v2", "metadata": METADATA}, "'v2' came instead of v1"),
    ],
)
def test_an_object_of_another_kind_or_group_is_refused(object_: Any, why: str) -> None:
    assert why in garbled(PODS.record, dump(object_))


MANAGED = [{"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}}]


@pytest.mark.parametrize("extra", [{}, {"managedFields": MANAGED}])
def test_an_object_is_the_same_bytes_from_a_list_and_from_a_watch(extra: dict[str, Any]) -> None:
    said, rest = {"kind": "Pod", "apiVersion": "v1"}, {"metadata": METADATA | extra, "spec": {"a": [1, 2]}}
    watched = PODS.line(event("ADDED", said | rest))
    assert isinstance(watched, Event)
    assert page(listing(rest)).records[0].data == watched.record.data


def test_a_record_does_not_keep_its_page_alive() -> None:
    data = listing(*({"metadata": METADATA | {"name": f"p{i}"}} for i in range(9)))
    assert all(len(record.data) < len(data) / 4 for record in page(data).records)


@each_row("where", [b'"data":{"x":"\xff\xfe"}', b'"da\xffta":1', b'"metadata":{"labels":{"\xff":"x"}}'])
@each_row("managed", [b"", b',"managedFields":[]'])
def test_bytes_that_readers_could_not_decode_are_found_at_once(where: bytes, managed: bytes) -> None:
    start = b'{"kind":"Pod","apiVersion":"v1","metadata":' + dump(METADATA)[:-1] + managed + b"},"
    if b'"metadata"' in where:  # That is another one, which names nothing.
        garbled(PODS.record, start + where + b"}")
    else:
        assert why_of(PODS.record(start + where + b"}")) == "it is not UTF-8"


@each_row("labels", [{"app": 1}, {"app": None}, {"app": {"x": "y"}}, ["app"], "app"])
def test_labels_that_are_no_strings_are_refused(labels: Any) -> None:
    garbled(PODS.record, dump({"metadata": METADATA | {"labels": labels}}))


@pytest.mark.parametrize("start", [b'{"metadata":{', b'{ "metadata":{'], ids=["as usual", "spaced"])
def test_an_unreadable_object_of_a_page_costs_itself_alone(start: bytes) -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    objects = [
        start + dump(METADATA | {"name": name})[1:] + b',"spec":' + spec + b"}"
        for name, spec in (("a", b"1"), ("b", deep), ("c", b'"%s"' % (b"x" * 99_999)))
    ]
    data = (
        b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":['
        + b",".join(objects)
        + b"]}"
    )
    *pauses, answer = PODS.slices(data)
    assert isinstance(answer, Page)
    assert [record.name for record in answer.records] == ["a", "b", "c"]
    assert [isinstance(record, UnreadableRecord) for record in answer.records] == [False, True, False]
    assert pauses
    assert "(item 2 of the page)" in garbled(PODS.page, data.replace(b'"name":"c"', b'"name":""'))
    for bad in (data[:-2], data[:-1] + b"]", data.replace(b'"9"', b"9")):
        garbled(PODS.page, bad)


# ---- Nothing that an object holds is told.


LEAKS: list[Any] = [
    {"kind": "Pod", "metadata": METADATA | {"labels": {"app": {CANARY: CANARY}}}},
    {"kind": "Pod", "metadata": METADATA | {"labels": {CANARY: 1}}},
    {"kind": "Pod", "metadata": METADATA | {"uid": [CANARY]}},
    {"kind": "Pod", "metadata": {"annotations": {"last-applied": CANARY}}, "data": {"password": CANARY}},
    {"kind": "Pod", "metadata": METADATA | {"ownerReferences": CANARY}},
    {"kind": "Service", "metadata": METADATA, "data": {"password": CANARY}},
    {"kind": "Pod", "metadata": CANARY},
    {"kind": "Pod", "apiVersion": "v2", "metadata": METADATA | {"annotations": {"a": CANARY}}},
]


@each_row("object_", LEAKS)
def test_no_value_of_an_object_is_in_an_error_or_its_traceback_or_context(object_: Any) -> None:
    for read, data in (
        (PODS.record, dump(object_)),
        (PODS.line, event("ADDED", object_)),
        (PODS.page, listing(object_)),
    ):
        for bad in (data, data[:-2], data.replace(CANARY.encode(), CANARY.encode() + b"\xff")):
            with pytest.raises(Garbled) as info:
                read(bad)
            assert CANARY not in "".join(traceback.format_exception(info.value)) + repr(info.value)
            assert info.value.__context__ is None


def test_no_value_of_an_object_is_in_the_repr_of_a_parsed_answer() -> None:
    secret = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": METADATA | {"annotations": {"a": CANARY}},
        "data": {"b": CANARY},
    }
    assert CANARY not in repr(page(listing(secret)))
    assert CANARY not in repr(PODS.line(event("ADDED", secret)))
