"""Namespaces with a selector each, and the filter that they make with those of the kind and the defaults.

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

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias, cast

from kopf_selectcache._errors import BadSelector, ConflictingSelectors
from kopf_selectcache.core.redact import clipped, function_name, shown
from kopf_selectcache.core.selection.grammar import FieldTerm
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.selectors.selector import AnyOf, Selector, make_selector
from kopf_selectcache.selectors.special_values import (
    ALL_OTHERS,
    EVERYTHING,
    UNSET,
    AllOthers,
    Everything,
    Unset,
)
from kopf_selectcache.selectors.text import FieldSelector, LabelDict, LabelSelector, namespaces_of

# ---- Precedence.

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
    """The filter without default namespaces, for a kind that turns out to be cluster-scoped; None if that is
    known, or if there are none."""


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
    """Return the namespaces of a branch: its own, else the chosen ones. A field selector that names a
    namespace replaces default ones. Beside those of the kind it applies as well, as every other does.
    """
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
