"""Checks of options, paths and indexes: each returns the complaint and the remedy, or None; and sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from inspect import Parameter, signature
from typing import TypeAlias, cast, get_args

from kopf_selectcache._errors import DeclarationError, require
from kopf_selectcache.core.errors import BadPath
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.store.index_spec import PARTS, Indexed
from kopf_selectcache.core.store.packing import Storage
from kopf_selectcache.core.store.projection import Path, Projection, Transform, as_written, keys_of
from kopf_selectcache.selectors.signatures import is_async, near
from kopf_selectcache.selectors.text import EVERYTHING, Everything

Size: TypeAlias = int | str
"""Bytes, or a quantity as Kubernetes writes them: `'200Mi'`."""

MIN_BUDGET_BYTES = 64 * 1024
"""A smaller budget is a mistake, such as `'200'` for `'200Mi'`."""

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(|[kMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})")


def bytes_in(size: Size) -> int | None:
    """Return the number of bytes; None if the size is invalid.

    >>> [bytes_in(size) for size in (65536, '200Mi', '1.5G', '200MB')]
    [65536, 209715200, 1500000000, None]
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    if not isinstance(size, str) or (found := _QUANTITY.fullmatch(size)) is None:
        return None
    unit = {**_BINARY, **_DECIMAL}.get(found[2])
    return int(Decimal(found[1]) * unit if unit is not None else Decimal(found[0]))


def complaint(size: object) -> tuple[str, str] | None:
    """Return what is wrong with a budget and the remedy, or None if it is a budget."""
    if size is None:
        return None
    found = bytes_in(size) if isinstance(size, (int, str)) else None
    if found is not None and found >= MIN_BUDGET_BYTES:
        return None
    wrong = "not a number of bytes" if found is None else f"below the minimum of {MIN_BUDGET_BYTES:,} bytes"
    return wrong, "Write a quantity such as '200Mi', a number of bytes, or None for no limit"


def readable(size: float) -> str:
    """Return bytes for people.

    >>> [readable(size) for size in (1, 1023, 1127, 209715200)]
    ['1 B', '1,023 B', '1.1 KiB', '200 MiB']
    """
    return f"{size:,.0f} B" if size < 1024 else re.sub("([A-Z]i)$", r" \1B", written(size))


def written(size: float) -> str:
    """Return bytes as a quantity of Kubernetes, for an option such as `max_bytes=`.

    >>> [written(size) for size in (500, 209715200, 1610612736)]
    ['0.5Ki', '200Mi', '1.5Gi']
    """
    unit = max(
        (unit for unit, each in _BINARY.items() if size >= each), key=_BINARY.__getitem__, default="Ki"
    )
    return f"{size / _BINARY[unit]:.1f}".removesuffix(".0") + unit


MAX_SECONDS = 24 * 60 * 60.0
"""The longest time that an option may have. A longer one is a mistake, such as a number of milliseconds."""

Complaint: TypeAlias = tuple[str, str] | None


def number(least: float, most: float, unit: str) -> Callable[[object], Complaint]:
    def check(value: object) -> Complaint:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
            return f"not a number of {unit} from {least:.12g} to {most:.12g}", f"Assign a number of {unit}"
        return None

    return check


def _zero_or_seconds(least: float, remedy: str) -> Callable[[object], Complaint]:
    in_seconds = number(least, 30 * MAX_SECONDS, "seconds")

    def check(value: object) -> Complaint:
        if (value == 0 and not isinstance(value, bool)) or in_seconds(value) is None:
            return None
        return f"not 0 or a number of seconds from {least:.12g} to {30 * MAX_SECONDS:.12g} (30 days)", remedy

    return check


period = _zero_or_seconds(1.0, "Assign 0 for no resync, or 36000 for one every ten hours")
interval = _zero_or_seconds(60.0, "Assign 0 for no audits, or 3600 for one per hour")


def objects_per_page(value: object) -> Complaint:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100_000:
        return ("not a whole number from 1 to 100000", "Assign the number of objects per page, such as 500")
    return None


def one_of(*choices: object) -> Callable[[object], Complaint]:
    def check(value: object) -> Complaint:
        if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in choices):
            *others, last = map(repr, choices)
            shown = f"{', '.join(others)} or {last}"
            return f"not {shown}", f"Assign {shown}"
        return None

    return check


def no_option(owner: str, name: str, options: Collection[str]) -> DeclarationError:
    """Return the error of an option that the owner does not have."""
    meant = near(name, options)
    return DeclarationError(
        f"{owner} has no option {clipped(name, 100)!r}",
        remedy=f"Did you mean {meant}?" if meant else f"It has {', '.join(sorted(options))}",
    )


def changed_late(option: str) -> DeclarationError:
    """Return the error of an option that is changed while an operator runs with it."""
    remedy = "Assign it in a startup handler (@kopf.on.startup)"
    return DeclarationError(f"{option} can't be changed after the operator has started", remedy=remedy)


@dataclass(frozen=True, slots=True)
class KindOption:
    """An option that `Cached` and the defaults have."""

    check: Callable[[object], Complaint]
    has_fallback: bool = True
    """True if `settings.selectcache` has an option of the same name, which applies if it is unset."""
    changes: bool = True
    """False if `cache.declare(..., replace=True)` cannot change it."""


OPTIONS: Mapping[str, KindOption] = {
    "storage": KindOption(one_of(*get_args(Storage))),
    "max_bytes": KindOption(complaint, has_fallback=False),
    "page_limit": KindOption(objects_per_page, changes=False),
    "audit_interval": KindOption(interval, changes=False),
    "bookmarks": KindOption(one_of(True, False), changes=False),
    "resync": KindOption(period, has_fallback=False),
}
"""Each is an argument of `Cached`, an attribute of `Defaults`, and one of `cache.declare`."""


# ---- Checks `keep=`, `drop=`, `transform=` and `index=` of declarations. Knows no kind, and stores nothing.

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
    keep: Collection[Path] | Everything | None = None,
    drop: Collection[Path] = (),
    transform: Transform | None = None,
    metadata_only: bool = False,
) -> Projection:
    """Return the projection; raise DeclarationError for paths that no object can have, and for a transform
    that is no function.

    >>> projection(drop=['data', ('metadata', 'annotations', 'example.com/notes')])
    Projection(drop=['data', ('metadata', 'annotations', 'example.com/notes')])
    >>> projection(drop=['metadata.name'])
    Traceback (most recent call last):
    kopf_selectcache.errors.DeclarationError: drop=['metadata.name'] would drop metadata.name, which is always
    kept. Take it out of drop=.
    """
    if not isinstance(metadata_only, bool):
        require(None, DeclarationError, "Cached()", "metadata_only", metadata_only, "True or False")
    if transform is not None:
        _require_function("transform", transform, "the part to store")
    chosen = None if keep is None or keep is EVERYTHING else list(_paths("keep", keep))
    dropped = list(_paths("drop", drop))
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
    """Raise DeclarationError unless this is a plain function of an object, or, `by_parts`, of its parts."""
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
    """Return a path of an argument, written as `what`; raise DeclarationError if it can lead nowhere."""
    is_path = all(isinstance(key, str) for key in (path if isinstance(path, tuple) else (path,)))
    if not is_path or (wrong := wrong_path(cast("Path", path))):
        reason = f"{what} {wrong}" if is_path else f"{argument} has {shown(path)}"
        raise DeclarationError(reason, remedy=PATHS)
    return cast("Path", path)
