"""Verdicts against brute force: over all values that selectors can tell apart, does the filter hold what is
asked for?

The judge is `matches`, which shares nothing with the regions but the parsed text: for every requirement it is
asked for every value of that dimension once, and the objects that a selector has are bits of one integer."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kopf_selectcache import AnyOf, FieldSelector, LabelSelector, Selector
from kopf_selectcache.core.selection.regions import overlap, uncovered
from kopf_selectcache.types import Answer

PAIRS, MORE = 600, 10_000
"""So many pairs are drawn of each universe in the default run, and in the soak."""


@dataclass(frozen=True)
class Axis:
    """One dimension: the values that its requirements can tell apart, and requirements, as texts or lists."""

    of: str
    values: Sequence[str | None]
    requirements: Sequence[str | tuple[str, ...]]

    def allows(self, requirement: str | tuple[str, ...], value: str | None) -> bool:
        if isinstance(requirement, tuple):
            return value in requirement
        if self.of.startswith("label "):
            return LabelSelector.parse(requirement).matches(
                {} if value is None else {self.of.removeprefix("label "): value}
            )
        assert value is not None
        return FieldSelector.parse(requirement).matches({self.of: value})


@dataclass
class Universe:
    """All objects with one value in each axis, as bits."""

    axes: Sequence[Axis]
    kind: str | None = None
    bits: dict[tuple[int, str | tuple[str, ...]], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        points = list(itertools.product(*(axis.values for axis in self.axes)))
        self.all = (1 << len(points)) - 1
        for at, axis in enumerate(self.axes):
            for requirement in axis.requirements:
                allowed = {value for value in axis.values if axis.allows(requirement, value)}
                self.bits[at, requirement] = sum(
                    1 << index for index, point in enumerate(points) if point[at] in allowed
                )

    def selector(self, chosen: Sequence[tuple[int, str | tuple[str, ...]]]) -> tuple[Selector, int]:
        """Make a selector of requirements of some axes, and the objects that it has."""
        texts: dict[str, list[str]] = {"label": [], "field": []}
        lists: dict[str, tuple[str, ...]] = {}
        has = self.all
        for at, requirement in chosen:
            axis = self.axes[at]
            has &= self.bits[at, requirement]
            if isinstance(requirement, tuple):
                argument = {"metadata.name": "names", "metadata.namespace": "namespaces"}[axis.of]
                if (
                    argument in lists
                ):  # A selector has but one list: the second is said by a field, if it can be.
                    lists[argument] = tuple(set(lists[argument]) & set(requirement)) or ("nothing",)
                    continue
                lists[argument] = requirement
            else:
                texts["label" if axis.of.startswith("label ") else "field"].append(requirement)
        return Selector(
            ",".join(texts["label"]) or None, fields=",".join(texts["field"]) or None, **lists
        ), has


def words(key: str, *values: str) -> Axis:
    """A label key with requirements on words."""
    sets = [
        ",".join(some) for size in range(1, len(values) + 1) for some in itertools.combinations(values, size)
    ]
    return Axis(
        f"label {key}",
        [*values, "other", None],
        [
            key,
            f"!{key}",
            *(f"{key} in ({some})" for some in sets),
            *(f"{key} notin ({some})" for some in sets),
        ],
    )


def integers(key: str) -> Axis:
    """A label key with requirements on integers: mentioned ones, one of each interval between, and leading
    zeros."""
    return Axis(
        f"label {key}",
        [
            None,
            "",
            "a",
            "other",
            "0",
            "00",
            "4",
            "04",
            "5",
            "05",
            "6",
            "06",
            "07",
            "7",
            "8",
            "08",
            "9",
            "09",
            "10",
            "010",
            "9223372036854775807",
            "9223372036854775808",
        ],
        [
            key,
            f"!{key}",
            f"{key}=",
            f"{key}=a",
            f"{key}!=a",
            f"{key}=5",
            f"{key}!=5",
            f"{key} in (5,07)",
            f"{key} notin (5,07,9)",
            f"{key}>4",
            f"{key}>5",
            f"{key}<7",
            f"{key}<9",
            f"{key}>8",
            f"{key}<5",
            f"{key}>9223372036854775806",
            f"{key}<0",
            f"{key} in (,a,6)",
            f"{key}!=9223372036854775808",
            f"{key}=9223372036854775808",
            f"{key} notin ()",
        ],
    )


NAMES = Axis(
    "metadata.name",
    ["n1", "n2", "n3", "other"],
    [
        ("n1",),
        ("n1", "n2"),
        ("n2", "n3"),
        "metadata.name=n1",
        "metadata.name!=n1",
        "metadata.name!=n2",
        "metadata.name=",
        "metadata.name!=",
    ],
)
NAMESPACES = Axis(
    "metadata.namespace",
    ["a", "b", "other", ""],
    [
        ("a",),
        ("a", "b"),
        ("b",),
        "metadata.namespace=a",
        "metadata.namespace!=a",
        "metadata.namespace!=b",
        "metadata.namespace=",
        "metadata.namespace!=",
    ],
)
POD_NAMESPACES = Axis("metadata.namespace", ["a", "b", "other"], NAMESPACES.requirements)
NODE = Axis(
    "spec.nodeName",
    ["", "x", "y", "other"],
    [
        "spec.nodeName=",
        "spec.nodeName!=",
        "spec.nodeName=x",
        "spec.nodeName!=x",
        "spec.nodeName==y",
        "spec.nodeName!=y",
    ],
)
HOST = Axis(
    "spec.hostNetwork",
    ["true", "false"],
    [
        "spec.hostNetwork=true",
        "spec.hostNetwork=false",
        "spec.hostNetwork!=true",
        "spec.hostNetwork!=false",
        "spec.hostNetwork=maybe",
        "spec.hostNetwork!=maybe",
        "spec.hostNetwork=",
    ],
)
FREE_HOST = Axis("spec.hostNetwork", ["true", "false", "maybe", "", "other"], HOST.requirements)

UNIVERSES = {
    "words": Universe([words("x", "a", "b", "c"), words("y", "a", "b", "c"), words("z", "a")]),
    "integers": Universe([integers("x"), integers("y")]),
    "all dimensions": Universe([words("x", "a", "b"), NAMES, NAMESPACES, NODE]),
    "free fields": Universe([words("x", "a"), NODE, FREE_HOST]),
    "pods": Universe([integers("x"), NAMES, POD_NAMESPACES, HOST], kind="pods"),
}


@dataclass
class Tally:
    """A comparison, and its result."""

    counts: Counter[str] = field(default_factory=Counter)

    def compare(
        self, universe: Universe, union: Sequence[tuple[Selector, int]], request: tuple[Selector, int]
    ) -> None:
        selectors = [selector for selector, _ in union]
        declared = AnyOf(selectors) if len(selectors) > 1 else selectors[0]
        asked, asks = request
        holds = 0
        for _, has in union:
            holds |= has
        verdict = declared.covers(asked, kind=universe.kind)
        expected = Answer.NO if asks & ~holds else Answer.YES
        assert verdict.answer is expected, f"{declared!r}.covers({asked!r}, kind={universe.kind!r})"
        assert declared.disjoint(asked, kind=universe.kind) == (not asks & holds), (
            f"{declared!r}.disjoint({asked!r})"
        )
        if verdict.answer is Answer.NO:
            witness = verdict.witness
            assert witness is not None
            point: dict[str, Any] = {
                "name": witness.name,
                "namespace": witness.namespace,
                "labels": witness.labels,
                "fields": witness.fields,
            }
            assert asked.matches(**point), f"{witness} is not in {asked!r}"
            assert not declared.matches(**point), f"{witness} is in {declared!r}"
            assert len(witness.fails) == len(selectors)
        self.counts[expected.value] += 1
        self.counts["yes, by no single branch"] += expected is Answer.YES and not any(
            not asks & ~has for _, has in union
        )

    def was_no_easy_one(self, pairs: int) -> None:
        """Sampled pairs are worth what they are only if both answers are common, also the YES that no single
        branch can give."""
        assert self.counts["yes"] >= 0.3 * pairs
        assert self.counts["no"] >= 0.15 * pairs
        assert self.counts["yes, by no single branch"] >= 0.05 * pairs


@pytest.mark.parametrize("values", ["ab", pytest.param("abc", marks=pytest.mark.soak)])
def test_exhaustively_on_two_keys(values: str) -> None:
    """All pairs of boxes over two keys, each with every set of these values that requirements can
    describe."""
    universe = Universe([words("x", *values), words("y", *values)])
    by_meaning: dict[int, tuple[Selector, int]] = {}
    one_key = [
        [
            [],
            *([(at, one)] for one in axis.requirements),
            *([(at, axis.requirements[0]), (at, one)] for one in axis.requirements),
        ]
        for at, axis in enumerate(universe.axes)
    ]
    for first, second in itertools.product(*one_key):
        selector, has = universe.selector([*first, *second])
        by_meaning.setdefault(has, (selector, has))
    # Of each key with three values: 7 finite sets, 8 cofinite with and 8 without absence, and absence alone;
    # or nothing at all.
    assert len(by_meaning) == (3 * 2 ** len(values)) ** 2 + 1
    boxes = [(selector, selector.box(None), has) for selector, has in by_meaning.values()]
    for (declared, holds_box, holds), (request, asks_box, asks) in itertools.product(boxes, repeat=2):
        witness = uncovered(asks_box, [holds_box])
        assert (witness is None) == (not asks & ~holds), f"{declared!r}.covers({request!r})"
        assert (overlap(holds_box, asks_box) is None) == (not asks & holds), (
            f"{declared!r}.disjoint({request!r})"
        )
        if witness is not None:
            labels = {dimension.key: value for dimension, value in witness.items() if value is not None}
            assert request.matches(name="any", labels=labels)
            assert not declared.matches(name="any", labels=labels)


@pytest.mark.parametrize("count", [PAIRS, pytest.param(MORE, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", UNIVERSES)
def test_sampled(name: str, count: int) -> None:
    """Unions of up to four, with requests drawn so that both answers are common and hard to come by."""
    universe, source, tally = UNIVERSES[name], random.Random(f"containment {name}"), Tally()
    everything = [
        (at, requirement) for at, axis in enumerate(universe.axes) for requirement in axis.requirements
    ]

    def some(least: int, most: int) -> list[tuple[int, str | tuple[str, ...]]]:
        chosen = source.sample(everything, source.randint(least, most))
        listed = [at for at, requirement in chosen if isinstance(requirement, tuple)]
        return chosen if len(set(listed)) == len(listed) else some(least, most)

    for _ in range(count):
        branches = [some(0, 3) for _ in range(source.randint(1, 4))]
        request = some(0, 3)
        match source.randrange(4):
            case 0:  # What one branch has, and more required: most often a YES.
                request = [
                    *source.choice(branches),
                    *(each for each in some(0, 2) if not isinstance(each[1], tuple)),
                ]
            case 1:  # The branches share the request between them, by a requirement and its opposite.
                at = source.randrange(len(universe.axes))
                pairs = [
                    each
                    for each in universe.axes[at].requirements
                    if isinstance(each, str) and universe.bits[at, each]
                ]
                one = source.choice(pairs)
                rest = [
                    each
                    for each in pairs
                    if (universe.bits[at, one] | universe.bits[at, each]) == universe.all
                ] or pairs
                branches[:2] = [[(at, one)], [(at, source.choice(rest))]]
            case 2:  # As that, but each half is short of something.
                branches = [
                    [*branch, *request][:4]
                    for branch in branches
                    if not any(isinstance(one, tuple) for _, one in branch)
                ] or branches
        tally.compare(
            universe, [universe.selector(branch) for branch in branches], universe.selector(request)
        )
    tally.was_no_easy_one(count)
