"""What users write to say which objects they mean: selectors, and the OR of several. Compares them; reads nothing.

Everything is validated where it is made, and errors are declaration errors: a selector in a startup handler that
Kubernetes would refuse ends `kopf run` at once.
"""
from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from .core import fields as table
from .core.fields import Kind
from .core.problems import BadField, TooManyBoxes
from .core.regions import (
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
from .core.selectors import FieldTerm, LabelRequirement, plain
from .core.values import Strings, is_dns_label, is_object_name
from .errors import BadSelector, ConflictingSelectors, NotSelectable, UnknownKind
from .texts import FieldSelector, LabelSelector
from .verdict import Answer, Verdict, Witness

AnyKind: TypeAlias = Kind | str | tuple[str, ...]
"""A kind as users name it: `'pods'`, `'Pod'`, `'batch/v1/jobs'`, `('batch', 'v1', 'jobs')`, or the description of one."""

MAX_TEXT = 65_536
"""The longest selector text, in characters, that a Selector takes: a server refuses URLs far shorter than a megabyte."""
MAX_COUNT = 10_000
"""How many names or namespaces a Selector takes."""
MAX_BRANCHES = 1_000
"""How many selectors an AnyOf takes, and how many requirements a Selector: so that a verdict never takes minutes."""

_NOTHING: Mapping[str, str] = {}


class Branches(ABC):
    """What Selector and AnyOf have in common: objects are selected that satisfy one of the branches in full."""

    __slots__ = ()

    @property
    @abstractmethod
    def branches(self) -> tuple[Selector, ...]:
        """The selectors of which one must select an object."""

    def matches(
        self, *, name: str, namespace: str = "", labels: Mapping[str, str] = _NOTHING, fields: Mapping[str, str] = _NOTHING,
    ) -> bool:
        """Whether this object is selected. `fields` holds its values by field label, besides name and namespace."""
        known = {**fields, "metadata.name": name, "metadata.namespace": namespace}
        return any(branch.failed(labels, known) is None for branch in self.branches)

    def covers(self, request: Branches, *, kind: AnyKind | None = None) -> Verdict:
        """Say whether, as a filter, this holds every object that the request can select; and if not, show one.

        Without a kind, fields are free strings; with one, what the server can have there counts: for pods,
        `spec.hostNetwork=true` or `spec.hostNetwork=false` is everything. A request that nothing can satisfy is
        covered by everything. The answer is exact. It is UNKNOWN only where finding it would cut more than 10,000
        boxes (`core.regions.MAX_BOXES`), which takes a union of dozens of branches that overlap in many keys each.
        """
        _want_branches(request)
        kind = _kind(kind)
        union = [branch.box(kind) for branch in self.branches]
        answer = Answer.YES
        for asked in request.branches:
            try:
                left = uncovered(asked.box(kind), union)
            except TooManyBoxes:
                answer = Answer.UNKNOWN   # Another branch of the request may still show a plain NO.
                continue
            if left is not None:
                mentioned = {term.label: None for branch in (*request.branches, *self.branches) for term in branch.terms}
                witness = Witness.at(left, kind, mentioned)
                return Verdict(Answer.NO, self, request, kind, replace(witness, fails=tuple(self._failures(witness))))
        return Verdict(answer, self, request, kind)

    def _failures(self, witness: Witness) -> Iterator[str]:
        known = {**witness.fields, "metadata.name": witness.name, "metadata.namespace": witness.namespace}
        for branch in self.branches:
            failed = branch.failed(witness.labels, known)
            assert failed is not None, f"{witness} is no witness: {branch} selects it"
            yield failed

    def disjoint(self, request: Branches, *, kind: AnyKind | None = None) -> bool:
        """Whether no object at all can be selected by both this and the request."""
        _want_branches(request)
        kind = _kind(kind)
        held, asked = ([branch.box(kind) for branch in each.branches] for each in (self, request))
        return not any(overlap(box, other) is not None for box in held for other in asked)

    def contradiction(self, *, kind: AnyKind | None = None) -> str | None:
        """Say why no object can ever be selected, or None if there can be one."""
        kind = _kind(kind)
        reasons = [branch.contradiction_in(kind) for branch in self.branches]
        return None if None in reasons else " and ".join(filter(None, reasons))

    def require_satisfiable(self, *, kind: AnyKind | None = None) -> None:
        """Raise ConflictingSelectors if one of the branches can never select anything: no filter is meant so."""
        kind = _kind(kind)
        for branch in self.branches:
            if reason := branch.contradiction_in(kind):
                raise ConflictingSelectors(
                    f"{branch} can never select an object: {reason}",
                    remedy="Remove one of the requirements, or declare alternatives as a list of selectors, which means OR",
                )

    def narrowed_to(self, declared: Branches, *, kind: AnyKind | None = None) -> Branches | None:
        """Cut this request down to what the filter covers: each branch to where it keeps most; None if nothing stays."""
        kind = _kind(kind)
        parts = [_narrow(branch, declared.branches, kind) for branch in self.branches]
        kept = list(dict.fromkeys(part for part in parts if part is not None))
        return AnyOf(kept) if len(kept) > 1 else kept[0] if kept else None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Selector(Branches):
    """Which objects of one kind are meant: all requirements must hold, and None requires nothing.

    >>> Selector('app=web', namespaces=['shop', 'blog'])
    Selector(label='app=web', namespaces=['blog', 'shop'])

    As a filter it says whether a read can be answered from what it holds:

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
                    remedy="Select by something that the objects have in common, or declare several selectors",
                )
            if isinstance(given, Mapping) and not given:
                raise BadSelector(f"{argument}={{}} selects by nothing", remedy=f"Leave {argument}= out to select all objects")
        # Frozen: its own constructor alone sets its attributes.
        object.__setattr__(self, "label", _parsed("label", label, LabelSelector))
        object.__setattr__(self, "field", _parsed("field", field, FieldSelector))
        if len(self.requirements) + len(self.terms) > MAX_BRANCHES:
            raise BadSelector(
                f"the selector has {len(self.requirements) + len(self.terms):,} requirements, more than {MAX_BRANCHES:,}",
                remedy="Fold those of one label into one with `in` or `notin`",
            )
        object.__setattr__(self, "names", _checked("names", names, _is_sendable_name, "a name of an object"))
        object.__setattr__(self, "namespaces", _checked("namespaces", namespaces, is_dns_label, "a name of a namespace: lower-case letters, digits and '-'"))

    @property
    def branches(self) -> tuple[Selector, ...]:
        return (self,)

    def __str__(self) -> str:
        parts = [f"{part}={str(value)!r}" for part in ("label", "field") if (value := getattr(self, part)) is not None]
        parts += [f"{part}={list(value)}" for part in ("names", "namespaces") if (value := getattr(self, part)) is not None]
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
        """Return this selector as a box of the core; raise NotSelectable if the kind lacks one of its fields."""
        try:
            return box_of(labels=self.requirements, fields=self.terms, names=self.names, namespaces=self.namespaces, kind=kind)
        except BadField as problem:
            raise NotSelectable(
                f"{problem.kind} cannot be selected by the field {problem.label!r}: the server has no such field label",
                remedy=f"Use one of: {', '.join(problem.selectable)}; or, when reading, post-filter with where=",
                field=problem.label, selectable=problem.selectable,
            ) from None

    def failed(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> str | None:
        """Return the first requirement that an object with these labels and fields fails, as text, or None."""
        for argument, values in (("namespace", self.namespaces), ("name", self.names)):
            if values is not None and fields[f"metadata.{argument}"] not in values:
                return f"{argument} in ({','.join(values)})" if len(values) > 1 else f"{argument}={values[0]}"
        return next((str(failed) for failed in self.requirements if not failed.matches(labels)), None) or next(
            (str(failed) for failed in self.terms if not failed.matches(fields)), None)

    def contradiction_in(self, kind: Kind | None) -> str | None:
        """Say why no object of the kind can ever be selected by this, or None if there can be one."""
        dimension = conflict(self.box(kind))
        if dimension is None:
            return None
        if dimension == THE_NAMESPACE and kind is not None and kind.namespaced is False:
            return f"{kind.plural} are cluster-scoped, and have no namespace"
        texts = [str(requirement) for requirement in self.requirements if dimension == Dimension("label", requirement.key)]
        texts += [str(term) for term in self.terms if field_dimension(term.label, kind)[0] == dimension]
        if dimension == THE_NAMESPACE and self.namespaces is not None:
            texts.append(f"namespaces={list(self.namespaces)}")
        if dimension == THE_NAME and self.names is not None:
            texts.append(f"names={list(self.names)}")
        return f"nothing can satisfy {' and '.join(texts)}"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AnyOf(Branches):
    """Several selectors of one kind, of which one must select an object: an OR.

    >>> either = AnyOf([Selector('app=web'), Selector('app=db')])
    >>> either.covers(Selector('app in (web,db)')).answer
    <Answer.YES: 'yes'>
    """

    branches: tuple[Selector, ...]

    def __init__(self, selectors: Iterable[Selector]) -> None:
        if isinstance(selectors, Branches):
            raise BadSelector(f"AnyOf() takes a list, not {selectors!r}", remedy="Write AnyOf([Selector(...), ...])")
        branches = tuple(selectors)
        if not branches:
            raise BadSelector("AnyOf([]) selects nothing", remedy="Name at least one Selector; Selector() selects all objects")
        if len(branches) > MAX_BRANCHES:
            raise BadSelector(
                f"AnyOf() has {len(branches):,} selectors, more than {MAX_BRANCHES:,}",
                remedy="Fold selectors that differ in one label into one with `in`, or name a wider one",
            )
        for branch in branches:
            if not isinstance(branch, Selector):
                raise BadSelector(f"AnyOf() takes selectors, not {branch!r}", remedy="Write AnyOf([Selector(...), ...])")
        object.__setattr__(self, "branches", branches)

    def __str__(self) -> str:
        return " or ".join(f"({branch})" for branch in self.branches)

    def __repr__(self) -> str:
        return f"AnyOf({list(self.branches)!r})"


def _parsed(argument: str, given: object, cls: type[LabelSelector | FieldSelector]) -> object:
    if given is None or isinstance(given, cls):
        return given
    if isinstance(given, str):
        return cls.parse(given)
    if isinstance(given, Mapping):
        return cls.from_dict(given)
    raise BadSelector(
        f"{argument}= is {reprlib.repr(given)}, of the type {type(given).__name__}", remedy=f"Give text, a dict, or a {cls.__name__}",
    )


def _checked(argument: str, given: Collection[str] | None, valid: Callable[[str], bool], what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Collection):
        raise BadSelector(f"{argument}= is {reprlib.repr(given)}, not a list", remedy=f"Write {argument}=['...', ...]")
    if not given:
        raise BadSelector(f"{argument}=[] is empty, and would select nothing", remedy=f"Leave {argument}= out to select all")
    if len(given) > MAX_COUNT:
        raise BadSelector(
            f"{argument}= has {len(given):,} items, more than {MAX_COUNT:,}",
            remedy="Select by a label that the objects have in common",
        )
    for value in given:
        if not isinstance(value, str) or not valid(value):
            raise BadSelector(
                f"{argument}= has {reprlib.repr(value)}, which cannot be {what}", remedy="Correct or remove it")
    return tuple(sorted({plain(value) for value in given}))


def _is_sendable_name(text: str) -> bool:
    # Rules differ by kind; what no kind allows is refused here, and what looks like a pattern is none.
    return is_object_name(text) and len(text) <= 253 and "*" not in text and text.isprintable() and not any("\ud800" <= char <= "\udfff" for char in text)


def _want_branches(request: object) -> None:
    if not isinstance(request, Branches):
        raise TypeError(f"a request is a Selector or AnyOf, not {request!r}: write Selector(label=...)")


def _kind(kind: AnyKind | None) -> Kind | None:
    if kind is None or isinstance(kind, Kind):
        return kind
    found = table.find(kind)
    if found is None:
        raise UnknownKind(
            f"{kind!r} is no kind that Kubernetes itself has",
            remedy="For a custom resource, pass kopf_selectcache.core.fields.Kind.custom(definition, version)",
        )
    return found


def _narrow(request: Selector, declared: tuple[Selector, ...], kind: Kind | None) -> Selector | None:
    """Return the request if it is covered, or intersect it with the branch that keeps most of it: that adds the fewest
    restrictions, and the widest.
    """
    asked = request.box(kind)
    if conflict(asked) is not None:
        return None
    boxes = [branch.box(kind) for branch in declared]
    with suppress(TooManyBoxes):
        if uncovered(asked, boxes) is None:
            return request
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
    """Write the box of both selectors as a selector, in their own words wherever one of the two says it all."""
    asked, held = request.box(kind), branch.box(kind)

    def needed(at: Dimension) -> tuple[bool, bool]:
        """Whether the words of the request, and those of the branch, are needed to say what both allow there."""
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
    listed: dict[Dimension, list[str] | None] = {THE_NAME: None, THE_NAMESPACE: None}
    for at in listed:
        values = both.get(at)
        if isinstance(values, Strings):
            if values.others or values.listed == {""}:
                terms += [FieldTerm(f"metadata.{at.axis}", value, equal=not values.others) for value in sorted(values.listed)]
            else:
                listed[at] = sorted(values.listed)
    requirements = sorted(dict.fromkeys(requirements), key=lambda requirement: requirement.key)
    return Selector(
        LabelSelector(tuple(requirements)) if requirements else None,
        field=FieldSelector(tuple(dict.fromkeys(terms))) if terms else None,
        names=listed[THE_NAME], namespaces=listed[THE_NAMESPACE],
    )
