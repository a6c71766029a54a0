"""Classes of other clients: which kind each stands for, and objects of them. Imports no client: users hand
over the classes.

They are known by the module that a base of theirs comes from, and by what its makers document of them: the
models of `kubernetes` and `kubernetes_asyncio` by name, `openapi_types` and `attribute_map`, those of
`pykube` by version and endpoint.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, NamedTuple, NoReturn

from kopf_selectcache._errors import NoClient, NotKept, UnknownKind
from kopf_selectcache.core.selection.kinds import BUILT_IN, Kind, Resource

_EXAMPLE = "Write 'v1/pods', or a class such as kubernetes.client.V1Pod or pykube.Pod"
_CLIENTS = ("kubernetes", "kubernetes_asyncio", "pykube")
"""Packages whose classes have their own way to be made of dicts. The first two are generated alike."""

_NAME = re.compile(r"(?P<group>[A-Z][a-z]+)?V(?P<version>\d+((alpha|beta)\d+)?)(?P<kind>[A-Z]\w*)")
_SEVERAL = re.compile(r"(?P<what>list|dict)[\[(](str, *)?(?P<item>.+)[\])]", re.IGNORECASE)


class Model(NamedTuple):
    """The parts of the name of a model: `EventsV1Event` has the beginning of the group as well."""

    name: str
    group: str | None
    version: str
    kind: str

    def may_be(self, kind: Kind) -> bool:
        """Return True if this is the name of a kind, in some version."""
        return self.kind == kind.kind and self.group in (None, (kind.group or "core").partition(".")[0])


class Unconnected:
    """The `api` of a pykube object that was read from a cache. It has no client; each use raises an error
    that names the remedy.
    """

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
        raise UnknownKind(f"the class {given.__name__} {names}", remedy=_EXAMPLE)
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
    return _value(given, obj, models_of(given), {})


def models_of(given: type) -> object:
    """Return the module that has all models of a model's client."""
    base = next(each for each in given.__mro__ if _is_of_kubernetes(each))
    return sys.modules[base.__module__.rpartition(".")[0]]


def converted(wanted: str, value: Any, models: object) -> Any:
    """Return a value as it is in a client's models, by the type that they name for it."""
    if (item := item_of(wanted)) is not None and isinstance(value, list):
        return [converted(item, each, models) for each in value]
    if item is not None and isinstance(value, Mapping):
        return {key: converted(item, each, models) for key, each in value.items()}
    model: Any = getattr(models, wanted, None)
    if isinstance(value, Mapping) and hasattr(model, "from_dict"):
        return model.from_dict(value)
    return _value(wanted, value, models, {})


def item_of(wanted: str) -> str | None:
    """Return the type of the items of a list or dict, by the type that models name for it; None for others.

    >>> item_of('list[V1Container]'), item_of('dict(str, str)'), item_of('V1PodSpec')
    ('V1Container', 'str', None)
    """
    several = _SEVERAL.fullmatch(wanted)
    return several["item"] if several is not None else None


def to_dict(obj: object) -> dict[str, Any] | None:
    """Return an object of another client as a dict, with the names of JSON; None if it is of no client that
    is known.
    """
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
                return Model(base.__name__, None, "", "")
            group = found["group"]
            return Model(
                base.__name__,
                group.lower() if group is not None else None,
                f"v{found['version']}",
                found["kind"],
            )
    return None


def _is_of_kubernetes(given: type) -> bool:
    client, _, rest = given.__module__.partition(".")
    return client in _CLIENTS and "client.models." in rest and hasattr(given, "openapi_types")


def _value(wanted: Any, value: Any, models: object, shared: dict[str, Any]) -> Any:
    """Return a value as it is in the models of earlier clients, by the type that they name for it."""
    if isinstance(wanted, str):
        several = _SEVERAL.fullmatch(wanted)
        if several is not None and isinstance(value, list):
            return [_value(several["item"], each, models, shared) for each in value]
        if several is not None and isinstance(value, Mapping):
            return {key: _value(several["item"], each, models, shared) for key, each in value.items()}
        if wanted == "datetime" and isinstance(value, str):
            return datetime.fromisoformat(value)
        wanted = getattr(models, wanted, None)
    if not isinstance(value, Mapping) or not hasattr(wanted, "openapi_types"):
        return value
    given = {name: each for name, key in wanted.attribute_map.items() if (each := value.get(key)) is not None}
    model = wanted(
        **{name: _value(wanted.openapi_types[name], each, models, shared) for name, each in given.items()},
        **shared,
    )
    # Each part makes a configuration of its own unless it is given one: that takes several times as long as
    # all else.
    if not shared and hasattr(model, "local_vars_configuration"):
        shared["local_vars_configuration"] = model.local_vars_configuration
    return model
