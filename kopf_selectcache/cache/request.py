"""How a read is written as Python: as it was called, and as what to call instead. Knows the words of no
error, and reads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from kopf_selectcache._errors import DeclarationError, UnknownKind
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.selectors.kind_keys import AnyKey, as_given, key_of
from kopf_selectcache.selectors.selector import Selector

_NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


class One(NamedTuple):
    """A read of one object."""

    verb: str
    kind: AnyKey
    resource: Resource
    name: str
    namespace: str | None
    sync: bool = False
    """Whether a sync handler reads."""
    options: Mapping[str, object] = _NO_OPTIONS
    """What else it was given: what is advised instead keeps it."""

    @property
    def where(self) -> str:
        """Say in which namespace."""
        return f" in {self.namespace}" if self.namespace is not None else ""

    @property
    def request(self) -> Selector:
        """Return what is asked for, as a selector."""
        return Selector(
            names=[self.name], namespaces=[self.namespace] if self.namespace is not None else None
        )

    def __str__(self) -> str:
        return f"{self.resource} {self.name}{self.where}"

    def call(self, verb: str | None = None, *more: str) -> str:
        """Write the read as Python, with another verb perhaps."""
        return _of_one(
            verb or self.verb,
            self.kind,
            self.name,
            self.namespace,
            *more,
            sync=self.sync,
            options=self.options,
        )

    def bare(self) -> str:
        """Write the read without its arguments, one of which may be anything."""
        return _bare(self.verb, self.kind, sync=self.sync)


class Many(NamedTuple):
    """A read of several objects."""

    verb: str
    kind: AnyKey
    resource: Resource
    request: Selector
    sync: bool = False
    """Whether a sync handler reads."""
    options: Mapping[str, object] = _NO_OPTIONS
    """What else it was given: what is advised instead keeps it, or it would be another question."""

    @property
    def where(self) -> str:
        """Say in which namespaces."""
        return f" in {', '.join(self.request.namespaces)}" if self.request.namespaces is not None else ""

    def __str__(self) -> str:
        return f"{self.resource}{self.where}"

    def call(self, verb: str | None = None, request: Selector | None = None) -> str:
        """Write the read as Python, with another verb or request perhaps."""
        return _of_many(
            verb or self.verb, self.kind, request or self.request, sync=self.sync, options=self.options
        )

    def bare(self) -> str:
        """Write the read without its arguments, one of which may be anything."""
        return _bare(self.verb, self.kind, sync=self.sync)


_OF_ONE = frozenset({"get", "exists", "fetch", "gone"})
_FETCHED = {
    "get": "fetch",
    "exists": "fetch",
    "fetch": "fetch",
    "gone": "fetch",
    "wait_for": "",
    "explain": "",
    "age": "",
    "audit": "",
    "scope": "",
    "stats": "",
    "add_index": "",
}
"""What asks the server instead; of what returns several objects, it is `fetch_list`."""


class Read(NamedTuple):
    """A read as it was called, before anything is known of its kind: perhaps it makes no sense."""

    verb: str
    kind: AnyKey
    request: Selector | None = None
    name: object = None
    namespace: object = None
    sync: bool = False
    options: Mapping[str, object] = _NO_OPTIONS

    def call(self) -> str:
        """Write the read as Python."""
        if self.verb == "owned":
            return _of_many(self.verb, self.kind, Selector(), sync=self.sync, options=self.options)
        return self._written(self.verb, self.options)

    def bare(self) -> str:
        """Write the read without its arguments, one of which may be anything."""
        return _bare(self.verb, self.kind, sync=self.sync)

    def of_server(self, **more: object) -> str:
        """Write what asks the server instead, with these options as well; nothing if nothing does."""
        options = {**self.options, **more}
        verb = _FETCHED.get(self.verb, "fetch_list")
        match self.verb:
            case "exists":
                return f"({self._written(verb, {**options, 'default': None})}) is not None"
            case "count":
                return f"len({self._written(verb, options)})"
            case "owned":
                return f"[each for each in {self._written(verb, options)} if ...]"
            case _:
                return self._written(verb, options) if verb else ""

    def as_filter(self) -> str:
        """Write a filter that would hold what is asked for; nothing if that is everything, or nothing at
        all.
        """
        with suppress(DeclarationError):
            request = self._request()
            if any(
                (request.label, request.field)
            ):  # Where it is asked for in one namespace, it will be in others.
                request = replace(request, namespaces=None)
            if request != Selector() and request.contradiction() is None:
                return clipped(
                    repr(str(request.label)) if request == Selector(request.label) else repr(request), 500
                )
        return ""

    def _request(self) -> Selector:
        if self.request is not None:
            return self.request
        return Selector(
            names=[self.name] if self.name is not None else None,  # type: ignore[list-item]  # It is checked.
            namespaces=[self.namespace] if self.namespace is not None else None,  # type: ignore[list-item]
        )  # It is checked.

    def _written(self, verb: str, options: Mapping[str, object]) -> str:
        if self.verb in _OF_ONE:
            if isinstance(self.name, str) and isinstance(self.namespace, str | None):
                return _of_one(
                    verb, self.kind, clipped(self.name, 300), self.namespace, sync=self.sync, options=options
                )
            return _bare(verb, self.kind, sync=self.sync)
        with suppress(DeclarationError):
            return clipped(_of_many(verb, self.kind, self._request(), sync=self.sync, options=options), 500)
        return _bare(verb, self.kind, sync=self.sync)


def bare(verb: str, kind: object) -> str:
    """Write a read of which nothing is known to make sense but its name."""
    with suppress(UnknownKind):
        key_of(kind)
        # It is one: this was no error.
        return f"cache.{verb}({as_given(kind)}, ...)"  # type: ignore[arg-type]
    return f"cache.{verb}()"


def _bare(verb: str, kind: AnyKey, *, sync: bool) -> str:
    return f"{method(verb, sync=sync)}({as_given(kind)}, ...)"


def _of_one(
    verb: str,
    kind: AnyKey,
    name: str,
    namespace: str | None,
    *more: str,
    sync: bool,
    options: Mapping[str, object],
) -> str:
    given = [
        as_given(kind),
        repr(name),
        *([repr(namespace)] if namespace is not None else []),
        *more,
        *_written(options),
    ]
    return f"{method(verb, sync=sync)}({', '.join(given)})"


def _of_many(verb: str, kind: AnyKey, request: Selector, *, sync: bool, options: Mapping[str, object]) -> str:
    if verb == "owned":
        return f"cache.owned({', '.join(['owner', as_given(kind), *_written(options)])})"
    parts = [as_given(kind), *(["predicate"] if verb == "wait_for" else [])]
    if verb.startswith("fetch"):  # Only a cache has indexes.
        options = {name: value for name, value in options.items() if name != "index"}
    parts += [
        f"{each}={str(value)!r}"
        for each in ("label", "field")
        if (value := getattr(request, each)) is not None
    ]
    parts += [f"names={list(request.names)}"] if request.names is not None else []
    if request.namespaces is not None:
        parts.append(f"namespace={_one_or_list(request.namespaces)!r}")
    return f"{method(verb, sync=sync)}({', '.join([*parts, *_written(options)])})"


def _written(options: Mapping[str, object]) -> list[str]:
    """Write what else a read was given as Python; without values that may be those of a Secret, or
    functions.
    """
    texts = {}
    for name, value in options.items():
        if name == "default":
            texts[name] = "None" if value is None else "..."
        elif name in ("where", "index"):
            paths = ", ".join(f"{shown(path)}: ..." for path in value) if isinstance(value, Mapping) else ""
            texts |= {name: f"{{{paths}}}"} if paths else {}
        elif isinstance(value, type):
            texts[name] = value.__name__
        elif value is not None and value is not False:
            texts[name] = "..." if callable(value) else shown(value)
    return [f"{name}={text}" for name, text in texts.items()]


def _one_or_list(values: tuple[str, ...]) -> str | list[str]:
    return values[0] if len(values) == 1 else list(values)


def method(verb: str, *, sync: bool) -> str:
    """Write the name of a read, as async handlers or sync ones call it."""
    if not verb.startswith(("fetch", "gone", "wait", "audit", "add")):
        return f"cache.{verb}"
    return f"cache.blocking.{verb}" if sync else f"await cache.{verb}"
