"""Namespaces with a selector each, the filter that they make with others, and the outside of split caches.

`{'shop': 'tier=gold', ALL_OTHERS: 'app=web'}` becomes one branch for each entry. That of ALL_OTHERS is
confined by `metadata.namespace!=shop`, so that the branches are disjoint.

Of the levels at which an option may be declared, the first that is not UNSET decides:

1. the kind's entry of the namespace   Cached(..., namespaces={'shop': 'tier=gold'})
2. the kind                            selectors['v1/pods'] = 'app=web'
3. the default entry of the namespace  defaults.namespaces = {'shop': 'team=a'}
4. the defaults                        defaults.labels = 'managed'

An empty value and EVERYTHING are set: both end the search.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias, cast

from kopf_selectcache._errors import BadSelector, ConflictingSelectors, DeclarationError
from kopf_selectcache.core.redact import clipped, function_name, shown
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.selection.regions import Selected
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector, make_selector
from kopf_selectcache.selectors.text import (
    ALL_OTHERS,
    EVERYTHING,
    UNSET,
    AllOthers,
    Everything,
    FieldSelector,
    LabelDict,
    LabelSelector,
    Unset,
    namespaces_of,
)

Place = str | AllOthers
"""A namespace, or all others."""


class Level(StrEnum):
    """The level at which a value is declared, in the order of precedence."""

    ENTRY = "the kind's entry of the namespace"
    KIND = "the kind"
    DEFAULT_ENTRY = "the default entry of the namespace"
    DEFAULTS = "the defaults"
    SETTINGS = "settings.selectcache"
    """Below the defaults: the option of the same name, which has a value always."""
    NOWHERE = "nowhere"
    """The value is UNSET."""


def first_set(values: Mapping[Level, object]) -> tuple[Any, Level]:
    """Return the value of the first level that has one, and that level.

    >>> first_set({Level.DEFAULTS: 'managed', Level.KIND: '', Level.ENTRY: UNSET})
    ('', <Level.KIND: 'the kind'>)
    >>> first_set({Level.DEFAULTS: UNSET})
    (UNSET, <Level.NOWHERE: 'nowhere'>)
    """
    for level in Level:
        if (value := values.get(level, UNSET)) is not UNSET:
            return value, level
    return UNSET, Level.NOWHERE


def written(value: object) -> str:
    """Return a value as users write it; of a function, its name alone."""
    if callable(value):
        return function_name(value)
    return repr(value) if isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True, repr=False)
class Origin:
    """The level that one value of a cache comes from.

    >>> print(Origin('labels', 'app=web', Level.KIND, ('blog', 'shop')))
    labels='app=web' in blog, shop: from the kind
    """

    option: str
    value: object
    """UNSET if no level has one."""
    level: Level
    namespaces: tuple[Place, ...] = ()
    """The namespaces that the value is for; empty for the whole cache."""

    def __str__(self) -> str:
        if self.level is Level.NOWHERE:
            return f"{self.option}={UNSET}"
        value = clipped(written(self.value), 200)
        if not self.namespaces:
            return f"{self.option}={value}: from {self.level}"
        places = clipped(", ".join(map(str, self.namespaces)), 200)
        return f"{self.option}={value} in {places}: from {self.level}"

    def __repr__(self) -> str:
        return f"<Origin {self}>"


# ---- Namespaces.

Entry: TypeAlias = str | LabelDict | Selector | Everything | Unset
"""The selector of one namespace: as a filter of a kind, but no OR; UNSET for one that has only a name."""

NamespacesGiven: TypeAlias = Mapping[Place, Entry] | Collection[Place] | LabelSelector | Everything | Unset
"""Namespaces as users write them: a list, a dict with a selector for each, or a selector of their labels."""

_NOTHING = Selector()
_AS_WRITTEN = (
    "Write namespaces=['shop'], namespaces={'shop': 'app=web'} or "
    "namespaces=LabelSelector.parse('tenant=yes')"
)
_PARTS = ("labels", "fields", "names")


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Namespaces with a selector each. None at all stands for all namespaces, or for those with a label."""

    entries: Mapping[Place, Selector] = field(default_factory=dict)
    label: LabelSelector | None = None

    def entry(self, place: Place) -> Selector:
        return self.entries.get(place, _NOTHING)

    @property
    def named(self) -> tuple[str, ...]:
        """The namespaces, without ALL_OTHERS."""
        return tuple(place for place in self.entries if not isinstance(place, AllOthers))

    def __str__(self) -> str:
        if self.label is not None:
            return repr(self.label)
        if self.entries and all(entry == _NOTHING for entry in self.entries.values()):
            return str(list(self.entries))
        texts = {place: UNSET if entry == _NOTHING else entry for place, entry in self.entries.items()}
        return f"{{{', '.join(f'{place!r}: {text}' for place, text in texts.items())}}}"


def namespaces_in(given: NamespacesGiven) -> Namespaces | Everything | Unset:
    """Return namespaces as users write them, checked; raise BadSelector.

    >>> print(namespaces_in({'shop': 'app=web', ALL_OTHERS: UNSET}))
    {'shop': labels='app=web', ALL_OTHERS: UNSET}
    """
    if isinstance(given, (Unset, Everything)):
        return given
    if isinstance(given, LabelSelector):
        return Namespaces(label=Selector(namespaces=given).namespace_label)
    if not isinstance(given, Collection) or isinstance(given, (str, bytes, bytearray)):
        what = f"namespaces= is {shown(given)}"
        raise BadSelector(what, remedy=_AS_WRITTEN)
    if any(isinstance(place, LabelSelector) for place in given):
        what = (
            "namespaces= can't mix a label selector with other entries, because a namespace may match several"
        )
        remedy = (
            "Write a single one: namespaces=LabelSelector.parse(...)\nWrite a list with a Selector for each"
        )
        raise BadSelector(what, remedy=remedy)
    if not given and not isinstance(given, Mapping):  # A list that is empty by mistake would cache all.
        what = "namespaces=[] is empty"
        raise BadSelector(what, remedy="To select all namespaces, write {} or EVERYTHING")
    named = [place for place in given if place is not ALL_OTHERS]
    names = namespaces_of(named) if named else ()
    places: list[Place] = [*names, *((ALL_OTHERS,) if len(named) < len(given) else ())]
    entries: Mapping[Place, Entry] = given if isinstance(given, Mapping) else {}
    return Namespaces({place: _entry(place, entries.get(place, UNSET)) for place in places})


def _entry(place: Place, given: object) -> Selector:
    if isinstance(given, (str, Mapping)):
        return Selector(given)
    if given is UNSET:
        return _NOTHING
    if given is EVERYTHING:
        return Selector(EVERYTHING, fields=EVERYTHING)
    if not isinstance(given, Selector):
        raise BadSelector(
            f"namespaces={{{shown(place)}: ...}} is {shown(given)}",
            remedy="Write a text or a Selector. Set keep=, transform= and other options once per kind",
        )
    if given.namespaces is not None or given.namespace_label is not None:
        what = f"the selector in namespaces={{{shown(place)}: {given!r}}} has namespaces, too"
        raise BadSelector(what, remedy="Leave them out")
    return given


@dataclass(frozen=True, slots=True)
class Assembled:
    """The filter of a kind, once the levels have decided."""

    filter: Selector | AnyOf
    origins: tuple[Origin, ...] = field(default=(), compare=False)
    unconfined: Assembled | None = None
    """The filter without default namespaces, for a kind that may be cluster-scoped; else None."""


def assemble(
    declared: Selector | AnyOf,
    namespaces: Namespaces | Everything | Unset = UNSET,
    *,
    default: Selector = _NOTHING,
    default_namespaces: Namespaces | Everything | Unset = UNSET,
    kind: Kind | None = None,
) -> Assembled:
    """Return the filter of a kind, of the selectors that are declared for it and of the defaults.

    Each branch inherits the parts that it leaves unset. Default namespaces do not concern a cluster-scoped
    kind; namespaces of its own are an error.
    """
    if kind is not None and namespaces is not UNSET:
        require_namespaced(kind)
    chosen, level = first_set(
        {
            Level.KIND: namespaces,
            Level.DEFAULTS: UNSET if kind is not None and kind.namespaced is False else default_namespaces,
        }
    )
    assembled = _assembled(declared, chosen, level, default, default_namespaces)
    if kind is not None or level is not Level.DEFAULTS:
        return assembled
    unconfined = _assembled(declared, UNSET, Level.NOWHERE, default)
    return replace(assembled, unconfined=unconfined)


def require_namespaced(kind: Kind) -> None:
    """Raise ConflictingSelectors if a kind that is declared with namespaces has none."""
    if kind.namespaced is False:
        what = f"{kind.plural} are cluster-scoped, so they have no namespace"
        raise ConflictingSelectors(what, remedy="Declare their filter without namespaces=")


def _assembled(
    declared: Selector | AnyOf,
    chosen: Namespaces | Everything | Unset,
    level: Level,
    default: Selector,
    default_namespaces: Namespaces | Everything | Unset = UNSET,
) -> Assembled:
    """Return the filter in the chosen namespaces, which are declared at this level."""
    own = chosen if isinstance(chosen, Namespaces) and level is Level.KIND else Namespaces()
    defaults = default_namespaces if isinstance(default_namespaces, Namespaces) else Namespaces()
    made = dict[Selector, None]()
    noted: dict[tuple[_Decided, bool], list[Place]] = {}
    named, confined = dict[Place, Selector](), dict[object, Origin]()
    for branch in declared.branches:
        label = branch.namespace_label
        if label is None and branch.namespaces is None and not _is_named_by_field(branch, level):
            label = chosen.label if isinstance(chosen, Namespaces) else None
        if label is not None:
            _require_no_entries(label, defaults)
        entries = own if branch.namespaces is None else Namespaces()
        places = _places(branch, chosen, level)
        if branch.namespace_label is not None:
            confined[label] = Origin("namespaces", Namespaces(label=label), Level.KIND)
        elif branch.namespaces is not None:
            named |= dict.fromkeys(places, _NOTHING)
        elif chosen is not UNSET and _is_named_by_field(branch, level):
            confined[Level.NOWHERE] = Origin("namespaces", UNSET, Level.NOWHERE)  # The field replaces them.
        else:
            confined[level] = Origin("namespaces", chosen, level)
        if not places:
            levels = _decided(branch, default)
            made[make_selector(**_parts(levels), namespace_label=label)] = None
            noted |= {(each, False): [] for each in levels}
        alike: dict[Selector, list[str]] = {}
        for place in places:
            levels = _decided(branch, default, entries.entry(place), defaults.entry(place))
            for each in levels:
                noted.setdefault((each, True), []).append(place)
            part = make_selector(**_parts(levels))
            if isinstance(place, AllOthers):
                made[_besides(part, cast("Namespaces", chosen).named)] = None
            else:
                alike.setdefault(part, []).append(place)
        for part, spaces in alike.items():
            made[make_selector(part.labels, part.fields, part.names, tuple(sorted(spaces)))] = None
    origins = [
        Origin(part, _shown(value), of, tuple(dict.fromkeys(places)))
        for ((part, value, of), _), places in noted.items()
        if not (part == "names" and value is UNSET)
    ]
    if named:
        origins.append(Origin("namespaces", Namespaces(named), Level.KIND))
    is_as_declared = [*made] == [*dict.fromkeys(declared.branches)]
    return Assembled(declared if is_as_declared else _union(made), (*origins, *confined.values()))


_Decided: TypeAlias = tuple[str, Any, Level]
"""A part of a selector, its value, and the level of it."""


def _decided(
    branch: Selector, default: Selector, entry: Selector = _NOTHING, default_entry: Selector = _NOTHING
) -> list[_Decided]:
    """Return the parts of a branch in one place. A part that is None is unset."""
    sources = {
        Level.ENTRY: entry,
        Level.KIND: branch,
        Level.DEFAULT_ENTRY: default_entry,
        Level.DEFAULTS: default,
    }
    values = {part: {level: getattr(each, part) for level, each in sources.items()} for part in _PARTS}
    return [
        (part, *first_set({level: UNSET if value is None else value for level, value in each.items()}))
        for part, each in values.items()
    ]


def _parts(decided: Iterable[_Decided]) -> dict[str, Any]:
    return {part: None if value is UNSET else value for part, value, _ in decided}


def _places(branch: Selector, chosen: object, level: Level) -> Collection[Place]:
    """Return the namespaces of a branch: its own, else the chosen ones, unless its fields name one."""
    if branch.namespace_label is not None:
        return ()
    if branch.namespaces is not None:
        return branch.namespaces
    terms = [term for term in branch.terms if term.label == "metadata.namespace"]
    if not isinstance(chosen, Namespaces) or _is_named_by_field(branch, level):
        return ()
    named = {term.value for term in terms if term.equal}
    excluded = {term.value for term in terms if not term.equal}
    possible = tuple(
        place
        for place in chosen.entries
        if (
            named.isdisjoint(chosen.named)
            if isinstance(place, AllOthers)
            else place not in excluded and named <= {place}
        )
    )
    return possible or tuple(chosen.entries)  # A filter that contradicts all of them is refused.


def _is_named_by_field(branch: Selector, level: Level) -> bool:
    """Return True if a field selector names the namespace of a branch, in the place of default ones."""
    return level is Level.DEFAULTS and any(
        term.label == "metadata.namespace" and term.equal for term in branch.terms
    )


def _require_no_entries(label: LabelSelector, defaults: Namespaces) -> None:
    """Raise ConflictingSelectors if a namespace with the label could have a default entry with a selector."""
    if any(entry != _NOTHING for entry in defaults.entries.values()):
        raise ConflictingSelectors(
            f"namespaces={label!r} can't be combined with defaults that have selectors for single namespaces:"
            f" {clipped(defaults, 300)}",
            remedy="Declare the namespaces of this kind by name\nDeclare the defaults without selectors",
        )


def _besides(part: Selector, named: Iterable[str]) -> Selector:
    """Return a selector of all namespaces except these."""
    others = tuple(FieldTerm("metadata.namespace", each, equal=False) for each in named)
    terms = (*part.terms, *others)
    return make_selector(part.labels, FieldSelector(terms) if terms else part.fields, part.names)


def _union(branches: Iterable[Selector]) -> Selector | AnyOf:
    distinct = list(branches)
    return distinct[0] if len(distinct) == 1 else AnyOf(distinct)


def _shown(value: object) -> object:
    """Return a value as an origin has it."""
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, (Everything, Unset)) else str(value)


# ---- Outer streams of a split cache: the metadata of all objects in the namespaces of a filter that it does
# not select. Pure.

MOST_NAMES = 20
"""The most names that an outer stream excludes by its selector."""

MOST_PARTS = 20
"""The most outer streams in one namespace: there are several if the filter has fields."""

_KEYS = ("metadata.name", "metadata.namespace")
_OPPOSITES = {"=": "!=", "==": "!=", "!=": "=", "in": "notin", "notin": "in", "exists": "!", "!": "exists"}


class Outer(NamedTuple):
    """One outer stream."""

    selector: Selector
    others: tuple[Selected, ...] = ()
    """The objects that it does not store, because the filter selects them, or another stream has them."""


class _Part(NamedTuple):
    """Objects that no branch of a filter selects, as far as its branches have been looked at."""

    labels: tuple[LabelRequirement, ...] = ()
    terms: tuple[FieldTerm, ...] = ()
    names: tuple[str, ...] | None = None
    failing: tuple[Selector, ...] = ()
    """The branches of which they fail a requirement that metadata shows."""


def outer_streams(filter_: Branches, *, joined: bool = False) -> tuple[Outer, ...]:
    """Return the outer streams of a filter, in each of its namespaces; or those that all namespaces share.
    Raise DeclarationError if it takes too many.

    >>> [str(each.selector) for each in outer_streams(Selector('app in (web,www)', namespaces=['shop']))]
    ["labels='app notin (web,www)', namespaces=['shop']"]
    """
    named = tuple(sorted({name for each in filter_.branches for name in each.namespaces or ()}))
    spaces: list[tuple[str, ...] | None] = [named] if joined else [(each,) for each in named]
    if any(branch.namespaces is None for branch in filter_.branches):
        spaces = [None]
    elif not named:
        return ()
    return tuple(each for namespaces in spaces for each in _in(namespaces, filter_))


def _in(namespaces: tuple[str, ...] | None, filter_: Branches) -> Iterator[Outer]:
    """Yield the streams of the objects in these namespaces that a filter does not select.

    Such an object fails each branch: a requirement that its metadata shows, or else one of its fields, which
    the server alone sees. There is one stream for each combination of these.
    """
    within = [
        each
        for each in filter_.branches
        if namespaces is None or each.namespaces is None or not set(namespaces).isdisjoint(each.namespaces)
    ]
    parts = [_Part()]
    for branch in within:
        parts = [each for part in parts for each in _failing(part, branch, namespaces)]
        if len(parts) > MOST_PARTS:
            raise DeclarationError(
                f"outside='metadata' needs more than {MOST_PARTS} watches of metadata for a filter with"
                " these fields",
                remedy="Declare fewer alternatives with fields",
            )
    for part in parts:
        labels, terms, others = part.labels, part.terms, part.failing
        opposites = [_opposite(each, namespaces) for each in others]
        if sum(len(each.names or ()) for each in others) <= MOST_NAMES and None not in opposites:
            known = [each for each in opposites if each is not None]
            labels += tuple(requirement for requirements, _ in known for requirement in requirements)
            terms += tuple(term for _, each in known for term in each)
            others = ()
        yield Outer(
            make_selector(
                LabelSelector(tuple(dict.fromkeys(labels))) if labels else None,
                FieldSelector(tuple(dict.fromkeys(terms))) if terms else None,
                part.names,
                namespaces,
            ),
            tuple(map(_selected, others)),
        )


def _failing(part: _Part, branch: Selector, namespaces: tuple[str, ...] | None) -> Iterator[_Part]:
    """Yield the objects of a part that fail a branch, and can exist."""
    if _size(branch) > 0 or not _is_everywhere(branch, namespaces):
        yield part._replace(failing=(*part.failing, branch))
    labels, names, terms = (*part.labels, *branch.requirements), part.names, (*part.terms,)
    if branch.names is not None:
        names = tuple(each for each in branch.names if names is None or each in names)
    terms += _metadata_terms(branch)
    for term in branch.terms:
        if term.label in _KEYS:
            continue
        failed = FieldTerm(term.label, term.value, not term.equal)
        if names != () and _can_exist(labels, (*terms, failed)):
            yield part._replace(labels=labels, terms=(*terms, failed), names=names)
        terms += (term,)  # An object that fails several fields is in the stream of the first.


def _can_exist(labels: tuple[LabelRequirement, ...], terms: tuple[FieldTerm, ...]) -> bool:
    selector = make_selector(LabelSelector(labels) if labels else None, FieldSelector(terms))
    try:
        selector.require_satisfiable()
    except ConflictingSelectors:
        return False
    return True


def _metadata_terms(branch: Selector) -> tuple[FieldTerm, ...]:
    return tuple(term for term in branch.terms if term.label in _KEYS)


def _size(branch: Selector) -> int:
    """Return the number of requirements that metadata shows, besides the namespaces."""
    return len(branch.requirements) + len(_metadata_terms(branch)) + (branch.names is not None)


def _is_everywhere(branch: Selector, namespaces: tuple[str, ...] | None) -> bool:
    """Return True if a branch is confined to no namespaces, or to all of these."""
    return branch.namespaces is None or (namespaces is not None and set(namespaces) <= set(branch.namespaces))


def _opposite(
    branch: Selector, namespaces: tuple[str, ...] | None
) -> tuple[tuple[LabelRequirement, ...], tuple[FieldTerm, ...]] | None:
    """Return what selects the objects that fail a branch by their metadata; None if no selector does."""
    if _size(branch) != 1 or not _is_everywhere(branch, namespaces):
        return None
    if branch.names is not None:
        return (), tuple(FieldTerm("metadata.name", name, equal=False) for name in branch.names)
    for term in _metadata_terms(branch):
        return (), (FieldTerm(term.label, term.value, not term.equal),)
    (requirement,) = branch.requirements
    operator = _OPPOSITES.get(requirement.operator)
    if operator is None:
        return None
    return (LabelRequirement(requirement.key, operator, requirement.values),), ()  # type: ignore[arg-type]  # Of the table.


def _selected(branch: Selector) -> Selected:
    return Selected(
        None if branch.namespaces is None else frozenset(branch.namespaces),
        None if branch.names is None else frozenset(branch.names),
        branch.requirements,
        _metadata_terms(branch),
    )
