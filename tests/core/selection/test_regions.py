"""The search over boxes: its bound, its short cuts, and where its points lie. The answers themselves:
test_containment."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache.core.errors import TooManyBoxes
from kopf_selectcache.core.selection.grammar import parse_fields, parse_labels
from kopf_selectcache.core.selection.regions import (
    MAX_BOXES,
    Box,
    Dimension,
    _common,
    box_of,
    uncovered,
)
from tests.rows import each_row


def box(
    labels: str = "", fields: str = "", names: list[str] | None = None, namespaces: list[str] | None = None
) -> Box:
    return box_of(
        labels=parse_labels(labels), fields=parse_fields(fields), names=names, namespaces=namespaces
    )


def pigeons(holes: int, pigeons: int) -> tuple[Box, list[Box]]:
    """Every pigeon sits in a hole; a branch for each way in which two sit in the same one. With more pigeons
    than holes the branches cover everything, and to see that one has to try the holes in every order: n! of
    them."""
    places = ",".join(f"h{hole}" for hole in range(holes))
    request = box(",".join(f"p{pigeon} in ({places})" for pigeon in range(pigeons)))
    return request, [
        box(f"p{one}=h{hole},p{two}=h{hole}")
        for one in range(pigeons)
        for two in range(one)
        for hole in range(holes)
    ]


def test_the_smallest_union_of_its_family_that_is_beyond_the_bound() -> None:
    """Six holes take fewer than 10,000 boxes, seven take more. A bound ten times as high decides those
    too."""
    assert MAX_BOXES == 10_000
    assert uncovered(*pigeons(holes=6, pigeons=7)) is None
    with pytest.raises(TooManyBoxes, match=r"undecided after [\d,]+ boxes"):
        uncovered(*pigeons(holes=7, pigeons=8))
    assert uncovered(*pigeons(holes=7, pigeons=8), limit=10 * MAX_BOXES) is None


@each_row(
    ("request_", "branches", "expected"),
    [
        (box("app in (web,db)"), [box("app=web")], {Dimension("label", "app"): "db"}),
        (box(), [box("app=web")], {Dimension("label", "app"): None}),
        (box("app"), [box("app=web")], {Dimension("label", "app"): "other"}),
        (box("app=db"), [box("app=web")], {Dimension("label", "app"): "db"}),
        (box("x>5,x<9"), [box("x in (6,7,8)")], {Dimension("label", "x"): "06"}),
        (box("app in (a,b,c)"), [box("app=a"), box("app=b")], {Dimension("label", "app"): "c"}),
        (
            box("app", namespaces=["n"]),
            [box("app=a"), box("app!=a", "spec.nodeName=x")],
            {
                Dimension("label", "app"): "other",
                Dimension("namespace"): "n",
                Dimension("field", "spec.nodeName"): "other",
            },
        ),
        # It fails one requirement alone, and is inside in all other dimensions.
        (
            box(),
            [box("app=web", namespaces=["n"])],
            {Dimension("namespace"): "n", Dimension("label", "app"): None},
        ),
        (
            box("app"),
            [box("app=web", "spec.nodeName=x", ["a"], ["n"])],
            {
                Dimension("namespace"): "n",
                Dimension("name"): "a",
                Dimension("field", "spec.nodeName"): "x",
                Dimension("label", "app"): "other",
            },
        ),
        (box("app in (a,b,c)"), [box("app=a"), box("app=b"), box("app=c")], None),
        (box("a,!a"), [], None),
        (box("app=web"), [box("a,!a"), box("app")], None),
        (box("app"), [box("a,!a")], {Dimension("label", "app"): "other"}),
    ],
)
def test_the_point_that_is_left_is_the_clearest(request_: Box, branches: list[Box], expected: object) -> None:
    assert uncovered(request_, branches) == expected


def test_requirements_on_one_key_are_intersected_in_pairs() -> None:
    """One after the other, a thousand of them would copy what they list a thousand times."""

    class Listed:
        """A set that counts what its intersections copy."""

        copied = 0

        def __init__(self, values: frozenset[str]) -> None:
            self.values = values

        def __and__(self, other: Listed) -> Listed:
            Listed.copied += len(self.values) + len(other.values)
            return Listed(self.values | other.values)

    sets: Any = [Listed(frozenset({str(number)})) for number in range(1_000)]
    everything: Any = _common(sets)
    assert everything.values == {str(number) for number in range(1_000)}
    assert Listed.copied < 1_000 * 12


def test_requirements_on_one_key_are_the_one_that_says_the_same() -> None:
    assert box(",".join(f"a!=v{number}" for number in range(100))) == box(
        f"a notin ({','.join(f'v{number}' for number in range(100))})"
    )
    assert box("a in (x,y,z),a!=x,a in (x,y),a") == box("a in (y)")
    assert box("a>3,a<9,a!=5,a>4") == box("a>4,a<9,a!=5")
    assert box("", "a!=x,a!=y,a!=x") == box("", "a!=y,a!=x")
