"""Calls that fit no signature, told with the call to write instead. Makes errors of Python's own TypeError;
hides no other.

Kopf tries again after a plain TypeError, for ever: in a startup handler once a minute, with nothing said of
what to write.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from kopf_selectcache.core.redact import clipped

_P = ParamSpec("_P")
_R = TypeVar("_R")


def near(word: str, known: Iterable[str]) -> str | None:
    """Return which of the known words was probably meant, if one was."""
    plain = {each.lower(): each for each in known}
    word = word.lower()[:100]
    found = difflib.get_close_matches(word, plain, n=1, cutoff=0.7)
    # `label_selector` for `label`, `sort` for `sort_by`.
    alike = [
        each
        for each in plain
        if min(len(each), len(word)) > 3 and (each.startswith(word) or word.startswith(each))
    ]
    return plain[(found or alike)[0]] if found or alike else None


def taught(
    error: Callable[..., Exception],
    called: str,
    *,
    instead: str = "",
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function raise this error for arguments that it does not take.

    `called` is how users write it; `instead` is what to write, where the names of the arguments do not say
    it.
    """

    def decorate(fn: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(fn)
        spelt = f"await {called}" if inspect.iscoroutinefunction(fn) else called

        @wraps(fn)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return fn(*args, **kwargs)
            except TypeError:
                try:
                    signature.bind(*args, **kwargs)
                except TypeError:
                    pass  # Looked at only now: calls that fit cost nothing.
                else:
                    raise
            what, remedy = _misfit(signature, spelt, args, kwargs)
            raise error(what, remedy=instead or remedy)

        return call

    return decorate


def written(
    called: str, signature: inspect.Signature, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> str:
    """Write a method's call as Python. Texts are shown but for a default, which is a value of somebody's."""
    parameters = list(signature.parameters)
    shown = [_shown(name, value) for name, value in zip(parameters, args, strict=False) if name != "self"]
    return f"{called}({', '.join([*shown, *(f'{name}={_shown(name, value)}' for name, value in kwargs.items())])})"  # noqa: E501


_OTHERS = {"ns": "namespace", "selector": "label"}
"""What users of other clients write for arguments, in which no letters are alike."""


_ELSEWHERE = {
    (
        "fetch_list",
        "index",
    ): (
        "The server has no such index: compare with where={{...}}; or, of what is held, read cache.held(...,"
        " index={{...}})"
    ),
    ("fetch_list", "keys_only"): "Ask what it returns: ({called}(...)).keys()",
}
"""What to write for arguments that others take."""


_BY_NAME = "; one object is field='metadata.name=...'"


def _instead(name: str, value: object, free: Collection[str]) -> tuple[str, object] | None:
    """Return the argument that is certainly meant by an unknown one, and its value, where the value is to be
    another.
    """
    if f"{name}s" in free and isinstance(value, str):
        return f"{name}s", [value]
    one = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
    if name in ("name", "names") and _knows_no_names(free) and isinstance(one, str):
        return "field", f"metadata.name={one}"
    return (_OTHERS[name], value) if _OTHERS.get(name) in free else None


def _knows_no_names(by_name: Collection[str]) -> bool:
    """Whether a name can be asked for as a field alone."""
    return "field" in by_name and not {"name", "names"} & set(by_name)


def _shown(name: str, value: object) -> str:
    if value is None or (
        isinstance(value, list)
        and name != "default"
        and len(value) < 10
        and all(isinstance(each, str) for each in value)
    ):
        return clipped(repr(value), 100)
    if isinstance(value, type):
        return value.__name__
    return repr(clipped(value, 100)) if isinstance(value, str) and name != "default" else "..."


def _misfit(
    signature: inspect.Signature,
    called: str,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> tuple[str, str]:
    """Say what is wrong with the arguments, and what to write."""
    # `**default: Any` is one argument, which may be None; others are of any name.
    at_will = [
        name
        for name, each in signature.parameters.items()
        if each.kind is each.VAR_KEYWORD and each.annotation != "Any"
    ]
    any_name = ["name=..." for _ in at_will]
    taken = {name: each for name, each in signature.parameters.items() if name not in ("self", *at_will)}
    given = args["self" in signature.parameters :]
    by_position = [name for name, each in taken.items() if each.kind is not each.KEYWORD_ONLY]
    by_name = [name for name, each in taken.items() if each.kind is not each.POSITIONAL_ONLY]
    bare = called.removeprefix("await ")
    if unknown := [name for name in kwargs if name not in by_name and not at_will]:
        free = [name for name in by_name if name not in kwargs]
        instead = _instead(unknown[0], kwargs[unknown[0]], free)
        # Names of objects are no namespaces, however alike the words are.
        alike = [
            each for each in free if unknown[0] not in ("name", "names") or not each.startswith("namespace")
        ]
        meant = instead[0] if instead is not None else near(unknown[0], alike)
        what = f"{bare}() knows no {clipped(unknown[0], 100)}="
        if elsewhere := _ELSEWHERE.get((bare.rpartition(".")[2], unknown[0])):
            return what, elsewhere.format(called=called)
        if meant is None:
            return what, f"It takes {', '.join(by_name)}{_BY_NAME if _knows_no_names(by_name) else ''}"
        given_as = {meant: instead[1] if instead is not None else kwargs[unknown[0]]}
        mended = {**{name: value for name, value in kwargs.items() if name != unknown[0]}, **given_as}
        return what, f"Did you mean {meant}=? Write: {written(called, signature, args, mended)}"
    if len(given) > len(by_position):
        what = (
            f"{bare}() was given {len(given)} arguments by position, and takes {len(by_position)}:"
            f" {', '.join(by_position)}"
        )
        named = [f"{name}=..." for name in by_name if name not in by_position] + any_name
        hint = _BY_NAME if _knows_no_names(by_name) else ""
        if named and len(given) == len(by_position) + 1 and not at_will:
            is_label = (
                "label=..." in named
                and isinstance(given[-1], str)
                and not given[-1].replace("-", "").isalnum()
            )
            name, last = "label" if is_label else named[0].removesuffix("=..."), given[-1]
            if (
                name == "field"
                and "namespaces=..." in named
                and "namespaces" not in kwargs
                and isinstance(last, str)
                and "=" not in last
            ):
                name, last = "namespaces", [last]  # Without an operator it cannot be a field selector.
            mended = {name: last, **kwargs}
            return what, f"Write: {written(called, signature, args[:-1], mended)}{'' if is_label else hint}"
        return (
            what,
            (
                f"Name the others: {called}({', '.join([*by_position, *named])}){hint}"
                if named
                else f"Write: {called}({by_position[0]})"
            ),
        )
    if twice := [name for name in by_position[: len(given)] if name in kwargs]:
        return f"{bare}() was given {twice[0]} twice, by position and by name", "Leave one of them out"
    needed = [name for name, each in taken.items() if each.default is each.empty]
    missing = [name for name in needed if name not in kwargs and name not in by_position[: len(given)]]
    return (
        f"{bare}() was not given {' and '.join(missing)}",
        f"Write: {called}({', '.join([*needed, *any_name])})",
    )
