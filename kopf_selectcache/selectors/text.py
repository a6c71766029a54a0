"""The parts of a selector as users write them, parsed and checked, and EVERYTHING. Knows no kinds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

from kopf_selectcache._errors import BadSelector, require
from kopf_selectcache._kopf import MetaFilterToken
from kopf_selectcache.core.errors import BadText
from kopf_selectcache.core.redact import clipped, shown, shown_by_type
from kopf_selectcache.core.selection.grammar import (
    FieldTerm,
    LabelRequirement,
    Presence,
    fields_from_dict,
    labels_from_dict,
    parse_fields,
    parse_labels,
    plain,
)
from kopf_selectcache.core.selection.values import is_dns_label, is_object_name

_Parsed = TypeVar("_Parsed")

MAX_NAMES = 10_000
"""The most names, and the most namespaces, of a Selector."""

LabelDict: TypeAlias = Mapping[str, str | Collection[str] | MetaFilterToken]
"""Values by label: a text, a list of which one fits, `kopf.PRESENT` or `kopf.ABSENT`."""

FieldDict: TypeAlias = Mapping[str, str | bool | int | MetaFilterToken]
"""Values by field label; `kopf.PRESENT` means any but the empty one, `kopf.ABSENT` the empty one."""

_VALUES = (
    "Give a text, kopf.PRESENT or kopf.ABSENT\nReads and on.change compare other values: where={path: value}"
)

_PARSED = "a tuple, or text to parse(...)"


def _parsed(sort: str, text: str, example: str, parse: Callable[[str], _Parsed]) -> _Parsed:
    """Run a parser of the core; raise BadSelector, with an excerpt, for text that it refuses."""
    try:
        return parse(text)
    except BadText as problem:
        start, end = max(problem.column - 31, 0), problem.column + 30
        excerpt = f"{'…' if start else ''}{problem.text[start:end]}{'…' if end < len(problem.text) else ''}"
        raise BadSelector(
            f"{sort} selector {excerpt!r}, column {problem.column}: {clipped(problem.reason, 300)}",
            remedy=f"Write it like {example}",
            text=problem.text,
            column=problem.column,
        ) from None


def _from_dict(
    sort: str, given: Mapping[str, object], example: str, make: Callable[[Any], _Parsed]
) -> _Parsed:
    """Make requirements of a dict; raise BadSelector, which names the key, for a dict that is refused."""
    is_dict = isinstance(given, Mapping)
    require(is_dict, BadSelector, "from_dict()", f"the {sort} selector", given, f"a dict such as {example}")
    try:
        return make({key: _translated(sort, key, value) for key, value in given.items()})
    except BadText as problem:
        raise BadSelector(
            f"{sort} selector: {clipped(problem.reason, 500)}",
            remedy=f"Write it like {example}",
            text=problem.text,
            column=problem.column,
        ) from None


def _translated(sort: str, key: object, value: object) -> object:
    """Return a value as the core takes it; raise BadSelector for what only Kopf's own filters take."""
    if isinstance(value, MetaFilterToken):
        return Presence[value.name]
    if value is None or callable(value):
        given = "None" if value is None else "a function, which the API server can't call"
        raise BadSelector(f"{sort} selector: {clipped(repr(key), 300)} is {given}", remedy=_VALUES)
    return value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LabelSelector:
    """Requirements on labels, all of which must hold: what `kubectl get -l` takes.

    >>> web = LabelSelector.parse('app in (web, www), !legacy')
    >>> str(web)
    'app in (web,www),!legacy'
    >>> web.matches({'app': 'web'}), web.matches({'app': 'web', 'legacy': ''})
    (True, False)
    """

    requirements: tuple[LabelRequirement, ...]
    _text: str = field(init=False)

    def __post_init__(self) -> None:
        given = self.requirements
        if not isinstance(given, tuple):
            require(None, BadSelector, "LabelSelector()", "requirements", given, _PARSED)
        object.__setattr__(self, "_text", ",".join(map(str, given)))

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Read the text as Kubernetes does, or raise BadSelector. The empty text selects everything."""
        if not isinstance(text, str):
            require(None, BadSelector, "LabelSelector.parse()", "text", text, "a text")
        return cls(_parsed("label", text, "'app=web,tier in (gold,silver),!legacy'", parse_labels))

    @classmethod
    def from_dict(cls, labels: LabelDict) -> LabelSelector:
        """Require each label of a dict: the value if it is a string, one of them if it is a list. With
        `kopf.PRESENT` any value fits, and with `kopf.ABSENT` there must be none.
        """
        example = "{'app': 'web', 'tier': ['gold', 'silver'], 'team': kopf.PRESENT}"
        return cls(_from_dict("label", labels, example, labels_from_dict))

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"LabelSelector.parse({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, LabelSelector) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FieldSelector:
    r"""Requirements on fields, all of which must hold: what `kubectl get --field-selector` takes.

    >>> mine = FieldSelector.parse('spec.nodeName=node01,status.phase!=Succeeded')
    >>> mine.matches({'spec.nodeName': 'node01'})
    True
    >>> str(FieldSelector.from_dict({'reason': 'a,b'}))
    'reason=a\\,b'
    """

    terms: tuple[FieldTerm, ...]

    def __post_init__(self) -> None:
        given = self.terms
        if not isinstance(given, tuple):
            require(None, BadSelector, "FieldSelector()", "terms", given, _PARSED)

    @classmethod
    def parse(cls, text: str) -> FieldSelector:
        """Read the text as Kubernetes does, or raise BadSelector. The empty text selects everything."""
        if not isinstance(text, str):
            require(None, BadSelector, "FieldSelector.parse()", "text", text, "a text")
        return cls(_parsed("field", text, "'metadata.name=web-1,status.phase!=Failed'", parse_fields))

    @classmethod
    def from_dict(cls, fields: FieldDict) -> FieldSelector:
        """Require each field of a dict to have the value; no character of a value is special. The server has
        an absent field as an empty text, so `kopf.ABSENT` selects that, and `kopf.PRESENT` all other values.
        """
        return cls(_from_dict("field", fields, "{'spec.nodeName': 'node01'}", fields_from_dict))

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Return True if an object with these values is selected; an absent field is empty."""
        return all(term.matches(fields) for term in self.terms)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))

    def __repr__(self) -> str:
        return f"FieldSelector.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return set(self.terms) == set(other.terms) if isinstance(other, FieldSelector) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self.terms))


# ---- Names and namespaces.


def names_of(given: Collection[str]) -> tuple[str, ...]:
    """Return names of objects, in order, or raise BadSelector."""
    return _checked("names", given, is_name, "the name of an object")


def namespaces_of(given: Collection[str]) -> tuple[str, ...]:
    """Return names of namespaces, in order, or raise BadSelector."""
    return _checked(
        "namespaces", given, is_dns_label, "the name of a namespace: lower-case letters, digits and '-'"
    )


def is_name(text: str) -> bool:
    """Return True if an object of some kind can have this name. A pattern such as `web-*` is no name."""
    return (
        is_object_name(text)
        and len(text) <= 253
        and "*" not in text
        and text.isprintable()
        and not any("\ud800" <= char <= "\udfff" for char in text)
    )


def too_many(whose: str, count: int, what: str, most: int) -> BadSelector:
    """Return the error of a selector that no server takes, or that takes too long to compare."""
    remedy = "Select by a label that the objects have in common\nJoin values with `in`"
    return BadSelector(f"{whose} has {count:,} {what}, more than {most:,}", remedy=remedy)


def selects_by_nothing(argument: str, given: str) -> BadSelector:
    """Return the error of an argument that is empty."""
    is_text = argument in ("labels", "fields")
    remedy = "To select all, write '' or EVERYTHING" if is_text else "To select all, leave it out"
    return BadSelector(f"{argument}={given} is empty", remedy=remedy)


def _checked(
    argument: str, given: Collection[str], valid: Callable[[str], bool], what: str
) -> tuple[str, ...]:
    is_list = isinstance(given, Collection) and not isinstance(given, (str, bytes, Mapping))
    if not is_list:  # The text may be the value of a Secret.
        by_label = (
            "\nFor namespaces with a label: LabelSelector.parse('...')" if argument == "namespaces" else ""
        )
        remedy = f"Write {argument}=['...']{by_label}"
        raise BadSelector(f"{argument}= is {shown_by_type(given)}", remedy=remedy)
    if not given:
        raise selects_by_nothing(argument, "[]")
    if len(given) > MAX_NAMES:
        raise too_many(f"{argument}=", len(given), "items", MAX_NAMES)
    for value in given:
        if not isinstance(value, str) or not valid(value):
            what = f"{argument}= has {shown(value)}, which can't be {what}"
            raise BadSelector(what, remedy="Correct or remove it")
    return tuple(sorted({plain(value) for value in given}))


# ---- Special values of selectors and options: UNSET, EVERYTHING and ALL_OTHERS. Each has a type of its
# own, so that none is confused with an empty text, list or dict.


class _Named(Enum):
    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


class Unset(_Named):
    """The type of `UNSET`: nothing is assigned, so that the next level decides."""

    UNSET = "unset"


class Everything(_Named):
    """The type of `EVERYTHING`: no restriction, whatever the defaults. It selects all labels and fields."""

    EVERYTHING = "everything"

    @property
    def requirements(self) -> tuple[LabelRequirement, ...]:
        return ()

    @property
    def terms(self) -> tuple[FieldTerm, ...]:
        return ()


class AllOthers(_Named):
    """The type of `ALL_OTHERS`: every namespace without an entry of its own."""

    ALL_OTHERS = "all others"


UNSET: Final = Unset.UNSET
"""No value: the next level decides."""

EVERYTHING: Final = Everything.EVERYTHING
"""No restriction, in spite of the defaults: of a selector, of `namespaces` and of `keep`."""

ALL_OTHERS: Final = AllOthers.ALL_OTHERS
"""In `namespaces`: every namespace without an entry of its own."""
