"""Parses label and field selectors into requirements, and prints them, exactly as Kubernetes does. Checks
answers against the selector that was sent.

The grammar and its corner cases are those of apimachinery's `labels.Parse` and `fields.ParseSelector`;
tests/oracle compares both. The parsers are linear scanners: they read each character a bounded number of
times.

One deviation: a NUL in the text is refused. Go ends a label selector at a NUL, and drops the rest silently.

`Sent` checks the answer to a request against its selector, which a server or a proxy may ignore. Our table of
fields (`core.selection.kinds`) reads field labels, and may be wrong where the server is right. So a mismatch
of a field alone proves nothing: the caller confirms it with the server, or drops the term (`without`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn

from kopf_selectcache.core.errors import BadText, Garbled

from .field_values import Extractor, Paths
from .kinds import Kind
from .values import ABSENT, MAX_INT, PRESENT, LabelValues, is_label_key, is_label_value, parse_int

LabelOperator = Literal["=", "==", "!=", "in", "notin", ">", "<", "exists", "!"]

_SPACE = " \t\r\n"


_SYMBOLS = "=!(),><"


_OPERATORS: dict[str, LabelOperator] = {op: op for op in ("=", "==", "!=", "in", "notin", ">", "<")}

KEY_RULE = (
    "up to 63 characters of A-Za-z0-9-_. with alphanumeric ends, after an optional DNS subdomain and a slash"
)


VALUE_RULE = "empty, or up to 63 characters of A-Za-z0-9-_. with alphanumeric ends"


class Presence(Enum):
    """Stands for a value in a dict. A field is absent if its value is the empty string."""

    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One condition on a label key. `values` are distinct and sorted; only `in` and `notin` have several."""

    key: str
    operator: LabelOperator
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator == "exists":
            return self.key
        if self.operator == "!":
            return f"!{self.key}"
        if self.operator in ("in", "notin"):
            return f"{self.key} {self.operator} ({','.join(self.values)})"
        return f"{self.key}{self.operator}{self.values[0]}"

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if an object with these labels satisfies the requirement. Invalid values are compared,
        too.
        """
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "!=" | "notin":
                return value not in self.values
            case ">" | "<":
                number = None if value is None else parse_int(value)
                limit = int(self.values[0])
                return number is not None and (number > limit if self.operator == ">" else number < limit)
            case _:
                return value in self.values

    def allowed(self) -> LabelValues:
        """Return the set of values of the key that satisfy the requirement."""
        match self.operator:
            case "exists":
                return PRESENT
            case "!":
                return ABSENT
            case "!=" | "notin":
                return ~LabelValues.only(self.values)
            case ">":
                return LabelValues.above(int(self.values[0]))
            case "<":
                return LabelValues.below(int(self.values[0]))
            case _:
                return LabelValues.only(self.values)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One condition on one field label: its value is equal, or not equal, to a string. An absent field counts
    as the empty string.
    """

    label: str
    value: str
    equal: bool = True

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        return f"{self.label}{'=' if self.equal else '!='}{escaped}"

    def matches(self, fields: Mapping[str, str]) -> bool:
        return (fields.get(self.label, "") == self.value) == self.equal


class _Token(NamedTuple):
    kind: Literal["word", "symbol", "end"]
    text: str
    column: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind == "symbol" and self.text in symbols


def plain(text: str) -> str:
    """Return the value of the text. `str()` of a member of a `(str, Enum)` returns the name of the member."""
    return str.__str__(text)


def _refuse_unsendable(text: str, of: str = "") -> None:
    for column, char in enumerate(text, 1):
        if char == "\0":
            raise BadText(f"{of}a selector can't contain a NUL character", text=text, column=column)
        if "\ud800" <= char <= "\udfff":
            raise BadText(f"{of}a lone surrogate can't be sent as UTF-8", text=text, column=column)


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a dict"  # It may be a whole object, given by mistake, with secret values.
    # Python refuses to print an integer with thousands of digits.
    return (
        "an integer that is too large"
        if isinstance(value, int) and abs(value) > MAX_INT
        else reprlib.repr(value)
    )


def _scan(text: str) -> Iterator[_Token]:
    """Split a label selector into words and symbols, which whitespace may separate. The last token has the
    kind "end".
    """
    at, end = 0, len(text)
    while at < end:
        start, char = at, text[at]
        if char in _SPACE:
            at += 1
        elif char in _SYMBOLS:
            at += 2 if text[at : at + 2] in ("==", "!=") else 1
            yield _Token("symbol", text[start:at], start + 1)
        else:
            while at < end and text[at] not in _SPACE and text[at] not in _SYMBOLS:
                at += 1
            yield _Token("word", text[start:at], start + 1)
    yield _Token("end", "", end + 1)


class _LabelParser:
    """Recursive descent parser with a lookahead of one token. `in` and `notin` are not reserved: they may be
    keys and values.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _scan(text)
        self.next = next(self.tokens)

    def take(self) -> _Token:
        """Return the lookahead and read the next token. No caller takes the end twice: each one stops or
        refuses there.
        """
        token = self.next
        if token.kind != "end":
            self.next = next(self.tokens)
        return token

    def refuse(self, token: _Token, reason: str) -> NoReturn:
        raise BadText(reason, text=self.text, column=token.column)

    def selector(self) -> Iterator[LabelRequirement]:
        if self.next.kind == "end":
            return
        while True:
            yield self.requirement()
            comma = self.take()
            if comma.kind == "end":
                return
            if not comma.is_symbol(","):
                self.refuse(comma, f"expected ',' or the end, found {comma}")

    def requirement(self) -> LabelRequirement:
        negated = self.next.is_symbol("!") and self.take()
        key = self.take()
        if key.kind != "word":
            self.refuse(
                key, f"expected a label key{' after !' if negated else ', or ! and a label key'}, found {key}"
            )
        if not is_label_key(key.text):
            self.refuse(key, f"{key} is not a label key: {KEY_RULE}")
        if negated:
            return LabelRequirement(key.text, "!")
        if self.next.kind == "end" or self.next.is_symbol(","):
            return LabelRequirement(key.text, "exists")
        token = self.take()
        operator = _OPERATORS.get(token.text)
        if operator is None:
            self.refuse(token, f"expected one of {' '.join(_OPERATORS)} after the key {key}, found {token}")
        values = list(self.listed() if operator in ("in", "notin") else self.single())
        for value in values:
            if operator in (">", "<") and parse_int(value.text) is None:
                self.refuse(value, f"expected an integer of 64 bits after {token}, found {value}")
            if not is_label_value(value.text):
                self.refuse(value, f"{value} is not a label value: {VALUE_RULE}")
        return LabelRequirement(key.text, operator, tuple(sorted({value.text for value in values})))

    def single(self) -> Iterator[_Token]:
        """Read the value of `=`, `==`, `!=`, `>` or `<`. It may be empty, as in `a=` and `a=,b`."""
        value = self.next
        if value.kind == "end" or value.is_symbol(","):
            yield _Token("word", "", value.column)
        elif value.kind == "word":
            yield self.take()
        else:
            self.refuse(value, f"expected a value, found {value}")

    def listed(self) -> Iterator[_Token]:
        """Read a list of values such as `(a,b)`. Values may be empty, as in `()`, `(,a)` and `(a,,b)`."""
        bracket = self.take()
        if not bracket.is_symbol("("):
            self.refuse(bracket, f"expected '(' before the values, found {bracket}")
        while True:
            value = self.next
            if value.kind == "word":
                yield self.take()
            else:
                yield _Token("word", "", value.column)
            separator = self.take()
            if separator.is_symbol(")"):
                return
            if not separator.is_symbol(","):
                self.refuse(separator, f"expected ',' or ')' after the value, found {separator}")


def parse_labels(text: str) -> tuple[LabelRequirement, ...]:
    """Parse a label selector. The requirements are sorted by key; those of one key are in the order of the
    text.
    """
    _refuse_unsendable(text)
    return tuple(sorted(_LabelParser(text).selector(), key=lambda requirement: requirement.key))


def labels_from_dict(
    labels: Mapping[str, str | Collection[str] | Presence],
) -> tuple[LabelRequirement, ...]:
    """Make requirements from a dict: a string is the value of the key (`=`), a list has the possible values
    (`in`), and a Presence requires any value or none (`exists`, `!`).
    """
    requirements = []
    for key, given in labels.items():
        if not isinstance(key, str) or not is_label_key(key):
            raise BadText(f"{_shown(key)} is not a label key: {KEY_RULE}", text=_shown(key), column=1)
        if isinstance(given, Presence):
            presence: LabelOperator = "exists" if given is Presence.PRESENT else "!"
            requirements.append(LabelRequirement(plain(key), presence))
            continue
        values = [given] if isinstance(given, str) else given
        if not isinstance(values, Collection) or isinstance(values, (bytes, Mapping)) or not values:
            raise BadText(
                f"{key} must be a string or a list of strings, got {_shown(given)}", text=key, column=1
            )
        for value in values:
            if not isinstance(value, str) or not is_label_value(value):
                raise BadText(
                    f"{key}: {_shown(value)} is not a label value: {VALUE_RULE}", text=key, column=1
                )
        operator: LabelOperator = "=" if isinstance(given, str) else "in"
        requirements.append(
            LabelRequirement(plain(key), operator, tuple(sorted({plain(value) for value in values})))
        )
    return tuple(sorted(requirements, key=lambda requirement: requirement.key))


def parse_fields(text: str) -> tuple[FieldTerm, ...]:
    """Parse a field selector. The terms are sorted by their text. A space is a part of the label or value
    next to it.
    """
    _refuse_unsendable(text)
    terms = [_parse_term(text, start, part) for part, start in sorted(_split_terms(text)) if part]
    return tuple(term for term in terms if term.label or term.value)  # Go drops `=` and `!=`.


def _split_terms(text: str) -> Iterator[tuple[str, int]]:
    start, escaped = 0, False
    for at, char in enumerate(text):
        if char == "," and not escaped:
            yield text[start:at], start
            start = at + 1
        escaped = char == "\\" and not escaped
    yield text[start:], start


def _parse_term(text: str, start: int, part: str) -> FieldTerm:
    label, equals, value = part.partition("=")
    if not equals:
        raise BadText(
            f"expected a field label, then = or !=, then a value, found {part!r}", text=text, column=start + 1
        )
    equal = not label.endswith("!")
    if not equal:
        label = label[:-1]
    elif value.startswith("="):
        equals, value = "==", value[1:]
    return FieldTerm(
        label, _unescape(text, start + len(label) + len(equals) + (not equal), value), equal=equal
    )


def _unescape(text: str, start: int, value: str) -> str:
    plain, escaped = [], False
    for column, char in enumerate(value, start + 1):
        if escaped and char not in "\\,=":
            raise BadText(f"expected \\, or \\= or \\\\, found \\{char}", text=text, column=column - 1)
        if char == "=" and not escaped:
            raise BadText(
                "expected \\= for an equals sign inside a value, found '='", text=text, column=column
            )
        escaped = char == "\\" and not escaped
        if not escaped:
            plain.append(char)
    if escaped:
        raise BadText("expected a character after the last backslash", text=text, column=start + len(value))
    return "".join(plain)


def fields_from_dict(fields: Mapping[str, str | bool | int | Presence]) -> tuple[FieldTerm, ...]:
    """Make terms from a dict: each field is equal to the value. True, False and integers are written as the
    server writes them. A Presence compares with the empty string (`!=`, `=`), as which the server has a field
    that is absent.
    """
    terms = []
    for label, given in fields.items():
        if not isinstance(label, str) or not label or any(char in label for char in ",=!\\"):
            raise BadText(
                f"{_shown(label)} is not a field label: a path such as 'spec.nodeName'",
                text=_shown(label),
                column=1,
            )
        _refuse_unsendable(label)
        if isinstance(given, Presence):
            terms.append(FieldTerm(plain(label), "", equal=given is Presence.ABSENT))
            continue
        if not isinstance(given, (str, bool, int)) or (isinstance(given, int) and abs(given) > MAX_INT):
            raise BadText(
                f"{label} must be a string, an integer of 64 bits or a bool, got {_shown(given)}",
                text=label,
                column=1,
            )
        value = (
            str(given).lower()
            if isinstance(given, bool)
            else plain(given)
            if isinstance(given, str)
            else str(given)
        )
        _refuse_unsendable(value, of=f"{label}: ")
        terms.append(FieldTerm(plain(label), value))
    return tuple(sorted(terms, key=str))


_NOTHING: Mapping[str, str] = MappingProxyType({})


class Unselected(Garbled):
    """The server sent an object that the selector of the request does not select. The text names the object
    and the requirement, and no value except a label's.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        uid: str,
        version: str,
        requirement: LabelRequirement | FieldTerm,
        labels: Mapping[str, str],
    ) -> None:
        self.namespace, self.name, self.uid, self.version = namespace, name, uid, version
        self.term = requirement if isinstance(requirement, FieldTerm) else None
        """The failed term; None if a label failed, which needs no confirmation."""
        shown = f"{namespace[:63]}/{name[:253]}" if namespace else name[:253]
        why = ""
        if isinstance(requirement, LabelRequirement):
            value = labels.get(requirement.key)
            why = (
                f": it has no label {requirement.key}"
                if value is None
                else f": its label {requirement.key} is {value[:63]!r}"
            )
        super().__init__(f"the object {shown!r} came, which {requirement} does not select{why}")


@dataclass(frozen=True, slots=True)
class Sent:
    """The label requirements that were sent, and the field terms whose values our table can read.

    >>> from kopf_selectcache.core.selection.kinds import find
    >>> sent = Sent.of(find('pods'), (LabelRequirement('app', '=', ('web',)),), (FieldTerm('spec.nodeName', 'n1'), FieldTerm('spec.unknown', 'a')))
    >>> str(sent.failing_label({'app': 'db'})), sent.failing_label({'app': 'web'})
    ('app=web', None)
    >>> str(sent.failing_term({'spec': {'nodeName': 'n2'}})), sent.failing_term({'spec': {'nodeName': 'n1'}})
    ('spec.nodeName=n1', None)
    >>> sent.without('spec.nodeName').failing_term({'spec': {'nodeName': 'n2'}})
    """  # A line of an example is not broken.  # noqa: E501

    requirements: tuple[LabelRequirement, ...] = ()
    terms: tuple[tuple[FieldTerm, Extractor], ...] = ()

    @classmethod
    def of(cls, kind: Kind, requirements: Iterable[LabelRequirement], terms: Iterable[FieldTerm]) -> Sent:
        return cls(
            tuple(requirements),
            tuple((term, kind.fields[term.label].value) for term in terms if term.label in kind.fields),
        )

    def failing_label(self, labels: Mapping[str, str]) -> LabelRequirement | None:
        """Return a requirement that these labels do not satisfy; None if they satisfy all."""
        for each in self.requirements:
            if not each.matches(labels):
                return each
        return None

    def failing_term(self, obj: Mapping[str, Any], lost: Mapping[str, str] = _NOTHING) -> FieldTerm | None:
        """Return a term that the object does not satisfy. `lost` has the values of fields that a projection
        removed.
        """
        for term, value in self.terms:
            found = lost[term.label] if lost and term.label in lost else value(obj)
            if (found == term.value) is not term.equal:
                return term
        return None

    def failing_key(self, namespace: str, name: str) -> FieldTerm | None:
        """Return a term that an object with this key does not satisfy. Terms of other fields are not
        compared.
        """
        known = {"metadata.namespace": namespace, "metadata.name": name}
        return next((term for term, _ in self.terms if term.label in known and not term.matches(known)), None)

    def without(self, label: str) -> Sent:
        """Return the same without the terms of this field label."""
        return Sent(
            self.requirements, tuple((term, value) for term, value in self.terms if term.label != label)
        )

    def restricted(self, has_field: Callable[[Paths], bool]) -> Sent:
        """Return the same with those fields alone that can be read off the received objects, by the paths of
        each.
        """
        terms = tuple(pair for pair in self.terms if has_field(pair[1].paths))
        return self if len(terms) == len(self.terms) else Sent(self.requirements, terms)


EVERYTHING = Sent()
"""No selector: all objects."""
