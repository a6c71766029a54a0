"""Which of the held objects a read means, and how it wants them: selected, post-filtered, sorted. Decides no
verdict.

Labels, names and namespaces are at hand in each record; only fields and paths need the object decoded. Of
fields whose paths were dropped, the record has the values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypedDict

from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement
from kopf_selectcache.core.selection.kinds import Field as Column
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.indexes import Lookup
from kopf_selectcache.core.store.projection import ALL, Keys, Path, Projection, at, keys_of
from kopf_selectcache.core.store.record import Record, Unreadable
from kopf_selectcache.selectors.selector import Branches, Selector
from kopf_selectcache.selectors.text import FieldSelector, LabelSelector

Obj: TypeAlias = dict[str, Any]
"""A Kubernetes object, as JSON has it."""

Label: TypeAlias = str | Mapping[str, str | Collection[str]] | LabelSelector | None
Field: TypeAlias = str | Mapping[str, str | bool | int] | FieldSelector | None
Namespaces: TypeAlias = str | Collection[str] | None
"""What reads select by, as users write it."""

Where: TypeAlias = Mapping[Path, object]
"""Values by path, all of which an object must have; None where nothing must be."""

SortBy: TypeAlias = Path | Callable[[Obj], Any]
"""A path, or a function that returns what to sort by."""


class Selection(TypedDict, total=False):
    """What reads of several objects take by name."""

    namespace: Namespaces
    label: Label
    field: Field
    names: Collection[str] | None
    where: Where | None
    sort_by: SortBy | None
    limit: int | None
    max_age: float | None


class IndexedSelection(Selection, total=False):
    """What those take that answer from what is held alone."""

    index: Mapping[str, object] | None


_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"


class IntoList(Exception):
    """A path leads into a list of an object: nothing at it can ever be compared."""

    def __init__(self, path: Keys, listed: Keys, obj: Obj) -> None:
        self.path = path
        self.listed = listed
        """Where the list is."""
        self.name = _name_of(obj)
        super().__init__(path, listed, self.name)


class Unordered(Exception):
    """What is at the path by which to sort has no order: it is a dict, or a list."""

    def __init__(self, path: Keys, obj: Obj, *, listed: bool) -> None:
        self.path = path
        self.name = _name_of(obj)
        self.listed = listed
        super().__init__(path, self.name)


def _name_of(obj: Obj) -> str:
    return "/".join(filter(None, (at(obj, ("metadata", "namespace")), at(obj, ("metadata", "name")))))


class Term(NamedTuple):
    """A requirement on a field for which the object must be decoded, unless an index answers it."""

    term: FieldTerm
    field: Column
    indexed: Indexed | None = None
    """The declared index that answers it, if there is one."""

    def matches(self, record: Record, obj: Obj) -> bool:
        return self.term.matches({self.term.label: _value(self.field, record, obj)})


@dataclass(frozen=True, slots=True)
class Match:
    """What an object must be like to be a part of the answer."""

    names: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    requirements: tuple[LabelRequirement, ...] = ()
    metadata: tuple[FieldTerm, ...] = ()
    """What fields at hand must not be."""
    terms: tuple[Term, ...] = ()
    where: tuple[tuple[tuple[str, ...], object], ...] = ()
    owner: str | None = None
    """The uid of an owner."""
    values: tuple[tuple[Indexed, object], ...] = ()
    """By declared indexes: a value that the object must have."""
    served: tuple[tuple[Indexed, object], ...] = ()
    """What of `where` a declared index may see to."""

    @classmethod
    def of(
        cls,
        request: Selector,
        where: Where | None,
        resource: Resource,
        declared: Branches,
        *,
        values: tuple[tuple[Indexed, object], ...] = (),
        indexes: Collection[Indexed] = (),
        projection: Projection = ALL,
    ) -> Match:
        """Leave out what the filter sees to already. Raise BadField for a field that only the server can look
        at.

        `indexes` are those of paths. They have the values of objects as they came, and so have fields,
        whatever the projection drops or changes. `where` compares what is kept: an index answers it only if
        that is the same.
        """
        seen_to = [(set(branch.requirements), set(branch.terms)) for branch in declared.branches]
        terms = [term for term in request.terms if not all(term in required for _, required in seen_to)]
        at_hand = tuple(term for term in terms if term.label in (_NAME, _NAMESPACE))
        by_path = {index.path: index for index in indexes}
        paths = paths_of(where)
        return cls(
            names=_only(
                request.names, [term.value for term in at_hand if term.equal and term.label == _NAME]
            ),
            namespaces=_only(
                request.namespaces,
                [term.value for term in at_hand if term.equal and term.label == _NAMESPACE],
            ),
            requirements=tuple(
                each for each in request.requirements if not all(each in required for required, _ in seen_to)
            ),
            metadata=tuple(term for term in at_hand if not term.equal),
            terms=tuple(
                _term(term, resource.kind.field(term.label), by_path) for term in terms if term not in at_hand
            ),
            where=paths,
            values=values,
            served=tuple(
                (by_path[path], value)
                for path, value in paths
                if path in by_path and projection.exact(path) and isinstance(value, (str, bool, int, float))
            ),
        )

    @property
    def lookup(self) -> Lookup:
        """What of it indexes may answer."""
        by_field = ((each.indexed, each.term.value) for each in self.terms if each.indexed is not None)
        at_paths = tuple(dict.fromkeys((*self.served, *by_field))) if self.terms else self.served
        return Lookup(self.names, self.namespaces, self.requirements, self.owner, self.values, at_paths)

    def left(self, rest: Lookup) -> Match:
        """Return what has still to be looked at, where an index has seen to all but the rest."""
        if rest == self.lookup:
            return self
        seen_to = [(index.path, value) for index, value in self.served if (index, value) not in rest.where]
        return Match(
            rest.names,
            rest.namespaces,
            rest.labels,
            self.metadata,
            tuple(
                each
                for each in self.terms
                if each.indexed is None or (each.indexed, each.term.value) in rest.where
            ),
            tuple(each for each in self.where if each not in seen_to),
            rest.owner,
            rest.values,
            tuple(each for each in self.served if each in rest.where),
        )

    def unreadable(self, records: Iterable[Unreadable]) -> list[Unreadable]:
        """Return those of the unreadable records that may match: nothing is known of their fields, paths and
        indexed values.
        """
        known = Match(self.names, self.namespaces, self.requirements, self.metadata, owner=self.owner)
        return [record for record in records if any(known._by_record([record]))]

    @property
    def decodes(self) -> bool:
        """Whether objects must be decoded to see if they match."""
        return bool(self.terms or self.where)

    def count(self, records: Iterable[Record]) -> int:
        """Count the objects that match."""
        return sum(1 for _ in self.chosen(records)) if self.decodes else len(list(self._by_record(records)))

    def pairs(self, records: Iterable[Record]) -> Iterator[tuple[Record, Obj]]:
        """Yield the records that match, each with the object."""
        return (
            (record, obj)
            for record in self._by_record(records)
            if self._by_object(record, obj := record.decode())
        )

    def chosen(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records that match."""
        return (record for record, _ in self.pairs(records)) if self.decodes else self._by_record(records)

    def records(self, records: Iterable[Record]) -> Iterator[tuple[Record, Obj | None]]:
        """Yield the records that match, each with the object if it was decoded to see that."""
        return (
            self.pairs(records) if self.decodes else ((record, None) for record in self._by_record(records))
        )

    def _by_record(self, records: Iterable[Record]) -> Iterator[Record]:
        if self.names is not None:
            records = (record for record in records if record.name in self.names)
        if self.namespaces is not None:
            records = (record for record in records if record.namespace in self.namespaces)
        if self.metadata:
            records = (record for record in records if self._by_metadata(record))
        if self.owner is not None:
            records = (record for record in records if self.owner in record.owners)
        if self.values:
            records = (
                record for record in records if all(value in index.of(record) for index, value in self.values)
            )
        return _labelled(records, self.requirements) if self.requirements else iter(records)

    def _by_metadata(self, record: Record) -> bool:
        known = {_NAME: record.name, _NAMESPACE: record.namespace}
        return all(term.matches(known) for term in self.metadata)

    def _by_object(self, record: Record, obj: Obj) -> bool:
        return all(term.matches(record, obj) for term in self.terms) and all(
            _found(obj, path) == value for path, value in self.where
        )


def _only(given: Collection[str] | None, equal: Collection[str]) -> frozenset[str] | None:
    """Return the names that are asked for in several ways at once; None if they are not."""
    sets = [] if given is None else [frozenset(given)]
    sets += [frozenset({value}) for value in equal]
    return frozenset.intersection(*sets) if sets else None


def _found(obj: Obj, path: Keys) -> Any:
    """Return what is at the path, None if nothing is; raise IntoList where a list is on the way."""
    found = at(obj, path)
    if found is None:
        for depth in range(1, len(path)):
            if isinstance(at(obj, path[:depth]), list):
                raise IntoList(path, path[:depth], obj)
    return found


def _term(term: FieldTerm, field: Column, by_path: Mapping[Keys | None, Indexed]) -> Term:
    """Return the requirement, with the index that answers it: of objects with other values it says
    nothing.
    """
    path = field.path_of(term.value) if term.equal else None
    return Term(term, field, by_path.get(path) if path is not None else None)


def _value(field: Column, record: Record, obj: Obj) -> str:
    """Return the value of a field label, where `obj` is what is kept of the object."""
    lost = record.lost()
    return lost[field.label] if field.label in lost else field.value(obj)


def selects(declared: Branches, record: Record, resource: Resource) -> bool | None:
    """Say whether the filter selects an object; None if that depends on a field whose value only the server
    knows, or on one of an unreadable object.
    """
    labels = {term.label for branch in declared.branches for term in branch.terms}
    if not labels <= resource.kind.fields.keys():
        return None
    if labels and not record.stored:
        return None
    obj = record.decode() if labels else {}
    fields = {label: _value(resource.kind.field(label), record, obj) for label in labels}
    return declared.matches(name=record.name, namespace=record.namespace, labels=record.labels, fields=fields)


def key_for(sort_by: SortBy) -> Callable[[Obj], Any]:
    """Return the function that says what to sort by."""
    return sort_by if callable(sort_by) else _by_path(keys_of(sort_by))


def paths_of(where: Where | None) -> tuple[tuple[tuple[str, ...], object], ...]:
    """Return the paths, as keys, with their values."""
    return tuple((keys_of(path), value) for path, value in (where or {}).items())


def _labelled(records: Iterable[Record], requirements: tuple[LabelRequirement, ...]) -> Iterator[Record]:
    """Yield those with such labels. Records share the dicts of equal labels: each is looked at once."""
    known: dict[int, bool] = {}
    alive = []  # What else might come to be where they were.
    for record in records:
        labels = record.labels
        found = known.get(id(labels))
        if found is None:
            found = known[id(labels)] = all(requirement.matches(labels) for requirement in requirements)
            alive.append(labels)
        if found:
            yield record


def _by_path(path: tuple[str, ...]) -> Callable[[Obj], tuple[bool, bool, Any]]:
    """Make a key for sorting, by which numbers come before texts, and objects that have nothing at the path
    last. It raises Unordered.
    """

    def key(obj: Obj) -> tuple[bool, bool, Any]:
        found = _found(obj, path)
        if isinstance(found, (Mapping, list)):
            raise Unordered(path, obj, listed=isinstance(found, list))
        return found is None, isinstance(found, str), found

    return key
