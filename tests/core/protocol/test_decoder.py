"""Bytes to pages, events and refusals: what is taken in, what is refused, and that no value is ever told in
an error."""

from __future__ import annotations

import json
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kopf_selectcache.core.errors import Garbled, Undecodable
from kopf_selectcache.core.protocol._decoding import MOST_SAID
from kopf_selectcache.core.protocol.decoder import Reader, read_refusal
from kopf_selectcache.core.protocol.lines import Lines
from kopf_selectcache.core.protocol.messages import Bookmark, Event, Message, Page, Refusal
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.selection.sent import Sent
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.core.store.record import Record, Unreadable
from tests.cache.environment import builtin

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
    assert isinstance(record, Unreadable)
    assert record.stored == b""
    for read in (record.decode, lambda: record.data):
        with pytest.raises(Undecodable, match=record.why):
            read()
    return record.why


def garbled(read: Callable[[bytes], object], data: bytes) -> str:
    with pytest.raises(Garbled) as info:
        read(data)
    return str(info.value)


# ---- Pages.


def test_a_page_has_its_version_its_token_and_its_records() -> None:
    read = page(listing({"metadata": METADATA}, metadata={"resourceVersion": "9", "continue": "more"}))
    assert (read.version, read.token) == ("9", "more")
    assert [record.key for record in read.records] == [("shop", "web-1")]


def test_the_last_page_has_no_token() -> None:
    assert page(listing()).token == ""


def test_a_page_without_items_may_have_a_token() -> None:
    assert page(listing(metadata={"resourceVersion": "9", "continue": "more"})) == Page("9", "more", ())


@pytest.mark.parametrize("others", [{"items": None}, {"items": []}])
def test_null_items_are_none(others: dict[str, Any]) -> None:
    assert page(listing(**others)).records == ()


def test_a_status_may_come_where_a_list_was_asked_for() -> None:
    status = {
        "kind": "Status",
        "metadata": {"continue": "fresh"},
        "code": 410,
        "reason": "Expired",
        "message": "too old",
    }
    assert PODS.page(dump(status)) == Refusal(410, "Expired", "too old", None, "fresh")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("metadata", [None, {}, {"resourceVersion": ""}])
def test_a_list_without_a_version_is_refused(metadata: Any) -> None:
    assert garbled(PODS.page, listing(metadata=metadata)) == "a PodList came without a resourceVersion"


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
    deep = dump(long)[:-1] + b',"spec":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
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


def test_an_endless_token_of_a_refusal_is_none() -> None:
    status = {
        "kind": "Status",
        "metadata": {"continue": "t" * 65_537},
        "code": 410,
        "reason": "Expired",
        "message": "too old",
    }
    assert PODS.page(dump(status)) == Refusal(410, "Expired", "too old")


def test_the_list_of_a_custom_resource_may_be_named_otherwise_if_its_items_name_their_kind() -> None:
    reader = Reader("example.com/v1", "Shop")
    item = {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": METADATA}
    read = page(
        dump(
            {
                "kind": "ShopsList",
                "apiVersion": "example.com/v1",
                "metadata": {"resourceVersion": "9"},
                "items": [item],
            }
        ),
        reader,
    )
    assert [record.name for record in read.records] == ["web-1"]


def test_a_list_of_another_name_whose_items_name_no_kind_is_refused() -> None:
    reader = Reader("example.com/v1", "Shop")
    data = listing({"metadata": METADATA}, kind="ServiceList", apiVersion="example.com/v1")
    assert "instead of Shop" in garbled(reader.page, data)


def test_an_empty_list_of_another_kind_does_not_say_that_there_is_nothing() -> None:
    assert garbled(PODS.page, listing(kind="SecretList")) == "a 'SecretList' came instead of a PodList"
    assert (
        garbled(JOBS.page, listing(kind="CronJobList", apiVersion="batch/v1"))
        == "a 'CronJobList' came instead of a JobList"
    )


def test_one_object_that_makes_no_sense_refuses_the_page() -> None:
    garbled(PODS.page, listing({"metadata": METADATA}, {"metadata": {}}))


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"<html>", b"\xff\xfe", listing()[:-1], listing() + b"{}", b"[" * 100_000],
)
def test_what_is_no_json_or_cut_short_is_refused(data: bytes) -> None:
    garbled(PODS.page, data)
    garbled(PODS.line, data)
    garbled(PODS.record, data)


# ---- Objects.


def record_of(object_: Any, reader: Reader = PODS) -> Record:
    return reader.record(dump(object_))


def test_a_record_has_what_reads_select_by() -> None:
    record = record_of(
        {
            "metadata": (
                METADATA
                | {
                    "labels": {"app": "web"},
                    "ownerReferences": [{"uid": "o-1", "kind": "Job"}, {"uid": "o-2"}],
                }
            )
        }
    )
    assert record.key == ("shop", "web-1")
    assert (record.uid, record.version, record.labels, record.owners) == (
        "u-1",
        "5",
        {"app": "web"},
        ("o-1", "o-2"),
    )


@pytest.mark.parametrize("null", ["labels", "ownerReferences"])
def test_null_labels_and_owners_are_none(null: str) -> None:
    record = record_of({"metadata": METADATA | {null: None}})
    assert (record.labels, record.owners) == ({}, ())


def test_an_object_of_a_cluster_scoped_kind_has_no_namespace() -> None:
    assert record_of({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}}).key == ("", "n")


@pytest.mark.parametrize(
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


def test_an_object_that_is_refused_is_named() -> None:
    """Else nobody could find it, and until somebody does, the cache cannot be complete."""
    assert garbled(PODS.record, dump({"metadata": METADATA | {"uid": ""}})).startswith(
        "an object of kind Pod, shop/web-1, came"
    )
    assert garbled(PODS.record, dump({"metadata": {"name": "node-1"}})).startswith(
        "an object of kind Pod, node-1, came"
    )
    assert garbled(PODS.record, dump({"metadata": {"namespace": "shop"}})).startswith(
        "an object of kind Pod came"
    )


@pytest.mark.parametrize("usual", [True, False])
@pytest.mark.parametrize(
    "name",
    [".", "..", "../../x", "a/b", "a%2Fb", "a\0b", "\0" + "M" * 3_000_000],
    ids=lambda name: ascii(name[:9]),
)
@pytest.mark.parametrize("member", ["name", "namespace"])
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


@pytest.mark.parametrize("items", ['{"a":{}}', '"items"', "1", "true", '[{}],"items":1', "[1]", "[null]"])
@pytest.mark.parametrize("deep", [False, True])
def test_a_list_whose_items_are_no_list_is_not_taken_for_an_empty_one(items: str, deep: bool) -> None:
    spec = f',"deep":{"[" * 20_000}{"]" * 20_000}' if deep else ""
    with pytest.raises(Garbled):
        PODS.page(
            f'{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"5"}},"items":{items}{spec}}}'.encode()
        )


@pytest.mark.parametrize(
    "name", ["system:node:n1", "a,b=c\\d", "...", "ä b", "M" * 2_000], ids=lambda name: ascii(name[:9])
)
def test_an_object_with_any_other_name_is_taken_in(name: str) -> None:
    object_ = {"kind": "Pod", "apiVersion": "v1", "metadata": METADATA | {"name": name}}
    assert record_of(object_).name == name
    assert PODS.record(dump(dict(reversed(object_.items())))).name == name


NUMBERS_BEYOND_BOUNDS = ["1e999", "-1E+400", "9" * 5000, "9" * 250 + "e90", "0.1e310"]


@pytest.mark.parametrize("number", NUMBERS_BEYOND_BOUNDS)
def test_an_object_with_a_number_out_of_range_is_unreadable(number: str) -> None:
    object_ = dump({"metadata": METADATA, "spec": "NUMBER"}).replace(b'"NUMBER"', number.encode())
    assert why_of(PODS.record(object_)) == "it has a number that is out of range"


@pytest.mark.parametrize(
    "spec",
    [
        "1e300",
        "1e-999",
        "1e05",
        "-0",
        "18446744073709551616",
        "9" * 250,
        '"2e9991"',
        *(f'"{number}"' for number in NUMBERS_BEYOND_BOUNDS),
    ],
)
def test_a_number_that_can_be_decoded_or_is_text_is_taken_in(spec: str) -> None:
    object_ = dump({"metadata": METADATA, "spec": "NUMBER"}).replace(b'"NUMBER"', spec.encode())
    assert PODS.record(object_).decode()["spec"] == json.loads(spec)


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


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kind": "Job"},
        {"apiVersion": "batch/v1"},
        {"kind": "", "apiVersion": ""},
        {"kind": "Job", "apiVersion": "batch/v1"},
    ],
)
def test_an_object_says_its_kind_and_version_when_decoded_whatever_the_list_said(
    said: dict[str, str],
) -> None:
    decoded = record_of({**said, "metadata": METADATA, "spec": {"a": 1}}, JOBS).decode()
    assert decoded == {"kind": "Job", "apiVersion": "batch/v1", "metadata": METADATA, "spec": {"a": 1}}


MANAGED = [{"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}}]


def test_managed_fields_are_cut_out_and_every_other_value_keeps_its_bytes() -> None:
    odd = (
        b'{ "float":1.50, "big":12345678901234567890123, "text":"\\u00e9\\n\xc3\xa9", "empty":{ },'
        b' "managedFields":[1] }'
    )
    metadata = dump(METADATA | {"managedFields": MANAGED})[:-1] + b',"annotations":{"a":"\\u00e9"}}'
    data = PODS.record(
        b'{"kind":"Pod","apiVersion":"v1","metadata":' + metadata + b',"spec":' + odd + b"}"
    ).data
    assert odd in data
    assert b'"annotations":{"a":"\\u00e9"}' in data
    assert b"kubectl" not in data
    assert json.loads(data)["metadata"] == METADATA | {"annotations": {"a": "\u00e9"}}


def test_managed_fields_that_are_only_spoken_of_stay() -> None:
    spoken = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": METADATA,
        "spec": {"managedFields": 1, "text": '"managedFields"'},
    }
    assert record_of(spoken).decode() == spoken


@pytest.mark.parametrize("extra", [{}, {"managedFields": MANAGED}])
def test_an_object_is_the_same_bytes_from_a_list_and_from_a_watch(extra: dict[str, Any]) -> None:
    said, rest = {"kind": "Pod", "apiVersion": "v1"}, {"metadata": METADATA | extra, "spec": {"a": [1, 2]}}
    watched = PODS.line(event("ADDED", said | rest))
    assert isinstance(watched, Event)
    assert page(listing(rest)).records[0].data == watched.record.data


def test_a_record_does_not_keep_its_page_alive() -> None:
    data = listing(*({"metadata": METADATA | {"name": f"p{i}"}} for i in range(9)))
    assert all(len(record.data) < len(data) / 4 for record in page(data).records)


@pytest.mark.parametrize(
    "where", [b'"data":{"x":"\xff\xfe"}', b'"da\xffta":1', b'"metadata":{"labels":{"\xff":"x"}}']
)
@pytest.mark.parametrize("managed", [b"", b',"managedFields":[]'])
def test_what_readers_could_not_decode_is_found_at_once(where: bytes, managed: bytes) -> None:
    start = b'{"kind":"Pod","apiVersion":"v1","metadata":' + dump(METADATA)[:-1] + managed + b"},"
    if b'"metadata"' in where:  # That is another one, which names nothing.
        garbled(PODS.record, start + where + b"}")
    else:
        assert why_of(PODS.record(start + where + b"}")) == "it is not UTF-8"


@pytest.mark.parametrize("labels", [{"app": 1}, {"app": None}, {"app": {"x": "y"}}, ["app"], "app"])
def test_labels_that_are_no_strings_are_refused(labels: Any) -> None:
    garbled(PODS.record, dump({"metadata": METADATA | {"labels": labels}}))


@pytest.mark.parametrize("start", [b'{"metadata":{', b'{ "metadata":{'], ids=["as usual", "spaced"])
def test_an_unreadable_object_of_a_page_costs_itself_alone(start: bytes) -> None:
    deep = b"[" * 50_000 + b"]" * 50_000
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
    assert [isinstance(record, Unreadable) for record in answer.records] == [False, True, False]
    assert pauses
    assert "(item 2 of the page)" in garbled(PODS.page, data.replace(b'"name":"c"', b'"name":""'))
    for bad in (data[:-2], data[:-1] + b"]", data.replace(b'"9"', b"9")):
        garbled(PODS.page, bad)


# ---- Lines of a watch.


@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_has_its_type_and_its_object(type_: str) -> None:
    read = PODS.line(event(type_, {"kind": "Pod", "apiVersion": "v1", "metadata": METADATA}))
    assert isinstance(read, Event)
    assert (read.type, read.record.name, read.record.version) == (type_, "web-1", "5")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "object_", [{}, {"metadata": None}, {"metadata": {}}, {"metadata": {"resourceVersion": ""}}]
)
def test_a_bookmark_without_a_version_is_refused(object_: Any) -> None:
    garbled(PODS.line, event("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", **object_}))


@pytest.mark.parametrize(
    "said",
    [
        {"kind": "Node", "apiVersion": "v1"},
        {"kind": "Pod", "apiVersion": "example.com/v1"},
        {"apiVersion": "v1"},
    ],
)
def test_a_bookmark_of_another_kind_or_group_is_refused(said: dict[str, str]) -> None:
    garbled(PODS.line, event("BOOKMARK", said | {"metadata": {"resourceVersion": "999999"}}))


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


def written(obj: dict[str, Any], *, usual: bool) -> dict[str, Any]:
    return obj if usual else dict(reversed(obj.items()))


@pytest.mark.parametrize("usual", [True, False])
@pytest.mark.parametrize(("metadata", "spec", "why"), NOT_SELECTED)
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


@pytest.mark.parametrize("usual", [True, False])
def test_an_object_that_the_selector_selects_is_taken_in(usual: bool) -> None:  # A parameter of the test.
    obj = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": METADATA | {"labels": {"app": "web"}},
        "spec": {"nodeName": "n1"},
    }
    assert isinstance(SELECTING.line(event("ADDED", written(obj, usual=usual))), Event)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("type_", ["", "added", "SYNC", "x" * 10_000])
def test_an_event_of_an_unknown_type_is_refused_in_few_words(type_: str) -> None:
    assert len(garbled(PODS.line, event(type_, {"metadata": METADATA}))) < 200


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


@pytest.mark.parametrize(
    "rest", [b"", dump(STATUS)[:-1], dump([STATUS]), event("ADDED", {"kind": "Pod", "metadata": METADATA})]
)
def test_what_else_comes_after_the_last_newline_is_nothing(rest: bytes) -> None:
    assert PODS.rest(rest) is None


@pytest.mark.parametrize(
    "line", [{"object": {}}, {"type": "ADDED"}, {"type": 1, "object": {}}, {"type": "ERROR", "object": [1]}]
)
def test_a_line_of_another_shape_is_refused(line: Any) -> None:
    garbled(PODS.line, dump(line))


# ---- Refusals of requests.


def test_a_refusal_says_what_the_status_says_but_its_code_is_that_of_the_answer() -> None:
    status = {
        "kind": "Status",
        "code": 200,
        "reason": "Forbidden",
        "message": "no",
        "metadata": {"continue": "fresh"},
    }
    assert read_refusal(403, dump(status)) == Refusal(403, "Forbidden", "no", None, "fresh")


@pytest.mark.parametrize(
    "data", [b"", b"<html>Bad Gateway</html>", b"[]", b"\xff", b'{"code":"x"}', b"[" * 100_000]
)
def test_a_refusal_by_a_proxy_is_its_code(data: bytes) -> None:
    assert read_refusal(502, data) == Refusal(502)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (30.5, 30.5),
        (0.0, 0.0),
        (None, 4.0),
    ],
)
def test_the_header_says_how_long_to_wait_and_where_it_does_not_the_status(
    header: float | None, seconds: float
) -> None:
    assert (
        read_refusal(429, dump({"details": {"retryAfterSeconds": 4}}), retry_after=header).retry_after
        == seconds
    )


def test_a_status_that_asks_to_wait_for_less_than_no_time_asks_for_nothing() -> None:
    assert read_refusal(429, dump({"details": {"retryAfterSeconds": -4}})) == Refusal(429)


def test_what_a_server_says_is_one_line_for_people_to_read() -> None:
    said = {
        "kind": "Status",
        "code": 403,
        "reason": "For\nbidden",
        "message": "first\r\n  second\x1b[31m\u2028third",
    }
    assert PODS.rest(dump(said)) == Refusal(403, "For bidden", "first second [31m third")


@pytest.mark.parametrize("length", [MOST_SAID + 1, 2 * MOST_SAID, 2_000_000])
def test_what_a_server_says_has_an_end(length: int) -> None:
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


@pytest.mark.parametrize("object_", LEAKS)
def test_no_value_of_an_object_is_told_in_an_error_or_in_what_python_keeps_of_it(object_: Any) -> None:
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


def test_no_value_of_an_object_is_told_by_the_text_of_what_was_read() -> None:
    secret = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": METADATA | {"annotations": {"a": CANARY}},
        "data": {"b": CANARY},
    }
    assert CANARY not in repr(page(listing(secret)))
    assert CANARY not in repr(PODS.line(event("ADDED", secret)))


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


def test_byte_by_byte_the_lines_are_the_same() -> None:
    lines = Lines()
    assert [
        line for byte in range(len(STREAM)) for line in lines.feed(STREAM[byte : byte + 1])
    ] == STREAM.splitlines()


def test_half_a_line_is_kept_back() -> None:
    lines = Lines()
    assert list(lines.feed(b'{"whole":1}\n{"half"')) == [b'{"whole":1}']
    assert list(lines.feed(b"")) == []
    assert list(lines.feed(b":2}")) == []
    assert lines.rest == b'{"half":2}'
    assert list(lines.feed(b"\n")) == [b'{"half":2}']


def test_lines_count_one_by_one_towards_the_limit() -> None:
    lines = Lines(limit=10)
    for _ in range(100):
        assert list(lines.feed(b"12345\n6789")) != []
        assert list(lines.feed(b"0\n")) == [b"67890"]
    assert list(lines.feed(b"1234567890")) == []


def endless(start: bytes, *, size: int = 7) -> str:
    lines, data = Lines(limit=1000), start + b"x" * 2000
    with pytest.raises(Garbled, match="longer than 1,000 bytes") as info:
        deque(line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size]))
    return str(info.value)


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("size", [7, 10_000])
def test_an_endless_line_is_refused_with_the_name_of_the_object_and_no_other_value(
    start: bytes, size: int
) -> None:
    assert endless(start, size=size) == "a line of a watch is longer than 1,000 bytes; the object is 'web-1'"


@pytest.mark.parametrize(
    "start",
    [
        b"canary",
        b'{"name":"canary"',
        b'{"object":{"name":"canary","data":{"name":"canary"},"metadata":["name","canary",{"name":"canary"}]',
        b'{"object":{"metadata":{"name":"canary',
        b'}}]]{"object":[{"metadata":{"name":"canary"',
    ],
)
def test_where_the_name_cannot_be_told_nothing_is(start: bytes) -> None:
    assert endless(start) == "a line of a watch is longer than 1,000 bytes"


def test_the_work_is_linear_in_the_bytes_however_small_the_chunks() -> None:
    # Counted, not timed: what is kept back is put together once, when its line ends, and not with each chunk.
    lines = Lines()
    for count in range(1, 1000):
        assert list(lines.feed(b"abc")) == []
        assert lines._parts == [b"abc"] * count
    assert list(lines.feed(b"\n")) == [b"abc" * 999]
    assert lines._parts == [b""]
