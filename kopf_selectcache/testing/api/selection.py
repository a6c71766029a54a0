"""The selection of a query: its label selector, its field selector, its namespace, its shards. It does not
decode objects: it uses the values extracted by the write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kopf_selectcache.core.errors import BadField, BadText
from kopf_selectcache.core.selection.grammar import (
    FieldTerm,
    LabelOperator,
    LabelRequirement,
    labels_from_dict,
    parse_fields,
    parse_labels,
)
from kopf_selectcache.core.selection.values import is_dns_subdomain
from kopf_selectcache.testing.api.metadata import KEY_NAME, LABEL_VALUE, SUBDOMAIN

from . import shards
from .history import Stored
from .kinds import Served
from .shards import Shards
from .status import Problem, bad_request
from .strategies import part


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a list, a watch or a deletion of many."""

    namespace: str = ""
    labels: tuple[LabelRequirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()
    shards: Shards | None = None

    def __call__(self, stored: Stored) -> bool:
        return (
            (not self.namespace or stored.key[0] == self.namespace)
            and all(requirement.matches(stored.labels) for requirement in self.labels)
            and all(term.matches(stored.fields) for term in self.fields)
            and (self.shards is None or self.shards(stored))
        )

    @property
    def is_narrow(self) -> bool:
        """True if there are selectors of labels or fields: then the number of remaining objects is not
        reported.
        """
        return bool(self.labels or self.fields)

    @property
    def name(self) -> str:
        """The one name that a field selector requires, or an empty text."""
        return next((term.value for term in self.fields if term.label == "metadata.name" and term.equal), "")


def read(served: Served, namespace: str, query: Mapping[str, str], *, sharded: bool = False) -> Selection:
    """Read the selectors of a query; raise BadRequest (400) for an invalid text, and for unknown field
    labels.

    Unless the server shards, it ignores the `shardSelector`, even an invalid one.
    """
    try:
        labels = parse_labels(query.get("labelSelector", ""))
    except BadText as error:
        raise bad_request(words_of_label_error(error)) from None
    text = query.get("fieldSelector", "")
    try:
        fields = parse_fields(text)
    except BadText as error:
        raise bad_request(words_of_field_error(text, error)) from None
    for term in fields:
        try:
            served.fields.field(term.label)
        except BadField:
            raise _unknown(served, term.label) from None
    asked = query.get("shardSelector", "") if sharded else ""
    return Selection(namespace, labels, fields, shards.read(asked) if asked else None)


def _unknown(served: Served, label: str) -> Problem:
    """Return the server's text: one of three, depending on the place of the kind's field labels
    in its code.
    """
    if served.kind == "Job":
        return bad_request(f'field label "{label}" not supported for Job')
    if served.custom or set(served.fields.fields) - {"metadata.name", "metadata.namespace"}:
        return bad_request(f"field label not supported: {label}")
    return bad_request(f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"')


def label_selector(selector: Mapping[str, Any]) -> Callable[[Mapping[str, str]], bool]:
    """Read a label selector of an object: `matchLabels` and `matchExpressions`."""
    requirements = list(labels_from_dict(part(selector, "matchLabels")))
    for one in _list(selector.get("matchExpressions")):
        if not isinstance(one, dict):
            continue
        operator = _OPERATORS.get(str(one.get("operator")))
        if operator is not None:
            values = sorted({str(value) for value in _list(one.get("values"))})
            requirements.append(LabelRequirement(str(one.get("key")), operator, tuple(values)))
    return lambda labels: all(requirement.matches(labels) for requirement in requirements)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


_OPERATORS: Mapping[str, LabelOperator] = MappingProxyType(
    {
        "In": "in",
        "NotIn": "notin",
        "Exists": "exists",
        "DoesNotExist": "!",
    }
)


# ---- Errors with the texts of Go's parser. core/selection/grammar.py decides whether a selector is valid.

_TOKEN = re.compile(r"==|!=|[=!(),><]|[^ \t\r\n=!(),><]+|$")
_KEY_OF_VALUE = re.compile(r"([^ \t\r\n=!(),><]+)\s*(?:[=!><]+|(?:in|notin)\s*\([^()]*)\s*$")
_INVALID = "unable to parse requirement: "
_FULL_KEY = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with"
    " an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g."
    " 'example.com/MyName')"
)


def words_of_label_error(error: BadText) -> str:
    """Return the error of a label selector."""
    before, rest = error.text[: error.column - 1], error.text[error.column - 1 :]
    token = _TOKEN.match(rest.lstrip(" \t\r\n"))
    found = token[0] if token else ""
    for start, words in _LABELS.items():
        if start in error.reason:
            return words(before.strip(" \t\r\n"), found)
    return f"{_INVALID}{error}"


def words_of_field_error(text: str, error: BadText) -> str:
    """Return the error of a field selector."""
    found = error.text[error.column - 1 :]
    if error.reason.startswith("expected a field label"):
        return f"invalid selector: '{text}'; can't understand '{found.partition(',')[0]}'"
    if error.reason.startswith("expected \\="):
        return "invalid field selector: unescaped character in value: 61"
    if error.reason.startswith("expected \\,"):
        return f"invalid field selector: invalid escape sequence: {found[:2]}"
    if error.reason.endswith("after the last backslash"):
        return "invalid field selector: invalid escape sequence: \\"
    return f"invalid field selector: {error}"


def _key_expected(before: str, found: str) -> str:
    wanted = "identifier after ','" if before.endswith(",") else "!, identifier, or 'end of string'"
    return f"found '{found}', expected: {wanted}"


# The signature of the other functions in the table below.
def _wrong_key(before: str, found: str) -> str:  # noqa: ARG001
    prefix, slash, name = found.partition("/")
    if "/" in name:
        why = _FULL_KEY
    elif slash and not prefix:
        why = "prefix part must be non-empty"
    elif slash and not is_dns_subdomain(prefix):
        why = "prefix part " + ("must be no more than 253 bytes" if len(prefix) > 253 else SUBDOMAIN)
    elif not (name if slash else prefix):
        why = f"name part must be non-empty; {KEY_NAME}"
    else:
        why = "name part must be no more than 63 bytes" if len(name if slash else prefix) > 63 else KEY_NAME
    return f'{_INVALID}<nil>: Invalid value: "{found}": {why}'


def _wrong_value(before: str, found: str) -> str:
    key = _KEY_OF_VALUE.search(before)
    why = "must be no more than 63 bytes" if len(found) > 63 else LABEL_VALUE
    return f'{_INVALID}values[0][{key[1] if key else ""}]: Invalid value: "{found}": {why}'


def _in_values(before: str) -> str:
    """Return the expectation of Go's parser between the brackets of `in ()`."""
    if before.endswith("("):
        return "',', ')' or identifier"
    return "',', or identifier" if before.endswith(",") else "',' or ')'"


# The texts of our parser, and Go's.
_LABELS: Mapping[str, Callable[[str, str], str]] = {
    "expected a label key after !": lambda _, found: f"{_INVALID}found '{found}', expected: identifier",
    "expected a label key": _key_expected,
    "is not a label key": _wrong_key,
    "after the key": lambda _, found: f"{_INVALID}found '{found}', expected: in, notin, =, ==, !=, gt, lt",
    "expected an integer": lambda _, found: (
        f"{_INVALID}values[0]: Invalid value: \"{found}\": for 'Gt', 'Lt' operators, the value must be an"
        " integer"
    ),
    "is not a label value": _wrong_value,
    "expected a value": lambda _, found: f"{_INVALID}found '{found}', expected: identifier",
    "expected '(' before the values": lambda _, found: f"{_INVALID}found '{found}' expected: '('",
    "expected ',' or ')'": lambda before, found: f"{_INVALID}found '{found}', expected: {_in_values(before)}",
    "expected ',' or the end": lambda _, found: f"found '{found}', expected: ',' or 'end of string'",
}
