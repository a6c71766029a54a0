"""Checks of a request against the kind that it reads: place, form, stored paths, indexes. Reads no object."""

from __future__ import annotations

from collections.abc import Mapping

from kopf_selectcache._errors import BadSelector, ReadError
from kopf_selectcache.core.redact import clipped, shown, shown_by_type
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.index_spec import Indexed, joined, wrong_key
from kopf_selectcache.core.store.index_spec import key_of as index_key_of
from kopf_selectcache.core.store.projection import Projection, keys_of
from kopf_selectcache.selectors.kind_keys import stands_for
from kopf_selectcache.selectors.object_key import Key, arguments
from kopf_selectcache.selectors.signatures import near, noted
from kopf_selectcache.selectors.text import is_name, namespaces_of

from .errors import not_stored_error
from .matcher import paths_of
from .request import Request, as_read_error, in_namespace


def require_namespaces(request: Request, resource: Resource) -> None:
    """Raise ReadError if cluster-scoped objects of a namespace are requested."""
    namespaces = request.namespace if request.selector is None else request.selector.namespaces
    if namespaces is not None and resource.kind.namespaced is False:
        what = f"{resource} are cluster-scoped, so they have no namespace"
        raise ReadError(what, remedy="Leave namespace= out")


def require_place(request: Request, resource: Resource) -> None:
    """Raise ReadError, for a key ValueError, unless the request names a namespace if its kind has any."""
    is_namespaced = resource.kind.namespaced
    require_place_of_key(request, str(resource), is_namespaced=is_namespaced)
    if is_namespaced is True and not request.namespace:
        raise ReadError(f"{resource} need a namespace", remedy=f"Write: {in_namespace(request)}")
    require_namespaces(request, resource)


def require_place_of_key(request: Request, plural: str, *, is_namespaced: bool | None) -> None:
    """Raise ValueError for a key that names a namespace where its kind has none, or none where it has."""
    if not request.by_key or is_namespaced is None or is_namespaced is bool(request.namespace):
        return
    scope, has = ("namespaced", "no") if is_namespaced else ("cluster-scoped", "a")
    key = Key(request.name or "", namespace=request.namespace)
    names = f"{key.name!r}, namespace=namespace" if is_namespaced else arguments(key.name)
    what = (
        f"cache.{request.verb}(): {plural} are {scope}, and the key {clipped(key, 300)} has {has} namespace."
    )
    raise noted(ValueError(what), f"Write: Key({clipped(names, 300)})")


def require_names_of(request: Request) -> None:
    """Raise ReadError if no object can have the name, or be in the namespace."""
    name = request.name or ""
    if not is_name(name):
        what = f"no object can have the name {clipped(repr(name), 200)}"
        raise ReadError(what, remedy="Give the name of one object. Patterns are not supported")
    require_namespace(request)


def require_namespace(request: Request) -> None:
    """Raise ReadError if there can be no namespace of this name, as `list` does."""
    if request.namespace:
        try:
            namespaces_of([request.namespace])
        except BadSelector as error:
            raise as_read_error(request.verb, error) from None


def require_stored(request: Request, resource: Resource, projection: Projection) -> None:
    """Raise NotKept if a path that is needed is not stored, and ReadError for a class of another kind."""
    form = request.form
    paths = [path for path, _ in paths_of(request.where)]
    if request.sort_by is not None and not callable(request.sort_by):
        paths.append(keys_of(request.sort_by))
    for path in paths:
        if not projection.stores(path):
            raise not_stored_error(request, path, projection)
    if form is None:
        return
    for path in form.paths:
        if projection.lost(path):
            raise not_stored_error(request, path, projection)
    if form.of_client is None:
        return
    if not stands_for(form.of_client, resource):
        what = f"{form.of_client.__name__} is not a class of {resource}"
        raise ReadError(what, remedy=f"Use the class of {resource.api_version}/{resource.kind.kind}")


def index_values(request: Request, indexes: Mapping[str, Indexed]) -> tuple[tuple[Indexed, object], ...]:
    """Return the keys of the values of `index=`. A value may be that of a Secret, and is not shown."""
    values = []
    for name, value in (request.index or {}).items():
        if name not in indexes:
            meant = near(name, indexes) if isinstance(name, str) else None
            known = f", only {', '.join(map(repr, indexes))}" if indexes else ""
            raise ReadError(
                f"the cache of {request.kind_text} has no index {shown(name)}{known}",
                remedy=f"Did you mean {meant!r}?" if meant else "Declare it: Cached(..., index={...})",
            )
        index = indexes[name]
        is_text_only = index.function is not None and not index.by_parts
        fitting = str if is_text_only else (str, bool, int, float, *((tuple,) if index.by_parts else ()))
        if not isinstance(value, fitting):
            what = f"the value for the index {name!r} is {shown_by_type(value)}"
            remedy = (
                "Give one value that the function of the index returns"
                if index.function
                else "Give one value"
            )
            raise ReadError(what, remedy=remedy)
        if isinstance(value, tuple) and (wrong := wrong_key(value)):
            what = f"the tuple for the index {name!r} has {wrong}"
            raise ReadError(what, remedy="Give a tuple that the function of the index returns")
        values.append((index, index_key_of(joined(value))))
    return tuple(values)
