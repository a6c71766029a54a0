"""Turns the TypeError of a call that does not fit a function's signature into an error of this library.

Kopf retries a handler after a TypeError for ever, also a startup handler. Other TypeErrors pass unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
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
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function raise this error for arguments that do not fit its signature.

    `called` is the name of the function as users write it, `instead` the remedy; by default the remedy lists
    the arguments.
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
            raise error(f"{called}(): {reason}", remedy=instead or _remedy(signature, kwargs))

        return call

    return decorate


def _misfit(signature: inspect.Signature, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
    """Return why the arguments do not fit, in Python's words, or an empty text if they fit."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        return clipped(problem, 200)
    return ""


def _remedy(signature: inspect.Signature, kwargs: Mapping[str, object]) -> str:
    """List the arguments, and suggest one for the first that is unknown."""
    names = [
        name
        for name, each in signature.parameters.items()
        if name != "self" and each.kind is not each.VAR_POSITIONAL
    ]
    unknown = next((name for name in kwargs if name not in names), None)
    meant = near(unknown, names) if unknown is not None else None
    return f"{f'Did you mean {meant}=? ' if meant else ''}It takes {', '.join(names)}"
