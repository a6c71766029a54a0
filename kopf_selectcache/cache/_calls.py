"""Explains the calls of a cache that do not fit: Python would name private classes and no way out.

Calls that fit must not get slower. So reads that answer at once take what does not fit themselves, and the
others are wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from kopf_selectcache.selectors.signatures import check_call, miscalled, misfit, nearest_argument

_M = TypeVar("_M", bound=Callable[..., Any])

_CAUSES = ("entered", "updated", "left", "gone")
_SELECTING = ("label", "field", "names", "where", "sort_by", "limit", "index")

_OF_SEVERAL = {"get": "list", "exists": "count", "fetch": "fetch_list", "live.get": "live.list"}
"""The read of several objects, for each read of one."""

_INSTEAD = {
    "annotations": "Compare them by where={('metadata', 'annotations', 'example.com/key'): 'value'}",
    "owner": "For the objects of an owner, write cache.owned(owner, kind)",
    "value": "Compare values by where={'spec.nodeName': 'node01'}",
    "when": "Take those that you want from the answer: [obj for obj in cache.list(...) if ...]",
}
"""The remedies for arguments of Kopf's decorators, and of reads of other names."""


def explain_call(method: _M) -> _M:
    """Make a method of `Cache` or `Live` name its arguments in the TypeError of a call that does not fit."""
    verb = _verb_of(method)
    return cast("_M", check_call(miscalled, f"cache.{verb}", advise=partial(_advise, verb))(method))


def public_name(method: _M) -> _M:
    """Give a method of `Reads` the name that users know: Python writes it if an argument is missing."""
    method.__qualname__ = f"cache.{method.__name__}"
    return method


def misuse(method: Callable[..., object], /, *args: object, **kwargs: object) -> TypeError:
    """Return the error of a call with arguments that a method of `Reads` does not have."""
    verb = method.__name__
    found = misfit(method, args, kwargs, advise=partial(_advise, verb))
    assert found is not None, "an argument does not fit"
    reason, remedy = found
    return miscalled(f"cache.{verb}(): {reason}", remedy=remedy)


def _verb_of(method: Callable[..., object]) -> str:
    return f"{'live.' if method.__qualname__.startswith('Live.') else ''}{method.__name__}"


def _advise(verb: str, _: tuple[object, ...], unknown: Mapping[str, object]) -> str:
    if verb == "changes" and any(name in _CAUSES for name in unknown):
        return "Causes are options of @selectcache.on.change; here look at `change.cause`"
    if verb in _OF_SEVERAL and any(nearest_argument(name, _SELECTING) for name in unknown):
        return f"To select objects, write cache.{_OF_SEVERAL[verb]}(kind, label=...)"
    return next((_INSTEAD[name] for name in unknown if name in _INSTEAD), "")
