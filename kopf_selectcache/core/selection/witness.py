"""The result of comparing two regions: an answer, and for NO an object that proves it. Pure data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kopf_selectcache.core.redact import clipped

from .kinds import Kind
from .regions import THE_NAME, THE_NAMESPACE, Point, field_dimension

_MOST_SHOWN = 1_000
"""Limit in characters of a witness's text."""


class Answer(StrEnum):
    """Does a filter cover a request?"""

    YES = "yes"
    """The filter holds every object that the request can select."""
    NO = "no"
    """The request can select an object that the filter does not hold: the witness."""
    UNKNOWN = "unknown"
    """The check would cost more than its bound. Callers treat it as NO."""


class _Frozen(Mapping[str, str]):
    """An immutable dict, so that it can be hashed."""

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
    """An object that the request selects and the filter does not hold. It has no other labels, and any other
    fields.
    """

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
        """Make a witness of a point. Dimensions that the point leaves open get the plainest value that the
        kind allows.
        """
        cluster_scoped = kind is not None and kind.namespaced is False
        fields = {}
        for label in field_labels:
            dimension, domain = field_dimension(label, kind)
            if dimension.axis == "field":
                value = point.get(dimension)
                fields[label] = (
                    value if value is not None else "" if domain.accepts("") else domain.example(0)
                )
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
