"""Checks `keep=`, `drop=`, `transform=` and `index=` of declarations. Knows no kind, and stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from inspect import iscoroutinefunction, signature

from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.core.errors import BadPath
from kopf_selectcache.core.redact import shown, shown_with_type
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.projection import Path, Projection, Transform, as_written, keys_of

PATHS = (
    "Write keys with dots between them, 'spec.nodeName', or a tuple where a key has a dot itself:"
    " ('metadata', 'labels', 'app.kubernetes.io/name')"
)
"""The remedy for a path that is not written like this."""


def wrong_path(path: Path) -> str | None:
    """Return why a path leads to nothing in any object, or None if it may lead to something."""
    keys = keys_of(path)
    if not keys or not all(keys):
        return "has no key, or an empty one"
    if isinstance(path, str):
        if not {*"[]{}$"}.isdisjoint(path):
            return "is no path: keys have no brackets, and no index leads into a list"
        if keys[:2] in (("metadata", "labels"), ("metadata", "annotations")) and len(keys) > 3:
            return "has the key of a label or annotation with a dot, which ends a key"
    return None


def projection(
    *, keep: Collection[Path] | None = None, drop: Collection[Path] = (), transform: Transform | None = None
) -> Projection:
    """Return the projection; raise DeclarationError for paths that no object can have, and for a transform
    that is no function.

    >>> projection(drop=['data', ('metadata', 'annotations', 'example.com/notes')])
    Projection(drop=(('data',), ('metadata', 'annotations', 'example.com/notes')))
    >>> projection(drop=['metadata.name'])
    Traceback (most recent call last):
    kopf_selectcache.errors.DeclarationError: drop=['metadata.name'] would drop metadata.name, which is always kept. ...
    """  # A line of an example is not broken.  # noqa: E501
    if transform is not None and (not callable(transform) or iscoroutinefunction(transform)):
        raise DeclarationError(
            f"transform= is {'a coroutine function' if callable(transform) else shown_with_type(transform)}",
            remedy=(
                "Give it a plain function that takes an object, as a dict, and returns the part to store"
            ),
        )
    if transform is not None:
        _refuse_unlike_transform(transform, "transform=", "that returns the part to store")
    chosen, dropped = None if keep is None else list(_paths("keep", keep)), list(_paths("drop", drop))
    try:
        return Projection.of(keep=chosen, drop=dropped, transform=transform)
    except BadPath as problem:
        name = "drop" if problem.path in map(keys_of, dropped) else "keep"
        raise DeclarationError(
            f"{name}=[{as_written(problem.path)!r}] {problem.reason}", remedy=f"Take it out of {name}="
        ) from None


def indexes(given: object, *, late: bool = False, within: str = "index=") -> tuple[Indexed, ...]:
    """Return the declared indexes; raise DeclarationError for one that is not valid.

    >>> indexes({'node': 'spec.nodeName'})
    (Indexed(name='node', path=('spec', 'nodeName'), function=None, late=False),)
    """
    if not isinstance(given, Mapping):
        raise DeclarationError(
            f"{within} is {shown_with_type(given)}",
            remedy="Write a dict of paths or functions by name: index={'node': 'spec.nodeName'}",
        )
    return tuple(_index(name, by, late=late) for name, by in given.items())


def _index(name: object, by: object, *, late: bool) -> Indexed:
    if not isinstance(name, str) or not name:
        raise DeclarationError(
            f"index= has the name {shown_with_type(name)}", remedy="Write index={'node': 'spec.nodeName'}"
        )
    what = f"index={{{shown(name)}: ...}}"
    if not callable(by):
        if not isinstance(by, (str, tuple)):
            raise DeclarationError(
                f"{what} is {shown_with_type(by)}",
                remedy=f"Write index={{{shown(name)}: 'spec.nodeName'}}, or give it a function of an object",
            )
        return Indexed(
            name, keys_of(_checked(by, "index=", f"index={{{shown(name)}: {shown(by)}}}")), late=late
        )
    if iscoroutinefunction(by):
        raise DeclarationError(
            f"{what} is a coroutine function",
            remedy=(
                "Give it a plain function that takes an object, as a dict, and returns a text, or a list of"
                " texts"
            ),
        )
    _refuse_unlike_transform(by, what, "that returns a text, or a list of texts")
    return Indexed(name, function=by, late=late)


def _refuse_unlike_transform(transform: Callable[..., object], what: str, which: str) -> None:
    """Raise DeclarationError if this can never be called with an object alone."""
    try:
        takes = signature(transform)
    except ValueError:  # Of some built-in functions nothing is known.
        return
    try:
        takes.bind({})
    except TypeError:
        raise DeclarationError(
            f"{what} is a function of {takes}, and is called with one object",
            remedy=f"Give it a function of one object, as a dict, {which}",
        ) from None


def _paths(name: str, given: object) -> Iterator[Path]:
    if isinstance(given, str):
        raise DeclarationError(
            f"{name}= is the text {shown(given)}", remedy=f"Write a list of paths: {name}=[{shown(given)}]"
        )
    if not isinstance(given, Collection) or isinstance(given, (Mapping, bytes, bytearray)):
        raise DeclarationError(
            f"{name}= is {shown_with_type(given)}",
            remedy=f"Write a list of paths, such as {name}=['spec.nodeName']",
        )
    for path in given:
        yield _checked(path, f"{name}=", f"{name}=[{shown(path)}]")


def _checked(path: object, argument: str, what: str) -> Path:
    """Return a path of an argument, where it is written as `what`; raise DeclarationError if it can lead
    nowhere.
    """
    if not isinstance(path, str) and not (
        isinstance(path, tuple) and all(isinstance(key, str) for key in path)
    ):
        raise DeclarationError(f"{argument} has {shown_with_type(path)}", remedy=PATHS)
    if wrong := wrong_path(path):
        raise DeclarationError(f"{what} {wrong}", remedy=PATHS)
    return path
