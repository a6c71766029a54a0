"""Finds calls in an operator's source that need rights without a declaration, such as `cache.fetch('pods',
...)`. Parses the code, and does not run it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from kopf_selectcache.core.selection.kinds import KindKey

VERBS = {"fetch": "get", "fetch_list": "list", "gone": "get"}
"""The verb that each of these reads needs if the cache cannot answer."""

POSTING = frozenset({"event", "info", "warn", "exception"})


class Fetch(NamedTuple):
    """One call of such a read."""

    verb: str
    key: KindKey | None
    """The kind; None if it is not a constant."""
    where: str


def fetches_in(tree: ast.AST, file: str) -> Iterator[Fetch]:
    """Yield the reads of variables named `cache`: `cache.fetch('configmaps', ...)`,
    `cache.blocking.gone(...)`.

    >>> list(fetches_in(ast.parse("async def f(cache, **_): await cache.fetch('configmaps', 'a', 'b')"), 'web.py'))
    [Fetch(verb='get', key='configmaps', where='web.py, line 1')]
    """  # A line of an example is not broken.  # noqa: E501
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (verb := VERBS.get(node.func.attr))
            and _is_cache(node.func.value)
        ):
            kinds = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "kind")]
            yield Fetch(verb, _constant(kinds[0]) if kinds else None, f"{file}, line {node.lineno}")


def _is_cache(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute) and node.attr == "blocking":
        node = node.value
    return isinstance(node, ast.Name) and node.id == "cache"


def _constant(node: ast.expr) -> KindKey | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return (
        value
        if isinstance(value, str)
        or (isinstance(value, tuple) and all(isinstance(each, str) for each in value))
        else None
    )


def posts_events(tree: ast.AST) -> bool:
    """Return True if the code posts events about objects, by `kopf.info(...)` and similar calls.

    >>> [posts_events(ast.parse(text)) for text in ("kopf.info(body, reason='Made', message='It is there.')", "logger.info('It is there.')")]
    [True, False]
    """  # A line of an example is not broken.  # noqa: E501
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in POSTING
        and isinstance(node.value, ast.Name)
        and node.value.id == "kopf"
        for node in ast.walk(tree)
    )
