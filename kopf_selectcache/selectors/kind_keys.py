"""Checks the keys by which users name a kind, in declarations, in reads and as `kind=`. Asks no cluster.

Kubernetes' own kinds are known. Only the cluster knows if there is a custom resource of a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

from kopf_selectcache._errors import NotDeclared, UnknownKind, awaited_call
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.kinds import BUILT_IN, Kind, KindKey, find, is_version, parse_key

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


AnyName: TypeAlias = KindKey | Served
"""A name of a kind that is no class."""

AnyKey: TypeAlias = AnyName | type[Any]
"""A name of a kind; a class is one of `kubernetes` or `pykube`."""

_EXAMPLE = "Name one kind, such as 'v1/pods', 'pods', 'batch/v1/jobs', ('batch', 'v1', 'jobs')"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-/")

_MISTAKE = 0.9
"""A name without a group that is this like a plural of Kubernetes is a mistake: few custom resources are."""

_LONGEST = 400
"""A group has up to 253 characters, a version and a plural 63 each."""

MOST_NAMED = 10
"""The most declared kinds that an error names."""


def text_of(key: KindKey) -> str:
    """Return a key as messages have it."""
    return key if isinstance(key, str) else "/".join(key)


def key_of(given: object) -> KindKey:
    """Return the name of a kind as a key: of a `kopf.Resource`, its group, version and plural. Raise
    UnknownKind if none can be.
    """
    if isinstance(given, str):
        return given
    if not isinstance(given, tuple):
        if isinstance(given, type):
            return key_of_class(given)
        if all(isinstance(getattr(given, part, None), str) for part in ("group", "version", "plural")):
            served = cast("Served", given)
            given = (served.group, served.version, served.plural)
    if (
        not isinstance(given, tuple)
        or not 1 <= len(given) <= 3
        or not all(isinstance(part, str) for part in given)
    ):
        raise UnknownKind(f"the kind is {shown(given)}", remedy=_EXAMPLE)
    return given


def assigned(key: KindKey) -> str:
    """Return the target of the assignment that declares a kind in a startup handler."""
    return f"settings.selectcache.selectors[{key!r}]"


@dataclass(frozen=True, slots=True)
class Site:
    """The place where kinds are declared, as messages name it."""

    line: Callable[[KindKey], str]
    """Returns the target of a declaration."""
    remedy: Callable[[KindKey], str]
    """Returns how to declare a kind there."""
    start: str
    """The event after which nothing can be declared there."""
    whose: str = "the operator"
    """The owner of the credentials."""
    login: str = "the operator's login"
    has_command: bool = True
    """True if `selectcache check` finds it, and asks with its login."""
    one_namespace: str = "run it with -n"


SETTINGS = Site(
    assigned,
    lambda key: f"in a startup handler: {assigned(key)} = 'app=web'",
    "the operator has started",
)
"""The settings of an operator."""

CACHES = Site(
    lambda key: f"Caches({{{key!r}: ...}})",
    lambda key: f"with the others: Caches({{..., {key!r}: 'app=web'}})",
    "the caches have started",
    one_namespace="give Caches() namespaces=",
)
"""The arguments of a second set of caches."""

CACHES_WITH_LOGIN = replace(CACHES, whose="Caches()", login="login= of Caches()", has_command=False)
"""Those of caches with a login of their own."""


def called(key: KindKey) -> str:
    """Return the call that declares a kind at run time."""
    return f"cache.declare({key!r}, ...)"


def unserved(key: KindKey, line: str | None) -> str:
    """Return the remedy for a key that the cluster serves nothing for; `line` is where it is declared."""
    meant = likely(key) if find(key) is None else None
    install = f"Did you mean {meant!r}?\nInstall" if meant is not None else "Install"
    return f"{install} its definition\nCorrect the key{f' of {line}' if line else ''}"


def are_alike(asked: KindKey, declared: KindKey) -> bool:
    """Return True if a key may be another spelling of a declared key, as far as the texts show."""
    *within, name = parse_key(asked)
    *declared_within, declared_name = parse_key(declared)
    is_within = all(None in pair or pair[0] == pair[1] for pair in zip(within, declared_within, strict=True))
    return is_within and name.lower().removesuffix("s") == declared_name.lower().removesuffix("s")


def as_given(kind: AnyKey) -> str:
    """Return the name of a kind as Python code, as it was given."""
    return kind.__name__ if isinstance(kind, type) else repr(key_of(kind))


def checked_key(given: object) -> KindKey:
    """Return the key if it can name a kind; raise UnknownKind otherwise.

    A group of Kubernetes has the kinds that are known here, and perhaps newer ones; of another group, only
    the cluster knows the kinds.
    """
    key = key_of(given)
    if find(key) is not None:
        return key
    text = text_of(key)
    group, version, name = parse_key(key)
    if (
        len(text) > _LONGEST
        or not name
        or not set(text) <= _PLAIN
        or not {".", "/"}.isdisjoint(name)
        or version == ""
        or is_version(name)
        or (group is not None and is_version(group))
        or _is_subresource(text)
    ):
        raise UnknownKind(f"{clipped(text, 100)!r} can't be a kind", remedy=_EXAMPLE)
    if group is None and version is None and (meant := likely(key, _MISTAKE)) is not None:
        remedy = f"Did you mean {meant!r}?\nFor a custom resource, write 'group/version/{name}'"
        raise UnknownKind(f"{text!r} isn't a kind of Kubernetes", remedy=remedy)
    if group is not None and (within := _kinds_of(group)):
        known = next((kind for kind in within.values() if name in kind.names), None) or find(name)
        if known is None and (meant := near(name, within)) is not None:
            known = within[meant]
        if known is None and group == "" and (meant := likely(key)) is not None:
            known = find(meant)
        if known is not None or group == "":
            remedy = f"Did you mean {_full(known)!r}?" if known is not None else _EXAMPLE
            raise UnknownKind(f"{text!r} isn't a kind of Kubernetes", remedy=remedy)
    return key


def likely(key: KindKey, likeness: float = 0.7) -> str | None:
    """Return the plural of the kind of Kubernetes whose name is most like that of the key."""
    return near(parse_key(key)[2], [kind.plural for kind in BUILT_IN], likeness=likeness)


def _kinds_of(group: str) -> dict[str, Kind]:
    """Return the known kinds of a group by plural."""
    return {kind.plural: kind for kind in BUILT_IN if kind.group == group}


def _is_subresource(text: str) -> bool:
    """Return True for keys such as `pods/status` and `example.com/v1/webapps/scale`."""
    above, _, last = text.rpartition("/")
    return bool(above and last) and find(above) is not None


def _full(kind: Kind) -> str:
    return "/".join(filter(None, (kind.group, kind.versions[0], kind.plural)))


def is_misspelt(key: KindKey) -> bool:
    """Return True for a name without a group that is that of no built-in kind: none can be declared by it."""
    return find(key) is None and parse_key(key)[0] is None


def declared_like(key: KindKey, declared: Iterable[KindKey]) -> KindKey | None:
    """Return the declared key whose kind has the name that is most like that of another key."""
    names: dict[str, KindKey] = {}
    for other in declared:
        kind = find(other)
        names |= dict.fromkeys(kind.names if kind is not None else [parse_key(other)[2]], other)
    meant = near(parse_key(key)[2], names)
    return None if meant is None else names[meant]


def not_declared(key: KindKey, declared: Iterable[KindKey], site: Site = SETTINGS) -> NotDeclared:
    """Return the error of a kind without a cache, with the declared kinds."""
    listed = list(declared)
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    some = ", ".join(map(text_of, listed[:MOST_NAMED]))
    known = f", only for {some}{more}" if listed else ""
    meant = declared_like(key, listed)
    ask = f"Did you mean {meant!r}?" if meant is not None else ""
    ways = [
        f"Declare it {site.remedy(key)}",
        f"To declare it later: {awaited_call(f'declare({key!r}, ...)')}",
    ]
    remedy = "\n".join(filter(None, (ask, *([] if ask and is_misspelt(key) else ways))))
    return NotDeclared(f"no cache is declared for {text_of(key)}{known}", remedy=remedy)
