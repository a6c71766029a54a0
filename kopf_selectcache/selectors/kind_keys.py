"""How users name a kind, checked: in declarations, in reads, as `kind=`. Knows Kubernetes' own kinds; asks no
cluster.

What can never be right is refused: a subresource, a version that a kind of Kubernetes never had, a slip of
the pen. Whether there is a custom resource of a name is for the cluster to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias, cast

from kopf_selectcache._errors import NotDeclared, UnknownKind
from kopf_selectcache.core.redact import clipped, shown_with_type
from kopf_selectcache.core.selection.kinds import BUILT_IN, Key, Kind, find, is_version, parse_key

from .client_classes import key_of_class
from .signatures import near


class Served(Protocol):
    """A resource as a version serves it, such as the `resource` that Kopf hands to handlers."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def plural(self) -> str: ...


AnyName: TypeAlias = Key | Served
"""What users may name a kind by, but for a class."""

AnyKey: TypeAlias = AnyName | type[Any]
"""What users may name a kind by; a class is one of `kubernetes` or `pykube`."""

_EXAMPLE = "Name one kind: 'v1/pods', 'pods', 'batch/v1/jobs', ('batch', 'v1', 'jobs')"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-/")

_LONGEST = 400
"""A group has up to 253 characters, a version and a plural 63 each."""

MOST_NAMED = 10
"""How many of the declared kinds an error names."""


def text_of(key: Key) -> str:
    """Return a key as messages have it."""
    return key if isinstance(key, str) else "/".join(key)


def key_of(given: object) -> Key:
    """Return what names a kind as a key: of a `kopf.Resource`, its group, version and plural. Raise
    UnknownKind if none can be.
    """
    if not isinstance(given, (str, tuple)):
        if isinstance(given, type):
            return key_of_class(given)
        if all(isinstance(getattr(given, part, None), str) for part in ("group", "version", "plural")):
            served = cast("Served", given)
            given = (served.group, served.version, served.plural)
    parts = (given,) if isinstance(given, str) else given
    if (
        not isinstance(parts, tuple)
        or not 1 <= len(parts) <= 3
        or not all(isinstance(part, str) for part in parts)
    ):
        if any("EVERYTHING" in repr(part) for part in (parts if isinstance(parts, tuple) else (parts,))):
            raise UnknownKind(
                "kopf.EVERYTHING names no kind (there is no wildcard: caching everything is what this library"
                " is here to end)",
                remedy=_EXAMPLE,
            )
        raise UnknownKind(f"the key is {shown_with_type(given)}, and names no kind", remedy=_EXAMPLE)
    return given  # type: ignore[return-value]  # Checked above.


def assigned(key: Key) -> str:
    """Return what the filter of a kind is assigned to in a startup handler."""
    return f"settings.selectcache.selectors[{key!r}]"


def unserved(key: Key, line: str | None) -> str:
    """Say what to do about a key that the cluster serves nothing for; `line` is where it is declared."""
    meant = likely(key) if find(key) is None else None
    return (
        f"{f'Did you mean {meant!r}? If not, install' if meant is not None else 'Install'} its definition, or"
        f" correct the key{f' of {line}' if line else ''}"
    )


def as_given(kind: AnyKey) -> str:
    """Return what names a kind as Python, the way that it was given."""
    return kind.__name__ if isinstance(kind, type) else repr(key_of(kind))


def checked_key(given: object) -> Key:
    """Return the key if it can name a kind; raise UnknownKind with the key to write instead."""
    key = key_of(given)
    text = text_of(key)
    if len(text) > _LONGEST:
        raise UnknownKind(f"the key {clipped(text, 100)!r} is longer than any can be", remedy=_EXAMPLE)
    if "*" in text:
        raise UnknownKind(
            f"the key {text!r} is a wildcard, and caching everything is what this library is here to end",
            remedy=_EXAMPLE,
        )
    parts = tuple(text.split("/"))
    above = parts[:-1]
    if set(text) <= _PLAIN and (
        (len(parts) == 4 and is_version(parts[1]))
        or (len(parts) == 3 and is_version(parts[0]))
        or (above and find(above) is not None)
    ):
        raise UnknownKind(
            f"the key {text!r} names a subresource, {parts[-1]}: objects are cached as a whole",
            remedy=f"Write {text_of(above)!r}",
        )
    group, version, name = parse_key(key)
    if not name or version == "" or "." in name or "/" in name or not set(text) <= _PLAIN:
        raise UnknownKind(f"the key {text!r} names no kind", remedy=_EXAMPLE)
    if is_version(name) or (name.startswith("v") and name[1:2].isdecimal()):
        raise UnknownKind(
            f"the key {text!r} ends in a version, {name}, where a kind should be", remedy=_EXAMPLE
        )
    if group is not None and is_version(group):
        known = find(name)
        raise UnknownKind(
            f"the key {text!r} begins with a version, and only v1 can stand without its group",
            remedy=f"Write {_full(known) if known is not None else f'example.com/{group}/{name}'!r}",
        )
    if find(key) is None:
        _refuse_slips(text, group, version, name)
    return key


def likely(key: Key) -> str | None:
    """Return which kind of Kubernetes was probably meant by a key that means none."""
    return near(parse_key(key)[2], [kind.plural for kind in BUILT_IN])


def _refuse_slips(text: str, group: str | None, version: str | None, name: str) -> None:
    """Raise UnknownKind for a key that is none of Kubernetes' own, and can be nothing else, or hardly."""
    named = [kind for kind in BUILT_IN if name in kind.names]
    within = [kind for kind in BUILT_IN if kind.group == group]
    if same := [kind for kind in named if kind in within]:
        raise UnknownKind(
            f"the key {text!r}: Kubernetes has {same[0].plural} in no version {version}",
            remedy=(
                f"Write {_full(same[0])!r}; or, for whichever version the cluster has, {_short(same[0])!r}"
            ),
        )
    if within and named:
        where = f"{group}, a group of Kubernetes" if group else "v1, the core group"
        raise UnknownKind(
            f"the key {text!r}: {named[0].plural} are not in {where}", remedy=f"Write {_full(named[0])!r}"
        )
    plurals = {kind.plural: kind for kind in within or BUILT_IN}
    if group is None:
        # A custom resource may well have a name like that of a kind; less than a slip apart it is most
        # unlikely.
        meant = next(
            (
                plural
                for plural in plurals
                if name.lower() == plural or (len(plural) > 5 and _one_slip(name, plural))
            ),
            None,
        )
        if meant is not None and version is None:
            raise UnknownKind(
                f"the key {text!r} is no kind of Kubernetes",
                remedy=(
                    f"Did you mean {meant!r}? A custom resource of this name is written with its group:"
                    f" 'example.com/v1/{name}'"
                ),
            )
    elif within:
        meant = near(name, plurals)
        if meant is not None:
            raise UnknownKind(
                f"the key {text!r} is no kind of Kubernetes",
                remedy=f"Did you mean {_full(plurals[meant])!r}?",
            )
        if group == "":
            raise UnknownKind(
                f"the key {text!r}: v1 without a group is Kubernetes' core, which has no {name}",
                remedy=f"Write it with its group: 'example.com/v1/{name}'",
            )


def _full(kind: Kind) -> str:
    return "/".join(filter(None, (kind.group, kind.versions[0], kind.plural)))


def _short(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _one_slip(some: str, other: str) -> bool:
    """Whether one letter is wrong, missing, or too many, or two are exchanged."""
    at = next(
        (at for at, (one, two) in enumerate(zip(some, other, strict=False)) if one != two),
        min(len(some), len(other)),
    )
    some, other = some[at:], other[at:]
    return (
        some[1:] == other[1:]
        or some[1:] == other
        or some == other[1:]
        or (some[:2] == other[:2][::-1] and some[2:] == other[2:])
    )


def not_declared(
    key: Key, declared: Iterable[Key], *, call: str = "", wanted: str = "", of_server: str = ""
) -> NotDeclared:
    """Say that no cache is declared for a kind, and which are; of a read, also what filter it wants, and what
    asks the server.
    """
    names: dict[str, Key] = {}
    for other in (listed := list(declared)):
        kind = find(other)
        names |= dict.fromkeys(kind.names if kind is not None else [parse_key(other)[2]], other)
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    known = (
        f"declared are {', '.join(map(text_of, listed[:MOST_NAMED]))}{more}"
        if listed
        else "nor for any other kind"
    )
    meant = near(parse_key(key)[2], names)
    ask = f"Did you mean {names[meant]!r}? If not, declare it" if meant is not None else "Declare it"
    given = f"{wanted}, or a wider filter" if wanted else "'app=web', or another filter"
    return NotDeclared(
        f"{call}{': ' if call else ''}no cache is declared for {text_of(key)}; {known}",
        remedy=(
            f"{ask} in a startup handler: {assigned(key)} = {given}"
            f"{f'; or ask the server: {of_server}' if of_server else ''}"
        ),
    )
