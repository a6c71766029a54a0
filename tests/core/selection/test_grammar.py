"""Selector text: what is refused and where, in linear time. That it agrees with Go is the business of
tests/oracle."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from enum import Enum
from types import FrameType
from typing import Any

import pytest

from kopf_selectcache.core.errors import BadText
from kopf_selectcache.core.selection.grammar import (
    FieldTerm,
    LabelRequirement,
    Presence,
    fields_from_dict,
    labels_from_dict,
    parse_fields,
    parse_labels,
)
from tests.rows import each_row


def refused(parse: Callable[[str], object], text: str) -> BadText:
    with pytest.raises(BadText) as info:
        parse(text)
    assert info.value.text == text
    return info.value


@each_row(
    ("text", "column", "reason"),
    [
        ("=a", 1, "expected a label key, or ! and a label key, found '='"),
        ("a,", 3, "found the end"),
        ("a,,b", 3, "found ','"),
        ("!", 2, "expected a label key after !, found the end"),
        ("!a=b", 3, "expected ',' or the end, found '='"),
        ("-a", 1, "'-a' is not a label key"),
        ("a b", 3, "expected one of = == != in notin > < after the key 'a', found 'b'"),
        ("a !b", 3, "found '!'"),
        ("a in b", 6, "expected '(' before the values, found 'b'"),
        ("a in (b", 8, "expected ',' or ')' after the value, found the end"),
        ("a in (b c)", 9, "found 'c'"),
        ("a=b c", 5, "expected ',' or the end, found 'c'"),
        ("a=(", 3, "expected a value, found '('"),
        ("ab=c!", 5, "found '!'"),
        ("a=-b", 3, "'-b' is not a label value"),
        ("a in (b,-c)", 9, "'-c' is not a label value"),
        ("a > x", 5, "expected an integer of 64 bits after '>', found 'x'"),
        ("a<", 3, "expected an integer"),
        ("a>9223372036854775808", 3, "expected an integer"),
        ("a>-1", 3, "'-1' is not a label value"),
        ("a=b\0", 4, "NUL"),
        ("a=\ud800", 3, "lone surrogate"),
    ],
)
def test_a_bad_label_selector_is_refused_at_its_column(text: str, column: int, reason: str) -> None:
    problem = refused(parse_labels, text)
    assert problem.column == column
    assert reason in problem.reason
    assert f"column {column}" in str(problem)


@each_row(
    ("text", "column", "reason"),
    [
        ("a", 1, "expected a field label, then = or !=, then a value, found 'a'"),
        ("x=y, ", 5, "found ' '"),
        ("a=b=c", 4, r"expected \= for an equals sign"),
        ("a!==b", 4, r"expected \= for an equals sign"),
        (r"x=y,ab==c\x", 10, r"found \x"),
        ("a=b\\", 4, "after the last backslash"),
        ("a!=b\\", 5, "after the last backslash"),
        ("\0=b", 1, "NUL"),
    ],
)
def test_a_bad_field_selector_is_refused_at_its_column(text: str, column: int, reason: str) -> None:
    problem = refused(parse_fields, text)
    assert (problem.column, reason in problem.reason) == (column, True), problem


@each_row(
    ("given", "reason"),
    [
        ({"a b": "c"}, "'a b' is not a label key"),
        ({5: "c"}, "5 is not a label key"),
        ({"a": "b,c=d"}, "'b,c=d' is not a label value"),
        ({"a": 5}, "a must be a string or a list of strings, got 5"),
        ({"a": None}, "a must be a string"),
        ({"a": []}, "a must be a string"),
        ({"a": b"x"}, "a must be a string"),
        ({"a": {"b": "c"}}, "a must be a string"),
        ({"a": ["b", 5]}, "5 is not a label value"),
    ],
)
def test_a_bad_dict_of_labels_is_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadText, match=reason):
        labels_from_dict(given)


@each_row(
    ("given", "reason"),
    [
        ({"": "c"}, "'' is not a field label"),
        ({5: "c"}, "5 is not a field label"),
        ({"a,b": "c"}, "'a,b' is not a field label"),
        ({"a": 1.5}, "a must be a string, an integer of 64 bits or a bool, got 1.5"),
        ({"a": None}, "a must be"),
        ({"a": 10**5000}, "a must be"),
        ({"a": "\0"}, "NUL"),
        ({"\0": "a"}, "NUL"),
        ({"\0": Presence.PRESENT}, "NUL"),
    ],
)
def test_a_bad_dict_of_fields_is_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadText, match=reason):
        fields_from_dict(given)


def test_dicts_become_requirements() -> None:
    assert labels_from_dict({"b": ["y", "x", "y"], "a": "v", "c": ""}) == (
        LabelRequirement("a", "=", ("v",)),
        LabelRequirement("b", "in", ("x", "y")),
        LabelRequirement("c", "=", ("",)),
    )
    assert labels_from_dict({"b": Presence.ABSENT, "a": Presence.PRESENT}) == (
        LabelRequirement("a", "exists"),
        LabelRequirement("b", "!"),
    )
    assert fields_from_dict({"b": Presence.ABSENT, "a": Presence.PRESENT}) == (
        FieldTerm("a", "", equal=False),
        FieldTerm("b", ""),
    )
    assert fields_from_dict({"b": True, "a": 7, "c": "x,y=z\\"}) == (
        FieldTerm("a", "7"),
        FieldTerm("b", "true"),
        FieldTerm("c", "x,y=z\\"),
    )
    assert ",".join(map(str, fields_from_dict({"c": "x,y=z\\"}))) == r"c=x\,y\=z\\"
    assert parse_fields(r"c=x\,y\=z\\") == fields_from_dict({"c": "x,y=z\\"})


class Tier(str, Enum):  # What StrEnum prints is what it is; this prints its name.  # noqa: UP042
    GOLD = "gold"


def test_members_of_an_enum_are_the_strings_that_they_equal() -> None:
    assert [str(each) for each in labels_from_dict({"tier": Tier.GOLD, "other": [Tier.GOLD]})] == [
        "other in (gold)",
        "tier=gold",
    ]
    assert [str(each) for each in fields_from_dict({"tier": Tier.GOLD})] == ["tier=gold"]


SOUP = "ab-_./ \t\n=!,()<>\\'\"é\u2003\U0001f600\0in notin5"


def test_arbitrary_text_is_parsed_or_refused_but_never_crashes() -> None:
    source = random.Random(20_000)
    accepted = 0
    columns: list[tuple[int, int]] = []
    for _ in range(20_000):
        text = "".join(source.choices(SOUP, k=source.randrange(40)))
        for parse in (parse_labels, parse_fields):
            try:
                parse(text)
            except BadText as problem:
                columns.append((problem.column, len(text)))
            else:
                accepted += 1
    assert all(1 <= column <= length + 1 for column, length in columns)
    assert accepted > 1_000, "the soup is all refused, so little is tested"


class CountingText(str):
    """Text that counts the characters which are read from it, one by one or in slices."""

    __slots__ = ("read",)
    read: int

    def __getitem__(self, at: object) -> str:
        part = super().__getitem__(at)  # type: ignore[index]  # Whatever str takes.
        self.read = getattr(self, "read", 0) + len(part)
        return part


def steps(parse: Callable[[str], object], text: str) -> int:
    """Count the lines of Python that are run, and the characters that are copied, to parse the text."""
    counting = CountingText(text)
    counting.read = 0
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        parse(counting)
    except BadText:
        pass
    finally:
        sys.settrace(before)
    return lines + counting.read


@each_row(
    "pattern",
    [
        "a,",
        "!a,",
        "a=b,",
        "a in (b,c),",
        "a in (" + "b," * 10,
        "(",
        "a",
        "a.",
        "a/",
        "=",
        "! ",
        " ",
        "a=b",
        "a!=b,",
        "\\",
        "\\,",
        "x=\\=,",
        "a" * 63 + ",",
        "é",
        "a>5,",
        "a notin (,),",
        "a.b/c,",
        "a." * 30 + "b/c,",
        "==",
        "a=\\\\,",
    ],
)
@each_row("parse", [parse_labels, parse_fields])
def test_the_work_is_linear_in_the_length(parse: Callable[[str], object], pattern: str) -> None:
    """Doubling the text at most doubles the steps (and a little: sorting, set-up). A quadratic scan would
    quadruple them."""
    short, long = (steps(parse, (pattern * 4_000)[:size]) for size in (1_000, 2_000))
    assert long <= 2.2 * short + 200, f"{short} steps for 1,000 characters, {long} for 2,000"
    assert short <= 100 * 1_000
