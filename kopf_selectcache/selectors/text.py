"""Selector text as users write it, parsed: LabelSelector and FieldSelector. Knows nothing of kinds, names or
namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from kopf_selectcache._errors import BadSelector, require
from kopf_selectcache._kopf import MetaFilterToken
from kopf_selectcache.core.errors import BadText
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.grammar import (
    FieldTerm,
    LabelRequirement,
    Presence,
    fields_from_dict,
    labels_from_dict,
    parse_fields,
    parse_labels,
)

_Parsed = TypeVar("_Parsed")

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
        given = "None" if value is None else "a function, which the API server cannot call"
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

    def __post_init__(self) -> None:
        given = self.requirements
        if not isinstance(given, tuple):
            require(None, BadSelector, "LabelSelector()", "requirements", given, _PARSED)

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
        return ",".join(map(str, self.requirements))

    def __repr__(self) -> str:
        return f"LabelSelector.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, LabelSelector) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


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
        """Return True if an object with these values of field labels is selected; a field that is not there
        is empty.
        """
        return all(term.matches(fields) for term in self.terms)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))

    def __repr__(self) -> str:
        return f"FieldSelector.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return set(self.terms) == set(other.terms) if isinstance(other, FieldSelector) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self.terms))
