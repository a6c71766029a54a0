"""Predicates of requests, and memoised comparisons of requests with the filter of a cache.

Records have labels, names and namespaces; only fields and paths need the object decoded. If the path of a
field was dropped, the record has its value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, TypedDict

from msgspec import Struct

from kopf_selectcache._errors import ReadError
from kopf_selectcache.core.errors import BadField, TooManyBoxes
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement
from kopf_selectcache.core.selection.kinds import Field as Column
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.core.selection.regions import (
    THE_NAME,
    THE_NAMESPACE,
    Answer,
    Witness,
    field_dimension,
    overlap,
    uncovered,
)
from kopf_selectcache.core.store.index_spec import Indexed, is_same, key_of
from kopf_selectcache.core.store.indexes import NOTHING, Lookup
from kopf_selectcache.core.store.projection import ALL, Keys, Path, Projection, as_written, at, keys_of
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.selectors.selecting import value_of
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector, Verdict
from kopf_selectcache.selectors.text import Everything, FieldDict, FieldSelector, LabelDict, LabelSelector

from .formats.partial import object_of

Obj: TypeAlias = dict[str, Any]
"""A Kubernetes object, as JSON has it."""

Name: TypeAlias = str | Key
"""The name of an object, or its key."""
Label: TypeAlias = str | LabelDict | LabelSelector | Everything | None
Field: TypeAlias = str | FieldDict | FieldSelector | Everything | None
Namespaces: TypeAlias = str | Collection[str] | None
"""The type of `namespace=`."""

Where: TypeAlias = Mapping[Path, object]
"""Values by path, all of which an object must have; None if the path must be absent."""

Predicate: TypeAlias = Callable[[Obj], object]
"""A condition that an object satisfies."""

SortBy: TypeAlias = Path | Callable[[Obj], Any]
"""A path, or a function that returns the sort key."""


class AsOf(TypedDict, total=False):
    """How fresh the answer of a read must be."""

    max_age: float | None
    at_least: object


class Get(AsOf, total=False):
    """The options of `get`."""

    namespace: str | None


class Filter(TypedDict, total=False):
    """The options that select several objects."""

    namespace: Namespaces
    labels: Label
    fields: Field


class Matching(Filter, total=False):
    """The same, by names and values, too."""

    names: Collection[str] | None
    where: Where | None


class Selection(Matching, AsOf, total=False):
    """The options of all reads of several objects."""

    sort_by: SortBy | None
    limit: int | None


class Explained(Matching, total=False):
    """The options of `explain`."""

    index: Mapping[str, object] | None


class OwnerOptions(TypedDict, total=False):
    """The options that select by an owner."""

    owner: object
    controller: bool


class ReadOptions(Selection, OwnerOptions, total=False):
    """The options of reads of several held objects."""

    index: Mapping[str, object] | None


class CountOptions(Explained, OwnerOptions, AsOf, total=False):
    """The options of `count`."""


class OutsideOptions(AsOf, total=False):
    """The options of `list_outside`."""

    owner: object
    namespace: Namespaces
    labels: Label
    names: Collection[str] | None


class WaitOptions(Filter, total=False):
    """The options of `wait_for`."""

    timeout: float | None
    at_least: object


class ChangesOptions(Filter, total=False):
    """The options of `changes`."""

    where: Where | None
    at_least: object


class LiveOptions(TypedDict, total=False):
    """The options of `live.get`."""

    timeout: float | None


class Ask(LiveOptions, total=False):
    """The same, with the namespace."""

    namespace: str | None


class LiveSelection(Filter, LiveOptions, total=False):
    """The options of `live.list`."""

    names: Collection[str] | None
    limit: int | None


class FetchOptions(AsOf, total=False):
    """The options of `fetch`."""

    whole: bool
    timeout: float | None


class Fetch(FetchOptions, total=False):
    """The same, with the namespace."""

    namespace: str | None


class FetchSelection(Selection, total=False):
    """The options of `fetch_list`."""

    whole: bool
    timeout: float | None


class GoneOptions(TypedDict, total=False):
    """The options of `wait_deleted`."""

    uid: str | None
    at_least: object
    timeout: float | None


_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"


def _name_of(obj: Obj) -> str:
    return "/".join(filter(None, (at(obj, ("metadata", "namespace")), at(obj, ("metadata", "name")))))


class Term(NamedTuple):
    """A requirement on a field for which the object must be decoded, unless an index answers it."""

    term: FieldTerm
    field: Column
    indexed: Indexed | None = None
    """The declared index that answers it, if there is one."""

    def matches(self, record: Record, obj: Obj) -> bool:
        return self.term.matches({self.term.label: value_of(self.field, record, obj)})


class Match(Struct, frozen=True):
    """The predicate of a request."""

    names: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None
    requirements: tuple[LabelRequirement, ...] = ()
    metadata: tuple[FieldTerm, ...] = ()
    """Requirements on fields that records have without decoding."""
    terms: tuple[Term, ...] = ()
    where: tuple[tuple[tuple[str, ...], object], ...] = ()
    owner: str | None = None
    """The uid of an owner."""
    controller: str | None = None
    """The uid of the owner that must be the controller."""
    values: tuple[tuple[Indexed, object], ...] = ()
    """Declared indexes, each with the key of a value that the object must have."""
    served: tuple[tuple[Indexed, object], ...] = ()
    """The part of `where` that declared indexes may answer."""

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
        """Return the predicate without the requirements that the filter ensures. Raise BadField for a field
        that only the server knows.

        `indexes` are those of paths. Indexes and fields have the values of the original objects, regardless
        of the projection. `where` compares the stored part: an index answers it only if the projection does
        not change the path.
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
                _term(term, _field(resource.kind, term.label, projection), by_path)
                for term in terms
                if term not in at_hand
            ),
            where=paths,
            values=values,
            served=tuple(
                (by_path[path], key_of(value))
                for path, value in paths
                if path in by_path and projection.exact(path) and isinstance(value, (str, bool, int, float))
            ),
        )

    @property
    def lookup(self) -> Lookup:
        """The part of the predicate that indexes may answer."""
        by_field = ((each.indexed, each.term.value) for each in self.terms if each.indexed is not None)
        at_paths = tuple(dict.fromkeys((*self.served, *by_field))) if self.terms else self.served
        return Lookup(self.names, self.namespaces, self.requirements, self.owner, self.values, at_paths)

    def left(self, rest: Lookup) -> Match:
        """Return the residual predicate after indexes have answered all but the rest."""
        if rest is NOTHING and not self.decodes and not self.metadata:
            return ALL_OF_THEM
        if not self.served and not self.terms:
            return Match(
                rest.names,
                rest.namespaces,
                rest.labels,
                self.metadata,
                where=self.where,
                owner=rest.owner,
                controller=self.controller,
                values=rest.values,
            )
        seen_to = [(index.path, key) for index, key in self.served if (index, key) not in rest.where]
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
            tuple((path, value) for path, value in self.where if (path, key_of(value)) not in seen_to),
            rest.owner,
            self.controller,
            rest.values,
            tuple(each for each in self.served if each in rest.where),
        )

    def unreadable(self, records: Iterable[UnreadableRecord]) -> list[UnreadableRecord]:
        """Return the unreadable records that may match: their fields and paths are unknown."""
        known = Match(self.names, self.namespaces, self.requirements, self.metadata, owner=self.owner)
        return [record for record in records if any(known._by_record([record]))]

    @property
    def decodes(self) -> bool:
        """True if objects must be decoded to see if they match."""
        return bool(self.terms or self.where or self.controller)

    def count(self, records: Collection[Record]) -> int:
        """Count the objects that match."""
        if self is ALL_OF_THEM:
            return len(records)
        return sum(1 for _ in self.chosen(records)) if self.decodes else len(list(self._by_record(records)))

    def pairs(self, records: Iterable[Record]) -> Iterator[tuple[Record, Obj]]:
        """Yield the records that match, each with the object."""
        return (
            (record, obj)
            for record in self._by_record(records)
            if self._by_object(record, obj := object_of(record))
        )

    def first(self, records: Sequence[Record], limit: int | None) -> Sequence[Record]:
        """Return the records that match, at most `limit`. The result may be the records that were given."""
        if self is ALL_OF_THEM:
            return records if limit is None else records[:limit]
        return list(islice(self.chosen(records), limit))

    def chosen(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records that match."""
        return (record for record, _ in self.pairs(records)) if self.decodes else self._by_record(records)

    def records(self, records: Iterable[Record]) -> Iterator[tuple[Record, Obj | None]]:
        """Yield the records that match, each with the object if it was decoded to see that."""
        return (
            self.pairs(records) if self.decodes else ((record, None) for record in self._by_record(records))
        )

    def _by_record(self, records: Iterable[Record]) -> Iterator[Record]:
        if self.metadata:
            records = (
                record
                for record in records
                if all(
                    term.matches({_NAME: record.name, _NAMESPACE: record.namespace}) for term in self.metadata
                )
            )
        by_record = Lookup(self.names, self.namespaces, self.requirements, self.owner, self.values)
        return by_record.met_by(records)

    def _by_object(self, record: Record, obj: Obj) -> bool:
        if self.controller is not None and not _controls(self.controller, obj):
            return False
        return all(term.matches(record, obj) for term in self.terms) and all(
            is_same(_found(obj, path), value) for path, value in self.where
        )


def _controls(uid: str, obj: Obj) -> bool:
    references = at(obj, ("metadata", "ownerReferences"))
    return isinstance(references, list) and any(
        isinstance(each, Mapping) and each.get("uid") == uid and each.get("controller") is True
        for each in references
    )


ALL_OF_THEM = Match()
"""The predicate of candidates that an index has chosen completely."""


def _only(given: Collection[str] | None, equal: Collection[str]) -> frozenset[str] | None:
    """Return the names that satisfy all requirements on names; None if there are no requirements."""
    sets = [] if given is None else [frozenset(given)]
    sets += [frozenset({value}) for value in equal]
    return frozenset.intersection(*sets) if sets else None


def _found(obj: Obj, path: Keys) -> Any:
    """Return the value at the path, or None; raise ReadError if the path leads into a list."""
    found = at(obj, path)
    if found is None:
        for depth in range(1, len(path)):
            if isinstance(at(obj, path[:depth]), list):
                raise ReadError(
                    f"the path {as_written(path)!r} can't look inside lists: {as_written(path[:depth])} of"
                    f" {_name_of(obj)} is a list",
                    remedy="Filter the answer: [each for each in ... if ...]\nDeclare an index",
                )
    return found


def _field(kind: Kind, label: str, projection: Projection) -> Column:
    """Return the field of a label; raise BadField if only the server knows its values."""
    field = kind.field(label)
    if projection.has_field(field.value.paths):
        return field
    readable = (each.label for each in kind.fields.values() if projection.has_field(each.value.paths))
    raise BadField(label, kind=kind.kind, selectable=tuple(sorted(readable)))


def _term(term: FieldTerm, field: Column, by_path: Mapping[Keys | None, Indexed]) -> Term:
    """Return the requirement, with the index that answers it."""
    path = field.path_of(term.value) if term.equal else None
    return Term(term, field, by_path.get(path) if path is not None else None)


def key_for(sort_by: SortBy) -> Callable[[Obj], Any]:
    """Return the function that returns the sort key."""
    return sort_by if callable(sort_by) else _by_path(keys_of(sort_by))


def paths_of(where: Where | None) -> tuple[tuple[tuple[str, ...], object], ...]:
    """Return the paths, as keys, with their values."""
    return tuple((keys_of(path), value) for path, value in (where or {}).items())


def _by_path(path: tuple[str, ...]) -> Callable[[Obj], tuple[bool, bool, Any]]:
    """Return a key for sorting: numbers come before texts, and objects without a value at the path last."""

    def key(obj: Obj) -> tuple[bool, bool, Any]:
        found = _found(obj, path)
        if isinstance(found, (Mapping, list)):
            raise ReadError(
                f"objects can't be sorted by {as_written(path)!r}: in {_name_of(obj)} it is a"
                f" {type(found).__name__}",
                remedy="Sort by a longer path\nSort by a function: sort_by=lambda obj: ...",
            )
        return found is None, isinstance(found, str), found

    return key


# ---- Comparisons.


MAX_MEMOISED = 1024
"""Maximum number of memoised comparisons of one kind, and of memoised selectors of one operator."""

MOST_EQUAL = 4
"""Maximum number of equal selectors that are found by identity. A read may make a new one each time."""


class Coverage(NamedTuple):
    """The result of a comparison, as errors show it."""

    answer: Answer
    filter: Selector | AnyOf
    possible: Sequence[Selector]
    """The branches of the filter that may hold some of the requested objects."""
    verdict: Verdict | None = None
    """The verdict on a request of several objects."""
    wanted: str = ""
    """The requirements of which one object, if it exists, fails some, such as `app=web`."""
    of_object: Witness | None = None
    """The witness of a request of one object."""

    @property
    def witness(self) -> Witness | None:
        """An object that is requested, and that the filter does not select; made when it is asked for."""
        return self.of_object if self.verdict is None else self.verdict.witness

    @property
    def narrowest(self) -> Selector | AnyOf | None:
        """The part of a request of several objects that is covered. It is made when it is asked for."""
        return self.verdict.narrowest if self.verdict is not None else None

    @property
    def is_narrowest_all(self) -> bool:
        """True if `narrowest` is all that the filter may hold of the request; False for a part of an OR."""
        verdict, part = self.verdict, self.narrowest
        if verdict is None or part is None or len(self.possible) == 1:
            return True
        held = (verdict.request.narrowed_to(branch, kind=verdict.kind) for branch in self.possible)
        return all(part.compared_with(each, verdict.kind) for each in held if each is not None)


class Compared:
    """A request, compared with the filter. The parts are made when a read needs them."""

    def __init__(self, selector: Selector, comparisons: Comparisons) -> None:
        self.selector = selector
        self.equal: list[Selector] = []
        """The equal selectors that are found by identity, such as those of a text and of a dict."""
        self._comparisons = comparisons

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on whether the filter covers the request."""
        within = self._comparisons
        return within.filter.compared_with(self.selector, within.kind)

    @cached_property
    def is_covered(self) -> bool:
        return bool(self.verdict)

    @cached_property
    def is_excluded(self) -> bool:
        """True if no requested object can ever be held, although there may be such objects."""
        kind = self._comparisons.kind
        return not self.coverage.possible and self.selector.contradiction(kind=kind) is None

    @property
    def coverage(self) -> Coverage:
        possible = self._comparisons.overlapping(self.selector)
        return Coverage(self.verdict.answer, self.verdict.filter, possible, self.verdict)

    @cached_property
    def match(self) -> Match:
        """The predicate of the request. It raises BadField for a field that only the server knows."""
        return self._comparisons.match(self.selector)

    @cached_property
    def lookup(self) -> Lookup:
        return self.match.lookup


class Comparisons:
    """Memoised comparisons of requests with the filter of a cache.

    An operator repeats a few dozen requests. Selectors of texts are memoised (`request.selectors`), so that
    most are found by identity.
    """

    def __init__(
        self,
        resource: Resource,
        declared: Selector | AnyOf,
        projection: Projection,
        indexes: Mapping[str, Indexed],
    ) -> None:
        self.resource = resource
        self.filter = declared
        self.projection = projection
        self.indexes = indexes
        """The declared and added indexes, by name."""
        self._by_id: dict[int, Compared] = {}  # It keeps the selectors, so that their ids are not reused.
        self._by_selector: dict[Selector, Compared] = {}
        self.kind, self._branches = resource.domains, declared.branches
        self._boxes = [branch.box(self.kind) for branch in self._branches]
        self._places = [(box.get(THE_NAME), box.get(THE_NAMESPACE)) for box in self._boxes]
        self._objects: dict[tuple[int, ...], Coverage] = {}
        if len(self._branches) == 1:  # Several may cost a search, which no read may need.
            self._coverage_of((0,))

    def of(self, selector: Selector) -> Compared:
        """Return the comparison; raise ReadError for a namespace of a cluster-scoped kind."""
        found = self._by_id.get(id(selector))
        return found if found is not None else self._compare(selector)

    def _compare(self, selector: Selector) -> Compared:
        if selector.namespaces is not None and self.resource.kind.namespaced is False:
            raise ReadError(
                f"{self.resource} are cluster-scoped, so they have no namespace",
                remedy="Leave namespace= out",
            )
        if len(self._by_selector) >= MAX_MEMOISED:
            self._by_id, self._by_selector = {}, {}
        found = self._by_selector.setdefault(selector, Compared(selector, self))
        if len(found.equal) < MOST_EQUAL:
            found.equal.append(selector)
            self._by_id[id(selector)] = found
        return found

    def match(
        self,
        selector: Selector,
        where: Where | None = None,
        values: tuple[tuple[Indexed, object], ...] = (),
        *,
        under: Branches | None = None,
    ) -> Match:
        """Return the predicate of objects of the filter; raise BadField for one the server alone knows."""
        by_path = [each for each in self.indexes.values() if each.path is not None]
        return Match.of(
            selector,
            where,
            self.resource,
            self.filter if under is None else under,
            values=values,
            indexes=by_path if selector.terms or where is not None else (),
            projection=self.projection,
        )

    def overlapping(self, selector: Selector) -> Sequence[Selector]:
        """Return the branches of the filter that may select some of the requested objects."""
        asked = selector.box(self.kind)
        pairs = zip(self._branches, self._boxes, strict=True)
        return [branch for branch, box in pairs if overlap(box, asked) is not None]

    def of_object(self, namespace: str, name: str) -> Coverage:
        """Return if the filter covers one object.

        Only the branches that the name and the namespace fit matter, and of them only labels and fields: the
        answer, but for the name, is the same for all objects that fit the same branches.
        """
        fitting = tuple(
            at
            for at, (names, namespaces) in enumerate(self._places)
            if (names is None or name in names) and (namespaces is None or namespace in namespaces)
        )
        coverage = self._coverage_of(fitting)
        if (witness := coverage.witness) is None:
            return coverage
        fails = witness.fails
        if len(fitting) < len(self._branches):
            fields = {**witness.fields, "metadata.name": name, "metadata.namespace": namespace}
            failed = (branch.failed(witness.labels, fields) for branch in self._branches)
            fails = tuple(each for each in failed if each is not None)
        return coverage._replace(of_object=replace(witness, namespace=namespace, name=name, fails=fails))

    def _coverage_of(self, fitting: tuple[int, ...]) -> Coverage:
        """Return if these branches cover each object whose name and namespace fit them."""
        found = self._objects.get(fitting)
        if found is None:
            found = self._objects[fitting] = self._cover([self._branches[at] for at in fitting], fitting)
        return found

    def _cover(self, possible: Sequence[Selector], fitting: Iterable[int]) -> Coverage:
        boxes = [
            {at: values for at, values in self._boxes[each].items() if at not in (THE_NAME, THE_NAMESPACE)}
            for each in fitting
        ]
        try:
            point = uncovered({}, boxes)
        except TooManyBoxes:
            return Coverage(Answer.UNKNOWN, self.filter, possible)
        if point is None:
            return Coverage(Answer.YES, self.filter, possible)
        labels = [term.label for branch in self._branches for term in branch.terms]
        witness = Witness.at(point, self.kind, labels)
        required = [(branch.requirements, self._terms(branch)) for branch in possible]
        failed = [_failed(requirements, terms, witness) for requirements, terms in required]
        wanted = " or ".join(
            dict.fromkeys(",".join(map(str, (*labels, *fields))) for labels, fields in required)
        )
        witness = replace(witness, fails=tuple(failed))
        return Coverage(Answer.NO, self.filter, possible, wanted=wanted, of_object=witness)

    def _terms(self, branch: Selector) -> list[FieldTerm]:
        return [term for term in branch.terms if field_dimension(term.label, self.kind)[0].axis == "field"]


def _failed(requirements: Sequence[LabelRequirement], terms: Sequence[FieldTerm], witness: Witness) -> str:
    """Return the first requirement that the witness fails."""
    failed: list[object] = [each for each in requirements if not each.matches(witness.labels)]
    failed += [each for each in terms if not each.matches(witness.fields)]
    return str(failed[0])
