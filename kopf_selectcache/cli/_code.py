"""Finds calls in an operator's source that need permissions without a declaration, such as
`cache.fetch('pods', ...)` and `cache.live.create({...})`. Parses the code, and does not run it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from kopf_selectcache.core.selection.kinds import KindKey

from ._constants import Names, SourceFile, argument, is_cache, keyword

VERBS = {"fetch": "get", "fetch_list": "list", "is_deleted": "get", "wait_deleted": "get"}
"""The verb that each of these reads needs if the cache cannot answer."""

LIVE = {
    "get": ("get",),
    "list": ("list",),
    "patch": ("patch",),
    "delete": ("delete",),
    "update": ("get", "update"),
}
"""The verbs that each of these calls of `cache.live` needs, for the kind that it names."""

LIVE_OBJECTS = {
    "create": ("create",),
    "replace": ("update",),
    "apply": ("create", "patch"),
    "ensure": ("create", "get"),
}
"""The same for calls that are given an object."""

SETTLED = ("apply", "create", "delete", "patch", "replace")
"""The writes of `cache.live` that read the object back after a lost answer, and need no `get` otherwise."""

POSTING = frozenset({"event", "info", "warn", "exception"})


class Fetch(NamedTuple):
    """One call that asks the server."""

    verb: str
    key: KindKey | None
    """The kind; None if it is not written out."""
    where: str
    call: str = ""
    """The method of `cache` or `cache.live`."""
    is_live: bool = False
    subresource: str = ""
    settles: bool = False
    """True if the call asks only after a lost answer."""


def fetches_in(tree: ast.AST, file: str, names: Names | None = None) -> Iterator[Fetch]:
    """Yield the reads of variables named `cache`: `cache.fetch('configmaps', ...)`,
    `cache.blocking.is_deleted(...)`; and the calls of `cache.live`, one for each verb. `names` follows the names of the
    file; by default, to that file alone.

    >>> list(fetches_in(ast.parse("async def f(cache, **_): await cache.fetch('configmaps', 'a', namespace='b')"), 'web.py'))
    [Fetch(verb='get', key='configmaps', where='web.py, line 1', call='fetch', is_live=False, subresource='', settles=False)]
    >>> text = "cache.live.ensure({'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': name}})"
    >>> [(fetch.verb, fetch.key) for fetch in fetches_in(ast.parse(text), 'web.py')]
    [('create', 'v1/Pod'), ('get', 'v1/Pod')]
    """  # A line of an example is not broken.  # noqa: E501
    names = names if names is not None else Names(SourceFile(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, target, where = node.func.attr, node.func.value, f"{file}, line {node.lineno}"
        if is_cache(target):
            if (verb := VERBS.get(name)) is not None:
                yield Fetch(verb, names.key(argument(node, "kind")), where, name)
        elif isinstance(target, ast.Attribute) and target.attr == "live" and is_cache(target.value):
            yield from _live(node, name, where, names)


def _live(node: ast.Call, name: str, where: str, names: Names) -> Iterator[Fetch]:
    if name in LIVE:
        part = names.key(keyword(node, "subresource"))
        subresource = part if name in ("patch", "update") and isinstance(part, str) else ""
        key = names.key(argument(node, "kind"))
        for verb in LIVE[name]:
            # The status is read with the object.
            is_main = verb == "get" and subresource == "status"
            yield Fetch(verb, key, where, name, is_live=True, subresource="" if is_main else subresource)
    elif name in LIVE_OBJECTS:
        adopts = name == "ensure" and not _is_false(keyword(node, "adopt"))
        key = names.kind_of(argument(node, "obj"))
        part = names.key(keyword(node, "subresource")) if name == "replace" else None
        subresource = part if isinstance(part, str) else ""
        for verb in (*LIVE_OBJECTS[name], *(["patch"] if adopts else [])):
            yield Fetch(verb, key, where, name, is_live=True, subresource=subresource)
    else:
        return
    if name in SETTLED:
        yield Fetch("get", key, where, name, is_live=True, settles=True)


def _is_false(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and not node.value)


def declarations_in(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of `cache.declare`."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "declare"
            and is_cache(node.func.value)
        ):
            yield node


def second_caches_in(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of `Caches` and `selectcache.Caches`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "Caches":
                yield node


def declares_later(tree: ast.AST) -> bool:
    """Return True if the code caches something at run time, or beside the operator's caches."""
    return any(True for calls in (declarations_in, second_caches_in) for _ in calls(tree))


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


def records_events(tree: ast.AST) -> bool:
    """Return True if the code makes a recorder of Events, or has a handler that takes one.

    >>> codes = "async def create(events, **_): pass", "selectcache.Recorder('web')", "def f(event): pass"
    >>> [records_events(ast.parse(code)) for code in codes]
    [True, True, False]
    """
    return any(
        node.arg == "events"
        if isinstance(node, ast.arg)
        else isinstance(node, ast.Call) and _name_of(node.func) == "Recorder"
        for node in ast.walk(tree)
    )


def _name_of(function: ast.expr) -> str | None:
    match function:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return None
