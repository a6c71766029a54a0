"""Memoised coverage checks: if the filter of a cache covers a request or an object.

An operator issues a few dozen distinct requests over and over. Their verdicts and predicates are kept beside
the state that they were compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import starmap
from typing import NamedTuple

from kopf_selectcache._errors import ReadError
from kopf_selectcache.core.errors import TooManyBoxes
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement
from kopf_selectcache.core.selection.regions import THE_NAME, THE_NAMESPACE, field_dimension, uncovered
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.selection.witness import Answer, Witness
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.indexes import Lookup
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector, Verdict

from .matcher import Match, Where

REMEMBERED = 1024
"""Maximum number of memoised comparisons of one kind, and of memoised selectors of one operator."""


class Coverage(NamedTuple):
    """The result of a comparison, as errors show it."""

    answer: Answer
    filter: Selector | AnyOf
    witness: Witness | None
    possible: Sequence[Selector]
    """The branches of the filter that may hold some of the requested objects."""
    narrowest: Selector | AnyOf | None = None
    """The part of a request of several objects that is covered."""
    lacking: str = ""
    """The requirements of which one object, if it exists, fails some, such as `without app=web`."""


class Compared:
    """A request, compared with the filter. The parts are made when a read needs them."""

    def __init__(self, selector: Selector, comparisons: Comparisons) -> None:
        self.selector = selector
        self._comparisons = comparisons

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on whether the filter covers the request."""
        within = self._comparisons
        return within.filter.covers(self.selector, kind=within.kind)

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
        verdict, kind = self.verdict, self._comparisons.kind
        branches = self._comparisons.filter.branches
        possible = [each for each in branches if not each.disjoint(self.selector, kind=kind)]
        narrowest = None if verdict else verdict.narrowest
        return Coverage(verdict.answer, verdict.filter, verdict.witness, possible, narrowest)

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
        self._by_id: dict[int, Compared] = {}  # It keeps the selector, so that its id is not reused.
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
                f"{self.resource} are cluster-scoped, and the read names a namespace", remedy="Leave it out"
            )
        if len(self._by_id) >= REMEMBERED:
            self._by_id, self._by_selector = {}, {}
        found = self._by_selector.setdefault(selector, Compared(selector, self))
        if found.selector is selector:
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
        """Return the predicate of objects that the filter selects, or another one; raise BadField for a field
        that only the server knows.
        """
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
        return coverage._replace(witness=replace(witness, namespace=namespace, name=name, fails=fails))

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
            return Coverage(Answer.UNKNOWN, self.filter, None, possible)
        if point is None:
            return Coverage(Answer.YES, self.filter, None, possible)
        labels = [term.label for branch in self._branches for term in branch.terms]
        witness = Witness.at(point, self.kind, labels)
        required = [(branch.requirements, self._terms(branch)) for branch in possible]
        failed = [_failed(requirements, terms, witness) for requirements, terms in required]
        lacking = " and ".join(dict.fromkeys(starmap(_without, required)))
        witness = replace(witness, fails=tuple(failed))
        return Coverage(Answer.NO, self.filter, witness, possible, lacking=lacking)

    def _terms(self, branch: Selector) -> list[FieldTerm]:
        return [term for term in branch.terms if field_dimension(term.label, self.kind)[0].axis == "field"]


def _failed(requirements: Sequence[LabelRequirement], terms: Sequence[FieldTerm], witness: Witness) -> str:
    """Return the first requirement that the witness fails."""
    failed: list[object] = [each for each in requirements if not each.matches(witness.labels)]
    failed += [each for each in terms if not each.matches(witness.fields)]
    return str(failed[0])


def _without(requirements: Sequence[LabelRequirement], terms: Sequence[FieldTerm]) -> str:
    """Return the requirements of which an object that is not held, and fits in name and namespace, fails
    some.
    """
    is_plain = all(each.operator in ("=", "==", "in", "exists") for each in requirements)
    word = "without" if is_plain and all(term.equal for term in terms) else "not matching"
    return f"{word} {','.join(map(str, (*requirements, *terms)))}"
