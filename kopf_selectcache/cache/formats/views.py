"""Lazy forms: `BodyView`, usable as Kopf's body, decodes parts at first access; `Objects` is a lazy list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, overload

import msgspec

from kopf_selectcache import _kopf
from kopf_selectcache._errors import ReadOnly
from kopf_selectcache.core.json_text import decoded, with_room
from kopf_selectcache.core.redact import counted, shown
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.projection import Tree
from kopf_selectcache.core.store.record import PartialRecord, Record, compact_json
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.selectors.signatures import miscalled

from .partial import PartialMembers, is_lost, is_stored, marked, refuse_key, tree_of

_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _refuse(*_: object, **__: object) -> NoReturn:
    raise ReadOnly(
        "views of objects are read-only",
        remedy="Make a dict: copy.deepcopy(dict(view))\nRead it without as_='view'",
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


class PartialDict(PartialMembers, Dict):
    """A dict that cannot be changed, and of which a part is stored."""

    __slots__ = ("_tree", "partial")

    def __init__(self, value: dict[str, Any], partial: str, tree: Tree) -> None:
        dict.__init__(self, value)
        self.partial, self._tree = partial, tree


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
    """Return a decoded value, made read-only in place: a copy takes 1.5 times as long."""
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
    """Return a copy with other types, without recursion: objects may be nested deeper than Python's stack."""
    top = [value]
    todo: list[Any] = [top]
    for each in todo:  # The list grows during the loop.
        pairs = dict.items(each) if isinstance(each, dict) else enumerate(each)
        put = dict.__setitem__ if isinstance(each, dict) else list.__setitem__
        for key, inner in pairs:
            if issubclass(kind := type(inner), mapping) or kind is sequence:
                copy = to_sequence(inner) if kind is sequence else to_mapping(inner)
                put(each, key, copy)  # The key exists, so the iteration stays valid.
                todo.append(copy)
    return top[0]


class BodyView(_kopf.Body):
    """The result of `as_='view'`: read-only, and usable wherever Kopf takes a body.

    pod = cache.get('pods', 'web-1', namespace=namespace, as_='view')
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
        elif key in made:
            return made[key]
        members = self._split or self._members()
        partial = self.partial
        tree = tree_of(partial) if partial else None
        if partial and key not in members and not is_stored(key, tree):
            refuse_key(key, partial)
        part = members[key]
        try:
            found = _frozen(msgspec.json.decode(part))
        except (msgspec.ValidationError, RecursionError):
            found = _converted(decoded(part), dict, list, Dict, List)
        if tree is not None and tree.part(key).parts:
            found = marked(found, partial, tree.part(key), PartialDict)
        made[key] = found
        return found

    def get(self, key: str, default: Any = None) -> Any:
        """Return the member, or the default if the object has none; raise NotKept if it is not stored."""
        try:
            return self[key]
        except KeyError:
            if is_lost(key, tree_of(self.partial)):
                raise
            return default

    def __iter__(self) -> Iterator[str]:
        return iter(self._members())

    def __len__(self) -> int:
        return len(self._members())

    @property
    def metadata(self) -> Meta:
        return Meta("metadata", self)

    @property
    def meta(self) -> Meta:
        return self.metadata

    @property
    def spec(self) -> Spec:
        return Spec("spec", self)

    @property
    def status(self) -> Status:
        return Status("status", self)

    def _members(self) -> dict[str, msgspec.Raw]:
        """Return the members of the object, not decoded."""
        if self._split is None:
            self._split = with_room(partial(_PARTS.decode, self._data()))
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


class _Part(_kopf.MappingView[str, Any]):
    """A part of a view, empty if the view has none. It is made, and read, in fewer calls than Kopf's own."""

    def __init__(self, name: str, src: Any) -> None:
        self._src, self._path = src, (name,)

    def __getitem__(self, key: str) -> Any:
        return self._src[self._path[0]][key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the member, or the default if there is none; raise NotKept if it is not stored."""
        part = self._src.get(self._path[0])
        return default if part is None else part.get(key, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._src.get(self._path[0]) or ())

    def __len__(self) -> int:
        return len(self._src.get(self._path[0]) or ())


class Meta(_Part, _kopf.Meta):
    # Kopf's own has these, and they have it: only the garbage collector would free them, with the object.
    _labels = property(partial(_Part, "labels"))
    _annotations = property(partial(_Part, "annotations"))


class Spec(_Part, _kopf.Spec):
    pass


class Status(_Part, _kopf.Status):
    pass


class Views:
    """Makes the views of the objects of one change: one of each record."""

    __slots__ = ("_made", "_resource")

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._made: dict[Record, BodyView] = {}

    def __call__(self, record: Record) -> BodyView:
        view = self._made.get(record)
        if view is None:
            view = self._made[record] = BodyView(record if record.stored else self._metadata_of(record))
        return view

    def __str__(self) -> str:
        return str(self._resource)

    def _metadata_of(self, record: Record) -> bytes:
        metadata = {
            "name": record.name,
            "namespace": record.namespace,
            "uid": record.uid,
            "resourceVersion": record.version,
            "labels": record.labels,
        }
        return compact_json(
            {
                "apiVersion": self._resource.api_version,
                "kind": self._resource.kind.kind,
                "metadata": {name: value for name, value in metadata.items() if value},
            }
        )


def record_of(view: BodyView) -> Record:
    """Return the record of a view. If only the metadata of the object is known, it has no other part."""
    held = view._held  # Users of the view do not see it.  # noqa: SLF001
    if isinstance(held, Record):
        return held
    metadata = view.metadata
    key = metadata.namespace or "", str(metadata.name)
    return Record(*key, str(metadata.uid), str(metadata.get("resourceVersion")), {}, (), held)


# ---- Objects: the lazy sequence that reads of several objects return. It decodes each object on access.

_T_co = TypeVar("_T_co", covariant=True)


def _refuse_change(*_: object, **__: object) -> NoReturn:
    raise ReadOnly(
        "the answer of a read can't be changed or sorted in place",
        remedy="Make a list: list(cache.list(...))\nTo sort: sorted(cache.list(...), key=...)",
    )


def _keys_of(records: Sequence[Record]) -> list[Key]:
    return [Key(record.name, namespace=record.namespace or None) for record in records]


class Objects(Sequence[_T_co]):
    """The result of `cache.list` and similar reads. Each access decodes a new object, which the caller may
    change.

    pods = cache.list('pods', labels='app=web')
    len(pods), pods.keys()      # decodes nothing
    pods.version                # the version as of which it is true
    pods.unreadable             # objects that `list_cached` leaves out, as they cannot be decoded
    for pod in pods: ...        # one object at a time
    mine = list(pods)           # all objects, to change or store them
    """

    __slots__ = ("_make", "_records", "_unreadable", "version")
    __hash__ = None  # type: ignore[assignment]  # As of a list.

    def __init__(
        self,
        records: Sequence[Record],
        make: Callable[[Record], _T_co],
        unreadable: Sequence[Record] = (),
        version: str = "",
    ) -> None:
        self._records = records
        self._make = make
        self._unreadable = unreadable
        self.version: Final = version
        """The version as of which the answer is true; empty if the server has answered."""

    def keys(self) -> list[Key]:
        """Return the key of each object.

        for key in cache.list('pods', labels='app=web').keys():
            print(key, cache.get('pods', key))      # shop/web-1 {...}
        """
        return _keys_of(self._records)

    def batches(self, size: int) -> Iterator[list[_T_co]]:
        """Yield lists of at most `size` objects. Each list is made when it is reached, and not kept.

        for pods in cache.list_cached('pods').batches(100):
            send(pods)
        """
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"batches() takes 1 object or more, not {shown(size)}")
        return (list(self[start : start + size]) for start in range(0, len(self), size))

    @property
    def unreadable(self) -> list[Key]:
        """The key of each object that may match, and is left out since it cannot be decoded."""
        return _keys_of(self._unreadable)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[_T_co]:
        return map(self._make, self._records)

    @overload
    def __getitem__(self, index: int) -> _T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Objects[_T_co]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, (str, Key)):
            what = f"the answer of a read takes the number of an object, and got {shown(str(index))}"
            raise miscalled(what, remedy="To read one object: cache.get(kind, name, namespace=namespace)")
        return (
            Objects(self._records[index], self._make, self._unreadable, self.version)
            if isinstance(index, slice)
            else self._make(self._records[index])
        )

    def __add__(self, others: Iterable[Any]) -> list[Any]:
        return [*self, *others]

    def __radd__(self, others: Iterable[Any]) -> list[Any]:
        return [*others, *self]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Objects, list)):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    def __repr__(self) -> str:
        """Return the number and names of the objects, without their contents: they may be Secrets."""
        which = [str(key) for key in _keys_of(self._records[:5])]
        more = f" and {len(self) - len(which):,} more" if len(self) > len(which) else ""
        return f"<{counted(len(self), 'object')}{': ' if which else ''}{', '.join(which)}{more}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are lists of the objects."""
        return list, (list(self),)

    if not TYPE_CHECKING:  # Type checkers report calls of missing methods.
        __setitem__ = __delitem__ = __iadd__ = append = clear = copy = extend = insert = pop = remove = (
            reverse
        ) = sort = _refuse_change
