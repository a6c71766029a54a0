"""Sets of values: membership, the algebra, and emptiness, also where a set only looks endless."""

from __future__ import annotations

from kopf_selectcache.core.selection.values import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    MAX_INT,
    PRESENT,
    Domain,
    LabelValues,
    Strings,
    is_dns_label,
    is_dns_subdomain,
    is_label_key,
    is_label_value,
    is_object_name,
    parse_int,
    pick,
)
from tests.rows import each_row

SIX = LabelValues.above(5) & LabelValues.below(7)
ALL_SIXES = ["6".zfill(width) for width in range(1, 64)]


@each_row(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("+7", 7),
        ("-7", -7),
        ("0" * 62 + "6", 6),
        ("9223372036854775807", MAX_INT),
        ("-9223372036854775808", -MAX_INT - 1),
        ("0" * 30 + "9223372036854775807", MAX_INT),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("1" * 5000, None),
        ("", None),
        ("+", None),
        ("-", None),
        ("--1", None),
        ("1_000", None),
        (" 1", None),
        ("1 ", None),
        ("٣", None),
        ("0x1", None),
        ("1.0", None),
    ],
)
def test_integers_are_read_as_go_reads_them(text: str, number: int | None) -> None:
    assert parse_int(text) == number


@each_row(
    ("valid", "good", "bad"),
    [
        (
            is_label_value,
            ["", "a", "A-b_c.9", "x" * 63],
            ["-a", "a-", ".a", "a b", "x" * 64, "é", "a\n", "a/b"],
        ),
        (
            is_label_key,
            ["a", "A", "x/y", "a.b-c/N_a.m-e", "x" * 63, "/".join(["p" * 253, "n"])],
            [
                "",
                "/",
                "/n",
                "p/",
                "a/b/c",
                "x" * 64,
                "P/n",
                "p_/n",
                "p..q/n",
                "p" * 254 + "/n",
                "-a",
                "p./n",
                "a\n",
            ],
        ),
        (is_dns_label, ["a", "0", "a-b", "x" * 63], ["", "-a", "a-", "A", "a.b", "x" * 64, "a\n"]),
        (is_dns_subdomain, ["a", "a.b-c", "x" * 253], ["", ".", "a.", "a..b", "A", "x" * 254]),
        (is_object_name, ["a", "system:node", "A", "a b"], ["", ".", "..", "a/b", "50%"]),
    ],
)
def test_syntax_of_names(valid: object, good: list[str], bad: list[str]) -> None:
    assert callable(valid)
    assert [text for text in good if not valid(text)] == []
    assert [text for text in bad if valid(text)] == []


def test_an_integer_between_two_has_63_spellings() -> None:
    assert all(spelling in SIX for spelling in ALL_SIXES)
    assert "5" not in SIX
    assert "+6" not in SIX
    assert "6" * 64 not in SIX
    assert None not in SIX
    assert (SIX & ~LabelValues.only(ALL_SIXES)).empty
    assert not (SIX & ~LabelValues.only(ALL_SIXES[:-1])).empty
    assert (LabelValues.only(ALL_SIXES) & ~SIX).empty


def test_the_longest_spelling_counts_as_much_as_the_shortest() -> None:
    assert list(LabelValues.classes([SIX], frozenset(ALL_SIXES[:-1]))) == [
        None,
        "other",
        "0",
        ALL_SIXES[-1],
        "7",
    ]
    assert pick(SIX & ~LabelValues.only(ALL_SIXES[:-1])) == ALL_SIXES[-1]
    # As many values listed as the range has spellings, and yet one spelling, and a word, are in.
    with_word = ~(~SIX & ~LabelValues.only(["a"])) & ~LabelValues.only(ALL_SIXES[:-1])
    assert len(with_word.listed) == len(ALL_SIXES)
    assert not with_word.empty
    assert ALL_SIXES[-1] in with_word


def test_a_pick_is_a_mentioned_value_if_it_can_be() -> None:
    assert pick(~(~LabelValues.only(["db"]) & PRESENT)) == "db"
    assert pick(~Strings.only(ANYTHING, ["other"])) == "other-1"
    assert pick(LabelValues.only(["b", "a"])) == "a"


def test_comparisons_hold_beyond_the_range_of_labels() -> None:
    assert LabelValues.below(0).empty
    assert LabelValues.above(MAX_INT).empty
    assert (PRESENT & LabelValues.above(-1) & LabelValues.below(0)).empty
    assert str(MAX_INT) in LabelValues.above(MAX_INT - 1)
    assert str(MAX_INT + 1) not in LabelValues.above(0)
    assert str(MAX_INT + 1) in ~LabelValues.above(0)


def test_the_largest_integer_is_in_the_complement_of_the_integers_below_it() -> None:
    largest = ~LabelValues.below(MAX_INT) & LabelValues.above(0)
    assert largest.integers == ((MAX_INT, MAX_INT),)
    assert str(MAX_INT) in largest
    assert str(MAX_INT - 1) not in largest
    assert not largest.empty
    assert (~LabelValues.above(MAX_INT - 1)).integers == ((0, MAX_INT - 1),)


def test_classes_separate_values_that_the_rules_separate() -> None:
    assert list(LabelValues.classes([SIX, LabelValues.above(9)], frozenset(["6", "06", "other"]))) == [
        None,
        "other-1",
        "0",
        "006",
        "7",
        "10",
    ]
    assert list(LabelValues.classes([SIX], frozenset(ALL_SIXES))) == [None, "other", "0", "7"]
    assert list(Strings.classes([Strings.only(BOOLEAN, ["true"])], frozenset(["true"]))) == ["false"]
    assert list(Strings.classes([Strings.only(BOOLEAN.or_empty(), ["true"])], frozenset(["true"]))) == [
        "",
        "false",
    ]
    assert list(Strings.classes([Strings.only(ANYTHING, ["other"])], frozenset(["other", "other-1"]))) == [
        "other-2"
    ]


def test_a_domain_with_the_empty_string() -> None:
    assert Domain.of("x", "a").or_empty().finite == frozenset(["a", ""])
    assert INTEGER.or_empty().accepts("")
    assert INTEGER.or_empty().accepts("7")
    assert not INTEGER.or_empty().accepts("x")
