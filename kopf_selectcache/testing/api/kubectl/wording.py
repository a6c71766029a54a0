"""The errors of selectors with the texts of Go's parser. core/selection/grammar.py decides whether a selector
is valid; this module only words it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kopf_selectcache.core.errors import BadText
from kopf_selectcache.core.selection.values import is_dns_subdomain
from kopf_selectcache.testing.api.metadata import KEY_NAME, LABEL_VALUE, SUBDOMAIN

_TOKEN = re.compile(r"==|!=|[=!(),><]|[^ \t\r\n=!(),><]+|$")
_KEY_OF_VALUE = re.compile(r"([^ \t\r\n=!(),><]+)\s*(?:[=!><]+|(?:in|notin)\s*\([^()]*)\s*$")
_INVALID = "unable to parse requirement: "
_FULL_KEY = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with"
    " an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g."
    " 'example.com/MyName')"
)


def of_labels(error: BadText) -> str:
    """Return the error of a label selector."""
    before, rest = error.text[: error.column - 1], error.text[error.column - 1 :]
    token = _TOKEN.match(rest.lstrip(" \t\r\n"))
    found = token[0] if token else ""
    for start, words in _LABELS.items():
        if start in error.reason:
            return words(before.strip(" \t\r\n"), found)
    return f"{_INVALID}{error}"


def of_fields(text: str, error: BadText) -> str:
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
