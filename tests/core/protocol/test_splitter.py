"""Lists that are split as they come: the same items as JSON has, wherever the chunks end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kopf_selectcache.core.errors import Garbled, TooLarge
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Page, Refusal
from kopf_selectcache.core.protocol.splitter import Splitter
from tests.rows import each_row

MOST = 10_000

TEXTS = st.text(st.sampled_from('ab"\\{}[],:/é日😀\n '), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
ITEMS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=6)
STYLES = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"separators": (",", ":"), "ensure_ascii": False},
        {"indent": 1},
        {"separators": (" ,\n", "\t: "), "ensure_ascii": False},
    ]
)


def split(data: bytes, ends: Iterable[int], *, piece: int = 1, most: int = MOST) -> tuple[list[bytes], bytes]:
    """Split a list that comes in chunks which end at these places; return its pieces and its envelope."""
    splitter, pieces, start = Splitter(most=most, piece=piece), list[bytes](), 0
    for end in (*sorted(ends), len(data)):
        chunk, start = data[start:end], max(start, end)
        pieces += splitter.feed(chunk)
    return pieces, splitter.envelope()


def items_in(pieces: list[bytes]) -> list[Any]:
    return [item for piece in pieces for item in json.loads(b"[" + piece + b"]")]


@given(
    ITEMS,
    st.lists(st.tuples(TEXTS, VALUES), max_size=3),
    st.integers(0, 3),
    STYLES,
    st.data(),
    st.sampled_from([1, 10, 100, MOST]),
)
def test_35_a_list_has_the_items_that_json_has_wherever_its_chunks_end(
    items: list[Any],
    others: list[tuple[str, Any]],
    at: int,
    style: dict[str, Any],
    data: st.DataObject,
    piece: int,
) -> None:
    envelope = dict(others)
    written = json.dumps(dict([*others[:at], ("items", items), *others[at:]]), **style).encode()
    ends = data.draw(st.lists(st.integers(0, len(written)), max_size=20))
    pieces, rest = split(written, ends, piece=piece)
    found = json.loads(rest)
    assert items_in(pieces) + found.pop("items") == items
    assert found == envelope


@settings(max_examples=50)
@given(ITEMS.filter(any), STYLES, st.sampled_from([1, 20]))
def test_35_a_list_that_comes_byte_by_byte_is_split_the_same(
    items: list[Any], style: dict[str, Any], piece: int
) -> None:
    written = json.dumps(
        {"metadata": {"resourceVersion": "1"}, "items": items, "kind": "List"}, **style
    ).encode()
    pieces, rest = split(written, range(len(written)), piece=piece)
    assert items_in(pieces) + json.loads(rest)["items"] == items


@given(ITEMS, st.binary(max_size=6), st.data())
@example([{"a": {"b": 1}}, {}], b",", None)
def test_35_bytes_that_are_no_list_are_refused_or_give_no_other_items(
    items: list[Any], noise: bytes, data: st.DataObject | None
) -> None:
    """Each piece and the envelope are given to a decoder: together they accept no more than it accepts of the
    whole."""
    written = json.dumps({"kind": "List", "items": items}).encode()
    start = data.draw(st.integers(0, len(written))) if data is not None else len(written) - 2
    stop = data.draw(st.integers(start, min(start + 3, len(written)))) if data is not None else start
    garbled = written[:start] + noise + written[stop:]
    try:
        pieces, rest = split(garbled, range(0, len(garbled), 3))
        found = json.loads(rest)
        taken = items_in(pieces) + (found["items"] or [])
    except (Garbled, ValueError, RecursionError, KeyError, TypeError):
        return
    whole = json.loads(garbled)
    assert taken == (whole["items"] or [])


def test_35_a_piece_ends_with_an_item_and_not_with_what_is_inside() -> None:
    splitter = Splitter(most=MOST, piece=1)
    assert list(splitter.feed(b'{"items":[{"a":{"b":{}}')) == []
    assert list(splitter.feed(b',"c":[[]]')) == []
    assert list(splitter.feed(b'},{"d":{')) == [b'{"a":{"b":{}},"c":[[]]}']
    assert list(splitter.feed(b"}}]}")) == [b'{"d":{}}']


# ---- What comes before and after the items.


def test_35_the_key_of_the_items_is_no_value_no_part_of_a_key_and_no_key_of_a_member() -> None:
    written = (
        b'{"kind":"items","a\\"items":[{"b":{}}],"metadata":{"items":[{"c":{}}]},"a\\\\":"items", "items" :'
        b' [{"d":{}}],"z":{"items":[{"e":{}}]}}'
    )
    pieces, rest = split(written, ())
    assert pieces == [b'{"d":{}}']
    assert json.loads(rest) == {**json.loads(written), "items": []}


def test_35_an_answer_without_items_is_its_envelope() -> None:
    for written in (
        b'{"kind":"Status","code":500}',
        b'{"items":[]}',
        b'{"items":null}',
        b"",
        b"[[1]]",
        b"<html>",
        b"]]}",
        b'{"a":[[{"items":[{}]}]]}',
    ):
        assert split(written, range(len(written))) == ([], written)


def test_35_a_list_with_two_members_items_is_refused() -> None:
    for second in (b'"items":[{}]', b'"items":null', rb'"it\u0065ms":[{"a":{}}]'):
        with pytest.raises(Garbled, match="two members `items`"):
            split(b'{"items":[{"a":{}}],' + second + b"}", ())


# ---- What is refused.


@each_row(
    ("items", "why"),
    [
        (b'{"a":{}} {"b":{}}]', "not separated by single commas"),
        (b'{"a":{}},]', "not separated by single commas"),
        (b'{"a":{}},5]', "an item of a list isn't an object .item 1"),
        (b"5]", "an item of a list isn't an object .item 0"),
        (b'{"a":{}}}', "an item of a list isn't an object .item 1"),
        (b'{"a":{}},{"b":', "a list ended before its items did .after 1 items"),
        (b'{"a":{}},', "a list ended before its items did"),
    ],
)
def test_35_items_that_are_no_list_of_objects_are_refused_with_their_position(items: bytes, why: str) -> None:
    written = b'{"items":[' + items
    with pytest.raises(Garbled, match=why):
        split(written, range(len(written)))


def test_35_more_commas_than_one_are_left_to_whoever_reads_the_piece() -> None:
    assert split(b'{"items":[{"a":{}},,{"b":{}}]}', (), piece=MOST)[0] == [b'{"a":{}},,{"b":{}}']
    assert split(b'{"items":[ ]}', ())[0] == []


@each_row(
    ("start", "more", "what"),
    [
        (b'{"items":[{"a":"', b"x", "item 0 of a list"),
        (b'{"items":[{"a":{}},{"a":[', b"[", "item 1 of a list"),
        (b'{"items":[{"a":{}}', b" ", "item 1 of a list"),
        (b'{"metadata":"', b"x", "an answer, without its items,"),
        (b'{"items":[{"a":{}}],"metadata":"', b"x", "an answer, without its items,"),
    ],
)
def test_35_what_has_no_end_is_refused_once_it_is_larger_than_an_object_may_be(
    start: bytes, more: bytes, what: str
) -> None:
    splitter = Splitter(most=MOST, piece=100)
    list(splitter.feed(start))
    for _ in range(MOST // 10 - 10):
        list(splitter.feed(more * 10))
    with pytest.raises(
        TooLarge, match=rf"^{what} has more than 10,000 bytes \(settings[.]selectcache[.]max_page_bytes\)$"
    ):
        list(splitter.feed(more * 101))


# ---- What it takes.


def test_35_the_buffer_has_no_more_than_an_object_a_piece_and_a_chunk() -> None:
    sizes = [10, 3_000, 10, 9_000, *[100] * 50, 9_900, 500]
    written = b'{"items":[' + b",".join(b'{"a":{"b":"' + b"x" * size + b'"}}' for size in sizes) + b"]}"
    for chunk, piece in ((1, 1_000), (100, 1_000), (700, 10), (4_000, 2_000)):
        splitter, pieces, most = Splitter(most=MOST, piece=piece), list[bytes](), 0
        for start in range(0, len(written), chunk):
            pieces += splitter.feed(written[start : start + chunk])
            most = max(most, len(splitter._buffer))
        assert [len(item["a"]["b"]) for item in items_in(pieces)] == sizes
        assert max(map(len, pieces)) <= max(*sizes, piece) + chunk + 20
        assert most <= max(*sizes, piece) + chunk + 20, (
            f"{most:,} bytes with chunks of {chunk} and pieces of {piece}"
        )


def test_35_depth_takes_no_stack_and_a_long_object_is_scanned_once() -> None:
    depth = 100_000
    written = b'{"items":[' + b'{"a":' * depth + b"1" + b"}" * depth + b"]}"
    splitter = Splitter(most=1_000_000, piece=100)
    assert [
        len(piece)
        for start in range(0, len(written), 1_000)
        for piece in splitter.feed(written[start : start + 1_000])
    ] == [6 * depth + 1]
    assert splitter.envelope() == b'{"items":[]}'


# ---- What a reader makes of the pieces.


def read(reader: Reader, head: bytes, items: bytes) -> list[str]:
    page = reader.page(head + items + reader.end_of(head))
    assert isinstance(page, Page)
    return [record.name for record in page.records]


def item(name: str, **others: str) -> bytes:
    return json.dumps(
        {**others, "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "9"}}
    ).encode()


def test_35_pieces_are_read_as_what_the_start_of_the_list_says_that_they_are() -> None:
    pods, widgets = Reader("v1", "Pod"), Reader("example.com/v1", "Widget")
    named = {"kind": "Widget", "apiVersion": "example.com/v1"}
    assert read(
        pods, b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[', item("a")
    ) == ["a"]
    assert read(pods, b'{"items":[', item("a") + b"," + item("b")) == ["a", "b"]
    assert read(widgets, b'{"apiVersion":"example.com/v1","items":[', item("a", **named)) == ["a"]
    assert read(widgets, b'{"kind":"WidgetList","items":[', item("a")) == ["a"]
    assert read(widgets, b'{"items":[', item("a", **named)) == ["a"]
    for head, of_head in (
        (b'{"kind":"Table","items":[', "a 'Table' came instead of a WidgetList"),
        (b'{"items":[', "of kind ''"),
    ):
        with pytest.raises(Garbled, match=of_head):
            read(widgets, head, item("a"))
    with pytest.raises(Garbled, match="a list is not what the API promises"):
        pods.end_of(b'{,"items":[')


def test_35_a_start_that_says_that_it_is_a_refusal_is_one() -> None:
    reader, head = Reader("v1", "Pod"), b'{"kind":"Status","code":500,"items":['
    assert reader.page(head + item("a") + reader.end_of(head)) == Refusal(500)
