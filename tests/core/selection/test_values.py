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
    pick,
)

SIX = LabelValues.above(5) & LabelValues.below(7)
ALL_SIXES = ["6".zfill(width) for width in range(1, 64)]


def test_an_integer_between_two_has_63_spellings() -> None:
    assert all(spelling in SIX for spelling in ALL_SIXES)
    assert "5" not in SIX
    assert "+6" not in SIX
    assert "6" * 64 not in SIX
    assert None not in SIX
    assert (SIX & ~LabelValues.only(ALL_SIXES)).empty
    assert not (SIX & ~LabelValues.only(ALL_SIXES[:-1])).empty
    assert (LabelValues.only(ALL_SIXES) & ~SIX).empty


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
