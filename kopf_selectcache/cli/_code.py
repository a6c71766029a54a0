"""Finds calls in an operator's source: those that need permissions, such as `cache.fetch('pods', ...)`, those
that declare caches at run time, and those that nobody awaits. Parses the code, and does not run it.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from kopf_selectcache.cache.blocking import AWAITED, LIVE
from kopf_selectcache.core.selection.kinds import KindKey, find
from kopf_selectcache.errors import DeclarationError
from kopf_selectcache.selectors.kind_keys import checked_key
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.selectors.text import EVERYTHING, LabelSelector
from kopf_selectcache.settings.declaration import Cached, Declared, are_one_kind, checked

from ._constants import Names, SourceFile, argument, is_cache, keyword
from .output import PROBLEM, CommandError

VERBS = {"fetch": "get", "fetch_list": "list", "is_deleted": "get", "wait_deleted": "get"}
"""The verb that each of these reads needs if the cache cannot answer."""

LIVE_VERBS: Mapping[str, tuple[str, ...]] = {
    "get": ("get",),
    "list": ("list",),
    "patch": ("patch",),
    "delete": ("delete",),
    "update": ("get", "update"),
}
"""The verbs that each of these calls of `cache.live` needs, for the kind that it names."""

LIVE_OBJECTS: Mapping[str, tuple[str, ...]] = {
    "create": ("create",),
    "replace": ("update",),
    "apply": ("create", "patch"),
    "ensure": ("create", "get"),
}
"""The same for calls that are given an object."""

SETTLED = ("apply", "create", "delete", "patch", "replace")
"""The writes of `cache.live` that read the object back after a lost answer, and need no `get` otherwise."""


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
    part = names.key(keyword(node, "subresource")) if name in ("patch", "update", "replace") else None
    subresource = part if isinstance(part, str) else ""
    if name in LIVE_VERBS:
        key, verbs = names.key(argument(node, "kind")), LIVE_VERBS[name]
    elif name in LIVE_OBJECTS:
        adopts = name == "ensure" and not _is_false(keyword(node, "adopt"))
        key, verbs = names.kind_of(argument(node, "obj")), LIVE_OBJECTS[name] + ("patch",) * adopts
    else:
        return
    for verb in verbs:
        # The status is read with the object.
        is_main = verb == "get" and subresource == "status"
        yield Fetch(verb, key, where, name, is_live=True, subresource="" if is_main else subresource)
    if name in SETTLED:
        yield Fetch("get", key, where, name, is_live=True, settles=True)


def _is_false(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and not node.value)


def declare_calls_in(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of `cache.declare`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=target, attr="declare")) if is_cache(target):
                yield node


def second_caches_in(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of `Caches` and `selectcache.Caches`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name_of(node.func) == "Caches":
            yield node


def declares_later(tree: ast.AST) -> bool:
    """Return True if the code caches something at run time, or beside the operator's caches."""
    return any(True for calls in (declare_calls_in, second_caches_in) for _ in calls(tree))


def posts_events(tree: ast.AST) -> bool:
    """Return True if the code posts events about objects, by `kopf.info(...)` and similar calls.

    >>> [posts_events(ast.parse(text)) for text in ("kopf.info(body, reason='Made', message='It is there.')", "logger.info('It is there.')")]
    [True, False]
    """  # A line of an example is not broken.  # noqa: E501
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="kopf"), attr="event" | "info" | "warn" | "exception"):
                return True
    return False


def records_events(tree: ast.AST) -> bool:
    """Return True if the code makes a recorder of Events, or has a handler that takes one.

    >>> codes = "async def create(events, **_): pass", "selectcache.Recorder('web')", "def f(event): pass"
    >>> [records_events(ast.parse(code)) for code in codes]
    [True, True, False]
    """
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg="events"):
                return True
            case ast.Call(func=function) if _name_of(function) == "Recorder":
                return True
    return False


def _name_of(function: ast.expr) -> str | None:
    match function:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return None


# ---- Caches that an operator declares besides its settings: those of `--kind` and `--filter`, and those
# of the calls of `cache.declare` and `Caches` in its files. Parses the code, and does not run it.

MADE: Mapping[str, Callable[..., Any]] = {
    "Selector": Selector,
    "AnyOf": AnyOf,
    "Cached": Cached,
    "LabelSelector.parse": LabelSelector.parse,
    "LabelSelector.from_dict": LabelSelector.from_dict,
}
"""The classes and functions that a written filter may call."""


class Late(NamedTuple):
    """A cache that is declared at run time."""

    key: KindKey
    cached: Cached
    where: str
    given: Collection[str] | None = None
    """The options that are given, if those of a former declaration of the kind stay as they are; None if all
    are replaced.
    """

    def completed(self, formers: Iterable[tuple[KindKey, Cached]]) -> list[Cached]:
        """Return the declarations that it may make, each with the options of a former one of the kind."""
        if self.given is None:
            return [self.cached]
        present = [former for key, former in formers if are_one_kind(key, self.key)]
        return [
            self.cached.completed(former, indexes=former.indexes, given=self.given) for former in present
        ] or [self.cached]

    @property
    def has_options(self) -> bool:
        """True if the options that decide on permissions do not depend on a former declaration."""
        return self.given is None or "share_watches" in self.given


class UnknownDeclaration(NamedTuple):
    """A call of `cache.declare` whose kind or filter is not written out."""

    where: str
    key: KindKey | None = None
    """The kind, if that is written out."""

    def is_named_by(self, named: Collection[KindKey]) -> bool:
        """Return True if the command line may name it: its kind, or any if its own is not written out."""
        return bool(named) if self.key is None else any(are_one_kind(self.key, each) for each in named)


class SecondCache(NamedTuple):
    """A cache of `Caches(...)` with the login of the operator."""

    key: KindKey
    cached: Cached
    where: str
    namespaces: tuple[str, ...] | None = None
    """The namespaces of filters that name none; None for all."""


class Unseen(NamedTuple):
    """A call of `Caches(...)` of which some permissions are unknown."""

    why: str
    where: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Caches declared at run time")
    group.add_argument(
        "--kind",
        action="append",
        default=[],
        metavar="KIND",
        help="a kind that the operator declares later (repeatable, each with a --filter)",
    )
    group.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="SELECTOR",
        help=(
            "its filter: a label selector, or Python such as \"Selector('app=web', namespaces=['shop'])\" or"
            ' "Cached(...)"'
        ),
    )


def given_caches(arguments: argparse.Namespace) -> list[Late]:
    """Return the pairs of the command line; raise CommandError."""
    if len(arguments.kind) != len(arguments.filter):
        raise CommandError(
            f"{len(arguments.kind)} --kind and {len(arguments.filter)} --filter don't match",
            "Give each --kind a --filter; --filter '' means all objects",
        )
    found = []
    for kind, text in zip(arguments.kind, arguments.filter, strict=True):
        where = f"--kind {kind} --filter {text}"
        try:
            key, declared = checked_key(kind), _filter_of(text)
            given = None if isinstance(declared, Cached) else ()
            found.append(Late(key, checked(key, find(key), declared), where, given))
        except DeclarationError as error:
            raise CommandError.of(error, f"{where}: ") from error
    return found


def _filter_of(text: str) -> Declared:
    """Return a filter of the command line: Python if it begins like that, else a label selector."""
    if not text.startswith(("[", "{", *(f"{name}(" for name in MADE))):
        return text
    remedy = "Write it as in: Selector('app=web', namespaces=['shop'])"
    try:
        written = ast.parse(text, mode="eval").body
        tree = ast.Module([ast.Import([ast.alias("kopf")]), ast.Expr(written)], type_ignores=[])
        return cast("Declared", _value(written, Names(SourceFile(tree))))
    except SyntaxError as error:
        raise DeclarationError("the filter can't be parsed as Python", remedy=remedy) from error
    except ValueError as error:
        raise DeclarationError("the filter contains more than Python literals", remedy=remedy) from error


def declarations_in(
    tree: ast.AST, file: str, names: Names | None = None
) -> Iterator[Late | UnknownDeclaration]:
    """Yield the calls of `cache.declare`; raise CommandError if one makes no sense.

    >>> text = "cache.blocking.declare('v1/pods', Selector('app=web', namespaces=['shop']), keep=fields)"
    >>> [(late.key, late.cached.filter, late.where) for late in declarations_in(ast.parse(text), 'web.py')]
    [('v1/pods', Selector(labels='app=web', namespaces=['shop']), 'web.py, line 1')]
    >>> list(declarations_in(ast.parse("cache.declare('pods', chosen, replace=True)"), 'web.py'))
    [UnknownDeclaration(where='web.py, line 1', key='pods')]
    """
    for node in declare_calls_in(tree):
        where, written = f"{file}, line {node.lineno}", None
        try:
            key = written = checked_key(_value(argument(node, "kind"), names))
            declared = _filter_in(argument(node, "filter", 1), names)
            # The other options need no permissions.
            shared = [each for each in node.keywords if each.arg == "share_watches"]
            options = {str(each.arg): _value(each.value, names) for each in shared}
            is_change = keyword(node, "replace") is not None
            given = [*options] if is_change and not isinstance(declared, Cached) else None
            yield Late(key, checked(key, find(key), declared, **options), where, given)
        except DeclarationError as error:
            raise CommandError.of(error, f"{where}: ", code=PROBLEM) from error
        except ValueError:
            yield UnknownDeclaration(where, written)


def second_caches(tree: ast.AST, file: str, names: Names | None = None) -> Iterator[SecondCache | Unseen]:
    """Yield the caches of the calls of `Caches(...)`; raise CommandError if one makes no sense.

    >>> text = "hub = selectcache.Caches({'v1/pods': 'app=web'}, namespaces=['shop'], settings=options)"
    >>> unseen, beside = second_caches(ast.parse(text), 'web.py')
    >>> unseen.why
    'may have more filters in settings=. Give them with --kind and --filter'
    >>> beside.key, beside.cached.filter, beside.where, beside.namespaces
    ('v1/pods', Selector(labels='app=web'), 'web.py, line 1', ('shop',))
    """
    for node in second_caches_in(tree):
        where = f"{file}, line {node.lineno}"
        login, settings = keyword(node, "login"), keyword(node, "settings")
        if login is not None and not (isinstance(login, ast.Constant) and login.value is None):
            yield Unseen("have their own login, whose permissions are not included", where)
            continue
        if settings is not None:
            yield Unseen("may have more filters in settings=. Give them with --kind and --filter", where)
        try:
            yield from _beside(node, where, names)
        except DeclarationError as error:
            raise CommandError.of(error, f"{where}: ", code=PROBLEM) from error
        except ValueError:
            yield Unseen("are not written out. Give them with --kind and --filter", where)


def _beside(node: ast.Call, where: str, names: Names | None) -> Iterable[SecondCache]:
    """Return the caches of a call; raise ValueError if they are not written out."""
    given, within = argument(node, "selectors"), keyword(node, "namespaces")
    if not isinstance(given, ast.Dict | None) or any(each.arg is None for each in node.keywords):
        raise ValueError("it is no dict")
    namespaces = None if within is None else Selector(namespaces=_value(within, names)).namespaces
    found = []
    for name, value in zip(given.keys, given.values, strict=True) if given is not None else ():
        key = checked_key(_value(name, names))
        found.append(SecondCache(key, checked(key, find(key), _value(value, names)), where, namespaces))
    return found


def _filter_in(node: ast.expr | None, names: Names | None) -> Any:
    """Return the filter of a call; raise ValueError if it is not written out. All label selectors need
    the same permissions, so a text may have unknown parts.
    """
    try:
        return _value(node, names)
    except ValueError:
        match node:
            case ast.JoinedStr() | ast.BinOp(left=ast.Constant(value=str()) | ast.JoinedStr()):
                return EVERYTHING
        raise


def _value(node: ast.expr | None, names: Names | None = None) -> Any:
    """Return the value of an expression of literals, calls of `MADE`, and names that can be followed; raise
    ValueError for any other.
    """
    match node:
        case None:
            raise ValueError("it is not given")
        case ast.Call():
            *owner, name = ast.unparse(node.func).split(".")
            name = f"{owner[-1]}.{name}" if owner[-1:] == ["LabelSelector"] else name
            if name not in MADE or any(each.arg is None for each in node.keywords):
                raise ValueError(name)
            options = {str(each.arg): _value(each.value, names) for each in node.keywords}
            return MADE[name](*(_value(each, names) for each in node.args), **options)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            values = [_value(each, names) for each in elements]
            return values if isinstance(node, ast.List) else tuple(values)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_value(key, names): _value(value, names) for key, value in pairs}
        case ast.Name() | ast.Attribute() if names is not None:
            return _value(*names.expression(node))
        case ast.JoinedStr() | ast.BinOp() if names is not None and (text := names.key(node)) is not None:
            return text
    return ast.literal_eval(node)


# ---- Calls of awaited methods in an operator's source that nobody awaits: `cache.live.patch(...)`
# as a line of its own in an async function. Parses the code, and does not run it.


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
        case ast.If(test=value) | ast.While(test=value) | ast.IfExp(test=value) | ast.Assert(test=value):
            return [value]
        case ast.Expr(value) | ast.UnaryOp(op=ast.Not(), operand=value):
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
