"""What comes of comparing a filter with a read: the verdict, the witness that shows it, the request that would do.

Only words are made here; the answer itself is worked out in `core.selection.regions`.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.selection.regions import MAX_BOXES, THE_NAME, THE_NAMESPACE, Point, field_dimension
from kopf_selectcache.errors import clipped

if TYPE_CHECKING:
    from .selector import AnyOf, Selector

_MOST_SHOWN = 1_000
"""How many characters of a selector a sentence has: filters of a thousand branches are shown by their start and end."""


class Answer(StrEnum):
    """Whether a filter covers a request."""

    YES = "yes"
    """The filter holds every object that the request can select."""
    NO = "no"
    """The request can select an object that the filter does not hold: the witness."""
    UNKNOWN = "unknown"
    """To find out would cost more than the bound allows. Whoever asks must take it for a NO."""


class _Frozen(Mapping[str, str]):
    """A dict that nobody can change, so that it can be a part of what is hashed."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, str]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> str:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


@dataclass(frozen=True, slots=True)
class Witness:
    """An object that the request selects and the filter does not hold. It has no other labels; other fields do not matter."""

    namespace: str
    """Empty for an object of a cluster-scoped kind."""
    name: str
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    fails: tuple[str, ...] = ()
    """For each branch of the filter, a requirement that this object fails, such as `app=web`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _Frozen(self.labels))
        object.__setattr__(self, "fields", _Frozen(self.fields))

    @classmethod
    def at(cls, point: Point, kind: Kind | None, field_labels: Iterable[str]) -> Witness:
        """Make a witness of a point; what it leaves open is filled with the plainest value that the kind can have."""
        cluster_scoped = kind is not None and kind.namespaced is False
        fields = {}
        for label in field_labels:
            dimension, domain = field_dimension(label, kind)
            if dimension.axis == "field":
                value = point.get(dimension)
                fields[label] = value if value is not None else "" if domain.accepts("") else domain.example(0)
        return cls(
            namespace=point.get(THE_NAMESPACE, "" if cluster_scoped else "default") or "",
            name=point.get(THE_NAME) or "example",
            labels={at.key: value for at, value in point.items() if at.axis == "label" and value is not None},
            fields=fields,
        )

    def __str__(self) -> str:
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        labels = ",".join(f"{key}={value}" for key, value in self.labels.items())
        fields = ",".join(f"{label}={value}" for label, value in self.fields.items())
        return clipped(f"{path} ({labels or 'no labels'}{'; ' if fields else ''}{fields})", _MOST_SHOWN)


@dataclass(frozen=True)
class Verdict:
    """Whether a filter covers a request; true in a condition only for YES. As text it is one sentence with the reason.

    >>> import kopf_selectcache as selectcache
    >>> print(selectcache.Selector('app=web').covers(selectcache.Selector('app in (web,db)')))
    label='app in (db,web)' is not covered by label='app=web': default/example (app=db) would fail app=web;
    label='app=web' would be covered.
    """

    answer: Answer
    filter: Selector | AnyOf
    request: Selector | AnyOf
    kind: Kind | None = None
    witness: Witness | None = None
    """For NO, the object that shows it."""

    def __bool__(self) -> bool:
        return self.answer is Answer.YES

    @cached_property
    def narrowest(self) -> Selector | AnyOf | None:
        """
        The request cut down to what the filter covers: to its namespaces if that will do, else to as much as one branch
        keeps; None if nothing is left.
        """
        return self.request.narrowed_to(self.filter, kind=self.kind)

    def __str__(self) -> str:
        request, declared = clipped(self.request, _MOST_SHOWN), clipped(self.filter, _MOST_SHOWN)
        if self.answer is Answer.YES:
            if why := self.request.contradiction(kind=self.kind):
                return f"{request} is covered by anything: {why}."
            return f"{request} is covered by {declared}."
        if self.answer is Answer.UNKNOWN:
            reason = f"whether {request} is covered by {declared} is undecided after {MAX_BOXES:,} boxes"
        else:
            assert self.witness is not None, "a NO has a witness"
            fails = clipped(" and ".join(dict.fromkeys(self.witness.fails)), _MOST_SHOWN)
            reason = f"{request} is not covered by {declared}: {self.witness} would fail {fails}"
        if self.narrowest is None:
            return f"{reason}; so would all that is asked for, and only another filter helps."
        return f"{reason}; {clipped(self.narrowest, _MOST_SHOWN)} would be covered."
