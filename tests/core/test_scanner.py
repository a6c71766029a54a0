"""The scanner finds what the decoder finds, where both read; where the decoder gives up, the scanner still
finds the rest.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from contextlib import suppress
from re import _constants, _parser  # type: ignore[attr-defined]  # The syntax tree of a pattern has no public name.
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf_selectcache.core import json_text
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.json_text import Listed, Unscannable, identity, items, members, outline
from kopf_selectcache.core.protocol._decoding import Object
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Page
from tests.core.protocol.test_fastpath import WHOLE, damaged, listed
from tests.rows import each_row

MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
ITEMS = msgspec.json.Decoder(list[msgspec.Raw]).decode
OBJECT = msgspec.json.Decoder(Object).decode
DEEP = b"[" * 400_000 + b"]" * 400_000

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def read(how: Callable[[bytes], Any], data: bytes) -> Any:
    """Return what is read in a form that can be compared; None if it is refused."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, Unscannable):
        return how(data)
    return None


def plain(found: dict[str, msgspec.Raw]) -> dict[str, bytes]:
    return {key: bytes(value) for key, value in found.items()}


@pytest.mark.no_cover
@settings(max_examples=50)
@given(st.dictionaries(st.text(), values), st.sampled_from([None, 1]), st.booleans())
def test_members_are_those_that_the_decoder_finds(
    obj: dict[str, Any], indent: int | None, escaped: bool
) -> None:
    data = json.dumps(obj, indent=indent, ensure_ascii=escaped).encode("utf-8", "replace")
    found = members(data)
    assert {key: json.loads(value) for key, value in found.items()} == json.loads(data)
    assert found == plain(MEMBERS(data))


@pytest.mark.no_cover
@settings(max_examples=50)
@given(st.lists(values), st.sampled_from([None, 1]))
def test_items_are_those_that_the_decoder_finds(each: list[Any], indent: int | None) -> None:
    data = json.dumps(each, indent=indent).encode()
    assert list(items(data)) == [bytes(item) for item in ITEMS(data)]


@each_row("seed", range(10))
def test_of_damaged_objects_the_scanner_finds_the_same_as_the_decoder(seed: int) -> None:
    rng, both = random.Random(seed), 0
    for _ in range(400):
        data = damaged(rng.choice(WHOLE), rng)
        if (decoded := read(OBJECT, data)) is not None and decoded.metadata is not None:
            both += 1
            found = OBJECT(identity(outline(data, "metadata")))
            for one, other in (decoded, found), (decoded.metadata, found.metadata):
                for name in one.__struct_fields__:
                    mine, its = getattr(one, name), getattr(other, name)
                    if name != "metadata":
                        assert bytes(mine) == bytes(its) if isinstance(mine, msgspec.Raw) else mine == its, (
                            data
                        )
        if (decoded := read(MEMBERS, data)) is not None:
            assert members(data) == plain(decoded), data
    assert both > 20


@each_row("seed", range(10))
def test_of_damaged_lists_the_scanner_finds_the_same_as_the_decoder(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        data = damaged(listed(*WHOLE), rng)
        if (decoded := read(msgspec.json.Decoder(_ListOf).decode, data)) is not None:
            found = Listed(data)
            list(found.scan())
            assert [bytes(item) for item in decoded.items or ()] == list(found.items), data
            if (around := read(MEMBERS, data)) is not None:
                assert around.keys() - {"items"} == MEMBERS(found.envelope).keys() - {"items"}


class _ListOf(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


@each_row(
    "bad", [DEEP, b"1e999", b"9" * 5000, b'"\xff"', b'"\\q"', b'"\\ud800"', b'"\x01"', b"NaN", b'{"\xff":1}']
)
def test_whatever_is_in_an_object_its_identity_is_found(bad: bytes) -> None:
    metadata = b'{"annotations":%s,"name":"a","labels":{"b":"c"},"managedFields":%s,"uid":"u"}' % (bad, bad)
    data = b'{"spec":%s,"metadata":%s,"kind":"Pod","status":%s}' % (bad, metadata, bad)
    assert json.loads(identity(outline(data, "metadata"))) == {
        "kind": "Pod",
        "metadata": {"name": "a", "uid": "u", "labels": {"b": "c"}},
    }


def test_a_page_that_has_its_items_twice_once_with_an_escaped_key_is_refused() -> None:
    both = b'"\\u0069tems":[%s]' % item("a"), b'"items":[%s]' % item("b").replace(b"true", DEEP)
    for one, other in (both, both[::-1]):
        with pytest.raises(Garbled):
            Reader("v1", "Pod").page(PAGE[: PAGE.index(b'"items"')] + one + b"," + other + b"}")


@each_row(
    "data",
    [
        b"",
        b" ",
        b"[]",
        b"1",
        b'"a"',
        b"{",
        b"}",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1',
        b'{"a":1,}',
        b'{"a":1}}',
        b'{"a":1} x',
        b'{"a":[}]',
        b'{"a":[1}',
        b'{"a":"b}',
        b'{"a":["b]}',
        b'{"a":1 "b":2}',
        b"{a:1}",
        b'{"a":[[[[',
        b'{"a":{{}}',
        b'{"a":[{"b":1]}}',
        b'{"a":tru}',
        b'{"a":-}',
        b'{"a":[+1]}',
        b'{"a":[1e]}',
        b'{"a":["b"c]}',
        b'{"a":["b""c"]}',
        b'{"a":[1 2]}',
        b'{"a":[1,]}',
        b'{"a":[,1]}',
        b'{"a":[[],,1]}',
        b'{"a":[{"b":}]}',
        b'{"a":[{:1}]}',
        b'{"a":[{1:1}]}',
        b'{"a":[{}{}]}',
        b'{"a":[[[1]]"b"]}',
        b'{"a":[{[[1]]:1}]}',
        b'{"a":[x]}',
        b'{"a":[[[,1]]]}',
    ],
)
def test_a_body_that_is_no_object_is_refused(data: bytes) -> None:
    for scan in (
        members,
        lambda data: identity(outline(data, "metadata")),
        lambda data: list(Listed(data).scan()),
    ):
        with pytest.raises(Unscannable):
            scan(data)


def test_the_items_of_a_list_are_the_last_ones_wherever_they_stand() -> None:
    for rest in (b"", b',"metadata":{"items":[1]}'):
        found = Listed(b'{"items":[1,%s,2],"kind":"List","items":[{"a":[3]},4]%s}' % (DEEP, rest))
        ends = list(found.scan())
        assert ends == sorted(ends)
        assert list(found.items) == [b'{"a":[3]}', b"4"]
        assert found.envelope == b'{"kind":"List"%s}' % rest
    for nothing in (b'{"items":null}', b'{"items":[1],"items":null}', b'{"items":[]}'):
        found = Listed(nothing)
        list(found.scan())
        assert list(found.items) == []


# ---- Damaged pages: each object is there, or the page is refused.


NAMES = "abcdef"


def item(name: str) -> bytes:
    metadata = b'{"name":"%s","uid":"u%s","resourceVersion":"1","labels":{"app":"web"}}' % (
        name.encode(),
        name.encode(),
    )
    return b'{"metadata":%s,"spec":{"token":"of-%s","l":[{"a":"b"},{"a":[1,true]}]}}' % (
        metadata,
        name.encode(),
    )


PAGE = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[%s]}' % b",".join(
    map(item, NAMES)
)


def edited(data: bytes, edits: int, rng: random.Random) -> bytes:
    """Return the page after random edits of its items: each replaces, inserts or removes a byte."""
    edited = bytearray(data)
    for _ in range(edits):
        at = rng.randrange(data.index(b"items") + 8, len(edited) - 3)
        edited[at : at + rng.choice((0, 1, 1))] = bytes(
            rng.choices(b'"\\{}[],:x.', k=rng.choice((0, 1, 1, 1)))
        )
    return bytes(edited)


def test_two_damaged_quotes_do_not_give_an_object_the_content_of_the_next() -> None:
    data = PAGE.replace(b'"of-b"', b'.of-b"').replace(b'"name":"c"', b'"name.:"c"')
    assert len(data) == len(PAGE)
    with pytest.raises(Garbled):
        Reader("v1", "Pod").page(data)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 8))]
)
def test_of_a_damaged_page_no_object_is_hidden_and_none_has_the_content_of_another(seed: int) -> None:
    rng, read, unreadable = random.Random(seed), 0, 0
    for count in range(1000):
        data = edited(PAGE, 1 + count % 2, rng)
        with suppress(Garbled):
            page = Reader("v1", "Pod").page(data)
            assert isinstance(page, Page)
            assert len(page.records) == len(NAMES), data
            for record in page.records:
                content = json.dumps(record.decode()) if record.stored else ""
                assert record.name not in NAMES or not any(
                    f"of-{name}" in content for name in NAMES if name != record.name
                ), data
                unreadable += not content
            read += 1
    assert read > 20
    assert unreadable > 2


def possessive(tree: Any) -> list[Any]:
    """Return the patterns under possessive quantifiers that can backtrack, anywhere in the syntax tree."""
    found = []
    for name, value in tree:
        parts = value if isinstance(value, list | tuple) else [value]
        inner = [part for each in parts for part in (each if isinstance(each, list) else [each])]
        subtrees = [part for part in inner if isinstance(part, _parser.SubPattern)]
        if name is _constants.POSSESSIVE_REPEAT and can_backtrack(subtrees[0]):
            found.append(subtrees[0])
        found += [each for subtree in subtrees for each in possessive(subtree)]
    return found


def can_backtrack(tree: Any) -> bool:
    repeats = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
    return any(
        name is _constants.BRANCH
        or (name in repeats and len(value[2]) > 1)
        or (name is _constants.SUBPATTERN and can_backtrack(value[3]))
        for name, value in tree
    )


def test_no_pattern_needs_a_cpython_that_matches_possessive_quantifiers_of_groups() -> None:
    """CPython 3.11.0 to 3.11.4 match them wrongly (gh-106052). `make test-oldest` runs these tests there."""
    assert possessive(_parser.parse(r"(?:(?:a|bc)d)*+"))
    patterns = [value for value in vars(json_text).values() if isinstance(value, re.Pattern)]
    assert len(patterns) > 8
    for pattern in patterns:
        assert not possessive(_parser.parse(pattern.pattern, pattern.flags)), pattern
