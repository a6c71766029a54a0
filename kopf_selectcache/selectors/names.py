"""Checks the names and namespaces that users list. Knows no kinds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kopf_selectcache._errors import BadSelector
from kopf_selectcache.core.redact import shown, shown_by_type
from kopf_selectcache.core.selection.grammar import plain
from kopf_selectcache.core.selection.values import is_dns_label, is_object_name

MAX_COUNT = 10_000
"""The most names, and the most namespaces, of a Selector."""


def names_of(given: Collection[str]) -> tuple[str, ...]:
    """Return names of objects, in order, or raise BadSelector."""
    return _checked("names", given, is_name, "a name of an object")


def namespaces_of(given: Collection[str]) -> tuple[str, ...]:
    """Return names of namespaces, in order, or raise BadSelector."""
    return _checked(
        "namespaces", given, is_dns_label, "a name of a namespace: lower-case letters, digits and '-'"
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


def _checked(
    argument: str, given: Collection[str], valid: Callable[[str], bool], what: str
) -> tuple[str, ...]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Collection):
        raise BadSelector(
            f"{argument}= is {shown_by_type(given)}, not a list", remedy=f"Write {argument}=['...']"
        )
    if not given:
        raise BadSelector(
            f"{argument}=[] is empty, and would select nothing", remedy=f"Leave {argument}= out to select all"
        )
    if len(given) > MAX_COUNT:
        raise BadSelector(
            f"{argument}= has {len(given):,} items, more than {MAX_COUNT:,}",
            remedy="Select by a label that the objects have in common",
        )
    for value in given:
        if not isinstance(value, str) or not valid(value):
            raise BadSelector(
                f"{argument}= has {shown(value)}, which cannot be {what}",
                remedy="Correct or remove it; to select all, leave the argument out",
            )
    return tuple(sorted({plain(value) for value in given}))
