"""Explains calls that do not fit, and attributes where keys are meant: Python alone would name private
classes, and no way out.

Calls that fit must not get slower. So reads that answer at once take what does not fit themselves, and other
methods are wrapped.
"""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from kopf_selectcache._kopf import Body, Meta, Spec, Status
from kopf_selectcache.core.redact import shown
from kopf_selectcache.selectors.signatures import (
    FIELD_OR_PATH,
    check_call,
    miscalled,
    misfit,
    nearest_argument,
    signature_of,
)

from .formats.formats import RAISE
from .formats.views import Objects
from .request import CHECK_NAMESPACE, written_call

_M = TypeVar("_M", bound=Callable[..., Any])

# ---- Calls that do not fit.

_CAUSES = ("entered", "updated", "left", "deleted")
_SELECTING = ("labels", "fields", "names", "where", "sort_by", "limit", "index")
_COMPARING = ("annotations", "field", "new", "old", "value")
"""The filters of Kopf's decorators that compare values."""

_OF_SEVERAL = {"get": "list", "exists": "count", "fetch": "fetch_list", "live.get": "live.list"}
"""The read of several objects, for each read of one."""

_INSTEAD = {
    "annotations": "Compare them by where={('metadata', 'annotations', 'example.com/key'): 'value'}",
    "owner": "To list the objects of an owner: cache.list_cached(kind, owner=...)",
    **dict.fromkeys(("field", "value"), FIELD_OR_PATH),
    **dict.fromkeys(("new", "old"), "Compare values by where={'spec.nodeName': 'node01'}"),
    "when": "Filter the answer: [obj for obj in cache.list(...) if ...]",
}
"""The remedies for arguments of Kopf's decorators, and of reads of other names."""


def explain_call(method: _M) -> _M:
    """Make a method of `Cache` or `Live` name its arguments in the TypeError of a call that does not fit."""
    verb = _verb_of(method)
    explained = check_call(miscalled, f"cache.{verb}", advise=partial(_advise, method))(method)
    return cast("_M", with_signature(explained, of=method))


def public_name(method: _M) -> _M:
    """Give a method of `Reads` the name that users know: Python writes it if an argument is missing."""
    method.__qualname__ = f"cache.{method.__name__}"
    return with_signature(method, of=method)


def with_signature(method: _M, *, of: Callable[..., object]) -> _M:
    """Have `help()` and editors show each option of a method."""
    vars(method)["__signature__"] = signature_of(of)
    return method


def same_types(_: _M) -> Callable[[Callable[..., Any]], _M]:
    """Have type checkers see a method with the overloads of another one."""
    return lambda method: cast("_M", method)


def misuse(method: Callable[..., object], /, *args: object, **kwargs: object) -> TypeError:
    """Return the error of a call with arguments that a method of `Reads` does not have."""
    verb = method.__name__
    found = misfit(method, args, kwargs, advise=partial(_advise, method))
    assert found is not None, "an argument does not fit"
    reason, remedy = found
    return miscalled(f"cache.{verb}() {reason}", remedy=remedy)


def _verb_of(method: Callable[..., object]) -> str:
    return f"{'live.' if method.__qualname__.startswith('Live.') else ''}{method.__name__}"


_NAMING = ("live.delete", "live.get", "live.patch", "live.update")
"""Methods of `Live` that take the name of an object."""


def naming(verb: str, kind: object) -> str:
    """Return what to write for an object in place of its names; an empty text if there is none."""
    if verb not in _NAMING or not isinstance(kind, Mapping):
        return ""
    return f"Name the object: {written_call(verb, None, None)}"


def _advise(
    method: Callable[..., object],
    args: tuple[object, ...],
    unknown: Mapping[str, object],
    given: Mapping[str, object],
) -> str:
    verb = _verb_of(method)
    if named := naming(verb, args[1] if len(args) > 1 else None):
        return named
    if _has_positional_namespace(method, args):
        options = {
            name: each
            for name, each in given.items()
            if name not in ("changes", "function", "namespace") and each is not RAISE
        }
        check = f"\n{CHECK_NAMESPACE}" if all(isinstance(each, str) for each in args[2:4]) else ""
        kind, name, namespace = args[1:4]
        return f"Write: {written_call(verb, kind, name, namespace, options)}{check}"
    if selecting := _selecting(method, args, unknown):
        return f"Write: cache.{verb}({shown(args[1])}, {selecting})"
    if verb == "changes" and any(name in _CAUSES for name in unknown):
        return "Look at `change.cause`. Only @selectcache.on.change takes causes as options"
    if verb in _OF_SEVERAL and any(
        name in _COMPARING or nearest_argument(name, _SELECTING) for name in unknown
    ):
        return f"To select objects: cache.{_OF_SEVERAL[verb]}(kind, labels=...)"
    has_where = "where" in signature_of(method).parameters
    usable = (name for name in unknown if name in _INSTEAD and (has_where or name not in _COMPARING))
    return next(map(_INSTEAD.__getitem__, usable), "")


def _selecting(method: Callable[..., object], args: tuple[object, ...], unknown: Mapping[str, object]) -> str:
    """Return the filter that was given in another way than the method takes it; empty for other calls."""
    parameters = signature_of(method).parameters
    if len(args) < 2 or not isinstance(args[1], str):
        return ""
    if "filter" in parameters:
        found = ((nearest_argument(name, _SELECTING[:3]), value) for name, value in unknown.items())
        name, value = next(((name, value) for name, value in found if name is not None), ("", None))
        if not name:
            return ""
        return shown(value) if name == "labels" and isinstance(value, str) else f"Selector({name}=...)"
    if (
        len(args) != 3
        or "namespace" not in parameters
        or "name" in parameters
        or not isinstance(args[2], str)
    ):
        return ""
    return f"{'labels' if '=' in args[2] else 'namespace'}={shown(args[2])}"


def _has_positional_namespace(method: Callable[..., object], args: tuple[object, ...]) -> bool:
    parameters = inspect.signature(method).parameters
    if len(args) < 4 or not {"name", "namespace"} <= parameters.keys():
        return False
    return isinstance(args[3], str | None) or not {"changes", "function"} & parameters.keys()


# ---- Errors of Python itself in handlers. Plain dicts are decoded fastest, and cannot explain themselves.

_VIEWS = (Body, Meta, Spec, Status)
_OF_VIEWS = ("metadata", "spec", "status")

_NOT_AWAITED = re.compile(r"\bawait\s+cache\.(get|list|list_cached|list_outside|count|exists|info|explain)\(")
"""Reads that answer at once, where they are awaited."""


def _explain_type(error: TypeError) -> None:
    """Add a note to an error of Python or json, whose place is the line that raised it."""
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    source = linecache.getline(*places[-1]) if places else ""
    if "await" in str(error) and (found := _NOT_AWAITED.search(source)):
        error.add_note(f"cache.{found[1]}() needs no await")
    if str(error).startswith("Object of type Objects is not JSON"):
        error.add_note("Write: json.dumps(list(found))")


def explain_attribute(error: Exception) -> None:
    """Add a note that says what to write, if Python's error is about an attribute, an `await`, or JSON."""
    if type(error) is TypeError:
        _explain_type(error)
    if not isinstance(error, AttributeError) or not error.name:
        return
    if isinstance(error.obj, Objects):
        error.add_note("It is a sequence. Write: for obj in cache.list(...), or cache.list(...)[0]")
    elif isinstance(error.obj, (dict, *_VIEWS)) and (key := _key_of(error.obj, error.name)) is not None:
        view = type(error.obj) is dict and key in _OF_VIEWS
        also = f", or read the object with as_='view', which has .{key}" if view else ""
        error.add_note(f"It is a dict. Write: [{key!r}]{also}")


def _key_of(obj: Mapping[Any, object], name: str) -> str | None:
    """Return the key that an attribute means, also one of clients that write `node_name` for `nodeName`."""
    if name in _OF_VIEWS and "metadata" in obj:
        return name  # The object may have no status yet.
    wanted = name.replace("_", "").lower()
    return next((key for key in obj if isinstance(key, str) and key.lower() == wanted), None)
