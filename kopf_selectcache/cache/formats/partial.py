"""PartialObject: an object of which a part is stored. It says so, and writes of whole objects refuse it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from pprint import pformat
from types import SimpleNamespace
from typing import Any, NoReturn

from kopf_selectcache._errors import NotKept
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.store.projection import Part, Tree
from kopf_selectcache.core.store.record import PartialRecord, Record
from kopf_selectcache.selectors.kind_keys import (
    converted,
    is_model,
    is_pykube,
    item_of,
    made,
    models_of,
    to_dict,
)


class NotInPart(NotKept, KeyError):
    """A key that a partial object lacks. It is also a KeyError, as mappings raise."""


def refuse_key(key: object, partial: str) -> NoReturn:
    """Raise NotInPart."""
    raise _not_stored(NotInPart, key, partial)


def refuse_member(name: str, partial: str) -> NoReturn:
    """Raise NotKept for a member of an object of a client."""
    raise _not_stored(NotKept, name, partial)


def _not_stored(error: type[NotKept], key: object, partial: str) -> NotKept:
    return error(
        f"the object has no {shown(key)}, because the cache only stores a part of it:"
        f" {clipped(partial, 200)}",
        remedy="Store that part, too\nTo read the whole object: cache.fetch(..., whole=True)",
    )


class PartialMembers(dict[str, Any]):
    """A dict of which a part is stored. `[...]` and `get` raise NotKept for a member that is not."""

    __slots__ = ()

    partial: str
    """The stored part, as it is declared: `keep=['spec.nodeName']`."""
    _tree: Tree | None

    def __missing__(self, key: str) -> NoReturn:
        if not is_stored(key, self._tree):
            refuse_key(key, self.partial)
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the member, or the default if there is none; raise NotKept if it is not stored."""
        self._require_stored(key)
        return dict.get(self, key, default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the member, after setting it if there is none; raise NotKept if it is not stored."""
        self._require_stored(key)
        return super().setdefault(key, default)

    def _require_stored(self, key: str) -> None:
        if key not in self and is_lost(key, self._tree):
            refuse_key(key, self.partial)


class PartialObject(PartialMembers):
    """The dict of an object of which only a part is stored.

        pod = cache.get('pods', 'web-1', namespace=namespace)     # with Cached(..., metadata_only=True)
        pod.partial                                     # 'metadata_only=True'
        pod['spec']                                     # NotKept

    It is equal to a plain dict, and written as one to JSON. Copies and pickles are partial as well;
    `dict(pod)` is a plain dict. Members of which a part is stored are partial, too.
    """

    __slots__ = ("_tree", "partial")

    def __init__(self, obj: Mapping[str, Any], partial: str, tree: Tree | None = None) -> None:
        super().__init__(obj)
        self.partial = partial
        self._tree = tree if tree is not None else tree_of(partial)

    def copy(self) -> PartialObject:
        return PartialObject(self, self.partial, self._tree)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> PartialObject:
        return PartialObject(deepcopy(dict(self), memo), self.partial, self._tree)

    def __or__(self, other: Any) -> Any:
        return self._joined(dict.__or__(self, other))

    def __ror__(self, other: Any) -> Any:
        return self._joined(dict.__ror__(self, other))

    def _joined(self, joined: Any) -> Any:
        return joined if joined is NotImplemented else PartialObject(joined, self.partial, self._tree)

    def __reduce__(self) -> tuple[Any, ...]:
        return PartialObject, (dict(self), self.partial)


def tree_of(partial: str) -> Tree | None:
    """Return what is stored of an object; None if it is not known, as of a pickled one."""
    return partial.tree if isinstance(partial, Part) else None


def exact_tree_of(partial: str) -> Tree | None:
    """Return what is stored of an object, of its metadata as well; None if it is not known."""
    return partial.exact if isinstance(partial, Part) else None


def is_lost(key: str, tree: Tree | None) -> bool:
    """Return True if it is known that a member is not stored."""
    return tree is not None and tree.part(key).is_empty


def is_stored(key: str, tree: Tree | None) -> bool:
    """Return True if it is known that a member would be stored, if the object had it."""
    return tree is not None and not tree.part(key).is_empty


def marked(value: Any, partial: str, tree: Tree, mark: Callable[[dict[str, Any], str, Tree], Any]) -> Any:
    """Mark the members of a new value of which a part is stored, in place; return the value, marked."""
    if isinstance(value, list):
        return type(value)(marked(each, partial, tree, mark) for each in value)
    if not isinstance(value, dict):
        return value
    for key, part in tree.parts.items():
        if part.parts and key in value:
            dict.__setitem__(value, key, marked(value[key], partial, part, mark))
    return mark(value, partial, tree)


def partial_of(source: object) -> str:
    """Return the stored part of an object that a read has returned; empty if it is whole, or unknown."""
    if is_pykube(type(source)):
        source = getattr(source, "obj", None)
    is_object = isinstance(source, Mapping) or is_model(type(source))
    found = getattr(source, "partial", "") if is_object else ""
    return found if isinstance(found, str) else ""


def object_of(record: Record) -> dict[str, Any]:
    """Return a stored object as a new dict, marked if only a part of it is stored."""
    obj = record.decode()
    if not isinstance(record, PartialRecord):
        return obj
    tree = tree_of(record.part)
    if tree is None:
        return PartialObject(obj, record.part)
    found: dict[str, Any] = marked(obj, record.part, tree, PartialObject)
    return found


# ---- Objects of other clients.

_OF_WHOLES = frozenset({"to_dict", "to_json", "model_dump", "model_dump_json", "openapi_types"})
"""The attributes that clients look at before they send a model, or make a dict of it."""

_UNCHECKED = SimpleNamespace(client_side_validation=False)
"""The configuration of models that lack members which the client requires."""


def made_of_part(given: type, record: PartialRecord) -> Any:
    """Return the stored part of an object as one of the class, or raise whatever the client raises."""
    obj, part = record.decode(), record.part
    tree = exact_tree_of(part)
    if is_pykube(given):
        part_of_it = PartialObject(obj, part) if tree is None else marked(obj, part, tree, PartialObject)
        return made(_extended(given), part_of_it)
    return _model(given, obj, part, tree, models_of(given))


def whole_class(given: type) -> type:
    """Return the class of the client of an object that may be partial."""
    return given.__bases__[1] if issubclass(given, (_PartialModel, _PartialAPIObject)) else given


def _model(given: Any, obj: Mapping[str, Any], part: str, tree: Tree | None, models: object) -> Any:
    """Return a model with the stored members. With an unknown tree, those that it lacks are not stored."""
    values, lost = dict[str, Any](), set[str]()
    for name, key in given.attribute_map.items():
        below = tree and tree.part(key)
        if key in obj:
            values[name] = _value(given.openapi_types[name], obj[key], part, below, models)
        elif below is None or below.is_empty:
            lost |= {name, f"var{name}"}  # The second is that of pydantic for `_from` and similar.
    return _new(given, values, part, frozenset(lost))


def _value(wanted: str, value: Any, part: str, tree: Tree | None, models: object) -> Any:
    """Return a stored value as it is in the models, by the type that they name for it."""
    if tree is not None and not tree.parts:
        return converted(wanted, value, models, {})
    if (item := item_of(wanted)) is not None and isinstance(value, list):
        return [_value(item, each, part, tree, models) for each in value]
    if item is not None and isinstance(value, Mapping):
        pairs = value.items()
        found = {key: _value(item, each, part, tree and tree.part(key), models) for key, each in pairs}
        return found if tree is None else PartialObject(found, part, tree)
    model: Any = getattr(models, wanted, None)
    if isinstance(value, Mapping) and isinstance(model, type) and is_model(model):
        return _model(model, value, part, tree, models)
    return converted(wanted, value, models, {}) if tree is None else marked(value, part, tree, PartialObject)


def _new(given: Any, values: dict[str, Any], part: str, lost: frozenset[str]) -> Any:
    """Make a model of its members. No client would check it: a required member may not be stored."""
    extended = _extended(given)
    if hasattr(extended, "model_construct"):
        model = extended.model_construct(**values)
        for name in lost & vars(model).keys():  # Serializers of pydantic do not ask for attributes.
            del vars(model)[name]
    else:
        model = extended(**values, local_vars_configuration=_UNCHECKED)
    object.__setattr__(model, "partial", part)
    object.__setattr__(model, "_lost", lost)
    return model


@lru_cache(1_024)
def _extended(given: type) -> Any:
    """Return the class for parts of objects of a class: it has the same name, and is a subclass."""
    names = {"__module__": given.__module__, "__qualname__": given.__qualname__, "__doc__": given.__doc__}
    if is_pykube(given):
        return type(given)(given.__name__, (_PartialAPIObject, given), names)
    slots = {"__slots__": ("_lost", "partial")}
    # A validator takes pydantic 10 ms to build, and only those who change a part need it.
    config = {"model_config": {"defer_build": True}} if hasattr(given, "model_construct") else {}
    return type(given)(given.__name__, (_PartialModel, given), names | slots | config)


class _PartialModel:
    """The part of a client's model. It has no annotations: pydantic would make members of them."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # As of the models.

    def __new__(cls, *_: object, **__: object) -> Any:
        model = super().__new__(cls)
        object.__setattr__(model, "partial", "")
        object.__setattr__(model, "_lost", frozenset())
        return model

    def __getattribute__(self, name: str) -> Any:
        # The error is no AttributeError, so that `hasattr` and `getattr(..., None)` do not hide it.
        get = super().__getattribute__
        if name in get("_lost"):
            refuse_member(name, get("partial"))
        if name in _OF_WHOLES and (part := get("partial")):
            _refuse_whole(f"{type(self).__name__}.{name}", part)
        return get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        lost = object.__getattribute__(self, "_lost")
        if name in lost:
            object.__setattr__(self, "_lost", lost - {name, f"var{name}"})

    def __reduce__(self) -> tuple[Any, ...]:
        given: Any = whole_class(type(self))
        lost = object.__getattribute__(self, "_lost")
        values = {name: getattr(self, name) for name in given.attribute_map if name not in lost}
        return _new, (given, values, object.__getattribute__(self, "partial"), lost)

    def __copy__(self) -> Any:
        _, given = self.__reduce__()
        return _new(*given)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        _, given = self.__reduce__()
        return _new(*deepcopy(given, memo))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, whole_class(type(self))) and to_dict(self) == to_dict(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        """Return the stored part, with the names of JSON."""
        return pformat(to_dict(self))

    to_str = __str__ = __repr__


class _PartialAPIObject:
    """The part of an object of `pykube`, whose dict is marked until the whole object is loaded."""

    obj: dict[str, Any]
    api: Any

    @property
    def partial(self) -> str:
        """The stored part, as it is declared; empty once the whole object is loaded."""
        return partial_of(self.obj)

    def create(self, *given: Any, **options: Any) -> Any:
        self._require_whole("create")
        return super().create(*given, **options)  # type: ignore[misc]  # The other base has it.

    def update(self, *given: Any, **options: Any) -> Any:
        self._require_whole("update")
        return super().update(*given, **options)  # type: ignore[misc]  # As above.

    def _require_whole(self, method: str) -> None:
        if part := self.partial:
            _refuse_whole(f"{type(self).__name__}.{method}", part)

    def __reduce__(self) -> tuple[Any, ...]:
        return _api_object, (whole_class(type(self)), vars(self))


def _api_object(given: type, members: dict[str, Any]) -> Any:
    made_again = object.__new__(_extended(given))
    vars(made_again).update(members)
    return made_again


def _refuse_whole(what: str, part: str) -> NoReturn:
    raise NotKept(
        f"{what} needs a whole object, but the cache only stores a part of it: {clipped(part, 200)}",
        remedy="To read the whole object: cache.fetch(..., whole=True)\nRead it as a dict",
    )
