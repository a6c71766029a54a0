"""Mappings: the keys that run when an object changes. The object itself, its owners, or the result of a
function.

A source maps the object before and the object after each change: what an object belonged to must run too.
Pure: the result of an async function is returned for the source to await.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Mapping as AnyObject
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, TypeAlias, TypedDict

import msgspec

from kopf_selectcache.cache.access import in_callback
from kopf_selectcache.cache.formats.views import BodyView, record_of
from kopf_selectcache.core.redact import shown_by_type
from kopf_selectcache.selectors.object_key import EXAMPLE, Key
from kopf_selectcache.selectors.signatures import is_async, miscalled

from .predicates import Obj, require_function

Keys: TypeAlias = Iterable[Key | object]
"""Keys, or objects that have one."""


class Mapping(ABC):
    """Returns the keys that run when an object changes. It sees the whole object, or its metadata only."""

    needs_cache = False
    """True if it must be given the caches of the operator."""

    is_async = False
    """True if `map` returns an awaitable of the keys."""

    paths: tuple[tuple[str, ...], ...] = ()
    """The paths of the object that it reads, as far as that is known. They must be stored."""

    @abstractmethod
    def map(self, obj: Obj, cache: Any) -> Keys | Awaitable[Keys] | None:
        """Return the keys, or an awaitable of them."""


@dataclass(frozen=True)
class Itself(Mapping):
    """The key is the object's own.

    >>> Itself().map({'metadata': {'name': 'web', 'namespace': 'shop'}}, None)
    [Key('web', namespace='shop')]
    """

    def map(self, obj: Obj, cache: Any) -> Keys:  # noqa: ARG002  # It is that of the base class.
        return [Key.of(obj)]


@dataclass(frozen=True)
class Owner(Mapping):
    """The keys are those of the owners of a group and kind: the controller, or with `controller=False` any.

    >>> pod = {'metadata': {'name': 'web-1', 'namespace': 'shop', 'ownerReferences': [
    ...     {'apiVersion': 'example.com/v1', 'kind': 'WebApp', 'name': 'web', 'controller': True}]}}
    >>> Owner('example.com', 'WebApp').map(pod, None)
    [Key('web', namespace='shop')]

    The group is empty for core kinds. The version does not matter. `namespaced=False` is for owners that are
    cluster-scoped: an owner is in the namespace of its object otherwise.
    """

    group: str
    kind: str
    controller: bool = True
    namespaced: bool = True

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]  # No field of the dataclass.
        return (("metadata", "ownerReferences"),)

    def map(self, obj: Obj, cache: Any) -> Keys:  # noqa: ARG002  # It is that of the base class.
        metadata = _metadata_of(obj)
        namespace = (metadata.get("namespace") or None) if self.namespaced else None
        return [
            Key(owner["name"], namespace=namespace)
            for owner in metadata.get("ownerReferences") or ()
            if owner.get("kind") == self.kind
            and _group_of(owner.get("apiVersion") or "") == self.group
            and (owner.get("controller") or not self.controller)
        ]


class _Reference(TypedDict, total=False):
    apiVersion: str
    kind: str
    name: str
    controller: bool


class _Metadata(TypedDict, total=False):
    namespace: str
    ownerReferences: list[_Reference]


class _Owned(TypedDict):
    """The parts of an object that its owners are found by."""

    metadata: _Metadata


_decode_owned = msgspec.json.Decoder(_Owned).decode


def _metadata_of(obj: Obj) -> AnyObject[str, Any]:
    """Return the metadata of an object, without what does not concern its owners: a view would decode it."""
    if isinstance(obj, BodyView):
        try:
            return _decode_owned(record_of(obj).data)["metadata"]
        except (msgspec.DecodeError, RecursionError):  # It is in an unusual form.
            pass
    metadata: AnyObject[str, Any] = obj["metadata"]
    return metadata


def _group_of(api_version: str) -> str:
    return api_version.rpartition("/")[0]


@dataclass(frozen=True)
class Function(Mapping):
    """The keys are the result of a function `fn(obj)` or `fn(obj, cache=...)`, sync or async.

    >>> by_label = Function(lambda obj: [Key(obj['metadata']['labels']['node'])])
    >>> by_label.map({'metadata': {'labels': {'node': 'n1'}}}, None)
    [Key('n1')]
    """

    fn: Callable[..., Keys | Awaitable[Keys] | None]

    def __post_init__(self) -> None:
        options = {"cache": None} if callable(self.fn) and self.needs_cache else {}
        require_function("map=", self.fn, "a function that takes an object", {}, **options)

    @property
    def needs_cache(self) -> bool:  # type: ignore[override]  # It depends on the function.
        try:
            parameters = signature(self.fn).parameters
        except ValueError:  # A function that is written in C may have none.
            return False
        return any(
            each.kind is Parameter.VAR_KEYWORD
            or (name == "cache" and each.kind is not Parameter.POSITIONAL_ONLY)
            for name, each in parameters.items()
        )

    @property
    def is_async(self) -> bool:  # type: ignore[override]  # It depends on the function.
        return is_async(self.fn)

    def map(self, obj: Obj, cache: Any) -> Keys | Awaitable[Keys] | None:
        if not self.needs_cache:
            return self.fn(obj)
        # A plain function is called on the event loop.
        return self.fn(obj, cache=cache if self.is_async or cache is None else in_callback(cache))


ITSELF = Itself()

AnyMapping: TypeAlias = Mapping | Callable[..., Any]


def mapping_of(given: AnyMapping) -> Mapping:
    """Return the mapping of a function; a mapping stays as it is."""
    return given if isinstance(given, Mapping) else Function(given)


def checked_keys(given: Keys | None) -> list[Key]:
    """Return the keys that a mapping has returned, each once; raise TypeError for another result.

    >>> checked_keys([Key('web', namespace='shop'), {'metadata': {'name': 'node01'}}, Key('node01')])
    [Key('web', namespace='shop'), Key('node01')]
    """
    if given is None:
        return []
    is_list = type(given) is list  # Most are, and the other checks take longer.
    if not is_list and (isinstance(given, str | bytes | AnyObject) or not isinstance(given, Iterable)):
        raise _no_keys(f"not {shown_by_type(given)}")
    return list(dict.fromkeys(each if type(each) is Key else _checked(each) for each in given))


def _checked(given: object) -> Key:
    try:
        return Key.of(given)
    except (TypeError, ValueError):
        raise _no_keys(f"and one of them is {shown_by_type(given)}") from None


def _no_keys(but: str) -> TypeError:
    return miscalled(f"map= must return a list of Keys or objects, {but}", remedy=f"Write: [{EXAMPLE}]")
