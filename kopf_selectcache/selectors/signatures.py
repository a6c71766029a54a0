"""Turns the TypeError of a misfitting call into an error of this library: Kopf would retry it for ever."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial, wraps
from typing import ParamSpec, TypeAlias, TypeVar

from kopf_selectcache.core.redact import clipped


def near(word: str, known: Iterable[str], *, likeness: float = 0.7) -> str | None:
    """Return the known name that is most like the word, or None if none is that like (1.0 means equal)."""
    names = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower()[:100], names, n=1, cutoff=likeness)
    return names[found[0]] if found else None


_P = ParamSpec("_P")

_R = TypeVar("_R")

_E = TypeVar("_E", bound=Exception)

Advise: TypeAlias = Callable[[tuple[object, ...], Mapping[str, object], Mapping[str, object]], str]
"""Returns the remedy for positional arguments, unknown keywords and all keywords; or an empty text."""


def check_call(
    error: Callable[..., Exception], called: str, *, instead: str = "", advise: Advise = lambda *_: ""
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function raise this error for arguments that do not fit its signature.

    `called` is the name of the function as users write it, `instead` the remedy; by default the remedy names
    the argument that was meant, or lists all, unless `advise` returns one for the arguments of the call.
    """

    def decorate(fn: Callable[_P, _R]) -> Callable[_P, _R]:
        options = _options_of(fn)

        @wraps(fn)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                if options and not kwargs.keys() <= options:
                    raise TypeError  # noqa: TRY301  # It is explained below.
                return fn(*args, **kwargs)
            except TypeError:
                # Only a call that failed is compared with the signature: a call that fits costs nothing.
                found = misfit(fn, args, kwargs, instead=instead, advise=advise)
                if found is None:
                    raise
            reason, remedy = found
            raise error(f"{called}() {reason}", remedy=remedy)

        if options:  # For `help()` and editors.
            vars(call)["__signature__"] = signature_of(fn)
        return call

    return decorate


def misfit(
    fn: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    instead: str = "",
    advise: Advise = lambda *_: "",
) -> tuple[str, str] | None:
    """Return why the arguments do not fit the signature of a function, and the remedy; None if they fit.

    Parameters of the type Never take what does not fit. A function on a hot path has them in place of
    `check_call`, which takes longer.
    """
    signature = signature_of(fn)
    fitting = signature.parameters.values()
    taken = _taken(fitting)
    is_open = any(each.kind is each.VAR_KEYWORD for each in fitting)
    unknown = {} if is_open else {name: each for name, each in kwargs.items() if name not in taken}
    for name in unknown:  # Python would name a missing argument first.
        reason = f"got an unexpected keyword argument {clipped(repr(name), 200)}"
        meant = nearest_argument(name, taken)
        break
    else:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as problem:
            reason = clipped(problem, 200)
            reason = f"{'got' if reason.startswith('too many') else 'is'} {reason}"
        else:
            return None
        meant = None
    starred = (f"*{each.name}" for each in fitting if each.kind is each.VAR_POSITIONAL)
    listed = f"Did you mean {meant}=?" if meant else f"It takes {', '.join((*taken.values(), *starred))}"
    return reason, instead or advise(args, unknown, kwargs) or listed


_ELSEWHERE = {
    "body": "changes",
    "field_selector": "fields",
    "label_selector": "labels",
    "ns": "namespace",
    "patch": "changes",
    "selector": "labels",
}
"""Arguments of other clients, and those of this package that mean the same."""

FIELD_OR_PATH = (
    "fields= takes fields that the server can select by\n"
    "For any other path, reads and on.change take where={'spec.replicas': 3}"
)
"""The remedy for Kopf's `field=` and `value=`, which compare a path."""


def field_or_path(_: object, unknown: Mapping[str, object], __: object) -> str:
    """Return the remedy of a call with Kopf's `field=` or `value=`; an empty text for another call."""
    return FIELD_OR_PATH if unknown.keys() & {"field", "value"} else ""


def nearest_argument(unknown: str, known: Collection[str]) -> str | None:
    """Return the known argument that was probably meant, or None."""
    elsewhere = _ELSEWHERE.get(unknown)
    return elsewhere if elsewhere in known else near(unknown, known)


def is_async(fn: object) -> bool:
    """Return True if a call of this function, or object, has to be awaited. It counts as true otherwise."""
    while isinstance(fn, partial):
        fn = fn.func
    called = (fn, getattr(type(fn), "__call__", None))  # noqa: B004  # It may not have it.
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in called)


def refuse_awaitable(result: object, what: str) -> None:
    """Raise TypeError for a result of a plain function that somebody would have to await."""
    if inspect.isawaitable(result):
        if hasattr(result, "close"):
            result.close()
        raise TypeError(what)


def noted(error: _E, remedy: str) -> _E:
    """Return the error with each line of the remedy as a note."""
    for note in remedy.splitlines():
        error.add_note(note)
    return error


def miscalled(what: str, *, remedy: str) -> TypeError:
    """Return the error of a call that stays a TypeError, with each line of the remedy as a note."""
    return noted(TypeError(f"{what}."), remedy)


def no_attribute(what: str, *, remedy: str) -> AttributeError:
    """Return the error of an attribute that there is not, with the way out as a note."""
    return noted(AttributeError(f"{what}."), remedy)


class _Omitted:
    """Stands for the default of an option, in a signature."""

    def __repr__(self) -> str:
        return "..."


def signature_of(fn: Callable[..., object]) -> inspect.Signature:
    """Return the signature with each `**options: Unpack[...]`, and without parameters of the type Never."""
    signature, parameters = inspect.signature(fn), list[inspect.Parameter]()
    for each in signature.parameters.values():
        if each.kind is each.VAR_KEYWORD and (options := _unpacked(fn, each)):
            parameters += [
                inspect.Parameter(name, each.KEYWORD_ONLY, default=_Omitted(), annotation=annotation)
                for name, annotation in options.items()
            ]
        elif each.annotation != "Never":
            parameters.append(each)
    return signature.replace(parameters=parameters)


def _unpacked(fn: Callable[..., object], parameter: inspect.Parameter) -> dict[str, str]:
    """Return the annotations of the options that a parameter of the type `Unpack[...]` takes, by name."""
    named = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
    taken = vars(inspect.getmodule(fn)).get(named)
    return {
        name: getattr(each, "__forward_arg__", each)
        for name, each in getattr(taken, "__annotations__", {}).items()
    }


def _options_of(fn: Callable[..., object]) -> frozenset[str]:
    """Return all keywords of a function that takes `**options: Unpack[...]`; none of another function."""
    parameters = inspect.signature(fn).parameters.values()
    if not any(each.kind is each.VAR_KEYWORD and _unpacked(fn, each) for each in parameters):
        return frozenset()
    return frozenset(signature_of(fn).parameters)


def _taken(parameters: Iterable[inspect.Parameter]) -> dict[str, str]:
    """Return the arguments as they are written, by name."""
    return {
        each.name: f"{each.name}=" if each.kind is each.KEYWORD_ONLY else each.name
        for each in parameters
        if each.name != "self" and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    }
