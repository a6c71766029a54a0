"""Turns the TypeError of a call that does not fit a function's signature into an error of this library.

Kopf retries a handler after a TypeError for ever, also a startup handler. Other TypeErrors pass unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from kopf_selectcache.core.redact import clipped

from .suggestions import near

_P = ParamSpec("_P")
_R = TypeVar("_R")


def check_call(
    error: Callable[..., Exception],
    called: str,
    *,
    instead: str = "",
    advise: Callable[[tuple[object, ...], Mapping[str, object]], str] = lambda *_: "",
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function raise this error for arguments that do not fit its signature.

    `called` is the name of the function as users write it, `instead` the remedy; by default the remedy lists
    the arguments, unless `advise` returns one for the arguments of the call.
    """

    def decorate(fn: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(fn)

        @wraps(fn)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return fn(*args, **kwargs)
            except TypeError:
                # Only a call that failed is compared with the signature: a call that fits costs nothing.
                reason = _misfit(signature, args, kwargs)
                if not reason:
                    raise
            remedy = instead or advise(args, kwargs) or _remedy(signature, kwargs, _options_of(fn, signature))
            raise error(f"{called}(): {reason}", remedy=remedy)

        return call

    return decorate


def is_async(fn: object) -> bool:
    """Return True if a call of this function, or object, has to be awaited. It counts as true otherwise."""
    while isinstance(fn, partial):
        fn = fn.func
    called = (fn, getattr(type(fn), "__call__", None))  # noqa: B004  # It may not have it.
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in called)


def miscalled(what: str, *, remedy: str) -> TypeError:
    """Return the error of a call that stays a TypeError, with the remedy."""
    return TypeError(f"{what}. {remedy}")


def _misfit(signature: inspect.Signature, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
    """Return why the arguments do not fit, in Python's words, or an empty text if they fit."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        return clipped(problem, 200)
    return ""


def _options_of(fn: Callable[..., object], signature: inspect.Signature) -> dict[str, str]:
    """Return the options that a function takes as `**options: Unpack[...]`, as they are written."""
    annotations = [each.annotation for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]
    named = [str(each).removeprefix("Unpack[").removesuffix("]") for each in annotations]
    taken = vars(inspect.getmodule(fn)).get(named[0]) if named else None
    return {name: f"{name}=" for name in getattr(taken, "__annotations__", {})}


def _remedy(signature: inspect.Signature, kwargs: Mapping[str, object], options: Mapping[str, str]) -> str:
    """List the arguments, and suggest one for the first that is unknown."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken = {
        name: f"{name}=" if each.kind is each.KEYWORD_ONLY else name
        for name, each in signature.parameters.items()
        if name != "self" and each.kind not in variable
    }
    taken |= options
    names = list(taken)
    unknown = next((name for name in kwargs if name not in names), None)
    meant = near(unknown, names) if unknown is not None else None
    return f"{f'Did you mean {meant}=? ' if meant else ''}It takes {', '.join(taken.values())}"
