"""Checks `keep=`, `drop=`, `transform=` and `index=` of declarations. Knows no kind, and stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from inspect import Parameter, signature
from typing import cast

from kopf_selectcache._errors import DeclarationError, require
from kopf_selectcache.core.errors import BadPath
from kopf_selectcache.core.redact import shown
from kopf_selectcache.core.store.index_spec import PARTS, Indexed
from kopf_selectcache.core.store.projection import Path, Projection, Transform, as_written, keys_of
from kopf_selectcache.selectors.signatures import is_async

PATHS = (
    "Write keys with dots between them: 'spec.nodeName'\nIf a key has a dot, write a tuple:"
    " ('metadata', 'labels', 'app.kubernetes.io/name')"
)
"""The remedy for a path that is not written like this."""

_OF_PARTS = f"a plain function that takes of these what it needs: {', '.join(PARTS)}, **_"
_OTHERS = ("resource", "patch", "logger", "memo", "param", "retry", "started", "runtime")
"""The arguments of `@kopf.index` that an index of a cache does not have."""

_BY_NAME = "paths or functions by name: index={'node': 'spec.nodeName'}"


def wrong_path(path: Path) -> str | None:
    """Return why a path leads to nothing in any object, or None if it may lead to something."""
    keys = keys_of(path)
    if not keys or not all(keys):
        return "has an empty key"
    if isinstance(path, str):
        if not {*"[]{}$"}.isdisjoint(path):
            return "has brackets, but paths can't look inside lists"
        if keys[:2] in (("metadata", "labels"), ("metadata", "annotations")) and len(keys) > 3:
            return "has a label or annotation whose key has a dot"
    return None


def projection(
    *,
    keep: Collection[Path] | None = None,
    drop: Collection[Path] = (),
    transform: Transform | None = None,
    metadata_only: bool = False,
) -> Projection:
    """Return the projection; raise DeclarationError for paths that no object can have, and for a transform
    that is no function.

    >>> projection(drop=['data', ('metadata', 'annotations', 'example.com/notes')])
    Projection(drop=(('data',), ('metadata', 'annotations', 'example.com/notes')))
    >>> projection(drop=['metadata.name'])
    Traceback (most recent call last):
    kopf_selectcache.errors.DeclarationError: drop=['metadata.name'] would drop metadata.name, which is always
    kept. Take it out of drop=.
    """
    if not isinstance(metadata_only, bool):
        require(None, DeclarationError, "Cached()", "metadata_only", metadata_only, "True or False")
    if transform is not None:
        _require_function("transform", transform, "the part to store")
    chosen, dropped = None if keep is None else list(_paths("keep", keep)), list(_paths("drop", drop))
    try:
        return Projection.of(keep=chosen, drop=dropped, transform=transform, metadata_only=metadata_only)
    except BadPath as problem:
        name = "drop" if problem.path in map(keys_of, dropped) else "keep"
        raise DeclarationError(
            f"{name}=[{as_written(problem.path)!r}] {problem.reason}", remedy=f"Take it out of {name}="
        ) from None


def require_received(indexes: Collection[Indexed], projection: Projection) -> None:
    """Raise DeclarationError for an index of a path that the server does not send."""
    for each in indexes:
        if each.path is not None and not projection.has_field([each.path]):
            path = as_written(each.path)
            what = (
                f"index={{{each.name!r}: {path!r}}} isn't in the metadata, and metadata_only=True drops the"
                " rest"
            )
            raise DeclarationError(what, remedy="Leave out metadata_only=True\nLeave out the index")


def indexes(given: object, *, late: bool = False) -> tuple[Indexed, ...]:
    """Return the declared indexes; raise DeclarationError for one that is not valid.

    >>> indexes({'node': 'spec.nodeName'})
    (Indexed('node': 'spec.nodeName'),)
    """
    require(isinstance(given, Mapping), DeclarationError, "Cached()", "index", given, _BY_NAME)
    indexes = cast("Mapping[object, object]", given)
    return tuple(_index(name, by, late=late) for name, by in indexes.items())


def _index(name: object, by: object, *, late: bool) -> Indexed:
    require(
        isinstance(name, str) and name, DeclarationError, "Cached()", "the name of an index", name, _BY_NAME
    )
    what, name = f"index={{{shown(name)}: ...}}", cast("str", name)
    if not callable(by):
        require(isinstance(by, (str, tuple)), DeclarationError, "Cached()", what, by, "a path or a function")
        path = _checked(by, "index=", f"index={{{shown(name)}: {shown(by)}}}")
        return Indexed(name, keys_of(path), late=late)
    if by_parts := _takes_parts(by):
        _require_parts(what, by)
    else:
        _require_function(what, by, "a text, or a list of texts", by_parts=True)
    return Indexed(name, function=by, by_parts=by_parts, late=late)


def _takes_parts(given: Callable[..., object]) -> bool:
    """Return True if a function has `**`, and no argument for a whole object."""
    with suppress(ValueError):  # Of some built-in functions nothing is known.
        takes = signature(given).parameters.values()
        named = [each.name for each in takes if each.kind is not Parameter.VAR_KEYWORD]
        if len(named) < len(takes):
            return not named or not {*PARTS, *_OTHERS}.isdisjoint(named)
    return False


def _require_parts(argument: str, given: Callable[..., object]) -> None:
    """Raise DeclarationError unless a function can be called with the parts of an object."""
    reason = "a coroutine function" if is_async(given) else ""
    takes = signature(given)
    try:
        takes.bind(**dict.fromkeys(PARTS))
    except TypeError:
        reason = f"a function of {takes}"
    if reason:
        raise DeclarationError(f"Cached(): {argument} is {reason}", remedy=f"Give {_OF_PARTS}")


def _require_function(argument: str, given: object, returns: str, *, by_parts: bool = False) -> None:
    """Raise DeclarationError unless this is a plain function that can be called with an object alone. With
    `by_parts`, it might take the parts of an object as well.
    """
    wanted = f"a plain function of one object, as a dict, that returns {returns}"
    require(callable(given), DeclarationError, "Cached()", argument, given, wanted)
    reason, remedy = "a coroutine function" if is_async(given) else "", f"Give {wanted}"
    with suppress(ValueError):  # Of some built-in functions nothing is known.
        takes = signature(cast("Callable[..., object]", given))
        try:
            takes.bind({})
        except TypeError:
            reason = f"a function of {takes}"
            if by_parts and not {*PARTS}.isdisjoint(takes.parameters):
                remedy += f"\nGive {_OF_PARTS}"
    if reason:
        raise DeclarationError(f"Cached(): {argument} is {reason}", remedy=remedy)


def _paths(name: str, given: object) -> Iterator[Path]:
    is_list = isinstance(given, Collection) and not isinstance(given, (str, Mapping, bytes, bytearray))
    require(is_list, DeclarationError, "Cached()", name, given, f"a list of paths: {name}=['spec.nodeName']")
    for path in cast("Collection[object]", given):
        yield _checked(path, f"{name}=", f"{name}=[{shown(path)}]")


def _checked(path: object, argument: str, what: str) -> Path:
    """Return a path of an argument, where it is written as `what`; raise DeclarationError if it can lead
    nowhere.
    """
    is_path = all(isinstance(key, str) for key in (path if isinstance(path, tuple) else (path,)))
    if not is_path or (wrong := wrong_path(cast("Path", path))):
        reason = f"{what} {wrong}" if is_path else f"{argument} has {shown(path)}"
        raise DeclarationError(reason, remedy=PATHS)
    return cast("Path", path)
