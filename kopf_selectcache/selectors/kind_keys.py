"""Checks the keys, and the classes of other clients, by which users name a kind. Kubernetes' own are known;
of others only the cluster knows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias, cast

from kopf_selectcache._errors import NoClient, NotDeclared, NotKept, UnknownKind, awaited_call
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.kinds import (
    BUILT_IN,
    Kind,
    KindKey,
    Resource,
    find,
    is_version,
    parse_key,
)

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

_MISTAKE_RATIO = 0.9
"""A name without a group that is this like a plural of Kubernetes is a mistake: few custom resources are."""

_KEY_CHARACTERS = 400
"""A group has up to 253 characters, a version and a plural 63 each."""

MOST_NAMED = 10
"""The most declared kinds that an error names."""


def text_of(key: KindKey) -> str:
    """Return a key as messages have it."""
    return key if isinstance(key, str) else "/".join(key)


def key_of(given: object) -> KindKey:
    """Return the name of a kind as a key; raise UnknownKind if there can be none."""
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


def with_version(key: KindKey) -> KindKey:
    """Return the key as users should declare it: that of a built-in kind has its group and version."""
    kind = find(key)
    if kind is None or parse_key(key)[1] is not None:
        return key
    return "/".join(filter(None, (kind.group, kind.versions[0], kind.plural)))


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
    lambda key: f"in a startup handler: {assigned(with_version(key))} = 'app=web'",
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
        len(text) > _KEY_CHARACTERS
        or not name
        or not set(text) <= _PLAIN
        or not {".", "/"}.isdisjoint(name)
        or version == ""
        or is_version(name)
        or (group is not None and is_version(group))
        or _is_subresource(text)
    ):
        raise UnknownKind(f"{clipped(text, 100)!r} can't be a kind", remedy=_EXAMPLE)
    if group is None and version is None and (meant := likely(key, _MISTAKE_RATIO)) is not None:
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


# ---- Classes of other clients: which kind each stands for, and objects of them. Imports no client: users
# hand over the classes.

_EXAMPLE_OF_A_CLASS = "Write 'v1/pods', or a class such as kubernetes.client.V1Pod or pykube.Pod"
_CLIENTS = ("kubernetes", "kubernetes_asyncio", "pykube")
"""Packages whose classes have their own way to be made of dicts. The first two are generated alike."""

_NAME = re.compile(r"(?P<group>[A-Z][a-z]+)?V(?P<version>\d+((alpha|beta)\d+)?)(?P<kind>[A-Z]\w*)")
_SEVERAL = re.compile(r"(?P<what>list|dict)[\[(](str, *)?(?P<item>.+)[\])]", re.IGNORECASE)


class Model(NamedTuple):
    """The parts of the name of a model: `EventsV1Event` has the beginning of the group as well."""

    group: str | None
    version: str
    kind: str

    def may_be(self, kind: Kind) -> bool:
        """Return True if this is the name of a kind, in some version."""
        return self.kind == kind.kind and self.group in (None, (kind.group or "core").partition(".")[0])


class Unconnected:
    """The `api` of a pykube object that was read from a cache: each use raises an error with the remedy."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Copying and pickling ask for these, and do without.
            raise AttributeError(name)
        remedy = "Give it one: pod.api = pykube.HTTPClient(pykube.KubeConfig.from_env())"
        what = "this object was read from a cache, so it has no client"
        raise NoClient(what, remedy=remedy)


def is_pykube(given: object) -> bool:
    """Return True if this is a class of pykube, or made from one."""
    return isinstance(given, type) and any(
        (base.__module__, base.__name__) == ("pykube.objects", "APIObject") for base in given.__mro__
    )


def is_of_client(given: object) -> bool:
    """Return True for any class of kubernetes or pykube, such as `CoreV1Api`: few make objects of dicts."""
    return isinstance(given, type) and any(
        base.__module__.partition(".")[0] in _CLIENTS for base in given.__mro__
    )


def key_of_class(given: type) -> str:
    """Return the kind of a class, as a key; raise UnknownKind if it has none."""
    if is_pykube(given):
        version, endpoint = getattr(given, "version", None), getattr(given, "endpoint", None)
        if isinstance(version, str) and isinstance(endpoint, str):
            return f"{version}/{endpoint}"
    keys: list[str] = []
    if (model := _model(given)) is not None:
        found = [kind for kind in BUILT_IN if model.may_be(kind) and model.version in kind.versions]
        keys = ["/".join(filter(None, (kind.group, model.version, kind.plural))) for kind in found]
    if len(keys) != 1:
        names = f"may mean {' or '.join(keys)}" if keys else "doesn't name a kind"
        raise UnknownKind(f"the class {given.__name__} {names}", remedy=_EXAMPLE_OF_A_CLASS)
    return keys[0]


def stands_for(given: type, resource: Resource) -> bool:
    """Return True if objects of this kind, in this version, can become objects of the class."""
    if is_pykube(given):
        return (getattr(given, "version", None), getattr(given, "endpoint", None)) == (
            resource.api_version,
            resource.kind.plural,
        )
    model = _model(given)
    if model is None:
        return False
    # A client may know kinds that are newer than the table; but none of its models is a custom resource.
    groups = {kind.group for kind in BUILT_IN if model.may_be(kind)} or {kind.group for kind in BUILT_IN}
    return (model.version, model.kind) == (
        resource.version,
        resource.kind.kind,
    ) and resource.kind.group in groups


def made(given: Any, obj: dict[str, Any]) -> Any:
    """Return the object as one of the class, or raise whatever the client raises."""
    if is_pykube(given):
        return given(Unconnected(), obj)
    if hasattr(given, "from_dict"):  # As of version 37 of kubernetes.
        return given.from_dict(obj)
    return converted(given, obj, models_of(given), {})


def models_of(given: type) -> object:
    """Return the module that has all models of a model's client."""
    base = next(each for each in given.__mro__ if _is_of_kubernetes(each))
    return sys.modules[base.__module__.rpartition(".")[0]]


def item_of(wanted: str) -> str | None:
    """Return the type of the items of a list or dict, by the type that models name for it; None for others.

    >>> item_of('list[V1Container]'), item_of('dict(str, str)'), item_of('V1PodSpec')
    ('V1Container', 'str', None)
    """
    several = _SEVERAL.fullmatch(wanted)
    return several["item"] if several is not None else None


def to_dict(obj: object) -> dict[str, Any] | None:
    """Return an object of another client as a dict of JSON; None if it is of no client that is known."""
    if is_pykube(type(obj)):
        held = getattr(obj, "obj", None)
        return dict(held) if isinstance(held, Mapping) else None
    if not is_model(type(obj)):
        return None
    plain: dict[str, Any] = _to_plain(obj)
    return plain


def is_model(given: type) -> bool:
    """Return True for a model of kubernetes or kubernetes_asyncio, or a class that extends one."""
    return any(_is_of_kubernetes(base) for base in given.__mro__)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(each) for each in value]
    if isinstance(value, date):  # A datetime is one.
        return value.isoformat()
    if is_model(type(value)):
        members = type(value).attribute_map.items()
        parts = ((key, _member(value, name)) for name, key in members)
        return {key: _to_plain(each) for key, each in parts if each is not None}
    return value


def _member(model: object, name: str) -> Any:
    """Return a member; None if there is none, or if it is not stored."""
    try:
        return getattr(model, name, None)
    except NotKept:
        return None


def _model(given: type) -> Model | None:
    """Read the name of a model, where the class is or extends one."""
    for base in given.__mro__:
        if _is_of_kubernetes(base):
            if (found := _NAME.fullmatch(base.__name__)) is None:
                return Model(None, "", "")
            group = found["group"]
            return Model(group and group.lower(), f"v{found['version']}", found["kind"])
    return None


def _is_of_kubernetes(given: type) -> bool:
    client, _, rest = given.__module__.partition(".")
    return client in _CLIENTS and "client.models." in rest and hasattr(given, "openapi_types")


def converted(wanted: Any, value: Any, models: object, shared: dict[str, Any]) -> Any:
    """Return a value as it is in a client's models, by the type that they name for it.
    `shared` is what all models of earlier clients are made with.
    """
    if isinstance(wanted, str):
        if (item := item_of(wanted)) is not None and isinstance(value, list):
            return [converted(item, each, models, shared) for each in value]
        if item is not None and isinstance(value, Mapping):
            return {key: converted(item, each, models, shared) for key, each in value.items()}
        if wanted == "datetime" and isinstance(value, str):
            return datetime.fromisoformat(value)
        wanted = getattr(models, wanted, None)
    if isinstance(value, Mapping) and hasattr(wanted, "from_dict"):  # As above.
        return wanted.from_dict(value)
    if not isinstance(value, Mapping) or not hasattr(wanted, "openapi_types"):
        return value
    given = {name: each for name, key in wanted.attribute_map.items() if (each := value.get(key)) is not None}
    model = wanted(
        **{name: converted(wanted.openapi_types[name], each, models, shared) for name, each in given.items()},
        **shared,
    )
    # Each part makes a configuration of its own unless it is given one: that takes several times as long as
    # all else.
    if not shared and hasattr(model, "local_vars_configuration"):
        shared["local_vars_configuration"] = model.local_vars_configuration
    return model
