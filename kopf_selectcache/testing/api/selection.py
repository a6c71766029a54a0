"""The selection of a query: its label selector, its field selector, its namespace, its shards. It does not
decode objects: it uses the values extracted by the write.
"""

from __future__ import annotations

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

from . import shards
from .history import Stored
from .kinds import Served
from .kubectl import wording
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
        raise bad_request(wording.of_labels(error)) from None
    text = query.get("fieldSelector", "")
    try:
        fields = parse_fields(text)
    except BadText as error:
        raise bad_request(wording.of_fields(text, error)) from None
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
