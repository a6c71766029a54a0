"""Finds calls of awaited methods in an operator's source that nobody awaits: `cache.live.patch(...)` as a
line of its own in an async function. Parses the code, and does not run it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from kopf_selectcache.cache.blocking import AWAITED, LIVE

from ._constants import is_cache


class Unawaited(NamedTuple):
    """A call that does nothing."""

    method: str
    where: str


def unawaited_in(tree: ast.AST, file: str) -> Iterator[Unawaited]:
    """Yield the calls of a cache, and of its `live`, whose coroutine is thrown away, or taken for an answer.
    A sync function that calls one gets an error.

    >>> code = "async def f(cache): cache.live.delete('pods', 'a', namespace='b')"
    >>> list(unawaited_in(ast.parse(code), 'web.py'))
    [Unawaited(method='cache.live.delete', where='web.py, line 1')]
    """
    for function in ast.walk(tree):
        if isinstance(function, ast.AsyncFunctionDef):
            names = (node for node in ast.walk(function) if isinstance(node, ast.Name))
            used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
            for node in _inside(function):
                for value in _wasted(node, used):
                    if method := _awaited(value):
                        yield Unawaited(method, f"{file}, line {value.lineno}")


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, and none of the functions in it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _inside(node)


def _wasted(node: ast.AST, used: set[str]) -> list[ast.expr]:
    """Return the values in a node that are thrown away, or that only count as true or false."""
    match node:
        case ast.Expr(value):
            return [value]
        case ast.If(test=value) | ast.While(test=value) | ast.IfExp(test=value) | ast.Assert(test=value):
            return [value]
        case ast.UnaryOp(op=ast.Not(), operand=value):
            return [value]
        case ast.BoolOp(values=values):
            return values
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in used:
            return [value]
    return []


def _awaited(node: ast.expr) -> str:
    """Return the awaited method that is called, as it is written; empty for other code."""
    match node:
        case ast.Call(func=ast.Attribute(value=cache, attr=name) as method):
            names = AWAITED
            if isinstance(cache, ast.Attribute) and cache.attr == "live":
                cache, names = cache.value, LIVE
            is_blocking = isinstance(cache, ast.Attribute)
            if name in names and is_cache(cache) and not is_blocking:
                return ast.unparse(method)
    return ""
