"""Selectors as users write them, the OR of several, and the comparison of both. Reads no objects.

Selectors are validated when they are created. Errors are declaration errors: a selector in a startup handler
that Kubernetes would refuse ends `kopf run` at once.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, cast

from kopf_selectcache._errors import BadSelector, ConflictingSelectors, NotSelectable, UnknownKind, require
from kopf_selectcache.core.errors import BadField, TooManyBoxes
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement
from kopf_selectcache.core.selection.kinds import Kind, find
from kopf_selectcache.core.selection.regions import (
    MAX_BOXES,
    THE_NAME,
    THE_NAMESPACE,
    Answer,
    Box,
    Dimension,
    Point,
    Witness,
    box_of,
    conflict,
    field_dimension,
    overlap,
    sticks_out,
    uncovered,
)
from kopf_selectcache.core.selection.values import Strings

from .kind_keys import AnyKey, checked_key, key_of, likely, text_of
from .signatures import check_call, field_or_path, near
from .text import (
    EVERYTHING,
    Everything,
    FieldDict,
    FieldSelector,
    LabelDict,
    LabelSelector,
    names_of,
    namespaces_of,
    selects_by_nothing,
    too_many,
)

AnyKind: TypeAlias = AnyKey | Kind
"""A kind as users name it: `'pods'`, `'batch/v1/jobs'`, a `kopf.Resource`, or the description of one."""

MAX_TEXT_CHARACTERS = 65_536
"""The most characters of a selector's text. Servers refuse URLs long before they reach a megabyte."""
MAX_BRANCHES = 1_000
"""The most selectors of an AnyOf, and the most requirements of a Selector: no verdict takes minutes."""

_MOST_SHOWN = 1_000
"""The most characters of a selector in a message. Of a longer one, the start and the end are shown."""

_NOTHING: Mapping[str, str] = {}

_LIST = "AnyOf([Selector(...), ...]) or AnyOf(['app=web', ...])"


class Branches(ABC):
    """Base of Selector and AnyOf. An object is selected if it satisfies all requirements of one branch."""

    __slots__ = ()

    @property
    @abstractmethod
    def branches(self) -> tuple[Selector, ...]:
        """The selectors. An object is selected if one of them selects it."""

    def matches(
        self,
        *,
        name: str,
        namespace: str = "",
        labels: Mapping[str, str] = _NOTHING,
        fields: Mapping[str, str] = _NOTHING,
    ) -> bool:
        """Return True if this object is selected. `fields` has values by field label, without name."""
        _require_known(self)
        known = {**fields, "metadata.name": name, "metadata.namespace": namespace}
        return any(branch.failed(labels, known) is None for branch in self.branches)

    @check_call(BadSelector, "covers")
    def covers(self, request: Branches, *, kind: AnyKind | None = None) -> Verdict:
        """Compare this as a filter with a request: YES if the filter selects every object that the request
        can select, otherwise NO, with an object that only the request selects as the witness.

        Without a kind, a field may have any string; with a kind, the values that the server can have: for
        pods, `spec.hostNetwork=true` or `spec.hostNetwork=false` selects everything. A request that no object
        can satisfy is covered by every filter. The answer is exact. It is UNKNOWN only if the comparison
        would cut more than 10,000 boxes (`core.selection.regions.MAX_BOXES`): this takes an OR of dozens of
        branches that overlap in many keys each.
        """
        return self.compared_with(_request(request, "covers"), _kind(kind))

    def compared_with(self, request: Selector | AnyOf, known: Kind | None) -> Verdict:
        """Return the verdict on a valid request, of reads."""
        _require_known(self)
        this = cast("Selector | AnyOf", self)
        union = [branch.box(known) for branch in self.branches]
        answer = Answer.YES
        for asked in request.branches:
            try:
                left = uncovered(asked.box(known), union)
            except TooManyBoxes:
                answer = Answer.UNKNOWN  # Another branch of the request may still prove a NO.
                continue
            if left is not None:
                return Verdict(Answer.NO, this, request, known, left)
        return Verdict(answer, this, request, known)

    @check_call(BadSelector, "disjoint")
    def disjoint(self, request: Branches, *, kind: AnyKind | None = None) -> bool:
        """Return True if no object can be selected by both this and the request."""
        known, request = _kind(kind), _request(request, "disjoint")
        _require_known(self)
        held, asked = ([branch.box(known) for branch in each.branches] for each in (self, request))
        return not any(overlap(box, other) is not None for box in held for other in asked)

    def contradiction(self, *, kind: AnyKind | None = None) -> str | None:
        """Return the reason why no object can be selected, or None if an object can be."""
        known = _kind(kind)
        reasons = [branch.contradiction_in(known) for branch in self.branches]
        return None if None in reasons else " and ".join(filter(None, reasons))

    def require_satisfiable(self, *, kind: AnyKind | None = None) -> None:
        """Raise ConflictingSelectors if one of the branches can never select an object: that is a mistake."""
        known = _kind(kind)
        for branch in self.branches:
            namespace = None if branch.namespace_label is None else Selector(branch.namespace_label)
            if namespace is not None and (reason := namespace.contradiction_in(None)):
                what = f"{clipped(branch, 500)} can never select a namespace: {reason}"
                raise ConflictingSelectors(what, remedy=_remedy_of(namespace.conflict_in(None)))
            if reason := branch.contradiction_in(known):
                what = f"{clipped(branch, 500)} can never select an object: {reason}"
                raise ConflictingSelectors(what, remedy=_remedy_of(branch.conflict_in(known)))

    def narrowed_to(self, declared: Branches, *, kind: AnyKind | None = None) -> Selector | AnyOf | None:
        """Return the part of this request that the filter covers, one selector for each branch, or None."""
        known = _kind(kind)
        parts = [_narrow(branch, declared.branches, known) for branch in self.branches]
        kept = list(dict.fromkeys(part for part in parts if part is not None))
        return AnyOf(kept) if len(kept) > 1 else kept[0] if kept else None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Selector(Branches):
    """Selects objects of one kind that satisfy all requirements. A part that is None requires nothing.

    >>> Selector('app=web', namespaces=['shop', 'blog'])
    Selector(labels='app=web', namespaces=['blog', 'shop'])

    As a filter, it determines which reads can be served from the cache:

    >>> web = Selector(labels='app=web')
    >>> web.covers(Selector(labels='app=web,tier=gold')).answer
    <Answer.YES: 'yes'>
    >>> web.covers(Selector(labels='tier=gold')).witness.labels
    {'tier': 'gold'}
    """

    labels: LabelSelector | Everything | None
    fields: FieldSelector | Everything | None
    names: tuple[str, ...] | None
    namespaces: tuple[str, ...] | None
    namespace_label: LabelSelector | None
    """The label selector that chooses the namespaces: `namespaces=LabelSelector.parse('tenant=yes')`.
    `namespaces` then has those that had the label when the cluster was last asked; None before that."""
    _boxes: dict[Kind | None, Box] = dataclasses.field(init=False, compare=False)
    """The boxes by kind, cached: each read is compared with the same filter."""
    _hashes: list[int] = dataclasses.field(init=False, compare=False)
    """The hash, once it was computed: reads look verdicts up by their request."""

    @check_call(BadSelector, "Selector", advise=field_or_path)
    def __init__(
        self,
        labels: str | LabelDict | LabelSelector | Everything | None = None,
        *,
        fields: str | FieldDict | FieldSelector | Everything | None = None,
        names: Collection[str] | None = None,
        namespaces: Collection[str] | LabelSelector | None = None,
    ) -> None:
        by_label = namespaces if isinstance(namespaces, LabelSelector) else None
        if by_label is not None and not by_label.requirements:
            what = "namespaces=LabelSelector.parse('') selects all namespaces"
            raise BadSelector(what, remedy="Leave namespaces= out")
        for argument, given in {"labels": labels, "fields": fields}.items():
            if isinstance(given, str) and len(given) > MAX_TEXT_CHARACTERS:
                raise too_many(f"{argument}=", len(given), "characters", MAX_TEXT_CHARACTERS)
            if isinstance(given, Mapping) and not given:
                raise selects_by_nothing(argument, "{}")
        _fill(
            self,
            _parsed("labels", labels, LabelSelector),
            _parsed("fields", fields, FieldSelector),
            None if names is None else names_of(names),
            None
            if namespaces is None or isinstance(namespaces, LabelSelector)
            else namespaces_of(namespaces),
            by_label,
        )
        if (count := len(self.requirements) + len(self.terms)) > MAX_BRANCHES:
            raise too_many("the selector", count, "requirements", MAX_BRANCHES)

    def __hash__(self) -> int:
        if not self._hashes:
            self._hashes.append(
                hash((self.labels, self.fields, self.names, self.namespaces, self.namespace_label))
            )
        return self._hashes[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle without the cached boxes and hash."""
        return make_selector, (self.labels, self.fields, self.names, self.namespaces, self.namespace_label)

    @property
    def branches(self) -> tuple[Selector, ...]:
        return (self,)

    def __str__(self) -> str:
        parts = [
            f"{part}={EVERYTHING if value is EVERYTHING else repr(str(value))}"
            for part in ("labels", "fields")
            if (value := getattr(self, part)) is not None
        ]
        parts += [
            f"{part}={list(value)}"
            for part in ("names", "namespaces")
            if (value := getattr(self, part)) is not None
        ]
        if self.namespace_label is not None:
            if self.namespaces is None:
                parts += [f"namespaces={self.namespace_label!r}"] if self.namespace_label.requirements else []
            else:  # All namespaces are those that replicas divide.
                which = str(self.namespace_label) and f"with {self.namespace_label}"
                parts[-1] += f" (those {which or 'of this replica'})"
        return ", ".join(parts) or "everything"

    def __repr__(self) -> str:
        written = self if self.namespace_label is None else self.in_namespaces(None)
        return f"Selector({written if self != Selector() else ''})"

    def in_namespaces(self, names: Iterable[str] | None) -> Selector:
        """Return it with the present namespaces of its label selector; None if they are unknown."""
        present = None if names is None else tuple(sorted(names))
        return make_selector(self.labels, self.fields, self.names, present, self.namespace_label)

    @property
    def requirements(self) -> tuple[LabelRequirement, ...]:
        return self.labels.requirements if self.labels is not None else ()

    @property
    def terms(self) -> tuple[FieldTerm, ...]:
        return self.fields.terms if self.fields is not None else ()

    def query(self) -> dict[str, str]:
        """Return the parameters of a list request that selects the same objects, for a client of your own.

        >>> Selector('app=web', fields='status.phase!=Failed', names=['web-1'], namespaces=['shop']).query()
        {'labelSelector': 'app=web', 'fieldSelector': 'status.phase!=Failed,metadata.name=web-1,metadata.namespace=shop'}

        Raise BadSelector if there are several names or namespaces: one request cannot select them.
        """  # A line of an example is not broken.  # noqa: E501
        _require_known(self)
        one: list[str | None] = []
        for argument, values in (("names", self.names), ("namespaces", self.namespaces)):
            if values is not None and len(values) > 1:
                what = (
                    f"the Kubernetes API can't list several {argument} in one request:"
                    f" {clipped(list(values), 500)}"
                )
                raise BadSelector(what, remedy="Send a request for each")
            one.append(values[0] if values else None)
        return query_of(self, name=one[0], namespace=one[1])

    def box(self, kind: Kind | None) -> Box:
        """Return this selector as a box; raise NotSelectable for a field that the server does not know."""
        try:
            if kind not in self._boxes:
                self._boxes[kind] = box_of(
                    labels=self.requirements,
                    fields=self.terms,
                    names=self.names,
                    namespaces=self.namespaces,
                    kind=kind,
                )
            return self._boxes[kind]
        except BadField as problem:
            meant = near(problem.label, problem.selectable)
            what = f"the server can't select {problem.kind} by {clipped(problem.label, 300)!r}"
            use = f"Use one of {', '.join(problem.selectable)}\nIn a read, use where="
            remedy = f"{f'Did you mean {meant}?{chr(10)}' if meant else ''}{use}"
            field, selectable = problem.label, problem.selectable
            raise NotSelectable(what, remedy=remedy, field=field, selectable=selectable) from None

    def failed(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> str | None:
        """Return the first requirement, as text, that an object fails, or None."""
        for argument, values in (("namespace", self.namespaces), ("name", self.names)):
            if values is not None and fields[f"metadata.{argument}"] not in values:
                return (
                    f"{argument}={values[0]}" if len(values) == 1 else f"{argument} in ({','.join(values)})"
                )
        return next(
            (str(failed) for failed in self.requirements if not failed.matches(labels)), None
        ) or next((str(failed) for failed in self.terms if not failed.matches(fields)), None)

    def conflict_in(self, kind: Kind | None) -> Dimension | None:
        """Return the label or field that no value satisfies, or None if an object can be selected."""
        dimension = conflict(self.box(kind))
        if self.namespace_label is not None:
            if kind is not None and kind.namespaced is False:
                return THE_NAMESPACE
            if self.namespaces == () and dimension == THE_NAMESPACE:
                return None  # A namespace may gain the label.
        return dimension

    def contradiction_in(self, kind: Kind | None) -> str | None:
        """Return the reason why no object of the kind can be selected, or None if an object can be."""
        dimension = self.conflict_in(kind)
        if dimension is None:
            return None
        if dimension == THE_NAMESPACE and kind is not None and kind.namespaced is False:
            return f"{kind.plural} are cluster-scoped, so they have no namespace"
        texts = [
            str(requirement)
            for requirement in self.requirements
            if dimension == Dimension("label", requirement.key)
        ]
        texts += [str(term) for term in self.terms if field_dimension(term.label, kind)[0] == dimension]
        if dimension == THE_NAMESPACE and self.namespaces is not None:
            texts.append(f"namespaces={list(self.namespaces)}")
        if dimension == THE_NAME and self.names is not None:
            texts.append(f"names={list(self.names)}")
        return f"nothing can satisfy {clipped(' and '.join(texts), 1_000)}"


def _remedy_of(conflict: Dimension | None) -> str:
    """Return the remedy of a selector that contradicts itself in this label or field."""
    if conflict == THE_NAMESPACE:
        return "Correct or remove the namespaces"
    if conflict == THE_NAME:
        return "Correct or remove the names"
    return "Write alternatives as one: 'app in (web,db)'"


def query_of(selector: Selector, *, name: str | None = None, namespace: str | None = None) -> dict[str, str]:
    """Return the query parameters for the labels and fields of a selector, and a name and namespace.

    >>> query_of(Selector('app=web', fields='status.phase!=Failed'), name='web-1')
    {'labelSelector': 'app=web', 'fieldSelector': 'status.phase!=Failed,metadata.name=web-1'}
    """
    terms = [*selector.terms]
    if name is not None:
        terms.append(FieldTerm("metadata.name", name))
    if namespace is not None:
        terms.append(FieldTerm("metadata.namespace", namespace))
    labels = {"labelSelector": str(selector.labels)} if selector.requirements else {}
    return labels | ({"fieldSelector": ",".join(map(str, terms))} if terms else {})


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AnyOf(Branches):
    """OR of several selectors of one kind: selects the objects that one of them selects. An AnyOf among them
    stands for its selectors.

    >>> either = AnyOf([Selector('app=web'), Selector('app=db')])
    >>> either.covers(Selector('app in (web,db)')).answer
    <Answer.YES: 'yes'>
    """

    branches: tuple[Selector, ...]

    @check_call(BadSelector, "AnyOf", instead=f"Write {_LIST}")
    def __init__(self, selectors: Iterable[Branches | str]) -> None:
        is_list = isinstance(selectors, Iterable)
        is_list = is_list and not isinstance(selectors, (str, bytes, Mapping, Branches))
        require(is_list, BadSelector, "AnyOf()", "the list", selectors, _LIST)
        given = [Selector(each) if isinstance(each, str) else each for each in selectors]
        branches = tuple(
            branch for each in given for branch in (each.branches if isinstance(each, Branches) else (each,))
        )
        if not branches:
            raise BadSelector(
                "AnyOf([]) selects nothing",
                remedy=(
                    "Declare the kind once it has something to select\n"
                    "Until then, select a label that no object has"
                ),
            )
        if len(branches) > MAX_BRANCHES:
            raise too_many("AnyOf()", len(branches), "selectors", MAX_BRANCHES)
        for branch in branches:
            require(isinstance(branch, Selector), BadSelector, "AnyOf()", "a selector", branch, _LIST)
        object.__setattr__(self, "branches", branches)

    def __str__(self) -> str:
        return " or ".join(f"({branch})" for branch in self.branches)

    def __repr__(self) -> str:
        return f"AnyOf({list(self.branches)!r})"


def brief(filter_: Branches) -> str:
    """Return a filter as people write it: without the name of the option, if labels are all it has.

    >>> brief(Selector('app=web')), brief(Selector('app=web', namespaces=['shop']))
    ('app=web', "labels='app=web', namespaces=['shop']")
    """
    first, *others = filter_.branches
    if (
        others
        or first.terms
        or any(each is not None for each in (first.names, first.namespaces, first.namespace_label))
    ):
        return str(filter_)
    return str(first.labels) if first.requirements else "everything"


_Text = TypeVar("_Text", LabelSelector, FieldSelector)


def _parsed(argument: str, given: object, cls: type[_Text]) -> _Text | Everything | None:
    if given is EVERYTHING:
        return EVERYTHING
    if isinstance(given, str):
        return cls.parse(given)
    if isinstance(given, Mapping):
        return cls.from_dict(given)
    if isinstance(given, (list, tuple, set, frozenset)):
        example = "'app=web' or {'app': ['web', 'db']}" if argument == "labels" else "'spec.nodeName=node01'"
        raise BadSelector(f"{argument}= is a {type(given).__name__}", remedy=f"Write {example}")
    if given is not None and not isinstance(given, cls):
        require(None, BadSelector, "Selector()", argument, given, f"text, a dict, or a {cls.__name__}")
    return cast("_Text | None", given)


def make_selector(
    labels: LabelSelector | Everything | None,
    fields: FieldSelector | Everything | None = None,
    names: tuple[str, ...] | None = None,
    namespaces: tuple[str, ...] | None = None,
    namespace_label: LabelSelector | None = None,
) -> Selector:
    """Make a selector from valid parts, without checks. Names must be distinct and sorted."""
    made = object.__new__(Selector)
    _fill(made, labels, fields, names, namespaces, namespace_label)
    return made


def listed_namespaces(given: str | Collection[str] | None) -> Collection[str] | None:
    """Return the namespaces of a read; raise BadSelector for a label selector."""
    if isinstance(given, LabelSelector):
        raise BadSelector(
            f"namespaces= is {given!r}, but a read needs names",
            remedy="Leave it out: list_cached() reads all namespaces of the filter",
        )
    return [given] if isinstance(given, str) else given


def labels_of_namespaces(declared: Branches) -> tuple[LabelSelector, ...]:
    """Return the label selectors by which a filter chooses namespaces."""
    labels = (branch.namespace_label for branch in declared.branches)
    return tuple(dict.fromkeys(label for label in labels if label is not None))


def in_any_namespace(declared: Branches) -> Selector | AnyOf:
    """Return a filter in which namespaces by label are all namespaces: any of them may gain the label."""
    branches = [
        branch
        if branch.namespace_label is None
        else make_selector(branch.labels, branch.fields, branch.names)
        for branch in declared.branches
    ]
    return branches[0] if len(branches) == 1 else AnyOf(branches)


def of_unknown_namespaces(selectors: Branches) -> Selector | None:
    """Return a branch that chooses namespaces by their labels, if it is not known which these are."""
    unknown = (
        each for each in selectors.branches if each.namespace_label is not None and each.namespaces is None
    )
    return next(unknown, None)


def _require_known(selectors: Branches) -> None:
    """Raise BadSelector for namespaces that only the cluster knows."""
    if (branch := of_unknown_namespaces(selectors)) is not None:
        raise BadSelector(
            f"{branch!r} selects namespaces by their labels, which only the cluster knows",
            remedy="Compare with the present filter of a cache: cache.info(kind).filter",
        )


def _fill(
    selector: Selector,
    labels: LabelSelector | Everything | None,
    fields: FieldSelector | Everything | None,
    names: tuple[str, ...] | None,
    namespaces: tuple[str, ...] | None,
    namespace_label: LabelSelector | None,
) -> None:
    """Set the attributes of a new selector, although its class is frozen."""
    object.__setattr__(selector, "labels", labels)
    object.__setattr__(selector, "fields", fields)
    object.__setattr__(selector, "names", names)
    object.__setattr__(selector, "namespaces", namespaces)
    object.__setattr__(selector, "namespace_label", namespace_label)
    object.__setattr__(selector, "_boxes", {})
    object.__setattr__(selector, "_hashes", [])


def _request(given: object, method: str) -> Selector | AnyOf:
    require(isinstance(given, Branches), BadSelector, f"{method}()", "the request", given, "a Selector")
    request = cast("Selector | AnyOf", given)
    _require_known(request)
    return request


def _kind(kind: AnyKind | None) -> Kind | None:
    if kind is None or isinstance(kind, Kind):
        return kind
    key = key_of(kind)
    found = find(key)
    if found is None:
        checked_key(key)
        meant = likely(key)
        what = f"{text_of(key)!r} isn't a kind of Kubernetes"
        custom = "For a custom resource, pass kopf_selectcache.Kind.custom(definition, version)"
        raise UnknownKind(what, remedy=f"{f'Did you mean {meant!r}?{chr(10)}' if meant else ''}{custom}")
    return found


def _narrow(request: Selector, declared: tuple[Selector, ...], kind: Kind | None) -> Selector | None:
    """Return the request if it is covered; else within namespaces where it is; else the widest overlap."""
    asked = request.box(kind)
    if conflict(asked) is not None:
        return None
    boxes = [branch.box(kind) for branch in declared]
    with suppress(TooManyBoxes):
        if uncovered(asked, boxes) is None:
            return request
        # If each branch has namespaces, all of them together may cover a request that no branch covers alone.
        held = (
            {space for branch in declared for space in branch.namespaces or ()}
            if all(branch.namespaces for branch in declared)
            else set()
        )
        within = sorted(held if request.namespaces is None else held.intersection(request.namespaces))
        confined = make_selector(request.labels, request.fields, request.names, tuple(within) or None)
        if within and conflict(box := confined.box(kind)) is None and uncovered(box, boxes) is None:
            return confined
    best: tuple[tuple[int, int, int], Selector, Box] | None = None
    for branch, box in zip(declared, boxes, strict=True):
        if (both := overlap(asked, box)) is not None:
            added = sticks_out(asked, box) or []
            sizes = [len(both[at].listed) for at in added if both[at].few]
            rank = (len(added), len(sizes), -sum(sizes))
            if best is None or rank < best[0]:
                best = rank, branch, both
    return None if best is None else _intersection(request, best[1], best[2], kind)


def _intersection(request: Selector, branch: Selector, both: Box, kind: Kind | None) -> Selector:
    """Return the intersection of both. Where one implies the other, only its requirements are written."""
    asked, held = request.box(kind), branch.box(kind)

    def needed(at: Dimension) -> tuple[bool, bool]:
        """Return if the requirements of the request, and of the branch, are needed here."""
        if at not in held or at not in asked:
            return at in asked, at in held
        if (asked[at] & ~held[at]).empty:
            return True, False
        return not (held[at] & ~asked[at]).empty, True

    requirements: list[LabelRequirement] = []
    terms: list[FieldTerm] = []
    for side, selector in enumerate((request, branch)):
        requirements += [each for each in selector.requirements if needed(Dimension("label", each.key))[side]]
        for term in selector.terms:
            at = field_dimension(term.label, kind)[0]
            if at.axis == "field" and needed(at)[side]:
                terms.append(term)
    listed: dict[Dimension, tuple[str, ...] | None] = {THE_NAME: None, THE_NAMESPACE: None}
    for at in listed:
        values = both.get(at)
        if isinstance(values, Strings):
            if values.others or values.listed == {""}:
                terms += [
                    FieldTerm(f"metadata.{at.axis}", value, equal=not values.others)
                    for value in sorted(values.listed)
                ]
            else:
                listed[at] = tuple(sorted(values.listed))
    requirements = sorted(dict.fromkeys(requirements), key=lambda requirement: requirement.key)
    return make_selector(
        LabelSelector(tuple(requirements)) if requirements else None,
        FieldSelector(tuple(dict.fromkeys(terms))) if terms else None,
        listed[THE_NAME],
        listed[THE_NAMESPACE],
    )


@dataclass(frozen=True)
class Verdict:
    """The result of comparing a filter with a request; only YES is true. Its text is one sentence with the
    reason.

    >>> import kopf_selectcache as selectcache
    >>> print(selectcache.Selector('app=web').covers(selectcache.Selector('app in (web,db)')))
    labels='app in (db,web)' is not covered by labels='app=web': default/example (app=db) would fail app=web;
    labels='app=web' would be covered.
    """

    answer: Answer
    filter: Selector | AnyOf
    request: Selector | AnyOf
    kind: Kind | None = None
    _point: object = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.answer is Answer.YES

    @cached_property
    def witness(self) -> Witness | None:
        """The object that proves a NO; None for other answers."""
        if self._point is None:
            return None
        both = (*self.request.branches, *self.filter.branches)
        mentioned = {term.label: None for branch in both for term in branch.terms}
        witness = Witness.at(cast("Point", self._point), self.kind, mentioned)
        known = {**witness.fields, "metadata.name": witness.name, "metadata.namespace": witness.namespace}
        failed = [branch.failed(witness.labels, known) for branch in self.filter.branches]
        assert None not in failed, f"{witness} is no witness: the filter selects it"
        return replace(witness, fails=tuple(filter(None, failed)))

    @cached_property
    def narrowest(self) -> Selector | AnyOf | None:
        """The part of the request that the filter covers, within its namespaces or a branch; else None."""
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
            return f"{reason}; so would every object of the request: declare another filter."
        return f"{reason}; {clipped(self.narrowest, _MOST_SHOWN)} would be covered."
