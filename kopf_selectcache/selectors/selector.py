"""Selectors as users write them, and the OR of several. Compares them; reads nothing.

Everything is validated where it is made, and errors are declaration errors: a selector in a startup handler
that Kubernetes would refuse ends `kopf run` at once.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, cast

from kopf_selectcache._errors import BadSelector, ConflictingSelectors, NotSelectable, UnknownKind
from kopf_selectcache.core.errors import BadField, TooManyBoxes
from kopf_selectcache.core.redact import clipped, shown, shown_with_type
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement
from kopf_selectcache.core.selection.kinds import Kind, find
from kopf_selectcache.core.selection.regions import (
    MAX_BOXES,
    THE_NAME,
    THE_NAMESPACE,
    Box,
    Dimension,
    box_of,
    conflict,
    field_dimension,
    overlap,
    sticks_out,
    uncovered,
)
from kopf_selectcache.core.selection.values import Strings
from kopf_selectcache.core.selection.witness import Answer, Witness

from .kind_keys import AnyKey, checked_key, key_of, likely, text_of
from .names import names_of, namespaces_of
from .signatures import check_call
from .suggestions import near
from .text import FieldSelector, LabelSelector

AnyKind: TypeAlias = AnyKey | Kind
"""A kind as users name it: `'pods'`, `'Pod'`, `'batch/v1/jobs'`, `('batch', 'v1', 'jobs')`, a
`kopf.Resource`, or the description of one."""

MAX_TEXT = 65_536
"""The longest selector text, in characters, that a Selector takes: a server refuses URLs far shorter than a
megabyte."""
MAX_BRANCHES = 1_000
"""The most selectors of an AnyOf, and the most requirements of a Selector: a verdict never takes minutes."""

_MOST_SHOWN = 1_000
"""The most characters of a selector in a sentence: a filter of a thousand branches is shown by its start and
end."""

_NOTHING: Mapping[str, str] = {}

_ANY_OF = "Write AnyOf([Selector(...), ...]) or AnyOf(['app=web', ...])"


class Branches(ABC):
    """Base of Selector and AnyOf: objects are selected that satisfy one of the branches in full."""

    __slots__ = ()

    @property
    @abstractmethod
    def branches(self) -> tuple[Selector, ...]:
        """The selectors of which one must select an object."""

    def matches(
        self,
        *,
        name: str,
        namespace: str = "",
        labels: Mapping[str, str] = _NOTHING,
        fields: Mapping[str, str] = _NOTHING,
    ) -> bool:
        """Return True if this object is selected. `fields` holds its values by field label, besides name and
        namespace.
        """
        known = {**fields, "metadata.name": name, "metadata.namespace": namespace}
        return any(branch.failed(labels, known) is None for branch in self.branches)

    @check_call(BadSelector, "covers")
    def covers(self, request: Branches, *, kind: AnyKind | None = None) -> Verdict:
        """Say whether, as a filter, this holds every object that the request can select; and if not, show
        one.

        Without a kind, fields are free strings; with one, what the server can have there counts: for pods,
        `spec.hostNetwork=true` or `spec.hostNetwork=false` is everything. A request that nothing can satisfy
        is covered by everything. The answer is exact. It is UNKNOWN only where finding it would cut more than
        10,000 boxes (`core.regions.MAX_BOXES`), which takes a union of dozens of branches that overlap in
        many keys each.
        """
        known, request = _kind(kind), _request(request, "covers")
        this = cast("Selector | AnyOf", self)
        union = [branch.box(known) for branch in self.branches]
        answer = Answer.YES
        for asked in request.branches:
            try:
                left = uncovered(asked.box(known), union)
            except TooManyBoxes:
                answer = Answer.UNKNOWN  # Another branch of the request may still show a plain NO.
                continue
            if left is not None:
                mentioned = {
                    term.label: None
                    for branch in (*request.branches, *self.branches)
                    for term in branch.terms
                }
                witness = Witness.at(left, known, mentioned)
                return Verdict(
                    Answer.NO, this, request, known, replace(witness, fails=tuple(self._failures(witness)))
                )
        return Verdict(answer, this, request, known)

    def _failures(self, witness: Witness) -> Iterator[str]:
        known = {**witness.fields, "metadata.name": witness.name, "metadata.namespace": witness.namespace}
        for branch in self.branches:
            failed = branch.failed(witness.labels, known)
            assert failed is not None, f"{witness} is no witness: {branch} selects it"
            yield failed

    @check_call(BadSelector, "disjoint")
    def disjoint(self, request: Branches, *, kind: AnyKind | None = None) -> bool:
        """Return True if no object at all can be selected by both this and the request."""
        known, request = _kind(kind), _request(request, "disjoint")
        held, asked = ([branch.box(known) for branch in each.branches] for each in (self, request))
        return not any(overlap(box, other) is not None for box in held for other in asked)

    def contradiction(self, *, kind: AnyKind | None = None) -> str | None:
        """Say why no object can ever be selected, or None if there can be one."""
        known = _kind(kind)
        reasons = [branch.contradiction_in(known) for branch in self.branches]
        return None if None in reasons else " and ".join(filter(None, reasons))

    def require_satisfiable(self, *, kind: AnyKind | None = None) -> None:
        """Raise ConflictingSelectors if one of the branches can never select anything: no filter is meant
        so.
        """
        known = _kind(kind)
        for branch in self.branches:
            if reason := branch.contradiction_in(known):
                raise ConflictingSelectors(
                    f"{clipped(branch, 500)} can never select an object: {reason}",
                    remedy=(
                        "Correct or remove one of the requirements; values of one label that are alternatives"
                        " are one requirement, such as 'app in (web,db)'"
                    ),
                )

    def narrowed_to(self, declared: Branches, *, kind: AnyKind | None = None) -> Selector | AnyOf | None:
        """Cut this request down to what the filter covers: each branch to as much as stays in one piece; None
        if nothing does.
        """
        known = _kind(kind)
        parts = [_narrow(branch, declared.branches, known) for branch in self.branches]
        kept = list(dict.fromkeys(part for part in parts if part is not None))
        return AnyOf(kept) if len(kept) > 1 else kept[0] if kept else None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Selector(Branches):
    """Which objects of one kind are meant: all requirements must hold, and None requires nothing.

    >>> Selector('app=web', namespaces=['shop', 'blog'])
    Selector(label='app=web', namespaces=['blog', 'shop'])

    As a filter it determines whether a read can be answered from the cache:

    >>> web = Selector(label='app=web')
    >>> web.covers(Selector(label='app=web,tier=gold')).answer
    <Answer.YES: 'yes'>
    >>> web.covers(Selector(label='tier=gold')).witness.labels
    {'tier': 'gold'}
    """

    label: LabelSelector | None
    field: FieldSelector | None
    names: tuple[str, ...] | None
    namespaces: tuple[str, ...] | None
    _boxes: dict[Kind | None, Box] = dataclasses.field(init=False, compare=False)
    """The boxes by kind: each read compares with those of the filter, which never changes."""
    _hashes: list[int] = dataclasses.field(init=False, compare=False)
    """The hash, once it was asked for: reads look up verdicts by their request."""

    @check_call(BadSelector, "Selector")
    def __init__(
        self,
        label: str | Mapping[str, str | Collection[str]] | LabelSelector | None = None,
        *,
        field: str | Mapping[str, str | bool | int] | FieldSelector | None = None,
        names: Collection[str] | None = None,
        namespaces: Collection[str] | None = None,
    ) -> None:
        for argument, given in {"label": label, "field": field}.items():
            if isinstance(given, str) and len(given) > MAX_TEXT:
                raise BadSelector(
                    f"{argument}= has {len(given):,} characters, more than {MAX_TEXT:,}",
                    remedy=(
                        "Select by something that the objects have in common, or declare several selectors"
                    ),
                )
            if isinstance(given, Mapping) and not given:
                raise BadSelector(
                    f"{argument}={{}} selects by nothing",
                    remedy=f"Leave {argument}= out to select all objects",
                )
        _fill(
            self,
            _parsed("label", label, LabelSelector),
            _parsed("field", field, FieldSelector),
            None if names is None else names_of(names),
            None if namespaces is None else namespaces_of(namespaces),
        )
        if len(self.requirements) + len(self.terms) > MAX_BRANCHES:
            raise BadSelector(
                f"the selector has {len(self.requirements) + len(self.terms):,} requirements, more than"
                f" {MAX_BRANCHES:,}",
                remedy="Fold those of one label into one with `in` or `notin`",
            )

    def __hash__(self) -> int:
        if not self._hashes:
            self._hashes.append(hash((self.label, self.field, self.names, self.namespaces)))
        return self._hashes[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are made anew: what has been worked out is not a part of it."""
        return make_selector, (self.label, self.field, self.names, self.namespaces)

    @property
    def branches(self) -> tuple[Selector, ...]:
        return (self,)

    def __str__(self) -> str:
        parts = [
            f"{part}={str(value)!r}"
            for part in ("label", "field")
            if (value := getattr(self, part)) is not None
        ]
        parts += [
            f"{part}={list(value)}"
            for part in ("names", "namespaces")
            if (value := getattr(self, part)) is not None
        ]
        return ", ".join(parts) or "everything"

    def __repr__(self) -> str:
        return f"Selector({self if self != Selector() else ''})"

    @property
    def requirements(self) -> tuple[LabelRequirement, ...]:
        return self.label.requirements if self.label is not None else ()

    @property
    def terms(self) -> tuple[FieldTerm, ...]:
        return self.field.terms if self.field is not None else ()

    def box(self, kind: Kind | None) -> Box:
        """Return this selector as a box of the core; raise NotSelectable if the kind lacks one of its
        fields.
        """
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
            raise NotSelectable(
                f"{problem.kind} cannot be selected by the field {clipped(problem.label, 300)!r}: the server"
                " has no such field label",
                remedy=(
                    f"{f'Did you mean {meant}? ' if meant else ''}Use one of:"
                    f" {', '.join(problem.selectable)}; or, when reading, post-filter with where="
                ),
                field=problem.label,
                selectable=problem.selectable,
            ) from None

    def failed(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> str | None:
        """Return the first requirement that an object with these labels and fields fails, as text, or
        None.
        """
        for argument, values in (("namespace", self.namespaces), ("name", self.names)):
            if values is not None and fields[f"metadata.{argument}"] not in values:
                return f"{argument} in ({','.join(values)})" if len(values) > 1 else f"{argument}={values[0]}"
        return next(
            (str(failed) for failed in self.requirements if not failed.matches(labels)), None
        ) or next((str(failed) for failed in self.terms if not failed.matches(fields)), None)

    def contradiction_in(self, kind: Kind | None) -> str | None:
        """Say why no object of the kind can ever be selected by this, or None if there can be one."""
        dimension = conflict(self.box(kind))
        if dimension is None:
            return None
        if dimension == THE_NAMESPACE and kind is not None and kind.namespaced is False:
            return f"{kind.plural} are cluster-scoped, and have no namespace"
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


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AnyOf(Branches):
    """Several selectors of one kind, of which one must select an object: an OR.

    >>> either = AnyOf([Selector('app=web'), Selector('app=db')])
    >>> either.covers(Selector('app in (web,db)')).answer
    <Answer.YES: 'yes'>
    """

    branches: tuple[Selector, ...]

    @check_call(BadSelector, "AnyOf", instead=_ANY_OF)
    def __init__(self, selectors: Iterable[Selector | str]) -> None:
        if isinstance(selectors, (str, bytes, Mapping, Branches)) or not isinstance(selectors, Iterable):
            raise BadSelector(f"AnyOf() takes a list, not {shown(selectors)}", remedy=_ANY_OF)
        branches = tuple(Selector(each) if isinstance(each, str) else each for each in selectors)
        if not branches:
            raise BadSelector(
                "AnyOf([]) selects nothing",
                remedy="Name at least one Selector; Selector() selects all objects",
            )
        if len(branches) > MAX_BRANCHES:
            raise BadSelector(
                f"AnyOf() has {len(branches):,} selectors, more than {MAX_BRANCHES:,}",
                remedy="Fold selectors that differ in one label into one with `in`, or name a wider one",
            )
        for branch in branches:
            if not isinstance(branch, Selector):
                raise BadSelector(f"AnyOf() takes selectors, not {shown(branch)}", remedy=_ANY_OF)
        object.__setattr__(self, "branches", branches)

    def __str__(self) -> str:
        return " or ".join(f"({branch})" for branch in self.branches)

    def __repr__(self) -> str:
        return f"AnyOf({list(self.branches)!r})"


_Text = TypeVar("_Text", LabelSelector, FieldSelector)


def _parsed(argument: str, given: object, cls: type[_Text]) -> _Text | None:
    if given is None or isinstance(given, cls):
        return given
    if isinstance(given, str):
        return cls.parse(given)
    if isinstance(given, Mapping):
        return cls.from_dict(given)
    raise BadSelector(
        f"{argument}= is {shown_with_type(given)}", remedy=f"Give text, a dict, or a {cls.__name__}"
    )


def make_selector(
    label: LabelSelector | None,
    field: FieldSelector | None = None,
    names: tuple[str, ...] | None = None,
    namespaces: tuple[str, ...] | None = None,
) -> Selector:
    """Make a selector of the parts of others, which are valid. Names are distinct and in order."""
    made = object.__new__(Selector)
    _fill(made, label, field, names, namespaces)
    return made


def _fill(
    selector: Selector,
    label: LabelSelector | None,
    field: FieldSelector | None,
    names: tuple[str, ...] | None,
    namespaces: tuple[str, ...] | None,
) -> None:
    """Set the attributes of a new selector, which is frozen to everybody else."""
    object.__setattr__(selector, "label", label)
    object.__setattr__(selector, "field", field)
    object.__setattr__(selector, "names", names)
    object.__setattr__(selector, "namespaces", namespaces)
    object.__setattr__(selector, "_boxes", {})
    object.__setattr__(selector, "_hashes", [])


def _request(given: object, method: str) -> Selector | AnyOf:
    if isinstance(given, (Selector, AnyOf)):
        return given
    raise BadSelector(
        f"{method}() was given {shown(given)}, which is no selector",
        remedy=f"Write {method}(Selector(...))",
    )


def _kind(kind: AnyKind | None) -> Kind | None:
    if kind is None or isinstance(kind, Kind):
        return kind
    key = key_of(kind)
    found = find(key)
    if found is None:
        checked_key(key)
        meant = likely(key)
        raise UnknownKind(
            f"{text_of(key)!r} is no kind that Kubernetes itself has",
            remedy=(
                f"{f'Did you mean {meant!r}? ' if meant else ''}"
                "For a custom resource, pass kopf_selectcache.Kind.custom(definition, version)"
            ),
        )
    return found


def _narrow(request: Selector, declared: tuple[Selector, ...], kind: Kind | None) -> Selector | None:
    """Return the request if it is covered, or confine it to namespaces where it is, or intersect it with the
    branch that keeps most of it: that adds the fewest restrictions, and the widest.
    """
    asked = request.box(kind)
    if conflict(asked) is not None:
        return None
    boxes = [branch.box(kind) for branch in declared]
    with suppress(TooManyBoxes):
        if uncovered(asked, boxes) is None:
            return request
        # Of an OR that is confined to namespaces, all of them may cover what no branch does.
        held = (
            {space for branch in declared for space in branch.namespaces or ()}
            if all(branch.namespaces for branch in declared)
            else set()
        )
        within = sorted(held if request.namespaces is None else held.intersection(request.namespaces))
        confined = make_selector(request.label, request.field, request.names, tuple(within) or None)
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
    """Return the intersection of both selectors, with the text of one of them in each dimension where one
    is enough.
    """
    asked, held = request.box(kind), branch.box(kind)

    def needed(at: Dimension) -> tuple[bool, bool]:
        """Return True for the request, and for the branch, if its text is needed for the intersection in this
        dimension.
        """
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
    """The result of comparing a filter with a request; true in a condition only for YES. As text it is one
    sentence with the reason.

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
        """The request cut down to what the filter covers: to its namespaces if that will do, else to as much
        as one branch keeps; None if nothing is left.
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
