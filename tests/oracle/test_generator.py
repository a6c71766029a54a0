"""The generated cases, as the stored ones have them. test_against_go.py shows that they reach all of Go's
code.
"""

import re
from collections.abc import Sequence

import pytest

from tests.oracle import words
from tests.oracle.generate import Case, Kind, cases
from tests.oracle.golang import Answer
from tests.oracle.regenerate import stored

Golden = list[tuple[Case, Answer]]


@pytest.fixture(scope="module")
def golden() -> Golden:
    return list(stored())


def test_the_same_seed_makes_the_same_cases_and_another_seed_others() -> None:
    assert list(cases(5, 300)) == list(cases(5, 300))
    assert list(cases(5, 300)) != list(cases(6, 300))


@pytest.mark.parametrize("kind", ["label", "field"])
def test_about_half_of_texts_and_sets_are_accepted(golden: Golden, kind: Kind) -> None:
    accepted = [answer["ok"] for case, answer in golden if case.kind == kind]
    matched = [match for case, answer in golden if case.kind == kind for match in answer["matches"]]
    assert 0.45 < sum(accepted) / len(accepted) < 0.6
    assert 0.3 < sum(matched) / len(matched) < 0.6


@pytest.mark.parametrize(
    ("kind", "vocabulary"),
    [
        ("label", words.KEYS),
        ("label", words.LONG_KEYS),
        ("label", words.BROKEN_KEYS),
        ("label", words.VALUES),
        ("label", words.LONG_VALUES),
        ("label", words.BROKEN_VALUES),
        ("label", words.INTEGERS),
        ("label", words.BROKEN_INTEGERS),
        ("label", words.SPACES),
        ("label", words.FALSE_SPACES),
        ("field", words.FIELDS),
        ("field", words.ODD_FIELDS),
        ("field", words.BROKEN_TERMS),
        ("field", words.FIELD_VALUES),
        ("field", words.ODD_FIELD_VALUES),
        ("field", words.BROKEN_FIELD_VALUES),
    ],
)
def test_every_word_occurs(golden: Golden, kind: Kind, vocabulary: Sequence[str]) -> None:
    texts = "\n".join(case.text for case, _ in golden if case.kind == kind)
    assert [word for word in vocabulary if word not in texts] == []


CORNERS: dict[tuple[Kind, bool], tuple[str, ...]] = {
    ("label", True): (
        r"^$",
        r"^\s+$",
        r"[\t\r\n]",
        r"\w=(,|$)",
        r"\w==(,|$)",
        r"\w!=(,|$)",
        r"in\s*\(\s*\)",
        r"notin\s*\(\s*\)",
        r"in\s*\(,\w",
        r"in\s*\([^(]*\w,\)",
        r"in\s*\(,\)",
        r"in\s*\(,,\)",
        r"in\s*\([^(]*\w,,\w",
        r"(^|,)in in \(",
        r"(^|,)notin notin",
        r"(^|,)in(,|$)",
        r"(^|,)!\s*(not)?in(,|$)",
        r"=\s*(not)?in(,|$)",
        r"\([^)]*\b(not)?in[,)]",
        r"[<>]\s*9223372036854775807",
        r"[<>]\s*0+[1-9]",
        r"\bk{63}\b",
        r"\bp{64}/",
        r"\bp{253}/",
        r"\bv{63}\b",
        r"\(([^)]*,)?(\w+),([^)]*,)?\2[,)]",
        r"^(\w+)=.*,\1=",
        "\0",
    ),
    ("label", False): (
        r"^,",
        r",$",
        r"\w,,\w",
        r"^!\w+=",
        r"^!\w+\s*in\b",
        r"!!",
        r"=!",
        r"!==",
        r"===",
        r"= =",
        r">=",
        r"\(\(",
        r"\)\)",
        r"in\s*\([^)]*$",
        r"^[^(]*\)",
        r"[<>]\s*9223372036854775808",
        r"[<>]\s*\+1",
        r"[<>]\s*-1",
        r"\bk{64}\b",
        r"\bp{254}/",
        r"\bv{64}\b",
        r"\bA\.b/c",
        r"\ba/b/c",
        r"[^\x00-\x7f]",
        "\0",
    ),
    ("field", True): (
        r"^$",
        r"^,",
        r",$",
        r"\w,,\w",
        r"^=",
        r"^!?==?$",
        r"\\,",
        r"\\=",
        r"\\\\(,|$)",
        r"= \w",
        r"^\w+ [!=]",
        r"[^\x00-\x7f].*=",
        r"=.*[^\x00-\x7f]",
        "\0",
    ),
    ("field", False): (
        r"^\s+$",
        r"^\w+$",
        r"[^\\]\\$",
        r"\\x",
        r"===",
        r"=\w+=",
        r"=\w+!=",
        r"[^\x00-\x7f]",
        "\0",
    ),
}


@pytest.mark.parametrize(
    ("kind", "accepted", "pattern"),
    [(kind, accepted, pattern) for (kind, accepted), found in CORNERS.items() for pattern in found],
)
def test_every_corner_of_the_grammars_occurs(
    golden: Golden, kind: Kind, pattern: str, *, accepted: bool
) -> None:
    corner = re.compile(pattern)
    found = (
        case
        for case, answer in golden
        if case.kind == kind and answer["ok"] is accepted and corner.search(case.text)
    )
    assert next(found, None) is not None


@pytest.mark.parametrize("kind", ["label", "field"])
@pytest.mark.parametrize("size", [1, 11, 12, 13, 20])
def test_selectors_of_every_size_occur(golden: Golden, kind: Kind, size: int) -> None:
    assert any(case.kind == kind and len(answer["requirements"]) == size for case, answer in golden)
