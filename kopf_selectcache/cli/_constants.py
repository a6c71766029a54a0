"""Follows names in an operator's source to what they stand for: constants, imported modules, classes, and
functions that return objects. Parses the code, and does not run it.

Nothing is guessed. A name has a value if everything that is assigned to it can be followed, and is equal.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from importlib.util import resolve_name
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import kopf

from kopf_selectcache.core.selection.kinds import KindKey, find, parse_key

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, *_COMPREHENSIONS, ast.Lambda, ast.ClassDef, ast.Module)
_PARTS = ("apiVersion", "kind")
_HARMLESS = ("staticmethod", "classmethod", "cache", "lru_cache")
"""The decorators that leave the answers of a function as they are."""

_CHANGING = ("pop", "popitem", "setdefault", "clear", "__setitem__", "__delitem__", "__ior__")
"""The methods that change a dict, besides `update`."""

_COPYING = ("dict", "deepcopy", "copy.deepcopy", "copy.copy")
"""The functions that return a copy of their argument."""

_UNKNOWN = object()
_T = TypeVar("_T")


_Binding: TypeAlias = ast.expr | ast.stmt | ast.alias | ast.arg | None


class Unfollowed(ValueError):
    """An expression stands for something that is not written out."""


class SourceFile:
    """One file of the operator."""

    def __init__(self, tree: ast.AST, names: Sequence[str] = (), *, is_package: bool = False) -> None:
        self.tree = tree
        self.names = names
        """The names by which it can be imported."""
        self.is_package = is_package
        nodes = [*ast.walk(tree)]
        self.outer = {inner: node for node in nodes for inner in ast.iter_child_nodes(node)}
        """The node around each node."""
        self.bound: dict[ast.AST, dict[str, list[_Binding]]] = {
            node: {} for node in nodes if node is tree or isinstance(node, _SCOPES)
        }
        """The names that each scope binds, with all values; None for one that is not followed."""
        for node in nodes:
            for scope, name, binding in _bindings(node, self):
                self.bound[scope].setdefault(name, []).append(binding)

    def scopes(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the scopes in which the names of a node are looked up, the innermost first."""
        is_first = True
        while (around := self.outer.get(node)) is not None:
            node = around
            if node in self.bound:
                if is_first or not isinstance(node, ast.ClassDef):
                    yield node
                is_first = False

    def scope_of(self, node: ast.AST) -> ast.AST:
        return next(self.scopes(node), self.tree)


class _Found(NamedTuple):
    """A node that a name stands for, in its file. The tree of a file stands for the module."""

    source: SourceFile
    node: ast.AST


def _bindings(node: ast.AST, source: SourceFile) -> Iterator[tuple[ast.AST, str, _Binding]]:
    """Yield what a node binds: the scope, the name, and the value."""
    scope = source.scope_of(node)
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            match source.outer.get(node):
                case ast.Assign(targets=targets, value=value) if node in targets:
                    yield scope, name, value
                case ast.AnnAssign(value=None):
                    pass  # It says the type alone.
                case ast.AnnAssign(value=value):
                    yield scope, name, value
                case ast.NamedExpr(value=value):
                    scopes = source.scopes(node)
                    outer = (each for each in scopes if not isinstance(each, _COMPREHENSIONS))
                    yield next(outer, source.tree), name, value
                case _:
                    yield scope, name, None
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield scope, name, node
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            for alias in aliases:
                top = alias.name.partition(".")[0] if isinstance(node, ast.Import) else alias.name
                yield scope, alias.asname or top, alias
        case ast.arg(arg=name):
            yield scope, name, node
        case (
            ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            yield scope, name, None
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            for each in (source.tree, *source.scopes(node)):  # They change an outer scope.
                yield from ((each, name, None) for name in names)


def _kopf() -> SourceFile:
    """Return Kopf's module with the constants that selectors take, and with nothing else."""
    body = list[ast.stmt]()
    for name, value in (("PRESENT", kopf.PRESENT), ("ABSENT", kopf.ABSENT)):
        body.append(ast.Assign([ast.Name(name, ast.Store())], ast.Constant(cast("Any", value))))
    return SourceFile(ast.Module(body, type_ignores=[]), ["kopf"])


class Program:
    """All files of an operator."""

    def __init__(self, sources: Collection[SourceFile]) -> None:
        self._sources = sources
        self._modules = {"kopf": _kopf(), **{name: source for source in sources for name in source.names}}
        self._assigned = set[str]()
        """The attributes that some code assigns to: they may have changed since their definition."""
        for node in (node for source in sources for node in ast.walk(source.tree)):
            match node:
                case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                    self._assigned.add(name)
                case ast.Call(
                    func=ast.Name(id="setattr" | "delattr"), args=[_, ast.Constant(value=str(name)), *_]
                ):
                    self._assigned.add(name)
        self._classes = [
            bindings
            for source in sources
            for node, bindings in source.bound.items()
            if isinstance(node, ast.ClassDef)
        ]

    # ---- Constants.

    def constant(self, found: _Found, seen: Collection[ast.AST] = ()) -> Any:
        """Return the value of an expression of constants; raise Unfollowed."""
        node, source = found.node, found.source
        seen = _deeper(node, seen)
        match node:
            case ast.Constant(value=value):
                return value
            case ast.JoinedStr(values=values):
                return "".join(str(self.constant(_Found(source, each), seen)) for each in values)
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return _text(self.constant(_Found(source, value), seen))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return "".join(_text(self.constant(_Found(source, each), seen)) for each in (left, right))
            case ast.Tuple(elts=elements):
                return tuple(self.constant(_Found(source, each), seen) for each in elements)
            case ast.Name() | ast.Attribute():
                values = [self.constant(each, seen) for each in self.follow(found, seen)]
                if all((type(each), each) == (type(values[0]), values[0]) for each in values):
                    return values[0]
        raise Unfollowed

    # ---- Objects.

    def members(self, found: _Found, seen: Collection[ast.AST] = ()) -> dict[str, Any]:
        """Return the apiVersion and kind of an object, as far as it has them; raise Unfollowed."""
        node, source = found.node, found.source
        seen = _deeper(node, seen)
        match node:
            case ast.Dict():
                return self._of_dict(node, source, seen)
            case ast.Name():
                return self._of_name(node, source, seen)
            case ast.Attribute():
                return _same([self.members(each, seen) for each in self.follow(found, seen)])
            case ast.Call() | ast.Await(value=ast.Call()) if (kind := _kind_read(node)) is not None:
                return self._of_read(_Found(source, kind), seen)
            case ast.Call(func=function, args=[value], keywords=[]) if ast.unparse(function) in _COPYING:
                return self.members(_Found(source, value), seen)
            case ast.Call(func=function):
                return self._of_call(_Found(source, function), seen, is_async=False)
            case ast.Await(value=ast.Call(func=function)):
                return self._of_call(_Found(source, function), seen, is_async=True)
            case ast.NamedExpr(value=value) | ast.BoolOp(op=ast.And(), values=[*_, value]):
                return self.members(_Found(source, value), seen)
        raise Unfollowed

    def _of_dict(self, node: ast.Dict, source: SourceFile, seen: Collection[ast.AST]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                try:
                    made |= self.members(_Found(source, value), seen)
                except Unfollowed:
                    made = dict.fromkeys(_PARTS, _UNKNOWN)
                continue
            name = self._or_unknown(key, source, seen)
            if name is _UNKNOWN:
                made = dict.fromkeys(_PARTS, _UNKNOWN)
            elif name in _PARTS:
                made[name] = self._or_unknown(value, source, seen)
        return made

    def _or_unknown(self, node: ast.expr | None, source: SourceFile, seen: Collection[ast.AST]) -> Any:
        with suppress(Unfollowed):
            if node is not None:
                return self.constant(_Found(source, node), seen)
        return _UNKNOWN

    def _of_name(self, node: ast.Name, source: SourceFile, seen: Collection[ast.AST]) -> dict[str, Any]:
        values = [each for each in self.follow(_Found(source, node), seen) if not _is_none(each.node)]
        made = _same([self.members(each, seen) for each in values])
        scope = next(each for each in source.scopes(node) if node.id in source.bound[each])
        for part, value in _changes(source, scope, node.id):
            key = self._or_unknown(part, source, seen)
            if key is _UNKNOWN:
                raise Unfollowed
            if key in _PARTS:
                given = self._or_unknown(value, source, seen)
                if made.setdefault(key, given) != given:
                    raise Unfollowed
        return made

    def _of_read(self, key: _Found, seen: Collection[ast.AST]) -> dict[str, Any]:
        """Return the apiVersion and kind of an object that is read by this key."""
        given = self.constant(key, seen)
        kind, (group, version, name) = find(given), parse_key(given)
        if kind is not None:
            group, version, name = kind.group, version or kind.versions[0], kind.plural
        if group is None or version is None:
            raise Unfollowed
        return dict(zip(_PARTS, (f"{group}/{version}".lstrip("/"), name), strict=True))

    def _of_call(self, function: _Found, seen: Collection[ast.AST], *, is_async: bool) -> dict[str, Any]:
        found = self.one(function, seen)
        node = found.node
        if not isinstance(node, ast.AsyncFunctionDef if is_async else ast.FunctionDef):
            raise Unfollowed
        decorators = [ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in node.decorator_list]
        inner = [each for each in ast.walk(node) if found.source.scope_of(each) is node]
        yields = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in inner)
        if yields or not {*decorators} <= {*_HARMLESS}:
            raise Unfollowed
        returned = [each.value for each in inner if isinstance(each, ast.Return)]
        answers = [each for each in returned if each is not None and not _is_none(each)]
        return _same([self.members(_Found(found.source, each), seen) for each in answers])

    # ---- Names.

    def follow(self, found: _Found, seen: Collection[ast.AST] = ()) -> list[_Found]:
        """Return all that a name or an attribute may stand for; raise Unfollowed."""
        source, node = found.source, found.node
        if isinstance(node, ast.Name):
            for scope in source.scopes(node):
                if node.id in source.bound[scope]:
                    return self._in_scope(source, scope, node.id, seen)
        elif isinstance(node, ast.Attribute):
            if node.attr in self._assigned:
                raise Unfollowed
            if (own := self._own_class(node.value, source)) is not None:
                if sum(node.attr in each for each in self._classes) != 1:
                    raise Unfollowed  # A subclass may have another value.
                return self._in_class(own, node.attr, seen)
            owner = self.one(_Found(source, node.value), seen)
            if isinstance(owner.node, ast.ClassDef):
                return self._in_class(owner, node.attr, seen)
            if owner.node is owner.source.tree:
                return self._in_module(owner.source, node.attr, seen)
        raise Unfollowed

    def one(self, found: _Found, seen: Collection[ast.AST] = ()) -> _Found:
        """Return the only thing that an expression stands for, by any number of names; raise Unfollowed."""
        if not isinstance(found.node, (ast.Name, ast.Attribute)):
            return found
        seen = _deeper(found.node, seen)
        values = [self.one(each, seen) for each in self.follow(found, seen)]
        if any(each.node is not values[0].node for each in values):
            raise Unfollowed
        return values[0]

    def _own_class(self, node: ast.expr, source: SourceFile) -> _Found | None:
        """Return the class of `self` or `cls`, in a method of it."""
        if not isinstance(node, ast.Name) or node.id not in ("self", "cls"):
            return None
        for scope in source.scopes(node):
            around = source.outer.get(scope)
            if isinstance(scope, _FUNCTIONS) and isinstance(around, ast.ClassDef):
                is_given = all(isinstance(each, ast.arg) for each in source.bound[scope].get(node.id, [None]))
                return _Found(source, around) if is_given else None
        return None

    def _in_scope(
        self, source: SourceFile, scope: ast.AST, name: str, seen: Collection[ast.AST]
    ) -> list[_Found]:
        if "*" in source.bound[scope]:
            raise Unfollowed
        found = list[_Found]()
        for binding in source.bound[scope].get(name, (None,)):
            match binding:
                case None:
                    raise Unfollowed
                case ast.alias():
                    found += self._imported(binding, source, seen)
                case ast.arg():
                    found += self._given(binding, _Found(source, scope), seen)
                case _:
                    found.append(_Found(source, binding))
        return found

    def _given(self, arg: ast.arg, function: _Found, seen: Collection[ast.AST]) -> list[_Found]:
        """Return what all calls of a function give for an argument. The function must be one of a module that
        nothing decorates, and that is only called.
        """
        source, node = function
        if not isinstance(node, _FUNCTIONS) or node.decorator_list or source.outer[node] is not source.tree:
            raise Unfollowed
        positional = [*node.args.posonlyargs, *node.args.args]
        if arg not in (*positional, *node.args.kwonlyargs):
            raise Unfollowed
        number = positional.index(arg) if arg in positional else len(positional)
        calls = [*self._calls_of(function, _deeper(arg, seen))]
        if not calls:
            raise Unfollowed
        found = list[_Found]()
        for caller, call in calls:
            named = [each.value for each in call.keywords if each.arg == arg.arg]
            given = [*call.args[number : number + 1], *named]
            is_clear = not any(isinstance(each, ast.Starred) for each in call.args)
            if len(given) != 1 or not is_clear or any(each.arg is None for each in call.keywords):
                raise Unfollowed
            found.append(_Found(caller, given[0]))
        return found

    def _calls_of(self, function: _Found, seen: Collection[ast.AST]) -> Iterator[tuple[SourceFile, ast.Call]]:
        """Yield the calls of a function; raise Unfollowed if it is used in any other way."""
        name = getattr(function.node, "name", "")
        for source in self._sources:
            for node in ast.walk(source.tree):
                match node:
                    case ast.alias(name=other, asname=str()) if other == name:
                        raise Unfollowed
                    case ast.Name(id=other, ctx=ast.Load()) if other == name:
                        pass
                    case ast.Attribute(attr=other) if other == name and len(self._sources) > 1:
                        pass  # It may be the function, as an attribute of its module.
                    case _:
                        continue
                if self.one(_Found(source, node), seen).node is function.node:
                    around = source.outer[node]
                    if not isinstance(around, ast.Call) or around.func is not node:
                        raise Unfollowed
                    yield source, around

    def _imported(self, alias: ast.alias, source: SourceFile, seen: Collection[ast.AST]) -> list[_Found]:
        statement = source.outer[alias]
        if isinstance(statement, ast.Import):
            return [self._module(alias.name if alias.asname else alias.name.partition(".")[0])]
        assert isinstance(statement, ast.ImportFrom), "nothing else imports"
        name = f"{'.' * statement.level}{statement.module or ''}"
        if statement.level:
            packages = [each if source.is_package else each.rpartition(".")[0] for each in source.names]
            with suppress(ImportError):
                name = resolve_name(name, next(filter(None, packages), None))
        return self._in_module(self._module(name).source, alias.name, _deeper(alias, seen))

    def _module(self, name: str) -> _Found:
        if (source := self._modules.get(name)) is None:
            raise Unfollowed
        return _Found(source, source.tree)

    def _in_module(self, source: SourceFile, name: str, seen: Collection[ast.AST]) -> list[_Found]:
        if name in source.bound[source.tree] or "*" in source.bound[source.tree]:
            return self._unchanged(self._in_scope(source, source.tree, name, seen), name)
        for own in source.names:
            if (inner := f"{own}.{name}") in self._modules:
                return [self._module(inner)]
        raise Unfollowed

    def _in_class(self, owner: _Found, name: str, seen: Collection[ast.AST]) -> list[_Found]:
        """Return what an attribute of a class stands for. Bases, and decorators, may change it."""
        node, source = owner.node, owner.source
        assert isinstance(node, ast.ClassDef), "it is a class"
        bases = [each for each in node.bases if not (isinstance(each, ast.Name) and each.id == "object")]
        if node.decorator_list or node.keywords or bases or name not in source.bound[node]:
            raise Unfollowed
        return self._unchanged(self._in_scope(source, node, name, seen), name)

    def _unchanged(self, found: list[_Found], name: str) -> list[_Found]:
        """Raise Unfollowed for an object of whose members the kind may be changed, in any file."""
        if any(isinstance(each.node, (ast.Dict, ast.Call)) for each in found):
            for source in self._sources:
                for key, _ in _changes(source, source.tree, name):
                    if not isinstance(key, ast.Constant) or key.value in _PARTS:
                        raise Unfollowed
        return found


class Names:
    """The names of one file of an operator."""

    def __init__(self, source: SourceFile, program: Program | None = None) -> None:
        self._source = source
        self._program = program if program is not None else Program([source])

    def key(self, node: ast.expr | None) -> KindKey | None:
        """Return the text, or the tuple of texts, that an expression stands for; None if it is not followed.

        >>> code = ast.parse("KIND = 'secrets'; f(f'v1/{KIND}', 'v1/' + kind)")
        >>> [Names(SourceFile(code)).key(each) for each in code.body[1].value.args]
        ['v1/secrets', None]
        """
        value = self._followed(self._program.constant, node)
        is_key = isinstance(value, str) or (
            isinstance(value, tuple) and all(isinstance(each, str) for each in value)
        )
        return value if is_key else None

    def kind_of(self, node: ast.expr | None) -> KindKey | None:
        """Return the kind of an object, as a key; None if it is not followed.

        >>> code = ast.parse("pod = {'apiVersion': 'v1', 'kind': 'Pod'}; pod['spec'] = spec; create(pod)")
        >>> Names(SourceFile(code)).kind_of(code.body[2].value.args[0])
        'v1/Pod'
        """
        found = self._followed(self._program.members, node) or {}
        version, kind = (found.get(part) for part in _PARTS)
        return f"{version}/{kind}" if isinstance(version, str) and isinstance(kind, str) else None

    def _followed(self, follow: Callable[[_Found], _T], node: ast.expr | None) -> _T | None:
        """Return what an expression leads to; None if it is not followed."""
        with suppress(Unfollowed):
            return follow(_Found(self._source, node)) if node is not None else None
        return None

    def expression(self, node: ast.expr) -> tuple[ast.expr, Names]:
        """Return the one expression that a name or an attribute stands for, and the names of its file; raise
        ValueError.
        """
        found = self._program.one(_Found(self._source, node))
        if not isinstance(found.node, ast.expr) or isinstance(found.node, (ast.Dict, ast.List, ast.Set)):
            raise Unfollowed  # What can be changed may have been.
        return found.node, Names(found.source, self._program)


# ---- Nodes.


def argument(node: ast.Call, name: str, number: int = 0) -> ast.expr | None:
    """Return the first argument of a call, or that of a number, which may be given by its name."""
    return node.args[number] if len(node.args) > number else keyword(node, name)


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """Return the argument of a call that is given by this name."""
    return next((each.value for each in node.keywords if each.arg == name), None)


def is_cache(node: ast.expr) -> bool:
    """Return True for `cache`, `selectcache.current()` and `selectcache.cache_of(...)`, and for `.blocking` of
    them.

    >>> [is_cache(ast.parse(text, mode="eval").body) for text in ("cache.blocking", "selectcache.current()", "loop.current()")]
    [True, True, False]
    """  # A line of an example is not broken.  # noqa: E501
    if isinstance(node, ast.Attribute) and node.attr == "blocking":
        node = node.value
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).removeprefix("kopf_").removeprefix("selectcache.")
        return called in ("cache_of", "current")
    return isinstance(node, ast.Name) and node.id == "cache"


def _kind_read(node: ast.AST) -> ast.expr | None:
    """Return the kind in a call that reads one object, such as `await cache.fetch('pods', 'a')`."""
    match node.value if isinstance(node, ast.Await) else node:
        case ast.Call(func=ast.Attribute(value=target, attr="get" | "fetch")) as call:
            if isinstance(target, ast.Attribute) and target.attr == "live":
                target = target.value
            return argument(call, "kind") if is_cache(target) else None
    return None


def _deeper(node: ast.AST, seen: Collection[ast.AST]) -> Collection[ast.AST]:
    """Return the nodes that are being followed, with one more; raise Unfollowed if it is one of them."""
    if node in seen:
        raise Unfollowed
    return (*seen, node)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfollowed
    return value


def _same(found: list[dict[str, Any]]) -> dict[str, Any]:
    if not found or any(each != found[0] for each in found):
        raise Unfollowed
    return dict(found[0])


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _changes(
    source: SourceFile, within: ast.AST, name: str
) -> Iterator[tuple[ast.expr | None, ast.expr | None]]:
    """Yield the keys and values that are assigned to the members of a dict of this name; None for what is
    not known.
    """
    for node in ast.walk(within):
        match node:
            case ast.Subscript(value=value, slice=key, ctx=ast.Store() | ast.Del()) if _is_named(value, name):
                around = source.outer.get(node)
                yield (
                    key,
                    (around.value if isinstance(around, ast.Assign) and node in around.targets else None),
                )
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if _is_named(value, name):
                match method, node.args:
                    case ("setdefault", [key, given]):
                        yield key, given
                    case ("setdefault" | "pop", [key, *_]):
                        yield key, None
                    case ("update", args):
                        for each in args:
                            if isinstance(each, ast.Dict):
                                yield from zip(each.keys, each.values, strict=True)
                            else:
                                yield None, None
                        for more in node.keywords:
                            yield (None if more.arg is None else ast.Constant(more.arg)), more.value
                    case _ if method in _CHANGING:
                        yield None, None


def _is_named(node: ast.expr, name: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == name) or (
        isinstance(node, ast.Attribute) and node.attr == name
    )
