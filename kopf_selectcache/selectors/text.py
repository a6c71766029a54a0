"""Selector text as users write it, parsed: LabelSelector and FieldSelector. Knows nothing of kinds, names or
namespaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from kopf_selectcache._errors import BadSelector
from kopf_selectcache.core.errors import BadText
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.grammar import (
    FieldTerm,
    LabelRequirement,
    fields_from_dict,
    labels_from_dict,
    parse_fields,
    parse_labels,
)
from kopf_selectcache.core.selection.values import MAX_INT, parse_int

_Parsed = TypeVar("_Parsed")


_SLIPS = (
    ("&&", ","),
    ("&", ","),
    (";", ","),
    (" and ", ","),
    (" AND ", ","),
    (" not in ", " notin "),
    (" NOT IN ", " notin "),
    (" NOTIN ", " notin "),
    (" IN ", " in "),
    ("[", "("),
    ("]", ")"),
    ('"', ""),
    ("'", ""),
    ("===", "="),
    (": ", "="),
    (":", "="),
)
"""What other languages write, and what it is here. None of it but the words can stand in a label selector at
all."""

_OR = re.compile(r"\s*\|\|\s*|\s+or\s+", re.IGNORECASE)
_FIELD_IN = re.compile(r"\s*([^\s=!,]+)\s+in\s*\(([^()]*)\)\s*", re.IGNORECASE)
_NEGATED = re.compile(r"!\s*([^\s=!,]+)\s*={1,2}")

_MOST_WRITTEN = 20
"""So many alternatives are written out at most."""
_LONGEST_MENDED = 1_000
"""Nobody compares longer texts by eye."""


def _parsed(sort: str, text: str, example: str, parse: Callable[[str], _Parsed]) -> _Parsed:
    """Run a parser of the core, and tell users of what it refuses in the words of a declaration error."""
    try:
        return parse(text)
    except BadText as problem:
        start, end = max(problem.column - 31, 0), problem.column + 30
        excerpt = f"{'…' if start else ''}{problem.text[start:end]}{'…' if end < len(problem.text) else ''}"
        mended = _mended(text, problem, parse)
        raise BadSelector(
            f"{sort} selector {excerpt!r}, column {problem.column}: {clipped(problem.reason, 300)}",
            remedy=(
                _unlike(sort, text, parse) or f"Write it like {example}"
                if mended is None
                else f"Write {mended!r}"
            ),
            text=problem.text,
            column=problem.column,
        ) from None


def _unlike(sort: str, text: str, parse: Callable[[str], Any]) -> str | None:
    """Say what selectors do not have, if that is what the text wants."""
    text = text[:_LONGEST_MENDED]
    if len(parts := _OR.split(text)) > 1:
        return (
            _either(sort, parts, parse)
            or "Requirements cannot be alternatives; the values of one label can: 'app in (web,db)'"
        )
    if sort == "field":
        found = _FIELD_IN.fullmatch(text)
        written = (
            _either(sort, [f"{found[1]}={value.strip()}" for value in found[2].split(",")], parse)
            if found
            else None
        )
        return (
            written or "Fields know only = and !=, with one value: 'metadata.name=web-1,status.phase!=Failed'"
        )
    if "*" in text or "~" in text or " like " in text.lower():
        return (
            "There are no wildcards or patterns: name the values, 'app in (web-1,web-2)', or give the objects"
            " a label that they share"
        )
    return None


def _either(sort: str, parts: Sequence[str], parse: Callable[[str], Any]) -> str | None:
    """Say how to write alternatives, if each is a selector: as the values of one label, or as a list."""
    if not 1 < len(parts) <= _MOST_WRITTEN:
        return None
    try:
        parsed = [parse(part) for part in parts]
    except BadText:
        return None
    if (
        sort == "label"
        and all(len(each) == 1 and each[0].operator in ("=", "==", "in") for each in parsed)
        and len({each[0].key for each in parsed}) == 1
    ):
        text = f"{parsed[0][0].key} in ({','.join(value for each in parsed for value in each[0].values)})"
        return f"Write {text!r}"
    selectors = [repr(part) if sort == "label" else f"Selector(field={part!r})" for part in parts]
    return (
        f"Alternatives are a list, in a declaration: [{', '.join(selectors)}]; a read asks for one of them at"
        " a time"
    )


def _mended(text: str, problem: BadText, parse: Callable[[str], object]) -> str | None:
    """Return what was probably meant, if that is a selector."""
    if len(text) > _LONGEST_MENDED:
        return None
    mended = text
    for slip, right in _SLIPS:
        mended = mended.replace(slip, right)
    mended = _NEGATED.sub(r"\1!=", mended)
    mended = ",".join(filter(None, map(str.strip, mended.split(","))))
    for tried in (_bounded(mended), _listed(text, problem), mended, _apart(text, problem, parse)):
        with suppress(BadText):
            if tried is not None and tried != text and parse(tried):
                return tried
    return None


def _bounded(text: str) -> str | None:
    """Write `x>=5` as `x>4`, wherever it is: Kubernetes has no `>=`."""
    if ">=" not in text and "<=" not in text:
        return None
    parts = []
    for part in text.split(","):
        for operator, by in ((">=", -1), ("<=", 1)):
            key, found, number = part.partition(operator)
            if found and (limit := parse_int(number.strip())) is not None:
                # Both may not be in one part.
                part = f"{key.strip()}{operator[0]}{limit + by}"  # noqa: PLW2901
        parts.append(part)
    return ",".join(parts)


def _listed(text: str, problem: BadText) -> str | None:
    """Put the parentheses around the one word of `app in web`, and `in` before those of `app=(web,db)`."""
    at = problem.column - 1
    if "expected '('" in problem.reason:
        word, *others = text[at:].split(",")
        while others and _is_word(others[0]):  # `app in web,db` has more values than requirements.
            word = f"{word},{others.pop(0)}"
        word = word.rstrip()
        return f"{text[:at]}({word}){text[at:].removeprefix(word)}" if word else None
    before = text[:at].rstrip()
    if text[at : at + 1] == "(" and before.endswith("="):
        negated = before.endswith("!=")
        return f"{before.rstrip('=!').rstrip()} {'notin' if negated else 'in'} {text[at:]}"
    return None


def _is_word(text: str) -> bool:
    return text.strip() != "" and text.strip().replace("-", "").replace(".", "").replace("_", "").isalnum()


def _apart(text: str, problem: BadText, parse: Callable[[str], object]) -> str | None:
    """Put commas between the requirements of `app=web tier=gold`, and write `not app` as `!app`."""
    for _ in range(20):
        at = problem.column - 1
        before = text[:at].rstrip()
        if before.endswith("not") and before[:-3].rstrip(" ")[-1:] in ("", ","):
            text = f"{before[:-3]}!{text[at:]}"
        elif problem.reason.startswith("expected ',' or the end"):
            text = f"{before},{text[at:]}"
        else:
            return None
        try:
            return text if parse(text) else None
        except BadText as other:
            problem = other
    return None


def _from_dict(sort: str, given: object, example: str, make: Callable[[], _Parsed]) -> _Parsed:
    """Make requirements of a dict; what is wrong with it names the key."""
    if not isinstance(given, Mapping):
        raise BadSelector(f"{sort} selector {shown(given)} is no dict", remedy=f"Write it like {example}")
    try:
        return make()
    except BadText as problem:
        raise BadSelector(
            f"{sort} selector: {clipped(problem.reason, 500)}",
            remedy=_for_value(sort, given) or f"Write it like {example}",
            text=problem.text,
            column=problem.column,
        ) from None


def _for_value(sort: str, given: Mapping[Any, object]) -> str | None:
    """Say what to write for the first value that is none."""
    if "matchLabels" in given or "matchExpressions" in given:
        return (
            "Write its labels alone, {'app': 'web'}, and its expressions as text: 'app in (web,db),!legacy'"
        )
    for key, value in given.items():
        if sort == "field" and isinstance(value, (list, tuple, set, frozenset)):
            one = f"Fields know only = and !=, with one value: {{{key!r}: '...'}}"
            return (
                _either(
                    sort, [str(FieldTerm(str(key), each)) for each in sorted(map(str, value))], parse_fields
                )
                or one
            )
        if sort == "field" or not isinstance(key, str):
            continue
        mark = (
            getattr(value, "name", None) if isinstance(value, Enum) else None
        )  # As in the filters of Kopf's handlers.
        if mark == "PRESENT":
            return f"Write {key!r} as text: it must be there"
        if value is None or mark == "ABSENT":
            return f"Write {'!' + key!r} as text: it must not be there"
        if isinstance(value, (bool, int)) and abs(value) <= MAX_INT:
            return f"Write the text {str(value).lower()!r}: labels have no other values"
    return None


def _want_text(name: str, given: object) -> None:
    if not isinstance(given, str):
        raise BadSelector(
            f"{name}.parse() was given {shown(given)}, no text",
            remedy=f"Write {name}.from_dict(...) for a dict",
        )


def _refuse_text(name: str, given: object) -> None:
    if not isinstance(given, tuple):
        raise BadSelector(f"{name}() was given {shown(given)}", remedy=f"Write {name}.parse('...')")


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
        _refuse_text("LabelSelector", self.requirements)

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Read the text as Kubernetes does, or raise BadSelector. The empty text selects everything."""
        _want_text("LabelSelector", text)
        return cls(_parsed("label", text, "'app=web,tier in (gold,silver),!legacy'", parse_labels))

    @classmethod
    def from_dict(cls, labels: Mapping[str, str | Collection[str]]) -> LabelSelector:
        """Require each label of a dict: the value if it is a string, one of them if it is a list."""
        return cls(
            _from_dict(
                "label",
                labels,
                "{'app': 'web', 'tier': ['gold', 'silver']}",
                lambda: labels_from_dict(labels),
            )
        )

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
        _refuse_text("FieldSelector", self.terms)

    @classmethod
    def parse(cls, text: str) -> FieldSelector:
        """Read the text as Kubernetes does, or raise BadSelector. The empty text selects everything."""
        _want_text("FieldSelector", text)
        return cls(_parsed("field", text, "'metadata.name=web-1,status.phase!=Failed'", parse_fields))

    @classmethod
    def from_dict(cls, fields: Mapping[str, str | bool | int]) -> FieldSelector:
        """Require each field of a dict to have the value; whatever is in a value stays in it."""
        return cls(
            _from_dict("field", fields, "{'spec.nodeName': 'node01'}", lambda: fields_from_dict(fields))
        )

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these values of field labels is selected; a field that is not there is
        empty.
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
