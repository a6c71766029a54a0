"""Regions: sets of objects, for the filter of a cache and for requests. Decides exactly whether a region
contains another, or is disjoint from it.

A *box* restricts finitely many dimensions to one set of values each: the conjunction of a selector's
requirements. Dimensions are independent. So an object is inside a box if each of its values is in the set of
that dimension, and two boxes share an object if they share a value in every dimension.

A *union* of boxes contains a box if nothing remains of it after all of them have been subtracted. The
remainder is cut into disjoint boxes: outside the set of the first dimension, or inside it and outside that of
the second, and so on. Their number can grow exponentially (the problem is co-NP-complete), so it is bounded;
beyond the bound, `TooManyBoxes` is raised instead of a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from kopf_selectcache.core.errors import TooManyBoxes
from kopf_selectcache.core.redact import clipped

from .grammar import FieldTerm, LabelRequirement
from .kinds import Kind
from .values import (
    ANYTHING,
    NAME,
    NAMESPACE,
    NAMESPACE_OR_NONE,
    NO_NAMESPACE,
    Domain,
    Strings,
    ValueSet,
    pick,
)

MAX_BOXES = 10_000
"""Limit of the boxes that `uncovered` cuts."""


class Dimension(NamedTuple):
    """An independent property of an object: its namespace, its name, a field, or the value of a label key."""

    axis: Literal["namespace", "name", "field", "label"]
    key: str = ""


THE_NAMESPACE = Dimension("namespace")
THE_NAME = Dimension("name")

Box: TypeAlias = Mapping[Dimension, ValueSet]
"""The restricted dimensions, each with fewer than all values. Any other dimension may have any value."""

Point: TypeAlias = Mapping[Dimension, str | None]
"""One value in each of some dimensions. None is an absent label."""


def box_of(
    *,
    labels: Iterable[LabelRequirement] = (),
    fields: Iterable[FieldTerm] = (),
    names: Collection[str] | None = None,
    namespaces: Collection[str] | None = None,
    kind: Kind | None = None,
) -> Box:
    """Return the box of all objects that satisfy every requirement. A kind provides the domains of fields."""
    sets: dict[Dimension, list[ValueSet]] = {}
    if namespaces is not None:
        sets[THE_NAMESPACE] = [Strings.only(namespace_domain(kind), namespaces)]
    if names is not None:
        sets[THE_NAME] = [Strings.only(NAME, names)]
    for term in dict.fromkeys(fields):
        dimension, domain = field_dimension(term.label, kind)
        values = Strings.only(domain, [term.value])
        sets.setdefault(dimension, []).append(values if term.equal else ~values)
    for requirement in dict.fromkeys(labels):
        sets.setdefault(Dimension("label", requirement.key), []).append(requirement.allowed())
    box = {dimension: each[0] if len(each) == 1 else _common(each) for dimension, each in sets.items()}
    return {dimension: values for dimension, values in box.items() if not (~values).empty}


def _common(sets: Sequence[ValueSet]) -> ValueSet:
    """Intersect all sets, in pairs: one after the other, a thousand sets would copy their lists a thousand
    times.
    """
    while len(sets) > 1:
        pairs = [some & other for some, other in zip(sets[::2], sets[1::2], strict=False)]
        sets = [*pairs, *sets[2 * len(pairs) :]]
    return sets[0]


def namespace_domain(kind: Kind | None) -> Domain:
    """Return the namespaces that objects of this kind can have. Cluster-scoped ones have the empty one."""
    if kind is None or kind.namespaced is None:
        return NAMESPACE_OR_NONE
    return NAMESPACE if kind.namespaced else NO_NAMESPACE


def field_dimension(label: str, kind: Kind | None) -> tuple[Dimension, Domain]:
    """Return the dimension of a field label, and the values that objects of this kind can have there."""
    field = kind.field(label) if kind is not None else None
    match field.same_as if field is not None else label:
        case "metadata.name":
            return THE_NAME, NAME
        case "metadata.namespace":
            return THE_NAMESPACE, namespace_domain(kind)
        case canonical:
            return Dimension("field", canonical), field.domain if field is not None else ANYTHING


def conflict(box: Box) -> Dimension | None:
    """Return a dimension in which no value is allowed, or None if there are objects inside the box."""
    return next((dimension for dimension, values in box.items() if values.empty), None)


def overlap(some: Box, other: Box) -> Box | None:
    """Return the intersection of two boxes, or None if it is empty."""
    both = {**some, **other}
    for dimension in some.keys() & other.keys():
        both[dimension] = some[dimension] & other[dimension]
    return both if conflict(both) is None else None


def sticks_out(box: Box, branch: Box) -> list[Dimension] | None:
    """Return the dimensions in which a box exceeds a branch, or None if disjoint. Neither is empty."""
    dimensions = []
    for dimension, allowed in branch.items():
        if (values := box.get(dimension)) is None:
            dimensions.append(dimension)
        elif (values & allowed).empty:
            return None
        elif not (values & ~allowed).empty:
            dimensions.append(dimension)
    return dimensions


def uncovered(request: Box, union: Iterable[Box], *, limit: int = MAX_BOXES) -> Point | None:
    """Return a point of the request that is in no branch of the union, or None if the union contains the
    request.

    Raise TooManyBoxes after `limit` boxes. Most requests need none: one branch contains the request, or all
    branches that intersect it lack the same value.
    """
    if conflict(request) is not None:
        return None
    touching: list[tuple[list[Dimension], Box]] = []
    for branch in union:
        dimensions = sticks_out(request, branch) if conflict(branch) is None else None
        if dimensions is not None:
            if not dimensions:
                return None
            touching.append((dimensions, branch))
    if len(touching) > 1:
        return _Grid(request, [branch for _, branch in touching]).search(limit)
    left = dict(request)
    for dimensions, branch in touching:
        # The point fails in one dimension only, and so shows the requirement that excludes it.
        for dimension in branch:
            left[dimension] = (
                branch[dimension] & request[dimension] if dimension in request else branch[dimension]
            )
        at = dimensions[-1]
        left[at] = request[at] & ~branch[at] if at in request else ~branch[at]
    return {dimension: pick(values) for dimension, values in left.items()}


Cell: TypeAlias = dict[Dimension, int]
"""A box of a grid: the bits of its values in each dimension."""


class _Grid:
    """The finitely many values that a request and some branches distinguish in each dimension. Sets are
    integers with a bit for each value.

    Unlisted values that satisfy the same rules are one value, so the search is exact. Lower bits have values
    that are clearer to a reader: listed ones come first.
    """

    def __init__(self, request: Box, branches: Sequence[Box]) -> None:
        self.values: dict[Dimension, list[str | None]] = {}
        self.request: Cell = {}
        self.branches: list[Cell] = [{} for _ in branches]
        for dimension in {dimension: None for box in (request, *branches) for dimension in box}:
            self._divide(dimension, request, branches)

    def _divide(self, dimension: Dimension, request: Box, branches: Sequence[Box]) -> None:
        sets = [box[dimension] for box in (request, *branches) if dimension in box]
        listed = frozenset[str]().union(*(values.listed for values in sets))
        values = [*sorted(listed), *sets[0].classes(sets, listed)]
        bits = {value: 1 << index for index, value in enumerate(values)}
        bases: dict[Hashable, int] = {}

        def cut(box: Box) -> int:
            values = box[dimension]
            if values.base not in bases:
                bases[values.base] = sum(bit for value, bit in bits.items() if values.in_base(value))
            return bases[values.base] ^ sum(bits[value] for value in values.listed)

        self.values[dimension] = values
        self.request[dimension] = cut(request) if dimension in request else (1 << len(values)) - 1
        for cell, box in zip(self.branches, branches, strict=True):
            if dimension in box:
                cell[dimension] = cut(box)

    def search(self, limit: int) -> Point | None:
        """Subtract the branches from the request, depth first, until a remainder intersects no branch."""
        pending = [(self.request, self.branches)]
        cut = 0
        while pending:
            left, branches = pending.pop()
            touching = [
                (out, branch) for branch in branches if (out := _sticks_out(left, branch)) is not None
            ]
            if (escape := _escape(left, [branch for _, branch in touching])) is not None:
                return self._point(escape)
            # First the branch that cuts the remainder into the fewest pieces: often one, or none.
            at = min(range(len(touching)), key=lambda index: len(touching[index][0]))
            dimensions, branch = touching[at]
            others = [other for index, (_, other) in enumerate(touching) if index != at]
            inside = left
            for dimension in dimensions:
                pending.append(({**inside, dimension: inside[dimension] & ~branch[dimension]}, others))
                inside = {**inside, dimension: inside[dimension] & branch[dimension]}
            cut += len(dimensions)
            if cut > limit:
                raise TooManyBoxes(limit)
        return None

    def _point(self, cell: Cell) -> Point:
        """Return the clearest point of a cell, in the dimensions that the cell restricts."""
        return {
            dimension: values[(cell[dimension] & -cell[dimension]).bit_length() - 1]
            for dimension, values in self.values.items()
            if cell[dimension] != (1 << len(values)) - 1
        }


def _sticks_out(cell: Cell, branch: Cell) -> list[Dimension] | None:
    """Do the same as `sticks_out`, for cells."""
    dimensions = []
    for dimension, allowed in branch.items():
        values = cell[dimension]
        if not values & allowed:
            return None
        if values & ~allowed:
            dimensions.append(dimension)
    return dimensions


def _escape(cell: Cell, branches: Sequence[Cell]) -> Cell | None:
    """Return a part of the cell that no branch intersects, if one dimension alone shows it. That is fast even
    for thousands of branches.
    """
    if not branches:
        return cell
    for dimension in branches[0]:
        left = cell[dimension]
        for branch in branches:
            left &= ~branch.get(dimension, -1)
        if left:
            return {**cell, dimension: left}
    return None


# ---- Keys: which objects a stream could hold, as far as their metadata shows.
# Streams that could hold the same key are a *group*.


class HasKeys(Protocol):
    """A stream, or a substore."""

    @property
    def keys(self) -> Keys:
        """The keys that it could hold."""


_HasKeys = TypeVar("_HasKeys", bound=HasKeys)


class Selectable(Protocol):
    """The metadata of an object, such as that of a record."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Selected:
    """The objects that one branch of a filter selects, as far as their metadata shows."""

    namespaces: frozenset[str] | None = None
    names: frozenset[str] | None = None
    requirements: tuple[LabelRequirement, ...] = ()
    terms: tuple[FieldTerm, ...] = ()
    """Terms of the name and the namespace."""

    def has(self, record: Selectable) -> bool:
        known = {"metadata.name": record.name, "metadata.namespace": record.namespace}
        return (
            (self.namespaces is None or record.namespace in self.namespaces)
            and (self.names is None or record.name in self.names)
            and all(each.matches(record.labels) for each in self.requirements)
            and all(each.matches(known) for each in self.terms)
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """The namespace and names that a substore selects; None means any."""

    namespace: str | None = None
    names: frozenset[str] | None = None
    complete: bool = False
    """True if the stream has no other selector. An object that departs from such a substore is gone."""
    namespaces: frozenset[str] | None = None
    """The namespaces of a stream of all objects, of which those in other namespaces are not stored."""
    excluded: frozenset[str] = frozenset()
    """The namespaces that a stream of all objects excludes."""
    are_outside: bool = False
    """True if the stream has the objects outside of the filter, as `OutsideRecord`s."""
    others: tuple[Selected, ...] = ()
    """The objects of a stream that are not stored, because others have them."""

    @property
    def are_of_path(self) -> bool:
        """True if there is no restriction besides the namespace of the path."""
        return self.names is None and self.namespaces is None and not self.excluded

    def have(self, key: tuple[str, str]) -> bool:
        return self.have_namespace(key[0]) and (self.names is None or key[1] in self.names)

    def is_other(self, record: Selectable) -> bool:
        """Return True if another stream has the object."""
        return any(each.has(record) for each in self.others)

    def meet(self, other: Keys) -> bool:
        """Return True if both could hold the same key."""
        if self.names is not None and other.names is not None and self.names.isdisjoint(other.names):
            return False
        for each, of in ((self, other), (other, self)):
            if each.namespace is not None:
                return of.have_namespace(each.namespace)
            if each.namespaces is not None:
                return any(map(of.have_namespace, each.namespaces))
        return True

    def have_namespace(self, namespace: str) -> bool:
        """Return True if there could be objects of this namespace."""
        return (
            self.namespace in (None, namespace)
            and (self.namespaces is None or namespace in self.namespaces)
            and namespace not in self.excluded
        )


def groups_of(streams: Iterable[_HasKeys]) -> tuple[frozenset[_HasKeys], ...]:
    """Return groups of streams, or of their substores. Those of different groups have no key in common."""
    within: dict[str | None, list[_HasKeys]] = {}
    for stream in streams:
        within.setdefault(stream.keys.namespace, []).append(stream)
    # There may be a thousand namespaces. Only a stream of all of them has a key in common with several.
    parts = [[*chain(*within.values())]] if None in within else within.values()
    found: list[frozenset[_HasKeys]] = []
    for part in parts:
        groups: list[frozenset[_HasKeys]] = []
        for stream in part:
            near = [group for group in groups if any(stream.keys.meet(other.keys) for other in group)]
            groups = [*(group for group in groups if group not in near), frozenset({stream}).union(*near)]
        found += groups
    return tuple(found)


# ---- The result of comparing two regions: an answer, and for NO an object that proves it. Pure data.

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
