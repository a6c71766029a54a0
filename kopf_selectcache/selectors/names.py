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
    if len(given) > MAX_COUNT:
        raise too_many(f"{argument}=", len(given), "items", MAX_COUNT)
    for value in given:
        if not isinstance(value, str) or not valid(value):
            what = f"{argument}= has {shown(value)}, which can't be {what}"
            raise BadSelector(what, remedy="Correct or remove it")
    return tuple(sorted({plain(value) for value in given}))
