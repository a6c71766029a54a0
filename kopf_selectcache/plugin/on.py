"""`selectcache.on`: decorators of handlers that the caches call. Each is registered with Kopf's registry.

The checks of their arguments serve `selectcache.reconcile` as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar, Unpack

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import (
    BadSelector,
    ConflictingSelectors,
    DeclarationError,
    NotSelectable,
    ReadError,
    require,
)
from kopf_selectcache.cache.access import require_stored
from kopf_selectcache.cache.formats.formats import Form, form_of
from kopf_selectcache.cache.matcher import Field, Label, Namespaces, Where
from kopf_selectcache.cache.request import Request, require_where
from kopf_selectcache.core.redact import shown
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource, find, parse_key
from kopf_selectcache.core.store.changes import ChangeCause
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.selectors.kind_keys import AnyKey, are_alike, checked_key, text_of
from kopf_selectcache.selectors.selector import Branches, Selector, in_any_namespace, listed_namespaces
from kopf_selectcache.selectors.signatures import FIELD_OR_PATH, check_call

from .calls import CacheHandler
from .handlers import is_decorated, refuse_async_object

# ---- The arguments of decorators of handlers that the caches call, and the decorated functions: checks.

CALL = "on.change()"

OF_OBJECTS = ("annotations", "body", "labels", "meta", "name", "namespace", "spec", "status", "uid")
OF_CALLS = ("cache", "events", "logger", "param", "retry", "runtime", "started")
"""The names of the arguments of all handlers that the caches call."""

NAMES = frozenset({*OF_OBJECTS, *OF_CALLS, "cause", "filter_changed", "initial", "known_by", "new", "old"})
"""The names of the arguments of a handler of changes."""

_LACKING = {
    "diff": "Compare old and new",
    "memo": "Keep state in a dict of your own",
    "patch": "Write with cache.live.patch(...)",
    "self": "Decorate a function instead of a method",
}
"""Remedies for arguments that handlers of changes do not have, and others may have."""


class Arguments(NamedTuple):
    """The arguments of the handlers of one decorator."""

    call: str
    handlers: str
    names: frozenset[str]
    lacking: Mapping[str, str]
    """Remedies for arguments that they do not have."""


OF_CHANGES = Arguments(CALL, "handlers of changes", NAMES, _LACKING)

_INSTEAD = {
    "annotations": "Write where={('metadata', 'annotations', 'example.com/key'): 'value'}",
    "deleted": "For departures only, write entered=False, updated=False",
    **dict.fromkeys(("new", "old"), "Compare old and new in the handler\nTo select by values, write where="),
    **dict.fromkeys(("field", "value"), FIELD_OR_PATH),
    "when": "Write labels=, fields= or where=\nReturn early from the handler",
}
"""Remedies for options that Kopf's decorators have, and this one has not."""


def remedy_of(args: tuple[object, ...], kwargs: Mapping[str, object], _: object) -> str:
    """Return the remedy for a call with positional arguments, or with a filter of Kopf; empty for others."""
    if len(args) in (2, 3) and all(isinstance(each, str) for each in args):
        return f"Name the kind in one text: {shown('/'.join(filter(None, map(str, args))))}"
    return next((_INSTEAD[name] for name in kwargs if name in _INSTEAD), "")


def require_kind(kind: object, decorator: str = "on.change") -> None:
    """Raise DeclarationError for a decorator that was not called."""
    if callable(kind) and not isinstance(kind, type):
        raise DeclarationError(
            f"@selectcache.{decorator} needs a kind",
            remedy=f"Write: @selectcache.{decorator}('pods')",
        )


def require_flags(flags: Mapping[str, object], call: str = CALL) -> None:
    for name, flag in flags.items():
        require(isinstance(flag, bool), DeclarationError, call, name, flag, "True or False")


class KopfOptions(TypedDict, total=False):
    """The options that all handlers share with those of Kopf."""

    id: str | None
    param: Any
    errors: kopf.ErrorsMode | None
    timeout: float | None
    retries: int | None
    backoff: float | None
    registry: kopf.OperatorRegistry | None


def require_options(options: KopfOptions, *, where: object = None, call: str = CALL) -> None:
    """Raise DeclarationError for options of wrong types, and for those with which no call would be made."""
    require_where(call, where, DeclarationError)
    given: Mapping[str, Any] = {name: each for name, each in options.items() if each is not None}

    def check(name: str, fits: Callable[[Any], bool], wanted: str) -> None:
        require(name not in given or fits(given[name]), DeclarationError, call, name, given.get(name), wanted)

    check("id", lambda id_: isinstance(id_, str) and bool(id_), "a text")
    check("errors", lambda mode: isinstance(mode, kopf.ErrorsMode), "one such as kopf.ErrorsMode.PERMANENT")
    check("timeout", lambda time: _is_number(time) and time > 0, "a positive number of seconds")
    check("backoff", lambda time: _is_number(time) and time >= 0, "a number of seconds")
    check(
        "retries",
        lambda count: isinstance(count, int) and not isinstance(count, bool) and count > 0,
        "a number of calls, from 1",
    )
    check("registry", lambda registry: isinstance(registry, kopf.OperatorRegistry), "a kopf.OperatorRegistry")


def kopf_options(fn: Callable[..., Any], options: KopfOptions) -> dict[str, Any]:
    """Return a function and its options as the handlers of Kopf have them."""
    names = ("param", "errors", "timeout", "retries", "backoff")
    id_ = _kopf.HandlerId(options.get("id") or _kopf.get_callable_id(fn))
    return {"id": id_, "fn": fn} | {name: options.get(name) for name in names}


def register(attribute: str, handler: _kopf.Handler, options: KopfOptions) -> None:
    """Append a handler to those that a registry has in an attribute."""
    registry = options.get("registry")
    of = registry if registry is not None else kopf.get_default_registry()
    vars(of).setdefault(attribute, []).append(handler)


def _is_number(given: object) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool)


def declared_form(as_: Any, call: str = CALL) -> Form | None:
    """Return the form of the objects that a handler gets; None for views. Raise DeclarationError for none."""
    try:
        return None if as_ is None or as_ == "view" else form_of(call, as_)
    except ReadError as error:
        raise DeclarationError(error.what, remedy=error.remedy) from None


def require_form(handler: object, form: Form | None, key: KindKey, projection: Projection) -> None:
    """Raise DeclarationError if objects of a kind, as they are stored, cannot have the form. Only the cluster
    knows which custom resource a key means, so a class is compared with that when the kind is followed.
    """
    kind, version, problem = find(key), parse_key(key)[1], None
    if form is None or (kind is None and form.of_client is not None):
        return
    for each in kind.versions if kind is not None and version is None else (version or "",):
        try:
            require_stored(formed_request(handler, form, key), Resource(kind or _LATER, each), projection)
        except ReadError as error:
            problem = error
        else:
            return
    assert problem is not None, "a kind has a version"
    raise DeclarationError(f"{handler}: {problem.what}", remedy=problem.remedy)


_LATER = Kind("", "", "", None, {})
"""A kind that only the cluster knows."""


def formed_request(handler: object, form: Form, kind: KindKey) -> Request:
    """Return the request of a handler for objects in a form, for the checks of reads."""
    return Request(verb="changes", kind=kind, text=str(handler), form=form, is_plain=False)


def selector_of(labels: Label, fields: Field, namespace: Namespaces) -> Selector:
    """Return the selector of the wanted objects. Errors name `namespace=`, as users write it."""
    try:
        return Selector(labels, fields=fields, namespaces=listed_namespaces(namespace))
    except BadSelector as error:
        what, remedy = (text.replace("namespaces=", "namespace=") for text in (error.what, error.remedy))
        raise BadSelector(what, remedy=remedy, text=error.text, column=error.column) from None


def require_handler(fn: Any, takes: Arguments = OF_CHANGES) -> None:
    """Raise DeclarationError unless a function can be called with the arguments of a handler."""
    call = takes.call
    require(callable(fn), DeclarationError, call, "the handler", fn, "a function")
    if is_decorated(fn):
        raise DeclarationError(
            f"{call} can't be combined with with_cache",
            remedy="Remove with_cache: the handler gets `cache` anyway",
        )
    refuse_async_object(fn, call)
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    plain = fn.func if isinstance(fn, partial) else fn
    if inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain):
        raise DeclarationError(
            f"{call}: {name} is a generator function, which would never run", remedy="Remove `yield`"
        )
    try:
        # Of a decorated function, only the decorator's own signature counts.
        parameters = inspect.signature(fn, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return  # One in C may have none.
    _require_parameters(name, parameters, takes)


def _require_parameters(name: str, parameters: Collection[inspect.Parameter], takes: Arguments) -> None:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for each in parameters:
        is_given = each.name in takes.names and each.kind is not each.POSITIONAL_ONLY
        if each.default is each.empty and each.kind not in variable and not is_given:
            raise DeclarationError(
                f"{takes.call}: {name} takes {each.name}, which {takes.handlers} don't get",
                remedy=takes.lacking.get(each.name, f"They get {', '.join(sorted(takes.names))}"),
            )
    if not any(each.kind is each.VAR_KEYWORD for each in parameters):
        raise DeclarationError(
            f"{takes.call}: {name} gets more arguments than it takes",
            remedy="Add **_ to its parameters",
        )


_F = TypeVar("_F", bound=Callable[..., Any])

_HANDLERS = "_selectcache_changes"  # The attribute of a registry with its handlers of changes.


@dataclass(frozen=True)
class ChangeHandler(CacheHandler):
    """A handler of changes."""

    noun = "Change handler"

    kind: KindKey
    causes: frozenset[ChangeCause]
    selector: Selector
    where: Where | None
    initial: bool

    @property
    def condition(self) -> str:
        """The objects that it wants, as text; empty for all."""
        selector = str(self.selector).replace("namespaces=", "namespace=")
        texts = [selector] if self.selector != Selector() else []
        return ", ".join([*texts, *([f"where={dict(self.where)!r}"] if self.where else [])])


@check_call(DeclarationError, "selectcache.on.change", advise=remedy_of)
def change(
    kind: AnyKey,
    *,
    entered: bool = True,
    updated: bool = True,
    left: bool = True,
    deleted: bool = True,
    resync: bool = False,
    labels: Label = None,
    fields: Field = None,
    where: Where | None = None,
    namespace: Namespaces = None,
    initial: bool = True,
    as_: Any = None,
    **options: Unpack[KopfOptions],
) -> Callable[[_F], _F]:
    """Call a handler, sync or async, for each change of the cached objects of a declared kind.

    @selectcache.on.change('jobs', labels='app=web', updated=False)
    async def follow(cause, name, old, cache, logger, **_):
        if cause in ('left', 'deleted'):
            logger.info(f'{name} departed, with {old["status"]}')

    The causes are `entered`, `updated`, `left` (the filter does not select the object any more; it may still
    exist) and `deleted` (it does not exist any more). `old` and `new` are read-only views, None where there
    is no object; `body` is the one that is there. With `as_=` they are dicts (`dict`), or in another form of
    reads. `cache` needs no `with_cache`. `known_by` tells how a deletion is known: see `Change`.

    `labels`, `fields`, `where` and `namespace` are those of reads: an object that ceases to match has left.
    Existing objects are delivered as `entered`, unless `initial=False`. With `resync=True`, each object comes
    again once per period of the kind (`Cached(..., resync=36000)`), with the cause `resync`.

    The changes of one object are delivered one at a time and in order; those that come meanwhile are joined.
    Up to `settings.queueing.worker_limit` objects, or 100, are handled at the same time. Up to 100,000
    objects that have left or were deleted wait for a call; the log counts the ones above. No handler is
    called before all declared caches are synced or have failed, or while Kopf pauses the operator. After a
    cache has exceeded `max_bytes`, `old` has only the metadata of objects that leave.

    `errors`, `timeout`, `retries`, `backoff`, `param` and `id` are those of Kopf's handlers. There is no
    `patch`, `memo` or `diff`, and no `kopf.subhandler`.
    """
    require_kind(kind)
    key = checked_key(kind)
    flags = {
        ChangeCause.ENTERED: entered,
        ChangeCause.UPDATED: updated,
        ChangeCause.LEFT: left,
        ChangeCause.DELETED: deleted,
        ChangeCause.RESYNC: resync,
    }
    require_flags({**{str(cause): flag for cause, flag in flags.items()}, "initial": initial})
    causes = frozenset(cause for cause, flag in flags.items() if flag)
    if not causes:
        raise DeclarationError("on.change() has all causes turned off", remedy="Leave one of them True")
    require_options(options, where=where)
    selector, form = selector_of(labels, fields, namespace), declared_form(as_)

    def decorate(fn: _F) -> _F:
        require_handler(fn)
        handler = ChangeHandler(
            **kopf_options(fn, options),
            kind=key,
            causes=causes,
            selector=selector,
            where=where,
            initial=initial,
            form=form,
        )
        register(_HANDLERS, handler, options)
        return fn

    return decorate


def change_handlers(registry: _kopf.OperatorRegistry | None) -> Iterator[ChangeHandler]:
    """Yield the handlers of changes of a registry."""
    yield from () if registry is None else vars(registry).get(_HANDLERS, ())


def change_handlers_of(
    key: KindKey, registry: _kopf.OperatorRegistry | None, declared: Collection[KindKey]
) -> Iterator[ChangeHandler]:
    """Yield the handlers of changes of one declared kind."""
    keys = tuple(declared)  # The mapping itself would find other names of the same kind.
    return (each for each in change_handlers(registry) if declared_key(each.kind, keys) == key)


def undeclared_change_handlers(
    registry: _kopf.OperatorRegistry | None, declared: Collection[KindKey]
) -> Iterator[ChangeHandler]:
    """Yield the handlers of changes of kinds that are not declared. They may be declared later."""
    keys = tuple(declared)  # The mapping itself would find other names of the same kind.
    return (each for each in change_handlers(registry) if declared_key(each.kind, keys) is None)


def check_change_handlers(
    registry: _kopf.OperatorRegistry | None, declared: Mapping[KindKey, Branches]
) -> None:
    """Refuse handlers of changes that would never be called. `declared` are the filters of the caches. A kind
    that is not declared may be declared later.
    """
    for handler in change_handlers(registry):
        key = declared_key(handler.kind, declared)
        try:
            _require_overlap(handler, key or handler.kind, Selector() if key is None else declared[key])
        except (ConflictingSelectors, NotSelectable) as error:
            error.what = f"{handler}: {error.what}"
            raise


def _require_overlap(handler: ChangeHandler, key: KindKey, filter_: Branches) -> None:
    """Raise DeclarationError if a handler follows no object that the filter selects."""
    kind, name = find(key), text_of(handler.kind)
    if kind is not None and kind.namespaced is False and handler.selector.namespaces is not None:
        raise DeclarationError(
            f"{handler} has a namespace, but {name} are cluster-scoped: {handler.condition}",
            remedy="Leave namespace= out",
        )
    handler.selector.require_satisfiable(kind=kind)
    if kind is not None and in_any_namespace(filter_).disjoint(handler.selector, kind=kind):
        raise DeclarationError(
            f"{handler} is never called: it wants {name} with {handler.condition}, but the cache only has"
            f" {filter_}",
            remedy="Correct one of them",
        )


def declared_key(key: KindKey, declared: Collection[KindKey]) -> KindKey | None:
    """Return the declared key that means the same kind. Of custom resources, only the cluster knows the short
    names: a key that has one is not found.
    """
    if key in declared:
        return key
    kind = find(key)
    return next(
        (each for each in declared if find(each) is kind and (kind is not None or are_alike(key, each))), None
    )


if not TYPE_CHECKING:  # It would give all names a type.

    def __getattr__(name: str) -> Any:
        """Suggest the one decorator for any other name."""
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        remedy = "Write @selectcache.on.change(kind). Kopf's own decorators are in kopf.on"
        raise AttributeError(f"selectcache.on has no {name!r}. {remedy}")
