"""Checks the arguments of the decorators of handlers that the caches call, and the decorated functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple, TypedDict

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import BadSelector, DeclarationError, ReadError, require
from kopf_selectcache.cache.access import require_stored
from kopf_selectcache.cache.formats.formats import Form, form_of
from kopf_selectcache.cache.matcher import Field, Label, Namespaces
from kopf_selectcache.cache.request import Request, require_where
from kopf_selectcache.core.redact import shown
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource, find, parse_key
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.selectors.selector import Selector, listed_namespaces
from kopf_selectcache.selectors.signatures import FIELD_OR_PATH

from .handlers import is_decorated, refuse_async_object

CALL = "on.change()"

NAMES = frozenset(
    {
        "annotations",
        "body",
        "cache",
        "cause",
        "events",
        "filter_changed",
        "initial",
        "known_by",
        "labels",
        "logger",
        "meta",
        "name",
        "namespace",
        "new",
        "old",
        "param",
        "retry",
        "runtime",
        "spec",
        "started",
        "status",
        "uid",
    }
)
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
