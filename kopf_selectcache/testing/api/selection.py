"""The selection of a query (its labels, fields, namespace and shards), and the pages of lists. It decodes no
objects: it uses the values that the write has extracted.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

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

from . import body, shards, types
from .history import History, ObjectKey, Stored
from .kinds import Served
from .options import EXACT, ListOptions
from .shards import Shards
from .status import Problem, bad_request, expired, too_large
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


# ---- Pages of lists: of the present state or of a version, and their continuation.

_VERSION = "meta.k8s.io/v1"
_AS_IT_IS_NOW = -1  # The version of a token whose list's own version is forgotten: any negative one.
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list"
    " without the continue parameter, or use the continue token in this response to retrieve the remainder of"
    " the results. Continuing with the provided token results in an inconsistent list - objects that were"
    " created, modified, or deleted between the time the first chunk was returned and now may show up in the"
    " list."
)


class Page(NamedTuple):
    """A list, or a part of one."""

    items: list[Stored]
    version: int
    continuation: str = ""
    remaining: int | None = None


def page(
    history: History,
    served: Served,
    selection: Selection,
    options: ListOptions,
    *,
    seen: int | None = None,
) -> Page:
    """List objects, as of a replica that knows no version later than `seen`.

    Raise Expired (410) if the requested version is forgotten; Timeout (504) if it is in the future.
    """
    current = history.version if seen is None or options.is_consistent else min(seen, history.version)
    # A list of one name is about one object, if that is clear.
    name = selection.name if not options.token and (selection.namespace or not served.namespaced) else ""
    after = None
    if options.token:
        if options.version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        version, after = _read_token(options.token, served, selection)
        version = current if version < 0 else version
        exact = True
    else:
        version = options.number()
        # With a limit, a version alone means exactly that version, for compatibility; not if the list
        # is about one name.
        exact = options.match == EXACT or (bool(options.limit and version) and not options.match and not name)
    if version > current:
        raise too_large(version, current)
    if not exact:
        version = current
    try:
        there = history.at(served.table, version, namespace=selection.namespace, after=after)
    except Problem:
        if options.token and after is not None:
            raise expired(_TOO_OLD, continuation=_token(_AS_IT_IS_NOW, _path(selection, after))) from None
        raise expired("The resourceVersion for the provided list is too old.") from None
    if name:
        there = [stored for stored in there if stored.key[1] == name]
    # A list from memory (version 0) is not divided into pages: the server does not either.
    limit = 0 if options.version == "0" and not options.token else options.limit
    chosen: list[Stored] = []
    for at, stored in enumerate(there, 1):
        if selection(stored):
            chosen.append(stored)
            if limit and len(chosen) == limit and at < len(there):
                # The server does not check whether the remaining objects are selected, and counts those that
                # it has passed over.
                remaining = None if selection.is_narrow else len(there) - limit
                return Page(chosen, version, _token(version, f"/{_path(selection, stored.key)}"), remaining)
    return Page(chosen, version)


def _path(selection: Selection, key: ObjectKey) -> str:
    """Return the position after this key, within the list."""
    return f"{key[1]}\0" if selection.namespace or not key[0] else f"{key[0]}/{key[1]}\0"


def _token(version: int, start: str) -> str:
    text = json.dumps({"v": _VERSION, "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _read_token(token: str, served: Served, selection: Selection) -> tuple[int, ObjectKey]:
    try:
        read = body.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError) as error:
        raise _no_token(f"{error}") from None
    if why := types.misfit(read, types.TOKEN, "storage.continueToken"):
        raise _no_token(why)
    said = read or {}
    word, version, start = said.get("v") or "", said.get("rv") or 0, said.get("start") or ""
    if word != _VERSION:
        raise _no_token(f"server does not recognize this encoded version {word}")
    if version == 0:
        raise _no_token(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not start:
        raise _no_token(f"encoded start key empty (version {_VERSION})")
    path = start.removeprefix("/").removesuffix("\0")
    if selection.namespace or not served.namespaced:
        return version, (selection.namespace, path)
    namespace, _, name = path.partition("/")
    return version, (namespace, name)


def _no_token(why: str) -> Problem:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")
