"""Objects: the lazy sequence that reads of several objects return. It decodes each object on access.

Many decoded objects at once take memory, and time of the garbage collector. A loop has one object at a time;
the length and the names need no object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, overload

from kopf_selectcache._errors import ReadOnly
from kopf_selectcache.core.redact import shown
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.selectors.signatures import miscalled

_T_co = TypeVar("_T_co", covariant=True)


def _refuse(*_: object, **__: object) -> NoReturn:
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
        return (
            f"<{len(self):,}"
            f" object{'' if len(self) == 1 else 's'}{': ' if which else ''}{', '.join(which)}{more}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are lists of the objects."""
        return list, (list(self),)

    if not TYPE_CHECKING:  # Type checkers report calls of missing methods.
        __setitem__ = __delitem__ = __iadd__ = append = clear = copy = extend = insert = pop = remove = (
            reverse
        ) = sort = _refuse
