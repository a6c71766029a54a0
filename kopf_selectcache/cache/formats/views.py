"""BodyView: a read-only view of an object, usable as Kopf's body.

A part of the object, such as its metadata, is decoded at its first access.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from kopf_selectcache._errors import ReadOnly
from kopf_selectcache._kopf import Body, Meta, Spec, Status
from kopf_selectcache.core.recursion import decoded, on_empty_stack
from kopf_selectcache.core.store.record import PartialRecord, Record

from .partial import refuse_key

_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _refuse(*_: object, **__: object) -> NoReturn:
    raise ReadOnly(
        "a view of an object is changed, and views are read-only",
        remedy="Make a dict of your own, copy.deepcopy(dict(view)); or read it without as_='view'",
    )


class Dict(dict[str, Any]):
    """A dict that cannot be changed. Its copies are plain dicts: copying and pickling go by `__reduce__`."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (_thawed(self),)

    def __deepcopy__(self, _: object) -> dict[str, Any]:
        """Return a plain dict. `copy` would copy that once more, and recurse."""
        copied: dict[str, Any] = _thawed(self)
        return copied

    if not TYPE_CHECKING:  # For type checkers it is a plain dict.
        __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class List(list[Any]):
    """A list that cannot be changed. Its copies are plain lists."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (_thawed(self),)

    def __deepcopy__(self, _: object) -> list[Any]:
        copied: list[Any] = _thawed(self)
        return copied

    if not TYPE_CHECKING:  # As above.
        __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = (
            reverse
        ) = sort = _refuse


def _frozen(value: Any) -> Any:
    """Return a read-only version of a decoded value. It is converted in place: a copy takes 1.5 times as
    long.
    """
    if isinstance(value, dict):
        for key, each in value.items():
            if (kind := type(each)) is dict or kind is list:
                value[key] = _frozen(each)
        return Dict(value)
    if isinstance(value, list):
        return List(_frozen(each) if (kind := type(each)) is dict or kind is list else each for each in value)
    return value


def _thawed(value: Any) -> Any:
    return _converted(value, Dict, List, dict, list)


def _converted(value: Any, mapping: type, sequence: type, to_mapping: type, to_sequence: type) -> Any:
    """Return a copy with other types of dicts and lists. It does not recurse, since objects may be nested
    more deeply than Python's stack.
    """
    top = [value]
    todo: list[Any] = [top]
    for each in todo:  # The list grows during the loop.
        pairs = dict.items(each) if isinstance(each, dict) else enumerate(each)
        put = dict.__setitem__ if isinstance(each, dict) else list.__setitem__
        for key, inner in pairs:
            if (kind := type(inner)) is mapping or kind is sequence:
                copy = to_mapping(inner) if kind is mapping else to_sequence(inner)
                put(each, key, copy)  # The key exists, so the iteration stays valid.
                todo.append(copy)
    return top[0]


class BodyView(Body):
    """The result of `as_='view'`: read-only, and usable wherever Kopf takes a body.

    pod = cache.get('pods', 'web-1', namespace, as_='view')
    kopf.info(pod, reason='Seen', message=f'on {pod.spec["nodeName"]}')
    """

    _split: dict[str, msgspec.Raw] | None = None
    _made: dict[str, Any] | None = None
    _part = ""

    def __init__(self, held: Record | bytes, partial: str = "") -> None:
        # Kopf's own constructor is not called: it would create all parts, which are only created on access.
        # Lists make hundreds of views at once, so this one sets no more than it must.
        self._held = held
        if partial:
            self._part = partial

    @property
    def partial(self) -> str:
        """The stored part of the object, as it is declared; empty if the object is whole."""
        held = self._held
        return held.part if isinstance(held, PartialRecord) else self._part

    def __getitem__(self, key: str) -> Any:
        made = self._made
        if made is None:
            made = self._made = {}
        if key not in made:
            members = self._members()
            if self.partial and key not in members:
                refuse_key(key, self.partial)
            part = members[key]
            try:
                made[key] = _frozen(msgspec.json.decode(part))
            except (msgspec.ValidationError, RecursionError):
                made[key] = _converted(decoded(part), dict, list, Dict, List)
        return made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members())

    def __len__(self) -> int:
        return len(self._members())

    @property
    def metadata(self) -> Meta:
        return Meta(self)

    @property
    def meta(self) -> Meta:
        return self.metadata

    @property
    def spec(self) -> Spec:
        return Spec(self)

    @property
    def status(self) -> Status:
        return Status(self)

    def _members(self) -> dict[str, msgspec.Raw]:
        """Return the members of the object, not decoded."""
        if self._split is None:
            data = self._data()
            try:
                self._split = _PARTS.decode(data)
            except RecursionError:
                self._split = on_empty_stack(partial(_PARTS.decode, data))
        return self._split

    def _data(self) -> bytes:
        return self._held if isinstance(self._held, bytes) else self._held.data

    def __repr__(self) -> str:
        """Return the name of the object without its contents: Kopf's own `repr` would show a Secret."""
        metadata = self.get("metadata") or {}
        known = {
            "apiVersion": self.get("apiVersion"),
            "kind": self.get("kind"),
            **{key: metadata.get(key) for key in ("namespace", "name")},
        }
        return f"BodyView({', '.join(f'{key}={value!r}' for key, value in known.items() if value)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._data(), self.partial)

    if not TYPE_CHECKING:  # Type checkers report calls of missing methods.
        __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse
